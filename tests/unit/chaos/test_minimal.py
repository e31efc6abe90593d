"""The in-process checker: each violation alone is found alone; no dishonest history is valid."""

import json
import shutil
from functools import partial

import pyarrow.parquet as pq
import pytest

from chaos.__main__ import main
from chaos.checker import check_history
from chaos.checker.compose import CHECKS
from chaos.load import load_history
from chaos.verdict import check_in_process
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.elsewhere import ELSEWHERE_SOUND
from tests.spark.kinds import LACKING, every_kind, too_soon_by_the_clock
from tests.spark.leaders import away_at_most, members_of_several_groups
from tests.spark.minimal import DISHONEST, MISSING, VIOLATIONS, name_tables, write_minimal
from tests.spark.planted import SOUND, SOUND_ALONE


def alarms(found):
    quiet = {"valid", "not checked"}
    return {name: r.verdict for name, r in found.results.items() if r.verdict not in quiet}


def test_sound_history_has_nothing(tmp_path):
    found = check_history(load_history(write_minimal(None, tmp_path)))
    assert (found.verdict, found.reasons, alarms(found)) == ("valid", (), {})
    assert not any(result.count for result in found.results.values())


def test_every_kind_is_judged_and_sound(tmp_path):
    found = check_history(load_history(write_minimal(every_kind, tmp_path)))
    assert {name: r.verdict for name, r in found.results.items() if r.verdict != "valid"} == {}
    assert not any(result.count for result in found.results.values())
    assert found.exit_code == 0


def test_a_node_has_a_term_and_a_log_in_each_of_its_groups(tmp_path):
    history = load_history(write_minimal(members_of_several_groups, tmp_path))
    found = check_history(history)
    assert (alarms(found), found.exit_code) == ({}, 0), found.reasons
    with planted(HARNESS_BUGS["groups-of-a-node-mixed"]):
        assert alarms(check_history(history)) == {"A32": "invalid"}


def test_nobody_is_accused_of_what_other_brokers_may_have_got(tmp_path):
    found = check_history(load_history(write_minimal(away_at_most, tmp_path)))
    assert (alarms(found), found.results["A38"].verdict) == ({}, "valid")
    with planted(HARNESS_BUGS["witness-believed-against-answers"]):
        assert alarms(check_history(load_history(tmp_path / "run"))) == {"A38": "invalid"}


def test_what_comes_early_where_a_wall_clock_was_moved_is_no_anomaly(tmp_path):
    moved = check_history(load_history(write_minimal(too_soon_by_the_clock, tmp_path / "moved")))
    assert alarms(moved) == {}
    spoil = partial(too_soon_by_the_clock, moved=False)
    still = check_history(load_history(write_minimal(spoil, tmp_path / "still")))
    assert alarms(still) == {"A26": "invalid", "A56": "invalid"}, "its witness saw nothing"


ALL_SOUND = SOUND | SOUND_ALONE | ELSEWHERE_SOUND


@pytest.mark.parametrize("name", ALL_SOUND)
def test_what_looks_odd_and_is_sound_is_no_anomaly(name, tmp_path):
    found = check_history(load_history(write_minimal(ALL_SOUND[name], tmp_path)))
    assert (alarms(found), found.exit_code) == ({}, 0), found.reasons


@pytest.mark.parametrize("name", LACKING)
def test_what_a_check_needs_and_the_history_lacks_is_named(name, tmp_path):
    checks, named, spoil = LACKING[name]
    found = check_history(load_history(write_minimal(spoil, tmp_path)))
    assert alarms(found) == dict.fromkeys(checks, "unknown"), found.reasons
    assert all(named in found.results[check].summary for check in checks)
    assert found.exit_code == 2


@pytest.mark.parametrize("name", VIOLATIONS)
def test_each_violation_is_found_and_only_that(name, tmp_path):
    check, verdict, spoil = VIOLATIONS[name]
    found = check_history(load_history(write_minimal(spoil, tmp_path)))
    assert found.results[check].verdict == verdict, found.reasons
    told = {n for n, r in found.results.items() if r.count or n in alarms(found)}
    assert told == {check}, found.reasons
    assert found.exit_code != 0


def test_there_is_a_violation_of_every_check_that_judges():
    only_told = {"A3", "A4", "A41", "A58", "A59"}
    assert {check for check, _, _ in VIOLATIONS.values()} | only_told == set(CHECKS)


