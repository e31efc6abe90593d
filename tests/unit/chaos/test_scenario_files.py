"""Scenario files: what is read, what is refused with which words, and what becomes of it."""

import dataclasses
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import BrokerConfig
from chaos.__main__ import main
from chaos.catalogue.contracts import ASYNC_MASTER, CONTROLLER, RAFT, SYNC_MASTER
from chaos.nemesis.kinds import FAULTS
from chaos.scenario import planned_faults
from chaos.scenarios.document import BYTES_MAX, Unreadable, read
from chaos.scenarios.expand import expand
from chaos.scenarios.library import find, shipped
from chaos.scenarios.modes import in_mode
from chaos.scenarios.repeat import ROUNDS_MAX, repeated
from chaos.scenarios.schema import TIMEOUTS_S, WrongScenario, load, parse
from chaos.scenarios.write import load_of, text_of
from chaos.show import coverage_table
from tests.architecture.test_catalogues import shown
from tests.architecture.tree import ROOT

HEAD = "name: x\nhunts: something\n"
TIMELINE = "timeline:\n- do: [{kill: leader}]\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: -1.5e3 # c", {"a": -1500.0}),
        ("a: 'x # y'\nb: \"p: q\"", {"a": "x # y", "b": "p: q"}),
        ("a: no\nb: true\nc: null\nd:", {"a": "no", "b": True, "c": None, "d": None}),
        ("- a\n- - b\n  - c\n- d: 1\n  e: 2", ["a", ["b", "c"], {"d": 1, "e": 2}]),
        ("a:\n- b\n- c\nd: e", {"a": ["b", "c"], "d": "e"}),
        ("a:\n  - b:\n      c: d\n    e: f", {"a": [{"b": {"c": "d"}, "e": "f"}]}),
        ("a: {b: [1, {c: d}], 'e f': g}", {"a": {"b": [1, {"c": "d"}], "e f": "g"}}),
        ("a: [1,\n  2,   # two\n  3]\nb: {}", {"a": [1, 2, 3], "b": {}}),
        ("---\na: b.c\n", {"a": "b.c"}),
        ("-\n  a: b\n- ", [{"a": "b"}, None]),
        ("a: 12:30", {"a": "12:30"}),
    ],
)
def test_what_is_taken(text, value):
    assert read(text).plain() == value


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "nothing in it"),
        ("# only a comment", 1, "nothing in it"),
        ("a: 1\n\tb: 2", 2, "a tab"),
        ("a: 1\nb: &x 2", 2, "an anchor"),
        ("a: *x", 1, "an alias"),
        ("a: !!python/object 1", 1, "a tag"),
        ("a: |\n  text", 1, "a block scalar"),
        ("a: 1\n---\nb: 2", 2, "one document"),
        ("a: 1\nb: 2\na: 3", 3, "a is there twice"),
        ("a: {b: 1, b: 2}", 1, "b is there twice"),
        ("a: [1, 2", 1, "not closed"),
        ("a: [1 2]\nb: {c}", 2, "a colon was expected"),
        ("a: [1] 2", 1, "behind the end of a bracket"),
        ("a: 1\n  b: 2", 2, "indented more"),
        ("  a: 1\nb: 2", 2, "indented less"),
        ("a: 1\nnothing", 2, "a key and a colon"),
        ("a: 'x", 1, "does not end"),
        ("a: b: c", 1, "a colon within a value"),
        ("a: " + "[" * 20 + "]" * 20, 1, "too many"),
        ("\n".join("  " * at + f"k{at}:" for at in range(20)), 14, "levels deep"),
        ("a: " + "x" * BYTES_MAX, 1, "bytes"),
        ("a: " + "9" * 5_000, 1, "a number of 5000 characters"),
        ("a" + " " * 200_000 + "b\n" + "c: 1", 2, "indented|a key|less"),
    ],
)
def test_what_is_refused_is_told_by_its_line(text, line, said):
    with pytest.raises(Unreadable, match=said) as caught:
        read(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x: [" + "a," * 60_000 + "a]", 60_001),
        ("x: {" + ",".join(f"k{at}: 1" for at in range(20_000)) + "}", 20_000),
        ("x: [\n" + "  a,\n" * 30_000 + "]\n", 30_000),
    ],
)
def test_a_long_value_is_read_once(text, count):
    """It was copied at each comma, or looked through at each line: that took hours."""
    assert len(read(text).plain()["x"]) == count


