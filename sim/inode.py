"""The bytes of one simulated file, and what of them a loss of power may take back.

Every change since the last sync is an entry of the journal: where, what was there before, how long
the file was. Undone from the last to the first, they give the synced image; applied again in part,
any image that a machine without power may leave. Synced bytes are never touched. Pure: it knows no
paths, no faults and no time.
Source: spec/proof.md D1, D4 (sectors), 2.1 (journal of pre-images).
"""

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum
from mmap import mmap
from random import Random
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""
BLOCK_BITS: Final = 12
"""Space is used in blocks of 4 KiB."""
MAP_BYTES_MIN: Final = 64 * 1024
"""From this size on a file is a map without a file: pages that nobody writes cost nothing."""


class PowerLossMode(Enum):
    """What becomes of unsynced changes."""

    LOST = "lost"
    """None arrived."""
    TORN = "torn"
    """They arrived in order up to a point; the one at that point up to a sector boundary."""
    REORDERED = "reordered"
    """Each sector holds what any number of the changes to it, in their order, made of it."""


class Change(Struct, frozen=True, gc=False):
    """One unsynced change of a file; offsets and sizes are bytes."""

    number: int
    """Changes of a file are counted from 0."""
    offset: int
    before: bytes
    size_before: int
    lost: bool = False
    """A sync of it failed: no later sync makes it durable (the kernel thinks that it is clean)."""