@pytest.mark.parametrize("name", DISHONEST)
def test_history_that_cannot_be_true_is_never_valid(name, tmp_path):
    spoil, named = DISHONEST[name]
    run = write_minimal(None, tmp_path)
    spoil(run)
    found = check_history(load_history(run))
    assert found.exit_code == 2, found.reasons
    said = "; ".join(found.reasons)
    assert named in said
    assert str(run) in said, "it says which file"
    assert "check failed" not in said


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("early before a clock moved", "moved-clocks-explain-what-was"),
        ("gone from two cut logs", "cut-logs-hold-anything"),
        ("a term forgotten after a wipe", "wipes-excuse-later-lives"),
        ("passed over as a namesake died", "namesakes-die-together"),
    ],
)
def test_an_excuse_that_is_too_broad_is_found_out(name, bug, tmp_path):
    check, verdict, spoil = VIOLATIONS[name]
    history = load_history(write_minimal(spoil, tmp_path))
    assert alarms(check_history(history)) == {check: verdict}
    with planted(HARNESS_BUGS[bug]):
        assert alarms(check_history(load_history(tmp_path / "run"))) == {}


def test_fault_half_applied_that_counts_as_none_is_found_out(tmp_path):
    history = load_history(write_minimal(VIOLATIONS["early by a clock half moved"][2], tmp_path))
    assert alarms(check_history(history)) == {"A48": "unknown"}
    with planted(HARNESS_BUGS["half-applied-never-was"]):
        assert alarms(check_history(load_history(tmp_path / "run"))) == {"A56": "invalid"}


def test_files_of_a_table_are_read_wherever_they_lie(tmp_path):
    run = write_minimal(VIOLATIONS["lost"][2], tmp_path)
    number = len(load_history(run).sends)
    (run / "sends").mkdir()
    rows = pq.read_table(run / "tables" / "sends" / "part-0.parquet")
    pq.write_table(rows.slice(4), run / "sends" / "0.parquet")
    pq.write_table(rows.slice(0, 4), run / "tables" / "sends" / "part-0.parquet")
    found = check_history(load_history(run))
    assert (found.counts["sent"], alarms(found)) == (number, {"A1": "invalid"})


@pytest.mark.parametrize("table", MISSING)
def test_table_that_run_json_names_and_nobody_finds_is_never_valid(table, tmp_path):
    run = write_minimal(name_tables, tmp_path)
    assert check_history(load_history(run)).exit_code == 0
    shutil.rmtree(run / "tables" / table)
    found = check_history(load_history(run))
    assert found.exit_code == 2
    assert f"the table {table}" in "; ".join(found.reasons)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("contract", "quorum"),
        ("contract", {"durability": "majority"}),
        ("contract", {"redelivery_ratio_max": "a tenth"}),
        ("coverage", {"kill": "two"}),
        ("coverage", ["kill"]),
        ("quorum", 0),
        ("quorum", "two"),
        ("nodes", "n0"),
        ("problems", "none"),
        ("tables", "all"),
    ],
)
def test_odd_run_json_is_never_valid(name, value, tmp_path):
    run = write_minimal(None, tmp_path)
    about = json.loads((run / "run.json").read_text()) | {name: value}
    (run / "run.json").write_text(json.dumps(about))
    found = check_history(load_history(run))
    assert found.exit_code == 2
    assert any(name in reason for reason in found.reasons)


def test_failure_of_one_check_leaves_the_others_standing(tmp_path, monkeypatch):
    history = load_history(write_minimal(VIOLATIONS["lost"][2], tmp_path))

    def broken(_history):
        raise RuntimeError("boom")

    monkeypatch.setitem(CHECKS, "A15", broken)
    found = check_history(history)
    assert found.results["A15"].verdict == "unknown"
    assert "RuntimeError: boom" in found.results["A15"].summary
    assert (found.results["A1"].verdict, found.verdict) == ("invalid", "invalid")


def test_run_that_cannot_be_loaded_is_unknown_and_no_traceback(tmp_path, monkeypatch, capsys):
    run = write_minimal(None, tmp_path)

    def broken(_run):
        raise RuntimeError("boom")

    monkeypatch.setattr("chaos.verdict.load_history", broken)
    assert check_in_process(run)["verdict"] == "unknown"
    assert main(["check", str(run)]) == 2
    said = capsys.readouterr()
    assert "RuntimeError: boom" in said.out
    assert "Traceback" not in said.out + said.err
