"""The readable side of a plain log: what the store asks of it (`store.ports.Log`).

An entry is a record and nothing else. The one behind it starts where it ends, or in the next
segment when a blank ends this one. Nothing here changes anything.
"""

import logging
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from dledger.core.model import Role
from dledger.errors import DamagedEntry
from dledger.mark import LogMark
from dledger.segments.places import pieces
from dledger.segments.row import Segments
from ledgermq.runtime.page_cache import is_in_memory, read_ahead
from store.plain.config import PlainLogConfig
from store.plain.record import (
    BAD_CRC,
    BLANK,
    IS_BLANK,
    MAGIC_START,
    PROBLEMS,
    inspect,
    is_blank,
    measure,
    stored_ms,
)
from store.plain.writer import Extent

COPIED_BYTES_MAX: Final = 64 * 1024
"""Of records that are walked."""
DAMAGED_MAX: Final = 1000
TERM: Final = 1
"""Of every entry, and of the one leadership that there is."""

_log: Final = logging.getLogger(__name__)

Body = tuple[int, bytes | memoryview, int, int]
"""``(physical offset, segment, where in it the record begins, its size)``."""


class PlainView:
    """Reads an opened log; whoever inherits opens the parts."""

    config: PlainLogConfig
    committed_position: int
    """Where the last entry ends that the listener was told of."""
    _segments: Segments
    _running: bool
    _damaged: set[int]

    @property
    def written(self) -> Extent:
        """What is written."""
        raise NotImplementedError

    @property
    def header_bytes(self) -> int:
        """Bytes of an entry before its record: none."""
        return 0

    @property
    def role(self) -> Role:
        """Leader while it runs."""
        return Role.LEADER if self._running else Role.FOLLOWER

    @property
    def term(self) -> int:
        """Current term, always the same."""
        return TERM

    @property
    def first_position(self) -> int:
        """Where the first entry still held starts."""
        return self._segments.start

    @property
    def end_position(self) -> int:
        """Where the last entry written ends."""
        return self.written.last_end

    @property
    def next_position(self) -> int:
        """Where the next entry will be written, if it fits there."""
        return self.written.position

    def maybe_term(self, applied: int) -> int | None:
        """Return the term if it takes entries and all are applied; nobody else writes."""
        return TERM if self._running and applied >= self.end_position else None

    def next_batch(self, applied: int, most: int, least: int = 0) -> int:
        """Return ``most``: whoever appends may wait."""
        del applied, least
        return most

    def following(self, position: int) -> int:
        """Return where the entry behind ``position`` starts, past a blank in between."""
        segments = self._segments
        if position <= segments.start:
            return segments.start
        if position < self.written.position:
            base = position - position % segments.segment_bytes
            view = segments.segment_view(base)
            if view is not None and is_blank(view, position - base):
                return base + segments.segment_bytes
        return position

    def mark(self, start: int, end: int) -> LogMark:
        """Return what to write down of the record in ``[start, end)``; the start may be -1."""
        if start < self._segments.start:
            return LogMark(end - 1, 0, -1)
        return LogMark(end - 1, TERM, start)

    def maybe_end(self, mark: LogMark) -> int | None:
        """Return where that very record ends; None if it is not in this log.

        It counts as in it where it may be the last one that was dropped.
        """
        segments = self._segments
        if mark.index < segments.start:
            may_be = mark.term == TERM and mark.index >= segments.start - segments.segment_bytes
            return segments.start if mark.index < 0 or may_be else None
        end = mark.index + 1
        if mark.term != TERM or end > self.end_position:
            return None
        size = self._inspect(mark.position)
        return end if size > 0 and mark.position + size == end else None

    def walk(self, start: int, end: int, limit: int) -> Iterator[Body]:
        """Walk at most ``limit`` records in ``[start, end)``.

        They are checked; small ones are copied many at a time, which are read quicker so. One whose
        body alone is damaged is yielded, too: there is no replica to repair it, and its queue has
        to count it; `body_at` does not hand it out.
        Errors: `DamagedEntry` for any other damage, when it is its turn.
        """
        segments = self._segments
        segment_bytes = segments.segment_bytes
        position = start
        end = min(end, self.end_position)
        while position < end and limit > 0:
            base = position - position % segment_bytes
            view = segments.segment_view(base)
            if view is None:
                raise DamagedEntry(position, f"{segments.path(position)} is not there any more")
            size = IS_BLANK
            while limit > 0 and position < end:
                at = position - base
                together = _take_together(view, at, end - base, position, limit)
                if together:
                    yield from together
                    limit -= len(together)
                    position = together[-1][0] + together[-1][3]
                    continue
                size = inspect(view, at, position)
                if size == BAD_CRC:
                    size = BLANK.unpack_from(view, position - base)[0]
                    self._note_damage(position, BAD_CRC)
                if size <= 0:
                    break
                yield position, view, position - base, size
                limit -= 1
                position += size
                if position - base == segment_bytes:
                    break
            if size == IS_BLANK:
                position = base + segment_bytes
            elif size < 0:
                raise self._corrupt(position, size)

    def maybe_hint(self, position: int) -> None:
        """Return None: there is no leader to say anything about entries."""

    def last_body(self) -> memoryview | None:
        """Return the last record, None for an empty log. Errors: `DamagedEntry`."""
        _, start, end = self.written
        if start < self._segments.start:
            return None
        size = self._inspect(start)
        if size <= 0 or start + size != end:
            raise self._corrupt(start, size)
        return self.view(start, size)

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the record that lies there, checked and not copied. The hot path of reads.

        Errors: `DamagedEntry`; `LookupError` when there is no trace of one.
        """
        segments = self._segments
        at = physical_offset % segments.segment_bytes
        view = segments.segment_view(physical_offset - at)
        if view is None or physical_offset >= self.written.last_end:
            raise LookupError(physical_offset)
        found = inspect(view, at, physical_offset)
        if found != size:
            if found > 0 or view[at + 4 : at + 7] != MAGIC_START:
                raise LookupError(physical_offset)
            raise self._corrupt(physical_offset, found)
        return view[at : at + size]

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting."""
        segments = self._segments
        for base, at, count in pieces(physical_offset, size, segments.segment_bytes):
            view = segments.segment_view(base)
            if view is not None:
                read_ahead(view, at, count)

    def is_in_memory(self, physical_offset: int, size: int) -> bool:
        """Tell whether these bytes can be read without waiting for the disk."""
        segments = self._segments
        parts = pieces(physical_offset, size, segments.segment_bytes)
        views = ((segments.segment_view(base), at, count) for base, at, count in parts)
        return all(view is None or is_in_memory(view, at, count) for view, at, count in views)

    def maybe_size(self, physical_offset: int) -> int | None:
        """Return the size of the sound record that begins there, None if there is none."""
        size = self._inspect(physical_offset)
        return size if size > 0 else None

    def describe(self, physical_offset: int) -> str:
        """Return in words the file that holds a place of the log, and where in it that is."""
        return self._segments.describe(physical_offset)

    def view(self, physical_offset: int, size: int) -> memoryview:
        """Return bytes of one segment, neither checked nor copied. Errors: `LookupError`."""
        at = physical_offset % self._segments.segment_bytes
        view = self._segments.segment_view(physical_offset - at)
        if view is None:
            raise LookupError(physical_offset)
        return view[at : at + size]

    def _last_stored_ms(self) -> int:
        """Return when the last entry was stored (ms), 0 if there is none."""
        segments, start = self._segments, self.written.last_start
        at = start % segments.segment_bytes
        view = None if start < segments.start else segments.segment_view(start - at)
        return 0 if view is None else stored_ms(view, at)

    def _inspect(self, position: int) -> int:
        """Return the size of the sound record at ``position``, 0 or below if there is none."""
        segments = self._segments
        at = position % segments.segment_bytes
        view = segments.segment_view(position - at)
        if view is None or position >= self.written.last_end:
            return IS_BLANK
        return inspect(view, at, position)

    def _note_damage(self, position: int, code: int) -> None:
        """Tell of damage, once for each place; of a thousand at most."""
        if position not in self._damaged and len(self._damaged) < DAMAGED_MAX:
            self._damaged.add(position)
            _log.error(
                "event=corruption %s reason=%r", self._segments.describe(position), PROBLEMS[code]
            )

    def _corrupt(self, position: int, code: int) -> DamagedEntry:
        if code in PROBLEMS:
            self._note_damage(position, code)
        problem = PROBLEMS.get(code, "another message is there")
        return DamagedEntry(position, f"{self._segments.describe(position)}: {problem}")


def _take_together(view: memoryview, at: int, end: int, position: int, limit: int) -> list[Body]:
    """Return sound records that lie side by side from ``at`` on, in one copy."""
    sizes = measure(view, at, min(at + COPIED_BYTES_MAX, end), position, limit)
    if not sizes:
        return []
    chunk = bytes(view[at : at + sum(sizes)])
    ends = accumulate(sizes)
    return [
        (position + stop - size, chunk, stop - size, size)
        for stop, size in zip(ends, sizes, strict=True)
    ]
