"""The budget of brokers without a group: what of it is the same, whoever says who is master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.faults.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.classic.plain_world import PlainWorld


class PlainGuard(Guard):
    """Says whose disk may be lost now; whoever inherits says it in `objection_to_loss`."""

    def __init__(self, world: PlainWorld) -> None:
        super().__init__(world)
        self._plain = world

    def voters(self) -> tuple[str, ...]:
        """Return all brokers of the name."""
        return self._plain.brokers()

    def objection_to_power_loss(self, victims: Iterable[str]) -> str:
        """Return why these may not lose what is unsynced; nothing if they may."""
        world = self._plain
        losing = [
            name
            for name in victims
            if name in world.brokers()
            and not world.is_synced(name)
            and world.disk(name).unsynced() != (0, 0)
        ]
        return self.objection_to_loss(losing) if losing else ""

    def objection_to_wipe(self, victims: Sequence[str]) -> str:
        """Return why these may not lose all; nothing if they may."""
        return self.objection_to_loss(victims)
