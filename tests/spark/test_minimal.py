"""The Spark job: each violation alone is found alone, and what is no history is never valid.

A job takes seconds: the in-process checker goes through all ways to be dishonest, the opening of a
history (no JVM) does here, and one job shows that a refused table is not judged.
"""

import json
import shutil

import pytest

from chaos.checker import check_history
from chaos.load import load_history
from spark.checks import offsets
from spark.history import open_history
from spark.job import CHECKS
from tests.spark.judge import SPARK_MARKS, report_of
from tests.spark.minimal import DISHONEST, MISSING, VIOLATIONS, name_tables, write_minimal

pytestmark = SPARK_MARKS


@pytest.mark.parametrize("name", ["sound", *VIOLATIONS])
def test_both_checkers_find_each_violation_and_only_that(session, name, tmp_path):
    check, verdict, spoil = VIOLATIONS.get(name, ("", "valid", None))
    run = write_minimal(spoil, tmp_path)
    report = report_of(session, run, tmp_path)
    found = {r.check: (r.verdict, r.count) for r in report.results}
    told = {n for n, (said, count) in found.items() if count or said != "valid"}
    assert told == ({check} if check else set()), report.verdict.reasons
    assert not check or found[check][0] == verdict
    other = check_history(load_history(run))
    assert found == {n: (other.results[n].verdict, other.results[n].count) for n in CHECKS} or (
        check in {"A45", "A47"}  # the one counts complaints, the other does not
    )
    assert report.verdict.exit_code == other.exit_code


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


def test_refused_table_and_failing_check_leave_the_rest_standing(session, tmp_path, monkeypatch):
    """A message is lost, the commits are no commits, and one check breaks."""
    run = write_minimal(VIOLATIONS["lost"][2], tmp_path)
    DISHONEST["acks of an unknown kind"][0](run)
    about = json.loads((run / "run.json").read_text()) | {"contract": ["quorum"]}
    (run / "run.json").write_text(json.dumps(about))

    def broken(*_arguments):
        raise RuntimeError("boom")

    monkeypatch.setattr(offsets, "_observers", broken)
    report = report_of(session, run, tmp_path)
    found = {r.check: r for r in report.results}
    assert set(found) == set(CHECKS)
    assert (found["A15"].verdict, found["A1"].verdict) == ("unknown", "invalid")
    assert "RuntimeError: boom" in found["A15"].summary
    assert any("contract" in line for line in report.problems)
