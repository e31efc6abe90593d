"""Data segments as columns: walked once by their sizes, headers read as a matrix, then records.

Code of this job's own: the in-process checker has another decoder (`chaos.history.segment`), and a
test has both read the same bytes, sound and spoiled. Knows no files and no Spark.

Source: spec/wire.md 4.1, 4.2; spec/disk.md 6.1, 6.2.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from spark.bodies import digest, inflate, key_and_tag

ROWS_PER_BATCH: Final = 32_768
HEADER: Final = np.dtype([
    ("magic", ">i4"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8"), ("pos", ">i8"),
    ("channel", ">i4"), ("chain_crc", ">u4"), ("body_crc", ">u4"), ("body_len", ">i4"),
])  # fmt: skip
"""Before each entry."""
STEP: Final = struct.Struct(">iiq28xi")
"""Of a header what is needed to come to the next: magic, size, index, length of the body."""
LENGTH: Final = struct.Struct(">i")
RECORD: Final = np.dtype([
    ("total", ">u4"), ("magic", ">u4"), ("crc", ">u4"), ("queue_id", ">i4"), ("flag", ">i4"),
    ("queue_offset", ">i8"), ("physical", ">i8"), ("sys_flag", ">i4"),
])  # fmt: skip
"""The first fields of a record."""
SEALED_BYTES: Final = 36
"""Of a change of members' header, covered by its own CRC."""
RECORD_BYTES_MIN: Final = 91
LENGTH_AT: Final = 84
"""Of the body, where both hosts are IPv4."""
V6_BYTES: Final = 12
V1, V2 = 0xDAA320A7, 0xDAA320AB
BLANK, NOTHING, ENTRY, NOOP = -1, 0, 1, 2
COMPRESSED, HALF_MASK, HALF, ROLLED_BACK, BORN_V6, STORED_V6 = 1, 0xC, 4, 0xC, 0x10, 0x20
STATE_TOPIC: Final = b"rmq_sys_LEDGER_STATE"
COLUMNS: Final = (
    "index", "term", "pos", "entry_crc", "size", "crc_ok", "type", "topic", "queue_id",
    "queue_offset", "msg_key", "body_hash", "payload_run_id",
)  # fmt: skip
UNKNOWN: Final = (False, "unknown", None, None, None, None, None, None)
"""What is said of an entry that is no record, from ``crc_ok`` on."""
Columns = dict[str, list[Any]]
Headers = npt.NDArray[np.void]


@dataclass(slots=True)
class Walk:
    """Where the entries of a segment begin, and where it could not be followed; -1: nowhere."""

    starts: list[int]
    broken_at: int = -1


def walk(data: memoryview, end_index: int | None) -> Walk:
    """Follow the sizes from entry to entry, to the blank, the known end, or what makes no sense."""
    found = Walk([])
    at, last, step = 0, None, STEP.unpack_from
    while at + HEADER.itemsize <= len(data):
        magic, size, index, body_len = step(data, at)
        if magic in {NOTHING, BLANK} or (end_index is not None and last == end_index):
            break
        fits = body_len >= 0 and size == HEADER.itemsize + body_len and at + size <= len(data)
        follows = last is None or index == last + 1
        if not (fits and follows) or magic not in {ENTRY, NOOP}:
            found.broken_at = at
            break
        if end_index is not None and index > end_index:
            break
        found.starts.append(at)
        last = index
        at += size
    return found


def decode(data: memoryview, base: int, end_index: int | None) -> Iterator[Columns]:
    """Yield the entries of a segment that begins at ``base``, in batches of columns.

    Where it cannot be followed a last row of type ``unreadable`` says where. Errors: none.
    """
    found = walk(data, end_index)
    names: dict[bytes, str] = {}
    for first in range(0, len(found.starts), ROWS_PER_BATCH):
        starts = np.array(found.starts[first : first + ROWS_PER_BATCH])
        columns = _batch(data, base, starts, names)
        yield {name: columns[name] for name in COLUMNS}
    if found.broken_at >= 0:
        at, nothing = found.broken_at, [None]
        row: Columns = dict.fromkeys(COLUMNS, nothing)
        row |= {"index": [-1], "term": [-1], "pos": [base + at], "entry_crc": [0]}
        yield row | {"size": [len(data) - at], "crc_ok": [False], "type": ["unreadable"]}


