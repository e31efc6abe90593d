"""The stored message record, its properties, ids and the batch encoding.

One record, big-endian; host fields are 4+4 bytes (IPv4) or 16+4 (IPv6, by two bits of sysFlag):

| field | size | offset v4 | | field | size | offset v4 |
|---|---|---|---|---|---|---|
| totalSize | 4 | 0 | | bornTimestamp | 8 | 40 |
| magicCode | 4 | 4 | | bornHost | 8 / 20 | 48 |
| bodyCRC | 4 | 8 | | storeTimestamp | 8 | 56 |
| queueId | 4 | 12 | | storeHost | 8 / 20 | 64 |
| flag | 4 | 16 | | reconsumeTimes | 4 | 72 |
| queueOffset | 8 | 20 | | preparedTransactionOffset | 8 | 76 |
| physicalOffset | 8 | 28 | | bodyLength, body | 4 + n | 84 |
| sysFlag | 4 | 36 | | topicLength, topic | 1 (V2: 2) + n | |
| | | | | propertiesLength, properties | 2 + n | |

Knows nothing of where records lie. Source: MessageDecoder, CommitLog, MessageSysFlag, MessageConst,
MessageClientIDSetter (spec/wire.md 4).
"""

import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from ledgermq.remoting.protocol import limits
from ledgermq.remoting.protocol.compression import decompress
from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.hosts import unpack_host
from ledgermq.remoting.protocol.properties import find_property, parse_properties

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

FLAG_COMPRESSED: Final = 0x1
FLAG_MULTI_TAGS: Final = 0x2
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20

TOPIC_BYTES_MAX_V1: Final = 127
PROPERTIES_BYTES_MAX: Final = int(limits.PROPERTIES_BYTES_MAX)
SYS_FLAG_OFFSET: Final = 36

RECORD_HEADS: Final = tuple(
    struct.Struct(f">iIIiiqqiq{born}sq{store}siqi")
    for born, store in ((8, 8), (20, 8), (8, 20), (20, 20))
)
"""Layouts of the fields up to bodyLength, by ``sys_flag >> 4 & 3``; the first has 88 bytes."""

_INT32: Final = struct.Struct(">i")
_UINT16: Final = struct.Struct(">H")
_BATCH_HEAD: Final = struct.Struct(">iIIii")
_unpack_batch_head: Final = struct.Struct(">i8xii").unpack_from


class MessageExt(msgspec.Struct, gc=False):
    """One stored message, as its record has it; derived values are methods.

    ``body`` and ``properties`` are the stored bytes (the body perhaps compressed); hosts are
    packed (address, then a 4-byte port). ``size`` is the record's length in bytes.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    queue_offset: int
    physical_offset: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    properties: bytes
    body_crc: int = 0
    size: int = 0

    def content(self) -> bytes:
        """Return the body as the producer gave it. Errors: `RemoteProtocolError` if corrupt."""
        if self.sys_flag & FLAG_COMPRESSED:
            return decompress(self.body, self.sys_flag)
        return self.body

    def property_map(self) -> dict[str, str]:
        """Return all properties by name."""
        return parse_properties(self.properties)

    def maybe_property(self, name: str) -> str | None:
        """Return one property without parsing all of them."""
        found = find_property(self.properties, name.encode())
        return None if found is None else found.decode("utf-8", "replace")

    def offset_message_id(self) -> str:
        """Return the id that holds the store host and the physical offset."""
        return offset_message_id(self.store_host, self.physical_offset)

    def message_id(self) -> str:
        """Return the id that users see: UNIQ_KEY, else the offset id."""
        return self.maybe_property("UNIQ_KEY") or self.offset_message_id()


class BatchElement(msgspec.Struct, gc=False):
    """One message inside the body of a batch send."""

    body: bytes
    properties: bytes
    flag: int = 0


def body_crc(body: bytes | memoryview) -> int:
    """Return the CRC stored with a body: CRC32 without its top bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def record_bytes(sys_flag: int, topic_bytes: int, body_bytes: int, properties_bytes: int) -> int:
    """Return the length of a record whose parts have these lengths."""
    head = RECORD_HEADS[sys_flag >> 4 & 3].size
    topic = (1 if topic_bytes <= TOPIC_BYTES_MAX_V1 else 2) + topic_bytes
    return head + body_bytes + topic + 2 + properties_bytes


