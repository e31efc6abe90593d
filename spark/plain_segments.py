"""Files of RocketMQ's plain commit log as columns: the logs of masters and slaves.

As `spark.segments` does it for DLedger's, of whose records these consist: walked once by their
sizes, then read in columns. Here no header stands before a record, and an entry is named by the
position of its last byte. Knows no files and no Spark.

Source: spec/wire.md 4.1; spec/disk.md 7.2.
"""

import struct
from typing import Final
from zlib import crc32

import numpy as np

from spark.segments import (
    COLUMNS,
    RECORD_BYTES_MIN,
    V1,
    V2,
    Columns,
    Walk,
    read_records,
)

STEP: Final = struct.Struct(">iI")
BLANK: Final = 0xCBD43194
TERM: Final = 1


def walk_plain(
    data: memoryview, base: int, end_index: int | None, begin: int = 0, stop: int | None = None
) -> Walk:
    """Follow the sizes to the blank, to zeros, to the known end, or to what makes no sense.

    Only from ``begin`` on, where a record begins, and only of what begins before ``stop``.
    """
    found = Walk([])
    at, size_of = begin, STEP.unpack_from
    limit = len(data) if stop is None else stop
    while at < limit and at + STEP.size <= len(data):
        if end_index is not None and base + at > end_index:
            found.met_end = True
            break
        size, magic = size_of(data, at)
        if size == 0 and magic == 0:
            break
        if magic == BLANK and size >= STEP.size:
            found.starts.append(at)
            break
        if magic not in {V1, V2} or not RECORD_BYTES_MIN <= size <= len(data) - at:
            found.broken_at = at
            break
        found.starts.append(at)
        at += size
    found.seen = at + STEP.size
    return found


def span_plain(data: memoryview, at: int) -> int:
    """Return how many bytes of the record at a place mean something."""
    size, magic = STEP.unpack_from(data, at)
    return STEP.size if magic == BLANK else int(size)


def decode_plain(data: memoryview, base: int, starts: list[int]) -> Columns:
    """Return the records that begin at ``starts``, which `walk_plain` has found, as columns."""
    sizes = [STEP.unpack_from(data, at)[0] for at in starts]
    blank = bool(starts) and STEP.unpack_from(data, starts[-1])[1] == BLANK
    count = len(starts) - blank
    columns = read_records(
        data, base, np.array(starts[:count], np.int64), np.array(sizes[:count], np.int64)
    )
    if blank:
        for name in columns:
            columns[name].append(None)
        columns["type"][-1], columns["crc_ok"][-1] = "noop", True
    columns["entry_crc"] = [crc32(data[at : at + span_plain(data, at)]) for at in starts]
    columns["size"] = sizes
    columns["pos"] = [base + at for at in starts]
    columns["index"] = [base + at + size - 1 for at, size in zip(starts, sizes, strict=True)]
    columns["term"] = [TERM] * len(starts)
    return {name: columns[name] for name in COLUMNS}