def _gather(data: memoryview, starts: npt.NDArray[np.int64], layout: np.dtype[Any]) -> Headers:
    """Return the structures of one layout that begin at these places."""
    raw = np.frombuffer(data, dtype=np.uint8)
    matrix = raw[starts[:, None] + np.arange(layout.itemsize)]
    return np.ascontiguousarray(matrix).view(layout)[:, 0]


def _batch(
    data: memoryview, base: int, starts: npt.NDArray[np.int64], names: dict[bytes, str]
) -> Columns:
    heads = _gather(data, starts, HEADER)
    sizes = heads["body_len"].astype(np.int64)
    bodies = starts + HEADER.itemsize
    long = sizes >= RECORD_BYTES_MIN
    records = iter(_gather(data, bodies[long], RECORD).tolist())
    rows = []
    for at, size, is_long in zip(bodies.tolist(), sizes.tolist(), long.tolist(), strict=True):
        body = data[at : at + size]
        if is_long:
            fields = _record(body, next(records), base + at, names)
        else:
            fields = (size == 0, "unknown" if size else "noop", *(None,) * 6)
        rows.append((crc32(body), size, *fields))
    columns: Columns = dict(zip(COLUMNS[3:], map(list, zip(*rows, strict=True)), strict=True))
    columns["pos"] = (base + starts).tolist()
    columns["index"], columns["term"] = heads["index"].tolist(), heads["term"].tolist()
    columns["crc_ok"] = _sound(data, starts, heads, columns)
    return columns


def _sound(
    data: memoryview, starts: npt.NDArray[np.int64], heads: Headers, columns: Columns
) -> list[bool]:
    """Return which entries are whole: record, place, CRC, and the seal of a change of members."""
    crcs = np.array(columns["entry_crc"], dtype=np.uint32)
    sound = np.array(columns["crc_ok"], dtype=bool)
    sound &= heads["pos"] == np.array(columns["pos"])
    sound &= (heads["body_crc"] == 0) | (heads["body_crc"] == crcs)
    sound &= (heads["channel"] != 0) | (heads["chain_crc"] == 0)
    for number in np.flatnonzero(heads["channel"]).tolist():
        at = int(starts[number])
        seal = crc32(data[at : at + SEALED_BYTES]) or 1
        right = heads["channel"][number] == 1 and columns["type"][number] in {"state", "unknown"}
        sound[number] &= right and heads["chain_crc"][number] in {0, seal}
    found: list[bool] = sound.tolist()
    return found


def _record(
    body: memoryview, head: tuple[Any, ...], physical_at: int, names: dict[bytes, str]
) -> tuple[Any, ...]:
    """Return the columns from ``crc_ok`` on, of the record of one entry."""
    total, magic, crc, queue_id, _, queue_offset, physical, flags = head
    begin = LENGTH_AT + LENGTH.size
    if flags & (BORN_V6 | STORED_V6):
        begin += V6_BYTES * (bool(flags & BORN_V6) + bool(flags & STORED_V6))
    if total != len(body) or magic not in {V1, V2} or begin + 2 >= len(body):
        return UNKNOWN
    length = LENGTH.unpack_from(body, begin - LENGTH.size)[0]
    end = begin + length
    if length < 0 or end + 2 >= len(body):
        return UNKNOWN
    wide = 1 if magic == V1 else 2
    name_at = end + wide
    name_len = body[end] if wide == 1 else body[end] << 8 | body[end + 1]
    raw = bytes(body[name_at : name_at + name_len])
    if raw not in names:
        names[raw] = raw.decode("utf-8", "replace")
    content = body[begin:end]
    sound = physical == physical_at and crc32(content) & 0x7FFFFFFF == crc
    kind = "message"
    if raw == STATE_TOPIC:
        kind = "state"
    elif flags & HALF_MASK in {HALF, ROLLED_BACK}:
        kind = "half"
    key = tag = mark = None
    if kind == "message":
        plain = inflate(content) if flags & COMPRESSED else content
        if plain is not None:
            (key, tag), mark = key_and_tag(plain), digest(plain)
    return sound, kind, names[raw], queue_id, queue_offset, key, mark, tag