class Inode:
    """One file. ``size`` may be smaller than ``len(data)``; behind it everything is zero."""

    __slots__ = ("blocks", "changes_made", "data", "has_lost", "journal", "size", "view")

    def __init__(self) -> None:
        self.data: bytearray | mmap = bytearray()
        self.size = 0
        self.view = memoryview(b"")
        self.journal: list[Change] = []
        self.changes_made = 0
        """Changes ever made; the journal holds the last of them."""
        self.has_lost = False
        self.blocks: set[int] = set()

    def write(self, offset: int, content: bytes | bytearray | memoryview) -> None:
        """Change bytes within the size."""
        end = offset + len(content)
        data = self.data
        self.journal.append(Change(self.changes_made, offset, bytes(data[offset:end]), self.size))
        self.changes_made += 1
        data[offset:end] = content
        first, last = offset >> BLOCK_BITS, (end - 1) >> BLOCK_BITS
        if first == last:
            self.blocks.add(first)
        else:
            self.blocks.update(range(first, last + 1))

    def grow(self, size: int) -> None:
        """Let the file be longer, within the room made for it; what is new reads as zero."""
        assert self.size < size <= len(self.data), (self.size, size, len(self.data))
        self.journal.append(Change(self.changes_made, self.size, b"", self.size))
        self.changes_made += 1
        self.size = size

    def content(self) -> bytes:
        """Return all bytes."""
        return bytes(self.data[: self.size])

    def make_room(self, size: int) -> None:
        """Make an empty file able to hold ``size`` bytes."""
        assert self.size == 0, self.size
        if len(self.data) < size:
            self.data = bytearray(size) if size < MAP_BYTES_MIN else mmap(-1, size)
        self.view = memoryview(self.data).toreadonly()[:size]

    def end_of_data(self, offset: int = 0) -> int:
        """Return the offset behind the last byte at or after ``offset`` that is not zero."""
        for block in sorted(self.blocks, reverse=True):
            start = block << BLOCK_BITS
            if start + (1 << BLOCK_BITS) <= offset:
                break
            kept = bytes(self.data[start : start + (1 << BLOCK_BITS)]).rstrip(b"\0")
            if kept and start + len(kept) > offset:
                return start + len(kept)
        return offset

    def extents(self, offset: int) -> list[tuple[int, int]]:
        """Return the parts of the file from ``offset`` on that use space."""
        found: list[tuple[int, int]] = []
        for block in sorted(self.blocks):
            start = max(offset, block << BLOCK_BITS)
            end = min(self.size, (block + 1) << BLOCK_BITS)
            if start >= end:
                continue
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found

    def images(self) -> list[bytes]:
        """Return the synced content, and what each change since then has made of it."""
        data, size = bytearray(self.data), self.size
        images = [bytes(data[:size])]
        for change in reversed(self.journal):
            data[change.offset : change.offset + len(change.before)] = change.before
            size = change.size_before
            images.append(bytes(data[:size]))
        images.reverse()
        return images

    # Syncs

    def sync_up_to(self, mark: int) -> None:
        """Make the first ``mark`` changes durable, except those whose sync once failed."""
        journal = self.journal
        count = bisect_left(journal, mark, key=_number)
        if self.has_lost:
            self._sync_around_lost(count)
        else:
            del journal[:count]

    def _sync_around_lost(self, count: int) -> None:
        """Make ``count`` changes durable in spite of older ones that never will be.

        A durable change overwrites what a lost one would bring back: it becomes part of the
        picture before that one.
        """
        contents = self._contents()
        kept: list[Change] = []
        for change, (_, content) in zip(self.journal[:count], contents[:count], strict=True):
            if change.lost:
                kept.append(change)
            else:
                kept = [_patched(lost, change.offset, content) for lost in kept]
        self.journal[:count] = kept

    def lose_unsynced(self) -> None:
        """Let a sync fail: what was not durable stays readable and never becomes durable."""
        self.journal = [replace(change, lost=True) for change in self.journal]
        self.has_lost = bool(self.journal)

    def is_synced(self, offset: int) -> bool:
        """Whether the byte is durable as it is."""
        return not any(
            change.offset <= offset < change.offset + len(change.before) for change in self.journal
        )

    def is_range_synced(self, offset: int, size: int) -> bool:
        """Whether all of a range is durable as it is."""
        end = offset + size
        return not any(
            change.offset < end and offset < change.offset + len(change.before)
            for change in self.journal
        )

    # Loss of power

    def take_back(self, mark: int) -> None:
        """Undo all but the first ``mark`` changes that were ever made, as if they were not."""
        while self.journal and self.journal[-1].number >= mark:
            change = self.journal.pop()
            self.data[change.offset : change.offset + len(change.before)] = change.before
            self.size = change.size_before

    def lose_power(self, mode: PowerLossMode, random: Random) -> int:
        """Become what the disk has after a loss of power; returns how many changes were at stake.

        Whatever remains is durable.
        """
        journal = self.journal
        at_stake = len(journal)
        if not journal:
            return 0
        contents = self._undo()
        if mode is PowerLossMode.TORN:
            self._apply_torn(journal, contents, random)
        elif mode is PowerLossMode.REORDERED:
            self._apply_reordered(journal, contents, random)
        self.journal = []
        self.has_lost = False
        for change in journal:
            first, last = change.offset, change.offset + len(change.before) - 1
            self.blocks.update(range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1))
        self.blocks = {block for block in self.blocks if self._uses(block)}
        return at_stake

    def _uses(self, block: int) -> bool:
        return bool(self.data[block << BLOCK_BITS : (block + 1) << BLOCK_BITS].strip(b"\0"))

    def _contents(self) -> list[tuple[int, bytes]]:
        """Return size and bytes that each change of the journal made, the file left as it is."""
        saved, size = bytes(self.data), self.size
        contents = self._undo()
        self.data[:] = saved
        self.size = size
        return contents

    def _undo(self) -> list[tuple[int, bytes]]:
        """Undo the whole journal; returns the size and the bytes that each change had made."""
        data = self.data
        contents: list[tuple[int, bytes]] = []
        for change in reversed(self.journal):
            offset, before = change.offset, change.before
            end = offset + len(before)
            contents.append((self.size, bytes(data[offset:end])))
            data[offset:end] = before
            self.size = change.size_before
        contents.reverse()
        return contents

    def _apply_torn(
        self, journal: list[Change], contents: list[tuple[int, bytes]], random: Random
    ) -> None:
        whole = random.randint(0, len(journal))
        for change, (size, content) in zip(journal[:whole], contents[:whole], strict=True):
            self.data[change.offset : change.offset + len(content)] = content
            self.size = size
        if whole < len(journal):
            change, (_, content) = journal[whole], contents[whole]
            cuts = [start - change.offset for start, _ in _sectors(change.offset, len(content))]
            cut = random.choice(cuts) if cuts else 0
            self.data[change.offset : change.offset + cut] = content[:cut]

    def _apply_reordered(
        self, journal: list[Change], contents: list[tuple[int, bytes]], random: Random
    ) -> None:
        pieces: dict[int, list[tuple[int, bytes]]] = {}
        for change, (_, content) in zip(journal, contents, strict=True):
            for start, end in _sectors(change.offset, len(content)):
                piece = content[start - change.offset : end - change.offset]
                pieces.setdefault(start // SECTOR_BYTES, []).append((start, piece))
        for changes in pieces.values():
            for start, piece in changes[: random.randint(0, len(changes))]:
                self.data[start : start + len(piece)] = piece
        sizes = [self.size, *(size for size, _ in contents)]
        self.size = random.choice(sizes)
        self.data[self.size :] = bytes(len(self.data) - self.size)


def _number(change: Change) -> int:
    return change.number


def _sectors(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where a range begins and ends within each sector it touches."""
    end = offset + size
    while offset < end:
        stop = min(end, offset - offset % SECTOR_BYTES + SECTOR_BYTES)
        yield offset, stop
        offset = stop


def _patched(change: Change, offset: int, content: bytes) -> Change:
    """Return the change with ``content`` at ``offset`` as part of what was there before it."""
    start = max(offset, change.offset)
    end = min(offset + len(content), change.offset + len(change.before))
    if start >= end:
        return change
    before = bytearray(change.before)
    before[start - change.offset : end - change.offset] = content[start - offset : end - offset]
    return replace(change, before=bytes(before))