def encode_record(message: MessageExt) -> bytes:
    """Return the record of a message; its size and CRC are computed, not taken.

    A topic over 127 bytes makes a V2 record. Errors: `LocalProtocolError` for values that the
    layout cannot hold.
    """
    topic = message.topic.encode()
    body, properties = message.body, message.properties
    v1 = len(topic) <= TOPIC_BYTES_MAX_V1
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise LocalProtocolError(f"properties of {len(properties)} bytes")
    sys_flag = message.sys_flag
    size = record_bytes(sys_flag, len(topic), len(body), len(properties))
    widths = (20 if sys_flag & FLAG_BORN_HOST_V6 else 8, 20 if sys_flag & FLAG_STORE_HOST_V6 else 8)
    if (len(message.born_host), len(message.store_host)) != widths:
        raise LocalProtocolError("host width differs from sysFlag")
    try:
        head = RECORD_HEADS[sys_flag >> 4 & 3].pack(
            size,
            MAGIC_V1 if v1 else MAGIC_V2,
            body_crc(body),
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            sys_flag,
            message.born_timestamp,
            message.born_host,
            message.store_timestamp,
            message.store_host,
            message.reconsume_times,
            message.prepared_offset,
            len(body),
        )
        topic_length = bytes((len(topic),)) if v1 else _UINT16.pack(len(topic))
    except struct.error as error:
        raise LocalProtocolError(f"record cannot hold this message: {error}") from error
    return b"".join((head, body, topic_length, topic, _UINT16.pack(len(properties)), properties))


def decode_record(
    data: bytes | memoryview, position: int = 0, *, check_crc: bool = False
) -> MessageExt:
    """Return the record that begins at ``position``.

    Errors: `RemoteProtocolError` for anything that is no record, or a body that fails its CRC.
    """
    try:
        (sys_flag,) = _INT32.unpack_from(data, position + SYS_FLAG_OFFSET)
        layout = RECORD_HEADS[sys_flag >> 4 & 3]
        (
            size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
            born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
            prepared_offset, body_length,
        ) = layout.unpack_from(data, position)  # fmt: skip
        end = position + size
        body_start = position + layout.size
        topic_at = body_start + body_length
        if body_length < 0 or topic_at > end or end > len(data):
            raise RemoteProtocolError(f"record at {position} reaches beyond its end")
        topic_start, topic_end = _topic_bounds(data, magic, topic_at)
        (properties_length,) = _UINT16.unpack_from(data, topic_end)
        if topic_end + 2 + properties_length != end:
            raise RemoteProtocolError(f"record at {position} has a wrong size {size}")
        topic = bytes(data[topic_start:topic_end]).decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"record at {position}: {error}") from error
    body = bytes(data[body_start:topic_at])
    if check_crc and body_crc(body) != crc:
        raise RemoteProtocolError(f"record at {position}: body fails its CRC")
    return MessageExt(
        topic, queue_id, flag, sys_flag, queue_offset, physical_offset, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_offset, body,
        bytes(data[topic_end + 2 : end]), crc, size,
    )  # fmt: skip