def test_a_key_is_looked_for_once():
    """It was looked for at each space: that took hours, too."""
    assert read("a" + " " * 200_000 + "b").plain() == "a" + " " * 200_000 + "b"
    assert read("a b  c : 1").plain() == {"a b  c": 1}


def test_no_more_of_a_file_is_read_than_is_taken(tmp_path):
    path = tmp_path / "x.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room, and would not fit into the memory
    with pytest.raises(WrongScenario, match=f"over {BYTES_MAX} bytes"):
        load(path)
    path.write_bytes(b"name: \xff")
    with pytest.raises(WrongScenario, match="cannot be read"):
        load(path)


@given(st.text(alphabet="ab:-#{}[],'\" \n1&*|\t", max_size=60))
def test_any_text_is_read_or_refused(text):
    line = 1
    try:
        read(text)
    except Unreadable as error:
        line = error.line
    assert 1 <= line <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("name: x", 1, "'hunts' is missing; add it"),
        (HEAD, 1, "there are no faults; add a timeline"),
        (HEAD + "timline: []", 3, "nothing is called 'timline' here"),
        (HEAD + "timeline: []", 3, "a list was expected"),
        (HEAD + "timeline:\n- do: [{kil: leader}]", 4, "no fault is called 'kil'"),
        (
            HEAD + "timeline:\n- do:\n  - kill: leader\n  - cut: leader",
            6,
            "cut has 1 targets; give 2",
        ),
        (HEAD + "timeline:\n- do: [{kill: boss}]", 4, "'boss' is no target of kill"),
        (HEAD + "timeline:\n- do: [{delay: [all, leader]}]", 4, "all stands alone"),
        (HEAD + "timeline:\n- do: [{cut: [leader, leader]}]", 4, "cut has leader as a target"),
        (HEAD + "timeline:\n- do: [{delay: {target: all, ms: 0}}]", 4, "ms: 0 is not a number of"),
        (
            HEAD + "timeline:\n- do: [{delay: {target: all, secs: 1}}]",
            4,
            "called secs; there are: ms",
        ),
        (
            HEAD + "timeline:\n- do: [{drop: {target: all, of: tea}}]",
            4,
            "'tea' is not one of append",
        ),
        (HEAD + "timeline:\n- hold: 3", 4, "'do' is missing"),
        (HEAD + TIMELINE + "  hold: long", 5, "'long' is not a number"),
        (HEAD + TIMELINE + "  hold: -1", 5, "-1 is out of range"),
        (HEAD + TIMELINE + "  hold: {times: 2, of: lunch}", 5, "'lunch' is not known; use one of"),
        (HEAD + TIMELINE + "  at: 3\n  when: acks", 5, "a time or a condition"),
        (HEAD + TIMELINE + "  when: full_moon", 5, "'full_moon' is not known"),
        (HEAD + TIMELINE + "  overlap: yes", 5, "'yes' is neither"),
        (HEAD + TIMELINE + "  overlap: true", 4, "nothing comes behind it"),
        (HEAD + TIMELINE + "  at: 9\n- do: [{kill: leader}]\n  at: 3", 6, "at 3 is before 9"),
        (HEAD + TIMELINE + "cluster: {flush: never}", 5, "'never' is not known"),
        (HEAD + TIMELINE + "cluster:\n  settings: {a: [1]}", 6, "a setting has one value"),
        (HEAD + TIMELINE + "workload: {kind: tea}", 5, "'tea' is not known"),
        (HEAD + TIMELINE + "workload:\n  rate: 0", 6, "0 is out of range"),
        (HEAD + TIMELINE + "coverage: {kil: 1}", 5, "nothing is called 'kil'"),
        (HEAD + "random: {rounds: 3}", 3, "'packages' is missing"),
        (HEAD + "random:\n  packages: {kil: 1}", 4, "no fault is called 'kil'"),
        (HEAD + "random:\n  packages: {kill: 0}", 4, "0 is out of range"),
        (HEAD + "random:\n  packages: {cut: 1}", 4, "cut has 1|two"),
        (HEAD + "random:\n  hold: [3, 1]\n  packages: {kill: 1}", 4, "3 is more than 1"),
        (HEAD + "a: &b 1", 3, "an anchor"),
        (
            HEAD + "cluster: {mode: sync-master}\ntimeline:\n- do: [{trim: all}]",
            3,
            "sync-master has nothing for trim; take it out, or set cluster: mode to one of: raft",
        ),
        (HEAD + "timeline:\n- do: [controller_kill]", 1, "raft has nothing for controller_kill"),
        (HEAD + "random:\n  packages: {controller_pause: 1}", 1, "raft has nothing for"),
    ],
)
def test_complaint_names_file_line_and_what_to_do(text, line, said):
    if "cut: 1" in text:  # leader and follower are meant, if nobody says
        assert parse(text, "f.yaml").random is not None
        return
    with pytest.raises(WrongScenario, match=said) as caught:
        parse(text, "f.yaml")
    assert str(caught.value).startswith(f"f.yaml:{line}: ")
    assert ";" in str(caught.value)


