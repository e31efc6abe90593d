"""The end of a run of brokers that controllers switch: is there a master, and is all there?

As `sim.classic.auditor`; nobody switches by hand here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sim.classic.auditor import ClassicAuditor
from sim.machines import NS_PER_MS

if TYPE_CHECKING:
    from sim.switch.world import SwitchWorld

REFUSED_MS: Final = 8_000
"""After so long an operator takes a log away that has more than the master, who lost it."""


class SwitchAuditor(ClassicAuditor):
    """Runs on the host ``auditor`` of the world."""

    def __init__(self, world: SwitchWorld) -> None:
        super().__init__(world)
        self._controlled = world
        self._asked = asyncio.Event()
        self.told_ns = 0
        """When a message was acknowledged that was sent by `ask_again`; 0: none was yet."""

    def ask_again(self) -> None:
        """Send once more until one is acknowledged."""
        self._asked.set()

    async def _run(self) -> None:
        await super()._run()
        await self._asked.wait()
        await self._send_until_told(self._producer)
        self.told_ns = self._controlled.loop.now_ns

    def describe(self) -> str:
        """Say what is still missing."""
        world = self._controlled
        states = []
        for name, broker in world.replicas.brokers.items():
            if not world.hosts[name].alive or broker.switching is None:
                states.append(f"{name} down")
            elif broker.controller is None:
                states.append(f"{name} waits: {broker.switching._waits_for}")
            else:
                states.append(f"{name} {broker.controller.mode.status()}")
        group = world.decisions.group
        decided = "nothing" if group is None else (
            f"master {group.master} of epoch {group.master_epoch}, in sync {group.in_sync}"
        )  # fmt: skip
        return (
            f"{self.stage}; {world.controller()} leads the controllers, who have decided {decided};"
            f" {'; '.join(states)}"
        )

    def look(self) -> None:
        """Be the operator: where something was lost as it may be, who has it begins anew."""
        world = self._controlled
        if not world.replicas.excused:
            return
        now_ms = world.loop.now_ns // NS_PER_MS
        for name, broker in world.replicas.brokers.items():
            if broker.is_master or broker.is_following or not broker.copy.end:
                self._refused_ms.pop(name, None)
            elif now_ms - self._refused_ms.setdefault(name, now_ms) > REFUSED_MS:
                world.begin_anew(name)
