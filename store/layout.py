"""Byte layouts of the store: consume queue units, and the parts of a stored record that it needs.

Pure. It knows where fields lie, not where bytes come from. All integers are big-endian.

Stored record (offsets for IPv4 hosts; an IPv6 host is 12 bytes wider)::

    0 totalSize i32     4 magic i32         8 bodyCRC i32      12 queueId i32     16 flag i32
    20 queueOffset i64  28 physicalOffset i64                  36 sysFlag i32
    40 bornTimestamp i64                    48 bornHost 8|20   56 storeTimestamp i64
    64 storeHost 8|20   72 reconsumeTimes i32                  76 preparedTransactionOffset i64
    84 bodyLen i32, body    topicLen i8 (V2: i16), topic       propsLen i16, properties

Consume queue unit, 20 bytes::

    0 physicalOffset i64    8 size i32    12 tagsCode i64

A record is *whole* when one reading of it explains all of its bytes: the host bits of sysFlag say
how wide its hosts are, and head, body, topic and properties then add up to its size. Everybody who
reads records back goes by this (`read_record`, `whole_record`), and `store.write.commit_log` writes
nothing else.
Source: spec/wire.md 4.1, 4.2; spec/disk.md 5.3; spec/wire.md 7.4; RocketMQ CommitLog, ConsumeQueue,
MessageVersion.
"""

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from ledgermq.remoting.protocol.message import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEADS,
    TOPIC_BYTES_MAX_V1,
    TRANSACTION_PREPARED,
)
from ledgermq.remoting.protocol.properties import find_property, java_string_hash

TOPIC_BYTES_MAX: Final = TOPIC_BYTES_MAX_V1
"""Of what is written here."""
TOPIC_BYTES_READ: Final = 255
"""Of what is read: RocketMQ 5 names retry topics of its POP so, in V2 records."""
UNIT_BYTES: Final = 20
UNIT: Final = Struct(">qiq")
FIRST_OFFSET_MAX: Final = 2**56
"""A queue whose first message states a larger offset would have files that nothing can name."""
GAP_UNIT: Final = UNIT.pack(0, 0x7FFFFFFF, 0)
"""Fills a queue's first file below its first message, as RocketMQ does."""
SKIPPED_BYTES: Final = 0x7FFFFFFF
"""The size in a unit that names no message: below the first one, or see
`store.dispatch.anomalies`.
"""

FLAG_NOT_INDEXED: Final = TRANSACTION_PREPARED
"""Set in prepared (4) and rollback (12) records: they are in no queue."""
FLAGS_HOSTS_V6: Final = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6

STATE_TOPIC: Final = "rmq_sys_LEDGER_STATE"
STATE_TOPIC_BYTES: Final = STATE_TOPIC.encode()
KIND_NOOP: Final = "noop"
KIND_RAFT_CONFIG: Final = "raft_config"
"""A configuration of the group; the log knows what to do with it, nobody above it does."""
SCHEDULE_TOPIC_BYTES: Final = b"SCHEDULE_TOPIC_XXXX"
HALF_TOPIC_BYTES: Final = b"RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC_BYTES: Final = b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
"""Queues that RocketMQ fills with messages of other topics; they are left to it."""

_LEVEL_DIGITS_MAX: Final = 10
"""Java's ``int`` has so many; what is longer is no level."""
_TAGS_CACHE_MAX: Final = 10_000
_CACHED_TAGS_BYTES_MAX: Final = 128
"""Longer tags are hashed each time, so that they cannot fill the memory."""
_tags_cache: dict[bytes, int] = {}

RecordFields = tuple[int, int, int, int, int, bytes, bytes]
"""``(size, queue_id, queue_offset, sys_flag, store_timestamp, topic, properties)``."""
Keyed = tuple[bytes, bytes, int, int, int]
"""``(topic, properties, physical offset, store timestamp, sysFlag)``: a message's part for the
index of keys."""
LONG_TEXT_BYTES: Final = 1024
"""Properties that are longer may take milliseconds to index: words of KEYS cost a microsecond."""
Row = tuple[int, int, int]
"""``(key hash, physical offset, store timestamp)``: what is made of it, for each of its keys."""


