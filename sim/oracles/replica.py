"""One broker as the oracles see it: its role, and its log read from the bytes on its disk.

The log is read here once more, from the data segments, without the production's index: an entry
becomes a `Mark`, and the marks of all replicas are compared. Source: spec/disk.md 6.1 (header).
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from sim.disk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.controller import BrokerController
    from dledger.core.log import RaftLog
    from dledger.core.model import Role
    from dledger.core.state import RaftState
    from dledger.node import DLedgerNode
    from dledger.storage.log_store import LogStore
    from sim.context import Process
    from store.dispatch.dispatcher import Dispatcher

HEADER: Final = struct.Struct(">iiqqqii")
"""magic, size, index, term, position, channel, chain CRC: the first 40 bytes of an entry."""
HEAD: Final = struct.Struct(">iiqqq")
"""The part of it that says what the entry is."""
ENTRY_MAGICS: Final = (1, 2)
BLANK: Final = b"\xff" * 4
"""The magic of what fills the rest of a segment; no flipped bits make one out of the others."""
HEADER_BYTES: Final = 48
BODY_CRC_AT: Final = 40

Key = tuple["Role", int, int, int, int, int, int]


class Mark(NamedTuple):
    """What identifies an entry: equal marks, equal bytes."""

    term: int
    position: int
    size: int
    crc: int


class Damaged(Exception):  # noqa: N818 - the oracles turn it into a `Violation`, or excuse it
    """The bytes at a place of the log are no entry."""


class Change(NamedTuple):
    """What an event changed: the key before, and where the log was rewritten."""

    before: Key
    now: Key
    kept_index: int
    """Last entry that is as it was; what follows is new, or was cut."""
    old_last: int


NO_KEY: Final[Key] = (None, 0, -1, -1, 0, -1, -1)  # type: ignore[assignment]  # before any event


class Replica:
    """A broker's host. It outlives the process, and remembers what lay on the disk."""

    def __init__(self, name: str, bit: int) -> None:
        self.name = name
        self.bit = bit
        self.incarnation = -1
        self.is_up = False
        self.is_leaving = False
        """Its process was asked to end."""
        self.is_wiped = False
        """The directory was emptied since the last boot."""
        self.lost_power = False
        self.is_corrupt = False
        """Bytes on its disk were damaged on purpose."""
        self.known: Mapping[tuple[int, int], Mark] = {}
        """Marks by (index, term) as the first replica that had the entry had it."""
        self.controller: BrokerController
        self.process: Process | None = None
        self.id_head = ""
        """The address it listens at, as the ids of its messages begin."""
        self.tick_ms = 0
        self.wait_ack_ms = 0
        """How long a message waits for a majority before its sender is told so."""
        self.boot_ns = 0
        """Virtual time of its last boot."""
        self.snapshots = 0
        """How often a snapshot has taken the place of a log that ended before it."""
        self.deferred: list[Callable[[], None]] = []
        """What is to be judged once the event that runs is over, and the log has been read."""
        self.synced_before = -1
        """What it held as synced when it started."""
        self.node: DLedgerNode
        self.state: RaftState
        self.tick = -1
        """At which tick it was last seen to lead."""
        self.told_term = -1
        """Term of a message of this life that promised nothing else, and was judged."""
        self._log: RaftLog
        self.disk: SimDisk
        self.checkpoint_path = ""
        self._writes = -1
        self.store: LogStore
        self.dispatcher: Dispatcher
        self._applied = (-1, -1)
        """Up to where it has dispatched, and which entry ends there."""
        self.base = 0
        """Index of ``marks[0]``."""
        self.marks: list[Mark] = []
        self.key: Key = NO_KEY
        self._spoiled: dict[int, int] = {}
        """CRCs of entries as they lay on the disk right after they were damaged."""

    # Reading the production objects: the only places that know their private names.

    def hangs(self) -> bool:
        """Whether a disk call of a thread of its process hangs."""
        return self.process is not None and self.process.gate_shut

    def rate_changed_ns(self) -> int:
        """Return when the clock of its machine began to run at its present rate."""
        return 0 if self.process is None else self.process.host.clock.changed_ns

    def now_ms(self) -> int:
        """Return the time by the monotonic clock of its machine."""
        return 0 if self.process is None else self.process.host.clock.monotonic_ms()

    def read_key(self) -> Key:
        """Return what tells whether the replica has changed."""
        state, log = self.state, self._log
        return (
            state.role,
            state.term,
            log.commit_index,
            self.store.last_index,
            log.last_term,
            self.applied_index,
            state.delivered_index,
        )

    def attach(self) -> None:
        """Find what `read_key` reads; once the log is open."""
        node = self.node
        self.state = node._raft.state
        self.tick = self.told_term = -1
        self._log = self.state.log
        self.store = node._store
        assert isinstance(node._disk, SimDisk)
        self.disk = node._disk
        self.checkpoint_path = f"{node.config.directory}/checkpoint"
        self.synced_before = node._driver.synced_index
        self._writes = -1
        self.dispatcher = self.controller.store._dispatcher
        self._applied = (-1, -1)

    @property
    def applied_index(self) -> int:
        """Last entry dispatched; looked up when dispatch has gone on."""
        end, index = self._applied
        if end != self.dispatcher.applied_end:
            end = self.dispatcher.applied_end
            index = self.controller.applied_index
            self._applied = (end, index)
        return index

    @property
    def last_index(self) -> int:
        """Last entry read from the disk."""
        return self.base + len(self.marks) - 1

    def mark(self, index: int) -> Mark | None:
        """Return the mark of an entry, None where it is not held or not known."""
        at = index - self.base
        return self.marks[at] if 0 <= at < len(self.marks) else None

    def entry_bytes(self, mark: Mark) -> bytes:
        """Return the bytes of an entry."""
        view = self.node._store.view(mark.position, mark.size)
        return bytes(view)

    # Following the log

    def mark_corrupt(self) -> None:
        """Take that bytes of its running process's log have just been damaged on purpose."""
        self.is_corrupt = True
        if not self.is_up or self.process is None or not self.process.alive:
            return  # the next start reads all of it
        for index, mark in enumerate(self.marks, self.base):
            with suppress(LookupError):  # the process has just dropped it, and nobody has looked
                crc = self._crc(mark.position, mark.size)
                if crc != mark.crc:
                    self._spoiled[index] = crc

    def read_anew(self) -> None:
        """Read the whole log. Errors: `Damaged`."""
        store = self.node._store
        self._spoiled.clear()
        self.base = store.first_index
        self.marks = []
        self._read_on(store.last_index, store.first_position)

    def follow(self) -> tuple[int, int]:
        """Read what is new; return (last entry kept, last entry before). Errors: `Damaged`."""
        store, disk = self.store, self.disk
        old_last, new_last = self.last_index, store.last_index
        if disk.writes == self._writes and new_last == old_last and store.first_index == self.base:
            return old_last, old_last  # not one byte was written since the last look
        self._writes = disk.writes
        if store.first_index > self.base:
            # Trimmed, or replaced by a snapshot: what lies below cannot be looked at any more.
            self.snapshots += store.first_index > old_last + 1
            del self.marks[: store.first_index - self.base]
            self.base = store.first_index
            old_last = self.last_index
        keep = min(old_last, new_last)
        while keep >= self.base and not self._is_as_before(keep):
            keep -= 1
        if keep < old_last:
            del self.marks[keep + 1 - self.base :]
        if keep < new_last:
            last = self.marks[-1] if self.marks else None
            position = store.first_position if last is None else last.position + last.size
            self._read_on(new_last, position)
        return keep, old_last

    def _is_as_before(self, index: int) -> bool:
        mark = self.marks[index - self.base]
        crc = self._crc(mark.position, mark.size)
        if crc in (mark.crc, self._spoiled.get(index)):
            return True
        # Spoiled while it was down, or before a part of it was repaired.
        return self.is_corrupt and self._was(index, mark)

    def _was(self, index: int, mark: Mark) -> bool:
        """Whether corrupt bytes were this entry: its header, or all but the header, still is."""
        try:
            data = self.entry_bytes(mark)
        except LookupError:
            return False
        head = HEAD.pack(ENTRY_MAGICS[0], mark.size, index, mark.term, mark.position)
        return data.startswith(head) or crc32(head + data[HEAD.size :]) == mark.crc

    def _crc(self, position: int, size: int) -> int:
        return crc32(self.node._store.view(position, size))

    def _read_on(self, last_index: int, position: int) -> None:
        segment = self.node.config.data_segment_bytes
        for index in range(self.last_index + 1, last_index + 1):
            mark = self._read(index, position)
            if mark is None:
                position += -position % segment
                mark = self._read(index, position)
            if mark is None:
                raise Damaged(f"{self.name}: entry {index} is not at position {position}")
            self.marks.append(mark)
            position += mark.size

    def _read(self, index: int, position: int) -> Mark | None:
        """Return the entry at a position, None if it is not there."""
        store = self.node._store
        header = self._header(store, position, self.node.config.data_segment_bytes)
        mark = None
        if header is not None and header[2] == index and header[4] == position:
            mark = Mark(header[3], position, header[1], self._crc(position, header[1]))
        if mark is None and self._is_blank(store, position):
            return None
        if not self.is_corrupt or (mark is not None and mark == self.known.get((index, mark.term))):
            return mark
        # Header and body may both be corrupt: then only the place says which entry it was.
        # One that is whole, and known or of the term in force, is what it says: if it may not be
        # there, that is for others to tell.
        unknown = (
            mark is None
            or not self._is_whole(mark)
            or (mark.term != self.state.term and (index, mark.term) not in self.known)
        )
        here = [
            one for (at, _), one in self.known.items() if at == index and one.position == position
        ]
        for one in here:  # several, if some were cut: what its header still says goes first
            if self._was(index, one):
                return one
        return here[0] if unknown and here else mark

    def _is_whole(self, mark: Mark) -> bool:
        """Whether the body has the CRC that the header states."""
        if mark.size < HEADER_BYTES:
            return False
        data = self.entry_bytes(mark)
        return int.from_bytes(data[BODY_CRC_AT : BODY_CRC_AT + 4], "big") == crc32(
            data[HEADER_BYTES:]
        )

    @staticmethod
    def _is_blank(store: object, position: int) -> bool:
        """Whether the rest of the segment was left empty: the entry did not fit there."""
        try:
            view = store.view(position, len(BLANK))  # type: ignore[attr-defined]  # a LogStore
        except LookupError:
            return False
        return bytes(view) == BLANK

    @staticmethod
    def _header(store: object, position: int, segment: int) -> tuple[int, ...] | None:
        if position % segment + HEADER_BYTES > segment:
            return None
        try:
            view = store.view(position, HEADER_BYTES)  # type: ignore[attr-defined]  # a LogStore
        except LookupError:
            return None
        header = HEADER.unpack_from(view)
        if header[0] not in ENTRY_MAGICS or not HEADER_BYTES <= header[1] <= segment:
            return None
        return header
