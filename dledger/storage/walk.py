"""Walking the log: the bodies of entries that follow each other; none is copied by itself.

What was just written is taken from memory (`dledger.storage.recent`). On disk entries lie side by
side, so only the first of a piece of the log is looked up in the index; the next one is where this
one ends. Each one read from disk is checked.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dledger.codec.entry import HEADER_BYTES, sound_size
from dledger.codec.index import UNIT
from dledger.core.model import UNIT_BYTES, LogIndex, Span

if TYPE_CHECKING:
    from dledger.storage.log_store import LogStore

CHUNK_BYTES: Final = 256 * 1024
"""How much of the log a walk reads at a time; a view of a segment ends with the segment."""
COPIED_ENTRIES_MIN: Final = 16
"""A walk over at least this many entries copies the chunks: a slice of bytes costs less than a
slice of a view."""

Body = tuple[int, bytes | memoryview, int, int]
"""``(physical offset, chunk, where in the chunk the body begins, its bytes)``."""


def walk_bodies(store: "LogStore", first: LogIndex, last: LogIndex) -> Iterator[Body]:
    """Walk the bodies of entries ``first..last``.

    Errors: `DamagedEntry` for a damaged one, when it is its turn.
    """
    index = first
    while index <= last:
        span = store.recent.maybe_find(index)
        if span is not None:
            yield from _walk_span(span, index, last)
            index = span.last_index + 1
        else:
            behind = store.recent.first_index()
            stop = last if behind is None else min(last, behind - 1)
            yield from _walk_disk(store, index, stop)
            index = stop + 1


def _walk_span(span: Span, first: LogIndex, last: LogIndex) -> Iterator[Body]:
    units = memoryview(span.units)[
        (first - span.first_index) * UNIT_BYTES : (last + 1 - span.first_index) * UNIT_BYTES
    ]
    begin = UNIT.unpack_from(units)[1]
    _, position, size, _, _ = UNIT.unpack_from(units, len(units) - UNIT_BYTES)
    # One copy, and none of the slices that are taken of it is a view.
    chunk = bytes(span.data[begin - span.position : position + size - span.position])
    for _, position, size, _, _ in UNIT.iter_unpack(units):
        body = position + HEADER_BYTES
        yield body, chunk, body - begin, size - HEADER_BYTES


def _walk_disk(store: "LogStore", first: LogIndex, last: LogIndex) -> Iterator[Body]:
    chunk = memoryview(b"")
    given: bytes | memoryview = chunk
    position = base = 0
    for index in range(first, last + 1):
        size = sound_size(chunk, position - base, index, position)
        if not size:
            position, size, _ = store.entry(index)
            base = position
            if index in store.corruption.damaged:
                store.body_view(index)  # says so; the file that held it may be missing
            given = chunk = store.view(position, max(size, CHUNK_BYTES))
            if last - index >= COPIED_ENTRIES_MIN:
                given = bytes(chunk)
                chunk = memoryview(given)
            if sound_size(chunk, 0, index, position) != size:
                store.body_view(index)  # it may have no CRC; who knows better decides
        at = position - base + HEADER_BYTES
        yield position + HEADER_BYTES, given, at, size - HEADER_BYTES
        position += size
