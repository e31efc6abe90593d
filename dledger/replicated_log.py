"""The log of a group as its user sees it: bytes at positions, some of them committed.

A replica counts its entries (`dledger.node`); who keeps a store over it has no use for the numbers.
`ReplicatedLog` stands between: it is the listener of the node, and tells its own user the same in
positions. This is the one place where the two are translated into each other.

The entry that starts at a position is nearly always one of a few that are known: where the commit
stands, where it stood before, and where the last walk ended. Any other is searched for.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from dledger.config import ENTRY_HEADER_BYTES
from dledger.core.model import LogIndex, NodeId, Role, Term
from dledger.core.snapshot import SnapshotMeta
from dledger.errors import DamagedEntry
from dledger.listener import DLedgerListener
from dledger.mark import LogMark

if TYPE_CHECKING:
    from dledger.node import DLedgerNode
    from dledger.storage.recent import HintedSpan
    from dledger.storage.walk import Body

_NOWHERE = (-1, -1)


class LogUser(Protocol):
    """Who uses a log by positions. All calls come from the loop thread, and must not block."""

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body of a leader's first entry; it will lie at ``physical_offset``."""
        ...

    def configuration_body(self, physical_offset: int, payload: bytes) -> bytes:
        """Return the body that holds a configuration of the group; it will lie there."""
        ...

    def is_sound_body(self, body: memoryview) -> bool:
        """Tell whether the body is what was written, as far as it can be told."""
        ...

    def write_hint(self, start: int, end: int) -> bytes:
        """Return the dispatch hint of the entries just appended in ``[start, end)``."""
        ...

    def is_sound_hint(self, hint: bytes, entries: int) -> bool:
        """Tell whether a dispatch hint that a peer sent is one, of so many entries."""
        ...

    def on_committed(self, position: int) -> None:
        """Take that all entries before ``position`` are committed. At most once a turn."""
        ...

    def on_role(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Take a change of role, term or leader."""
        ...

    def on_hand_over(self) -> None:
        """Append what is held back: this leader is about to hand over."""
        ...

    def on_rolled_back(self, position: int) -> None:
        """Take that entries from ``position`` on were not appended after all: they failed."""
        ...

    def on_snapshot(self, position: int, state: bytes) -> None:
        """Replace everything by ``state``; the log begins, empty, at ``position``."""
        ...

    def on_state_included(self, position: int) -> None:
        """Take that ``state`` of the snapshot includes what the entries before ``position`` say."""
        ...

    def on_trimmed(self, position: int) -> None:
        """Take that the log is about to begin at ``position``: nothing before can be read then."""
        ...


class ReplicatedLog(DLedgerListener):
    """One replica of a log; the user's `store.ports.Log`, the node's listener.

    ``feed``, ``marks`` and ``files`` are for users who ask for more than its entries.
    """

    header_bytes = ENTRY_HEADER_BYTES
    """Bytes of an entry before its body."""

    reserve: Callable[[int], int]
    """Return where a body of so many bytes will lie if appended next, see `Appender.reserve`."""
    append: Callable[[Sequence[bytes], int], object]
    """Append the entry that was just reserved, see `Appender.append`."""
    append_batch: Callable[[Sequence[bytes]], object]
    """Append the entries that were reserved together, see `Appender.append_batch`."""

    def __init__(self, node: "DLedgerNode") -> None:
        """Stand between ``node``, which has not started yet, and who will use it (`serve`)."""
        self._node = node
        self._user: LogUser
        self.reserve = node.reserve
        self.append, self.append_batch = node.append, node.append_batch
        self._walked = self._was_committed = self._is_committed = _NOWHERE
        """Positions, and the entries that start there or behind."""
        self._hinted: tuple[int, int, HintedSpan | None] = (0, 0, None)
        """The span of the last dispatch hint: where it starts and ends."""
        self.entries = self
        self.feed = LogFeed(self, node)
        self.marks = LogMarks(self, node)
        self.files = LogFiles(node)
        self._state_index: LogIndex | None = None
        """The state of a snapshot includes entries up to here, which are not all committed yet."""

    def serve(self, user: LogUser) -> None:
        """Ask ``user``, and tell him; before the node starts."""
        self._user = user

    # What the store asks

    @property
    def first_position(self) -> int:
        """Where the first entry still held starts."""
        return self._node.first_position

    @property
    def committed_position(self) -> int:
        """Where the last entry ends that is known to be committed."""
        return self._node.committed_position

    @property
    def end_position(self) -> int:
        """Where the last entry ends."""
        return self._node.end_position

    def maybe_term(self, applied: int) -> Term | None:
        """Return the term that this replica leads, if it has an entry of it before ``applied``."""
        node = self._node
        if node.is_leader:
            with suppress(DamagedEntry):
                last = self.index_before(applied)
                if last >= node.first_index and node.reader.term_at(last) == node.term:
                    return node.term
        return None

    def walk(self, start: int, end: int, limit: int) -> "Iterator[Body]":
        """Walk at most ``limit`` bodies of the entries from ``start`` on, up to ``end``.

        Errors: `DamagedEntry` for a damaged one, when it is its turn.
        """
        first = self.index_at(start)
        return self._walk(first, min(self.index_at(end), first + limit) - 1)

    def _walk(self, first: LogIndex, last: LogIndex) -> "Iterator[Body]":
        node = self._node
        try:
            yield from node.reader.bodies(first, last)
        except DamagedEntry as error:
            with suppress(DamagedEntry):
                self._know(node.reader.position_after(error.index - 1), error.index)
            raise
        if first <= last:
            self._know(node.reader.position_after(last), last + 1)

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the body that lies there, see `EntryReader.body_at`."""
        return self._node.reader.body_at(physical_offset, size)

    def last_body(self) -> memoryview | None:
        """Return the body of the last entry, see `EntryReader.last_body`."""
        return self._node.reader.last_body()

    def maybe_size(self, physical_offset: int) -> int | None:
        """Return the size of the body that begins there, None if none does."""
        index = self._node.reader.find(physical_offset)
        return None if index is None else self._node.reader.entry(index)[1] - ENTRY_HEADER_BYTES

    # Numbers of entries, for administrators of the group

    def index_before(self, position: int) -> LogIndex:
        """Return the number of the last entry before ``position``."""
        return self.index_at(position) - 1

    def position_after(self, index: LogIndex) -> int:
        """Return where entry ``index`` ends; a place behind the log's end if it is not in it."""
        node = self._node
        if index > node.end_index:
            return node.end_position + index - node.end_index
        position = node.reader.position_after(index)
        self._know(position, max(index + 1, node.first_index))
        return position

    def on_hinted(self, hinted: "HintedSpan") -> None:
        """Remember where a span lies that is about to be dispatched by its hint."""
        end = hinted.end
        self._know(end, hinted.last_index + 1)
        if end <= self._node.committed_position:
            self._hinted = (hinted.start, end, hinted)

    def index_at(self, position: int) -> LogIndex:
        """Return the entry that starts at ``position``, or is the first one behind it."""
        for known, index in (self._is_committed, self._walked, self._was_committed):
            if position == known:
                return index
        node = self._node
        if position == node.committed_position:
            return max(node.commit_index + 1, node.first_index)
        if position <= node.first_position:
            return node.first_index
        if position >= node.end_position:
            return node.end_index + 1
        start, end, hinted = self._hinted
        if hinted is not None and start <= position < end:
            return hinted.index_at(position)
        low, high = node.first_index, node.end_index + 1
        for known, index in (self._is_committed, self._walked, self._was_committed):
            if known > position:
                high = min(high, index)
            elif index > low:
                low = index
        low += bisect_left(
            range(low, high), position, key=lambda index: node.reader.entry(index)[0]
        )
        self._know(position, low)
        return low

    def _know(self, position: int, index: LogIndex) -> None:
        if position <= self._node.committed_position:  # what lies behind may be cut off
            self._walked = (position, index)

    # What the node asks

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the body with which the user opens a term."""
        return self._user.noop_body(physical_offset)

    def configuration_body(self, physical_offset: int, payload: bytes) -> bytes:
        """Return the body in which the user wraps a configuration."""
        return self._user.configuration_body(physical_offset, payload)

    def is_sound_body(self, body: memoryview) -> bool:
        """Tell whether the user finds a body sound."""
        return self._user.is_sound_body(body)

    def write_hint(self, start: int, end: int) -> bytes:
        """Return what the user says of the entries just appended."""
        return self._user.write_hint(start, end)

    def is_sound_hint(self, hint: bytes, entries: int) -> bool:
        """Tell whether the user takes a hint for one."""
        return self._user.is_sound_hint(hint, entries)

    # What the node tells

    def on_role(self, role: Role, term: Term, leader_id: NodeId | None) -> None:
        """Tell the user who leads."""
        self._user.on_role(role, term, leader_id)

    def on_hand_over(self) -> None:
        """Let the user append what it holds back."""
        self._user.on_hand_over()

    def on_trimmed(self, position: int) -> None:
        """Tell the user that the log is about to begin at ``position``."""
        self._user.on_trimmed(position)

    def on_committed(self, commit_index: LogIndex) -> None:
        """Tell the user how far the log is committed."""
        node = self._node
        is_known = commit_index == node.commit_index
        position = node.committed_position if is_known else node.reader.position_after(commit_index)
        self._was_committed = self._is_committed
        self._is_committed = (position, commit_index + 1)
        state_index = self._state_index
        if state_index is not None:
            with suppress(DamagedEntry):  # dispatch will not get past it, either
                included = self.position_after(min(state_index, commit_index))
                self._user.on_state_included(included)
                if state_index <= commit_index:
                    self._state_index = None
        self._user.on_committed(position)

    def on_rolled_back(self, first_index: LogIndex) -> bool:
        """Tell the user which entries failed."""
        self._user.on_rolled_back(self._node.reader.position_after(first_index - 1))
        return True

    def hand_out_all(self) -> None:
        """Have the user take all behind the snapshot: the state it took over lacks some of it."""
        self._state_index = None

    def on_snapshot(self, meta: SnapshotMeta, state: bytes) -> None:
        """Tell the user that a snapshot took the place of the log."""
        begin = (meta.position, meta.id.last_index + 1)
        self._walked = self._was_committed = self._is_committed = begin
        self._hinted = (0, 0, None)
        self._state_index = meta.state_index
        self._user.on_snapshot(meta.position, state)


class LogFeed:
    """The log of a group as dispatch follows it, see `store.ports.LogFeed`."""

    def __init__(self, log: ReplicatedLog, node: "DLedgerNode") -> None:
        self._log = log
        self._node = node

    def following(self, position: int) -> int:
        """Return where the entry behind ``position`` starts, or would start."""
        node = self._node
        index = self._log.index_at(position)
        return (
            node.reader.entry(index)[0]
            if index <= node.end_index
            else max(position, node.end_position)
        )

    def maybe_hint(self, position: int) -> "HintedSpan | None":
        """Return the first dispatch hint kept about what follows ``position``."""
        index = self._log.index_at(position)
        hinted = self._node.reader.maybe_hinted(index)
        if hinted is not None and hinted.first_index == index:
            self._log.on_hinted(hinted)
        return hinted

    def next_batch(self, applied: int, most: int, least: int = 0) -> int:
        """Return ``most``: a span is dispatched as it is. Nobody waits for a follower's: 0."""
        node, index = self._node, self._log.index_at(applied)
        if least and not node.is_leader and node.commit_index + 1 - index < least:
            return 0
        node.reader.release(index)
        return most


class LogMarks:
    """Entries of a group's log, named to be found again, see `store.ports.LogMarks`."""

    def __init__(self, log: ReplicatedLog, node: "DLedgerNode") -> None:
        self._log = log
        self._node = node

    def mark(self, start: int, end: int) -> LogMark:
        """Return what to write down of the entry that lies there, to find it again."""
        index = self._log.index_before(end)
        if start < 0 or index < self._node.first_index:
            return LogMark(index, 0, -1)
        return LogMark(index, self._node.reader.term_at(index), start)

    def maybe_end(self, mark: LogMark) -> int | None:
        """Return where that very entry ends; None if it is not in this log."""
        node, index = self._node, mark.index
        if index < 0 or index == node.first_index - 1:
            return node.first_position
        if not node.first_index <= index <= node.end_index:
            return None
        position, _, term = node.reader.entry(index)
        if (position, term) != (mark.position, mark.term):
            return None
        return self._log.position_after(index)


class LogFiles:
    """The files of a group's log, see `store.ports.LogFiles`."""

    def __init__(self, node: "DLedgerNode") -> None:
        self._node = node

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, see `EntryReader.read_ahead`."""
        self._node.reader.read_ahead(physical_offset, size)

    def describe(self, physical_offset: int) -> str:
        """Return in words where that is, see `EntryReader.describe`."""
        return self._node.reader.describe(physical_offset)
