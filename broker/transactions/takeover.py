"""Halves of a store that RocketMQ wrote: found by comparing the half topic with the op topic.

RocketMQ keeps no table: a half is open if its offset is at or behind the one that its check service
has come to, and no op message names it. Where RocketMQ asked again, it stored a new half and moved
past the old one, which does not count any more; two halves that a client sent both count. This
module does the same for the part of the half topic that no applied record has told of, a slice at a
time. Halves that are stored meanwhile lie behind that part, and the log tells of them.
Source: spec/wire.md 7.8; RocketMQ 4.9.7 TransactionalMessageServiceImpl.check.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from broker.state.consumer_offset import TRANSACTION_CHECK_GROUP
from broker.transactions.halves import Half, OpenHalves
from broker.transactions.table import offsets_of_op
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.remoting.protocol.properties import find_property
from store.layout import HALF_TOPIC_BYTES, OP_TOPIC_BYTES
from store.origins import group_number, immunity_of, source_number
from store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.transactions.table import HalfTable
    from ledgermq.remoting.protocol.message import MessageExt
    from store.read.reader import Reader

_log = logging.getLogger(__name__)

HALF_TOPIC: Final = HALF_TOPIC_BYTES.decode()
OP_TOPIC: Final = OP_TOPIC_BYTES.decode()
SLICE: Final = 32
SLICE_BYTES: Final = 64 * 1024
RETRY_S: Final = 1.0
ROWS_MAX: Final = 1_000
"""Rows added in a turn."""
_TIMES_DIGITS_MAX: Final = 4
_OFFSET_DIGITS_MAX: Final = 19
_TIMES: Final = "TRANSACTION_CHECK_TIMES"
_POSTPONED: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""RocketMQ stores a half anew with one of these, and with the time at which it was sent: when it
asks for it, the producer hears the new place; when it asks later (`store.origins.immunity_of`), the
producer knows the first place alone, and this says its offset. What a client sends a second time,
for want of an answer, has neither: each of the two may be the one whose answer it got, so both
stay."""
_Sent = tuple[str, int, bytes]


def rocketmq_done_before(offsets: ConsumerOffsetTable) -> int:
    """Return the offset of the half topic before which RocketMQ has done with all halves."""
    return max(0, offsets.query(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0) or 0)


async def take_over(table: HalfTable, store: Reader, offsets: ConsumerOffsetTable) -> None:
    """Add the open halves to the table that no record told of.

    Meanwhile halves may be finished that the log told of: what was closed since the op topic was
    read is noted, and not opened again. Nobody can finish one that is found here before it is added
    to the table, and nothing is added before all halves were compared.
    """
    closed = table.closed = set()
    try:
        end = store.max_offset(HALF_TOPIC, 0)
        first = max(table.end, rocketmq_done_before(offsets), store.min_offset(HALF_TOPIC, 0))
        found = await _open_halves(store, offsets, first, end)
        for number, half in enumerate(found):
            if half.offset not in closed:
                table.add(half)
            if number % ROWS_MAX == ROWS_MAX - 1:
                await asyncio.sleep(0)
        table.set_end(max(end, store.max_offset(HALF_TOPIC, 0)))
    finally:
        if table.closed is closed:
            table.closed = None
    _log.info("event=transactions_taken_over from=%d to=%d open=%d", first, end, len(found))


async def _open_halves(
    store: Reader, offsets: ConsumerOffsetTable, first: int, end: int
) -> OpenHalves:
    """Return the halves between two offsets that no op message names."""
    finished: set[int] = set()
    ops = max(0, offsets.query(TRANSACTION_CHECK_GROUP, OP_TOPIC, 0) or 0)
    async for message in _messages(store, OP_TOPIC, ops, store.max_offset(OP_TOPIC, 0)):
        finished.update(offsets_of_op(message.body))
    rows = OpenHalves()
    found: dict[_Sent, int] = {}
    """Offsets of open halves by what was sent."""
    async for message in _messages(store, HALF_TOPIC, first, end):
        sent = (message.message_id(), message.born_timestamp, message.born_host)
        postponed = _number_in(message, _POSTPONED)
        if postponed in finished:
            continue  # its producer has said how it ends, and knows it by its first place alone
        is_asked_for = message.maybe_property(_TIMES) is not None
        if postponed is not None and not is_asked_for and found.get(sent) == postponed:
            continue
        if (is_asked_for or postponed is not None) and sent in found:
            rows.remove(found.pop(sent))
        if message.queue_offset not in finished:
            found[sent] = message.queue_offset
            rows.add(_row_of(message))
    return rows


def _number_in(message: MessageExt, name: str, digits_max: int = _OFFSET_DIGITS_MAX) -> int | None:
    digits = message.maybe_property(name) or ""
    return int(digits) if digits.isdecimal() and 0 < len(digits) <= digits_max else None


def _row_of(message: MessageExt) -> Half:
    return Half(
        message.queue_offset, message.physical_offset, message.store_timestamp,
        immunity_of(message.properties), _number_in(message, _TIMES, _TIMES_DIGITS_MAX) or 0,
        group_number(find_property(message.properties, b"PGROUP") or b""),
        source_number(message.born_host),
    )  # fmt: skip


async def _messages(store: Reader, topic: str, first: int, end: int) -> AsyncIterator[MessageExt]:
    """Return the messages of a queue, a slice in a turn.

    What will be readable later is waited for. What is damaged for good is left out: nobody repairs
    it in the log of a broker on its own, and no other half could end before this is over.
    """
    offset, left_out = max(first, store.min_offset(topic, 0)), _LeftOut(topic)
    while offset < end:
        result = store.get(topic, 0, offset, min(SLICE, end - offset), SLICE_BYTES, None)
        for record in result.buffers:
            try:
                message = decode_record(record)
            except RemoteProtocolError as error:
                left_out.add(offset, str(error))
            else:
                yield message
        following = max(offset, result.next_offset)
        if result.status is GetStatus.LOST:
            left_out.add(offset, "it is damaged")
            following = offset + 1
        is_moved = following > offset
        offset = following
        await asyncio.sleep(0 if is_moved else RETRY_S)
    left_out.end()


class _LeftOut:
    """Tells of the first message that is left out, and in the end of how many: not of each."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._count = 0

    def add(self, from_offset: int, why: str) -> None:
        """Take that a message is left out, which lies at this offset or behind it."""
        self._count += 1
        if self._count == 1:
            _log.error(
                "event=lost_amid_a_take_over topic=%s queue_offset_from=%d reason=%r",
                self._topic, from_offset, why,
            )  # fmt: skip

    def end(self) -> None:
        """Tell how many they were, where there were more."""
        if self._count > 1:
            _log.error("event=lost_amid_a_take_over topic=%s messages=%d", self._topic, self._count)
