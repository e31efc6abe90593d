"""The Spark job and the in-process checker answer alike on generated histories."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.generate import PLANTED, random_history
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS
COMPARED = PLANTED


@pytest.mark.parametrize("seed", range(6))
def test_both_checkers_find_what_was_planted(session, tmp_path, seed):
    planted = random_history(seed, tmp_path / "run")
    spark = {
        r.check: (r.verdict, r.count)
        for r in report_of(session, tmp_path / "run", tmp_path).results
        if r.check in COMPARED
    }
    other = {
        name: (result.verdict, result.count)
        for name, result in check_history(load_history(tmp_path / "run")).results.items()
        if name in COMPARED
    }
    assert spark == other
    assert {check: count for check, (_, count) in spark.items()} == planted
