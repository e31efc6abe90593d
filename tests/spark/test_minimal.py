"""The Spark job: each violation is found by its check alone, and what is no history is never valid.

A job takes seconds: the in-process checker is given each violation by itself
(`tests/unit/chaos/test_minimal`), Spark what can be seen side by side in one run. The in-process
checker goes through all ways to be dishonest, the opening of a history (no JVM) does here, and one
job shows that a refused table is not judged.
"""

import json
import shutil
from collections import Counter

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from chaos.verdict import COMPLAINTS
from spark import job
from spark.history import open_history
from spark.job import CHECKS
from tests.spark.claims import HALF_APPLIED
from tests.spark.elsewhere import ELSEWHERE_SOUND
from tests.spark.generate import MS
from tests.spark.kinds import (
    LACKING,
    LACKING_TOGETHER,
    committed_past,
    every_kind,
    of,
    reading,
    too_soon_by_the_clock,
)
from tests.spark.leaders import away_at_most
from tests.spark.minimal import (
    DISHONEST,
    MISSING,
    TOGETHER,
    VIOLATIONS,
    name_tables,
    write_minimal,
    write_together,
)
from tests.spark.planted import SOUND
from tests.spark.reports import SPARK_MARKS, alarms, report_of
from tests.spark.serving import never_ended, never_ended_before_a_fault

pytestmark = SPARK_MARKS
QUIET = {"valid", "not checked"}


@pytest.mark.parametrize("names", TOGETHER)
def test_each_violation_beside_others_is_found_by_its_check(session, names, tmp_path):
    """What they are alone they are together."""
    run = write_together(TOGETHER[names], tmp_path)
    wanted = {VIOLATIONS[name][0] for name in TOGETHER[names]}
    report = report_of(session, run, tmp_path, only=wanted)
    other = check_history(load_history(run)).results
    found = {r.check: (r.verdict, r.count) for r in report.results}
    for check in wanted.difference(COMPLAINTS):
        assert found[check] == (other[check].verdict, other[check].count), check
    told = {n for n, (said, count) in found.items() if count or said not in QUIET}
    assert told == wanted, report.verdict.reasons


@pytest.mark.further
@pytest.mark.parametrize("names", TOGETHER)
def test_each_violation_beside_others_is_found_by_no_other_check(session, names, tmp_path):
    """No check finds more, none less."""
    wanted: Counter[str] = Counter()
    for name in TOGETHER[names]:
        alone = check_history(load_history(write_minimal(VIOLATIONS[name][2], tmp_path / name)))
        wanted.update({check: result.count for check, result in alone.results.items()})
    run = write_together(TOGETHER[names], tmp_path)
    report = report_of(session, run, tmp_path)
    found = {r.check: (r.verdict, r.count) for r in report.results}
    other = check_history(load_history(run))
    assert {n: other.results[n].count for n in CHECKS} == {n: wanted[n] for n in CHECKS}
    for check, theirs in found.items():
        if check not in COMPLAINTS:
            assert theirs == (other.results[check].verdict, other.results[check].count), check
    told = {n for n, (said, count) in found.items() if count or said not in QUIET}
    assert told == {VIOLATIONS[name][0] for name in TOGETHER[names]}, report.verdict.reasons
    assert report.verdict.exit_code == other.exit_code


def test_sound_history_has_nothing_and_every_check_looks_at_it(session, tmp_path):
    report = report_of(session, write_minimal(every_kind, tmp_path), tmp_path)
    assert alarms(report) == {}
    assert {r.verdict for r in report.results} == {"valid"}
    assert (report.verdict.verdict, report.verdict.exit_code) == ("valid", 0)


@pytest.mark.parametrize(
    "only",
    [("A25", "A26", "A28", "A45", "A56"), pytest.param(CHECKS, marks=pytest.mark.further)],
    ids=["concerned", "all"],
)
def test_what_comes_early_where_a_wall_clock_was_moved_is_no_anomaly(session, tmp_path, only):
    run = write_minimal(too_soon_by_the_clock, tmp_path)
    report = report_of(session, run, tmp_path, only=only)
    assert alarms(report) == {}
    assert {r.verdict for r in report.results if r.check in {"A26", "A56"}} == {"valid"}


def test_what_looks_odd_and_is_sound_is_no_anomaly(session, tmp_path):
    """In process each is asked alone (`tests/unit/chaos/test_minimal`)."""

    def spoil(run, messages):
        for odd in (SOUND | ELSEWHERE_SOUND).values():
            odd(run, messages)
            run.clock += 60_000 * MS

    report = report_of(session, write_minimal(spoil, tmp_path), tmp_path)
    assert (alarms(report), report.verdict.exit_code) == ({}, 0), report.verdict.reasons