class CorruptRecord(Exception):  # noqa: N818 - what is corrupt, not an error of ours
    """Bytes that are not a stored record."""


def _reader(born: int, store: int) -> Struct:
    return Struct(f">iI4xi4xqqi8x{born}xq{store}x12xi")


_READERS: Final = tuple(_reader(*widths) for widths in ((8, 8), (20, 8), (8, 20), (20, 20)))
"""Like `RECORD_HEADS`, by ``sys_flag >> 4 & 3``, without the fields that nobody here needs."""
_unpack_v4 = _READERS[0].unpack_from
_V4_HEAD_BYTES: Final = _READERS[0].size
_unpack_properties: Final = Struct(">iI28xi44xi").unpack_from
"""Size, magic, flags and length of the body, where both hosts are IPv4."""
assert [r.size for r in _READERS] == [r.size for r in RECORD_HEADS], _READERS


def read_record(view: bytes | memoryview, start: int = 0) -> RecordFields:
    """Return the fields that dispatch needs of the record at ``start``.

    Errors: `CorruptRecord` when magic or lengths do not add up; the CRC is not looked at.
    """
    try:
        size, magic, queue_id, queue_offset, _, sys_flag, stored, body = _unpack_v4(view, start)
        at = start + _V4_HEAD_BYTES
        if sys_flag & FLAGS_HOSTS_V6:
            reader = _READERS[sys_flag >> 4 & 3]
            size, magic, queue_id, queue_offset, _, sys_flag, stored, body = reader.unpack_from(
                view, start
            )
            at = start + reader.size
        tail = bytes(view[at + body : start + size])
        if magic == MAGIC_V1:
            properties_at = tail[0] + 3
            topic = tail[1 : properties_at - 2]
        elif magic == MAGIC_V2:
            properties_at = (tail[0] << 8 | tail[1]) + 4
            topic = tail[2 : properties_at - 2]
        else:
            message = f"magic {magic:#010x} is not a message magic"
            raise CorruptRecord(message)
        properties_bytes = tail[properties_at - 2] << 8 | tail[properties_at - 1]
    except (struct.error, IndexError) as error:
        message = f"record cut short: {error}"
        raise CorruptRecord(message) from error
    if body < 0 or len(tail) != properties_at + properties_bytes:
        message = f"lengths do not add up: size={size} body={body} tail={len(tail)}"
        raise CorruptRecord(message)
    return size, queue_id, queue_offset, sys_flag, stored, topic, tail[properties_at:]


def read_properties(record: memoryview) -> bytes:
    """Return the properties of a record, as `read_record` reads them of it. Hot.

    Errors: `CorruptRecord`.
    """
    if len(record) > _V4_HEAD_BYTES:
        size, magic, sys_flag, body = _unpack_properties(record)
        if magic == MAGIC_V1 and body >= 0 and size == len(record):
            tail = bytes(record[_V4_HEAD_BYTES + body :])
            at = tail[0] + 3 if tail and not sys_flag & FLAGS_HOSTS_V6 else size
            if at <= len(tail) == at + (tail[at - 2] << 8 | tail[at - 1]):
                return tail[at:]
    return read_record(record)[6]


_UNWRITTEN: Final = bytes(512)
"""The smallest sector of a disk."""


def looks_unwritten(properties: bytes) -> bool:
    """Tell whether recovery could take these properties for bytes that were never written. Hot.

    In RocketMQ's plain log nothing behind a body has a CRC. Where a write was broken off there are
    zeros, so a text that ends with one, or holds as many as a sector, would be cut from the log
    at the next start, with all that lies behind it (`store.plain.record.is_torn`).
    """
    if 0 not in properties:
        return False
    return properties[-1] == 0 or _UNWRITTEN in properties


