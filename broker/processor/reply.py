"""Replies: SEND_REPLY_MESSAGE (324, 325), passed on to who asked (326).

Who asked is a producer that sends heartbeats here; the reply names its client id. It is pushed over
that producer's connection, and the sender gets its answer when the producer has taken it. With
``storeReplyMessageEnable`` the reply is stored as well, whether it was taken or not. A producer
with a namespace has a topic of its own for replies, which is made when the first one comes.
A reply may be empty: ``CreateReplyMessage`` of the Go client leaves the body out. It is passed on
and not stored, as no message without a body is.
Source: spec/wire.md 3.3; RocketMQ ReplyMessageProcessor, Broker2Client.callClient 4.9.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import shown
from broker.fair_share import FairShare
from broker.hosts import packed_peer
from broker.limits import REPLIES_BYTES_MAX, REPLIES_MAX, REPLIES_OF_CLIENT_MAX
from broker.sends.room import SMALL_BYTES, message_bytes
from broker.sends.rules import MESSAGE_LIMITS, Refused
from broker.state.topic_config import PERM_WRITE, RETRY_PREFIX, topic_name_error
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.headers import (
    DEFAULT_REGION,
    SendHeader,
    decode_send_command,
    region_fields,
)
from ledgermq.remoting.protocol.hosts import party_of, unpack_host
from ledgermq.remoting.protocol.message import TRANSACTION_MASK, offset_message_id
from ledgermq.remoting.protocol.properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    format_properties,
    parse_properties,
)
from ledgermq.remoting.transport.requests import ServedBy, serves
from store.results import PutMessage, PutStatus

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Iterator, Mapping

    from broker.groups.client_registry import Client, ProducerRegistry
    from broker.processor.send import SendConnection, SendStore
    from broker.sends.door import Door
    from broker.sends.properties import Rewritten
    from broker.sends.room import LogRoom
    from broker.state.topic_config import TopicEntry
    from ledgermq.runtime.clock import Clock

PUSH_MS: Final = 10_000
_BUSY: Final = "too many replies are being passed on, try again later"


class TopicMaker(Protocol):
    """Creates topics."""

    async def topic_for_reply(
        self, topic: str, default_topic: str, queues: int
    ) -> tuple[int, str] | None:
        """Create a missing topic, or return why it may not be."""


class ReplyProcessor:
    """Passes the replies of one broker on.

    Args:
        topics: topic entries by name.
        maker: creates missing topics.
        producers: who sends heartbeats.
        store: where replies are kept, None if they are not.
        door: says what a send may contain.
        store_host: packed address of this broker.
        puts: stored messages by topic, which are added to.
        region, trace_on: are told in each answer.
    """

    def __init__(  # noqa: PLR0913 - collaborators, wired once
        self,
        *,
        topics: Mapping[str, TopicEntry],
        maker: TopicMaker,
        producers: ProducerRegistry,
        store: SendStore | None,
        door: Door,
        clock: Clock,
        store_host: bytes,
        puts: defaultdict[str, int],
        room: LogRoom,
        region: str = DEFAULT_REGION,
        trace_on: bool = True,
    ) -> None:
        self._topics = topics
        self._maker = maker
        self._producers = producers
        self._store = store
        self._door = door
        self._clock = clock
        self._store_host = store_host
        self._puts = puts
        self._room = room
        self._fields = region_fields(region, trace_on=trace_on)
        self._share = FairShare(REPLIES_MAX)
        self.running_bytes = 0
        self._of_client: dict[int, int] = {}

    @serves(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.SEND_REPLY_MESSAGE,
        what="reply to a message: passed on to who asked",
        header=SendHeader,
        limits=(*MESSAGE_LIMITS, REPLIES_MAX, REPLIES_BYTES_MAX, REPLIES_OF_CLIENT_MAX),
        served_by=ServedBy.LEADER,
    )
    async def handle(self, connection: SendConnection, request: RemotingCommand) -> RemotingCommand:
        """Take SEND_REPLY_MESSAGE_V2 or SEND_REPLY_MESSAGE."""
        header = decode_send_command(request)
        body = bytes(request.body)
        address = party_of(connection.remote[0])
        try:
            if header.topic not in self._topics:
                with self._under_way(address, len(body) + len(header.properties or "")):
                    await self._make_topic(header, body)
            topic = self._topic(header)
            message = self._message(connection, header, topic, body)
            with self._under_way(address, len(body) + len(message.properties)):
                failure = await self._push(connection, header, message)
                place = await self._keep(topic, message, address)
        except Refused as refused:
            return make_response(request, *refused.answer, dict(self._fields))
        if failure is not None:
            answer = ResponseCode.SYSTEM_ERROR, failure
            return make_response(request, *answer, dict(self._fields))
        msg_id, queue_offset = place
        fields = {
            "queueId": str(message.queue_id),
            **self._fields,
            "msgId": msg_id,
            "queueOffset": str(queue_offset),
        }
        return make_response(request, ResponseCode.SUCCESS, None, fields)

    @property
    def running(self) -> int:
        """How many replies are under way."""
        return self._share.used

    @contextmanager
    def _under_way(self, address: str, size_bytes: int) -> Iterator[None]:
        """Have a reply count until the end of this context. Errors: `Refused`."""
        self._check_room(address, size_bytes)
        self._share.take(address, 1)
        self.running_bytes += size_bytes
        try:
            yield
        finally:
            self._share.take(address, -1)
            self.running_bytes -= size_bytes

    def _check_room(self, address: str, size_bytes: int) -> None:
        """Refuse one more reply if too many are under way, in all or of one address.

        Errors: `Refused`.
        """
        is_much = self.running_bytes + size_bytes > REPLIES_BYTES_MAX
        if is_much or not self._share.fits(address):
            raise Refused(_BUSY, ResponseCode.SYSTEM_BUSY)

    async def _make_topic(self, header: SendHeader, body: bytes) -> None:
        """Have the topic of a sound reply made as that of a send is. Errors: `Refused`."""
        name = header.topic
        error = topic_name_error(name)
        if error is not None:
            raise Refused(error, ResponseCode.SYSTEM_ERROR)
        if name.startswith(RETRY_PREFIX):
            return  # no reply goes there
        self._read(header, body)
        failure = await self._maker.topic_for_reply(
            name, header.default_topic, header.default_topic_queue_nums
        )
        if failure is not None:
            code, remark = failure
            raise Refused(remark, code)

    def _topic(self, header: SendHeader) -> TopicEntry:
        """Return the topic of a reply. Errors: `Refused`."""
        topic = self._topics.get(header.topic)
        name = shown(header.topic)
        if topic is None:
            raise Refused(f"topic[{name}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        if topic.is_special or topic.forbidden or not topic.config.perm & PERM_WRITE:
            remark = f"Sending message to topic[{name}] is forbidden."
            raise Refused(remark, ResponseCode.NO_PERMISSION)
        if header.queue_id >= topic.queues:
            remark = f"request queueId[{header.queue_id}] is illegal"
            raise Refused(remark, ResponseCode.SYSTEM_ERROR)
        return topic

    def _read(self, header: SendHeader, body: bytes) -> tuple[int, Rewritten]:
        """Return sysFlag and properties of a reply as they are stored. Errors: `Refused`."""
        sys_flag, properties = self._door.read(header, body, body_bytes_min=0)
        if properties.transactional or sys_flag & TRANSACTION_MASK or properties.delay_level:
            remark = "a reply can be neither delayed nor part of a transaction"
            raise Refused(remark, ResponseCode.MESSAGE_ILLEGAL)
        return sys_flag, properties

    def _message(
        self, connection: SendConnection, header: SendHeader, topic: TopicEntry, body: bytes
    ) -> PutMessage:
        """Return a reply as it is stored. Errors: `Refused`."""
        sys_flag, properties = self._read(header, body)
        return PutMessage(
            topic.name_bytes,
            max(header.queue_id, 0),
            header.flag,
            sys_flag | topic.system_flag,
            header.born_timestamp,
            packed_peer(connection),
            header.reconsume_times or 0,
            0,
            properties.text,
            body,
            properties.tags_code,
        )

    async def _push(
        self, connection: SendConnection, header: SendHeader, message: PutMessage
    ) -> str | None:
        """Have the producer that asked take a reply; returns why it has not.

        Errors: `Refused` if it has too many of them to take.
        """
        properties = parse_properties((header.properties or "").encode("utf-8", "replace"))
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return f"{REPLY_TO_CLIENT} is null, can not reply message"
        client = self._producers.find(client_id)
        name = shown(client_id)
        if client is None:
            return f"push reply message fail, channel of <{name}> not found."
        now_ms = self._clock.wall_ms()
        properties = {PUSH_REPLY_TIME: str(now_ms), **properties}
        host, port = connection.remote
        own_host, own_port = unpack_host(self._store_host)
        pushed = RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext_fields={
                "producerGroup": header.producer_group,
                "topic": header.topic,
                "defaultTopic": header.default_topic,
                "defaultTopicQueueNums": str(header.default_topic_queue_nums),
                "queueId": str(header.queue_id),
                "sysFlag": str(header.sys_flag),
                "bornTimestamp": str(header.born_timestamp),
                "flag": str(header.flag),
                "properties": format_properties(properties).decode(),
                "reconsumeTimes": str(header.reconsume_times or 0),
                "unitMode": "true" if header.unit_mode else "false",
                "bornHost": f"{host}:{port}",
                "storeHost": f"{own_host}:{own_port}",
                "storeTimestamp": str(now_ms),
            },
            body=message.body,
        )
        return await self._ask(client, pushed, f"push reply message to {name}fail.")

    async def _ask(self, client: Client, pushed: RemotingCommand, refusal: str) -> str | None:
        connection = client.connection
        taken = self._of_client.get(connection.id, 0)
        if taken >= REPLIES_OF_CLIENT_MAX:
            raise Refused(_BUSY, ResponseCode.SYSTEM_BUSY)
        self._of_client[connection.id] = taken + 1
        try:
            answer = await connection.request(pushed, PUSH_MS)
        except RemotingError:
            return refusal
        finally:
            left = self._of_client[connection.id] - 1
            if left:
                self._of_client[connection.id] = left
            else:
                del self._of_client[connection.id]
        return None if answer.code == ResponseCode.SUCCESS else refusal

    async def _keep(self, topic: TopicEntry, message: PutMessage, address: str) -> tuple[str, int]:
        """Store a reply, if they are stored; returns its id and queue offset, or zeros."""
        if self._store is None or not message.body:
            return "0", 0
        if message_bytes(message) > SMALL_BYTES:
            await self._room.enter(address)
        future: asyncio.Future[tuple[PutStatus, int, int]]
        future = asyncio.get_running_loop().create_future()

        def done(status: PutStatus, queue_offset: int, physical_offset: int) -> None:
            if not future.done():
                future.set_result((status, queue_offset, physical_offset))

        self._store.put(message, done)
        status, queue_offset, physical_offset = await future
        if not status.is_stored:
            return "0", 0  # Who asked has it, and that is what counts.
        self._puts[topic.name] += 1
        return offset_message_id(self._store_host, physical_offset), queue_offset