def test_nobody_is_accused_of_what_other_brokers_may_have_got(session, tmp_path):
    report = report_of(session, write_minimal(away_at_most, tmp_path), tmp_path, only=["A38"])
    assert alarms(report) == {}


def test_what_a_fault_half_applied_may_have_done_accuses_nobody(session, tmp_path):
    """In process each is asked alone (`tests/unit/chaos/test_minimal`)."""
    run = write_together(HALF_APPLIED, tmp_path)
    found = {
        r.check: r for r in report_of(session, run, tmp_path, ["A23", "A38", "A48", "A56"]).results
    }
    other = check_history(load_history(run)).results
    assert {check for check, r in found.items() if r.verdict not in QUIET} == {"A48"}
    assert found["A48"].count == other["A48"].count == 4
    assert found["A48"].summary == other["A48"].summary


def test_what_checks_need_and_the_history_lacks_is_named_by_each(session, tmp_path):
    def spoil(run, messages):
        for name in LACKING_TOGETHER:
            LACKING[name][2](run, messages)

    run = write_minimal(spoil, tmp_path)
    found = {r.check: r for r in report_of(session, run, tmp_path).results}
    other = check_history(load_history(run)).results
    undecided = {check for name in LACKING_TOGETHER for check in LACKING[name][0]}
    assert {check for check, r in found.items() if r.verdict == "unknown"} == undecided
    for name in LACKING_TOGETHER:
        checks, named, _ = LACKING[name]
        assert all(named in found[check].summary for check in checks), name
    for check in undecided:
        assert found[check].summary == other[check].summary


def test_every_violation_is_in_one_of_the_runs():
    assert sorted(name for names in TOGETHER.values() for name in names) == sorted(VIOLATIONS)


@pytest.mark.parametrize("name", DISHONEST)
def test_history_that_cannot_be_true_is_a_problem_that_names_its_file(name, tmp_path):
    spoil, named = DISHONEST[name]
    run = write_minimal(None, tmp_path)
    assert open_history(run).problems == []
    spoil(run)
    problems = "; ".join(open_history(run).problems)
    assert named in problems
    assert str(run) in problems


@pytest.mark.parametrize("table", MISSING)
def test_table_that_run_json_names_and_nobody_finds_is_a_problem(table, tmp_path):
    run = write_minimal(name_tables, tmp_path)
    shutil.rmtree(run / "tables" / table)
    assert any(f"the table {table}" in line for line in open_history(run).problems)


def test_logs_in_which_nothing_is_committed_leave_unknown_what_rests_on_them(session, tmp_path):
    checks, named, spoil = LACKING["commits of logs"]
    report = report_of(session, write_minimal(spoil, tmp_path), tmp_path, only=checks)
    assert {r.check: r.verdict for r in report.results} == dict.fromkeys(checks, "unknown")
    assert all(named in r.summary for r in report.results)


@pytest.mark.parametrize("offset", [2**33, 2**62])
def test_commit_far_behind_the_end_is_judged(session, tmp_path, offset):
    """Nothing that is worked out for it grows with the offset."""

    def far(kind):
        committed_past(kind)
        kind.rows["commit"]["value_offset"] = offset

    run = write_minimal(of(reading, far), tmp_path)
    report = report_of(session, run, tmp_path, only=["A2"])
    alone = check_history(load_history(run)).results
    assert alarms(report) == {"A2": 1}
    assert (alone["A2"].verdict, alone["A2"].count) == ("invalid", 1)


@pytest.mark.parametrize("spoil", [never_ended, never_ended_before_a_fault])
def test_sends_that_never_ended_count_as_they_do_in_process(session, tmp_path, spoil):
    run = write_minimal(spoil, tmp_path)
    (found,) = report_of(session, run, tmp_path, only=["A61"]).results
    alone = check_history(load_history(run)).results["A61"]
    assert (found.verdict, found.count, found.details) == (
        alone.verdict, alone.count, alone.details,
    )  # fmt: skip


def test_refused_table_and_failing_check_leave_the_rest_standing(session, tmp_path, monkeypatch):
    """A message is lost, the commits are no commits, and one check breaks."""
    run = write_minimal(VIOLATIONS["lost"][2], tmp_path)
    DISHONEST["acks of an unknown kind"][0](run)
    about = json.loads((run / "run.json").read_text()) | {"contract": ["quorum"]}
    (run / "run.json").write_text(json.dumps(about))

    def broken(*_arguments):
        raise RuntimeError("boom")

    monkeypatch.setattr(job, "check_offsets", broken)
    report = report_of(session, run, tmp_path)
    found = {r.check: r for r in report.results}
    assert set(found) == set(CHECKS)
    assert (found["A15"].verdict, found["A1"].verdict) == ("unknown", "invalid")
    assert "RuntimeError: boom" in found["A15"].summary
    assert any("contract" in line for line in report.problems)
