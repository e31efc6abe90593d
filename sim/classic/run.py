"""One run of a master and its slaves: safety phase, liveness phase, and the last questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.classic.absence import Absence
from sim.classic.auditor import ClassicAuditor
from sim.classic.guard import ClassicGuard
from sim.classic.plain_run import PlainRun
from sim.classic.world import ClassicWorld
from sim.faults.plan import FaultKind
from sim.stepping import run_audit, run_until

if TYPE_CHECKING:
    from sim.faults.plan import Plan

SLOW = frozenset({FaultKind.SLOW_DISK, FaultKind.DISK_FULL, FaultKind.HUNG_DISK})


class ClassicRun(PlainRun):
    """A run that has been prepared."""

    def __init__(self, plan: Plan, trace_lines: bool) -> None:  # noqa: FBT001 - as all runs
        self._world = world = ClassicWorld(plan, keep_lines=trace_lines)
        super().__init__(world, ClassicGuard(world))
        world.pair.may_flush_late = any(event.kind in SLOW for event in plan.events)

    def phases(self) -> None:
        """Run it to its end. Errors: `Violation`."""
        world, nemesis = self._world, self.nemesis
        world.start_all()
        nemesis.start()
        absence = Absence(world, nemesis)
        run_until(world, world.plan.options.safety_ms, absence.look)
        nemesis.heal_all()
        auditor = ClassicAuditor(world)
        auditor.start()
        run_audit(world, lambda: auditor.is_done, auditor.describe, auditor.look)
        pair = world.pair
        self.judge(pair.book.line.rows.values(), pair.replaced, pair.lost_name)
