"""The producer: sends messages and survives a change of leader.

The path of an ordinary send has no task of its own: the caller's coroutine renders the frame,
hands it to the connection (which writes once per loop turn) and awaits one future. Sends that start
in one turn share a request (`ledgermq.client.grouping`). Everything that goes wrong continues in
`ledgermq.client.delivery`. Source: DefaultMQProducerImpl, MQClientAPIImpl.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ledgermq.client.config import ClientConfig
from ledgermq.client.delivery import NS_PER_MS, Delivery
from ledgermq.client.errors import BatchFailed, NoRoute, TooManyPending
from ledgermq.client.grouping import Grouper, GroupFailed, Place
from ledgermq.client.hooks import SendKind
from ledgermq.client.instance import ClientInstance
from ledgermq.client.lifecycle import StartStop
from ledgermq.client.links import Link, Links
from ledgermq.client.message import Attempt, Message, MessageQueue, SendResult
from ledgermq.client.oneway import Oneway
from ledgermq.client.request_reply import Requests
from ledgermq.client.selectors import Choice, QueueSelector, destination_of
from ledgermq.client.send_codec import (
    Outgoing,
    SendTarget,
    decode_acknowledgement,
    encode_send,
    prepare_batch,
    prepare_single,
    split_batch,
)
from ledgermq.client.slow_brokers import SlowBrokers
from ledgermq.client.subscription import RETRY_PREFIX
from ledgermq.client.targets import TopicTargets
from ledgermq.client.trace import hooks_of
from ledgermq.client.upkeep import Upkeep
from ledgermq.client.validation import check_group, check_same_key, check_topic
from ledgermq.remoting.protocol.bodies import HeartbeatData, ProducerData
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.dispatch import Handler
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng, SystemRng

_SYSTEM_CLOCK = SystemClock()
BATCH_BYTES = 1_048_576
"""How large `Producer.send_all` makes its batches, at most."""


class Producer(StartStop):
    """Sends messages of one producer group; use it as an async context manager.

    All methods belong to the event loop in which ``start`` ran. Delivery is at least once: a send
    that raises ``SendFailed`` with outcome UNKNOWN may have been stored.
    """

    def __init__(
        self, config: ClientConfig, *, clock: Clock = _SYSTEM_CLOCK, rng: Rng | None = None
    ) -> None:
        check_group(config.group)
        self.config = config
        self.clock = clock
        rng = rng or SystemRng()
        self._instance = ClientInstance(
            config, clock, rng, default_topic=config.default_topic, handlers=self._handlers()
        )
        self.routes = self._instance.routes
        self.stopping = self._instance.stopping
        self.links = Links(self._instance.client, self.routes, clock)
        self._instance.add_route_listener(self.links.on_route_change)
        self._next_id = self._instance.unique_ids.next
        self._topics: dict[str, TopicTargets] = {}
        self.slow = SlowBrokers(clock.monotonic_ms) if config.avoid_slow_brokers else None
        self._first_queue = rng.randint(0, 1 << 16)
        self._pending = 0
        self._pending_bytes = 0
        self._oneway = Oneway(config.max_pending_bytes)
        self._requests = Requests(self, self._instance)
        ids = self._instance.unique_ids
        self._hooks, self.tracing = hooks_of(config, Producer, clock, ids)
        self._grouper: Grouper | None = None

    @property
    def client_id(self) -> str:
        """The id under which brokers know this producer."""
        return self._instance.client_id

    async def start(self) -> None:
        """Begin heartbeats and route polling; contacts nobody yet."""
        config = self.config
        self._instance.start(self._heartbeat)
        if self.tracing is not None:
            await self.tracing.start()
        if config.auto_batch and config.auto_batch_messages_max > 1:
            loop = asyncio.get_running_loop()
            self._grouper = Grouper(self, self._instance.unique_ids, loop)
        Upkeep(self._instance, self.links, self.clock, config.stall_ms).start()

    async def stop(self) -> None:
        """Let the requests that are on the wire finish, unregister, close.

        They get ``stop_timeout_ms``, within the time that each send was given, and are not tried
        again. Sends that wait for a route, a connection or their next attempt end at once. All that
        end without a result raise ``SendFailed``: outcome FAILED is certainly not stored, UNKNOWN
        may be. Further sends raise ``NotRunning``. Calling it again is harmless.
        """
        await self._instance.stop(consumer=False, drained=self._is_drained)
        if self.tracing is not None:
            await self.tracing.stop()

    def send(
        self,
        message: Message,
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send one message and wait until the broker has stored it.

        ``queue`` is a queue or a selector (`ledgermq.client.selectors`); all attempts go to that
        queue. None takes the queue of the message's sharding key, if it has one. Otherwise the
        queues of the topic are taken in turn, and the message may share its request and its queue
        with others that are sent in the same turn of the loop (``ClientConfig.auto_batch``).
        ``timeout_ms`` is the budget of all attempts together.
        Errors: ``InvalidMessage``, ``NotRunning``, ``SelectorFailed``, ``TooManyPending`` before
        anything is sent; ``SendFailed`` afterwards.
        """
        if self._hooks is None:
            return self._send(message, queue, timeout_ms)
        return self._hooks.around(partial(self._send, message, queue, timeout_ms), (message,))

    async def send_batch(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored, in order, or none.

        All bodies and properties together keep the limit of one body; `send_all` cuts a long list.
        All have the same sharding key, or none, unless ``queue`` says where they go.
        ``SendResult.msg_id`` joins the ids with commas, ``queue_offset`` is the first one.
        Errors: as ``send``.
        """
        born_ms = self.clock.wall_ms()
        msg_ids = [self._next_id(born_ms) for _ in messages]
        limit = self.config.max_message_bytes
        outgoing = prepare_batch(messages, msg_ids, born_ms, max_bytes=limit)
        if queue is None:
            check_same_key(messages)
        destination = destination_of(queue, messages[0])
        return await self.told(partial(self.deliver, outgoing, destination, timeout_ms), messages)

    async def send_all(
        self,
        messages: Sequence[Message],
        queue: MessageQueue | QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic as batches that are small enough, one after the other.

        Each has the budget ``timeout_ms``. Errors: those of ``send_batch`` for the first batch;
        ``BatchFailed``, with the results of the batches before, for a later one.
        """
        results: list[SendResult] = []
        sent = 0
        for batch in split_batch(messages, min(BATCH_BYTES, self.config.max_message_bytes)):
            try:
                results.append(await self.send_batch(batch, queue, timeout_ms))
            except RemotingError as error:
                if not results:
                    raise
                unsent = len(messages) - sent - len(batch)
                raise BatchFailed(error, tuple(results), tuple(batch), unsent) from error
            sent += len(batch)
        return results

    async def send_oneway(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None
    ) -> str:
        """Send without waiting for an answer; returns the message's unique key.

        Nothing is known of the result and nothing is retried: a broker that no longer leads drops
        it, and nobody says so until the connection breaks or the routes are polled. What a broker
        does not read in time waits here, up to ``max_pending_bytes``. Errors: as ``send``, except
        that route and connection errors come as they are.
        """
        if self._hooks is None:
            return await self._send_oneway(message, queue)
        return await self._hooks.around(partial(self._send_oneway, message, queue), (message,))

    async def _send_oneway(
        self, message: Message, queue: MessageQueue | QueueSelector | None
    ) -> str:
        born_ms = self.clock.wall_ms()
        check_topic(message.topic)
        self._check_running()
        outgoing = prepare_single(
            message,
            self._next_id(born_ms),
            born_ms,
            max_bytes=self.config.max_message_bytes,
            compress_over=self.config.compress_over_bytes,
        )
        async with self.stopping.waiting():
            await self.routes.get(message.topic)
            destination = destination_of(queue, message)
            if callable(destination):
                destination = self.choose(message.topic, destination)
            target = self.select(message.topic, destination, frozenset())
            link = await self.links.connect_anew(
                target.broker_name, self.config.connect_timeout_ms, self._instance.refresh_broker
            )
        opaque = link.connection.next_opaque()
        header = encode_send(target, outgoing, opaque, FLAG_ONEWAY)
        await self._oneway.write(link.connection, header, outgoing.body)
        return outgoing.msg_id

    async def request(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | QueueSelector | None = None,
    ) -> MessageExt:
        """Send one message, and wait until a consumer has replied to it (`reply`).

        ``timeout_ms`` is for all of it; None takes ``send_timeout_ms``. Errors: as ``send``, and
        then the message has no reply yet; ``NoReply``; ``NotRunning`` with outcome UNKNOWN if the
        producer is stopped meanwhile; ``TooManyPending`` also if too many requests wait.
        """
        return await self._requests.request(message, timeout_ms, queue)

    async def reply(
        self, request: MessageExt, body: bytes, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send a reply to a message that somebody sent with `request`, who has it afterwards.

        Errors: ``InvalidMessage`` for a message that wants none; else as ``send``. A requester that
        waits no longer is `SendFailed` if it is gone, and nothing at all if it is still there.
        """
        return await self._requests.reply(request, body, timeout_ms)

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of ``topic``, asking the name servers now."""
        check_topic(topic)
        self._check_running()
        return list((await self.routes.refresh(topic)).publish_queues)

    async def create_topic(self, topic: str, queues: int) -> None:
        """Create ``topic`` with ``queues`` queues on every broker with a leader, or change it.

        Errors: ``NoRoute`` when no leader is known; ``ResponseError`` of the broker.
        """
        check_topic(topic)
        self._check_running()
        if queues < 1:
            raise ValueError(f"queues must be at least 1, not {queues}")
        await self._instance.create_topic(topic, queues)

    def told(
        self,
        begin: Callable[[], Awaitable[SendResult]],
        messages: Sequence[Message],
        kind: SendKind = SendKind.NORMAL,
    ) -> Awaitable[SendResult]:
        """Send, and tell hooks of it."""
        return begin() if self._hooks is None else self._hooks.around(begin, messages, kind)

    # The rest is the path of a send and what `ledgermq.client.delivery` needs of it.

    def maybe_place(self, topic: str) -> Place | None:
        """Return the next queue, if a batch may be sent to it and its leader is connected."""
        targets = self._maybe_targets(topic)
        if targets is None or not targets.all or topic.startswith(RETRY_PREFIX):
            return None
        target = targets.next_any()
        link = self.links.maybe_link(target.broker_name)
        if link is None or not link.takes_batches:
            targets.give_back()
            return None
        return target, link

    def select(self, topic: str, queue: MessageQueue | None, avoid: frozenset[str]) -> SendTarget:
        """Return the next queue, of a broker not in ``avoid`` if there is one.

        Errors: ``NoRoute`` when the topic has no writable queue.
        """
        targets = self._maybe_targets(topic)
        if targets is None:
            raise NoRoute(f"topic {topic!r}: no route yet")
        return targets.find(queue) if queue is not None else targets.next(avoid)

    def choose(self, topic: str, choice: Choice) -> MessageQueue:
        """Return the queue that a selector chooses of those of ``topic``.

        Errors: ``NoRoute``, ``SelectorFailed``.
        """
        targets = self._maybe_targets(topic)
        if targets is None or not targets.all:
            raise NoRoute(f"topic {topic!r} has no writable queue")
        return choice(targets.queues)

    async def attempt(
        self,
        link: Link,
        target: SendTarget,
        outgoing: Outgoing,
        t_limit_ns: int,
        earlier: tuple[Attempt, ...],
    ) -> SendResult:
        """Send once over ``link`` and return the result; raises ``RemotingError``."""
        monotonic_ns = self.clock.monotonic_ns
        connection = link.connection
        t_start_ns = monotonic_ns()
        opaque = connection.next_opaque()
        header = encode_send(target, outgoing, opaque, 0)
        timeout_ms = (t_limit_ns - t_start_ns) // NS_PER_MS
        answer = connection.start_request(opaque, timeout_ms, header, outgoing.body)
        if not link.pending:
            link.t_progress_ns = t_start_ns
        link.pending += 1
        try:
            frame = await answer
            t_end_ns = link.t_progress_ns = monotonic_ns()
        finally:
            link.pending -= 1
        if self.slow is not None:
            self.slow.note(target.broker_name, (t_end_ns - t_start_ns) // NS_PER_MS)
        status, stored = decode_acknowledgement(frame)
        attempt = Attempt(link.addr, t_start_ns, t_end_ns, int(status), "", None)
        queue = target.queue
        if stored.queue_id != queue.queue_id:
            queue = queue._replace(queue_id=stored.queue_id)
        tries = (*earlier, attempt) if earlier else (attempt,)
        return SendResult(
            status, outgoing.msg_id, stored.msg_id, queue, stored.queue_offset, tries, stored.region
        )

    async def _send(
        self,
        message: Message,
        queue: MessageQueue | QueueSelector | None,
        timeout_ms: int | None,
    ) -> SendResult:
        grouper = self._grouper
        if (
            grouper is not None
            and queue is None
            and (self._pending or grouper.crowded)
            and not message.sharding_key
        ):
            size_bytes = len(message.body)
            self._admit(size_bytes)
            joined = grouper.join(message, timeout_ms)
            if joined is not None:
                self._pending += 1
                self._pending_bytes += size_bytes
                try:
                    ending = await joined
                    if type(ending) is SendResult:
                        if self.slow is not None:
                            self.slow.note_result(ending)
                        return ending
                    assert isinstance(ending, GroupFailed)
                    return await self._go_on_alone(ending)
                finally:
                    self._pending -= 1
                    self._pending_bytes -= size_bytes
        born_ms = self.clock.wall_ms()
        if message.topic not in self._topics:
            check_topic(message.topic)
        config = self.config
        outgoing = prepare_single(
            message,
            self._next_id(born_ms),
            born_ms,
            max_bytes=config.max_message_bytes,
            compress_over=config.compress_over_bytes,
        )
        return await self.deliver(outgoing, destination_of(queue, message), timeout_ms)

    async def deliver(
        self, outgoing: Outgoing, queue: MessageQueue | Choice | None, timeout_ms: int | None
    ) -> SendResult:
        """Send what was validated and rendered; errors as `send`, less ``InvalidMessage``."""
        size_bytes = len(outgoing.body)
        self._admit(size_bytes)
        choice = None
        if callable(queue):
            choice, queue = queue, None
        if timeout_ms is None:
            timeout_ms = self.config.send_timeout_ms
        self._pending += 1
        self._pending_bytes += size_bytes
        try:
            t_start_ns = self.clock.monotonic_ns()
            t_limit_ns = t_start_ns + timeout_ms * NS_PER_MS
            targets = self._maybe_targets(outgoing.topic)
            if targets is not None and targets.all:
                if choice is not None:
                    queue, choice = choice(targets.queues), None
                target = targets.next_any() if queue is None else targets.find(queue)
                link = self.links.maybe_link(target.broker_name)
                if link is not None:
                    try:
                        return await self.attempt(link, target, outgoing, t_limit_ns, ())
                    except RemotingError as error:
                        failed = error
                    delivery = Delivery(self, outgoing, queue, t_limit_ns)
                    await delivery.after(failed, target.broker_name, link.addr, t_start_ns)
                    return await delivery.run()
                if queue is None:
                    targets.give_back()
            return await Delivery(self, outgoing, queue, t_limit_ns, choice).run()
        finally:
            self._pending -= 1
            self._pending_bytes -= size_bytes

    async def _go_on_alone(self, failed: GroupFailed) -> SendResult:
        """Send a message whose group has failed, within what is left of its budget."""
        config, group = self.config, failed.group
        outgoing = prepare_single(
            failed.message,
            failed.msg_id,
            group.born_ms,
            max_bytes=config.max_message_bytes,
            compress_over=config.compress_over_bytes,
        )
        t_limit_ns = group.t_start_ns + group.timeout_ms * NS_PER_MS
        delivery = Delivery(self, outgoing, None, t_limit_ns)
        happened = failed.error, group.target.broker_name, group.link.addr, group.t_start_ns
        if len(group.members) > 1:
            await delivery.after_group(*happened)
        else:
            await delivery.after(*happened)
        return await delivery.run()

    def _handlers(self) -> Mapping[int, Handler]:
        """Return who serves what brokers ask."""
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._on_reply}

    def _on_reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return self._requests.take(connection, command)

    def _is_drained(self) -> bool:
        """Return whether nothing is under way that `stop` should wait for."""
        return not self._pending

    def _admit(self, size_bytes: int) -> None:
        """Raise unless one more send may begin; one alone always may."""
        if not self._instance.running:
            self._check_running()
        config, pending = self.config, self._pending
        if pending and (
            pending >= config.max_pending_sends
            or self._pending_bytes + size_bytes > config.max_pending_bytes
        ):
            raise TooManyPending(
                f"{pending} sends with {self._pending_bytes} bytes are pending, and {size_bytes} "
                f"bytes more are over max_pending_sends ({config.max_pending_sends}) or "
                f"max_pending_bytes ({config.max_pending_bytes})"
            )

    def _maybe_targets(self, topic: str) -> TopicTargets | None:
        targets = self._topics.get(topic)
        route = self.routes.peek(topic)
        if targets is not None and targets.route is route:
            return targets
        if route is None:
            return None
        if targets is not None and targets.route.publish_queues == route.publish_queues:
            targets.route = route
            return targets
        first = targets.index if targets is not None else self._first_queue
        targets = self._topics[topic] = TopicTargets(route, self.config, first, self.slow)
        return targets

    def _check_running(self) -> None:
        self._instance.check_running("producer")

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=self.config.group)],
        )
