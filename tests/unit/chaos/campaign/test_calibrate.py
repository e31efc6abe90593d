"""Calibration without its runs: in which order bugs are tried, and what the matrix says."""

import pytest

from chaos.campaign import matrix as matrix_module
from chaos.campaign.directory import Directory
from chaos.campaign.matrix import Bug, baseline_of, is_found, known, order, table
from chaos.campaign.outcome import Finding, Outcome
from chaos.campaign.plan import Job, Settings
from chaos.catalogue.contracts import RAFT
from chaos.nemesis.kinds import FAULTS
from chaos.scenarios.library import shipped
from chaos.scenarios.schema import load
from mutants.calibrate import bugs, main, scenario_kinds
from mutants.patches import ALL, HARNESS_BUGS
from mutants.planting import planted, targets_of

KINDS = {
    "demo": frozenset({"kill", "cut"}),
    "disks": frozenset({"eio"}),
    "pauses": frozenset({"pause"}),
}
ANY, EIO = Bug(name="any"), Bug(name="of-eio", kinds=frozenset({"eio", "wipe"}))


def ended(job: Job, verdict: str = "valid") -> Outcome:
    findings = (Finding(check="A1", cause="lost"),) if verdict == "invalid" else ()
    codes = {"valid": 0, "invalid": 1, "unknown": 2, "failed": 255}
    return Outcome(job=job, verdict=verdict, exit_code=codes[verdict], began_ms=0, seconds=1.0,
                   findings=findings)  # fmt: skip


def played(finds: dict[tuple[str, str, int], str], runs_each: int = 2) -> list[Outcome]:
    """Every run until the end; ``finds``: the verdicts that are not valid."""
    outcomes: list[Outcome] = []
    while job := matrix_module.next_try([ANY, EIO], KINDS, outcomes, runs_each):
        outcomes.append(ended(job, finds.get((job.mutant or "", job.scenario, job.seed), "valid")))
        assert len(outcomes) < 100
    return outcomes


def test_the_likeliest_scenario_comes_first():
    assert order(ANY, KINDS) == ["demo", "disks", "pauses"]
    assert order(EIO, KINDS) == ["disks", "demo", "pauses"]
    assert order(Bug(name="x", scenarios=("pauses",)), KINDS) == ["pauses"]


def test_a_bug_of_pairs_is_tried_only_in_scenarios_that_were_chosen():
    pair = Bug(name="of-pairs", scenarios=("demo", "disks"))
    assert order(pair, {"disks": frozenset()}) == ["disks"]
    assert order(pair, {"pauses": frozenset()}) == []


def test_every_bug_is_tried_in_each_scenario_before_any_is_tried_again():
    runs = [(one.job.mutant, one.job.scenario, one.job.seed) for one in played({})]
    assert runs[0] == (None, "baseline", 1)
    assert runs[1:5] == [
        ("any", "demo", 1), ("of-eio", "disks", 1), ("any", "disks", 1), ("of-eio", "demo", 1),
    ]  # fmt: skip
    assert len(runs) == len(set(runs)) == 1 + 2 * 3 * 2
    assert [one.job.number for one in played({})] == list(range(13))


def test_what_was_found_is_not_tried_again():
    outcomes = played({("any", "disks", 1): "invalid"})
    assert [one.job.scenario for one in outcomes if one.job.mutant == "any"] == ["demo", "disks"]
    assert is_found(known(outcomes), "any")
    assert not is_found(known(outcomes), "of-eio")


@pytest.mark.parametrize("verdict", ["invalid", "unknown", "failed"])
def test_nothing_is_tried_by_a_harness_that_finds_something_in_nothing(verdict):
    finds = {("", "baseline", 1): verdict}
    assert len(played(finds)) == 1
    assert baseline_of(played(finds)) == verdict
    with planted(HARNESS_BUGS["calibration-without-a-baseline"]):
        assert len(played(finds)) > 1


def test_a_run_that_failed_says_nothing_of_the_bug():
    outcomes = played({("any", "demo", 1): "failed", ("of-eio", "disks", 1): "unknown"})
    matrix = known(outcomes)
    assert matrix["any"]["demo"].runs == 1, "of two"
    assert (matrix["of-eio"]["disks"].runs, matrix["of-eio"]["disks"].found) == (2, 0)


def test_the_table_says_what_was_found_by_what_and_what_was_missed():
    text = table([ANY, EIO, Bug(name="never")], played({("any", "disks", 1): "invalid"}))
    assert "1 found of 2 tried, of 3; baseline: valid" in text
    assert "| `any` | `disks` (1 of 1: A1) | `demo` (0 of 1) |" in text
    assert "never" not in text


def test_bugs_are_those_that_a_broker_or_a_client_of_a_run_executes():
    named = {bug.name: bug for bug in bugs()}
    assert {"ack-before-quorum", "no-fsync", "client-ok-without-answer"} <= set(named)
    assert named["ha-acknowledged-before-the-slave"].options == ("--mode", "sync-master")
    assert named["switch-acknowledged-alone"].options == ("--mode", "controller")
    for name in set(ALL) - set(named):
        assert targets_of(ALL[name]), name
    assert any(bug.kinds for bug in named.values())
    assert all(bug.kinds <= set(FAULTS) for bug in named.values())


def test_every_shipped_scenario_and_the_demo_take_part():
    kinds = scenario_kinds()
    of_groups = {name for name, path in shipped().items() if load(path).mode == RAFT}
    assert set(kinds) == {"demo", *of_groups}
    assert of_groups < set(shipped()), "those of master and slave are not for bugs of a group"
    assert "eio" in kinds["a-disk-that-fails"]
    assert "kill" in kinds["anything-may-break"], "drawn kinds count"


def test_a_bug_that_is_none_of_processes_is_told(capsys):
    assert main(["--bug", "no-such-bug"]) == 254
    assert "no-such-bug" in capsys.readouterr().out


def test_runs_of_a_campaign_are_none_of_a_calibration(tmp_path, capsys):
    """The first of them passed for the baseline."""
    with Directory(tmp_path) as directory:
        directory.begin(Settings(scenarios=("one",)))
    assert main(["--out", str(tmp_path)]) == 254
    assert "is a campaign; name another --out" in capsys.readouterr().out.replace("\n", " ")
