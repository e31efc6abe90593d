"""Records read back from the log, many at a time, for dispatch. The hot path of a follower.

Messages that follow each other are mostly of few topics and have IPv4 hosts: what such a record
holds is taken from where it must lie, and anything else is left to `store.layout.read_record`.
Pure. Source: protocol.md 4.1; RocketMQ CommitLog.checkMessageAndReturnSize.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from remoting.protocol.message import MAGIC_V1
from runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import FLAGS_HOSTS_V6, CorruptRecord, read_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.layout import RecordFields
    from store.ports import Body

ReadBack = tuple[int, int, int, int, int, int, int, bytes, bytes, "bytes | memoryview", int]
"""``(index, physical offset, size, queue_id, queue_offset, sys_flag, store_timestamp, topic,
properties, chunk, where in it)`` of an entry's record."""

_HEAD: Final = Struct(">iI4xi4xq8xi16xq20xi")
"""A head with IPv4 hosts: size, magic, queue id, queue offset, sysFlag, store time, body bytes."""
_unpack: Final = _HEAD.unpack_from
_HEAD_BYTES: Final = _HEAD.size
assert _HEAD_BYTES == 88
_NO_FIELD: Final = bytes(256)
"""No topic has this length byte."""


def read_back(walk: "Iterable[Body]", found: list[ReadBack]) -> None:
    """Add the records of the entries of ``walk`` to ``found``.

    Errors: what the walk raises, `FatalError` for an entry that holds no record; those before it
    are found.
    """
    add = found.append
    topic, field, field_bytes = b"", _NO_FIELD, 0
    for index, physical, chunk, at, body_bytes in walk:
        if chunk.__class__ is bytes and body_bytes > _HEAD_BYTES:
            size, magic, queue_id, offset, flags, stored, content_bytes = _unpack(chunk, at)
            text_at = at + _HEAD_BYTES + content_bytes + field_bytes + 2
            end = at + body_bytes
            if (
                size == body_bytes
                and magic == MAGIC_V1
                and content_bytes >= 0
                and text_at <= end
                and not flags & FLAGS_HOSTS_V6
                and chunk.startswith(field, text_at - field_bytes - 2)
                and chunk[text_at - 2] << 8 | chunk[text_at - 1] == end - text_at
            ):
                text = chunk[text_at:end]
                add(
                    (index, physical, size, queue_id, offset, flags, stored, topic, text, chunk, at)
                )
                continue
        size, queue_id, offset, flags, stored, topic, text = _read(index, chunk, at, body_bytes)
        field = bytes((len(topic) & 0xFF,)) + topic
        field_bytes = len(field)
        add((index, physical, size, queue_id, offset, flags, stored, topic, text, chunk, at))


def _read(index: int, chunk: "bytes | memoryview", at: int, body_bytes: int) -> "RecordFields":
    """Return the fields of the record of an entry. Errors: `FatalError` if it is none."""
    try:
        record = read_record(chunk, at)
    except CorruptRecord as error:
        message = f"entry {index} holds no message: {error}"
        raise FatalError(message, EXIT_ENVIRONMENT) from error
    if record[0] != body_bytes:
        message = f"entry {index} of {body_bytes} bytes holds a record of {record[0]}"
        raise FatalError(message, EXIT_ENVIRONMENT)
    return record
