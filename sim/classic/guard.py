"""The budget of master and slaves: whose disk may be lost now so that the contract holds.

A slave may lose all while the master is whole. The master may while every slave is whole: each has
the log from its beginning, and has lost nothing since it had all that the master has. So the one
with the most has every message that was ever told SEND_OK because a slave had it.
Source: docs/replication.md, what is acknowledged, and what is lost when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.classic.plain_guard import PlainGuard

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sim.classic.world import ClassicWorld


class ClassicGuard(PlainGuard):
    """Says whose disk may be lost now."""

    def __init__(self, world: ClassicWorld) -> None:
        super().__init__(world)
        self._world = world

    def objection_to_loss(self, victims: Iterable[str]) -> str:
        """Return why these may not lose any of their log; nothing if they may."""
        world = self._world
        copies = {name: broker.copy for name, broker in world.pair.brokers.items()}
        lost = set(victims)
        if world.master not in lost:
            return "the master is not whole" if copies[world.master].is_damaged else ""
        for name, copy in copies.items():
            if name == world.master:
                continue
            if name in lost or copy.is_damaged or copy.base or not world.pair.book.is_of_line(copy):
                return f"{name} is not whole"
        return ""
