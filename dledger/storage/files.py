"""The files of ``data/`` and ``index/`` that a start finds."""

from dledger.segments.places import is_segment_name
from dledger.segments.row import Segments
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError


def open_segments(disk: Disk, directory: str, segment_bytes: int) -> Segments:
    """Make the directory if it is missing, and open all of its files; other names are left alone.

    Errors: `FatalError` for a gap in the row or a file of another size; `OSError`.
    """
    disk.make_directories(directory)
    start = end = 0
    for name in filter(is_segment_name, disk.names(directory)):
        base = int(name)
        if start == end:
            start = end = base
        if base != end or base % segment_bytes:
            raise FatalError(
                f"{directory}/{name} does not follow on its neighbours: expected a file at"
                f" {end}, in segments of {segment_bytes} bytes"
            )
        end += segment_bytes
    return Segments(disk, directory, segment_bytes, range(start, end, segment_bytes))
