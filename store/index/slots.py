"""The slot table of one file in memory: an anonymous map, of which only what is used takes space.

Values are in the machine's order here and big-endian in the file; a page of 4 KiB is the unit in
which they go there. It knows no entries. Source: spec/disk.md 5.4.
"""

import mmap
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from store.index.codec import HEADER_BYTES, SLOT_BYTES

if TYPE_CHECKING:
    from ledgermq.runtime.disk import File

PAGE_SLOTS: Final = 1024
COPY_SLOTS: Final = 1 << 17
"""Slots copied at a time: half a megabyte, well under a millisecond."""
_READ_SLOTS: Final = 1 << 14

Pages = Iterable[tuple[int, bytes]]
"""``(position in the file, bytes)`` of parts of the table, ascending."""


class SlotTable:
    """Slots by number, all 0 at first."""

    __slots__ = ("cells", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.cells = memoryview(mmap.mmap(-1, size * SLOT_BYTES)).cast("i")
        """What the hot loop reads and writes."""

    def read(self, file: "File") -> None:
        """Fill an empty table from a file. Errors: `OSError`."""
        for first in range(0, self.size, _READ_SLOTS):
            count = min(_READ_SLOTS, self.size - first)
            data = file.pread(HEADER_BYTES + first * SLOT_BYTES, count * SLOT_BYTES)
            if data.count(0) != len(data):
                part = array("i", data.ljust(count * SLOT_BYTES, b"\0"))
                _swap(part)
                self.cells[first : first + count] = memoryview(part)

    def pages_of(self, hashes: Iterable[int]) -> Pages:
        """Return a copy of the pages in which the slots of these hashes lie."""
        size = self.size
        numbers = sorted({value % size // PAGE_SLOTS for value in hashes})
        found = []
        for number in numbers:
            first = number * PAGE_SLOTS
            found.append((_position(first), _encoded(self.cells[first : first + PAGE_SLOTS])))
        return found

    @property
    def page_count(self) -> int:
        """Pages of the whole table."""
        return -(-self.size // PAGE_SLOTS)

    @property
    def part_count(self) -> int:
        """Parts of the whole table, as `pages` gives them."""
        return -(-self.size // _READ_SLOTS)


class TableCopy:
    """A copy that is taken in steps while the table changes.

    It has at least what the entries below ``number`` left there, and of later ones some.
    """

    __slots__ = ("_cells", "_parts", "number")

    def __init__(self, table: SlotTable, number: int) -> None:
        self._cells = table.cells
        self._parts: list[bytes] = []
        self.number = number

    @property
    def is_whole(self) -> bool:
        """Whether everything is copied."""
        return len(self._parts) * COPY_SLOTS >= len(self._cells)

    def step(self) -> None:
        """Copy the next part."""
        if not self.is_whole:
            first = len(self._parts) * COPY_SLOTS
            self._parts.append(self._cells[first : first + COPY_SLOTS].tobytes())

    def pages(self, *, with_empty: bool) -> Iterator[tuple[int, bytes]]:
        """Return it in parts, those that are all 0 only if wanted; in any thread."""
        for number, part in enumerate(self._parts):
            cells = memoryview(part).cast("i")
            yield from pages(cells, number * COPY_SLOTS, with_empty=with_empty)


def pages(cells: memoryview, slot: int = 0, *, with_empty: bool) -> Iterator[tuple[int, bytes]]:
    """Return a table from ``slot`` on in parts; in any thread."""
    for first in range(0, len(cells), _READ_SLOTS):
        data = _encoded(cells[first : first + _READ_SLOTS])
        if with_empty or data.count(0) != len(data):
            yield _position(slot + first), data


def part_of(slot: int) -> int:
    """Return which part of a whole table has a slot."""
    return slot // _READ_SLOTS


def part_at(part: int, size: int) -> tuple[int, int]:
    """Return position in the file and bytes of a part of a table of ``size`` slots."""
    first = part * _READ_SLOTS
    return _position(first), min(_READ_SLOTS, size - first) * SLOT_BYTES


def _position(slot: int) -> int:
    return HEADER_BYTES + slot * SLOT_BYTES


def _encoded(cells: memoryview) -> bytes:
    part = array("i", cells.tobytes())
    _swap(part)
    return part.tobytes()


def _swap(part: "array[int]") -> None:
    if sys.byteorder == "little":
        part.byteswap()
