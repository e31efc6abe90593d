"""What is appended in one turn of the loop: places, then one write. The hot path.

A place is promised before the bytes exist (`Writer.reserve`), because a record holds its own
physical offset. The records of a turn are collected and written by one call, or by one for each
segment when one ends meanwhile: a record never crosses files, and a segment ends with a blank.

It knows neither a loop nor syncs. Source: spec/disk.md 5.2; RocketMQ CommitLog.doAppend.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dledger.errors import DLedgerError, EntryTooLarge, PendingFull
from dledger.segments.row import Segments
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.plain.config import PlainLogConfig
from store.plain.record import BLANK_BYTES, blank

NOTHING: Final = -1
"""In place of the position of an entry that does not exist."""


class Extent(NamedTuple):
    """What is written."""

    position: int
    """Where the next entry will be written, unless it does not fit there."""
    last_start: int
    """Where the last entry begins, `NOTHING` for none."""
    last_end: int
    """Position behind the last entry; a blank may follow."""


class Group(NamedTuple):
    """Entries of one turn in one segment, and the blank behind them if the segment ends."""

    position: int
    buffers: list[bytes]
    extent: Extent
    """What is written when this is."""


class Writer:
    """Collects entries, and writes them."""

    __slots__ = (
        "_buffers", "_config", "_end", "_group_position", "_groups", "_last_end", "_last_start",
        "_next_position", "_pending_limit", "_position_limit", "_refusal", "_schedule",
        "_segment_bytes", "_segments", "accepting", "scheduled", "written",
    )  # fmt: skip

    def __init__(
        self,
        config: PlainLogConfig,
        *,
        schedule: Callable[[], None],
        refusal: Callable[[], DLedgerError],
    ) -> None:
        """Make one that accepts nothing before `begin`.

        Args:
            config: see `PlainLogConfig`.
            schedule: called when `flush` is due in this turn.
            refusal: returns what to raise while nothing is accepted.
        """
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._schedule = schedule
        self._refusal = refusal
        self.accepting = False
        """Whether entries are taken; the owner sets it."""
        self.scheduled = False
        """Whether the owner will flush in this turn; it clears it when it does."""
        self.written = Extent(0, NOTHING, 0)
        """What is in the files."""
        self._groups: list[Group] = []
        self._buffers: list[bytes] = []
        self._next_position: int = 0
        self._last_start: int = NOTHING
        self._last_end: int = 0
        self._group_position: int = 0
        self._position_limit: int = 0
        self._pending_limit: int = 0

    def begin(self, segments: Segments, extent: Extent) -> None:
        """Continue the log that is in ``segments``, of which ``extent`` is written."""
        self._segments = segments
        self.written = extent
        self._restart(extent)
        self.set_committed(extent.last_end)

    def set_committed(self, position: int) -> None:
        """Note how far the log is committed: what lies behind it is pending."""
        self._pending_limit = position + self._config.pending_bytes_max

    def reserve(self, size_bytes: int) -> int:
        """Return where a record of this size, or several side by side, will lie.

        What was reserved must be appended at once.

        Errors: `NotLeader`, `PendingFull`, `DiskFull`, `EntryTooLarge`; nothing was appended then.
        """
        if not self.accepting:
            raise self._refusal()
        position = self._next_position
        if position + size_bytes > self._position_limit:
            position = self._roll(size_bytes)
        if position + size_bytes > self._pending_limit:
            limit = self._config.pending_bytes_max
            raise PendingFull(position + size_bytes - self._pending_limit + limit, limit)
        return position

    def append(self, parts: Sequence[bytes], size_bytes: int) -> None:
        """Take the record that was reserved, given as buffers."""
        self._buffers += parts
        self._last_start = position = self._next_position
        self._next_position = self._last_end = position + size_bytes
        if not self.scheduled:
            assert self.accepting, "append without reserve"
            self.scheduled = True
            self._schedule()

    def append_batch(self, records: Sequence[bytes]) -> None:
        """Take the records that were reserved together."""
        for record in records:
            self.append((record,), len(record))

    def flush(self) -> int | None:
        """Write what was collected.

        Returns None, or, when the disk is full, the position from which on nothing was written:
        entries that begin there or behind are forgotten, and nothing of them is on disk.
        Errors: `FatalError` for any other failure of the disk.
        """
        if self._buffers:
            self._close_group()
        groups, self._groups = self._groups, []
        for group in groups:
            assert group.position == self.written.position, (group.position, self.written)
            try:
                self._segments.write(group.position, group.buffers)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise _failed("write", error) from error
                self._take_back(group.position)
                return group.position
            self.written = group.extent
        return None

    def copy(self, position: int, buffers: Sequence[bytes], extent: Extent) -> bool:
        """Write entries of one segment that another broker has laid out, behind what is written.

        ``extent``: what is written then. Returns False if the disk is full, and nothing was
        written. Errors: `FatalError` for any other failure of the disk.
        """
        assert position == self.written.position, (position, self.written)
        assert not self._buffers, "somebody appends, too"
        try:
            self._segments.write(position, buffers)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise _failed("write", error) from error
            self._take_back(position)
            return False
        self.written = extent
        self._restart(extent)
        return True

    def _take_back(self, position: int) -> None:
        """Forget what is not written; what a failed write left of it is erased for good.

        Otherwise it might be found at the next start, although it was refused.
        """
        self._buffers.clear()
        self._restart(self.written)
        if position < self._segments.end:
            try:
                self._segments.cut(position)
            except OSError as error:
                raise _failed("take back a write", error) from error

    def _close_group(self, blank_bytes: int = 0) -> None:
        """End a group of entries; with ``blank_bytes`` left of the segment, the next one begins."""
        position, end = self._group_position, self._next_position
        buffers, self._buffers = self._buffers, []
        size = end - position
        if blank_bytes:
            buffers.append(blank(blank_bytes))
            size += BLANK_BYTES
            self._set_position(end + blank_bytes)
        assert sum(map(len, buffers)) == size, "size_bytes is not the size of the record"
        extent = Extent(self._next_position, self._last_start, self._last_end)
        self._groups.append(Group(position, buffers, extent))
        self._group_position = self._next_position

    def _roll(self, size_bytes: int) -> int:
        """Continue in the next segment; return where it begins."""
        segment_bytes = self._segment_bytes
        if size_bytes + BLANK_BYTES > segment_bytes:
            raise EntryTooLarge(size_bytes, segment_bytes)
        self._close_group(-self._next_position % segment_bytes)
        return self._next_position

    def _restart(self, extent: Extent) -> None:
        self._last_start, self._last_end = extent.last_start, extent.last_end
        self._set_position(extent.position)
        self._group_position = extent.position

    def _set_position(self, position: int) -> None:
        segment_bytes = self._segment_bytes
        self._next_position = position
        end = position - position % segment_bytes + segment_bytes
        self._position_limit = end - BLANK_BYTES


def _failed(what: str, error: OSError) -> FatalError:
    return FatalError(f"the commit log cannot {what}: {error}", EXIT_ENVIRONMENT)
