"""CONSUMER_SEND_MSG_BACK (36): a consumer gives a message back, to have it again later.

The message is read from the log at the offset that the consumer names and copied to the retry topic
of its group, or to its dead letters (`broker.sends.send_back`). The copy takes the way of any send,
and the answer waits until it is committed: the consumer forgets the message then.
Source: spec/wire.md 3.4; RocketMQ SendMessageProcessor.asyncConsumerSendMsgBack 4.9.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import BUSY, DAMAGED, put_failure, shown
from broker.limits import COPIED_BYTES_MAX
from broker.one_a_turn import OneATurn
from broker.sends.room import SMALL_BYTES, message_bytes
from broker.sends.rules import Refused
from broker.sends.send_back import copy_of, destination_of
from broker.state.topic_config import PERM_WRITE, UNREAD_TOPICS, topic_name_error
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import make_response
from ledgermq.remoting.protocol.headers import SendBackHeader, decode_header
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.protocol.limits import GROUP_LENGTH_MAX
from ledgermq.remoting.protocol.message import decode_record
from ledgermq.remoting.protocol.properties import RETRY_TOPIC
from ledgermq.remoting.transport.requests import ServedBy, serves
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.sends.creation import Creator
    from broker.sends.room import LogRoom
    from broker.sends.send_back import Destination
    from broker.state.subscription import SubscriptionGroupConfig
    from broker.tables import Tables
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.protocol.message import MessageExt
    from ledgermq.runtime.rng import Rng
    from store.read.reader import Reader
    from store.results import PutMessage
    from store.write.writer import Writer

_UNKNOWN_GROUP: Final = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class SendBackStore(Protocol):
    """What giving back needs of the store."""

    @property
    def reader(self) -> Reader:
        """Reads messages."""

    @property
    def writer(self) -> Writer:
        """Stores messages."""


class _Giver(Protocol):
    """A connection."""

    remote: tuple[str, int]


class SendBackProcessor:
    """Takes messages back for one broker.

    Args:
        on_new_group: has a group created that has no settings yet; False if it may not be.
        schedule: returns a message as it waits for its level of delay.
        room: where large messages wait for those before them.
        rng: picks the queue of the retry topic.
    """

    def __init__(  # noqa: PLR0913 - collaborators, wired once
        self,
        *,
        tables: Tables,
        store: SendBackStore,
        creator: Creator,
        on_new_group: Callable[[SubscriptionGroupConfig], bool],
        schedule: Callable[[PutMessage, int], PutMessage],
        room: LogRoom,
        rng: Rng,
    ) -> None:
        self._table = tables.topics
        self._topics = tables.topics.entries
        self._groups = tables.groups
        self._store = store
        self._creator = creator
        self._on_new_group = on_new_group
        self._schedule = schedule
        self._budget = tables.copies
        self._reads = OneATurn()
        self._room = room
        self._rng = rng
        self._backs = tables.counts.backs

    @serves(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        what="give a message back for later",
        header=SendBackHeader,
        limits=(GROUP_LENGTH_MAX, COPIED_BYTES_MAX),
        served_by=ServedBy.LEADER,
    )
    async def handle(self, connection: _Giver, request: RemotingCommand) -> RemotingCommand:
        """Take CONSUMER_SEND_MSG_BACK."""
        header = decode_header(request, SendBackHeader)
        try:
            status = await self._give_back(header, party_of(connection.remote[0]))
        except Refused as refused:
            return make_response(request, *refused.answer)
        if not status.is_stored:
            return put_failure(request, status)
        return make_response(request, ResponseCode.SUCCESS)

    async def _give_back(self, header: SendBackHeader, address: str) -> PutStatus:
        """Store the copy; OK when it is committed, or not wanted. Errors: `Refused`."""
        group = self._groups.find(header.group)
        if group is None:
            raise Refused(f"subscription group not exist, {shown(header.group)}", _UNKNOWN_GROUP)
        if not self._table.writable:
            remark = "sending message to this broker is forbidden"
            raise Refused(remark, ResponseCode.NO_PERMISSION)
        if group.retry_queue_nums <= 0:
            return PutStatus.OK
        message = await self._message(header.offset, address)
        if self._groups.get(header.group) is None and not self._on_new_group(group):
            raise Refused(BUSY, ResponseCode.SYSTEM_BUSY)
        destination = destination_of(message, group, header)
        if self._topics.get(destination.topic.topic_name) is None:
            del message  # It may be large, and many may wait for one topic.
            await self._create(destination)
            message = await self._message(header.offset, address)
        queue_id = self._queue(destination)  # what is refused costs nothing of the budget
        if not self._budget.take(address, len(message.body) + len(message.properties)):
            raise Refused(BUSY, ResponseCode.SYSTEM_BUSY)
        copy = copy_of(message, destination, queue_id)
        if destination.delay_level:
            copy = self._schedule(copy, destination.delay_level)
        given = message.maybe_property(RETRY_TOPIC) or message.topic, header.group
        status = await self._put(copy)
        if status is PutStatus.OK:
            self._backs[given] += 1
        return status

    async def _message(self, offset: int, address: str) -> MessageExt:
        """Return the committed message at a physical offset, in turn; the log has room for it.

        Errors: `Refused`.
        """
        await self._reads.turn(address)
        message = self._read(offset)
        if message_bytes(message) > SMALL_BYTES and not self._room.is_free():
            del message  # It may be large, and many may wait.
            await self._room.enter(address)
            message = self._read(offset)
        return message

    def _read(self, offset: int) -> MessageExt:
        """Return the committed message at a physical offset. Errors: `Refused`."""
        try:
            record = self._store.reader.message_at(offset)
        except DamagedEntry:
            code, remark = DAMAGED
            raise Refused(remark, code) from None
        message = None if record is None else decode_record(record)
        if message is None or message.topic in UNREAD_TOPICS:
            remark = f"look message by offset failed, {offset}"
            raise Refused(remark, ResponseCode.SYSTEM_ERROR)
        return message

    async def _create(self, destination: Destination) -> None:
        """Have the topic created. Errors: `Refused`."""
        error = topic_name_error(destination.topic.topic_name)
        if error is not None:
            raise Refused(error, ResponseCode.SYSTEM_ERROR)
        failure = await self._creator.ensure_topic(destination.topic)
        if failure is not None:
            code, remark = failure
            raise Refused(remark, code)

    def _queue(self, destination: Destination) -> int:
        """Return a queue of the topic. Errors: `Refused`."""
        name = destination.topic.topic_name
        topic = self._topics.get(name)
        if topic is None or not topic.write_queues:
            raise Refused(f"topic[{name}] not exist", ResponseCode.SYSTEM_ERROR)
        if not topic.config.perm & PERM_WRITE:
            remark = f"the topic[{name}] sending message is forbidden"
            raise Refused(remark, ResponseCode.NO_PERMISSION)
        queues = min(destination.topic.write_queue_nums, topic.write_queues)
        return self._rng.randint(0, queues - 1) if queues > 1 else 0

    async def _put(self, message: PutMessage) -> PutStatus:
        """Store the copy; OK when it is committed."""
        future: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

        def done(status: PutStatus, _queue_offset: int, _physical_offset: int) -> None:
            if not future.done():
                future.set_result(status)

        self._store.writer.put(message, done)
        return await future
