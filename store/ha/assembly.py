"""Whole, checked records out of the pieces of a stream. Pure.

A piece ends anywhere. What is handed out ends where a record or a file ends, so that the slave's
files never hold anything else; the beginning of a record is kept here until the rest has come.
What does not continue the log at its very end, or is no sound record, is refused.
"""

from typing import Final, NamedTuple

from ledgermq.remoting.protocol.message import MAGIC_BLANK
from store.ha.codec import BadStream
from store.limits import HA_RECORD_BYTES_MAX
from store.plain.record import BLANK, BLANK_BYTES, HEAD_BYTES_MAX, PROBLEMS, inspect, measure
from store.plain.writer import Extent

_HEAD_BYTES: Final = 91
"""Of the shortest record: its fixed fields, one byte of a body, no topic, no properties."""
_QUEUE_ID_AT: Final = 12
_QUEUE_OFFSET_AT: Final = 20
_SIGN: Final = 0x80
assert _HEAD_BYTES <= HEAD_BYTES_MAX + 4


class Run(NamedTuple):
    """Records that lie side by side in one file, and the blank behind them if the file ends."""

    position: int
    data: bytes
    extent: Extent
    """What is written when this is."""
    sizes: list[int]
    """Of each record."""


class Assembly:
    """Makes records of what comes behind ``extent``."""

    def __init__(self, segment_bytes: int, extent: Extent) -> None:
        self._segment_bytes = segment_bytes
        self._extent = extent
        self._rest = bytearray()
        """What has come of the record behind the extent."""
        self.position = extent.position
        """What comes next must begin here."""

    def add(self, position: int, data: bytes | memoryview) -> list[Run]:
        """Take the bytes that lie at ``position``; return what is whole now.

        Errors: `BadStream`; what was handed out before stays right.
        """
        if position != self.position:
            raise BadStream(
                f"it sends position {position}, and {self.position} is the end of what came before"
            )
        runs: list[Run] = []
        view = memoryview(data)
        while view:
            room = self._segment_bytes - self.position % self._segment_bytes
            part, view = view[:room], view[room:]
            self._take(part, runs)
        return runs

    def _take(self, part: memoryview, runs: list[Run]) -> None:
        """Take bytes of one file; those in the blank behind its last record mean nothing."""
        self.position += len(part)
        start, last_start, last_end = self._extent
        if start >= self.position:
            return
        rest = self._rest
        rest += part
        end, sizes, is_blank = self._walk()
        if not end:
            return
        with memoryview(rest) as view:
            whole = bytes(view[:end])
        position = start + end
        if sizes:
            last_end = position - (BLANK_BYTES if is_blank else 0)
            last_start = last_end - sizes[-1]
        if is_blank:
            position += -position % self._segment_bytes
            rest.clear()
        else:
            del rest[:end]
        self._extent = Extent(position, last_start, last_end)
        runs.append(Run(start, whole, self._extent, sizes))

    def _walk(self) -> tuple[int, list[int], bool]:
        """Return where the last whole thing ends, the sizes of the records, if a blank ends it.

        The first is an offset in the rest. Errors: `BadStream`.
        """
        base = self._extent.position
        file_room = self._segment_bytes - base % self._segment_bytes
        count = len(self._rest)
        with memoryview(self._rest) as view:
            sizes = measure(view, 0, min(count, file_room - BLANK_BYTES), base, count)
            at = sum(sizes)
            while count - at >= BLANK_BYTES:
                size, magic = BLANK.unpack_from(view, at)
                room = file_room - at
                if magic == MAGIC_BLANK:
                    if size != room:
                        raise BadStream(_uneven(base + at, size, room))
                    return at + BLANK_BYTES, sizes, True
                if not _HEAD_BYTES <= size <= min(HA_RECORD_BYTES_MAX, room - BLANK_BYTES):
                    raise BadStream(_uneven(base + at, size, room))
                if count - at < size:
                    break
                found = inspect(view, at, base + at)
                if found != size:
                    problem = PROBLEMS.get(found, "lengths do not add up")
                    raise BadStream(f"what it sends for position {base + at}: {problem}")
                if (view[at + _QUEUE_ID_AT] | view[at + _QUEUE_OFFSET_AT]) & _SIGN:
                    raise BadStream(f"what it sends for position {base + at}: a queue below 0")
                sizes.append(size)
                at += size
        return at, sizes, False


def _uneven(position: int, size: int, room: int) -> str:
    return (
        f"what it sends for position {position} states {size} bytes, and {room} are left of the"
        " file: is mappedFileSizeCommitLog the same on both sides?"
    )
