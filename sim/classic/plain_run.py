"""A run of brokers without a group: what of it is the same, whoever says who is master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.faults.apply import Nemesis
from sim.oracles.alone_disk import LogFiles
from sim.oracles.base import Violation
from sim.oracles.copies import DIRECTORY
from sim.oracles.queue_units import check_units

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
        world.explains_start = self.nemesis.explains_start

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
        last: dict[tuple[str, int], int | None] = {}
        held: dict[Place, int | None] = {}
        for row in rows:
            place = (*row.queue, row.offset)
            self.world.ends.sent.check_row(place, row.key, last.get(row.queue))
            held[place] = last[row.queue] = row.key
        segment_bytes = self.world.plan.options.segment_bytes
        for name in self.world.brokers():
            units = check_units(self.world.disk(name), LogFiles(DIRECTORY, segment_bytes, 0))
            self.record.count("units", units)
        for send in self.record.sends:
            told = (send["topic"], send["queue_id"], send["queue_offset"])
            is_told = send["outcome"] == "ok" and told[0] == "orders"
            if is_told and told not in replaced and held.get(told) != send["msg_key"]:
                raise Violation(
                    lost_name, f"{send['msg_key']} was told SEND_OK at {told}; there is "
                    f"{held.get(told)}",
                )  # fmt: skip
        if self.world.findings.first is not None:
            raise self.world.findings.first
