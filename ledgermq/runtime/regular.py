"""What of a directory is a file of ours to read: regular, and no larger than anybody wrote it.

A directory may come from others: pipes, devices, folders and huge sparse files under the names of
ours are refused before anything waits for them or takes memory. So are those that settings name.
What is written anew goes neither through a link nor into a pipe.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

from ledgermq.runtime.errors import FatalError

NEW_MODE: Final = 0o644
READ_BYTES_MAX: Final = 640 * 1024**2
"""Of a small file: more than a snapshot may have, and less than a machine has memory."""


def check_regular(status: os.stat_result, path: str) -> None:
    """Refuse what is no file. Errors: `FatalError`."""
    if not stat.S_ISREG(status.st_mode):
        raise FatalError(f"{path} exists and is not a regular file")


def check_link(path: str) -> None:
    """Refuse a link to nothing: no file could be made by its name. Errors: `FatalError`."""
    is_link = os.path.islink(path)  # noqa: PTH114  # paths are plain strings here
    if is_link and not os.path.exists(path):
        raise FatalError(f"{path} is a link to nothing")


def check_directories(directory: str, is_ours: Callable[[str], bool]) -> list[str]:
    """Refuse what stands in a directory where one of ours must be; return the names of these.

    ``is_ours`` tells which names matter. A link to a directory is one. Nothing is opened.
    Errors: `FatalError`; `OSError`.
    """
    check_link(directory)
    found: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if is_ours(entry.name):
                    if not entry.is_dir():
                        raise FatalError(
                            f"{entry.path} exists and is not a directory: move it away"
                        )
                    found.append(entry.name)
    except FileNotFoundError:
        pass
    return found


def check_small(fd: int, path: str) -> None:
    """Close ``fd`` and refuse what is no file, or too large to be read. Errors: `FatalError`."""
    try:
        status = os.fstat(fd)
        check_regular(status, path)
        _check_size(status.st_size, path)
    except FatalError:
        os.close(fd)
        raise


REPLACED: Final = ("", ".tmp")
"""Whoever replaces a file writes the second name of it first."""
KEPT: Final = (*REPLACED, ".bak", ".bak.tmp")
"""And who keeps what was there before writes these, too."""


def check_replaced(
    size: Callable[[str], int | None], *paths: str, suffixes: Sequence[str] = REPLACED
) -> None:
    """Refuse at a start what would end the process at its first save. Errors: `FatalError`.

    ``size`` is that of a `Disk`.
    """
    for path in paths:
        for suffix in suffixes:
            try:
                if size(path + suffix) is None:
                    check_link(path + suffix)
            except OSError as error:
                raise FatalError(f"{path}{suffix} cannot be used: {error.strerror}") from error


def read_named(path: str, most: int) -> bytes:
    """Return what is in a file that a setting names, which may be anything.

    Errors: `OSError`; `ValueError` for what is no file, or has more than ``most`` bytes.
    """
    # Not blocking: a pipe would wait for who writes to it.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        with open(fd, "rb", closefd=False) as file:  # not the path: it may be another file by now
            data = file.read(most + 1)
    finally:
        os.close(fd)
    if len(data) > most:
        raise ValueError(f"larger than {most} bytes")
    return data


def _check_size(size_bytes: int, path: str) -> None:
    if size_bytes > READ_BYTES_MAX:
        raise FatalError(f"{path} has {size_bytes} bytes, more than {READ_BYTES_MAX}")


def mode_of(path: str) -> int:
    """Return who may do what with a file; `NEW_MODE` if there is none."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116  # paths are plain strings here
    except OSError:
        return NEW_MODE


def write_whole(path: str, data: bytes | bytearray, mode: int) -> None:
    """Write a file anew and sync it, whatever has its name. `OSError` passes."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    # Neither through a link into another file, nor waiting for the reader of a pipe.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        os.unlink(path)  # noqa: PTH108  # the link or the pipe, which has a name of ours
        fd = os.open(path, flags, mode)
    try:
        if mode != NEW_MODE:
            os.fchmod(fd, mode)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)
