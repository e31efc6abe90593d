"""A run of brokers without a group: what of it is the same, whoever says who is master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.faults.apply import Nemesis
from sim.oracles.base import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from sim.classic.plain_guard import PlainGuard
    from sim.classic.plain_world import PlainWorld
    from sim.oracles.copies import Row

Place = tuple[str, int, int]
"""Topic, queue id and queue offset."""


class PlainRun:
    """A run that has been prepared; whoever inherits has its phases."""

    def __init__(self, world: PlainWorld, guard: PlainGuard) -> None:
        self.world: PlainWorld = world
        self.record = world.record
        self.nemesis = Nemesis(world, guard)
        world.explains = self.nemesis.explains

    def is_blocked(self, name: str) -> bool:
        """Whether a fault of its disk explains that a program on a host logs errors."""
        disk = self.world.disk(name)
        return disk.is_watched or bool(disk.failures) or self.world.explains(name)

    def judge(self, rows: Iterable[Row], replaced: Set[Place], lost_name: str) -> None:
        """Judge what producers were told, then whatever was found meanwhile. Errors: `Violation`.

        Args:
            rows: what the log has at the end.
            replaced: places at which another message was told before.
            lost_name: what it is called that a message is not there.
        """
        held = {(*row.queue, row.offset): row.key for row in rows}
        for row in self.record.sends:
            place = (row["topic"], row["queue_id"], row["queue_offset"])
            is_told = row["outcome"] == "ok" and place[0] == "orders"
            if is_told and place not in replaced and held.get(place) != row["msg_key"]:
                raise Violation(
                    lost_name, f"{row['msg_key']} was told SEND_OK at {place}; there is "
                    f"{held.get(place)}",
                )  # fmt: skip
        if self.world.findings.first is not None:
            raise self.world.findings.first
