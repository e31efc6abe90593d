"""A scenario file made into the steps of a run: everything is decided here, before it begins.

Random faults come from streams of their own (seed, scenario, round, what is drawn), so that a
change to one round moves no other. Source: spec/proof.md 4.4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from chaos.catalogue.faults import ANY
from chaos.generator import Stream
from chaos.nemesis.kinds import FAULTS
from chaos.nemesis.limits import QUESTIONS
from chaos.nemesis.restarts import HEALTHY_TIMEOUT_S
from chaos.scenario import FLUSH, WORKLOADS, Scenario, Step, Workload
from chaos.scenarios.schema import Choice, Draw, Entry, Plan, Planned

WAIT_S = 20.0
"""How long a condition may take before the timeline goes on without it."""
SPARE_S = 60.0
AGAIN_S = 2.0
"""How long a broker may take to be killed and started."""
ROLLED = 3
"""So many brokers at the most go one after the other."""


def expand(plan: Plan, seed: int) -> Scenario:
    """Return the scenario of a run with this seed."""
    entries = [*plan.timeline, *_drawn(plan, seed)]
    timeline = plan.steps or tuple(_steps(entries))
    load: Workload = replace(WORKLOADS[plan.workload], rate=plan.rate, **plan.load)
    phases = plan.phases
    usual = Scenario(name=plan.name)
    return Scenario(
        name=plan.name,
        workload=load,
        timeline=timeline,
        warmup_s=phases.get("warmup", usual.warmup_s),
        baseline_s=phases.get("baseline", usual.baseline_s),
        quiesce_s=phases.get("quiesce", usual.quiesce_s),
        drain_s=phases.get("drain", usual.drain_s),
        timeline_s_max=phases.get("main", _longest(entries, plan.steps)),
        crash_consumer_s=plan.crash_consumer_s,
        mode=plan.mode,
        flush=FLUSH[plan.flush] if plan.flush else usual.flush,
        settings=plan.settings,
        sealed=plan.sealed,
        coverage=_coverage(plan),
    )


def _coverage(plan: Plan) -> dict[str, int]:
    """Return how many faults of each kind must take effect.

    If unsaid those of the timeline; one of those that are drawn, if there are no others.
    """
    if plan.coverage is not None:
        return dict(plan.coverage)
    kinds = [fault.kind for entry in plan.timeline for fault in entry.faults]
    kinds += [step.kind for step in plan.steps if step.do == "start"]
    kinds += [ANY] if plan.random is not None and not kinds else []
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _longest(entries: list[Entry], steps: tuple[Step, ...]) -> float:
    """Return how long a timeline may take at most."""
    if steps:
        takes_s = sum(_takes_s(step.kind, step.parameters) for step in steps if step.kind)
        return SPARE_S + takes_s + sum(step.after_s + step.within_s + WAIT_S for step in steps)
    waits = sum(entry.after_s + entry.hold_s + 2 * WAIT_S for entry in entries)
    waits += sum(_takes_s(one.kind, one.parameters) for entry in entries for one in entry.faults)
    return SPARE_S + waits + max((entry.at_s or 0.0 for entry in entries), default=0.0)


def _takes_s(kind: str, given: Mapping[str, float | str]) -> float:
    """Return how long a fault takes by its parameters to be applied, seen and lifted."""
    told = FAULTS[kind].complete(given)

    def seconds(name: str) -> float:
        return float(told.get(name, 0)) / 1000

    if kind == "crash_loop":
        return float(told["times"]) * (seconds("up_ms") + AGAIN_S)
    if kind == "rolling":
        return ROLLED * (seconds("down_ms") + HEALTHY_TIMEOUT_S)
    asked_s = 3 * QUESTIONS * seconds("period_ms") if kind == "starve" else 0.0
    return asked_s + seconds("age_ms") + seconds("noted_ms")


def _steps(entries: list[Entry]) -> Iterator[Step]:
    """Yield the steps: wait, look, apply, hold, lift, wait; overlapping entries are lifted late."""
    still_on: list[str] = []
    for number, entry in enumerate(entries, 1):
        if entry.at_s:
            yield Step(do="await", what="at", within_s=entry.at_s)
        elif entry.when != "healthy" and not (entry.when == "leader_changed" and number == 1):
            what = "leader" if entry.when == "leader_changed" else entry.when
            yield Step(do="await", what=what, within_s=WAIT_S)
        if not still_on:
            yield Step(do="look")  # waits until all is well, which it is not while faults are on
        else:
            yield Step(do="look", what="now")
        for at, fault in enumerate(entry.faults):
            name = _name(number, at, entry, fault)
            still_on.append(name)
            after_s = entry.after_s if at == 0 else 0.0
            yield _start(name, fault, after_s)
        if entry.overlap:
            if entry.hold_s:
                yield Step(do="await", what="time", within_s=entry.hold_s)
            continue
        for at, name in enumerate(reversed(still_on)):
            yield Step(do="stop", name=name, after_s=entry.hold_s if at == 0 else 0.0)
        still_on.clear()
        what = "leader" if entry.then == "leader_changed" else entry.then
        yield Step(do="await", what=what, within_s=WAIT_S)


def _name(number: int, at: int, entry: Entry, fault: Planned) -> str:
    mark = f"{number}" if len(entry.faults) == 1 else f"{number}.{at + 1}"
    return f"{mark}-{fault.kind}"


def _start(name: str, fault: Planned, after_s: float) -> Step:
    return Step(
        do="start",
        name=name,
        kind=fault.kind,
        targets=fault.targets,
        parameters=fault.parameters,
        after_s=after_s,
    )


def _drawn(plan: Plan, seed: int) -> Iterator[Entry]:
    """Yield the random entries."""
    draw = plan.random
    if draw is None:
        return
    for number in range(draw.rounds):
        stream = Stream(seed, f"scenario/{plan.name}/{number}")
        chosen = _choose(draw, stream.split("kind"))
        targets = chosen.targets[stream.split("target").u64(0) % len(chosen.targets)]
        fault = Planned(kind=chosen.kind, targets=targets, parameters=chosen.parameters)
        yield Entry(
            faults=(fault,),
            after_s=_between(draw.gap_s, stream.split("gap")),
            hold_s=_between(draw.hold_s, stream.split("hold")),
        )


def _choose(draw: Draw, stream: Stream) -> Choice:
    left = stream.random(0) * sum(choice.weight for choice in draw.packages)
    for choice in draw.packages:
        left -= choice.weight
        if left < 0:
            return choice
    return draw.packages[-1]


def _between(limits: tuple[float, float], stream: Stream) -> float:
    low, high = limits
    return round(low + (high - low) * stream.random(0), 3)