def scenario(text: str, seed: int = 1):
    return expand(parse(HEAD + text, "f.yaml"), seed)


def test_entry_becomes_look_start_stop_and_a_wait():
    steps = scenario(TIMELINE + "  hold: 2\n  after: 1\n").timeline
    assert [step.do for step in steps] == ["look", "start", "stop", "await"]
    assert (steps[1].kind, steps[1].targets, steps[1].after_s) == ("kill", ("leader",), 1.0)
    assert (steps[2].name, steps[2].after_s) == (steps[1].name, 2.0)


def test_faults_of_an_entry_are_lifted_together_last_first():
    steps = scenario("timeline:\n- do: [{kill: leader}, {pause: follower}]").timeline
    started = [step.name for step in steps if step.do == "start"]
    assert started == ["1.1-kill", "1.2-pause"]
    assert [step.name for step in steps if step.do == "stop"] == started[::-1]


def test_overlapping_entry_lasts_until_the_next_is_lifted():
    text = "timeline:\n- do: [{delay: all}]\n  overlap: true\n  hold: 4\n- do: [{kill: leader}]\n"
    steps = scenario(text).timeline
    assert [(s.do, s.what or s.name) for s in steps] == [
        ("look", ""), ("start", "1-delay"), ("await", "time"), ("look", "now"),
        ("start", "2-kill"), ("stop", "2-kill"), ("stop", "1-delay"), ("await", "healthy"),
    ]  # fmt: skip


def test_conditions_and_times_are_waited_for():
    text = (
        "timeline:\n- do: [{kill: leader}]\n  at: 7\n  then: acks\n"
        "- do: [{kill: leader}]\n  when: leader_changed\n"
    )
    waits = [(s.what, s.within_s) for s in scenario(text).timeline if s.do == "await"]
    assert waits == [("at", 7.0), ("acks", 20.0), ("leader", 20.0), ("healthy", 20.0)]


def test_holds_may_be_relative_to_the_brokers_timeouts():
    steps = scenario(TIMELINE + "  hold: {times: 1.5, of: election}\n").timeline
    assert steps[2].after_s == 1.5 * TIMEOUTS_S["election"]


def test_timeouts_are_those_of_the_brokers():
    usual = {one.name: one.default for one in dataclasses.fields(BrokerConfig)}
    tick_s = usual["tick_ms"] / 1000
    assert TIMEOUTS_S["heartbeat"] == usual["heartbeat_ticks"] * tick_s
    assert TIMEOUTS_S["election"] == usual["election_ticks_max"] * tick_s
    assert TIMEOUTS_S["disk_hang"] == usual["disk_hang_ms"] / 1000


RANDOM = (
    "random:\n  rounds: 40\n  every: [1, 2]\n  hold: [0.5, 3]\n  packages: {kill: 3, pause: 1}\n"
)


def test_random_faults_follow_from_the_seed():
    assert scenario(RANDOM, 5) == scenario(RANDOM, 5)
    assert scenario(RANDOM, 5) != scenario(RANDOM, 6)
    steps = scenario(RANDOM, 5).timeline
    kinds = [step.kind for step in steps if step.do == "start"]
    assert 20 < kinds.count("kill") < 40
    assert kinds.count("kill") + kinds.count("pause") == 40
    holds = {step.after_s for step in steps if step.do == "stop"}
    gaps = {step.after_s for step in steps if step.do == "start"}
    assert min(holds) >= 0.5
    assert max(holds) <= 3
    assert min(gaps) >= 1
    assert max(gaps) <= 2


def test_more_rounds_leave_the_earlier_ones_as_they_were():
    fewer = scenario(RANDOM.replace("40", "10"), 5).timeline
    assert scenario(RANDOM, 5).timeline[: len(fewer)] == fewer


def test_what_is_not_said_must_take_effect_once_for_each_fault():
    text = "timeline:\n- do: [{kill: leader}]\n- do: [{kill: leader}, {delay: all}]\n"
    assert scenario(text).coverage == {"kill": 2, "delay": 1}
    assert scenario(text + "coverage: {kill: 1}").coverage == {"kill": 1}