def whole_record(view: bytes | memoryview, start: int, size: int, physical: int) -> RecordFields:
    """Return the fields of the record that fills ``size`` bytes and lies at ``physical``.

    Errors: `CorruptRecord` when it is not whole, or states another place.
    """
    fields = read_record(view, start)
    if fields[0] != size:
        message = f"{size} bytes hold a record of {fields[0]}"
        raise CorruptRecord(message)
    stated = int.from_bytes(view[start + 28 : start + 36], "big", signed=True)
    if stated != physical:
        message = f"the record at {physical} states {stated} as its place"
        raise CorruptRecord(message)
    return fields


def stored_or_zero(view: bytes | memoryview) -> int:
    """Return the store timestamp (ms) of a record, 0 if it is not whole."""
    try:
        return read_record(view)[4]
    except CorruptRecord:
        return 0


def record_size(view: memoryview, physical_offset: int) -> int | None:
    """Return the size of the record that begins at ``view``, None if it is none.

    A record states its own physical offset, so that an address inside a body is not taken for one.
    """
    if len(view) < _V4_HEAD_BYTES:
        return None
    size, magic, _, _, stated, _, _, _ = _unpack_v4(view)
    if magic not in {MAGIC_V1, MAGIC_V2} or stated != physical_offset or size < _V4_HEAD_BYTES:
        return None
    return int(size)


def record_is_sound(view: bytes | memoryview) -> bool:
    """Tell whether ``view`` is one whole record whose body has the CRC that it states.

    A CRC of 0 says nothing: RocketMQ has brokers that compute none.
    """
    try:
        size = read_record(view)[0]
    except CorruptRecord:
        return False
    stated = int.from_bytes(view[8:12], "big")
    return size == len(view) and stated in (0, crc32(record_body(view)) & 0x7FFFFFFF)


def store_timestamp(view: bytes | memoryview) -> int:
    """Return the store timestamp (ms) of the record that begins at ``view``."""
    at = 56
    if view[39] & FLAG_BORN_HOST_V6:
        at += 12
    return int.from_bytes(view[at : at + 8], "big")


def record_body(view: bytes | memoryview) -> bytes | memoryview:
    """Return the body of the record that begins at ``view``."""
    at = _READERS[view[39] >> 4 & 3].size
    return view[at : at + int.from_bytes(view[at - 4 : at], "big")]


def state_kind(properties: bytes) -> str:
    """Return the kind of a state record, empty if it names none."""
    return (find_property(properties, b"KIND") or b"").decode("utf-8", "replace")


def state_properties(kind: str) -> bytes:
    """Return the properties of a state record."""
    return b"KIND\x01%b\x02" % kind.encode()


def tags_code(properties: bytes) -> int:
    """Return the unit's tags code: Java's hash of TAGS, sign-extended, 0 without tags."""
    at = properties.rfind(b"\x02TAGS\x01") + 6
    if at == 5:
        if not properties.startswith(b"TAGS\x01"):
            return 0
        at = 5
    end = properties.find(b"\x02", at)
    tags = properties[at:] if end < 0 else properties[at:end]
    while not tags and at > 5:  # RocketMQ reads past an item without a value
        end = at - 6
        at = properties.rfind(b"\x02TAGS\x01", 0, end) + 6
        if at == 5 and not properties.startswith(b"TAGS\x01"):
            return 0
        tags = properties[at : properties.find(b"\x02", at)]
    code = _tags_cache.get(tags)
    if code is None:
        code = java_string_hash(tags.decode("utf-8", "replace"))
        if len(tags) <= _CACHED_TAGS_BYTES_MAX:
            if len(_tags_cache) >= _TAGS_CACHE_MAX:
                _tags_cache.clear()
            _tags_cache[tags] = code
    return code


def delivery_code(properties: bytes, stored: int, delays_ms: Sequence[int]) -> int:
    """Return the unit's tags code in the schedule topic: when to deliver (ms).

    Without a level above 0 it is the hash of TAGS, as anywhere else.
    """
    level_text = find_property(properties, b"DELAY")
    if level_text is None or not level_text.isdigit() or len(level_text) > _LEVEL_DIGITS_MAX:
        return tags_code(properties)
    level = min(int(level_text), len(delays_ms))
    return stored + delays_ms[level - 1] if level > 0 else tags_code(properties)
