"""Takes away what a broker had written and not synced, as a loss of power does.

The library (`unsynced.c`) notes in a journal, before each change of a file, what it replaces, and
after each sync up to which note that reached. Once the process is killed, its writes are in the
page cache; `lose_power` puts back what no sync had reached, wholly or in part.

A note, native order, signed 64 bits each: kind (1 zeros were there, 2 the bytes that follow,
3 a sync, 4 a file that is empty and begins anew, 5 a sync of all files), device and inode of the
file, offset (of a sync: notes before that place of the journal are durable), length, size of the
file before. The bytes that were there follow where the kind is 2.

Names count as synced: a file that was made, renamed or removed stays so.
Source: spec/proof.md D1, D2, D4.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from chaos.generator import Stream

_NOTE: Final = struct.Struct("=6q")
_ZEROS, _BYTES, _SYNC, _FRESH, _SYNC_ALL = 1, 2, 3, 4, 5
SECTOR: Final = 512
_PIECE: Final = 1 << 20


class Loss(Enum):
    """What becomes of writes that no sync had reached; the simulator's disks know the same."""

    LOST = "lost"
    """None arrived."""
    TORN = "torn"
    """Of each file they arrived in order up to one, and that up to a sector."""
    REORDERED = "reordered"
    """Each sector has any number of those that changed it, in their order."""


class Change(NamedTuple):
    """One change of a file that no sync had reached."""

    offset: int
    length: int
    """How many bytes were there before."""
    before: bytes | None
    """They; None for zeros."""
    size_before: int

    def part(self, begin: int, end: int) -> bytes:
        """Return what was there between two places of the file."""
        if self.before is None:
            return bytes(end - begin)
        return self.before[begin - self.offset : end - self.offset]


FileId = tuple[int, int]


def unsynced_changes(journal: Path, end: int) -> dict[FileId, list[Change]]:
    """Return the changes of each file that no sync had reached, oldest first.

    ``end``: how many bytes of the journal count. Errors: ValueError for what is no journal.
    """
    noted: dict[FileId, list[tuple[int, Change]]] = {}
    for at, kind, file, change in _notes(journal, end):
        changes = noted.setdefault(file, [])
        if kind == _FRESH:
            changes.clear()
        elif kind in {_SYNC, _SYNC_ALL}:
            for reached in noted.values() if kind == _SYNC_ALL else (changes,):
                reached[:] = [one for one in reached if one[0] >= change.offset]
        else:
            changes.append((at, change))
    return {file: [change for _, change in changes] for file, changes in noted.items() if changes}


def _notes(journal: Path, end: int) -> Iterator[tuple[int, int, FileId, Change]]:
    if not end:
        return
    with journal.open("rb") as file:
        at = 0
        while at < end:
            head = file.read(_NOTE.size)
            if len(head) != _NOTE.size:
                raise ValueError(f"{journal} ends at {at}, before {end}")
            kind, device, inode, offset, length, size_before = _NOTE.unpack(head)
            if not _ZEROS <= kind <= _SYNC_ALL or length < 0:
                raise ValueError(f"{journal}: {at} holds no note")
            before = file.read(length) if kind == _BYTES else None
            yield at, kind, (device, inode), Change(offset, length, before, size_before)
            at += _NOTE.size + (length if before is not None else 0)


def lose_power(root: Path, journal: Path, end: int, loss: Loss, stream: Stream) -> int:
    """Take away what no sync had reached of the files below ``root``; the process is gone.

    Returns how many bytes differ now, and how much shorter or longer files are. Errors: ValueError
    for what is no journal; OSError.
    """
    differ = 0
    changed = unsynced_changes(journal, end)
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        found = path.stat()
        changes = changed.get((found.st_dev, found.st_ino))
        if changes:
            with path.open("r+b", buffering=0) as file:
                differ += _Rewinding(file.fileno()).lose(
                    changes, loss, stream.split(str(path.relative_to(root)))
                )
    return differ


class _Rewinding:
    """One file, of which changes are taken back."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._differ = 0

    def lose(self, changes: Sequence[Change], loss: Loss, stream: Stream) -> int:
        size = os.fstat(self._fd).st_size
        if loss is Loss.REORDERED:
            self._reorder(changes, stream)
            return self._differ
        kept = 0 if loss is Loss.LOST else stream.randint(0, 0, len(changes))
        for change in reversed(changes[kept:]):
            self._put_back(change, change.offset, change.offset + change.length)
        if loss is Loss.TORN and kept:
            self._tear(changes[kept - 1], stream)
        after = changes[kept].size_before if kept < len(changes) else size
        if after != size:
            os.ftruncate(self._fd, after)
        return self._differ + abs(after - size)

    def _tear(self, change: Change, stream: Stream) -> None:
        """Take back the end of the last change that arrived, from a sector on."""
        end = change.offset + change.length
        sectors = change.length // SECTOR
        if sectors:
            place = change.offset + SECTOR * stream.randint(1, 1, sectors)
            self._put_back(change, place - place % SECTOR, end)

    def _reorder(self, changes: Sequence[Change], stream: Stream) -> None:
        by_sector: dict[int, list[Change]] = {}
        for change in changes:
            last = change.offset + max(change.length, 1) - 1
            for sector in range(change.offset // SECTOR, last // SECTOR + 1):
                by_sector.setdefault(sector, []).append(change)
        for sector, of_it in by_sector.items():
            kept = stream.randint(sector, 0, len(of_it))
            for change in reversed(of_it[kept:]):
                begin = max(change.offset, sector * SECTOR)
                end = min(change.offset + change.length, (sector + 1) * SECTOR)
                if begin < end:
                    self._put_back(change, begin, end)

    def _put_back(self, change: Change, begin: int, end: int) -> None:
        for at in range(begin, end, _PIECE):
            stop = min(at + _PIECE, end)
            before = change.part(at, stop)
            now = os.pread(self._fd, stop - at, at)
            if now != before:
                self._differ += sum(a != b for a, b in zip(now, before, strict=False)) or 1
                os.pwrite(self._fd, before, at)
