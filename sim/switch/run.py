"""One run of brokers that controllers switch: safety phase, liveness phase, last questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.faults.apply import Nemesis
from sim.oracles.base import Violation
from sim.stepping import run_audit, run_until
from sim.switch.auditor import SwitchAuditor
from sim.switch.guard import SwitchGuard
from sim.switch.library import in_virtual_time
from sim.switch.world import SwitchWorld

if TYPE_CHECKING:
    from sim.faults.plan import Plan


class SwitchRun:
    """A run that has been prepared."""

    def __init__(self, plan: Plan, trace_lines: bool) -> None:  # noqa: FBT001 - as all runs
        self.world = world = SwitchWorld(plan, keep_lines=trace_lines)
        self.record = world.record
        self.nemesis = Nemesis(world, SwitchGuard(world))
        world.explains = self.nemesis.explains

    def is_blocked(self, name: str) -> bool:
        """Whether a fault of its disk explains that a program on a host logs errors."""
        disk = self.world.disk(name)
        return disk.is_watched or bool(disk.failures) or self.world.explains(name)

    def phases(self) -> None:
        """Run it to its end. Errors: `Violation`."""
        with in_virtual_time(self.world.on_applied):
            self._phases()

    def _phases(self) -> None:
        world, nemesis = self.world, self.nemesis
        world.start_all()
        nemesis.start()
        run_until(world, world.plan.options.safety_ms, _nothing)
        nemesis.heal_all()
        auditor = SwitchAuditor(world)
        auditor.start()
        run_audit(world, lambda: auditor.is_done, auditor.describe, auditor.look)
        self._check_sends()
        if world.findings.first is not None:
            raise world.findings.first

    def _check_sends(self) -> None:
        """Judge what producers were told. Errors: `Violation`."""
        replicas = self.world.replicas
        held = {(*row.queue, row.offset): row.key for row in replicas.book.line.rows.values()}
        for row in self.record.sends:
            place = (row["topic"], row["queue_id"], row["queue_offset"])
            is_told = row["outcome"] == "ok" and place[0] == "orders"
            if is_told and place not in replicas.replaced and held.get(place) != row["msg_key"]:
                raise Violation(
                    replicas.lost_name, f"{row['msg_key']} was told SEND_OK at {place}; there is "
                    f"{held.get(place)}",
                )  # fmt: skip


def _nothing() -> None:
    """Nothing is looked at between two pieces."""
