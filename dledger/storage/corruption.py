"""Stored bytes that are not what was written. Who is right, the entry or its index unit?

An entry says twice where it lies and how long it is: in its header, and in its index unit. When the
two differ, or the body does not have its CRC, one of the files is damaged:

1. The header is sound, and the body has its CRC: the unit is damaged. It is derived from the
   header, so it is written anew. (The term has no CRC: it must be the one that the core knows, or
   the only one of the two that lies between those of the neighbours.)
2. Otherwise the entry is damaged. It is noted in `CorruptionGuard.damaged` and not handed out any
   more; a peer that holds the same committed entry can replace it (`CorruptionGuard.restore`).

Where both are damaged, the neighbours tell what the entry was.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from dledger.codec.entry import (
    END_RECORD_BYTES,
    HEADER_BYTES,
    body_matches,
    count_sound,
    decode_header,
    header_problem,
    is_end_record,
)
from dledger.codec.index import UNIT, UNIT_MAGIC
from dledger.core.model import UNIT_BYTES, LogIndex, Span, Term
from dledger.errors import DamagedEntry
from dledger.segments.row import Segments
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

_log: Final = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where an entry lies; the size counts its header."""

    position: int
    size: int
    term: Term


class Bounds(NamedTuple):
    """The entries that a log holds, and where the first begins and the last ends."""

    first_index: LogIndex
    last_index: LogIndex
    first_position: int
    end_position: int


