"""The search for a smaller scenario, over scenarios judged by a rule instead of by runs."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chaos.campaign import minimal
from chaos.campaign.minimal import fault_names, only, search
from chaos.pair_scenarios import pair_demo
from chaos.scenario import WORKLOADS, Scenario, demo, kill_leader, minority_leader, pause_follower
from chaos.scenarios.expand import expand
from chaos.scenarios.library import shipped
from chaos.scenarios.schema import WrongScenario, load, parse
from chaos.scenarios.write import NotAFile, text_of
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

Rule = Callable[[Scenario], bool]


def searched(scenario: Scenario, rule: Rule, seen: tuple[str, ...] = ()) -> tuple[Scenario, int]:
    """Return what the search ends with, and how many runs it took."""
    hunt, runs = search(scenario, seen), 0
    try:
        candidate = next(hunt)
        while True:
            runs += 1
            candidate = hunt.send(rule(candidate))
    except StopIteration as end:
        return end.value, runs


def needs(*names: str) -> Rule:
    return lambda scenario: set(names) <= set(fault_names(scenario))


MANY = replace(demo(seconds=54, workload="every"), crash_consumer_s=5.0)
"""Three rounds of the demo: eighteen faults."""
CUTS = ("2.2-cut", "2.2-cut-other", "2.2-pause", "2.2-kill")


def test_one_fault_of_many_is_found():
    found, runs = searched(MANY, needs("2.3-pause"))
    assert fault_names(found) == ["2.3-pause"]
    assert found.workload == replace(
        WORKLOADS["plain"], rate=300.0, hostile=False, joiner_s=None, producers=2, consumers=1
    )
    assert (found.warmup_s, found.crash_consumer_s, found.coverage) == (1.0, None, {"pause": 1})
    assert runs < 20


def test_four_faults_that_only_work_together_are_found_by_what_the_evidence_names():
    found, runs = searched(MANY, needs(*CUTS), seen=("2.2-cut",))
    assert fault_names(found) == list(CUTS)
    assert runs <= 14, "the act was tried first"


def test_what_depends_on_the_workload_keeps_it():
    def with_transactions(scenario: Scenario) -> bool:
        return scenario.workload.transactional > 0 and needs("1.1-kill")(scenario)

    found, _ = searched(MANY, with_transactions)
    assert found.workload == MANY.workload
    assert fault_names(found) == ["1.1-kill"]


@pytest.mark.parametrize("rule", [lambda _: False, lambda _: True], ids=["never", "always"])
def test_a_search_ends_whatever_is_answered(rule):
    found, runs = searched(MANY, rule, seen=("1.1-kill",))
    assert runs < 60
    assert len(fault_names(found)) == (1 if rule(found) else 18)


def test_no_single_fault_can_be_left_out():
    wanted = {"1.1-kill", "2.2-pause", "3.3-pause"}
    found, _ = searched(MANY, needs(*wanted))
    assert set(fault_names(found)) == wanted
    with planted(HARNESS_BUGS["shrink-ends-with-halves"]):
        coarse, _ = searched(MANY, needs(*wanted))
    assert set(fault_names(coarse)) > wanted


def test_holds_are_halved_and_no_further_than_half_a_second():
    scenario = Scenario(name="x", timeline=kill_leader("1", down_s=4.0))
    found, _ = searched(scenario, lambda _: True)
    assert [step.after_s for step in found.timeline if step.do == "stop"] == [0.5]


def test_without_a_fault_goes_all_that_waits_for_it():
    timeline = kill_leader("1") + minority_leader("2") + pause_follower("3")
    left = only(Scenario(name="x", timeline=timeline, coverage={"kill": 2}), ["3-pause", "2-kill"])
    assert [step.do for step in left.timeline[-4:]] == ["look", "start", "stop", "await"]
    assert left.timeline[0].do == "look"
    assert sum(step.do == "look" for step in left.timeline) == 2
    assert left.coverage == {"kill": 1}
    many = only(Scenario(name="x", timeline=timeline, coverage={"any": 3, "cut": 1}), ["2-kill"])
    assert many.coverage == {"any": 1}
    assert {step.name for step in left.timeline if step.name} == {"3-pause", "2-kill"}


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_scenario_can_be_written_as_steps(name):
    made = expand(load(shipped()[name]), seed=4)
    assert expand(parse(text_of(made, "it: # all"), "f"), seed=9) == made


def test_demos_and_what_a_search_ends_with_can_be_written():
    small, _ = searched(MANY, needs("1.1-kill"))
    for made in (MANY, small, pair_demo(mode="async-master"), demo(workload="txn")):
        assert expand(parse(text_of(made, "x"), "f"), seed=9) == made


def test_a_workload_of_nobodys_is_told():
    with pytest.raises(NotAFile, match="workload"):
        text_of(Scenario(name="x", workload=replace(WORKLOADS["plain"], queues=9)), "x")


HEAD = "name: x\nhunts: y\n"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("- {do: dance}", "f:4: 'dance' is not known"),
        ("- {do: start, name: a}", "'kind' is missing"),
        ("- {do: start, name: a, kind: kil, target: leader}", "no fault is called 'kil'"),
        ("- {do: start, name: a, kind: kill, target: [leader, any]}", "kill has 2 targets"),
        ("- {do: start, name: a, kind: slow, target: leader, with: {of: 1}}", "'of'"),
        ("- {do: start, name: a, kind: slow, target: leader, with: {ms: -1}}", "ms: -1"),
        ("- {do: stop, name: a}", "'a' was not started"),
        ("- {do: await}", "'what' is missing"),
        ("- {do: await, what: rain}", "'rain' is not known"),
        ("- {do: await, what: acks, after: -3}", "out of range"),
        (
            "- {do: start, name: a, kind: kill, target: leader}\n" * 2,
            "f:5: 'a' is started twice",
        ),
    ],
)
def test_steps_that_cannot_be_done_are_refused_by_their_line(steps, said):
    with pytest.raises(WrongScenario) as caught:
        parse(f"{HEAD}steps:\n{steps}\n", "f")
    assert said in str(caught.value)


def test_steps_stand_alone():
    with pytest.raises(WrongScenario, match="steps stand alone"):
        parse(f"{HEAD}steps: [{{do: look}}]\ntimeline:\n- do: [{{kill: leader}}]\n", "f")


def test_acts_begin_where_no_fault_is_on():
    """A look amid overlapping faults binds roles anew; it begins nothing of its own."""
    text = HEAD + (
        "timeline:\n- {do: [{pause: follower}], overlap: true}\n- do: [{kill: leader}]\n"
        "- do: [{stop: leader}]\n"
    )
    made = expand(parse(text, "f"), 1)
    assert [len(act) for act in minimal._acts(made.timeline)] == [8, 4]
