"""The readable side of a plain log: what the store asks of it (`store.ports.LogNode`).

An entry is a record and nothing else. Its index is the position of its last byte, so that entries
are ordered by it, and the entry behind it starts at the next byte, or in the next segment when a
blank ends this one. Nothing here changes anything.
"""

import logging
from collections.abc import Iterator
from typing import Final

from dledger.core.model import Role
from dledger.errors import RottenEntry
from dledger.segments.row import Segments
from ledgermq.runtime.disk import read_ahead
from store.plain.config import PlainLogConfig
from store.plain.record import (
    BAD_CRC,
    BLANK,
    IS_BLANK,
    MAGIC_START,
    PROBLEMS,
    inspect,
    is_blank,
    stored_ms,
)
from store.plain.writer import Extent

DAMAGED_MAX: Final = 1000
TERM: Final = 1
"""Of every entry, and of the one office that there is."""

_log: Final = logging.getLogger(__name__)

Body = tuple[int, int, bytes | memoryview, int, int]
"""``(index, physical offset, segment, where in it the record begins, its size)``."""


class PlainView:
    """Reads an opened log; whoever inherits opens the parts."""

    config: PlainLogConfig
    commit_index: int
    """Position of the last byte of the last entry told to the listener, -1 for none."""
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
    def counts_entries(self) -> bool:
        """Whether an index is the number of an entry: it is a position."""
        return False

    @property
    def role(self) -> Role:
        """Leader while it runs."""
        return Role.LEADER if self._running else Role.FOLLOWER

    @property
    def is_leader(self) -> bool:
        """Whether it takes entries; nobody else does."""
        return self._running

    @property
    def term(self) -> int:
        """Current term, always the same."""
        return TERM

    @property
    def first_index(self) -> int:
        """Where the first entry still held starts."""
        return self._segments.start

    @property
    def first_position(self) -> int:
        """Where the first entry still held starts."""
        return self._segments.start

    @property
    def end_index(self) -> int:
        """Last entry written, -1 for none."""
        return self.written.last_end - 1

    @property
    def end_position(self) -> int:
        """Where the next entry will be written, if it fits there."""
        return self.written.position

    @property
    def committed_position(self) -> int:
        """Position behind the last committed entry."""
        return self.commit_index + 1

    def following(self, index: int) -> int:
        """Return the position of the entry behind ``index``, past a blank in between."""
        segments = self._segments
        position = index + 1
        if position <= segments.start:
            return segments.start
        if position < self.written.position:
            base = position - position % segments.segment_bytes
            view = segments.segment_view(base)
            if view is not None and is_blank(view, position - base):
                return base + segments.segment_bytes
        return position

    def holds(self, index: int, term: int, position: int) -> bool:
        """Tell whether that very entry is in the log, or may be the last one dropped from it."""
        segments = self._segments
        if index < segments.start:
            return term == TERM and index >= max(-1, segments.start - segments.segment_bytes)
        if term != TERM or index > self.end_index:
            return False
        size = self._inspect(position)
        return size > 0 and size == index + 1 - position

    def term_at(self, index: int) -> int:
        """Return the term of an entry."""
        del index
        return TERM

    def bodies(self, first: int, last: int, limit: int) -> Iterator[Body]:
        """Walk at most ``limit`` records from position ``first`` on, as far as ``last``.

        They are checked, and not copied. One whose body alone is damaged is yielded, too: there is
        no replica to mend it, and its queue has to count it; `body_at` does not hand it out.
        Errors: `RottenEntry` for any other damage, when it is its turn.
        """
        segments = self._segments
        segment_bytes = segments.segment_bytes
        position = first
        last = min(last, self.end_index)
        while position <= last and limit > 0:
            base = position - position % segment_bytes
            view = segments.segment_view(base)
            if view is None:
                raise RottenEntry(position, f"{segments.path(position)} is not there any more")
            size = IS_BLANK
            while limit > 0 and position <= last:
                size = inspect(view, position - base, position)
                if size == BAD_CRC:
                    size = BLANK.unpack_from(view, position - base)[0]
                    self._note_damage(position, BAD_CRC)
                if size <= 0:
                    break
                yield position + size - 1, position, view, position - base, size
                limit -= 1
                position += size
                if position - base == segment_bytes:
                    break
            if size == IS_BLANK:
                position = base + segment_bytes
            elif size < 0:
                raise self._rotten(position, size)

    def maybe_noted(self, index: int) -> None:
        """Return None: there is no leader to say anything about entries."""

    def release(self, index: int) -> None:
        """Do nothing: nothing is kept."""

    def body_of(self, index: int, position: int) -> memoryview:
        """Return the record at ``position`` that ends with ``index``. Errors: `RottenEntry`."""
        size = self._inspect(position)
        if size <= 0 or size != index + 1 - position:
            raise self._rotten(position, size)
        return self.view(position, size)

    def last_body(self) -> memoryview | None:
        """Return the last record, None for an empty log. Errors: `RottenEntry`."""
        _, start, end = self.written
        if start < self._segments.start:
            return None
        return self.body_of(end - 1, start)

    def body_at(self, physical_offset: int, size: int) -> memoryview:
        """Return the record that lies there, checked and not copied. The hot path of reads.

        Errors: `RottenEntry`; `LookupError` when there is no trace of one.
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
            raise self._rotten(physical_offset, found)
        return view[at : at + size]

    def read_ahead(self, physical_offset: int, size: int) -> None:
        """Ask for bytes that will be read soon, without waiting; those of one segment."""
        at = physical_offset % self._segments.segment_bytes
        view = self._segments.segment_view(physical_offset - at)
        if view is not None:
            read_ahead(view, at, size)

    def find(self, physical_offset: int) -> int | None:
        """Return the index of the sound record that begins there, None if there is none."""
        size = self._inspect(physical_offset)
        return physical_offset + size - 1 if size > 0 else None

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
            _log.error("event=rot %s reason=%r", self._segments.describe(position), PROBLEMS[code])

    def _rotten(self, position: int, code: int) -> RottenEntry:
        if code in PROBLEMS:
            self._note_damage(position, code)
        problem = PROBLEMS.get(code, "another message is there")
        return RottenEntry(position, f"{self._segments.describe(position)}: {problem}")
