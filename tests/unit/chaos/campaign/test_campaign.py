"""A campaign without its runs: which comes next, what is kept of each, what is found of all."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from chaos.campaign import keep as keep_module
from chaos.campaign import outcome as outcome_module
from chaos.campaign import plan as plan_module
from chaos.campaign import shrink
from chaos.campaign.command import parse, settle
from chaos.campaign.directory import Directory, WrongDirectory, refuse_foreign
from chaos.campaign.junit import junit
from chaos.campaign.outcome import (
    Finding,
    Outcome,
    Seen,
    by_cause,
    outcome,
    worst_code,
)
from chaos.campaign.page import About, coverage, render, replay_command
from chaos.campaign.plan import (
    Bounds,
    Job,
    Seeds,
    Settings,
    job,
    next_job,
    parse_seeds,
    seconds_left,
    total,
)
from chaos.campaign.runner import Keep, Runner, arguments
from cli.main import run
from ledgermq.runtime.clock import SystemClock
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted
from tests.architecture.tree import ROOT

TWO = Settings(scenarios=("one", "two"), seeds=Seeds(5, 7))


def over(number: int, verdict: str = "valid", *causes: str, **more: object) -> Outcome:
    codes = {"valid": 0, "invalid": 1, "unknown": 2, "exceeded": 3, "failed": 255}
    found = tuple(Finding(check="A1", cause=cause, count=2, summary="<b>") for cause in causes)
    made = Job(number=number, scenario=f"s{number % 2}", seed=1)
    about = {"began_ms": 0, "seconds": 10.0, "job": made} | more
    return Outcome(verdict=verdict, exit_code=codes[verdict], findings=found, **about)


def test_every_scenario_is_tried_before_any_is_tried_twice():
    made = [job(TWO, number) for number in range(7)]
    assert [(one.scenario, one.seed) for one in made[:4]] == [
        ("one", 5), ("two", 5), ("one", 6), ("two", 6),
    ]  # fmt: skip
    assert made[5] is not None
    assert made[6] is None, "behind the last seed there is nothing"
    assert made[3].name == "00003-two-6"


def test_scenarios_in_containers_come_behind_the_others_of_each_seed():
    boxed = Settings(
        scenarios=("one",), seeds=Seeds(5, 6), options=("--no-spark",), in_containers=("two",)
    )
    made = [job(boxed, number) for number in range(5)]
    assert [(one.scenario, one.seed, one.place) for one in made[:4]] == [
        ("one", 5, ""), ("two", 5, " in containers"), ("one", 6, ""), ("two", 6, " in containers"),
    ]  # fmt: skip
    assert made[1].options == ("--no-spark", "--backend", "docker")
    assert made[4] is None
    assert total(boxed, Bounds()) == 4
    rows = coverage([over(number, job=made[number]) for number in range(4)])
    assert set(rows) == {"one", "two in containers"}
    everywhere = Settings(scenarios=(), in_containers=("two",), options=("--backend", "docker"))
    assert job(everywhere, 0).options == ("--backend", "docker"), "said once is enough"


@pytest.mark.parametrize(
    ("text", "seeds"), [("7", Seeds(7, 7)), ("1..20", Seeds(1, 20)), ("5..", Seeds(5, None))]
)
def test_seeds_are_read_and_written_alike(text, seeds):
    assert parse_seeds(text) == seeds
    assert parse_seeds(str(seeds)) == seeds


@pytest.mark.parametrize("text", ["", "x", "3..1", "-1", "1..2..3", "..3", "9999999"])
def test_what_is_no_seed_is_refused(text):
    with pytest.raises(ValueError, match="seeds"):
        parse_seeds(text)


def test_what_is_done_is_not_done_again_and_a_hole_is_filled_first():
    def chosen(done: set[int], **bounds: float) -> int | None:
        found = plan_module.next_job(TWO, Bounds(**bounds), done, 100.0)
        return None if found is None else found.number

    assert chosen(set()) == 0
    assert chosen({0, 1}) == 2
    assert chosen({0, 2, 3}) == 1, "what was broken off comes again"
    assert chosen({0, 1}, runs=2) is None
    assert chosen(set(range(6))) is None
    assert chosen({0}, hours=101 / 3600) == 1
    assert chosen({0}, hours=100 / 3600) is None
    with planted(HARNESS_BUGS["campaign-goes-on-behind-the-hole"]):
        assert chosen({0, 2, 3}) == 4


def test_how_long_it_will_take_is_guessed_from_the_pace():
    assert total(TWO, Bounds()) == 6
    assert total(TWO, Bounds(runs=4)) == 4
    endless = Settings(scenarios=("one",))
    assert total(endless, Bounds(hours=1)) is None
    assert seconds_left(TWO, Bounds(), 2, 20.0) == 40.0
    assert seconds_left(endless, Bounds(hours=1), 2, 3000.0) == 600.0
    assert seconds_left(endless, Bounds(hours=1), 2, 4000.0) == 0.0
    assert seconds_left(TWO, Bounds(), 0, 0.0) is None


FAULTS = [
    {"fault_id": "1-kill", "kind": "kill", "t_on1": 5, "witness": {"effective": True}},
    {"fault_id": "2-kill", "kind": "kill", "t_on1": 6, "witness": {"effective": True}},
    {"fault_id": "3-kill", "kind": "kill", "t_on1": 7, "witness": {"effective": False}},
    {"fault_id": "4-eio", "kind": "eio", "t_on1": None, "witness": None},
]


def verdict_file(**checks: dict) -> dict:
    a47 = [
        {"fault_id": "1-kill", "in_flight": 9, "counts": True},
        {"fault_id": "2-kill", "in_flight": 0, "counts": False},
        {"fault_id": "3-kill", "in_flight": 4, "counts": False},
    ]
    plain = {"verdict": "valid", "count": 0, "title": "", "summary": "", "evidence": []}
    told = {name: plain | about for name, about in checks.items()}
    told["A47"] = plain | told.get("A47", {}) | {"details": {"faults": a47}}
    return {"checks": told, "counts": {"acknowledged": 7}}


def test_faults_are_counted_by_what_became_of_them():
    found = outcome_module.count_faults(FAULTS, verdict_file())
    assert found == {
        "eio": Seen(planned=1),
        "kill": Seen(planned=3, injected=3, witnessed=2, overlapped=1, in_flight=9),
    }
    with planted(HARNESS_BUGS["campaign-takes-plans-for-faults"]):
        assert outcome_module.count_faults(FAULTS, verdict_file())["kill"].witnessed == 3


LOST = {
    "title": "acknowledged and lost",
    "verdict": "invalid",
    "count": 31,
    "summary": "31 lost",
    "evidence": [{"where": "vanished", "faults": ["2-kill", "1-kill"]}, {"where": "vanished"}],
}


def made(code: int, files: dict, number: int = 0) -> Outcome:
    one = Job(number=number, scenario="x", seed=3, options=("--no-spark",))
    return outcome(one, code, (1000, 61.234), files, FAULTS)


def test_an_invalid_run_says_what_was_found_where_and_during_what():
    judged = {"reasons": ["A1 31: 31 lost", "the checkers disagree: A9 at 0x12 of /a/b/c"]}
    found = made(1, {"inprocess": verdict_file(A1=LOST), "judgement": judged})
    assert (found.verdict, found.seconds, found.counts) == ("invalid", 61.2, {"acknowledged": 7})
    assert [one.cause for one in found.findings] == [
        "A1 acknowledged and lost, vanished (kill)",
        "the checkers disagree: A9 at nx12 of ...",
    ]


def test_what_one_checker_does_not_know_and_the_other_found_is_found():
    unsure = LOST | {"verdict": "unknown", "summary": "no queue was drained"}
    found = made(1, {"inprocess": verdict_file(A1=unsure), "results": verdict_file(A1=LOST)})
    assert (found.shown, found.findings[0].count) == ({"A1"}, 31)
    found = made(1, {"inprocess": verdict_file(A1=LOST), "results": verdict_file(A1=unsure)})
    assert found.shown == {"A1"}


def test_what_is_violated_comes_before_what_nobody_knows():
    """JUnit has one message for a run, and it said why another check was unknown."""
    unsure = {"title": "undecided", "verdict": "unknown", "summary": "no table"}
    found = made(1, {"inprocess": verdict_file(A0=unsure, A1=LOST)})
    assert [one.check for one in found.findings] == ["A1", "A0"]
    assert b'message="A1 acknowledged and lost' in junit([found], "c")


def test_a_run_counts_once_for_a_cause_that_it_has_twice():
    reasons = ["fault 1-kill had no effect", "fault 2-kill had no effect"]
    one = made(2, {"inprocess": verdict_file(), "judgement": {"reasons": reasons}})
    (cause,) = by_cause([one, over(1)])
    assert [run.job.number for run in cause.runs] == [0]
    assert "(1 run)" in render([one], About(title="", program=""))


def test_unknown_runs_with_other_numbers_have_one_cause():
    def short(number: int) -> Outcome:
        summary = f"too few effective faults: kill: {number} of 3"
        a47 = {"title": "faults", "verdict": "unknown", "summary": summary}
        return made(2, {"inprocess": verdict_file(A47=a47)}, number)

    (cause,) = by_cause([short(0), short(1)])
    assert cause.cause == "A47 faults: too few effective faults: kill: n of n"
    assert [one.job.number for one in cause.runs] == [0, 1]


def test_what_exceeds_the_contract_is_found_though_it_is_valid():
    copies = {"title": "copies", "count": 2, "summary": "2 copies"}
    found = made(3, {"inprocess": verdict_file(A8=copies)})
    assert found.verdict == "exceeded"
    assert [(one.check, one.count) for one in found.findings] == [("A8", 2)]


@pytest.mark.parametrize("code", [255, -9, 254, 0])
def test_a_run_without_a_verdict_has_failed(code):
    """Also one that ends well and left no verdict."""
    found = made(code, {"said": ["a word", "no leader within 20 s", " "]})
    assert found.verdict == "failed"
    assert "no leader within 20 s" in found.findings[0].summary
    assert worst_code([found]) == 255


def test_the_worst_verdict_of_any_run_is_that_of_all():
    every = [over(n, v) for n, v in enumerate(["valid", "exceeded", "unknown", "failed"])]
    assert [worst_code(every[:n]) for n in range(5)] == [0, 0, 3, 2, 255]
    assert worst_code([*every, over(9, "invalid")]) == 1


def test_histories_of_what_was_found_stay_and_the_disk_is_bounded():
    runs = [over(0), over(1, "invalid", "a"), over(2), over(3, "invalid", "a"), over(4),
            over(5, "unknown", "b"), over(6, "invalid", "c", "a")]  # fmt: skip
    sizes = dict.fromkeys(range(7), 10)

    def gone(last: int, bytes_max: int) -> list[int]:
        return keep_module.histories_to_drop(runs, sizes, last=last, bytes_max=bytes_max)

    assert gone(3, 1000) == []
    assert gone(1, 1000) == [0, 2]
    assert gone(0, 1000) == [0, 2, 4]
    assert gone(1, 40) == [0, 2, 3], "the first run of each cause stays for longest"
    assert gone(1, 25) == [0, 2, 3, 4, 1]
    assert gone(1, 0) == [0, 2, 3, 4, 1, 5, 6]
    assert keep_module.histories_to_drop(runs, {}, last=0, bytes_max=0) == []
    with planted(HARNESS_BUGS["campaign-keeps-the-newest"]):
        assert 1 in gone(1, 1000)


def test_junit_says_what_failed_and_carries_no_odd_characters():
    every = [over(0), over(1, "invalid", "lost \x00 & gone"), over(2, "unknown", "u"),
             over(3, "failed", "f"), over(4, "exceeded", "e")]  # fmt: skip
    suite = ET.fromstring(junit(every, "c")).find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["5", "1", "2"]
    cases = [[part.tag for part in case] for case in suite.iter("testcase")]
    assert cases == [[], ["failure"], ["error"], ["error"], ["system-out"]]
    assert suite.find(".//failure").get("message") == "lost  & gone"


def test_the_page_stands_alone_and_says_what_was_found_and_covered():
    seen = {"kill": Seen(planned=2, injected=2, witnessed=2, overlapped=1, in_flight=7)}
    every = [over(0, faults=seen, counts={"acknowledged": 1234}), over(2, "invalid", "a <cause>")]
    page = render(every, About(title="C", program="ledgermq", links={2: "runs/2/index.html"}))
    for word in ("a &lt;cause&gt;", "2/2/1", "1,234", "1 valid, 1 invalid", "runs/2/index.html",
                 "ledgermq chaos run s0 --seed 1", 'name="viewport"',
                 "prefers-color-scheme:dark"):  # fmt: skip
        assert word in page, word
    for outside in ("http", "<script", "src=", "@import", "url("):
        assert outside not in page, outside
    assert render([], About(title="C", program="x")).count("Nothing ran yet") == 1
    assert coverage([*every, over(4, faults=seen)])["s0"]["kill"].overlapped == 2


def test_a_run_is_named_by_a_command_that_repeats_it():
    one = Job(number=1, scenario="x", seed=3, mutant="bug", options=("--no-spark",))
    assert replay_command(one, "ledgermq") == (
        "ledgermq chaos run x --seed 3 --break bug --no-spark"
    )


def asked(**given: object) -> SimpleNamespace:
    usual = {"scenario": None, "seeds": None, "spark": False, "workload": None, "rate": None}
    usual |= {"in_containers": None}
    return SimpleNamespace(
        **usual | {"flush": None, "rounds": None, "mutant": None, "backend": "local"} | given
    )


def test_scenarios_in_containers_stay_when_a_campaign_goes_on(tmp_path: Path):
    with Directory(tmp_path / "c") as directory:
        begun = settle(directory, asked(scenario=["baseline"], in_containers=["demo"]))
        assert (begun.scenarios, begun.in_containers, begun.many) == (("baseline",), ("demo",), 2)
        assert settle(directory, asked()) == begun
        with pytest.raises(WrongDirectory, match="2 scenarios"):
            settle(directory, asked(in_containers=["zombies"]))


def test_a_campaign_is_gone_on_with_only_as_what_it_is(tmp_path: Path):
    with Directory(tmp_path / "c") as directory:
        begun = settle(directory, asked(scenario=["baseline"], seeds=Seeds(1, 4), rate=50.0))
        assert begun.options == ("--no-spark", "--rate", "50.0")
        assert settle(directory, asked()) == begun, "what is not said is as it was"
        for other in ({"scenario": ["demo"]}, {"seeds": Seeds(1, 5)}, {"rate": 60.0}):
            with pytest.raises(WrongDirectory, match="other settings"):
                settle(directory, asked(**other))


@pytest.mark.parametrize("words", [["campaign"], ["shrink", "RUN"]])
def test_what_is_there_and_no_campaign_is_left_alone(words, tmp_path: Path, capsys, monkeypatch):
    """A page of somebody else was overwritten."""
    monkeypatch.setattr(shrink, "Target", lambda _run: SimpleNamespace(scenario=None))
    monkeypatch.setattr(shrink, "text_of", lambda *_args: "")
    (tmp_path / "index.html").write_text("mine")
    assert run(["chaos", *words, "--out", str(tmp_path)]) == 254
    assert "has index.html and is no campaign" in capsys.readouterr().out.replace("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_campaign_that_was_killed_as_it_began_is_begun_again(tmp_path: Path):
    with Directory(tmp_path / "c"):
        pass
    (tmp_path / "c" / "campaign.json.tmp").touch()
    refuse_foreign(tmp_path / "c")
    refuse_foreign(tmp_path / "nowhere")


def test_what_is_over_is_read_back_and_what_is_torn_is_told(tmp_path: Path):
    with Directory(tmp_path) as directory:
        mine = over(1, "invalid", "a", faults={"kill": Seen(planned=1)})
        directory.add(mine)
        directory.add(over(0))
        assert [one.job.number for one in directory.outcomes()] == [0, 1]
        assert directory.outcomes()[1] == mine
        (tmp_path / "outcomes" / "00001.json").write_text("{")
        with pytest.raises(WrongDirectory, match="remove it"):
            directory.outcomes()


def test_a_history_goes_and_what_is_told_of_the_run_stays(tmp_path: Path):
    with Directory(tmp_path) as directory:
        for one in (valid := over(0), bad := over(1, "invalid", "a")):
            for name in ("tables", "raw", "verdict", "report"):
                (directory.run(one.job) / name).mkdir(parents=True)
                (directory.run(one.job) / name / "file").write_text("x" * 5000)
            (directory.run(one.job) / "run.json").write_text(json.dumps({}))
        assert directory.drop([valid, bad], last=0, bytes_max=1 << 30) == [0]
        left = {one.job.number: sorted(p.name for p in directory.run(one.job).iterdir())
                for one in (valid, bad)}  # fmt: skip
        assert left[0] == ["run.json", "verdict"]
        assert left[1] == ["raw", "report", "run.json", "tables", "verdict"]
        assert directory.drop([valid, bad], last=0, bytes_max=0) == [1]
        assert sorted(p.name for p in directory.run(bad.job).iterdir()) == [
            "report", "run.json", "verdict",
        ]  # fmt: skip
        assert directory.clear(bad.job)
        assert not directory.clear(bad.job)


def test_what_a_failed_run_left_counts_and_goes(tmp_path: Path):
    with Directory(tmp_path) as directory:
        failed = over(0, "failed")
        disk = directory.run(failed.job) / "nodes" / "n0"
        disk.mkdir(parents=True)
        (disk / "log").write_text("x" * 5000)
        (directory.run(failed.job) / "run.json").write_text("{}")
        assert directory.drop([failed], last=0, bytes_max=1 << 30) == []
        assert directory.drop([failed], last=0, bytes_max=0) == [0]
        assert [p.name for p in directory.run(failed.job).iterdir()] == ["run.json"]
        assert directory.drop([failed], last=0, bytes_max=0) == [], "nothing is left to go"


def test_half_an_hour_of_chaos_is_a_campaign(tmp_path: Path):
    """What `make chaos` asks for is parsed and settled, here with an engine that only says yes."""
    for folder in ("scripts", "docker"):
        (tmp_path / folder).mkdir()
    script = tmp_path / "scripts" / "chaos.sh"
    script.write_text((ROOT / "scripts" / "chaos.sh").read_text())
    for name in ("engine.sh", "build.sh"):
        (tmp_path / "docker" / name).write_text("exit 0\n")
    said = tmp_path / "ledgermq"
    said.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    said.chmod(0o700)
    found = subprocess.run(
        ["bash", script, said, "--runs", "3"], capture_output=True, text=True, check=True
    )
    command, kind, *words = found.stdout.split()
    assert (command, kind) == ("chaos", "campaign")
    with Directory(tmp_path / "c") as directory:
        settings = settle(directory, parse(words))
    assert len(set(settings.scenarios)) == 10
    assert len(set(settings.in_containers)) == 3
    assert settings.options == (), "both checkers"


def test_what_failed_is_run_again_when_it_is_asked_for(tmp_path: Path):
    verdicts = ("valid", "unknown", "invalid", "failed", "unknown")
    with Directory(tmp_path) as directory:
        for number, verdict in enumerate(verdicts):
            directory.add(over(number, verdict))
        assert Runner(directory, SystemClock(), Keep()).run_again(()) == 0
        runner = Runner(directory, SystemClock(), Keep())
        assert runner.run_again(("unknown", "failed")) == 3
        assert sorted(runner.done) == [0, 2]
        assert [one.job.number for one in directory.outcomes()] == [0, 2]
        settings = Settings(scenarios=("demo",), seeds=Seeds(1, None), options=())
        again = next_job(settings, Bounds(runs=5), runner.done, 0.0)
    assert again is not None
    assert again.number == 1


def test_again_is_an_option_of_what_ended_badly(capsys):
    assert parse(["--again", "unknown", "--again", "failed"]).again == ["unknown", "failed"]
    with pytest.raises(SystemExit):
        parse(["--again", "valid"])
    assert "--again" in capsys.readouterr().err


def test_scenarios_without_rounds_are_not_asked_for_any():
    words = ("--rounds", "3", "--no-spark")
    for name, wanted in (("failover", True), ("demo", False), ("baseline", False)):
        found = arguments(Job(number=0, scenario=name, seed=1, options=words), Path("run"), name)
        assert ("--rounds" in found, "3" in found) == (wanted, wanted)
        assert found[-1] == "--no-spark"


def test_a_cause_is_shown_with_the_worst_verdict_of_its_runs():
    ended = ("unknown", "invalid", "unknown")
    runs = [over(number, verdict, "A1 lost") for number, verdict in enumerate(ended)]
    page = render(runs, About(title="t", program="ledgermq"))
    told = page[page.index("<summary>") : page.index("</summary>")]
    assert told.index(">invalid 1<") < told.index(">unknown 2<")
    alone = render(runs[:1], About(title="t", program="ledgermq"))
    assert ">unknown</b> A1 lost" in alone
