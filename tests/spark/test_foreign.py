"""Spark takes runs of others for what they are, and says the same as the in-process checker.

A job takes seconds, so that what can be seen side by side shares a run; each case by itself is
given to the other checker (`tests/unit/chaos/test_foreign`).
"""

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from spark.history import open_history
from tests.spark.foreign import CASES, Case, spoil_with, write_case
from tests.spark.reports import SPARK_MARKS, report_of

pytestmark = SPARK_MARKS
COMPARED = ("A1", "A5", "A6", "A7", "A8", "A15", "A34", "A35")
ANOMALIES = (
    "gone from all logs", "delivered beyond the end", "acknowledged beyond the end",
    "refused and stored", "stored twice", "second group misses one", "phantom without a key",
    "body without bytes", "one row an attempt", "refused by a code that proves nothing",
)  # fmt: skip
DOUBTS = {
    "event lost": "events has a gap",
    "received before it was sent": "1 deliveries are earlier than their send",
    "too few faults": "kill: 1 of 2",
    "fault never lifted": "could not be lifted",
    "without the log of one": "the logs of n1 are missing",
}


def test_each_anomaly_beside_others_is_found_by_both(session, tmp_path):
    run = write_case(Case(exit_code=1, spoil=spoil_with(ANOMALIES)), tmp_path)
    report = report_of(session, run, tmp_path, only=COMPARED)
    found = {r.check: r.count for r in report.results}
    other = check_history(load_history(run)).results
    assert {check: found[check] for check in COMPARED} == {c: other[c].count for c in COMPARED}
    wanted = {CASES[name].check for name in ANOMALIES} - {""}
    assert {check for check in COMPARED if found[check]} >= wanted


def test_what_lies_elsewhere_than_was_told_is_found_without_logs(session, tmp_path):
    names = (
        "came from elsewhere", "one fault soon after the begin", "a group that got nothing",
        "came again from somewhere",
    )  # fmt: skip
    run = write_case(Case(exit_code=1, spoil=spoil_with(names)), tmp_path)
    report = report_of(session, run, tmp_path, only=("A1", "A15", "A45", "A48"))
    other = check_history(load_history(run)).results
    found = {r.check: (r.verdict, r.count) for r in report.results}
    assert found == {check: (other[check].verdict, other[check].count) for check in found}
    assert found["A15"] == ("invalid", 1)


def test_each_doubt_is_named(session, tmp_path):
    doubts = Case(
        exit_code=2, spoil=spoil_with(DOUBTS), after=CASES["without the log of one"].after
    )
    run = write_case(doubts, tmp_path)
    report = report_of(session, run, tmp_path, only=["A34", "A45", "A47", "A48"])
    assert report.verdict.exit_code == 2, report.verdict.reasons
    said = "; ".join(report.verdict.reasons)
    assert [words for words in DOUBTS.values() if words not in said] == [], said


def test_what_is_only_written_otherwise_is_valid(session, tmp_path):
    run = write_case(CASES["without run.json"], tmp_path)
    for name in ("numbers as text", "files of others beside"):
        after = CASES[name].after
        assert after is not None
        after(run)
    report = report_of(session, run, tmp_path)
    assert report.verdict.exit_code == 0, report.verdict.reasons


def test_run_of_others_gets_the_right_verdict(session, tmp_path):
    names = ("stored twice", "committed and in no log", "began again without")
    spoiled = Case(exit_code=1, spoil=spoil_with(names), after=CASES["channel flipped"].after)
    run = write_case(spoiled, tmp_path)
    report = report_of(session, run, tmp_path)
    assert report.verdict.exit_code == 1, report.verdict.reasons
    counts = {r.check: r.count for r in report.results if r.check in COMPARED}
    other = check_history(load_history(run)).results
    assert counts == {check: other[check].count for check in counts}
    assert {CASES[n].check for n in (*names, "channel flipped")} <= {c for c in counts if counts[c]}


@pytest.mark.parametrize("name", ["stored twice", "a page spoiled"])
def test_exit_code_is_that_of_the_other_checker(session, name, tmp_path):
    run = write_case(CASES[name], tmp_path)
    report = report_of(session, run, tmp_path, only=("A8", "A15", "A48"))
    assert report.verdict.exit_code == CASES[name].exit_code, report.verdict.reasons
    other = check_history(load_history(run))
    assert other.exit_code == report.verdict.exit_code
    assert {r.check: r.count for r in report.results if r.check in COMPARED} == {
        check: other.results[check].count for check in ("A8", "A15")
    }


@pytest.mark.parametrize(
    "name", ["sends cut short", "deliveries cut short", "keys are words", "offsets are structs"]
)
def test_table_that_cannot_be_understood_is_left_out_and_named(name, tmp_path):
    history = open_history(write_case(CASES[name], tmp_path))
    table = "deliveries" if name.startswith("deliveries") else "sends"
    assert history.rows(table) == 0
    assert len(history.problems) == 1
    assert f"tables/{table}/part-0.parquet: " in history.problems[0]


def test_directory_without_a_run_is_wrong_usage(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither run\.json nor tables"):
        open_history(tmp_path)


@pytest.mark.parametrize(("name", "run_id"), [("without run.json", "a-run"), ("no sends", "a-run")])
def test_run_id_is_told_by_run_json_or_by_the_sends(name, run_id, tmp_path):
    assert open_history(write_case(CASES[name], tmp_path)).run_id == run_id
