"""Files of fixed size, written by ``pwrite``, read by a read-only map; small files replaced whole.

The one place that opens, writes, syncs and locks files for the log and the store. It knows nothing
of what the bytes mean. Nothing is retried here: an `OSError` passes to the caller, who alone knows
whether a full disk is an operating error (refuse sends) or a failed sync the end of the process.

Writes go through ``pwritev`` and not through a writable map, so that an error of the disk is an
error of a call and not a signal, and so that a fault-injecting preload library sees them.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import check_link, check_regular, check_small, mode_of, write_whole

Buffer = bytes | bytearray | memoryview
IOV_MAX: Final = 1024
"""Most buffers one ``pwritev`` takes on Linux."""
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of a disk that is full, or full for this user."""
NO_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors of a process or a machine that may open no more files; no sync ends with them."""
NO_SPACE: Final = FULL | NO_FILES
"""All of these: nothing was done, and it may be done later."""
SCAN_BYTES: Final = 1 << 20
"""Piece in which a file is searched for its last byte that is not zero."""
_ZEROS: Final = bytes(SCAN_BYTES)
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""Linux's; it lets other threads run meanwhile, as all calls by ctypes do."""


class DirectoryInUse(FatalError):  # noqa: N818  # says what is
    """Another process holds the lock of this directory."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is locked: the directory is in use by another process")


class Closeable(Protocol):
    """Something held until it is closed."""

    def close(self) -> None:
        """Release it; a second call does nothing."""
        ...


class File(Protocol):
    """One file of fixed size. Offsets and sizes are bytes; an `OSError` passes to the caller."""

    def pwrite(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all ``buffers`` one after the other at ``offset``; they must fit in the file.

        After an `OSError` any prefix of them may have been written.
        """
        ...

    def pread(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end of the file."""
        ...

    def view(self) -> memoryview:
        """Return the whole file as a read-only map, made at the first call."""
        ...

    def fdatasync(self) -> None:
        """Return once everything written before the call survives a loss of power."""
        ...

    def zero_from(self, offset: int) -> None:
        """Make everything from ``offset`` on read as zeros again; `fdatasync` makes it last.

        A crash meanwhile leaves zeros in any part of it. The size never changes.
        """
        ...

    def nonzero_end(self, offset: int) -> int:
        """Return the offset behind the last byte at or after ``offset`` that is not zero."""
        ...

    def close(self) -> None:
        """Close it; views that are still held stay readable."""
        ...


class Space(NamedTuple):
    """Room on a file system, in bytes."""

    free: int
    usable: int
    """All of it, but for what only root may fill."""

    @property
    def free_ratio(self) -> float:
        """The free part, 0..1."""
        return self.free / self.usable if self.usable else 1.0


class Disk(Protocol):
    """A file system. Paths are plain strings."""

    def open(self, path: str, *, size: int) -> File:
        """Open a file of exactly ``size`` bytes, or make one (sparse, its directory entry synced).

        A file that has its size has a synced directory entry, whenever a crash came.
        Errors: `FatalError` when it exists with another size; an empty file is a creation that a
        crash interrupted, and is completed.
        """
        ...

    def open_unsynced(self, path: str, *, size: int) -> File:
        """Like `open`, but what is made, directories included, is not synced.

        For files that can be made again from others; `sync_all` makes them last.
        """
        ...

    def sync_all(self, directory: str) -> None:
        """Return once all that was done below ``directory`` before survives a loss of power.

        Errors: `OSError` passes.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file, None when it does not exist.

        Errors: `FatalError` for a folder, a pipe, a device of that name, and for a huge file.
        """
        ...

    def replace(self, path: str, data: bytes | bytearray) -> None:
        """Replace a small file: after a crash it holds the old content or the new, never a mix.

        Who may read it stays as it was.
        """
        ...

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory, none when it does not exist."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file for good (the directory is synced); a missing one is no error."""
        ...

    def lock(self, path: str) -> Closeable:
        """Take the exclusive lock ``path`` (made if missing).

        Errors: `DirectoryInUse` when another process has it.
        """
        ...

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents, each entry synced.

        The first call for a directory also syncs what it holds: names that an earlier process
        made, replaced or removed, and did not live to sync. Errors: `FatalError`; `OSError` of a
        full disk passes.
        """
        ...

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, None when it does not exist.

        Errors: `FatalError` for a folder, a pipe or a device of that name.
        """
        ...

    def space(self, path: str) -> Space:
        """Return the room on the file system that holds ``path``.

        Errors: `OSError` when the system does not tell.
        """
        ...

    def boot_id(self) -> str:
        """Return what names this boot (empty: unknown): in it unsynced writes are not lost."""
        ...


class RealFile:
    """A `File` of the operating system."""

    __slots__ = ("_fd", "_view", "path", "size")

    def __init__(self, fd: int, path: str, size: int) -> None:
        self._fd = fd
        self._view: memoryview | None = None
        self.path = path
        self.size = size

    def pwrite(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all ``buffers``; see `File.pwrite`."""
        total = sum(map(len, buffers))
        assert 0 <= offset <= self.size - total, (self.path, offset, total, self.size)
        if len(buffers) <= IOV_MAX:
            written = os.pwritev(self._fd, buffers, offset)
            if written == total:
                return
        else:
            written = 0
        self._write_rest(offset + written, memoryview(b"".join(buffers))[written:])

    def _write_rest(self, offset: int, rest: memoryview) -> None:
        while rest:
            written = os.pwrite(self._fd, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "wrote nothing", self.path)
            offset += written
            rest = rest[written:]

    def pread(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes; see `File.pread`."""
        part = os.pread(self._fd, size, offset)
        if len(part) == size:
            return part
        parts: list[bytes] = []
        while part:
            parts.append(part)
            offset += len(part)
            size -= len(part)
            part = os.pread(self._fd, size, offset)
        return b"".join(parts)

    def view(self) -> memoryview:
        """Return the map of the whole file; see `File.view`."""
        if self._view is None:
            self._view = memoryview(mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ))
        return self._view

    def fdatasync(self) -> None:
        """Sync what was written; see `File.fdatasync`."""
        os.fdatasync(self._fd)

    def zero_from(self, offset: int) -> None:
        """Write zeros over what is there; see `File.zero_from`.

        Not by ``ftruncate`` to a smaller size and back: a crash in between would leave a file of
        another size, and a reader of the map would meet a bus error. That is only for a full disk
        that wants space even for what is written over (copy on write).
        """
        assert 0 <= offset <= self.size, (self.path, offset, self.size)
        try:
            for start, end in self._extents(offset):
                for position in range(start, end, SCAN_BYTES):
                    self.pwrite(position, (bytes(min(SCAN_BYTES, end - position)),))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            os.ftruncate(self._fd, offset)
            os.ftruncate(self._fd, self.size)

    def nonzero_end(self, offset: int) -> int:
        """Return where the data ends; see `File.nonzero_end`. Holes are skipped, not read."""
        for start, end in reversed(self._extents(offset)):
            position = end
            while position > start:
                begin = max(start, position - SCAN_BYTES)
                data = self.pread(begin, position - begin)
                if not _ZEROS.startswith(data):  # compared at once, not byte by byte
                    return begin + len(data.rstrip(b"\0"))
                position = begin
        return offset

    def _extents(self, offset: int) -> list[tuple[int, int]]:
        """Return the parts of the file from ``offset`` on that are no holes."""
        extents: list[tuple[int, int]] = []
        while offset < self.size:
            try:
                start = os.lseek(self._fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                raise
            offset = os.lseek(self._fd, start, os.SEEK_HOLE)
            extents.append((start, offset))
        return extents

    def close(self) -> None:
        """Close the descriptor; see `File.close`."""
        self._view = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The `Disk` of the operating system."""

    __slots__ = ("_synced", "_trees")

    def __init__(self) -> None:
        self._synced: set[str] = set()
        """Directories whose content was synced by this process."""
        self._trees: dict[str, int] = {}
        """Descriptors of directories given to `sync_all`: what fails is told to those open."""

    def open(self, path: str, *, size: int) -> File:
        """Open or make a file of fixed size; see `Disk.open`."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _set_size(fd, path, size)
        except BaseException:
            os.close(fd)
            raise
        return RealFile(fd, path, size)

    def open_unsynced(self, path: str, *, size: int) -> File:
        """Open or make a file of fixed size, nothing synced; see `Disk.open_unsynced`."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            _make_unsynced(os.path.dirname(path))
            fd = os.open(path, flags, 0o644)
        try:
            _set_size(fd, path, size, synced=False)
        except BaseException:
            os.close(fd)
            raise
        return RealFile(fd, path, size)

    def sync_all(self, directory: str) -> None:
        """Sync the whole file system, in one call; see `Disk.sync_all`."""
        fd = self._trees.get(directory)
        if fd is None:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._trees[directory] = fd
        if _syncfs is None:
            os.sync()
        elif _syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file; see `Disk.read`."""
        try:  # not blocking: a pipe of that name would wait for who writes to it
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        check_small(fd, path)
        with open(fd, "rb") as file:  # noqa: PTH123  # a descriptor, not a path
            return file.read()

    def replace(self, path: str, data: bytes | bytearray) -> None:
        """Replace a small file as a whole; see `Disk.replace`."""
        temporary = path + ".tmp"
        with _directory(os.path.dirname(path)) as directory:
            try:
                write_whole(temporary, data, mode_of(path))
                os.rename(temporary, path)  # noqa: PTH104  # paths are plain strings here
            except OSError:
                with contextlib.suppress(OSError):  # half a file takes the space that is missing
                    os.unlink(temporary)  # noqa: PTH108  # paths are plain strings here
                raise
            os.fsync(directory)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; see `Disk.names`."""
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208  # paths are plain strings here
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        """Remove a file for good; see `Disk.remove`."""
        with (
            contextlib.suppress(FileNotFoundError),
            _directory(os.path.dirname(path)) as directory,
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108  # paths are plain strings here
            # Even if it was missing: whoever removed it may not have lived to sync that.
            os.fsync(directory)

    def lock(self, path: str) -> Closeable:
        """Take an exclusive lock; see `Disk.lock`."""
        check_link(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise DirectoryInUse(path) from error
            raise
        return _Lock(fd)

    def make_directories(self, path: str) -> None:
        """Make a directory and its parents; see `Disk.make_directories`."""
        exists = os.path.isdir(path)
        if exists and path in self._synced:
            return
        parent = os.path.dirname(path)
        if exists:
            _sync_directory(path)
            with contextlib.suppress(PermissionError):  # of a directory above that is not ours
                _sync_directory(parent)
            self._synced.add(path)
            return
        if parent and parent != path:
            self.make_directories(parent)
        try:
            os.mkdir(path)  # noqa: PTH102  # paths are plain strings here
        except FileExistsError:
            check_link(path)
            return
        except OSError as error:
            if error.errno in NO_SPACE:
                raise
            code = EXIT_ENVIRONMENT if error.errno == errno.EIO else EXIT_BAD_INPUT
            raise FatalError(f"{path} cannot be made: {error.strerror}", code) from error
        _sync_directory(parent)
        self._synced.add(path)

    def size(self, path: str) -> int | None:
        """Return the size of a file; see `Disk.size`."""
        try:
            status = os.stat(path)  # noqa: PTH116  # paths are plain strings here
        except FileNotFoundError:
            return None
        check_regular(status, path)
        return status.st_size

    def boot_id(self) -> str:
        """Return Linux's name of this boot, in a container its host's; see `Disk.boot_id`."""
        return (self.read("/proc/sys/kernel/random/boot_id") or b"").decode("ascii").strip()

    def space(self, path: str) -> Space:
        """Return the room on the file system; see `Disk.space`."""
        status = os.statvfs(path)
        # As df counts: what only root may fill belongs neither to the used part nor to the free.
        usable = status.f_blocks - status.f_bfree + status.f_bavail
        return Space(status.f_bavail * status.f_frsize, usable * status.f_frsize)


class _Lock:
    """A descriptor whose closing releases the lock."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _make_unsynced(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103  # paths are plain strings here
    except (FileExistsError, NotADirectoryError) as error:
        raise FatalError(f"{path} cannot be made: {error.strerror}", EXIT_BAD_INPUT) from error


def _set_size(fd: int, path: str, size: int, *, synced: bool = True) -> None:
    status = os.fstat(fd)
    found = status.st_size
    check_regular(status, path)
    if found == 0 and not synced:
        os.ftruncate(fd, size)
    elif found == 0:
        # The entry first: who finds the file with its size relies on the entry.
        _sync_directory(os.path.dirname(path))
        os.ftruncate(fd, size)
        os.fsync(fd)
    elif found != size:
        raise FatalError(f"{path} has {found} bytes, the configured size is {size}")


@contextlib.contextmanager
def _directory(path: str) -> Iterator[int]:
    """Open a directory before something in it changes, so that the change can be synced for sure.

    Afterwards there may be no descriptor left, and what was done would be told as not done.
    """
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync_directory(path: str) -> None:
    with _directory(path) as fd:
        os.fsync(fd)
