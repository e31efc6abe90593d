"""One run of brokers that controllers switch: safety phase, liveness phase, last questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.classic.plain_run import PlainRun
from sim.oracles.reporting import Reporting
from sim.stepping import run_audit, run_until
from sim.switch.auditor import SwitchAuditor
from sim.switch.guard import SwitchGuard
from sim.switch.last_act import LastAct
from sim.switch.leading import Leading
from sim.switch.library import in_virtual_time
from sim.switch.world import SwitchWorld

if TYPE_CHECKING:
    from sim.faults.plan import Plan


class SwitchRun(PlainRun):
    """A run that has been prepared."""

    def __init__(self, plan: Plan, trace_lines: bool) -> None:  # noqa: FBT001 - as all runs
        self._world = world = SwitchWorld(plan, keep_lines=trace_lines)
        super().__init__(world, SwitchGuard(world))

    def phases(self) -> None:
        """Run it to its end. Errors: `Violation`."""
        with in_virtual_time(self._world.on_applied, self._world.votes.on_said):
            self._phases()

    def _phases(self) -> None:
        world, nemesis = self._world, self.nemesis
        world.start_all()
        nemesis.start()
        leading = Leading(world, nemesis.touched_ms)
        reporting = Reporting(world.is_held_up)

        def look() -> None:
            world.tables.look()
            leading.look()
            reporting.look(world.replicas.running())

        run_until(world, world.plan.options.safety_ms, look)
        nemesis.heal_all()
        auditor = SwitchAuditor(world)
        auditor.start()
        run_audit(world, lambda: auditor.is_done, auditor.describe, auditor.look)
        LastAct(world, auditor).run()
        replicas = world.replicas
        self.judge(replicas.book.line.rows.values(), replicas.replaced, replicas.lost_name)
