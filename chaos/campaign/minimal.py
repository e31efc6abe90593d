"""From a scenario that finds something to a smaller one that still does: which to try next. Pure.

Delta debugging over the faults of the plan, after Zeller and Hildebrandt (ddmin, by removal of
chunks that are halved): what makes runs shorter is tried first, since every run costs a minute.
In this order: only the acts in which the evidence saw faults; short phases; fewer clients and
kinds of messages; faults in chunks; shorter holds. What is returned is minimal in the sense that
no single fault can be left out, as far as runs of a live system can say so.

The search is a generator: it yields scenarios to try and is sent whether they still find it.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Final

from chaos.catalogue.faults import ANY
from chaos.scenario import WORKLOADS, Scenario, Step

Search = Generator[Scenario, bool, Scenario]
SHORT_S: Final = 1.0
HOLD_MIN_S: Final = 0.5
HALVINGS_MAX: Final = 3


def search(scenario: Scenario, seen: Collection[str] = ()) -> Search:
    """Return the search from a scenario; ``seen`` are the faults that the evidence names."""
    found = yield from _only_acts_of(scenario, seen)
    found = yield from _try_each(found, _shorter(found))
    found = yield from _try_each(found, _smaller(found))
    found = yield from _fewer_faults(found)
    return (yield from _shorter_holds(found))


def fault_names(scenario: Scenario) -> list[str]:
    """Return the faults of a scenario, in order."""
    return [step.name for step in scenario.timeline if step.do == "start"]


def only(scenario: Scenario, names: Collection[str]) -> Scenario:
    """Return the scenario with these faults alone; steps that wait for others' ends go, too."""
    steps = [s for s in scenario.timeline if s.do not in {"start", "stop"} or s.name in names]
    timeline = tuple(step for act in _acts(steps) for step in act if _does_something(act))
    kinds = Counter(step.kind for step in timeline if step.do == "start")
    kinds[ANY] = kinds.total()
    coverage = {
        kind: min(least, kinds[kind]) for kind, least in scenario.coverage.items() if kinds[kind]
    }
    return replace(scenario, timeline=timeline, coverage=coverage)


def _acts(steps: Iterable[Step]) -> list[list[Step]]:
    """Return the steps in acts: each begins with the look that binds its roles."""
    acts: list[list[Step]] = []
    on: set[str] = set()
    for step in steps:
        if step.do == "look" and not on:
            acts.append([])
        if not acts:
            acts.append([])
        acts[-1].append(step)
        on = on | {step.name} if step.do == "start" else on - {step.name}
    return acts


def _does_something(act: Sequence[Step]) -> bool:
    return any(step.do in {"start", "switch"} for step in act)


def _only_acts_of(scenario: Scenario, seen: Collection[str]) -> Search:
    acts = _acts(scenario.timeline)
    mine = [act for act in acts if any(step.name in seen for step in act if step.do == "start")]
    names = [step.name for act in mine for step in act if step.do == "start"]
    if not names or len(names) == len(fault_names(scenario)):
        return scenario
    candidate = only(scenario, names)
    return candidate if (yield candidate) else scenario


def _shorter(scenario: Scenario) -> list[Scenario]:
    short = {
        name: min(SHORT_S, getattr(scenario, name))
        for name in ("warmup_s", "baseline_s", "quiesce_s")
    }
    return [replace(scenario, **short)]


def _smaller(scenario: Scenario) -> list[Scenario]:
    """Return smaller workloads, the smallest first: one that still finds it ends the search."""
    load = scenario.workload
    plain = replace(WORKLOADS["plain"], rate=load.rate)
    quiet = replace(plain, hostile=False, joiner_s=None)
    fewer = replace(quiet, producers=2, consumers=1)
    return [
        replace(scenario, workload=fewer, crash_consumer_s=None),
        replace(scenario, workload=quiet, crash_consumer_s=None),
        replace(scenario, workload=plain),
    ]


def _try_each(scenario: Scenario, candidates: Iterable[Scenario]) -> Search:
    """Try candidates until one still finds it."""
    for candidate in candidates:
        if candidate != scenario and (yield candidate):
            return candidate
    return scenario


def _fewer_faults(scenario: Scenario) -> Search:
    """Leave out chunks of faults, halved until they are single ones and none can go."""
    names = fault_names(scenario)
    chunk = max(1, len(names) // 2)
    while len(names) > 1:
        gone = False
        at = 0
        while at < len(names) and len(names) > 1:
            left = names[:at] + names[at + chunk :]
            if left and (yield only(scenario, left)):
                names, gone = left, True
            else:
                at += chunk
        if chunk == 1 and not gone:
            break
        chunk = max(1, chunk // 2)
    return scenario if names == fault_names(scenario) else only(scenario, names)


def _shorter_holds(scenario: Scenario) -> Search:
    """Halve the times before faults are lifted, all together, as long as it is still found."""
    for _ in range(HALVINGS_MAX):
        candidate = replace(scenario, timeline=tuple(map(_halved, scenario.timeline)))
        if candidate == scenario or not (yield candidate):
            break
        scenario = candidate
    return scenario


def _halved(step: Step) -> Step:
    if step.do != "stop" or step.after_s <= HOLD_MIN_S:
        return step
    return replace(step, after_s=max(HOLD_MIN_S, step.after_s / 2))
