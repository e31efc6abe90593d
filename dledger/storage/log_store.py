"""The log on disk: entries in ``data/``, one 32-byte unit each in ``index/``. A `LogView`.

A batch of spans costs one write to each. What is read comes from the maps of the files, uncopied.
It does not know terms, votes or commits beyond what the entries say.

Invariants: entries ``first_index..last_index`` lie between ``first_position`` and ``end_position``;
behind them everything is zero, in both files, so that nothing that was cut can come back.
Source: DLedgerMmapFileStore; the format in `dledger.codec`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from dledger.codec.entry import (
    END_MAGIC,
    END_RECORD,
    END_RECORD_BYTES,
    ENTRY_MAGIC,
    HEADER,
    HEADER_BYTES,
    PLACE,
    count_sound,
    is_configuration,
)
from dledger.codec.index import UNIT
from dledger.core.model import NO_INDEX, NO_TERM, UNIT_BYTES, LogIndex, SnapshotId, Span, Term
from dledger.core.snapshot import SnapshotMeta, StageWork
from dledger.errors import DamagedEntry, DiskFull, EntryTooLarge
from dledger.segments.places import pieces
from dledger.segments.row import Dropped, Segments
from dledger.storage.corruption import Bounds, CorruptionGuard, Place
from dledger.storage.recent import RecentSpans
from dledger.storage.snapshot_files import SnapshotFiles, Staged
from dledger.storage.trim import SegmentHead, TrimPlan, plan_trim, segment_heads
from ledgermq.runtime.disk import NO_FILES, NO_SPACE, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.page_cache import read_ahead

REMOVED_AT_ONCE: Final = 10
"""Segments that are removed in one piece of work. A large one takes up to 0.1 s, a vote may have to
wait for it, and a thread that is at work for longer than `disk_hang_ms` counts as hung."""
ENDS_MAX: Final = 64
"""Spans of which it is remembered where they end."""
_unpack_unit: Final = UNIT.unpack_from
_unpack_place: Final = PLACE.unpack_from
_unpack_header: Final = HEADER.unpack_from


class LogExtent(NamedTuple):
    """Where a log begins and ends."""

    first_index: LogIndex = 0
    last_index: LogIndex = NO_INDEX
    first_position: int = 0
    end_position: int = 0
    base_term: Term = NO_TERM


class DirtyFiles(NamedTuple):
    """What one sync has to cover, and how far the log is durable once it has."""

    data_files: Mapping[int, File]
    index_files: Mapping[int, File]
    last_index: LogIndex


class LogStore:
    """Append, cut, read. Opened by `dledger.storage.recovery.open_log_store`."""

    def __init__(
        self, data: Segments, index: Segments, extent: LogExtent, snapshots: SnapshotFiles
    ) -> None:
        self._data = data
        self._index = index
        self._segment_bytes = data.segment_bytes
        self._index_segment_bytes = index.segment_bytes
        self.first_index = extent.first_index
        self.last_index = extent.last_index
        self.first_position = extent.first_position
        self.end_position = extent.end_position
        self.base_term = extent.base_term
        """Term of the entry before the first one; `NO_TERM` where that is unknown, or none."""
        self.snapshots = snapshots
        """What stands for the entries before the first one."""
        self.corruption = CorruptionGuard(data, index, self._bounds)
        """What is known to be damaged."""
        self.recent = RecentSpans()
        """What was written last, in memory."""
        self._ends: dict[LogIndex, int] = {}
        """Where the last entries of the spans end that were written last: commits stand there."""
        self._dropped: deque[tuple[Segments, Dropped]] = deque()
        """Files that trims have let go of and that are still there, in the order of removal."""
        self.before_cut: Callable[[LogIndex], None] = _nothing
        """Told, before a cut, which entry will be the last; `DiskFull` of it passes."""
        self.on_synced: Callable[[LogIndex], None] = _nothing
        """Told, when a sync has returned, up to which entry the log is synced."""

    def _bounds(self) -> Bounds:
        return Bounds(self.first_index, self.last_index, self.first_position, self.end_position)

    # Writing

    def place(self, end_position: int, size_bytes: int) -> int:
        """Return where entries of ``size_bytes`` in all go if the log ends at ``end_position``.

        Errors: `EntryTooLarge` when no segment holds them.
        """
        used = end_position % self._segment_bytes
        if used + size_bytes + END_RECORD_BYTES <= self._segment_bytes:
            return end_position
        if size_bytes + END_RECORD_BYTES > self._segment_bytes:
            raise EntryTooLarge(size_bytes, self._segment_bytes)
        return end_position - used + self._segment_bytes

    def append(self, spans: Sequence[Span]) -> None:
        """Write spans behind the last entry: all of them, or none.

        Errors: `DiskFull`; `FatalError` for any other failure of the disk, and for spans that
        cannot lie where their sender has them (its segments have another size).
        """
        last_index, end_position = self.last_index, self.end_position
        try:
            if len(spans) == 1:
                self._append_group(spans)
            else:
                for group in self._groups(spans):
                    self._append_group(group)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise _failed("write", error) from error
            self.last_index, self.end_position = last_index, end_position
            self._erase_from(last_index + 1, end_position)
            raise DiskFull from error

    def _groups(self, spans: Sequence[Span]) -> Sequence[Sequence[Span]]:
        """Split spans where a segment ends; usually they all share one."""
        segment = self._segment_bytes
        if spans[0].position // segment == (spans[-1].end_position - 1) // segment:
            return [spans]
        groups: dict[int, list[Span]] = {}
        for span in spans:
            groups.setdefault(span.position // segment, []).append(span)
        return list(groups.values())

    def _append_group(self, spans: Sequence[Span]) -> None:
        first, last = spans[0], spans[-1]
        position, first_index = first.position, first.first_index
        assert first_index == self.last_index + 1, (first_index, self.last_index)
        if position != self.end_position:
            self._end_segment(position)
        if first is last:
            self._data.write(position, (first.data,))
            self._write_units(first_index, first.units)
        else:
            self._data.write(position, [span.data for span in spans])
            self._write_units(first_index, b"".join([span.units for span in spans]))
        ends = self._ends
        for span in spans:
            self.recent.add(span)
            ends[span.last_index] = span.position + len(span.data)
        while len(ends) > ENDS_MAX:
            del ends[next(iter(ends))]
        self.last_index = last.last_index
        self.end_position = last.position + len(last.data)

    def _end_segment(self, position: int) -> None:
        """Write the end record of the segment before ``position``."""
        end = self.end_position
        rest = -end % self._segment_bytes
        if self.last_index < self.first_index and end == position % self._segment_bytes == 0:
            self.first_position = position
        elif position != end + rest or 0 < rest < END_RECORD_BYTES:
            raise FatalError(
                f"entry {self.last_index + 1} lies at {position} on the leader, the log here ends"
                f" at {end}: are the segment sizes (mappedFileSizeCommitLog) the same?"
            )
        elif rest:
            self._data.write(end, [END_RECORD.pack(END_MAGIC, rest)])

    def _write_units(self, first_index: LogIndex, units: bytes) -> None:
        position = first_index * UNIT_BYTES
        room = self._index_segment_bytes - position % self._index_segment_bytes
        if len(units) <= room:
            self._index.write(position, (units,))
            return
        written = 0
        for base, offset, size in pieces(position, len(units), self._index_segment_bytes):
            self._index.write(base + offset, (units[written : written + size],))
            written += size

    def truncate(self, index: LogIndex) -> None:
        """Cut off entry ``index`` and what follows, for good. `OSError` passes as `FatalError`."""
        assert self.first_index <= index <= self.last_index, (index, self.last_index)
        self.before_cut(index - 1)
        end_position = self.position_after(index - 1)
        self.last_index, self.end_position = index - 1, end_position
        self._erase_from(index, end_position)

    def _erase_from(self, index: LogIndex, position: int) -> None:
        self._ends.clear()
        self.corruption.forget_from(index)
        self.recent.forget_from(index)
        try:
            self._index.cut(index * UNIT_BYTES)
            self._data.cut(position)
        except OSError as error:
            raise _failed("truncate", error) from error

    def restore(self, span: Span) -> list[LogIndex]:
        """Write a peer's copy over damaged entries; see `CorruptionGuard.restore`.

        Returns those that are sound now, none if the disk has no space. Errors: `FatalError`.
        """
        try:
            return self.corruption.restore(span)
        except OSError as error:
            if error.errno in NO_SPACE:
                return []
            raise _failed("write", error) from error

    # Where the log begins

    @property
    def snapshot(self) -> SnapshotId | None:
        """The snapshot that stands for the entries that were dropped."""
        meta = self.snapshots.meta
        if meta is None or meta.id.last_index != self.first_index - 1:
            return None  # none yet, or the log is about to begin where it says
        return meta.id

    def read_snapshot(self, offset: int, size: int) -> bytes:
        """Return bytes of the snapshot. Errors: `FatalError`."""
        return self.snapshots.read(offset, size)

    def plan_trim(self, limit_index: LogIndex) -> TrimPlan | None:
        """Return how to drop all whole segments whose entries are at most ``limit_index``."""
        return plan_trim(self._data, self.first_index, limit_index, self.entry)

    def segment_heads(self, limit_index: LogIndex) -> list[SegmentHead]:
        """Return the first entries, up to ``limit_index``, of the segments."""
        return segment_heads(self._data, self.first_index, limit_index, self.entry)

    def trim(self, plan: TrimPlan) -> list[Callable[[], object]]:
        """Begin the log at ``plan.first_index``; return what removes the files, in one thread.

        Each step removes a few, the oldest first, whichever trim let go of them: a crash leaves no
        gap. The snapshot that stands for what goes must be on disk. Views that are held stay
        readable.
        """
        assert self.first_index < plan.first_index <= self.last_index, (plan, self.last_index)
        self.snapshots.put_in_force(plan.first_index - 1)
        data = self._data.drop_below(plan.position)
        index = self._index.drop_below(plan.first_index * UNIT_BYTES)
        self.first_index, self.first_position = plan.first_index, plan.position
        self.base_term = plan.base_term
        self.corruption.forget_below(plan.first_index)
        # Those of the index last: without its unit the last entry counts still.
        parts = [(self._data, part) for part in data.parts(REMOVED_AT_ONCE)]
        parts += [(self._index, part) for part in index.parts(REMOVED_AT_ONCE)]
        self._dropped += parts
        # As many as are there: earlier steps may have left some, and one too many does nothing.
        return [self._remove_next] * max(1, len(self._dropped))

    def _remove_next(self) -> bool:
        """Remove a part; False where no more files may be opened: it is left for the next trim."""
        if not self._dropped:
            return True
        row, part = self._dropped[0]
        try:
            row.remove(part)
        except OSError as error:
            if error.errno not in NO_FILES:
                raise _failed("remove segments", error) from error
            return False
        self._dropped.popleft()
        return True

    def stage(self, work: StageWork) -> Staged:
        """Keep a chunk of a snapshot aside; with its last one let it count. Not in the loop.

        It runs in the thread that removes files. After that the log is void: `restart` must
        follow. Errors: `FatalError`.
        """
        while work.install and self._dropped:  # what began behind it would not follow on them
            if not self._remove_next():
                return Staged(kept=False, installed=None)
        try:
            if work.install:
                self.before_cut(work.id.last_index)
            self.snapshots.stage(work)
            installed = self.snapshots.install(work.id) if work.install else None
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise _failed("keep a snapshot", error) from error
            return Staged(kept=False, installed=None)
        except DiskFull:
            return Staged(kept=False, installed=None)
        return Staged(kept=not work.install or installed is not None, installed=installed)

    def restart(self, meta: SnapshotMeta) -> None:
        """Remove the whole log; it begins, empty, behind the snapshot. Errors: `FatalError`."""
        self._ends.clear()
        self.corruption.forget_from(self.first_index)
        self.recent.forget_from(self.first_index)
        self.snapshots.put_in_force(meta.id.last_index)
        try:
            self._data.clear()
            self._index.clear()
            self.snapshots.end_install()
        except OSError as error:
            raise _failed("replace the log", error) from error
        self.last_index = meta.id.last_index
        self.first_index = self.last_index + 1
        self.first_position = self.end_position = meta.position
        self.base_term = meta.id.last_term

    def take_dirty(self) -> DirtyFiles | None:
        """Return what must be synced, None when nothing was written since the last call."""
        data, index = self._data.take_dirty(), self._index.take_dirty()
        return DirtyFiles(data, index, self.last_index) if data or index else None

    def sync(self, dirty: DirtyFiles) -> None:
        """Make durable what was written before `take_dirty`. May run in another thread.

        Errors: `FatalError`; after a failed sync nothing is known of what is on disk.
        """
        try:
            self._data.sync(dirty.data_files)
            self._index.sync(dirty.index_files)
        except OSError as error:
            raise _failed("sync", error) from error

    def close(self) -> None:
        """Close all files; views that are still held stay readable."""
        for _, part in self._dropped:
            for file in part.files:
                file.close()
        self._data.close()
        self._index.close()
        self.snapshots.close()

    # Reading

    def entry(self, index: LogIndex) -> tuple[int, int, Term]:
        """Return position, size with header, and term of an entry; its body is not looked at.

        Errors: `DamagedEntry` when neither its index unit nor its header can be read.
        """
        assert self.first_index <= index <= self.last_index, (index, self.last_index)
        unit_at = index * UNIT_BYTES
        unit_offset = unit_at % self._index_segment_bytes
        units = self._index.segment_view(unit_at - unit_offset)
        assert units is not None, unit_at
        _, position, size, found, term = _unpack_unit(units, unit_offset)
        offset = position % self._segment_bytes
        data = self._data.segment_view(position - offset)
        if data is not None and found == index and offset + HEADER_BYTES <= self._segment_bytes:
            place = _unpack_place(data, offset)
            if place == (ENTRY_MAGIC, size, index, term, position):
                return position, size, term
        return self.corruption.settle(index)

    def body_view(self, index: LogIndex) -> memoryview:
        """Return the body of an entry, checked and not copied. Errors: `DamagedEntry`."""
        place = Place(*self.entry(index))
        self.corruption.check(index, place)
        return self._data.view(place.position + HEADER_BYTES, place.size - HEADER_BYTES)

    def body_at(self, physical_offset: int, size_bytes: int) -> memoryview:
        """Return the body that lies there, checked and not copied. The hot path of reads.

        Errors: `DamagedEntry`; `LookupError` when no entry has its body there.
        """
        position = physical_offset - HEADER_BYTES
        offset = position % self._segment_bytes
        data = self._data.segment_view(position - offset)
        if data is not None and offset + HEADER_BYTES <= self._segment_bytes:
            start = offset + HEADER_BYTES
            body = data[start : start + size_bytes]
            header = _unpack_header(data, offset)
            magic, size, _, _, where, channel, chain_crc, body_crc, body_bytes = header
            if (
                (body_crc == crc32(body) or (not body_crc and self.corruption.is_sound_body(body)))
                and where == position
                and size_bytes == body_bytes == size - HEADER_BYTES
                and magic == ENTRY_MAGIC
                and (not (channel or chain_crc) or is_configuration(header))
            ):
                return body
        index = self.find(position)
        if index is None:
            raise LookupError(position)
        return self.body_view(index)

    def read_ahead(self, physical_offset: int, size_bytes: int) -> None:
        """Ask for bytes that will be read soon; those of one segment."""
        data, offset = self._data.locate(physical_offset)
        if data is not None:
            read_ahead(data, offset, size_bytes)

    def find(self, position: int) -> LogIndex | None:
        """Return the index of the entry at ``position``, None if none begins there."""
        low, high = self.first_index, self.last_index
        while low <= high:
            middle = (low + high) // 2
            where = self.entry(middle)[0]
            if where == position:
                return middle
            if where < position:
                low = middle + 1
            else:
                high = middle - 1
        return None

    def view(self, position: int, size_bytes: int) -> memoryview:
        """Return bytes of one segment, neither checked nor copied."""
        return self._data.view(position, size_bytes)

    def position_after(self, index: LogIndex) -> int:
        """Return the position behind entry ``index``; before the first entry, where that lies."""
        if index == self.last_index:
            return self.end_position
        if index < self.first_index:
            return self.first_position
        end = self._ends.get(index)
        if end is not None:
            return end
        position, size, _ = self.entry(index)
        return position + size

    def term_runs(self) -> list[tuple[LogIndex, Term]]:
        """Return each term with its first index. Few lookups: terms only rise along the log."""
        runs: list[tuple[LogIndex, Term]] = []
        index = self.first_index
        while index <= self.last_index:
            term = self.entry(index)[2]
            runs.append((index, term))
            low, high = index, self.last_index
            while low < high:
                middle = (low + high + 1) // 2
                if self.entry(middle)[2] == term:
                    low = middle
                else:
                    high = middle - 1
            index = low + 1
        return runs

    def read(self, first_index: LogIndex, last_index: LogIndex, bytes_max: int) -> Span | None:
        """Return entries of one term and one segment; see `LogView.read`. Their bytes are copied.

        A copy, because the span may wait in a socket while the log under it is cut. Every entry is
        read through, and one that is damaged ends the span: corruption is not handed on.
        """
        if self.corruption.damaged:
            if first_index in self.corruption.damaged:
                return None
            last_index = min(
                i - 1 for i in (last_index + 1, *self.corruption.damaged) if i > first_index
            )
        try:
            span = self._copy(first_index, last_index, bytes_max)
        except DamagedEntry:
            return None
        sound = count_sound(span, self.corruption.is_sound_body)
        damaged = first_index + sound
        if damaged > span.last_index:
            return span
        self.corruption.settle(damaged)
        return span.before_index(damaged) if sound else None

    def _copy(self, first_index: LogIndex, last_index: LogIndex, bytes_max: int) -> Span:
        position, _, term = self.entry(first_index)
        segment_end = position - position % self._segment_bytes + self._segment_bytes
        limit = min(position + bytes_max, segment_end)
        low, high = first_index, min(last_index, first_index + bytes_max // HEADER_BYTES + 1)
        while low < high:
            middle = (low + high + 1) // 2
            where, size, found_term = self.entry(middle)
            if found_term == term and where + size <= limit:
                low = middle
            else:
                high = middle - 1
        end = self.position_after(low)
        units = self._index.read(first_index * UNIT_BYTES, (low - first_index + 1) * UNIT_BYTES)
        data = bytes(self._data.view(position, end - position))
        return Span(first_index, low, term, position, data, units)


def _nothing(index: LogIndex) -> None:
    """Need not know."""
    del index


def _failed(what: str, error: OSError) -> FatalError:
    return FatalError(f"the log cannot {what}: {error}", EXIT_ENVIRONMENT)
