"""The readable side of a plain log: its entries, as the store asks for them (`store.ports.Log`).

An entry is a record and nothing else. The one behind it starts where it ends, or in the next
segment when a blank ends this one. Nothing here changes anything.
"""

import logging
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from dledger.core.model import Role
from dledger.errors import DamagedEntry
from dledger.segments.row import Segments
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
    def segments(self) -> Segments:
        """The files."""
        return self._segments

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

    def maybe_size(self, physical_offset: int) -> int | None:
        """Return the size of the sound record that begins there, None if there is none."""
        size = self._inspect(physical_offset)
        return size if size > 0 else None

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
