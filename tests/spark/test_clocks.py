"""Spark over histories of several hosts: the same tolerance, the same words as in process."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from spark.history import open_history
from spark.job import CHECKS
from tests.spark.clocks import BEYOND, WITHIN, all_within, declared
from tests.spark.minimal import write_minimal
from tests.spark.reports import SPARK_MARKS, alarms, report_of

pytestmark = SPARK_MARKS
ALL = pytest.param(CHECKS, marks=pytest.mark.further)
SOME = ["concerned", "all"]


@pytest.mark.parametrize("only", [{check for check, _ in WITHIN.values()}, ALL], ids=SOME)
def test_what_the_clocks_explain_is_quiet_for_both(session, tmp_path, only):
    run = write_minimal(declared(all_within), tmp_path)
    report = report_of(session, run, tmp_path, only=only)
    assert alarms(report) == {}
    assert check_history(load_history(run)).exit_code == report.verdict.exit_code == 0


@pytest.mark.further
def test_without_a_tolerance_all_of_it_is_told_by_both(session, tmp_path):
    run = write_minimal(all_within, tmp_path)
    found = alarms(report_of(session, run, tmp_path))
    assert set(found) == {check for check, _ in WITHIN.values()}
    other = check_history(load_history(run)).results
    assert {n: c for n, c in found.items() if n != "A45"} == {
        n: other[n].count for n in found if n != "A45"
    }


@pytest.mark.parametrize("only", [{check for check, _ in BEYOND.values()} | {"A45"}, ALL], ids=SOME)
def test_what_no_clock_explains_is_told_by_both(session, tmp_path, only):
    def spoil(run, messages):
        for _, each in BEYOND.values():
            each(run, messages)

    run = write_minimal(declared(spoil), tmp_path)
    assert set(alarms(report_of(session, run, tmp_path, only=only))) == {"A45", "A11"}


def test_odd_tolerance_is_refused(tmp_path):
    run = write_minimal(declared(lambda _run, _messages: None, -1), tmp_path)
    assert any("clock_tolerance_ns" in line for line in open_history(run).problems)
