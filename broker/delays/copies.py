"""The copy of a scheduled message that goes into the topic it was sent to. Pure.

As RocketMQ's, it keeps all properties, those that say where it waited too; what is new is where it
lies and which message it stands for (`store.origins`).
Source: spec/wire.md 7.4; RocketMQ 4.9.7 ScheduleMessageService.messageTimeup.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledgermq.remoting.protocol.message import RECORD_HEADS, TRANSACTION_MASK
from ledgermq.remoting.protocol.properties import find_property
from store.layout import STATE_TOPIC_BYTES, read_record, record_body, tags_code
from store.origins import origin_of
from store.results import PutMessage

_QUEUE_ID_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10


class Scheduled(NamedTuple):
    """A message that waited."""

    offset: int
    copy: PutMessage | None
    """None: it does not say where it belongs."""


def scheduled_of(record: bytes | memoryview) -> Scheduled:
    """Read a whole record of the schedule topic."""
    (
        _, _, _, schedule_queue, flag, offset, _, sys_flag, born_timestamp, born_host, _, _,
        reconsume_times, _, _,
    ) = RECORD_HEADS[record[39] >> 4 & 3].unpack_from(record)  # fmt: skip
    properties = read_record(record)[6]
    topic = find_property(properties, b"REAL_TOPIC")
    digits = find_property(properties, b"REAL_QID")
    queue_id = -1
    if digits and digits.isdigit() and len(digits) <= _DIGITS_MAX:
        queue_id = int(digits)
    if not topic or topic == STATE_TOPIC_BYTES or not 0 <= queue_id <= _QUEUE_ID_MAX:
        return Scheduled(offset, None)
    copy = PutMessage(
        topic,
        queue_id,
        flag,
        sys_flag & ~TRANSACTION_MASK,
        born_timestamp,
        born_host,
        reconsume_times,
        origin_of(schedule_queue, offset),
        properties,
        bytes(record_body(record)),
        tags_code(properties),
    )
    return Scheduled(offset, copy)
