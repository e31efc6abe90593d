"""The files that a start finds in the directory of a plain CommitLog: what counts, what is refused.

Source: spec/disk.md 5.1; RocketMQ MappedFileQueue.load.
"""

import logging
from typing import Final

from dledger.segments.places import is_segment_name, segment_name
from dledger.segments.row import Segments
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError
from store.plain.config import PlainLogConfig

IGNORED_NAMES: Final = frozenset({"lost+found"})
"""What a file system puts into the root of a volume."""

_log: Final = logging.getLogger(__name__)


def open_segments(disk: Disk, config: PlainLogConfig) -> Segments:
    """Make the directory if it is missing, and find its files; a few are open at a time.

    Errors: `FatalError` for a gap in the row, a file of another size or a stranger; `OSError`.
    """
    directory, segment_bytes = config.directory, config.segment_bytes
    disk.make_directories(directory)
    start = end = 0
    for name, size in _found(disk, directory):
        base = _check_found(f"{directory}/{name}", name, size, segment_bytes)
        if start == end:
            start = end = base
        if base != end:
            raise FatalError(
                f"{directory}: a file is missing: {segment_name(end)} should come before {name};"
                f" put it back, or move away the files on one side of the gap"
            )
        end = base + segment_bytes
    found = range(start, end, segment_bytes)
    return Segments(disk, directory, segment_bytes, found, open_max=config.open_segments_max)


def _found(disk: Disk, directory: str) -> list[tuple[str, int]]:
    """Return names and sizes; empty files at the end, which a crash left, are removed."""
    names = [name for name in disk.names(directory) if name not in IGNORED_NAMES]
    sizes = [(name, disk.size(f"{directory}/{name}") or 0) for name in names]
    while sizes and not sizes[-1][1] and is_segment_name(sizes[-1][0]):
        # Its making was interrupted before anything could be written to it.
        name = sizes.pop()[0]
        _log.warning("event=empty_segment_removed file=%s/%s", directory, name)
        disk.remove(f"{directory}/{name}")
    return sizes


def _check_found(path: str, name: str, size: int, segment_bytes: int) -> int:
    """Return the position that a file is named by. Errors: `FatalError`."""
    if not is_segment_name(name):
        raise FatalError(f"{path} is not a segment of a commit log: move it out of the directory")
    if size != segment_bytes:
        raise FatalError(
            f"{path} has {size} bytes, mappedFileSizeCommitLog is {segment_bytes}: set it"
            f" to the size that the files were made with, or restore the file"
        )
    base = int(name)
    if base % segment_bytes:
        raise FatalError(
            f"{path}: {base} is not a multiple of mappedFileSizeCommitLog, {segment_bytes}:"
            f" was the log written with another size?"
        )
    return base
