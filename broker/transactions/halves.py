"""The halves that are open, in the order of the log: one row of 46 bytes for each.

A row is found by where its half lies in the log, which is what END_TRANSACTION names and a copy
says, and by its offset in the half topic, which is what an op message says: along a log both grow.
Rows lie in chunks of packed columns, so that a million of them take 48 to 96 MB and any change
moves a few kilobytes at most. Pure; it knows neither messages nor the clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import ge
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_ROWS_MAX: Final = 1_024
COLUMNS: Final = 7
COPIED: Final = -1
"""In the place of the number of questions: its copy is in the log, its op message not yet."""


class Half(NamedTuple):
    """An open half."""

    offset: int
    """In the half topic."""
    physical: int
    """Where it lies in the log."""
    stored_ms: int
    immunity_s: int
    """For how long it asks not to be asked for, `store.origins.NO_IMMUNITY` if it does not say."""
    asked: int
    """How often its producers were asked, or `COPIED`."""
    group: int = 0
    """Of its producers, see `store.origins.group_number`; 0 where it is not known."""
    source: int = 0
    """Where it was sent from, see `store.origins.source_number`; 0 where it is not known."""


class _Chunk:
    """Rows that follow each other."""

    __slots__ = (
        "asked", "groups", "immunities", "is_shared", "offsets", "physicals", "sources", "stored",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_shared = False
        """Whether it is in a copy of the rows as well: it is copied before it changes then."""
        self.offsets = array("q")
        self.physicals = array("q")
        self.stored = array("q")
        self.immunities = array("i")
        self.asked = array("h")
        self.groups = array("q")
        self.sources = array("q")

    def __len__(self) -> int:
        return len(self.physicals)

    def row(self, at: int) -> Half:
        """Return a row."""
        return Half(
            self.offsets[at], self.physicals[at], self.stored[at], self.immunities[at],
            self.asked[at], self.groups[at], self.sources[at],
        )  # fmt: skip

    def insert(self, at: int, half: Half) -> None:
        """Put a row in front of another, or behind the last one, as nearly always."""
        if at == len(self.physicals):
            for column, value in zip(self.columns(), half, strict=True):
                column.append(value)
            return
        for column, value in zip(self.columns(), half, strict=True):
            column.insert(at, value)

    def remove(self, at: int) -> None:
        """Remove a row."""
        for column in self.columns():
            del column[at]

    def columns(self) -> tuple[array[int], ...]:
        """Return the columns, in the order of the fields of `Half`."""
        return (
            self.offsets, self.physicals, self.stored, self.immunities, self.asked, self.groups,
            self.sources,
        )  # fmt: skip

    def cut(self, first: int, end: int) -> _Chunk:
        """Return a copy of some rows."""
        part = _Chunk()
        for column, mine in zip(part.columns(), self.columns(), strict=True):
            column.extend(mine[first:end])
        return part

    def extend(self, other: _Chunk) -> None:
        """Take the rows of the chunk behind."""
        for mine, theirs in zip(self.columns(), other.columns(), strict=True):
            mine.extend(theirs)


class OpenHalves:
    """All rows."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._physicals: list[int] = []
        """Of each chunk, a place in the log at or before its first row, behind the one before."""
        self._offsets: list[int] = []
        """The same of offsets in the half topic."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, half: Half) -> bool:
        """Add a row; False if it is there: nothing changes."""
        if not self._chunks:
            self._put_chunk(0, _Chunk(), half)
        number = max(0, bisect_right(self._physicals, half.physical) - 1)
        chunk = self._chunks[number]
        at = bisect_left(chunk.physicals, half.physical)
        if at < len(chunk) and chunk.physicals[at] == half.physical:
            return False
        if len(chunk) >= CHUNK_ROWS_MAX:
            if at == len(chunk):
                self._put_chunk(number + 1, _Chunk(), half)
                number, at = number + 1, 0
            else:
                self._split(number)
                return self.add(half)
        self._own(number).insert(at, half)
        self._physicals[number] = min(self._physicals[number], half.physical)
        self._offsets[number] = min(self._offsets[number], half.offset)
        self._count += 1
        return True

    def find(self, physical: int) -> Half | None:
        """Return the row of the half that lies there, None if it is not open."""
        number = bisect_right(self._physicals, physical) - 1
        if number < 0:
            return None
        chunk = self._chunks[number]
        at = bisect_left(chunk.physicals, physical)
        is_there = at < len(chunk) and chunk.physicals[at] == physical
        return chunk.row(at) if is_there else None

    def at_offset(self, offset: int) -> Half | None:
        """Return the row of the half with that offset in the half topic, None if it is not open."""
        place = self._place(offset)
        return None if place is None else self._chunks[place[0]].row(place[1])

    def remove(self, offset: int) -> Half | None:
        """Remove the row of the half with that offset, and return it; None if there is none."""
        place = self._place(offset)
        if place is None:
            return None
        number, at = place
        chunks = self._chunks
        half = chunks[number].row(at)
        self._own(number).remove(at)
        self._count -= 1
        for first in (number, number - 1):
            if 0 <= first < len(chunks) - 1:
                together = len(chunks[first]) + len(chunks[first + 1])
                if together <= CHUNK_ROWS_MAX // 2:
                    self._own(first).extend(chunks[first + 1])
                    self._drop_chunk(first + 1)
        if not self._count:
            self._drop_chunk(0)
        return half

    def set_asked(self, offset: int, asked: int) -> None:
        """Set how often a half was asked for, or that it is copied; nothing if it is not open."""
        place = self._place(offset)
        if place is not None:
            self._own(place[0]).asked[place[1]] = asked

    def behind(self, physical: int, count: int) -> list[Half]:
        """Return the next rows of halves that lie behind a place in the log."""
        found: list[Half] = []
        number = max(0, bisect_right(self._physicals, physical) - 1)
        for chunk in self._chunks[number : number + 2 + count // 256]:
            at = bisect_right(chunk.physicals, physical)
            found += map(chunk.row, range(at, min(len(chunk), at + count - len(found))))
            if len(found) >= count:
                break
        return found

    def copy(self) -> OpenHalves:
        """Return the rows as they are now."""
        other = OpenHalves()
        for chunk in self._chunks:
            chunk.is_shared = True
        other._chunks = self._chunks[:]
        other._physicals, other._offsets = self._physicals[:], self._offsets[:]
        other._count = self._count
        return other

    def __contains__(self, half: object) -> bool:
        return isinstance(half, Half) and self.find(half.physical) == half

    def __iter__(self) -> Iterator[Half]:
        for chunk in self._chunks:
            yield from map(chunk.row, range(len(chunk)))

    def extend(self, numbers: list[int]) -> tuple[list[int], list[int]]:
        """Put rows behind all others, each of seven numbers, in their order.

        Returns their groups and their sources.

        Errors: `ValueError`, `OverflowError`.
        """
        physicals = numbers[1::COLUMNS]
        last = self._chunks[-1].physicals[-1] if self._chunks else -1
        if len(numbers) % COLUMNS or any(map(ge, (last, *physicals), physicals)):
            raise ValueError("no rows, or not in the order of the log")
        for first in range(0, len(numbers), COLUMNS * CHUNK_ROWS_MAX):
            part = numbers[first : first + COLUMNS * CHUNK_ROWS_MAX]
            chunk = _Chunk()
            for number, column in enumerate(chunk.columns()):
                column.extend(part[number::COLUMNS])
            self._put_chunk(len(self._chunks), chunk, chunk.row(0))
        self._count += len(physicals)
        return numbers[COLUMNS - 2 :: COLUMNS], numbers[COLUMNS - 1 :: COLUMNS]

    def _own(self, number: int) -> _Chunk:
        """Return a chunk that may be changed."""
        chunk = self._chunks[number]
        if chunk.is_shared:
            chunk = self._chunks[number] = chunk.cut(0, len(chunk))
        return chunk

    def _place(self, offset: int) -> tuple[int, int] | None:
        number = bisect_right(self._offsets, offset) - 1
        if number < 0:
            return None
        chunk = self._chunks[number]
        at = bisect_left(chunk.offsets, offset)
        return (number, at) if at < len(chunk) and chunk.offsets[at] == offset else None

    def _split(self, number: int) -> None:
        chunk = self._chunks[number]
        middle = len(chunk) // 2
        self._chunks[number] = chunk.cut(0, middle)
        self._put_chunk(number + 1, chunk.cut(middle, len(chunk)), chunk.row(middle))

    def _put_chunk(self, number: int, chunk: _Chunk, first: Half) -> None:
        self._chunks.insert(number, chunk)
        self._physicals.insert(number, first.physical)
        self._offsets.insert(number, first.offset)

    def _drop_chunk(self, number: int) -> None:
        del self._chunks[number], self._physicals[number], self._offsets[number]
