"""The budget of brokers that controllers switch: whose disk may be lost now so that all is kept.

Nothing acknowledged is lost while one in-sync replica is whole. So a replica may lose something
while another one is whole in each set that is decided, or may be decided by what is under way.
Controllers sync what they say: they may lose their power, but not their disks.
Source: docs/replication.md, contracts; docs/adr/0020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.classic.plain_guard import PlainGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.switch.world import SwitchWorld


class SwitchGuard(PlainGuard):
    """Says whose disk may be lost now."""

    def __init__(self, world: SwitchWorld) -> None:
        super().__init__(world)
        self._world = world

    def objection_to_wipe(self, victims: Sequence[str]) -> str:
        """Return why these may not lose all; nothing if they may."""
        world = self._world
        if any(name in world.namesrvs() for name in victims):
            return "a controller that lost its directory has forgotten its vote"
        why = world.unsettled()
        return why or super().objection_to_wipe(victims)

    def objection_to_loss(self, victims: Iterable[str]) -> str:
        """Return why these may not lose any of their log; nothing if they may."""
        world, lost = self._world, set(victims)
        if any(
            broker.copy.is_damaged
            for name, broker in world.replicas.brokers.items()
            if name not in lost
        ):
            return "another replica is not whole"
        whole = {one.name for one in world.replicas.members() if one.name not in lost}
        if world.decisions.group is None or not world.decisions.group.in_sync:
            return "there is no master yet"
        if not whole:
            return "no other replica is in sync"
        if not any(world.hosts[name].alive and not world.hosts[name].paused for name in whole):
            return "no other in-sync replica runs"
        return ""
