"""What follows a half (`broker.sends.half`): its copy, its op message, the question (39). Pure.

As RocketMQ's: a half lies in its topic with all properties, and those say where it belongs; the
committed copy keeps them, has the commit bit, and names its half. RocketMQ writes a new half for
each question, to count the questions. Here the table of open halves counts them, so that the half
keeps its place; copy and question show the count where RocketMQ's do.
Source: spec/wire.md 7.8; RocketMQ 4.9.7 TransactionalMessageBridge, EndTransactionProcessor,
AbstractTransactionalMessageCheckListener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from broker.sends.rules import KEPT_FLAGS, Refused
from broker.sends.schedule import with_properties
from ledgermq.remoting.protocol.message import (
    PROPERTIES_BYTES_MAX,
    TRANSACTION_COMMIT,
    MessageExt,
    encode_record,
)
from ledgermq.remoting.protocol.properties import find_property
from store.layout import HALF_TOPIC_BYTES, OP_TOPIC_BYTES, STATE_TOPIC_BYTES, tags_code
from store.origins import parked_origin
from store.results import PutBatch, PutMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.transactions.halves import Half

PARK_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
OP_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d"
_OP_TAGS_CODE: Final = tags_code(OP_PROPERTIES)
_QUEUE_ID_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10
_SELF: Final = frozenset({HALF_TOPIC_BYTES, OP_TOPIC_BYTES, STATE_TOPIC_BYTES})
"""Nothing is ever committed into these."""


class Said(NamedTuple):
    """What the properties of a half say of it."""

    topic: bytes
    """Where it belongs."""
    queue_id: int
    group: str
    unique_key: str


def said_by(text: bytes) -> Said | None:
    """Return what properties say of a half, None if they do not say where it belongs."""
    topic = find_property(text, b"REAL_TOPIC")
    digits = find_property(text, b"REAL_QID")
    queue_id = int(digits) if digits and digits.isdigit() and len(digits) <= _DIGITS_MAX else -1
    if not topic or topic in _SELF or not 0 <= queue_id <= _QUEUE_ID_MAX:
        return None
    group = find_property(text, b"PGROUP") or b""
    unique = find_property(text, b"UNIQ_KEY") or b""
    return Said(
        topic, queue_id, group.decode("utf-8", "replace"), unique.decode("utf-8", "replace")
    )


def committed_of(half: Half, said: Said, message: MessageExt | PutMessage) -> PutMessage:
    """Return the copy of a half, as it was read back or as it was put, that consumers get."""
    return PutMessage(
        said.topic,
        said.queue_id,
        message.flag,
        message.sys_flag & KEPT_FLAGS | TRANSACTION_COMMIT,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
        half.physical,
        _asked_for(half, message.properties),
        message.body,
        tags_code(message.properties),
    )


def parked_of(half: Half, message: MessageExt) -> PutMessage:
    """Return the copy of a half whose end nobody knows."""
    return PutMessage(
        PARK_TOPIC.encode(),
        0,
        message.flag,
        message.sys_flag & KEPT_FLAGS,
        message.born_timestamp,
        message.born_host,
        message.reconsume_times,
        parked_origin(half.physical),
        _asked_for(half, message.properties),
        message.body,
        tags_code(message.properties),
    )


def ops_of(offsets: Sequence[int], host: bytes, now_ms: int) -> PutBatch:
    """Return the op messages that close the halves with these offsets in the half topic.

    Each half has one of its own: RocketMQ 4.9 reads one number in an op message, and takes none for
    finished that stands in a list, as RocketMQ 5 writes it.
    """
    count = len(offsets)
    return PutBatch(
        OP_TOPIC_BYTES, 0, 0, now_ms, host, 0, [0] * count, [b"%d" % offset for offset in offsets],
        [OP_PROPERTIES] * count, [_OP_TAGS_CODE] * count,
    )  # fmt: skip


def question_of(half: Half, said: Said, message: MessageExt) -> bytes:
    """Return the body of CHECK_TRANSACTION_STATE: the half as if it lay in its topic."""
    return encode_record(
        MessageExt(
            said.topic.decode("utf-8", "replace"), said.queue_id, message.flag,
            message.sys_flag, message.queue_offset, message.physical_offset,
            message.born_timestamp, message.born_host, message.store_timestamp,
            message.store_host, message.reconsume_times, message.prepared_offset, message.body,
            _asked_for(half, message.properties, (b"WAIT", b"false")),
        )
    )  # fmt: skip


def _asked_for(half: Half, properties: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Return properties with the number of questions, where there is room for it."""
    if half.asked <= 0:
        return properties
    try:
        text = with_properties(
            properties, ((b"TRANSACTION_CHECK_TIMES", b"%d" % half.asked), *more)
        )
    except Refused:
        return properties  # a store of RocketMQ's may hold a value with a separator in it
    return text if len(text) <= PROPERTIES_BYTES_MAX else properties
