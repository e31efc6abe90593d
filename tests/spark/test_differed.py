"""Spark says of each history what the in-process checker says, and names what it names."""

from collections import defaultdict

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from chaos.verdict import COMPLAINTS, compare
from tests.spark.differed import DIFFERED
from tests.spark.minimal import write_minimal
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS


def by_check():
    """Return the histories by the first check that is asked of them."""
    found = defaultdict(list)
    for name, (wanted, _) in DIFFERED.items():
        found[next(iter(wanted))].append(name)
    return found


@pytest.mark.parametrize("check", by_check())
def test_both_say_the_same(session, check, tmp_path):
    for name in by_check()[check]:
        wanted, spoil = DIFFERED[name]
        run = write_minimal(spoil, tmp_path / name)
        report = report_of(session, run, tmp_path, only=tuple(wanted))
        said = {r.check: (r.verdict, 0 if r.check in COMPLAINTS else r.count)
                for r in report.results}  # fmt: skip
        assert {check: said[check] for check in wanted} == wanted, name
        ours, theirs = check_history(load_history(run)).as_json(), report.as_json()
        mine = {check: ours["checks"][check] for check in wanted}
        asked = {check: theirs["checks"][check] for check in wanted}
        assert compare({"checks": mine, "counts": {}}, {"checks": asked, "counts": {}}) == [], name
