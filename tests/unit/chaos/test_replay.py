"""A run's record is enough to make it again, and two runs are told apart by what they found."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from chaos import replay
from chaos.__main__ import main
from chaos.compare import compared, tables
from chaos.pair_scenarios import pair_demo
from chaos.replay import NoPlan, about_run, scenario_of
from chaos.scenario import WORKLOADS, demo
from chaos.scenarios.expand import expand
from chaos.scenarios.library import shipped
from chaos.scenarios.schema import load
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.spark.minimal import VIOLATIONS, write_minimal


def recorded(scenario: object, **more: object) -> dict:
    """What a run writes of its plan, as it is read back."""
    about = {"plan": asdict(scenario), "seed": 7, "backend": "local", "mutant": None} | more
    return json.loads(json.dumps(about))


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_scenario_comes_back_as_it_was_run(name):
    made = expand(load(shipped()[name]), seed=3)
    assert scenario_of(recorded(made)) == made


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_the_demos_come_back_with_every_workload(workload):
    for made in (demo(workload=workload), pair_demo(mode="sync-master", workload=workload)):
        assert scenario_of(recorded(made)) == made


def test_seed_flush_bug_and_mode_are_those_of_the_run():
    made = pair_demo(mode="async-master")
    options = SimpleNamespace(seed=None, backend="docker", mutant=None, mode="raft", flush=None)
    replay.settle(options, recorded(made, mutant="some-bug"), made)
    assert vars(options) == {
        "seed": 7, "backend": "local", "mutant": "some-bug", "mode": "async-master",
        "flush": "async",
    }  # fmt: skip
    with planted(HARNESS_BUGS["replay-without-the-bug"]):
        replay.settle(options, recorded(made, mutant="other"), made)
    assert options.mutant == "some-bug"
    with pytest.raises(NoPlan, match="seed"):
        replay.settle(options, {"plan": {}}, made)


def test_options_that_the_record_overrules_are_told():
    settled = {"seed": 7, "backend": "local", "mutant": None, "mode": "raft", "flush": "async"}
    assert replay.not_taken({"seed": 7, "spark": False, "report": True}, settled) == []
    assert replay.not_taken({"seed": 8, "mutant": "some-bug", "rate": 50.0}, settled) == [
        "--seed 8 is not taken: the record says 7",
        "--break some-bug is not taken: the record says none",
        "--rate 50.0 is not taken: the run is made again by its recorded plan",
    ]


def test_replay_says_what_it_does_not_take(tmp_path, monkeypatch, capsys):
    (tmp_path / "run.json").write_text(json.dumps(recorded(demo())))
    monkeypatch.setattr("chaos.__main__.run_and_check", lambda _scenario, options: options.seed)
    assert main(["replay", str(tmp_path), "--seed", "9", "--no-spark"]) == 7
    assert "--seed 9 is not taken: the record says 7" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"plan": 3}'])
def test_what_is_no_run_is_told(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(NoPlan, match=r"run\.json"):
        about_run(tmp_path)
    assert main(["replay", str(tmp_path)]) == 254
    assert main(["diff", str(tmp_path), str(tmp_path)]) == 254


def test_a_plan_of_another_version_is_told():
    about = recorded(demo())
    about["plan"]["timeline"] = 3
    with pytest.raises(NoPlan, match="not one of this version"):
        scenario_of(about)


def test_two_runs_side_by_side_show_what_differs(tmp_path: Path):
    sound = write_minimal(None, tmp_path / "sound")
    lossy = write_minimal(VIOLATIONS["lost"][2], tmp_path / "lossy")
    for run in (sound, lossy):
        main(["check", str(run)])
    parts = dict(compared(sound, lossy))
    differ = {row[0].split()[0]: row[1:] for row in parts["checks that differ"]}
    assert differ["A1"] == ("valid", "invalid 1")
    assert "A5" not in differ
    verdicts = {row[0]: row[1:] for row in parts["verdicts"]}
    assert verdicts["in process"][1] == "invalid"
    screen = io.StringIO()
    for table in tables(compared(sound, lossy), ("sound", "lossy")):
        Console(file=screen, width=120).print(table)
    assert "checks that differ" in screen.getvalue()
    assert main(["diff", str(sound), str(lossy)]) == 0


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("run.json", {"phases": [{"name": "main", "t0": [], "t1": 1}]}),
        ("run.json", {"contract": 3}),
        ("verdict/inprocess.json", {"counts": {"sent": "many"}}),
        ("verdict/inprocess.json", {"checks": []}),
        ("verdict/judgement.json", {"checks": {}}),
    ],
)
def test_a_run_whose_files_say_what_none_of_ours_says_is_told(tmp_path, capsys, file, changed):
    run = write_minimal(None, tmp_path / "run")
    main(["check", str(run)])
    about = json.loads((run / file).read_text()) | changed
    about = about if file != "verdict/judgement.json" else changed
    (run / file).write_text(json.dumps(about))
    assert main(["diff", str(run), str(run)]) == 254
    assert "run.json or verdict is none of ours" in capsys.readouterr().out


def test_words_of_a_run_are_shown_and_not_read(tmp_path: Path, capsys):
    """A path or an error may hold brackets, which a terminal's library takes for styles."""
    run = write_minimal(None, tmp_path / "run")
    about = json.loads((run / "run.json").read_text())
    about["problems"] = ["no file /data/[/b]/log, topic [bold] :x:"]
    (run / "run.json").write_text(json.dumps(about))
    assert main(["check", str(run)]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "[/b]/log, topic [bold] :x:" in told.replace("│ │", "")


@pytest.mark.parametrize(
    "verdict",
    [
        {"verdict": "invalid", "checks": []},
        {"verdict": "invalid", "checks": {"A1": {}}},
        {"verdict": "invalid", "checks": {"A1": {"verdict": "invalid", "evidence": [3]}}},
    ],
)
def test_a_search_in_what_is_no_verdict_is_told(tmp_path: Path, capsys, verdict):
    (tmp_path / "verdict").mkdir()
    (tmp_path / "run.json").write_text(json.dumps(recorded(demo())))
    (tmp_path / "verdict" / "inprocess.json").write_text(json.dumps(verdict))
    assert main(["shrink", str(tmp_path)]) == 254
    assert "run.json or verdict is none of ours" in capsys.readouterr().out
