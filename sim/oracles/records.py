"""What a record says beyond its place and body: when it was stored, its properties, its tags.

Read from the bytes of the log, with code of its own. Pure. Source: spec/wire.md 4.1; spec/disk.md
5.3.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

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
FLAGS_AT: Final = ENTRY_HEADER_BYTES + 36
KEYS, TAGS, KIND = "KEYS", "TAGS", "KIND"
_TAGS_FIELD: Final = b"TAGS\x01"

_int = struct.Struct(">i").unpack_from
_magic = struct.Struct(">I").unpack_from
_long = struct.Struct(">q").unpack_from
_short = struct.Struct(">H").unpack_from


def stored_ms(data: bytes) -> int | None:
    """Return the store time of the record in an entry; None for one with IPv6 hosts, or none."""
    if len(data) < BODY_LENGTH_AT + 4 or _int(data, FLAGS_AT)[0] & HOSTS_V6:
        return None
    return int(_long(data, STORED_AT)[0])


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
