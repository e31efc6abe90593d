"""The Spark job excuses by taken disks what the in-process checker does, and no more."""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from tests.spark.losing import (
    FAILING,
    LOSING,
    NUMBERS,
    by_failing_calls,
    lost_with_disks,
    of_so_many,
)
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS
ASKED = ("A1", "A2", "A11", "A13", "A14", "A15", "A27", "A35")


@pytest.mark.parametrize(
    "name",
    [
        "lost after",
        "lost amid it, had by others",
        "lost amid it, of a whole group",
        "passed over soon",
        "put where another was",
        "passed after",
        "passed amid it, another anew",
        "told another index after",
        pytest.param("passed before", marks=pytest.mark.further),
        pytest.param("told another index before", marks=pytest.mark.further),
        pytest.param("all lost after", marks=pytest.mark.further),
        pytest.param("lost soon", marks=pytest.mark.further),
        pytest.param("lost amid it, on all logs", marks=pytest.mark.further),
        pytest.param("put where another came later", marks=pytest.mark.further),
        pytest.param("plain where another was", marks=pytest.mark.further),
        pytest.param("lost before, had by others", marks=pytest.mark.further),
        pytest.param("lost amid it", marks=pytest.mark.further),
        pytest.param("polled back before", marks=pytest.mark.further),
    ],
)
def test_both_excuse_the_same(session, tmp_path, name):
    spoil, when, code, check = LOSING[name]
    run = lost_with_disks(spoil, when)
    report = report_of(session, run, tmp_path, only=ASKED)
    other = check_history(load_history(tmp_path / "run"))
    assert report.verdict.exit_code == other.exit_code == code, report.verdict.reasons
    told = {r.check: r.details["not_excused"] for r in report.results if "not_excused" in r.details}
    assert told == {
        name: one.details["not_excused"]
        for name, one in other.results.items()
        if "not_excused" in one.details
    }
    assert set(told) == ({check} if code == 1 else set())


@pytest.mark.parametrize(
    "name",
    [
        "nobody knows",
        "five that answered",
        pytest.param("three that answered", marks=pytest.mark.further),
        pytest.param("three", marks=pytest.mark.further),
    ],
)
def test_both_know_of_as_many_brokers(session, tmp_path, name):
    said, answered, code = NUMBERS[name]
    report = report_of(session, of_so_many(said, answered), tmp_path, only=["A1"])
    assert report.verdict.exit_code == code, report.verdict.reasons


@pytest.mark.parametrize("name", FAILING)
def test_both_know_calls_that_failed_from_taken_disks(session, tmp_path, name):
    only_there, code = FAILING[name]
    report = report_of(session, by_failing_calls(only_there), tmp_path, only=["A1"])
    assert report.verdict.exit_code == code, report.verdict.reasons