def decode_records(data: bytes | memoryview, *, check_crc: bool = False) -> list[MessageExt]:
    """Return the records that lie back to back in ``data`` (the body of a pull response).

    Errors: `RemoteProtocolError`, see `decode_record`.
    """
    records: list[MessageExt] = []
    position, end = 0, len(data)
    while position < end:
        record = decode_record(data, position, check_crc=check_crc)
        records.append(record)
        position += record.size
    return records


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """Return the body of a batch send. Errors: `LocalProtocolError` for oversize properties.

    An element: totalSize 4, magic 4 (0), bodyCRC 4 (0), flag 4, bodyLength 4, body,
    propertiesLength 2, properties.
    """
    parts: list[bytes] = []
    for element in elements:
        body, properties = element.body, element.properties
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(f"properties of {len(properties)} bytes")
        size = 22 + len(body) + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, element.flag, len(body)),
            body,
            _UINT16.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchElement]:
    """Return the messages in the body of a batch send. Errors: `RemoteProtocolError`."""
    return [BatchElement(content, text, flag) for flag, content, text in split_batch(body)]


def split_batch(body: bytes, count_max: int | None = None) -> list[tuple[int, bytes, bytes]]:
    """Return (flag, body, properties) of each message in the body of a batch send. Hot.

    Errors: `RemoteProtocolError` for what is no batch, or one of more than ``count_max`` messages.
    """
    found: list[tuple[int, bytes, bytes]] = []
    position, end = 0, len(body)
    try:
        while position < end:
            size, flag, content_bytes = _unpack_batch_head(body, position)
            text_at = position + _BATCH_HEAD.size + content_bytes
            if content_bytes < 0 or position + size > end:
                raise RemoteProtocolError(f"batch element at {position} reaches beyond its end")
            text_bytes = body[text_at] << 8 | body[text_at + 1]
            if text_at + 2 + text_bytes != position + size:
                raise RemoteProtocolError(f"batch element at {position} has a wrong size {size}")
            if count_max is not None and len(found) >= count_max:
                raise RemoteProtocolError(f"a batch of more than {count_max} messages")
            if not position and end > size and not end % size and _is_few(end // size, count_max):
                alike = _split_alike(body, content_bytes, text_bytes)
                if alike is not None:
                    return alike
            found.append(
                (
                    flag,
                    body[position + _BATCH_HEAD.size : text_at],
                    body[text_at + 2 : position + size],
                )
            )
            position += size
    except (struct.error, IndexError) as error:
        raise RemoteProtocolError(f"batch element at {position}: {error}") from error
    return found


def _is_few(count: int, count_max: int | None) -> bool:
    return count_max is None or count <= count_max


def _split_alike(
    body: bytes, content_bytes: int, text_bytes: int
) -> list[tuple[int, bytes, bytes]] | None:
    """Return the messages of a batch whose lengths are all these, None if they are not."""
    layout = _alike_layout(content_bytes, text_bytes)
    found = [
        (flag, content, text)
        for size, flag, first, content, second, text in layout.iter_unpack(body)
        if size == layout.size and first == content_bytes and second == text_bytes
    ]
    return found if len(found) * layout.size == len(body) else None


@lru_cache(maxsize=64)
def _alike_layout(content_bytes: int, text_bytes: int) -> struct.Struct:
    return struct.Struct(f">i8xii{content_bytes}sH{text_bytes}s")


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offset id: host, port and physical offset in upper-case hex (32 or 56 digits)."""
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_message_id(message_id: str) -> tuple[str, int, int]:
    """Return address, port and physical offset of an offset id. Errors: `RemoteProtocolError`."""
    try:
        packed = bytes.fromhex(message_id)
    except ValueError as error:
        raise RemoteProtocolError(f"{message_id!r} is not a message id") from error
    if len(packed) not in (16, 28):
        raise RemoteProtocolError(f"{message_id!r} is not a message id")
    address, port = unpack_host(packed[:-8])
    return address, port, int.from_bytes(packed[-8:], "big", signed=True)


def _topic_bounds(data: bytes | memoryview, magic: int, position: int) -> tuple[int, int]:
    if magic == MAGIC_V1:
        start = position + 1
        return start, start + data[position] if position < len(data) else start
    if magic == MAGIC_V2:
        (length,) = _UINT16.unpack_from(data, position)
        return position + 2, position + 2 + length
    raise RemoteProtocolError(f"magic {magic:#010x} is not a message")
