"""One run of a master and its slaves: safety phase, liveness phase, and the last questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.classic.absence import Absence
from sim.classic.auditor import ClassicAuditor
from sim.classic.guard import ClassicGuard
from sim.classic.world import ClassicWorld
from sim.faults.apply import Nemesis
from sim.faults.plan import FaultKind
from sim.oracles.base import Violation
from sim.stepping import run_audit, run_until

if TYPE_CHECKING:
    from sim.faults.plan import Plan

SLOW = frozenset({FaultKind.SLOW_DISK, FaultKind.DISK_FULL, FaultKind.HUNG_DISK})


class ClassicRun:
    """A run that has been prepared."""

    def __init__(self, plan: Plan, trace_lines: bool) -> None:  # noqa: FBT001 - as all runs
        self.world = world = ClassicWorld(plan, keep_lines=trace_lines)
        self.record = world.record
        self.nemesis = Nemesis(world, ClassicGuard(world))
        world.explains = self.nemesis.explains
        world.pair.may_flush_late = any(event.kind in SLOW for event in plan.events)

    def is_blocked(self, name: str) -> bool:
        """Whether a fault of its disk explains that a program on a host logs errors."""
        disk = self.world.disk(name)
        return disk.is_watched or bool(disk.failures) or self.world.explains(name)

    def phases(self) -> None:
        """Run it to its end. Errors: `Violation`."""
        world, nemesis = self.world, self.nemesis
        world.start_all()
        nemesis.start()
        absence = Absence(world, nemesis)
        run_until(world, world.plan.options.safety_ms, absence.look)
        nemesis.heal_all()
        auditor = ClassicAuditor(world)
        auditor.start()
        run_audit(world, lambda: auditor.is_done, auditor.describe, auditor.look)
        self._check_sends()
        if world.findings.first is not None:
            raise world.findings.first

    def _check_sends(self) -> None:
        """Judge what producers were told. Errors: `Violation`."""
        pair = self.world.pair
        held = {(*row.queue, row.offset): row.key for row in pair.book.line.rows.values()}
        for row in self.record.sends:
            place = (row["topic"], row["queue_id"], row["queue_offset"])
            is_told = row["outcome"] == "ok" and place[0] == "orders"
            if is_told and place not in pair.replaced and held.get(place) != row["msg_key"]:
                raise Violation(
                    pair.lost_name, f"{row['msg_key']} was told SEND_OK at {place}; there is "
                    f"{held.get(place)}",
                )  # fmt: skip
