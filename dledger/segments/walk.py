"""The walk of a recovery: from record to record, from file to file, to the end of what is sound.

A codec of the record format judges what is at a place, and keeps what the recovery wants to know of
the records passed. What follows from the end that is found is the business of each log.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dledger.segments.row import Segments

NEXT_FILE: Final = 0
"""The records of this file end here, the next one is at the start of the next file."""
NOTHING_WRITTEN: Final = -1
"""Zeros, or no file. Codecs have codes of their own below it for what else is no record."""

Codec = Callable[[memoryview, int, int], int]
"""``(file, offset in it, position)``: returns the size of the record that it passes; or one of the
codes, all of which are 0 or below."""


class End(NamedTuple):
    """Where a walk ends."""

    position: int
    code: int
    """What is there; `NEXT_FILE` when that file is missing."""


def walk(segments: Segments, position: int, codec: Codec) -> End:
    """Pass record after record from ``position`` on, where one begins, or a file."""
    segment_bytes = segments.segment_bytes
    while True:
        base = position - position % segment_bytes
        view = segments.segment_view(base)
        if view is None:
            return End(position, NOTHING_WRITTEN)
        while (size := codec(view, position - base, position)) > 0:
            position += size
            if position - base == segment_bytes:
                break
        if size > 0:
            continue
        if size != NEXT_FILE or base + segment_bytes >= segments.end:
            return End(position, size)
        position = base + segment_bytes
