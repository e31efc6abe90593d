"""Walking the log: the bodies of entries that follow each other, each checked, none copied.

Entries lie side by side, so only the first of a piece of the log is looked up in the index; the
next one is where this one ends. A view of a segment ends with the segment.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dledger.codec.entry import HEADER_BYTES, sound_size
from dledger.core.model import LogIndex

if TYPE_CHECKING:
    from dledger.storage.log_store import LogStore

CHUNK_BYTES: Final = 256 * 1024
"""How much of the log is looked at at a time."""

Body = tuple[LogIndex, int, memoryview, int, int]
"""``(index, physical offset, chunk, where in the chunk the body begins, its bytes)``."""


def walk_bodies(store: "LogStore", first: LogIndex, last: LogIndex) -> Iterator[Body]:
    """Walk the bodies of entries ``first..last``.

    Errors: `RottenEntry` for a damaged one, when it is its turn.
    """
    chunk = memoryview(b"")
    position = base = 0
    for index in range(first, last + 1):
        size = sound_size(chunk, position - base, index)
        if not size:
            position, size, _ = store.entry(index)
            base = position
            if index in store.rot.damaged:
                store.body_view(index)  # says so; the file that held it may be missing
            chunk = store.view(position, max(size, CHUNK_BYTES))
            if sound_size(chunk, 0, index) != size:
                store.body_view(index)  # it may have no CRC; who knows better decides
        at = position - base + HEADER_BYTES
        yield index, position + HEADER_BYTES, chunk, at, size - HEADER_BYTES
        position += size
