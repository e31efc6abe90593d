"""What must have happened after some time: entries are synced, a leader whose disk hangs is none.

Time is counted in ticks of the replica's own, so that a pause, or a call that takes long, counts
for nothing. Source: docs/raft.md#durability; docs/raft.md#when-the-disk-fails; spec/proof.md D7.
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
FAILED_TICKS: Final = 20
"""A process may live so long behind a failure of the disk, until the failure is told."""
FATAL: Final = ("/data/", "/index/", "/currterm")
"""Parts of paths of the log, and of term and vote: a failure there is the end of the process."""


class FlushLag:
    """Entries are on the disk some time after they were written, unless the disk is blocked."""

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
        if change.kept_index < change.old_last or disk.is_watched or replica.is_corrupt:
            marks.clear()
            return
        tick = replica.state.tick
        if not marks or tick - marks[-1][0] >= MARK_TICKS:
            marks.append((tick, replica.last_index))
        if tick - marks[0][0] < FLUSH_TICKS:
            return
        noted, index = marks.popleft()
        mark = replica.mark(index)
        if mark is None or is_synced(replica, mark.position, mark.size):
            return
        if not disk.has_failed_syncs():
            raise Violation(
                self.name,
                f"{replica.name} has written entry {index} before tick {noted}, it is {tick}, and "
                "its disk is not sure of it",
                node=replica.name,
                index=index,
            )


class HungDisk:
    """A leader whose entries cannot be synced, because the disk hangs, gives up leadership."""

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


class FatalFailure:
    """Who could not write or sync its log, its term or its vote does not go on (EIO, not ENOSPC).

    Nobody knows what is on the disk then: it must not be tried again.
    """

    name = "A43 goes on after a failure of the disk"

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        """By replica: how many failures are of earlier lives, or of other files."""
        self._since: dict[str, int] = {}

    def on_boot(self, replica: Replica) -> None:
        """What failed before has ended the process, or was survived while the log was opened."""
        self._known[replica.name] = len(replica.disk.failures)
        self._since.pop(replica.name, None)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Look whether the disk has failed. Errors: `Violation`."""
        del change
        name, failures, tick = replica.name, replica.disk.failures, replica.state.tick
        known = self._known[name]
        if name not in self._since:
            if len(failures) == known:
                return
            self._known[name] = len(failures)
            if any(map(_is_fatal, failures[known:])):
                self._since[name] = tick
        elif tick - self._since[name] > FAILED_TICKS:
            raise Violation(
                self.name,
                f"{name} goes on at tick {tick}: {failures[-1]} could not be written or synced "
                f"before tick {self._since[name]}",
                node=name,
            )


def _is_fatal(path: str) -> bool:
    """Whether a file is of the log, or has term and vote."""
    return "/dledger-" in path and any(part in path for part in FATAL)
