"""The files of a plain CommitLog: equal in size, named by their first byte. Knows no records.

A segment is made, sparse, when it is first written to; what was never written reads as zero. Only
some are open at a time: a segment is opened when it is looked at, and closed when others push it
out, unless it waits for a sync. Views that were handed out stay readable either way.

All calls come from one thread but `sync`, which may run in another beside them.
Source: spec/disk.md 5.1; RocketMQ MappedFileQueue.load, MappedFileQueue.truncateDirtyFiles.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from ledgermq.runtime.disk import NO_SPACE, Buffer, Disk, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

NAME_DIGITS: Final = 20
IGNORED_NAMES: Final = frozenset({"lost+found"})
"""What a file system puts into the root of a volume."""
COPY_BYTES: Final = 1 << 20

_log: Final = logging.getLogger(__name__)


class Segments:
    """The files in one directory; positions and sizes are bytes."""

    def __init__(self, disk: Disk, directory: str, segment_bytes: int, open_max: int) -> None:
        """Find what is there.

        Errors: `FatalError` for a gap in the row, a file of another size or a stranger; `OSError`.
        """
        self._disk = disk
        self._directory = directory
        self.segment_bytes = segment_bytes
        self._open_max = open_max
        self._open: dict[int, File] = {}
        self._views: dict[int, memoryview] = {}
        self._dirty: dict[int, File] = {}
        self._syncing: Mapping[int, File] = {}
        self.start = 0
        """Position of the first byte of the first file."""
        self.end = 0
        """Position behind the last byte of the last file."""
        disk.make_directories(directory)
        self._find()

    def _find(self) -> None:
        names = [name for name in self._disk.names(self._directory) if name not in IGNORED_NAMES]
        sizes = [(name, self._disk.size(f"{self._directory}/{name}") or 0) for name in names]
        while sizes and not sizes[-1][1] and _is_segment_name(sizes[-1][0]):
            # Its making was interrupted before anything could be written to it.
            name = sizes.pop()[0]
            _log.warning("event=empty_segment_removed file=%s/%s", self._directory, name)
            self._disk.remove(f"{self._directory}/{name}")
        for number, (name, size) in enumerate(sizes):
            base = self._check_found(name, size)
            if number == 0:
                self.start = self.end = base
            if base != self.end:
                raise FatalError(
                    f"{self._directory}: a file is missing: {self._name(self.end)} should come"
                    f" before {name}; put it back, or move away the files on one side of the gap"
                )
            self.end = base + self.segment_bytes

    def _check_found(self, name: str, size: int) -> int:
        """Return the position that a file is named by. Errors: `FatalError`."""
        path = f"{self._directory}/{name}"
        if not _is_segment_name(name):
            raise FatalError(f"{path} is no segment of a commit log: move it out of the directory")
        if size != self.segment_bytes:
            raise FatalError(
                f"{path} has {size} bytes, mappedFileSizeCommitLog is {self.segment_bytes}: set it"
                f" to the size that the files were made with, or restore the file"
            )
        base = int(name)
        if base % self.segment_bytes:
            raise FatalError(
                f"{path}: {base} is no multiple of mappedFileSizeCommitLog, {self.segment_bytes}:"
                f" was the log written with another size?"
            )
        return base

    @property
    def is_empty(self) -> bool:
        """Whether there is no file."""
        return self.end == self.start

    @property
    def bases(self) -> range:
        """Positions at which the files begin."""
        return range(self.start, self.end, self.segment_bytes)

    @property
    def open_count(self) -> int:
        """How many files are open."""
        return len(self._open)

    def path(self, position: int) -> str:
        """Return the path of the file that holds ``position``."""
        return f"{self._directory}/{self._name(position - position % self.segment_bytes)}"

    def describe(self, position: int) -> str:
        """Return file and offset of a position, for log lines."""
        return f"file={self.path(position)} offset={position % self.segment_bytes}"

    # Reading

    def segment_view(self, base: int) -> memoryview | None:
        """Return the whole file that begins at ``base``, None when there is none."""
        view = self._views.get(base)
        if view is None and self.start <= base < self.end:
            view = self._views[base] = self._file(base).view()
        return view

    def peek(self, base: int, size: int) -> bytes:
        """Return the first bytes of a file, without keeping it open."""
        file = self._open.get(base)
        if file is not None:
            return file.pread(0, size)
        file = self._disk.open(self.path(base), size=self.segment_bytes)
        try:
            return file.pread(0, size)
        finally:
            file.close()

    def nonzero_end(self, position: int) -> int:
        """Return the position behind the last byte at or after ``position`` that is not zero."""
        for base in reversed(self.bases):
            if base + self.segment_bytes <= position:
                break
            offset = max(0, position - base)
            end = self._file(base).nonzero_end(offset)
            if end > offset:
                return base + end
        return position

    # Writing

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write buffers side by side at ``position``, all in one file. `OSError` passes."""
        offset = position % self.segment_bytes
        base = position - offset
        file = self._open.get(base) or self._file_to_write(base)
        self._dirty[base] = file
        file.pwrite(offset, buffers)

    def _file_to_write(self, base: int) -> File:
        if self.is_empty:
            self.start = self.end = base
        assert base <= self.end, (base, self.end)
        if base < self.end:
            return self._file(base)
        self._make_room()
        file = self._disk.open(self.path(base), size=self.segment_bytes)
        self._open[base] = file
        self.end = base + self.segment_bytes
        return file

    def prepare(self, base: int) -> None:
        """Make the file that the log will need next, in any thread: that waits for the disk.

        It counts when it is written to; until then a start takes it for one that was made ahead.
        A full disk is met again when the file is needed. Errors: `FatalError` for any other
        failure: whoever finds the file with its size takes its name for synced.
        """
        path = self.path(base)
        try:
            self._disk.open(path, size=self.segment_bytes).close()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise FatalError(f"{path} cannot be made: {error}", EXIT_ENVIRONMENT) from error

    def write_again(self, start: int, end: int) -> None:
        """Write what is there once more, so that the next sync makes it durable for sure.

        A file system that wants space for that and has none leaves it as it is.
        `OSError` passes otherwise.
        """
        for base in self.bases:
            if base + self.segment_bytes <= start or base >= end:
                continue
            file = self._file(base)
            offset = max(0, start - base)
            stop = end - base
            if stop >= self.segment_bytes:
                stop = file.nonzero_end(offset)
            try:
                for piece in range(offset, stop, COPY_BYTES):
                    file.pwrite(piece, (file.pread(piece, min(COPY_BYTES, stop - piece)),))
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                _log.warning("event=not_written_again file=%s error=%s", self.path(base), error)

    def cut(self, position: int) -> None:
        """Make everything from ``position`` on zero, for good: it survives a loss of power.

        Later files are removed, the last one first; the file that holds ``position`` stays.
        `OSError` passes.
        """
        for base in reversed(self.bases):
            if base > position or (base == position and base != self.start):
                self._close(base)
                self._disk.remove(self.path(base))
                self.end = base
            elif base + self.segment_bytes > position:
                file = self._file(base)
                file.zero_from(position - base)
                file.fdatasync()

    def drop_before(self, position: int) -> list[str]:
        """Let go of the files that end at or before ``position``; return their paths, to remove.

        The last file stays, and so does one that is being synced with all behind it.
        """
        dropped: list[str] = []
        limit = min(position, self.end - self.segment_bytes)
        while self.start + self.segment_bytes <= limit and self.start not in self._syncing:
            dropped.append(self.path(self.start))
            self._close(self.start)
            self.start += self.segment_bytes
        return dropped

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files that were let go of, in order. In any thread; `OSError` passes."""
        for path in paths:
            self._disk.remove(path)

    # Syncs

    def take_dirty(self) -> Mapping[int, File]:
        """Return the files written to since the last call; to be given to `sync`, then `synced`."""
        assert not self._syncing, "one sync at a time"
        self._syncing, self._dirty = self._dirty, {}
        return self._syncing

    @staticmethod
    def sync(files: Mapping[int, File]) -> None:
        """Make durable what was written before `take_dirty`. In any thread; `OSError` passes."""
        for file in files.values():
            file.fdatasync()

    def synced(self) -> None:
        """Take that the sync under way has returned."""
        self._syncing = {}
        self._make_room()

    def sync_from(self, position: int) -> None:
        """Sync every file that reaches beyond ``position``, written to or not. `OSError` passes."""
        for base in self.bases:
            if base + self.segment_bytes > position:
                self._file(base).fdatasync()

    def close(self) -> None:
        """Close all files; views that are still held stay readable."""
        for base in list(self._open):
            self._close(base)
        self._syncing = {}

    def _file(self, base: int) -> File:
        file = self._open.get(base)
        if file is None:
            self._make_room()
            file = self._disk.open(self.path(base), size=self.segment_bytes)
            self._open[base] = file
        return file

    def _make_room(self) -> None:
        """Close the file that was opened first, of those that nobody waits for."""
        last = self.end - self.segment_bytes
        while len(self._open) >= self._open_max:
            for base in self._open:
                if base != last and base not in self._dirty and base not in self._syncing:
                    self._close(base)
                    break
            else:
                return

    def _close(self, base: int) -> None:
        self._views.pop(base, None)
        self._dirty.pop(base, None)
        file = self._open.pop(base, None)
        if file is not None:
            file.close()

    @staticmethod
    def _name(base: int) -> str:
        return f"{base:0{NAME_DIGITS}}"


def _is_segment_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
