"""What must have happened after some time: entries are synced, a leader whose disk hangs is none.

Time is counted in ticks of the replica's own, so that a pause, or a call that takes long, counts
for nothing. Source: docs/raft.md (Durability, When the disk fails); chaos.md D7.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation
from sim.oracles.durable import is_synced

if TYPE_CHECKING:
    from sim.oracles.replica import Change, Replica

FLUSH_TICKS: Final = 40
"""After so many ticks an entry is synced, in every flush mode: four times the flush interval."""
HANG_TICKS: Final = 40
"""A leader whose sync does not return leads no more: flush interval, limit, and ten ticks."""
MARK_TICKS: Final = 5


class FlushLag:
    """Entries are on the disk some time after they were written, unless the disk is hindered."""

    name = "A38 not synced in time"

    def __init__(self) -> None:
        self._marks: dict[str, deque[tuple[int, int]]] = {}
        """By replica: at which tick its log ended where."""

    def on_boot(self, replica: Replica) -> None:
        """Begin to count."""
        self._marks[replica.name] = deque()

    def on_change(self, replica: Replica, change: Change) -> None:
        """Note where the log ends; look whether what was there long ago is synced."""
        marks = self._marks[replica.name]
        disk = replica.disk
        if change.kept_index < change.old_last or disk.is_watched or replica.is_rotten:
            marks.clear()
            return
        tick = replica.state.tick
        if not marks or tick - marks[-1][0] >= MARK_TICKS:
            marks.append((tick, replica.last_index))
        if tick - marks[0][0] < FLUSH_TICKS:
            return
        noted, index = marks.popleft()
        mark = replica.mark(index)
        if mark is None or disk.has_failed_syncs():
            return
        if not is_synced(replica, mark.position, mark.size):
            raise Violation(
                self.name,
                f"{replica.name} has written entry {index} before tick {noted}, it is {tick}, and "
                "its disk is not sure of it",
                node=replica.name,
                index=index,
            )


class HungDisk:
    """A leader whose entries cannot be synced, because the disk hangs, gives up office."""

    name = "A43 leader with a hung disk"

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def on_boot(self, replica: Replica) -> None:
        """A process that has just started leads nothing."""
        self._since.pop(replica.name, None)

    def on_tick(self, replica: Replica) -> None:
        """Look at a leader once a tick. Errors: `Violation`."""
        tick, name = replica.state.tick, replica.name
        is_behind = replica.node._driver.synced_index < replica.last_index
        if not (is_behind and replica.hangs()):
            self._since.pop(name, None)
            return
        since = self._since.setdefault(name, tick)
        if not since <= tick <= since + HANG_TICKS:
            raise Violation(
                self.name,
                f"{name} leads term {replica.state.term}, and its disk has not answered since "
                f"tick {since}, it is {tick}",
                node=name,
            )
