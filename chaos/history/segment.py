"""Decoder of DLedger data segments and of the RocketMQ records inside them: bytes to rows.

The reading of a replica's disk by the in-process checker and by the simulator; it shares nothing
with the code under test, nor with the Spark job, which has a decoder of its own. It knows no files:
it is given the bytes of one segment and the position the segment starts at.

Entry header (big endian), 48 bytes, then the body:

======  ====  ==========================================================================
offset  size  field
======  ====  ==========================================================================
0       4     magic: 1 entry, 2 no-op, -1 rest of the file is blank, 0 nothing written yet
4       4     size of the entry, header included
8       8     index
16      8     term
24      8     pos, absolute position of this entry
32      4     channel: 0, or 1 for a change of members
36      4     chainCrc: 0; of a change of members the CRC32 of the 36 bytes before, or 0
40      4     bodyCrc: CRC32 of the body; 0 = not computed (DLedger 0.3)
44      4     bodyLen
======  ====  ==========================================================================

Record (the body), the fields read here; hosts take 12 bytes more each when they are IPv6:

======  ====  ==========================================================================
0       4     totalSize
4       4     magic: V1 0xDAA320A7 (topic length in 1 byte), V2 0xDAA320AB (in 2 bytes)
8       4     bodyCRC: CRC32 of the record's body, 31 bits
12      4     queueId
20      8     queueOffset
28      8     physicalOffset = pos + 48
36      4     sysFlag
84      4+n   body length, body
..      1|2+n topic length, topic
======  ====  ==========================================================================

Source: spec/wire.md 4.1, 4.2; spec/disk.md 6.1, 6.2.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from chaos.history.payload import HEAD, HEAD_BYTES, MAGIC, Buffer, body_hash

ENTRY_HEADER: Final = struct.Struct(">iiqqqiiIi")
RECORD_HEAD: Final = struct.Struct(">IIIi4xqqi")
LENGTH: Final = struct.Struct(">i")
ENTRY_HEADER_BYTES: Final = 48
RECORD_BYTES_MIN: Final = 91
ENTRY_MAGIC: Final = 1
NOOP_MAGIC: Final = 2
BLANK_MAGIC: Final = -1
CONFIGURATION_CHANNEL: Final = 1
CHAIN_CRC_AT: Final = 36
RECORD_MAGIC_V1: Final = 0xDAA320A7
RECORD_MAGIC_V2: Final = 0xDAA320AB
STATE_TOPIC: Final = "rmq_sys_LEDGER_STATE"
COMPRESSED_FLAG: Final = 0x1
INFLATED_BYTES_MAX: Final = 1 << 26
TRANSACTION_MASK: Final = 0xC
PREPARED: Final = 0x4
ROLLBACK: Final = 0xC
BORN_V6: Final = 0x10
STORE_V6: Final = 0x20
_BODY_AT: Final = 84
_V6_EXTRA_BYTES: Final = 12

assert ENTRY_HEADER.size == ENTRY_HEADER_BYTES
assert RECORD_HEAD.size == 40


class EntryRow(NamedTuple):
    """One entry, in the words of the table ``replica_log`` (``entry_index``: its ``index``).

    ``type``: message, state (replicated state of the broker), half (transaction not decided),
    noop, unknown (not a record), or unreadable (the last row of a segment whose rest cannot be
    parsed; its index is -1). ``msg_key`` and ``body_hash`` are None for what is not a plain
    message; a compressed body is inflated first, since clients hash it as they had it.
    """

    entry_index: int
    term: int
    pos: int
    entry_crc: int
    size: int
    crc_ok: bool
    type: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    msg_key: int | None = None
    body_hash: int | None = None
    payload_run_id: str | None = None


class Names:
    """Topic names and run tags seen so far: each is decoded once, not once per entry."""

    __slots__ = ("tags", "topics")

    def __init__(self) -> None:
        self.topics: dict[bytes, str] = {}
        self.tags: dict[bytes, str] = {}

    def topic(self, raw: bytes) -> str:
        """Return the name of a topic."""
        name = self.topics.get(raw)
        if name is None:
            name = self.topics[raw] = raw.decode("utf-8", "replace")
        return name

    def tag(self, raw: bytes) -> str:
        """Return a run tag as histories spell it."""
        name = self.tags.get(raw)
        if name is None:
            name = self.tags[raw] = raw.hex()
        return name


def decode_segment(buffer: Buffer, start: int, end_index: int | None = None) -> Iterator[EntryRow]:
    """Yield one row per entry of a data segment.

    ``buffer`` is the whole file, ``start`` the absolute position of its first byte (its name),
    ``end_index`` the replica's last index if known: bytes after it are leftovers of a truncation.
    Stops at the blank mark, at unwritten zeros, at the end, or with one ``unreadable`` row.
    Errors: none, whatever the bytes.
    """
    view = memoryview(buffer)
    names = Names()
    unpack = ENTRY_HEADER.unpack_from
    limit = len(view) - ENTRY_HEADER_BYTES
    at = 0
    previous: int | None = None
    while at <= limit:
        magic, size, index, term, pos, channel, chain_crc, body_crc, body_len = unpack(view, at)
        if magic in {0, BLANK_MAGIC} or (end_index is not None and previous == end_index):
            return
        if (
            magic not in {ENTRY_MAGIC, NOOP_MAGIC}
            or size != ENTRY_HEADER_BYTES + body_len
            or body_len < 0
            or at + size > len(view)
            or (previous is not None and index != previous + 1)
        ):
            yield EntryRow(-1, -1, start + at, 0, len(view) - at, crc_ok=False, type="unreadable")
            return
        if end_index is not None and index > end_index:
            return
        body = view[at + ENTRY_HEADER_BYTES : at + size]
        crc = crc32(body)
        record = decode_record(body, start + at + ENTRY_HEADER_BYTES, names)
        sound = record[0] and pos == start + at and body_crc in {0, crc}
        if channel:
            mark = crc32(view[at : at + CHAIN_CRC_AT])
            sound = sound and chain_crc & 0xFFFFFFFF in {0, mark or 1}
            sound = sound and _is_change(channel, record[1])
        else:
            sound = sound and not chain_crc
        yield EntryRow(index, term, start + at, crc, body_len, sound, *record[1:])
        previous = index
        at += size


def _is_change(channel: int, kind: str) -> bool:
    """Tell whether an entry is a change of the group's members, by its channel and its kind."""
    return channel == CONFIGURATION_CHANNEL and kind in {"state", "unknown"}


