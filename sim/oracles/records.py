"""What a record says beyond its place and body: when it was stored, its properties, its tags.

Read from the bytes of the log, with code of its own. Pure. Source: spec/wire.md 4.1; spec/disk.md
5.3.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from chaos.history.payload import body_hash, decode_body
from chaos.history.segment import decode_segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.history.segment import EntryRow

ENTRY_HEADER_BYTES: Final = 48
MAGIC_V1: Final = 0xDAA320A7
"""Of a record whose topic has a length byte."""
HOSTS_V6: Final = 0x30
COMPRESSED: Final = 0x1
STORED_AT: Final = ENTRY_HEADER_BYTES + 56
"""Where the store time lies in an entry whose record has IPv4 hosts."""
BODY_LENGTH_AT: Final = ENTRY_HEADER_BYTES + 84
PHYSICAL_AT: Final = ENTRY_HEADER_BYTES + 28
FLAGS_AT: Final = ENTRY_HEADER_BYTES + 36
KEYS, TAGS, KIND = "KEYS", "TAGS", "KIND"
_TAGS_FIELD: Final = b"TAGS\x01"

BORN_V6: Final = 0x10
STORED_V6: Final = 0x20
V6_EXTRA_BYTES: Final = 12
PARK_MARK: Final = 0x4C52
"""Likewise of a half that was parked; docs/transactions.md."""
COMMITTED: Final = 0x8
COPY_MARK: Final = 0x4C51
"""Of the field that says which waiting message a record stands for; docs/delays.md."""
TRANSACTION: Final = 0xC

_int = struct.Struct(">i").unpack_from
_magic = struct.Struct(">I").unpack_from
_long = struct.Struct(">q").unpack_from
_short = struct.Struct(">H").unpack_from


def stored_ms(data: bytes) -> int | None:
    """Return the store time of the record in an entry; None for one with IPv6 hosts, or none."""
    if len(data) < BODY_LENGTH_AT + 4 or _int(data, FLAGS_AT)[0] & HOSTS_V6:
        return None
    return int(_long(data, STORED_AT)[0])


class Parts(NamedTuple):
    """What a record says, whatever its hosts."""

    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    reconsume_times: int
    origin: tuple[int, int] | None
    """Queue and offset, in the schedule topic, of the message that this one stands for."""
    half: int | None
    """Where in the log the half lies that this one is a copy of."""
    physical: int
    """Where this one lies."""
    properties: dict[str, str]
    body: bytes

    def told(self, name: str) -> str:
        """Return a property, empty for none."""
        return self.properties.get(name, "")


def differences_of(copy: tuple[EntryRow, Parts], original: tuple[EntryRow, Parts]) -> list[str]:
    """Return in what a copy is not the message that waited elsewhere for its place."""
    (row, parts), (waited, said) = copy, original
    place = (said.told("REAL_TOPIC"), said.told("REAL_QID"))
    same = {
        "topic or queue": (row.topic, str(row.queue_id)) == place,
        "key": row.msg_key == waited.msg_key,
        "body": parts.body == said.body,
        "flag": parts.flag == said.flag,
        "born time": parts.born_ms == said.born_ms,
        "born host": parts.born_host == said.born_host,
    }
    return [name for name, is_same in same.items() if not is_same]


def parts_of(data: bytes) -> Parts:
    """Return what the record in an entry says; the entry holds a whole one."""
    flag, sys_flag = _int(data, ENTRY_HEADER_BYTES + 16)[0], _int(data, FLAGS_AT)[0]
    born_bytes = 8 + V6_EXTRA_BYTES * bool(sys_flag & BORN_V6)
    at = FLAGS_AT + 12
    born_host = data[at : at + born_bytes]
    at += born_bytes
    stored = int(_long(data, at)[0])
    at += 16 + V6_EXTRA_BYTES * bool(sys_flag & STORED_V6)
    reconsume_times, prepared = _int(data, at)[0], int(_long(data, at + 4)[0])
    at += 12
    body = data[at + 4 : at + 4 + _int(data, at)[0]]
    at += 4 + len(body)
    is_short = _magic(data, ENTRY_HEADER_BYTES + 4)[0] == MAGIC_V1
    at += 1 + data[at] if is_short else 2 + _short(data, at)[0]
    text = data[at + 2 : at + 2 + _short(data, at)[0]].decode("utf-8", "replace")
    properties = dict(part.split("\x01", 1) for part in text.split("\x02") if "\x01" in part)
    is_copy = prepared >> 48 == COPY_MARK and not sys_flag & TRANSACTION
    origin = (prepared >> 40 & 0xFF, prepared & (1 << 40) - 1) if is_copy else None
    return Parts(
        flag, sys_flag, int(_long(data, FLAGS_AT + 4)[0]), born_host, stored, reconsume_times,
        origin, _half_of(sys_flag, prepared), int(_long(data, PHYSICAL_AT)[0]), properties, body,
    )  # fmt: skip


def _half_of(sys_flag: int, prepared: int) -> int | None:
    if sys_flag & TRANSACTION == COMMITTED and prepared >= 0:
        return prepared
    is_parked = not sys_flag & TRANSACTION and prepared >> 48 == PARK_MARK
    return prepared & (1 << 48) - 1 if is_parked else None


def properties_of(data: bytes) -> dict[str, str]:
    """Return the properties of the record in an entry; none where it has IPv6 hosts, or is none."""
    if stored_ms(data) is None or _magic(data, ENTRY_HEADER_BYTES + 4)[0] != MAGIC_V1:
        return {}
    at = BODY_LENGTH_AT + 4 + _int(data, BODY_LENGTH_AT)[0]
    at += 1 + data[at]
    text = data[at + 2 : at + 2 + _short(data, at)[0]].decode("utf-8", "replace")
    return dict(part.split("\x01", 1) for part in text.split("\x02") if "\x01" in part)


def body_of(data: bytes) -> bytes:
    """Return the body of the record in an entry; empty where it has IPv6 hosts, or is none."""
    if stored_ms(data) is None:
        return b""
    at = BODY_LENGTH_AT + 4
    return data[at : at + _int(data, BODY_LENGTH_AT)[0]]


def tags_of(data: bytes) -> str:
    """Return the tags of the record in an entry, empty for none."""
    return properties_of(data).get(TAGS, "") if _TAGS_FIELD in data else ""


def tags_code(tags: str) -> int:
    """Return what Java's ``String.hashCode`` makes of the tags of a message, 0 for none."""
    code = 0
    if not tags:
        return code
    for unit in tags.encode("utf-16-be")[1::2] if tags.isascii() else ():
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def entry_rows(data: bytes, position: int) -> Iterator[EntryRow]:
    """Yield the rows of entries; of a compressed body, what the client gave counts."""
    for row in decode_segment(data, position):
        is_hidden = row.type == "message" and row.body_hash is None
        yield _uncompressed(row, data[row.pos - position :]) if is_hidden else row


def _uncompressed(row: EntryRow, data: bytes) -> EntryRow:
    """Return the row with key and hash of the body; as it is where that is no zlib stream."""
    if stored_ms(data) is None or not _int(data, FLAGS_AT)[0] & COMPRESSED:
        return row
    at = BODY_LENGTH_AT + 4
    try:
        body = zlib.decompress(data[at : at + _int(data, BODY_LENGTH_AT)[0]])
    except zlib.error:
        return row
    payload = decode_body(body)
    key, tag = (None, None) if payload is None else (payload.msg_key, payload.run_tag)
    return row._replace(msg_key=key, body_hash=body_hash(body), payload_run_id=tag)


def id_head(address: str, port: int) -> str:
    """Return how the ids of the messages of a broker begin: its address and port."""
    return (bytes(map(int, address.split("."))) + port.to_bytes(4, "big")).hex().upper()
