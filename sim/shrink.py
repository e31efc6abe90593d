"""Making a failing plan small: fewer faults, kinds, operations, machines and limits, less time.

Delta debugging (ddmin): parts are left out as long as the run fails in the same way. Since every
part of a plan draws from a stream of its own, leaving one out changes no other.
Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input"; spec/proof.md
4.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ledgermq.runtime.clock import SystemClock
from sim.faults.small import Small
from sim.rng import SplitRng
from sim.run import Result, run_plan
from sim.workload import draw_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sim.faults.plan import Plan, Workload
    from sim.workload import Op

T = TypeVar("T")

RUNS_MAX: Final = 300
SECONDS_MAX: Final = 120.0
SPARE_MS: Final = 500
"""How long a run goes on behind the violation that it is cut to."""
KINDS: Final = (
    "delayed", "retrying", "orderly", "broadcast", "transactional", "further", "strain", "edges",
    "small", "seldom", "unwilling", "worn", "everyday", "fitful", "skilled", "pressed",
    "guarded",
)  # fmt: skip
"""What a workload has or has not."""


@dataclass(slots=True)
class Shrunk:
    """What shrinking came to."""

    plan: Plan
    result: Result
    runs: int = 0
    steps: list[str] = field(default_factory=list)


class Shrinker:
    """Shrinks one plan.

    Args:
        plan: fails as ``result`` says.
        run: runs a plan; `sim.run.run_plan`.
        report: hears of each step that made it smaller.
    """

    def __init__(
        self,
        plan: Plan,
        result: Result,
        *,
        run: Callable[[Plan], Result] = run_plan,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._run = run
        self._report = report
        self._signature = result.signature
        self._clock = SystemClock()
        self._limit_ms = self._clock.monotonic_ms() + int(SECONDS_MAX * 1000)
        self.best = Shrunk(plan, result)

    def shrink(self) -> Shrunk:
        """Return the smallest plan found that fails in the same way."""
        self._cut_time()
        before = -1
        while before != self._size() and not self._is_spent():
            before = self._size()
            self._shrink_faults()
            self._shrink_kinds()
            self._shrink_operations()
            self._shrink_machines()
            self._shrink_limits()
            self._cut_time()
        return self.best

    def _size(self) -> int:
        plan = self.best.plan
        kinds = sum(getattr(plan.workload, kind) is not None for kind in KINDS)
        limits = 0 if plan.workload.small is None else len(plan.workload.small.limits)
        parts = len(plan.events) + kinds + len(plan.workload.late) + limits
        return parts * 1000 + len(_numbers(plan))

    def _is_spent(self) -> bool:
        return self.best.runs >= RUNS_MAX or self._clock.monotonic_ms() >= self._limit_ms

    def _try(self, plan: Plan, what: str) -> bool:
        """Run a smaller plan, and keep it if it fails in the same way."""
        if self._is_spent():
            return False
        self.best.runs += 1
        try:
            result = self._run(plan)
        except Exception:  # noqa: BLE001 - a plan that cannot be run is not a smaller failure
            return False
        if result.signature != self._signature:
            return False
        self.best.plan, self.best.result = plan, result
        self.best.steps.append(what)
        self._report(f"{what}; {len(plan.events)} faults, {len(_numbers(plan))} operations left")
        return True

    def _cut_time(self) -> None:
        """End the safety phase where the violation was found."""
        plan, result = self.best.plan, self.best.result
        until_ms = result.virtual_ms + SPARE_MS
        if until_ms < plan.options.safety_ms:
            options = msgspec.structs.replace(plan.options, safety_ms=until_ms)
            events = tuple(event for event in plan.events if event.at_ms <= until_ms)
            smaller = msgspec.structs.replace(plan, options=options, events=events)
            self._try(smaller, f"cut to {until_ms} ms")

    def _shrink_faults(self) -> None:
        def with_events(events: Sequence[object]) -> Plan:
            return msgspec.structs.replace(self.best.plan, events=tuple(events))

        ddmin(
            list(self.best.plan.events),
            lambda events: self._try(with_events(events), "fewer faults"),
        )

    def _shrink_kinds(self) -> None:
        """Leave out whole kinds of work, and groups that come late."""
        for kind in KINDS:
            if getattr(self.best.plan.workload, kind) is not None:
                self._try_workload(f"nothing {kind}", **{kind: None})
        ddmin(
            list(self.best.plan.workload.late),
            lambda groups: self._try_workload("fewer late groups", late=tuple(groups)),
        )

    def _try_workload(self, what: str, **changes: object) -> bool:
        plan = self.best.plan
        workload = msgspec.structs.replace(plan.workload, **changes)
        return self._try(msgspec.structs.replace(plan, workload=workload), what)

    def _shrink_limits(self) -> None:
        """Have limits be as they are in production, where they need not be small."""
        small = self.best.plan.workload.small
        if small is None:
            return

        def with_limits(limits: Sequence[str], turn_ms: float) -> bool:
            less = Small(turn_ms=turn_ms, limits=tuple(limits))
            return self._try_workload("fewer small limits", small=less)

        left = ddmin(list(small.limits), lambda limits: with_limits(limits, small.turn_ms))
        if small.turn_ms:
            with_limits(left, 0.0)

    def _shrink_operations(self) -> None:
        every = _every_number(self.best.plan)

        def with_numbers(kept: Sequence[int]) -> bool:
            left = frozenset(kept)
            skip = tuple(number for number in every if number not in left)
            return self._try_workload("fewer operations", skip=skip)

        ddmin(_numbers(self.best.plan), with_numbers)

    def _shrink_machines(self) -> None:
        """Leave out what the violation does not need."""
        plan = self.best.plan
        if plan.options.namesrvs > 1:
            options = msgspec.structs.replace(plan.options, namesrvs=1)
            self._try(msgspec.structs.replace(plan, options=options), "one name server")
        for field_name, least in (("consumers", 0), ("producers", 1)):
            if getattr(self.best.plan.workload, field_name) > least:
                self._try_workload(f"{least} {field_name}", **{field_name: least})
        self._shrink_odd()
        plan = self.best.plan
        if plan.options.brokers > 3:
            options = msgspec.structs.replace(plan.options, brokers=3)
            self._try(msgspec.structs.replace(plan, options=options), "three brokers")

    def _shrink_odd(self) -> None:
        """Leave out kinds of odd clients, whose operations may all be gone."""
        for kind in tuple(self.best.plan.workload.odd):
            odd = self.best.plan.workload.odd
            left = {one: share for one, share in odd.items() if one is not kind}
            self._try_workload(f"no {kind.value}", odd=left)


def ddmin(parts: list[T], fails_with: Callable[[list[T]], bool]) -> list[T]:
    """Return a part of ``parts`` with which it still fails, none of whose chunks can go.

    ``fails_with`` runs with some of the parts, in their order. Time: in the worst case quadratic.
    """
    if parts and fails_with([]):
        return []
    chunks = 2
    while len(parts) >= 2:
        size = -(-len(parts) // chunks)
        for start in range(0, len(parts), size):
            rest = parts[:start] + parts[start + size :]
            if rest and fails_with(rest):
                parts = rest
                chunks = max(chunks - 1, 2)
                break
        else:
            if size == 1:
                break
            chunks = min(len(parts), chunks * 2)
    return parts


def _every_number(plan: Plan) -> list[int]:
    """Return the numbers of all operations of the workload, those left out included."""
    every = msgspec.structs.replace(plan.workload, skip=())
    return [op.number for op in _draw(plan, every)]


def _numbers(plan: Plan) -> list[int]:
    """Return the numbers of the operations that are left."""
    return [op.number for op in _draw(plan, plan.workload)]


def _draw(plan: Plan, workload: Workload) -> list[Op]:
    rng = SplitRng(plan.seed).split("workload")
    return draw_operations(rng, workload, plan.options.safety_ms)
