"""Requests that wait for a reply of a consumer, and replies.

A request is an ordinary message that names its sender and an id. A reply goes to a broker, which
passes it on to the sender over the connection of its heartbeats (PUSH_REPLY_MESSAGE_TO_CLIENT,
326). Nothing is replied twice: what comes after the request has ended is dropped and counted.
Source: DefaultMQProducerImpl.request, MessageUtil, ClientRemotingProcessor.receiveReplyMessage 4.9
(spec/wire.md 3.3).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import InvalidMessage, NoReply, SendFailed, TooManyPending
from ledgermq.client.instance import GREETED, ClientInstance
from ledgermq.client.limits import REQUESTS_WAITING_MAX
from ledgermq.client.message import Message, MessageQueue, SendResult
from ledgermq.client.selectors import Choice, QueueSelector, destination_of
from ledgermq.client.send_codec import Outgoing, prepare_single
from ledgermq.client.validation import check_topic
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.compression import TYPE_MASK
from ledgermq.remoting.protocol.errors import (
    LocalProtocolError,
    Outcome,
    ProtocolError,
    RemoteProtocolError,
    RemotingError,
)
from ledgermq.remoting.protocol.hosts import pack_host, parse_address
from ledgermq.remoting.protocol.message import FLAG_COMPRESSED, MessageExt
from ledgermq.remoting.protocol.properties import (
    CLUSTER,
    CORRELATION_ID,
    MSG_TYPE,
    REPLY_TO_CLIENT,
    TTL,
)
from ledgermq.remoting.transport.connection import Connection
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)

GREETING_MS = 500
"""A broker that takes longer does not hold up requests: they may not need it."""
REPLY = "reply"
"""The value of MSG_TYPE."""


class Sender(Protocol):
    """The producer, as its requests see it."""

    config: ClientConfig
    clock: Clock

    async def deliver(
        self, outgoing: Outgoing, queue: MessageQueue | Choice | None, timeout_ms: int | None
    ) -> SendResult:
        """Send what was rendered."""
        ...

    def told(
        self, begin: Callable[[], Awaitable[SendResult]], messages: Sequence[Message]
    ) -> Awaitable[SendResult]:
        """Send, and tell hooks of it."""
        ...


class Requests:
    """The requests of one producer that wait for replies, and its replies to others."""

    def __init__(self, sender: Sender, instance: ClientInstance) -> None:
        self._sender = sender
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[MessageExt]] = {}
        self._greeted: dict[str, int] = {}
        """Connections over which brokers have got a heartbeat, by address."""
        self._greetings: dict[str, asyncio.Task[None]] = {}
        """Heartbeats under way, by address: one that is not answered is of all requests."""
        self.late = 0
        """Replies that nobody waited for any more."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    async def request(
        self, message: Message, timeout_ms: int | None, queue: MessageQueue | QueueSelector | None
    ) -> MessageExt:
        """Send a request and return its reply; see `Producer.request`."""
        check_topic(message.topic)
        self._instance.check_running("producer")
        if timeout_ms is None:
            timeout_ms = self._sender.config.send_timeout_ms
        if len(self._waiting) >= REQUESTS_WAITING_MAX:
            raise TooManyPending(f"{len(self._waiting)} requests wait for their replies")
        born_ms = self._sender.clock.wall_ms()
        correlation_id = self._instance.unique_ids.next(born_ms)
        own = {
            CORRELATION_ID: correlation_id,
            REPLY_TO_CLIENT: self._instance.client_id,
            TTL: str(timeout_ms),
        }
        outgoing = self._render(message, born_ms, own)
        reply: asyncio.Future[MessageExt] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        try:
            async with timeout(timeout_ms / 1000):
                async with self._instance.stopping.waiting():
                    await self._greet(message.topic)
                destination = destination_of(queue, message)
                send = partial(self._sender.deliver, outgoing, destination, timeout_ms)
                await self._send(send, message, reply)
                async with self._instance.stopping.waiting(Outcome.UNKNOWN):
                    return await reply
        except TimeoutError as error:
            raise NoReply(message.topic, correlation_id, timeout_ms) from error
        finally:
            del self._waiting[correlation_id]

    async def reply(self, request: MessageExt, body: bytes, timeout_ms: int | None) -> SendResult:
        """Send a reply; see `Producer.reply`."""
        properties = request.property_map()
        missing = [
            name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT) if not properties.get(name)
        ]
        if missing:
            raise InvalidMessage(f"the message wants no reply: it has no {', '.join(missing)}")
        own = {
            MSG_TYPE: REPLY,
            CORRELATION_ID: properties[CORRELATION_ID],
            REPLY_TO_CLIENT: properties[REPLY_TO_CLIENT],
        }
        if TTL in properties:
            own[TTL] = properties[TTL]
        message = Message(f"{properties[CLUSTER]}_REPLY_TOPIC", body)
        outgoing = self._render(message, self._sender.clock.wall_ms(), own)
        outgoing.reply = True
        send = partial(self._sender.deliver, outgoing, None, timeout_ms)
        return await self._sender.told(send, (message,))

    def take(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Take a reply that a broker passes on. Errors: ``RemoteProtocolError`` if it is none."""
        message = _decode(command.ext_fields, bytes(command.body))
        correlation_id = message.maybe_property(CORRELATION_ID) or ""
        reply = self._waiting.get(correlation_id)
        if reply is None or reply.done():
            self.late += 1
            _log.info("correlation_id=%s event=late_reply count=%d", correlation_id, self.late)
        else:
            reply.set_result(_inflated(message))
        return make_response(command, ResponseCode.SUCCESS)

    async def _send(
        self,
        send: Callable[[], Awaitable[SendResult]],
        message: Message,
        reply: "asyncio.Future[MessageExt]",
    ) -> None:
        """Send a request; a reply proves that it was sent, whatever became of the answer."""
        try:
            await self._sender.told(send, (message,))
        except SendFailed:
            if not reply.done():
                raise

    async def _greet(self, topic: str) -> None:
        """Let brokers know this producer before they have a reply for it."""
        instance = self._instance
        try:
            await instance.routes.get(topic)
        except RemotingError:
            return  # The send goes on trying, and says why it cannot.
        unknown = [addr for addr in instance.heartbeat_addrs() if not self._is_greeted(addr)]
        if not unknown:
            return
        greetings = [self._greeting(addr) for addr in unknown]
        await asyncio.wait(greetings, timeout=GREETING_MS / 1000)

    def _greeting(self, addr: str) -> asyncio.Task[None]:
        """Return the task that greets a broker."""
        task = self._greetings.get(addr)
        if task is None or task.done():
            work, name = partial(self._greet_one, addr), f"greeting-{addr}"
            task = self._greetings[addr] = self._instance.background.spawn(work, name)
        return task

    async def _greet_one(self, addr: str) -> None:
        await self._instance.heartbeat(addr)
        connection = self._instance.client.maybe_connection(addr)
        if connection is not None and GREETED in connection.state:
            self._greeted[addr] = connection.id

    def _is_greeted(self, addr: str) -> bool:
        connection = self._instance.client.maybe_connection(addr)
        return connection is not None and self._greeted.get(addr) == connection.id

    def _render(self, message: Message, born_ms: int, own: "Mapping[str, str]") -> Outgoing:
        config = self._sender.config
        return prepare_single(
            message,
            self._instance.unique_ids.next(born_ms),
            born_ms,
            max_bytes=config.max_message_bytes,
            compress_over=config.compress_over_bytes,
            own=own,
        )


def _decode(fields: "Mapping[str, str]", body: bytes) -> MessageExt:
    """Return the reply in a request of a broker. Errors: ``RemoteProtocolError``."""
    try:
        message = MessageExt(
            topic=fields["topic"],
            queue_id=int(fields["queueId"]),
            flag=int(fields["flag"]),
            sys_flag=int(fields["sysFlag"]),
            queue_offset=0,
            physical_offset=0,
            born_timestamp=int(fields["bornTimestamp"]),
            born_host=pack_host(*parse_address(fields["bornHost"])),
            store_timestamp=int(fields["storeTimestamp"]),
            store_host=pack_host(*parse_address(fields["storeHost"])),
            reconsume_times=int(fields.get("reconsumeTimes", "0")),
            prepared_offset=0,
            body=body,
            properties=fields.get("properties", "").encode(),
        )
    except (KeyError, ValueError, LocalProtocolError, ProtocolError) as error:
        raise RemoteProtocolError(f"reply with fields {str(fields)[:300]}: {error}") from error
    return message


def _inflated(message: MessageExt) -> MessageExt:
    """Return a reply that is waited for, decompressed; anybody may send one that is not.

    Errors: ``RemoteProtocolError``.
    """
    if message.sys_flag & FLAG_COMPRESSED:
        try:
            message.body = message.content()
        except ProtocolError as error:
            raise RemoteProtocolError(f"the body of a reply: {error}") from error
        message.sys_flag &= ~(FLAG_COMPRESSED | TYPE_MASK)
    return message
