"""While the master is gone its slaves serve: is all read that one of them has?

Looked at where none but the master and members of the group are disturbed: the master does not run
for long enough, a slave does, and so do members. Source: docs/client.md, while the master is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.machines import NS_PER_MS
from sim.oracles.base import Violation
from sim.workload import LATER_TOPIC, TOPIC

if TYPE_CHECKING:
    from sim.classic.world import ClassicWorld
    from sim.faults.apply import Nemesis

SERVED_MS: Final = 11_000
"""After so long without a master all is read that a slave has; a consumer takes two seconds to
give the master up, five to look at its share of the queues again."""

CALM_MS: Final = 500
"""Before it, too, nothing else is disturbed."""


class Absence:
    """Looks at a world now and then."""

    name = "A41 not read at a slave"

    def __init__(self, world: ClassicWorld, nemesis: Nemesis) -> None:
        self._world = world
        self._nemesis = nemesis
        self._since_ms: int | None = None

    def look(self) -> None:
        """Note since when the master is gone, and judge. Errors: `Violation`."""
        world = self._world
        now_ms = world.loop.now_ns // NS_PER_MS
        if world.hosts[world.master].alive:
            self._since_ms = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms < SERVED_MS or not world.plan.workload.consumers:
            return
        around = (world.master, *world.layout.consumers)
        if self._nemesis.spares(around, self._since_ms - CALM_MS):
            self._check()
        self._since_ms = now_ms

    def _check(self) -> None:
        world = self._world
        world.record.count("absences")
        names = [name for name in world.brokers() if name != world.master]
        copies = [world.pair.brokers[name].copy for name in names if world.hosts[name].alive]
        book = world.pair.book
        first = next((copy for copy in copies if book.is_of_line(copy) and not copy.base), None)
        if first is None:
            return
        for position, row in book.line.rows.items():
            place = (*row.queue, row.offset)
            is_theirs = row.queue[0] in {TOPIC, LATER_TOPIC} and row.key is not None
            if position >= first.end or not is_theirs or row.key in world.done:
                continue
            if place not in world.pair.replaced:
                raise Violation(
                    self.name,
                    f"{world.master} is gone for {SERVED_MS} ms, {first.name} serves, and "
                    f"{place} is not consumed",
                )
