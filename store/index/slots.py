"""The slot table of one file in memory: an anonymous map, of which only what is used takes space.

Values are in the machine's order here and big-endian in the file; a page of 4 KiB is the unit in
which they go there. It knows no entries. Source: protocol.md 5.4.
"""

import mmap
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from store.index.codec import HEADER_BYTES, SLOT_BYTES

if TYPE_CHECKING:
    from runtime.disk import File

PAGE_SLOTS: Final = 1024
_READ_SLOTS: Final = 1 << 16

Pages = list[tuple[int, bytes]]
"""``(position in the file, bytes)`` of parts of the table."""


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

    def pages(self, *, with_empty: bool) -> Pages:
        """Return a copy of the whole table; pages that are all 0 only if wanted."""
        return list(self._copied(range(self.page_count), with_empty=with_empty))

    def pages_of(self, hashes: Iterable[int]) -> Pages:
        """Return a copy of the pages in which the slots of these hashes lie."""
        size = self.size
        numbers = sorted({value % size // PAGE_SLOTS for value in hashes})
        return list(self._copied(numbers, with_empty=True))

    @property
    def page_count(self) -> int:
        """Pages of the whole table."""
        return -(-self.size // PAGE_SLOTS)

    def _copied(self, numbers: Iterable[int], *, with_empty: bool) -> Iterator[tuple[int, bytes]]:
        for number in numbers:
            first = number * PAGE_SLOTS
            part = array("i", self.cells[first : first + PAGE_SLOTS].tobytes())
            if with_empty or part.count(0) != len(part):
                _swap(part)
                yield HEADER_BYTES + first * SLOT_BYTES, part.tobytes()


def _swap(part: "array[int]") -> None:
    if sys.byteorder == "little":
        part.byteswap()
