"""A row of files of equal size, named by the position of their first byte. Knows no records.

A file is made, sparse, when it is first written to; what was never written reads as zero. A row may
bound how many of its files are open: the one opened first is closed, unless it waits for a sync; so
it is for another one where the process may open no more. Views that were handed out stay readable
either way.

One thread calls everything but `Segments.sync`, `Segments.remove` and `Segments.prepare`, which may
run beside it in another. Sync and cut exclude each other.
Source: spec/disk.md 5.1; RocketMQ MappedFileQueue; DLedger MmapFileList.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple

from dledger.segments.places import pieces, segment_name
from ledgermq.runtime.disk import FULL, NO_FILES, NO_SPACE, Buffer, Disk, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

REWRITE_BYTES: Final = 1 << 20
"""How many bytes one step writes again."""


class Dropped(NamedTuple):
    """Files that a row has let go of."""

    bases: range
    files: list[File]
    """Those of them that are open."""

    def parts(self, count: int) -> "list[Dropped]":
        """Return them in parts of at most ``count`` files, in order."""
        places = range(0, len(self.bases), count)
        return [Dropped(self.bases[at : at + count], self.files[at : at + count]) for at in places]


class Segments:
    """The files in one directory; positions and sizes are bytes."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segment_bytes: int,
        found: range,
        *,
        open_max: int | None = None,
    ) -> None:
        """Take the files that were found.

        Args:
            disk: where they lie.
            directory: holds them, and exists.
            segment_bytes: the size of each.
            found: where they begin; whoever looked them up has checked names and sizes.
            open_max: how many are open at a time; None for all, which are opened now.

        Errors: `FatalError` for a file of another size; `OSError`.
        """
        self._disk = disk
        self._directory = directory
        self.segment_bytes = segment_bytes
        self._open_max = open_max
        self._open: dict[int, File] = {}
        self._dirty: dict[int, File] = {}
        self._syncing: dict[int, File] = {}
        self._sync_lock = Lock()
        self.start = found.start
        """Position of the first byte of the first file."""
        self.end = found.stop
        """Position behind the last byte of the last file."""
        if open_max is None:
            for base in found:
                self._file(base)

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
        return f"{self._directory}/{segment_name(position - position % self.segment_bytes)}"

    def describe(self, position: int) -> str:
        """Return file and offset of a position, for log lines."""
        return f"file={self.path(position)} offset={position % self.segment_bytes}"

    # Reading

    def segment_view(self, base: int) -> memoryview | None:
        """Return the whole file that begins at ``base``, None when there is none. A hot path."""
        file = self._open.get(base)
        if file is None:
            if not self.start <= base < self.end:
                return None
            file = self._file(base)
        try:
            return file.view()
        except OSError as error:  # a map holds a descriptor of its own
            if error.errno not in NO_FILES or not self._close_one(but=base):
                raise
        return file.view()

    def locate(self, position: int) -> tuple[memoryview | None, int]:
        """Return the whole file that holds ``position``, None for none, and the offset in it."""
        offset = position % self.segment_bytes
        return self.segment_view(position - offset), offset

    def view(self, position: int, size: int) -> memoryview:
        """Return bytes of one file, not copied. Errors: `LookupError` when no file holds them."""
        view, offset = self.locate(position)
        if view is None:
            raise LookupError(position)
        return view[offset : offset + size]

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of bytes that may lie in several files; zeros where no file is."""
        parts: list[bytes] = []
        for base, offset, count in pieces(position, size, self.segment_bytes):
            view = self.segment_view(base)
            parts.append(bytes(count) if view is None else bytes(view[offset : offset + count]))
        return b"".join(parts)

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
        """Open or make the file that begins at ``base``; and those before it lost at the end."""
        if self.is_empty:
            self.start = self.end = base
        assert base >= self.start, (base, self.start)
        while self.end <= base:
            self._open_at(self.end)
            self.end += self.segment_bytes
        return self._file(base)

    def prepare(self, base: int) -> None:
        """Make the file that will be needed next, in any thread: that waits for the disk.

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

    def rewrite(self, position: int, end: int) -> dict[str, OSError]:
        """Write again what lies between, as it is, so that the next sync covers it.

        After a failed sync the kernel takes the pages for clean: they are read as they were
        written, a later sync returns at once, and a loss of power takes them away all the same.
        The zeros at the end of a file are not written: a file that ended was filled no further.

        Returns the paths of files left as they are, because the file system wants space for
        what is written over and has none. `OSError` passes otherwise.
        """
        refused: dict[str, OSError] = {}
        for base, offset, size in pieces(position, end - position, self.segment_bytes):
            if self.start <= base < self.end:
                try:
                    self._rewrite_in(base, offset, offset + size)
                except OSError as error:
                    if error.errno not in FULL:
                        raise
                    refused[self.path(base)] = error
        return refused

    def _rewrite_in(self, base: int, offset: int, end: int) -> None:
        file = self._dirty[base] = self._file(base)
        if end == self.segment_bytes:
            end = file.nonzero_end(offset)
        for at in range(offset, end, REWRITE_BYTES):
            file.pwrite(at, (file.pread(at, min(REWRITE_BYTES, end - at)),))

    # Cutting and dropping

    def cut(self, position: int) -> None:
        """Make everything from ``position`` on zero, for good: it survives a loss of power.

        Later files are removed, the last one first; the file that holds ``position`` stays.
        `OSError` passes.
        """
        with self._sync_lock:
            for base in reversed(self.bases):
                if base > position or (base == position and base != self.start):
                    self._remove_last(base)
                elif base + self.segment_bytes > position:
                    file = self._file(base)
                    file.zero_from(position - base)
                    file.fdatasync()

    def clear(self) -> None:
        """Remove all files, the last one first. `OSError` passes."""
        with self._sync_lock:
            for base in reversed(self.bases):
                self._remove_last(base)
        self.start = self.end = 0

    def _remove_last(self, base: int) -> None:
        self._close(base)
        self._disk.remove(self.path(base))
        self.end = base

    def drop_below(self, position: int) -> Dropped:
        """Let go of the files that end at or before ``position``; `remove` takes them away.

        One that is being synced may be among them: nobody needs it durable any more.
        """
        end = min(position, self.end)
        bases = range(self.start, end - self.segment_bytes + 1, self.segment_bytes)
        files: list[File] = []
        for base in bases:
            self._dirty.pop(base, None)
            file = self._open.pop(base, None)
            if file is not None:
                files.append(file)
        self.start += len(bases) * self.segment_bytes
        if self.is_empty:
            self.start = self.end = 0
        return Dropped(bases, files)

    def remove(self, dropped: Dropped) -> None:
        """Remove files that were let go of, in order. In any thread; `OSError` passes."""
        with self._sync_lock:  # a sync that is under way may still hold one
            for file in dropped.files:
                file.close()
        for base in dropped.bases:
            self._disk.remove(self.path(base))

    # Syncs

    def take_dirty(self) -> dict[int, File]:
        """Return the files written to since the last call; to be given to `sync`."""
        dirty, self._dirty = self._dirty, {}
        self._syncing.update(dirty)
        return dirty

    def sync(self, files: Mapping[int, File]) -> None:
        """Make durable what was written before `take_dirty`. In any thread; `OSError` passes.

        Files that were removed in the meantime need no sync.
        """
        with self._sync_lock:
            for base, file in files.items():
                if self._open.get(base) is file:
                    file.fdatasync()
                self._syncing.pop(base, None)

    def sync_from(self, position: int) -> None:
        """Sync every file that reaches beyond ``position``, written to or not. `OSError` passes."""
        with self._sync_lock:
            for base in self.bases:
                if base + self.segment_bytes > position:
                    self._file(base).fdatasync()
                    self._dirty.pop(base, None)

    def close(self) -> None:
        """Close all files; views that are still held stay readable."""
        with self._sync_lock:
            for base in list(self._open):
                self._close(base)
            self._syncing.clear()

    # Open files

    def _file(self, base: int) -> File:
        return self._open.get(base) or self._open_at(base)

    def _open_at(self, base: int) -> File:
        self.make_room()
        path = self.path(base)
        try:
            file = self._disk.open(path, size=self.segment_bytes)
        except OSError as error:  # another one may go for it
            if error.errno not in NO_FILES or not self._close_one():
                raise
            file = self._disk.open(path, size=self.segment_bytes)
        self._open[base] = file
        return file

    def make_room(self) -> None:
        """Close the files that were opened first, of those that nobody waits for, as bounded."""
        while self._open_max is not None and len(self._open) >= self._open_max:
            if not self._close_one():
                return

    def _close_one(self, but: int = -1) -> bool:
        """Close the file that was opened first, of those that nobody waits for, if there is one."""
        kept = (self.end - self.segment_bytes, but)
        for base in self._open:
            if base not in kept and base not in self._dirty and base not in self._syncing:
                self._close(base)
                return True
        return False

    def _close(self, base: int) -> None:
        self._dirty.pop(base, None)
        file = self._open.pop(base, None)
        if file is not None:
            file.close()
