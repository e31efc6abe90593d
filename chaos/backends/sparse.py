"""Copying preallocated files: only up to the last byte that was ever written.

Source: lseek(2), SEEK_DATA and SEEK_HOLE; a file system without holes gives the whole file.
"""

import errno
import os
from pathlib import Path

CHUNK_BYTES = 1 << 20


def used_bytes(path: Path) -> int:
    """Return the end of the last data extent of a file; trailing zeros of it are not counted."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        end = at = 0
        while extent := _next_extent(fd, at, size):
            at = end = extent[1]
        return _without_zeros(fd, end)
    finally:
        os.close(fd)


def _next_extent(fd: int, at: int, size: int) -> tuple[int, int] | None:
    """Return where the next bytes that were written begin and end; None: only a hole is left."""
    if at >= size:
        return None
    try:
        start = os.lseek(fd, at, os.SEEK_DATA)
        return start, os.lseek(fd, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return at, size  # this file system knows of no holes


def _without_zeros(fd: int, end: int) -> int:
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        kept = len(os.pread(fd, end - start, start).rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0


def copy_extents(source: str, target: str) -> str:
    """Copy a file with its holes, as `shutil.copytree` wants it; return the target."""
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        end = 0
        while extent := _next_extent(reader.fileno(), end, size):
            start, end = extent
            for at in range(start, end, CHUNK_BYTES):
                piece = os.pread(reader.fileno(), min(CHUNK_BYTES, end - at), at)
                os.pwrite(writer.fileno(), piece, at)
    return target


def copy_used_prefix(source: Path, target: Path) -> int:
    """Copy what was written of ``source``, plus one zero page; return the bytes copied.

    The page lets a decoder that reads ahead see that nothing follows; an entry may also end in
    zero bytes of its own.
    """
    size = min(used_bytes(source) + 4096, source.stat().st_size)
    with source.open("rb") as reader, target.open("wb") as writer:
        left = size
        while left and (chunk := reader.read(min(left, CHUNK_BYTES))):  # it may have been cut
            writer.write(chunk)
            left -= len(chunk)
    return size - left
