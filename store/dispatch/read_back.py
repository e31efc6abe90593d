"""Records read back from the log, many at a time, for dispatch. The hot path of a follower.

Messages that follow each other are mostly of few topics and have IPv4 hosts: what such a record
holds is taken from where it must lie, and anything else is left to `store.layout.whole_record`.
Pure. Source: spec/wire.md 4.1; RocketMQ CommitLog.checkMessageAndReturnSize.
"""

from struct import Struct
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.message import MAGIC_V1
from store.layout import (
    FLAG_NOT_INDEXED,
    FLAGS_HOSTS_V6,
    LONG_TEXT_BYTES,
    CorruptRecord,
    whole_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.ports import Body

ReadBack = tuple[int, int, int, int, int, int, bytes, bytes, "bytes | memoryview", int]
"""``(physical offset, size, queue_id, queue_offset, sys_flag, store_timestamp, topic,
properties, chunk, where in it)`` of an entry's record."""
NO_MESSAGE: Final = b"no message"
"""In the place of the topic, this very object: the entry holds no whole record. Its sysFlag says
then that it is not indexed, and in the place of the properties stands why it is none."""

_HEAD: Final = Struct(">iI4xi4xqqi16xq20xi")
"""A head with IPv4 hosts: size, magic, queue id, queue offset, place, sysFlag, store time, body
bytes."""
_unpack: Final = _HEAD.unpack_from
_HEAD_BYTES: Final = _HEAD.size
assert _HEAD_BYTES == 88
LONG_TEXTS_BYTES: Final = 16 * 1024
"""So much of properties that are longer is indexed in one turn: 5 to 10 ms."""
_NO_FIELD: Final = bytes(256)
"""No topic has this length byte."""


def read_back(walk: "Iterable[Body]", found: list[ReadBack]) -> None:
    """Add the records of the entries of ``walk`` to ``found``.

    An entry that holds no whole record is found, too, see `NO_MESSAGE`: its bytes are what was
    written, or the walk would not have it. Errors: what the walk raises; those before it are found.
    """
    add = found.append
    topic, field = b"", _NO_FIELD
    for physical, chunk, at, body_bytes in walk:
        if chunk.__class__ is bytes and body_bytes > _HEAD_BYTES:
            size, magic, queue_id, offset, place, flags, stored, content_bytes = _unpack(chunk, at)
            field_at = at + _HEAD_BYTES + content_bytes
            end = at + body_bytes
            if (
                size == body_bytes
                and magic == MAGIC_V1
                and place == physical
                and content_bytes >= 0
                and field_at < end
                and not flags & FLAGS_HOSTS_V6
            ):
                if not chunk.startswith(field, field_at):
                    field = chunk[field_at : field_at + 1 + chunk[field_at]]
                    topic = field[1:]
                text_at = field_at + len(field) + 2
                if text_at <= end and chunk[text_at - 2] << 8 | chunk[text_at - 1] == end - text_at:
                    text = chunk[text_at:end]
                    add((physical, size, queue_id, offset, flags, stored, topic, text, chunk, at))
                    continue
        try:
            record = whole_record(chunk, at, body_bytes, physical)
        except CorruptRecord as error:
            reason = str(error).encode()
            add((physical, body_bytes, 0, 0, FLAG_NOT_INDEXED, 0, NO_MESSAGE, reason, chunk, at))
            continue
        size, queue_id, offset, flags, stored, topic, text = record
        field = bytes((len(topic) & 0xFF,)) + topic
        add((physical, size, queue_id, offset, flags, stored, topic, text, chunk, at))


def light_part(found: list[ReadBack]) -> int:
    """Return how many of the records one turn of the loop should index, at least one.

    All, unless properties are long: words of KEYS cost a microsecond each.
    """
    cost = 0
    for number, record in enumerate(found):
        text_bytes = len(record[7])
        if text_bytes > LONG_TEXT_BYTES:
            cost += text_bytes
            if cost > LONG_TEXTS_BYTES and number:
                return number
    return len(found)