def test_where_all_faults_are_drawn_one_of_any_kind_must_take_effect():
    assert scenario(RANDOM).coverage == {"any": 1}
    assert scenario(RANDOM + "coverage: {any: 3, kill: 1}").coverage == {"any": 3, "kill": 1}
    assert scenario(RANDOM + "coverage: {}").coverage == {}
    timeline = "timeline:\n- do: [{pause: leader}]\n"
    assert scenario(timeline + RANDOM).coverage == {"pause": 1}


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenarios_are_sound(name):
    plan = load(find(name))
    made = expand(plan, 1)
    assert plan.name == name
    assert made.timeline_s_max < 900
    started = [fault for fault, _ in planned_faults(made)]
    assert len(set(started)) == len(started) > 0
    stopped = [step.name for step in made.timeline if step.do == "stop"]
    assert sorted(started) == sorted(stopped)


def test_every_kind_is_in_a_shipped_scenario():
    plans = [load(path) for path in shipped().values()]
    timelines = itertools.chain.from_iterable(plan.timeline for plan in plans)
    kinds = {fault.kind for entry in timelines for fault in entry.faults}
    for plan in plans:
        kinds |= {choice.kind for choice in plan.random.packages} if plan.random else set()
    assert kinds == set(FAULTS)


def test_command_lists_them_and_refuses_what_is_none(capsys, tmp_path):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in (*shipped(), "demo", "zombies"))
    assert main(["run", "no-such-thing"]) == 254
    assert "no scenario is called so; ledgermq chaos list" in capsys.readouterr().out
    wrong = tmp_path / "mine.yaml"
    wrong.write_text(HEAD + "timeline:\n- do: [{kil: leader}]\n")
    assert main(["run", str(wrong)]) == 254
    assert "mine.yaml:4: no fault is called 'kil'" in capsys.readouterr().out
    assert main(["run", str(tmp_path / "none.yaml")]) == 254
    assert "cannot be read" in capsys.readouterr().out
    assert main(["run", "starved-leader", "--seconds", "9"]) == 254
    assert "a file has its own times" in capsys.readouterr().out
    assert main(["run", "starved-leader", "--mode", "sync-master"]) == 254
    assert "it is of raft, and so no sync-master" in capsys.readouterr().out


@pytest.mark.parametrize("mode", [ASYNC_MASTER, SYNC_MASTER, CONTROLLER])
def test_a_file_of_a_pair_runs_in_the_other_modes(mode):
    plan = in_mode(load(find("a-slave-that-is-not-there")), mode)
    made = expand(plan, 1)
    assert made.mode == mode
    assert made.timeline == expand(replace(plan, mode=SYNC_MASTER), 1).timeline


@pytest.mark.parametrize(
    ("name", "mode", "said"),
    [
        ("a-slave-that-is-not-there", RAFT, "it is of sync-master, and so no raft"),
        ("starved-leader", CONTROLLER, "it is of raft, and so no controller"),
        ("a-master-nobody-told", SYNC_MASTER, "has nothing for controller_cut"),
        ("controllers-without-a-majority", ASYNC_MASTER, "has nothing for controller_kill"),
        ("a-master-without-its-disk", CONTROLLER, "switches by hand"),
    ],
)
def test_a_mode_that_has_not_got_the_faults_is_refused(name, mode, said):
    with pytest.raises(WrongScenario, match=said):
        in_mode(load(find(name)), mode)


