"""A row of files of equal size, named by the position of their first byte. Knows no entries.

Files are made when they are first written to, sparse; what was never written reads as zero.
Writing marks a file dirty, and `sync` makes everything written before the call durable. One thread
writes; `sync` and `cut` may run in another, and exclude each other.
"""

from collections.abc import Mapping, Sequence
from threading import Lock

from ledgermq.runtime.disk import Buffer, Disk, File
from ledgermq.runtime.errors import FatalError

NAME_DIGITS = 20
REWRITE_BYTES = 1 << 20
"""How many bytes one step writes again."""


class Segments:
    """The files of ``data/`` or ``index/``; positions and sizes are bytes."""

    def __init__(self, disk: Disk, directory: str, segment_bytes: int) -> None:
        """Open what is there.

        Errors: `FatalError` for a gap in the row or a file of another size.
        """
        self._disk = disk
        self._directory = directory
        self.segment_bytes = segment_bytes
        self._files: dict[int, File] = {}
        self._dirty: dict[int, File] = {}
        self._sync_lock = Lock()
        disk.make_directories(directory)
        for name in disk.names(directory):
            if len(name) == NAME_DIGITS and name.isdigit():
                self._open_found(name)

    def _open_found(self, name: str) -> None:
        base = int(name)
        expected = self.end if self._files else base
        if base != expected or base % self.segment_bytes:
            raise FatalError(
                f"{self._directory}/{name} does not follow on its neighbours: expected a file at"
                f" {expected}, in segments of {self.segment_bytes} bytes"
            )
        self._files[base] = self._disk.open(self.path(base), size=self.segment_bytes)

    @property
    def is_empty(self) -> bool:
        """Whether there is no file yet."""
        return not self._files

    @property
    def start(self) -> int:
        """Position of the first byte of the first file."""
        return next(iter(self._files), 0)

    @property
    def end(self) -> int:
        """Position behind the last byte of the last file."""
        return max(self._files) + self.segment_bytes if self._files else 0

    @property
    def bases(self) -> list[int]:
        """Positions at which the files begin, in order."""
        return list(self._files)

    def path(self, position: int) -> str:
        """Return the path of the file that holds ``position``."""
        base = position - position % self.segment_bytes
        return f"{self._directory}/{base:0{NAME_DIGITS}}"

    def write(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write buffers side by side at ``position``, all in one file. `OSError` passes."""
        offset = position % self.segment_bytes
        base = position - offset
        file = self._files.get(base)
        if file is None:
            file = self._make(base)
        self._dirty[base] = file
        file.pwrite(offset, buffers)

    def _make(self, base: int) -> File:
        """Make the file that begins at ``base``, and those before it that were lost at the end."""
        assert base >= self.end or not self._files, (base, self.end)
        for start in range(self.end if self._files else base, base + 1, self.segment_bytes):
            self._files[start] = self._disk.open(self.path(start), size=self.segment_bytes)
        return self._files[base]

    def view(self, position: int, size: int) -> memoryview:
        """Return bytes of one file, not copied.

        Errors: `KeyError` when no file holds the position.
        """
        offset = position % self.segment_bytes
        return self._files[position - offset].view()[offset : offset + size]

    def segment_view(self, base: int) -> memoryview | None:
        """Return the whole file that begins at ``base``, None when there is none."""
        file = self._files.get(base)
        return None if file is None else file.view()

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of bytes that may lie in several files; zeros where no file is."""
        parts: list[bytes] = []
        while size > 0:
            offset = position % self.segment_bytes
            count = min(size, self.segment_bytes - offset)
            file = self._files.get(position - offset)
            parts.append(bytes(count) if file is None else bytes(file.view()[offset:][:count]))
            position += count
            size -= count
        return b"".join(parts)

    def nonzero_end(self, position: int) -> int:
        """Return the position behind the last byte at or after ``position`` that is not zero."""
        for base in sorted(self._files, reverse=True):
            if base + self.segment_bytes > position:
                offset = max(0, position - base)
                end = self._files[base].nonzero_end(offset)
                if end > offset:
                    return base + end
        return position

    def cut(self, position: int) -> None:
        """Make everything from ``position`` on zero, for good: it survives a loss of power.

        Later files are removed. The file that holds ``position`` stays.
        """
        with self._sync_lock:
            for base in sorted(self._files, reverse=True):
                file = self._files[base]
                if base > position or (base == position and base != self.start):
                    del self._files[base]
                    self._dirty.pop(base, None)
                    file.close()
                    self._disk.remove(self.path(base))
                elif base + self.segment_bytes > position:
                    file.zero_from(position - base)
                    file.fdatasync()

    def detach_below(self, position: int) -> dict[int, File]:
        """Let go of the files that end at or before ``position``; they are given to `remove`."""
        detached = {
            base: file
            for base, file in self._files.items()
            if base + self.segment_bytes <= position
        }
        for base in detached:
            del self._files[base]
            self._dirty.pop(base, None)
        return detached

    def remove(self, detached: Mapping[int, File]) -> None:
        """Remove files that were let go of, the first one first. `OSError` passes."""
        for base in sorted(detached):
            with self._sync_lock:  # a sync that is under way may still hold one
                detached[base].close()
            self._disk.remove(self.path(base))

    def clear(self) -> None:
        """Remove all files, the last one first. `OSError` passes."""
        with self._sync_lock:
            for base in sorted(self._files, reverse=True):
                self._files.pop(base).close()
                self._disk.remove(self.path(base))
            self._dirty.clear()

    def take_dirty(self) -> dict[int, File]:
        """Return the files written to since the last call; to be given to `sync`."""
        dirty, self._dirty = self._dirty, {}
        return dirty

    def sync_from(self, position: int) -> None:
        """Sync every file that reaches beyond ``position``, written to or not. `OSError` passes."""
        with self._sync_lock:
            self._dirty.clear()
            for base, file in self._files.items():
                if base + self.segment_bytes > position:
                    file.fdatasync()

    def rewrite(self, position: int, end: int) -> None:
        """Write again what lies between, as it is, so that the next sync covers it. `OSError`.

        After a failed sync the kernel takes the pages for clean: they are read as they were
        written, a later sync returns at once, and a loss of power takes them away all the same.
        """
        while position < end:
            offset = position % self.segment_bytes
            size = min(end - position, self.segment_bytes - offset, REWRITE_BYTES)
            self.write(position, (bytes(self.view(position, size)),))
            position += size

    def sync(self, files: Mapping[int, File]) -> None:
        """Sync files of `take_dirty`; those removed in the meantime need none. `OSError` passes."""
        with self._sync_lock:
            for base, file in files.items():
                if self._files.get(base) is file:
                    file.fdatasync()

    def close(self) -> None:
        """Close all files; views that are still held stay readable."""
        with self._sync_lock:
            for file in self._files.values():
                file.close()
            self._files.clear()
            self._dirty.clear()
