"""A scenario file several times over, in one run: it starts, drains and is judged once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from chaos.scenario import Step
from chaos.scenarios.schema import Entry, Plan

ROUNDS_MAX: Final = 50
ROUNDS_HELP: Final = "how many times a file's timeline and its drawn faults come (default 1)"
WITHOUT_ROUNDS: Final = frozenset({"demo", "baseline"})
"""Scenarios that are no files, and take ``--seconds`` in place of ``--rounds``."""
_BETWEEN_S: Final = 5.0
"""A round with entries at given seconds lasts so long after its last hold has ended."""


def repeated(plan: Plan, rounds: int) -> Plan:
    """Return a plan whose timeline, and whose drawn faults, come ``rounds`` times in a row.

    ``at`` of an entry, or a step, counts from the start of its round. A coverage that the file
    names is asked for in each round. Errors: `ValueError` for no such number of rounds.
    """
    if not 1 <= rounds <= ROUNDS_MAX:
        raise ValueError(f"{rounds} rounds: 1 to {ROUNDS_MAX} are possible")
    if rounds == 1:
        return plan
    draw, coverage, phases = plan.random, plan.coverage, dict(plan.phases)
    if "main" in phases:
        phases["main"] *= rounds
    return replace(
        plan,
        timeline=_entries(plan.timeline, rounds),
        steps=_steps(plan.steps, rounds),
        random=draw and replace(draw, rounds=draw.rounds * rounds),
        coverage=coverage and {kind: many * rounds for kind, many in coverage.items()},
        phases=phases,
    )


def _entries(timeline: Sequence[Entry], rounds: int) -> tuple[Entry, ...]:
    ends = (entry.at_s + entry.hold_s for entry in timeline if entry.at_s is not None)
    length_s = max(ends, default=0.0) + _BETWEEN_S
    return tuple(_later(entry, at * length_s) for at in range(rounds) for entry in timeline)


def _later(entry: Entry, by_s: float) -> Entry:
    return entry if entry.at_s is None else replace(entry, at_s=entry.at_s + by_s)


def _steps(steps: Sequence[Step], rounds: int) -> tuple[Step, ...]:
    mark, length_s = _mark(steps, rounds), _length_s(steps)
    later = (
        _step_later(step, f"{at + 1}{mark}", at * length_s)
        for at in range(1, rounds)
        for step in steps
    )
    return (*steps, *later)


def _mark(steps: Sequence[Step], rounds: int) -> str:
    """Return what comes behind the number of a round in names, so that no two are alike.

    A file that was written for us names its faults as rounds do: ``2.1-kill``.
    """
    names = {step.name for step in steps if step.name}
    mark = "."
    while any(f"{at + 1}{mark}{name}" in names for at in range(1, rounds) for name in names):
        mark += "."
    return mark


def _length_s(steps: Sequence[Step]) -> float:
    """Return for how long a round lasts that has steps at a given second."""
    end = 0.0
    for step in steps:
        waits_s = step.within_s if step.what == "time" else 0.0
        end = max(end, step.within_s) if step.what == "at" else end + step.after_s + waits_s
    return end + _BETWEEN_S


def _step_later(step: Step, mark: str, by_s: float) -> Step:
    if step.what == "at":
        return replace(step, within_s=step.within_s + by_s)
    return replace(step, name=mark + step.name) if step.name else step
