"""Data segments as columns: walked once by their sizes, headers read as a matrix, then records.

Code of this job's own: the in-process checker has another decoder (`chaos.history.segment`), and a
test has both read the same bytes, sound and spoiled. Knows no files and no Spark.

Source: spec/wire.md 4.1, 4.2; spec/disk.md 6.1, 6.2.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from spark.bodies import MARK, TAG_END, digest, inflate, key_and_tag

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
RECORD_COLUMNS: Final = ("crc_ok", "type", *COLUMNS[7:])
BODY: Final = np.dtype([("mark", ">u4"), ("tag", "V16"), ("key", ">i8")])
Columns = dict[str, list[Any]]
Places = npt.NDArray[np.int64]
Headers = npt.NDArray[np.void]


@dataclass(slots=True)
class Walk:
    """Where the entries of a segment begin, and where it could not be followed; -1: nowhere."""

    starts: list[int]
    broken_at: int = -1
    seen: int = 0
    """Up to which byte anything was looked at."""
    met_end: bool = False
    """Whether it ended because the last entry was known."""


def walk(data: memoryview, end_index: int | None, begin: int = 0, stop: int | None = None) -> Walk:
    """Follow the sizes from entry to entry, to the blank, the known end, or what makes no sense.

    Only from ``begin`` on, where an entry begins, and only of what begins before ``stop``.
    """
    found = Walk([])
    at, last, step = begin, None, STEP.unpack_from
    limit = len(data) if stop is None else stop
    while at < limit and at + HEADER.itemsize <= len(data):
        magic, size, index, body_len = step(data, at)
        if end_index is not None and last == end_index:
            found.met_end = True
            break
        if magic in {NOTHING, BLANK}:
            break
        fits = body_len >= 0 and size == HEADER.itemsize + body_len and at + size <= len(data)
        follows = last is None or index == last + 1
        if not (fits and follows) or magic not in {ENTRY, NOOP}:
            found.broken_at = at
            break
        if end_index is not None and index > end_index:
            found.met_end = True
            break
        found.starts.append(at)
        last = index
        at += size
    found.seen = at + HEADER.itemsize
    return found


def decode(data: memoryview, base: int, end_index: int | None) -> Iterator[Columns]:
    """Yield the entries of a segment that begins at ``base``, in batches of columns.

    Where it cannot be followed a last row of type ``unreadable`` says where. Errors: none.
    """
    found = walk(data, end_index)
    for first in range(0, len(found.starts), ROWS_PER_BATCH):
        yield decode_entries(data, base, found.starts[first : first + ROWS_PER_BATCH])
    if found.broken_at >= 0:
        yield unreadable(data, base, found.broken_at)


def decode_entries(data: memoryview, base: int, starts: list[int]) -> Columns:
    """Return the entries that begin at ``starts``, which `walk` has found, as columns."""
    columns = _batch(data, base, np.array(starts, dtype=np.int64))
    return {name: columns[name] for name in COLUMNS}


def unreadable(data: memoryview, base: int, at: int) -> Columns:
    """Return the row that says from where on a segment cannot be followed."""
    row: Columns = {name: [None] for name in COLUMNS}
    row |= {"index": [-1], "term": [-1], "pos": [base + at], "entry_crc": [0]}
    return row | {"size": [len(data) - at], "crc_ok": [False], "type": ["unreadable"]}


def span(data: memoryview, at: int) -> int:
    """Return how many bytes an entry has, its header included."""
    return int(STEP.unpack_from(data, at)[1])


def same_entries(
    one: memoryview,
    other: memoryview,
    ours: list[int],
    theirs: list[int],
    size_at: Callable[[memoryview, int], int] = span,
) -> int:
    """Return how many of the first entries of two stretches of segments are the same bytes.

    All that lie at the same places, or none: whoever differs in the middle is read by itself.
    """
    common = next(
        (number for number, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    if not common:
        return 0
    last = ours[common - 1]
    begin, end = ours[0], last + size_at(one, last)
    if end > len(other):
        return 0
    first = np.frombuffer(one, np.uint8, end - begin, begin)
    second = np.frombuffer(other, np.uint8, end - begin, begin)
    return common if np.array_equal(first, second) else 0


def _gather(data: memoryview, starts: Places, layout: np.dtype[Any]) -> Headers:
    """Return the structures of one layout that begin at these places."""
    raw = np.frombuffer(data, dtype=np.uint8)
    matrix = raw[starts[:, None] + np.arange(layout.itemsize)]
    return np.ascontiguousarray(matrix).view(layout)[:, 0]


def _batch(data: memoryview, base: int, starts: Places) -> Columns:
    """Return entries as columns: the common kind of record all at once, the others one by one."""
    heads = _gather(data, starts, HEADER)
    sizes = heads["body_len"].astype(np.int64)
    bodies = starts + HEADER.itemsize
    columns = read_records(data, base, bodies, sizes)
    ends = (bodies + sizes).tolist()
    columns["entry_crc"] = [
        crc32(data[at:end]) for at, end in zip(bodies.tolist(), ends, strict=True)
    ]
    columns["size"], columns["pos"] = sizes.tolist(), (base + starts).tolist()
    columns["index"], columns["term"] = heads["index"].tolist(), heads["term"].tolist()
    columns["crc_ok"] = _sound(data, starts, heads, columns)
    return columns


def read_records(data: memoryview, base: int, bodies: Places, sizes: Places) -> Columns:
    """Return the columns from ``crc_ok`` on of the records at these places, of these sizes."""
    plain, lengths, records = _plain(data, bodies, sizes)
    found = {name: np.full(len(bodies), None, dtype=object) for name in RECORD_COLUMNS}
    many = np.flatnonzero(plain)
    if len(many):
        read = _plain_records(data, base, bodies[many], lengths[many], records[many])
        for name, values in zip(RECORD_COLUMNS, read, strict=True):
            found[name][many] = values
    for number in np.flatnonzero(~plain).tolist():
        at, size = int(bodies[number]), int(sizes[number])
        if size >= RECORD_BYTES_MIN:
            row = _record(data[at : at + size], records[number].tolist(), base + at)
        else:
            row = (size == 0, "unknown" if size else "noop", *(None,) * 6)
        for name, value in zip(RECORD_COLUMNS, row, strict=True):
            found[name][number] = value
    return {name: values.tolist() for name, values in found.items()}


def _plain(
    data: memoryview, bodies: Places, sizes: Places
) -> tuple[npt.NDArray[np.bool_], Places, Headers]:
    """Return which records are plain, how long their contents are, and the heads of all.

    Plain is what holds a message as it was sent, has short addresses and a short name of a topic,
    and lies in its entry to the byte.
    """
    records = np.zeros(len(bodies), dtype=RECORD)
    lengths = np.full(len(bodies), -1, dtype=np.int64)
    long = sizes >= RECORD_BYTES_MIN
    records[long] = _gather(data, bodies[long], RECORD)
    begins = bodies[long] + LENGTH_AT
    lengths[long] = _gather(data, begins, np.dtype([("length", ">i4")]))["length"]
    flags = records["sys_flag"]
    plain = (lengths >= 0) & (LENGTH_AT + 6 + lengths < sizes)
    plain &= (records["magic"] == V1) & (records["total"] == sizes)
    plain &= (flags & (COMPRESSED | HALF | BORN_V6 | STORED_V6)) == 0
    names = np.frombuffer(data, dtype=np.uint8)[(bodies + LENGTH_AT + 4 + lengths)[plain]]
    plain[plain] = (LENGTH_AT + 5 + lengths[plain] + names) <= sizes[plain]
    return plain, lengths, records


def _plain_records(
    data: memoryview, base: int, bodies: Places, lengths: Places, records: Headers
) -> tuple[list[Any], ...]:
    """Return the columns of a record, from ``crc_ok`` on, of plain records."""
    begins = bodies + LENGTH_AT + 4
    topics = _topics(data, begins + lengths)
    spans = list(zip(begins.tolist(), (begins + lengths).tolist(), strict=True))
    crcs = np.array([crc32(data[at:end]) & 0x7FFFFFFF for at, end in spans])
    sound = (records["physical"] == base + bodies) & (crcs == records["crc"])
    is_state = topics == STATE_TOPIC.decode()
    keys, tags = _keys(data, begins, np.where(is_state, 0, lengths))
    marks = [
        None if state else digest(data[at:end])
        for (at, end), state in zip(spans, is_state.tolist(), strict=True)
    ]
    kinds = np.where(is_state, "state", "message")
    places = records["queue_id"].tolist(), records["queue_offset"].tolist()
    return sound.tolist(), kinds.tolist(), topics.tolist(), *places, keys, marks, tags


def _topics(data: memoryview, ends: Places) -> npt.NDArray[np.object_]:
    """Return the names that begin behind these places, which hold their lengths."""
    raw = np.frombuffer(data, dtype=np.uint8)
    widths, found = raw[ends], np.full(len(ends), "", dtype=object)
    for width in np.unique(widths).tolist():
        mine = np.flatnonzero(widths == width)
        if width:
            names, which = _distinct(data, ends[mine] + 1, width)
            found[mine] = np.array([n.decode("utf-8", "replace") for n in names], object)[which]
    return found


def _keys(
    data: memoryview, begins: Places, lengths: Places
) -> tuple[list[int | None], list[str | None]]:
    """Return the keys and the tags of the bodies that are ours."""
    keys = np.full(len(begins), None, dtype=object)
    tags = np.full(len(begins), None, dtype=object)
    long = np.flatnonzero(lengths >= BODY.itemsize)
    heads = _gather(data, begins[long], BODY)
    ours = heads["mark"] == int.from_bytes(MARK, "big")
    mine = long[ours]
    if len(mine):
        keys[mine] = heads["key"][ours].tolist()
        names, which = _distinct(data, begins[mine] + len(MARK), TAG_END - len(MARK))
        tags[mine] = np.array([name.hex() for name in names], object)[which]
    return keys.tolist(), tags.tolist()


def _distinct(data: memoryview, begins: Places, width: int) -> tuple[list[bytes], Places]:
    """Return the different stretches of ``width`` bytes at these places, and which is where."""
    rows = _gather(data, begins, np.dtype([("bytes", np.void, width)]))["bytes"]
    found, which = np.unique(rows, return_inverse=True)
    return [one.tobytes() for one in found], which


def _sound(data: memoryview, starts: Places, heads: Headers, columns: Columns) -> list[bool]:
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


def _record(body: memoryview, head: tuple[Any, ...], physical_at: int) -> tuple[Any, ...]:
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
    name = raw.decode("utf-8", "replace")
    return sound, kind, name, queue_id, queue_offset, key, mark, tag