_Record = tuple[bool, str, str | None, int | None, int | None, int | None, int | None, str | None]


def decode_record(body: memoryview, physical_offset: int, names: Names) -> _Record:
    """Return (sound, and the fields of `EntryRow` from ``type`` on) of the record in an entry."""
    size = len(body)
    if size < RECORD_BYTES_MIN:
        return size == 0, "unknown" if size else "noop", None, None, None, None, None, None
    total, magic, crc, queue_id, queue_offset, physical, flags = RECORD_HEAD.unpack_from(body)
    at = _BODY_AT + 4
    if flags & (BORN_V6 | STORE_V6):
        at += _V6_EXTRA_BYTES * (((flags & BORN_V6) >> 4) + ((flags & STORE_V6) >> 5))
    if at > size:
        return False, "unknown", None, None, None, None, None, None
    body_len = LENGTH.unpack_from(body, at - 4)[0]
    end = at + body_len
    if (
        total != size
        or body_len < 0
        or end + 2 >= size
        or (magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2)  # noqa: PLR1714 hot path: no set
    ):
        return False, "unknown", None, None, None, None, None, None
    content = body[at:end]
    if magic == RECORD_MAGIC_V1:
        topic = names.topic(bytes(body[end + 1 : end + 1 + body[end]]))
    else:
        topic_len = body[end] << 8 | body[end + 1]
        topic = names.topic(bytes(body[end + 2 : end + 2 + topic_len]))
    sound = physical == physical_offset and crc32(content) & 0x7FFFFFFF == crc
    kind = _record_type(flags, topic)
    msg_key = tag = digest = None
    plain: Buffer | None = content
    if flags & COMPRESSED_FLAG and kind == "message":
        plain = _inflated(content)
    if kind == "message" and plain is not None:
        digest = body_hash(plain)
        if len(plain) >= HEAD_BYTES:
            mark, raw_tag, key = HEAD.unpack_from(plain)
            if mark == MAGIC:
                msg_key, tag = key, names.tag(raw_tag)
    return sound, kind, topic, queue_id, queue_offset, msg_key, digest, tag


def _inflated(content: memoryview) -> bytes | None:
    """Return a body as its sender had it; None if it is no zlib stream, or a huge one."""
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(content, INFLATED_BYTES_MAX)
    except zlib.error:
        return None
    return plain if stream.eof else None


def _record_type(flags: int, topic: str) -> str:
    if topic == STATE_TOPIC:
        return "state"
    return "half" if flags & TRANSACTION_MASK in {PREPARED, ROLLBACK} else "message"