class CorruptionGuard:
    """Knows which entries of one log are damaged; settles what entry and unit disagree about."""

    def __init__(self, data: Segments, index: Segments, bounds: Callable[[], Bounds]) -> None:
        self._data = data
        self._index = index
        self._bounds = bounds
        self.damaged: dict[LogIndex, Place] = {}
        """Entries that must not be read, and where they lie. Few: each had a log line."""
        self._unplaced: set[LogIndex] = set()
        """Entries whose place is not known either; each had a log line."""
        self.is_sound_body: Callable[[memoryview], bool] = _trust
        """Whether a body is sound whose header has no CRC; set by who knows what bodies are."""
        self.term_at: Callable[[LogIndex], Term | None] = _unknown_term
        """The term of a committed entry, None where it is not known; set by who knows."""

    def is_sound(self, position: int, index: LogIndex, size: int | None = None) -> bool:
        """Tell whether entry ``index`` lies at ``position``, whole and undamaged."""
        view, offset = self._data.locate(position)
        if view is None or position < 0 or offset + HEADER_BYTES > len(view):
            return False
        header = decode_header(view, offset)
        room = len(view) - offset - END_RECORD_BYTES
        if header_problem(header, index, position, room) or size not in (None, header.size):
            return False
        if self.term_at(index) not in (None, header.term):
            return False  # the header has no CRC; its term would go unnoticed
        body = view[offset + HEADER_BYTES : offset + header.size]
        if header.body_crc == 0 and len(body):
            return self.is_sound_body(body)
        return body_matches(header.body_crc, body)

    def settle(self, index: LogIndex) -> Place:
        """Return where entry ``index`` lies, after its unit and its header were found to differ.

        A damaged unit is written anew, a damaged entry noted.
        Errors: `DamagedEntry` if its place cannot be told any more.
        """
        known = self.damaged.get(index)
        if known is not None:
            return known
        unit = self._maybe_unit(index)
        position = self._maybe_end_of_previous(index)
        if position is None and unit is not None:
            position = unit.position
        if position is not None and self.is_sound(position, index):
            header = self._place_by_header(position)
            if unit is None or unit[:2] != header[:2] or self._is_of_term(index, header, unit):
                return self._rewrite_unit(index, header)
        if unit is not None and position in (None, unit.position):
            self.note(index, unit)
            return unit
        place = self._maybe_between_neighbours(index, position)
        if place is None:
            raise self._unreadable(index)
        self.note(index, place)
        return place

    def _unreadable(self, index: LogIndex) -> DamagedEntry:
        """Return the error for an entry of which nobody knows where it lies; one log line."""
        unit_at = index * UNIT_BYTES
        where = (
            f"file={self._index.path(unit_at)} offset={unit_at % self._index.segment_bytes}:"
            " neither the entry nor its unit can be read"
        )
        if index not in self._unplaced:
            self._unplaced.add(index)
            _log.error("event=corruption index=%d %s", index, where)
        return DamagedEntry(index, where)

    def check(self, index: LogIndex, place: Place) -> None:
        """Read an entry through. Errors: `DamagedEntry`, which is then noted."""
        if index in self.damaged or not self.is_sound(place.position, index, place.size):
            self.note(index, place)
            raise DamagedEntry(index, self.describe(place.position))

    def note(self, index: LogIndex, place: Place) -> None:
        """Remember that an entry is damaged; one log line."""
        if index not in self.damaged:
            self.damaged[index] = place
            _log.error(
                "event=corruption index=%d %s size=%d",
                index,
                self.describe(place.position),
                place.size,
            )

    def describe(self, position: int) -> str:
        """Return the file and the offset in it of a position."""
        return self._data.describe(position)

    def forget_from(self, index: LogIndex) -> None:
        """Take that entries from ``index`` on were cut off."""
        for damaged in [found for found in self.damaged if found >= index]:
            del self.damaged[damaged]

    def forget_below(self, index: LogIndex) -> None:
        """Take that entries below ``index`` are not retained any more."""
        for damaged in [found for found in self.damaged if found < index]:
            del self.damaged[damaged]

    def restore(self, span: Span) -> list[LogIndex]:
        """Write a peer's copy over damaged entries; return those that are sound now.

        Nothing but damaged entries is touched, and only by an entry of the same index, term,
        position and size. Errors: `FatalError` if the disk does not take them; `OSError` of a full
        disk passes.
        """
        restored: list[LogIndex] = []
        for index in range(span.first_index, span.last_index + 1):
            place = self.damaged.get(index)
            if place is None:
                continue
            place = place._replace(term=self.term_at(index) or place.term)  # one of two was noted
            entry = span.from_index(index).before_index(index + 1)
            if (entry.position, len(entry.data), entry.term) != place or not count_sound(entry):
                _log.warning("event=corruption_not_replaced index=%d reason=other_entry", index)
                continue
            self._data.write(place.position, (entry.data,))
            self._index.write(index * UNIT_BYTES, (entry.units,))
            if self.is_sound(place.position, index, place.size):
                del self.damaged[index]
                restored.append(index)
                _log.warning("event=repaired index=%d %s", index, self.describe(place.position))
        return restored

    def _place_by_header(self, position: int) -> Place:
        view, offset = self._data.locate(position)
        assert view is not None, position
        header = decode_header(view, offset)
        return Place(position, header.size, header.term)

    def _is_of_term(self, index: LogIndex, header: Place, unit: Place) -> bool:
        """Tell whether the term in the header is right, and that in the unit is not."""
        if not self._is_term_between(index, header.term):
            return False
        return not self._is_term_between(index, unit.term)

    def _is_term_between(self, index: LogIndex, term: Term) -> bool:
        """Tell whether an entry may be of this term, as far as is known: terms rise in a log."""
        known = self.term_at(index)
        if known is not None:
            return term == known
        bounds = self._bounds()
        before = self._maybe_agreed(index - 1) if index > bounds.first_index else None
        behind = self._maybe_agreed(index + 1) if index < bounds.last_index else None
        return (before is None or before.term <= term) and (behind is None or term <= behind.term)

    def _rewrite_unit(self, index: LogIndex, place: Place) -> Place:
        where = index * UNIT_BYTES
        unit = UNIT.pack(UNIT_MAGIC, place.position, place.size, index, place.term)
        _log.warning("event=index_repaired file=%s index=%d", self._index.path(where), index)
        try:
            self._index.write(where, (unit,))
        except OSError as error:
            message = f"{self._index.path(where)} cannot be written: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return place

    def _maybe_unit(self, index: LogIndex) -> Place | None:
        """Return what the unit says, None if it cannot be true."""
        magic, position, size, found, term = UNIT.unpack(
            self._index.read(index * UNIT_BYTES, UNIT_BYTES)
        )
        room = self._data.segment_bytes - position % self._data.segment_bytes - END_RECORD_BYTES
        if (magic, found) != (UNIT_MAGIC, index) or not HEADER_BYTES <= size <= room:
            return None
        bounds = self._bounds()
        if not bounds.first_position <= position <= bounds.end_position - size:
            return None
        return Place(position, size, term)

    def _maybe_end_of_previous(self, index: LogIndex) -> int | None:
        """Return where entry ``index`` must lie behind the one before it, if that is known."""
        bounds = self._bounds()
        if index == bounds.first_index:
            return bounds.first_position
        known = index - 1
        while (before := self._maybe_agreed(known)) is None and known > bounds.first_index:
            known -= 1
        if before is None:
            return None
        for behind in range(known + 1, index):
            position = self._position_behind(before)
            if not self.is_sound(position, behind):
                return None
            before = self._rewrite_unit(behind, self._place_by_header(position))
        return self._position_behind(before)

    def _maybe_agreed(self, index: LogIndex) -> Place | None:
        """Return where unit and header both say that an entry lies."""
        unit = self._maybe_unit(index)
        if unit is None:
            return None
        view, offset = self._data.locate(unit.position)
        if view is None:
            return None
        header = decode_header(view, offset)
        agreed = (header.entry_index, header.position, header.size, header.term)
        return unit if agreed == (index, *unit) else None

    def _position_behind(self, before: Place) -> int:
        """Return where an entry behind this one lies: at its end, or in the next segment."""
        end = before.position + before.size
        view, offset = self._data.locate(end)
        if view is not None and is_end_record(view, offset):
            return end - offset + self._data.segment_bytes
        return end

    def _maybe_between_neighbours(self, index: LogIndex, position: int | None) -> Place | None:
        """Return the place that is left between the entries before and behind."""
        bounds = self._bounds()
        end: int | None = bounds.end_position
        term = None
        if index < bounds.last_index:
            behind = self._maybe_unit(index + 1)
            end = behind.position if behind is not None else None
            term = behind.term if behind is not None else None
        before = self._maybe_unit(index - 1) if index > bounds.first_index else None
        known = self.term_at(index)
        if known is None and before is not None and term in (None, before.term):
            known = before.term
        if position is None or end is None or known is None:
            return None
        segment = self._data.segment_bytes
        if end - 1 >= position - position % segment + segment:
            return None  # the segment ends between: how long the entry is cannot be told
        if end % segment == 0:
            end = self._end_record_before(end, position)
        return Place(position, end - position, known)

    def _end_record_before(self, end: int, position: int) -> int:
        """Return where the record lies that ends a segment; ``end`` if it is damaged, too."""
        view, offset = self._data.locate(position)
        assert view is not None, position
        last = offset + len(bytes(view[offset:]).rstrip(b"\0"))
        # Behind it everything is zero, and so may be the last bytes of the number in it.
        for at in range(last - END_RECORD_BYTES, last - END_RECORD_BYTES // 2):
            if at >= offset + HEADER_BYTES and is_end_record(view, at):
                return position - offset + at
        return end


def _unknown_term(index: LogIndex) -> Term | None:
    """Know no terms."""
    del index
    return None


def _trust(body: memoryview) -> bool:
    """Take a body as it is: it has no CRC, and nobody knows better."""
    del body
    return True