def test_example_of_the_handbook_is_a_scenario():
    page = (ROOT / "docs/chaos.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    made = expand(parse(example, "docs/chaos.md"), 1)
    kinds = [step.kind for step in made.timeline if step.do == "start"]
    assert kinds[:4] == ["isolate", "delay", "client_kill", "kill"]
    assert len(kinds) == 7
    assert made.sealed


def test_handbook_has_every_shipped_scenario():
    rows = [f"| `{name}` | {load(path).hunts} |" for name, path in shipped().items()]
    head = "| scenario | hunts |"
    assert shown("docs/chaos.md", "## Scenario files", head, rows) == rows, "\n".join(rows)


def test_coverage_counts_what_took_effect_while_sends_were_in_flight():
    faults = [{"kind": "kill", "fault_id": "1"}, {"kind": "kill", "fault_id": "2"}]
    about = [
        {"fault_id": "1", "in_flight": 5, "counts": True},
        {"fault_id": "2", "in_flight": 9, "counts": False},
    ]
    local = {"checks": {"A47": {"details": {"faults": about}}}}
    table = coverage_table(SimpleNamespace(local=local), faults)  # type: ignore[arg-type]
    assert [list(column.cells) for column in table.columns][:2] == [["kill"], ["2"]]
    assert [str(next(iter(column.cells))) for column in table.columns][2:] == ["1", "5"]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_in_rounds_each_fault_comes_again_under_a_name_of_its_own(name):
    plan = load(find(name))
    once, thrice = expand(plan, 7), expand(repeated(plan, 3), 7)
    started = [step.name for step in thrice.timeline if step.do == "start"]
    stopped = [step.name for step in thrice.timeline if step.do == "stop"]
    assert len(set(started)) == len(started)
    assert set(stopped) <= set(started)
    assert len(planned_faults(thrice)) == 3 * len(planned_faults(once))
    assert thrice.coverage == {kind: 3 * many for kind, many in once.coverage.items()}
    assert thrice.timeline_s_max >= once.timeline_s_max


def test_a_second_of_the_main_phase_counts_from_its_round():
    text = HEAD + "timeline:\n- {at: 2, do: [{kill: leader}], hold: 3}\n"
    found = expand(repeated(parse(text, "x.yaml"), 2), 1)
    times = [step.within_s for step in found.timeline if step.what == "at"]
    assert times == [2.0, 12.0]


STEPPED = """name: x
hunts: y
steps:
- {do: start, name: 1-kill, kind: kill, target: leader}
- {do: stop, name: 1-kill, after: 2}
- {do: await, what: at, within: 30}
- {do: start, name: 2.1-kill, kind: kill, target: leader}
- {do: stop, name: 2.1-kill, after: 3}
"""
"""As `chaos.scenarios.write` writes them: a fault of the second entry is called so."""


def test_steps_come_again_at_their_second_under_names_of_their_own():
    found = expand(repeated(parse(STEPPED, "x.yaml"), 3), 1)
    started = [step.name for step in found.timeline if step.do == "start"]
    assert started == ["1-kill", "2.1-kill", "2..1-kill", "2..2.1-kill", "3..1-kill", "3..2.1-kill"]
    assert [step.within_s for step in found.timeline if step.what == "at"] == [30.0, 68.0, 106.0]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_most_rounds_of_a_file_can_be_written_down(name):
    """So a run of them that is INVALID can be shrunk."""
    plan = repeated(load(find(name)), ROUNDS_MAX)
    scenario = expand(plan, 7)
    again = expand(parse(text_of(scenario, "x"), "x.yaml"), 7)
    assert (again.timeline, again.timeline_s_max) == (scenario.timeline, scenario.timeline_s_max)


@pytest.mark.parametrize("rounds", [0, ROUNDS_MAX + 1])
def test_other_numbers_of_rounds_are_refused(rounds):
    plan = parse(HEAD + TIMELINE, "x.yaml")
    with pytest.raises(ValueError, match="rounds"):
        repeated(plan, rounds)


def test_a_file_may_leave_out_refusals():
    text = HEAD + "workload: {kind: plain, refusals: false}\n" + TIMELINE
    load = expand(parse(text, "x.yaml"), 1).workload
    assert load.fail_every == 0
    assert load_of(load) == {"kind": "plain", "rate": load.rate, "refusals": False}


@pytest.mark.parametrize(
    ("fault", "least_s"),
    [
        ("crash_loop: {target: leader, times: 40, up_ms: 4000}", 160),
        ("rolling: {target: all, down_ms: 30000}", 90),
        ("rollback: {target: leader, age_ms: 60000}", 60),
        ("power_loss: {target: leader, noted_ms: 60000}", 60),
        ("starve: {target: leader, period_ms: 5000}", 120),
    ],
)
def test_a_timeline_may_take_as_long_as_its_faults_do(fault, least_s):
    """Else the limit ends it, and the run is judged unknown, whatever the brokers do."""
    usual = parse(HEAD + "timeline:\n- do: [{kill: leader}]", "f.yaml")
    long = parse(HEAD + f"timeline:\n- do: [{{{fault}}}]", "f.yaml")
    step = f"steps:\n- {{do: start, name: one, kind: {fault.partition(':')[0]}, target: leader"
    parameters = fault.partition(", ")[2].strip("}")
    stepped = parse(HEAD + f"{step}, with: {{{parameters}}}}}", "f.yaml")
    more_s = expand(long, 1).timeline_s_max - expand(usual, 1).timeline_s_max
    assert more_s >= least_s
    assert expand(stepped, 1).timeline_s_max >= least_s
