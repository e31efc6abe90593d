"""Read-only access to the files of a store: rows of numbered files, bytes read through a window.

The only module here that touches the disk; it opens nothing for writing and follows no pipe or
device. It knows sizes and names, no format. Bytes are read with ``pread``, not mapped, so that a
sector that cannot be read, or a file that is cut meanwhile, is an error with a place and no signal.
"""

import contextlib
import errno
import os
import stat
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from ledgermq.runtime.printable import shown

NAME_DIGITS: Final = 20
POSITION_MAX: Final = 2**63 - 1
WINDOW_BYTES: Final = 1 << 20
BLOCK_BYTES: Final = 512
"""What ``st_blocks`` counts."""
NAMES_MAX: Final = 2_000_000
"""Most names that are read of one directory."""


class ReadError(Exception):
    """Bytes that the disk did not give."""

    def __init__(self, path: str, offset: int, cause: OSError) -> None:
        super().__init__(f"{shown(path)} offset {offset}: {cause.strerror or cause}")
        self.path = path
        self.offset = offset
        self.reason = cause.strerror or str(cause)


class StoreFile:
    """One regular file, open for reading; the last bytes read are kept."""

    __slots__ = ("_fd", "_start", "_window", "path", "size")

    def __init__(self, path: str) -> None:
        """Open it. Errors: `ReadError`, also for what is no regular file."""
        self.path = path
        self._window = memoryview(b"")
        self._start = 0
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise ReadError(path, 0, _as_os_error(error)) from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise ReadError(path, 0, OSError(0, "no regular file"))
        self.size = status.st_size

    def read(self, offset: int, size: int) -> memoryview:
        """Return bytes, fewer at the end of the file. Errors: `ReadError`."""
        at = offset - self._start
        if at < 0 or at + size > len(self._window):
            wanted = min(max(size, WINDOW_BYTES), max(0, self.size - offset))
            try:
                self._window = memoryview(os.pread(self._fd, wanted, offset))
            except OSError as error:
                self._window = memoryview(b"")
                raise ReadError(self.path, offset, error) from error
            self._start, at = offset, 0
        return self._window[at : at + size]

    def forget(self) -> None:
        """Keep nothing of what was read: it may have been written over since."""
        self._window = memoryview(b"")

    def read_exact(self, offset: int, size: int) -> bytes:
        """Return bytes, fewer at the end of the file, and keep none. Errors: `ReadError`."""
        try:
            return os.pread(self._fd, size, offset)
        except OSError as error:
            raise ReadError(self.path, offset, error) from error

    @property
    def descriptor(self) -> int:
        """The open descriptor, for questions about locks."""
        return self._fd

    def data_from(self, offset: int) -> int:
        """Return where the next byte lies that was ever written; the size if there is none."""
        try:
            return os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else offset  # else it knows no holes

    def nonzero_from(self, offset: int) -> int | None:
        """Return the place of the first byte at or behind ``offset`` that is not zero."""
        while (offset := self.data_from(offset)) < self.size:
            chunk = bytes(self.read(offset, WINDOW_BYTES))
            if not chunk:
                return None
            rest = chunk.lstrip(b"\0")
            if rest:
                return offset + len(chunk) - len(rest)
            offset += len(chunk)
        return None

    def nonzero_end(self) -> int:
        """Return the place behind the last byte that is not zero."""
        end = 0
        offset = 0
        while (offset := self.data_from(offset)) < self.size:
            chunk = bytes(self.read(offset, WINDOW_BYTES))
            if not chunk:
                break
            kept = len(chunk.rstrip(b"\0"))
            if kept:
                end = offset + kept
            offset += len(chunk)
        return end

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OpenFiles:
    """Files that are open, a bounded number; the longest unused is closed."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._files: OrderedDict[str, StoreFile] = OrderedDict()

    def open(self, path: str) -> StoreFile:
        """Return the file. Errors: `ReadError`."""
        file = self._files.get(path)
        if file is None:
            file = StoreFile(path)
            self._files[path] = file
            if len(self._files) > self._limit:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(path)
        return file

    def close(self) -> None:
        """Close all."""
        for file in self._files.values():
            file.close()
        self._files.clear()


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file as the directory has it: ``base`` is the number in its name."""

    base: int
    path: str
    size: int
    allocated: int
    """Bytes that it takes on the disk."""
    modified_ms: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """The numbered files of a directory in order; each holds what begins at its number."""

    directory: str
    files: tuple[FileInfo, ...] = ()
    file_bytes: int = 0
    """Size of most of them; 0 if there are none."""
    strangers: tuple[str, ...] = field(default=())
    """Other names in the directory."""

    @property
    def start(self) -> int:
        """Number of the first file, 0 if there is none."""
        return self.files[0].base if self.files else 0

    @property
    def apparent(self) -> int:
        """Bytes that the files have in all."""
        return sum(file.size for file in self.files)

    @property
    def allocated(self) -> int:
        """Bytes that the files take in all."""
        return sum(file.allocated for file in self.files)


def read_row(directory: str) -> FileRow:
    """Return the numbered files in a directory; empty if there is no such directory."""
    files: list[FileInfo] = []
    strangers: list[str] = []
    for name in names_in(directory):
        info = None
        if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
            info = maybe_info(f"{directory}/{name}", int(name))
        if info is None or info.base > POSITION_MAX:
            strangers.append(name)
        else:
            files.append(info)
    sizes = Counter(file.size for file in files if file.size)
    common = max(sizes, key=lambda size: (sizes[size], size)) if sizes else 0
    return FileRow(directory, tuple(files), common, tuple(strangers))


def maybe_info(path: str, base: int = 0) -> FileInfo | None:
    """Return what the directory says of a regular file, None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  # paths are plain strings here
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    allocated = status.st_blocks * BLOCK_BYTES
    return FileInfo(base, path, status.st_size, allocated, status.st_mtime_ns // 1_000_000)


def names_in(directory: str) -> list[str]:
    """Return the sorted names in a directory, none if it cannot be listed."""
    try:
        return sorted(os.listdir(directory))[:NAMES_MAX]  # noqa: PTH208  # plain strings here
    except (OSError, ValueError):
        return []


def directories_in(directory: str) -> list[str]:
    """Return the names of the directories in a directory."""
    return [name for name in names_in(directory) if is_directory(f"{directory}/{name}")]


def can_list(directory: str) -> bool:
    """Tell whether the names in a directory can be read: `names_in` has none otherwise."""
    return os.access(directory, os.R_OK | os.X_OK)


def is_directory(path: str) -> bool:
    """Tell whether it is a directory."""
    with contextlib.suppress(ValueError):
        return os.path.isdir(path)
    return False


def read_small(path: str, limit: int) -> bytes | None:
    """Return a whole file, None if there is none. Errors: `ReadError`, also for a larger one."""
    if maybe_info(path) is None:
        return None
    file = StoreFile(path)
    try:
        if file.size > limit:
            raise ReadError(path, limit, OSError(0, f"{file.size} bytes, more than it can have"))
        return file.read_exact(0, file.size)
    finally:
        file.close()


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(0, str(error))
