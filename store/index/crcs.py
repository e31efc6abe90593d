"""CRCs of one index file, in blocks: what an earlier process wrote is compared before it is used.

Entries are only added, so a block has its CRC when it is full, and the last one a running CRC.
Slots change all over the file: they have the CRCs of their last write as a whole, which says what
is on disk until the next one; a start that finds them otherwise makes the slots of the entries.
Both lie in ``index.checkpoint``: the format of the file, which is RocketMQ's, has no room.
It knows no files: whoever asks gives what is on disk.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from store.index.codec import ENTRY_BYTES, FIRST_ENTRY
from store.index.slots import part_of

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Buffer

CRC_BYTES: Final = 4
BLOCK_ENTRIES = 8192
"""160 KiB: a tenth of a millisecond when it is first read."""

ReadEntries = Callable[[int, int], bytes]
"""``(first, end)``: the bytes of the entries ``first`` up to ``end`` on disk."""


class EntryCrcs:
    """Of the entries of a file, block by block; entry 0 is none."""

    __slots__ = ("_full", "_last", "end", "unchecked")

    def __init__(self, end: int = FIRST_ENTRY, packed: bytes = b"") -> None:
        self._full = bytearray(packed[:-CRC_BYTES])
        self._last = int.from_bytes(packed[-CRC_BYTES:], "big")
        """Of what the last block, which is not full, holds so far."""
        self.unchecked = (1 << -(-end // BLOCK_ENTRIES)) - 1 if packed else 0
        """Bit n: block n was written by an earlier process and not compared yet."""
        self.end = end
        """Number of the first entry that is not covered."""

    @classmethod
    def maybe_unpacked(cls, packed: bytes, end: int) -> "EntryCrcs | None":
        """Return what `packed` gave of a file that ends before entry ``end``; None if nothing."""
        blocks = end // BLOCK_ENTRIES
        return cls(end, packed) if len(packed) == (blocks + 1) * CRC_BYTES else None

    def packed(self) -> bytes:
        """Return the CRCs of the full blocks, and that of the last."""
        return bytes(self._full) + self._last.to_bytes(CRC_BYTES, "big")

    def add(self, entries: "Buffer") -> None:
        """Take that entries were written behind the others."""
        with memoryview(entries) as view:
            at = 0
            while at < len(view):
                room = (BLOCK_ENTRIES - self.end % BLOCK_ENTRIES) * ENTRY_BYTES
                part = view[at : at + room]
                self._last = crc32(part, self._last)
                self.end += len(part) // ENTRY_BYTES
                at += len(part)
                if self.end % BLOCK_ENTRIES == 0:
                    self._full += self._last.to_bytes(CRC_BYTES, "big")
                    self._last = 0

    def cut(self, end: int, read: ReadEntries) -> None:
        """Take that the entries from ``end`` on are no more; those before were checked."""
        block = end // BLOCK_ENTRIES
        del self._full[block * CRC_BYTES :]
        self._last = crc32(read(max(FIRST_ENTRY, block * BLOCK_ENTRIES), end))
        self.unchecked &= (1 << block) - 1
        self.end = end

    def maybe_damaged(self, first: int, end: int, read: ReadEntries) -> int | None:
        """Compare the blocks of entries ``first`` up to ``end``, those that were not yet.

        Returns the first entry of one that is not as it was written.
        """
        for block in range(first // BLOCK_ENTRIES, -(-end // BLOCK_ENTRIES)):
            if self.unchecked >> block & 1:
                begin = max(FIRST_ENTRY, block * BLOCK_ENTRIES)
                where = block * CRC_BYTES
                expected = int.from_bytes(self._full[where : where + CRC_BYTES], "big")
                if where >= len(self._full):
                    expected = self._last
                if crc32(read(begin, min((block + 1) * BLOCK_ENTRIES, self.end))) != expected:
                    return begin
                self.unchecked &= ~(1 << block)
        return None


class SlotCrcs:
    """Of a slot table that changes no more, in the parts in which it is written."""

    __slots__ = ("packed", "unchecked")

    def __init__(self, packed: bytes, *, is_checked: bool) -> None:
        self.packed = packed
        self.unchecked = 0 if is_checked else (1 << len(packed) // CRC_BYTES) - 1

    @classmethod
    def maybe_unpacked(cls, packed: bytes, slots: int) -> "SlotCrcs | None":
        """Return what ``packed`` had of a table of ``slots`` slots; None if nothing."""
        is_whole = len(packed) == (part_of(slots - 1) + 1) * CRC_BYTES
        return cls(packed, is_checked=False) if is_whole else None

    @classmethod
    def of(cls, parts: "Iterable[tuple[int, bytes]]") -> "SlotCrcs":
        """Return those of a whole table that is about to be written."""
        crcs = [crc32(data).to_bytes(CRC_BYTES, "big") for _, data in parts]
        return cls(b"".join(crcs), is_checked=True)

    def is_damaged(self, part: int, read: Callable[[], bytes]) -> bool:
        """Compare a part with its CRC, unless it was done already."""
        if self.unchecked >> part & 1:
            crc = self.packed[part * CRC_BYTES : (part + 1) * CRC_BYTES]
            if crc32(read()).to_bytes(CRC_BYTES, "big") != crc:
                return True
            self.unchecked &= ~(1 << part)
        return False
