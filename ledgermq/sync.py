"""The client for programs without asyncio: ``from ledgermq.sync import Producer``.

The same code as `ledgermq.client`, whose classes of the same names say what the methods do: all
clients of the process live in the event loop of one background thread, which runs while one of them
does. A call blocks its thread until the loop has the result. Listeners run in threads,
``concurrency`` of them at a time, and may block and send.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from ledgermq.client.admin import END
from ledgermq.client.admin import AdminClient as AsyncAdminClient
from ledgermq.client.config import ClientConfig, ConsumeOptions, LitePullOptions, TransactionOptions
from ledgermq.client.finder import COUNT_MAX
from ledgermq.client.finder import MessageFinder as AsyncMessageFinder
from ledgermq.client.listening import check_listener
from ledgermq.client.lite_pull import LitePullConsumer as AsyncLitePullConsumer
from ledgermq.client.off_loop import OffLoop
from ledgermq.client.producer import Producer as AsyncProducer
from ledgermq.client.pull import PullConsumer as AsyncPullConsumer
from ledgermq.client.push import PushConsumer as AsyncPushConsumer
from ledgermq.client.transaction import TransactionProducer as AsyncTransactionProducer
from ledgermq.sync_loop import Blocking, listens_for

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from ledgermq.client.admin import BrokerPlace, GroupConnections, QueueProgress, QueueStats
    from ledgermq.client.deciding import TransactionListener
    from ledgermq.client.halves import TransactionResult
    from ledgermq.client.message import (
        ConsumeContext,
        ConsumeStatus,
        Message,
        MessageQueue,
        PullResult,
        SendResult,
    )
    from ledgermq.client.route import TopicRoute
    from ledgermq.client.selectors import QueueSelector
    from ledgermq.client.subscription import Sql92
    from ledgermq.remoting.protocol.errors import RemotingError
    from ledgermq.remoting.protocol.message import MessageExt
    from ledgermq.remoting.protocol.signing import Credentials

    Listener = Callable[[list[MessageExt], ConsumeContext], ConsumeStatus]
    Destination = MessageQueue | QueueSelector | None

__all__ = [
    "AdminClient",
    "LitePullConsumer",
    "MessageFinder",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]


class Producer(Blocking[AsyncProducer]):
    """Sends messages; its methods may be called by many threads."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(AsyncProducer(config))

    @property
    def client_id(self) -> str:
        """The id under which brokers know this producer."""
        return self._client.client_id

    def send(
        self, message: Message, queue: Destination = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message and wait until the broker has stored it."""
        return self._call(self._client.send(message, queue, timeout_ms))

    def send_batch(
        self, messages: Sequence[Message], queue: Destination = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic as one request: all are stored, in order, or none."""
        return self._call(self._client.send_batch(messages, queue, timeout_ms))

    def send_all(
        self, messages: Sequence[Message], queue: Destination = None, timeout_ms: int | None = None
    ) -> list[SendResult]:
        """Send messages of one topic as batches that are small enough, one after the other."""
        return self._call(self._client.send_all(messages, queue, timeout_ms))

    def send_oneway(self, message: Message, queue: Destination = None) -> str:
        """Send without waiting for an answer; returns the message's unique key."""
        return self._call(self._client.send_oneway(message, queue))

    def request(
        self, message: Message, timeout_ms: int | None = None, *, queue: Destination = None
    ) -> MessageExt:
        """Send one message, and wait until a consumer has replied to it (`reply`)."""
        return self._call(self._client.request(message, timeout_ms, queue=queue))

    def reply(
        self, request: MessageExt, body: bytes, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send a reply to a message that somebody sent with `request`."""
        return self._call(self._client.reply(request, body, timeout_ms=timeout_ms))

    def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of ``topic``, asking the name servers now."""
        return self._call(self._client.fetch_publish_queues(topic))

    def create_topic(self, topic: str, queues: int) -> None:
        """Create ``topic`` with ``queues`` queues on every broker with a leader, or change it."""
        self._call(self._client.create_topic(topic, queues))


class TransactionProducer(Producer):
    """Also sends messages in transactions."""

    def __init__(
        self,
        config: ClientConfig,
        listener: TransactionListener,
        options: TransactionOptions | None = None,
    ) -> None:
        self._transactions = AsyncTransactionProducer(config, listener, options)
        Blocking.__init__(self, self._transactions)

    def send_in_transaction(
        self,
        message: Message,
        arg: object = None,
        *,
        queue: Destination = None,
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Store a half of ``message``, run the local transaction, and say how it ended."""
        return self._call(
            self._transactions.send_in_transaction(message, arg, queue=queue, timeout_ms=timeout_ms)
        )


CG = TypeVar("CG", AsyncPushConsumer, AsyncLitePullConsumer)


class _Member(Blocking[CG]):
    """A member of a consumer group."""

    @property
    def client_id(self) -> str:
        """The id under which brokers know this consumer."""
        return self._client.client_id

    @property
    def problems(self) -> dict[str, RemotingError]:
        """Why topics are not consumed now, by topic; empty while all is well."""
        return self._do(lambda: self._client.problems)

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that this member consumes now, sorted."""
        return self._do(lambda: self._client.assigned_queues)

    def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """Subscribe to ``topic``; ``expression`` is ``*``, ``TagA || TagB`` or `Sql92`."""
        self._do(lambda: self._client.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Consume ``topic`` no more."""
        self._do(lambda: self._client.unsubscribe(topic))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of some queues, or of all."""
        self._do(lambda: self._client.pause(queues))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with some paused queues, or with all, which alone ends a pause of all."""
        self._do(lambda: self._client.resume(queues))

    def wait_joined(self, timeout_s: float = 10.0) -> None:
        """Wait until this member has its share of every topic; raises what blocks it by then."""
        self._call(self._client.wait_joined(timeout_s))


class PushConsumer(_Member[AsyncPushConsumer]):
    """Hands messages to a listener, a function that may block.

    ``ConsumeOptions.concurrency`` calls run at a time, each in a thread. The listener may use other
    clients of this module; it cannot stop its own consumer.
    """

    def __init__(
        self, config: ClientConfig, listener: Listener, options: ConsumeOptions | None = None
    ) -> None:
        if inspect.iscoroutinefunction(listener):
            raise TypeError("a coroutine as a listener needs ledgermq.PushConsumer")
        check_listener(listener)
        options = options or ConsumeOptions()
        self._listener = listener
        self._threads = OffLoop(options.concurrency)
        super().__init__(AsyncPushConsumer(config, self._listen, options))

    def _listen(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> asyncio.Future[ConsumeStatus]:
        def call() -> object:
            listens_for.set(self)
            return self._listener(messages, context)

        called: asyncio.Future[Any] = self._threads.submit(call, _nothing)
        return called


class LitePullConsumer(_Member[AsyncLitePullConsumer]):
    """A member that is polled.

    ``for message in consumer`` polls for ever.
    """

    def __init__(self, config: ClientConfig, options: LitePullOptions | None = None) -> None:
        super().__init__(AsyncLitePullConsumer(config, options))
        self._poller: threading.Thread | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        poller = self._poller
        is_at_work = poller is not None and poller.is_alive()
        if is_at_work and poller is not threading.current_thread() and self._loop is not None:
            self.keep()  # It may be at work on what it polled.
        super().__exit__(kind, error, trace)

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql92 = "*") -> None:
        """Take exactly these queues; nobody shares them."""
        self._do(lambda: self._client.assign(queues, expression))

    def poll(self, timeout_s: float = 5.0, max_count: int | None = None) -> list[MessageExt]:
        """Return messages, as soon as there are any, or none after ``timeout_s``.

        Where Ctrl-C ends it, the next poll returns what it would have returned.
        """
        self._poller = threading.current_thread()
        return self._call(self._client.poll(timeout_s, max_count), self._client.take_back)

    def keep(self) -> None:
        """Leave what the last poll gave out unfinished: it is not committed, and comes again."""
        self._do(self._client.keep)

    def __iter__(self) -> Iterator[MessageExt]:
        while self._loop is not None:
            yield from self.poll(max_count=1)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit ``offsets``, or all that was given out until now, and wait for the answers."""
        self._call(self._client.commit(offsets))

    def committed(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none."""
        return self._call(self._client.committed(queue))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset behind what was given out and done with."""
        return self._do(lambda: self._client.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``."""
        self._call(self._client.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message kept."""
        self._call(self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on."""
        self._call(self._client.seek_to_end(queue))

    def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with the first message stored at or after a wall-clock time."""
        self._call(self._client.seek_to_timestamp(queue, timestamp_ms))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a wall-clock time."""
        return self._call(self._client.offset_for_timestamp(queue, timestamp_ms))

    def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of ``topic``, asking the name servers now."""
        return self._call(self._client.fetch_queues(topic))


class PullConsumer(Blocking[AsyncPullConsumer]):
    """Reads queues from where the caller likes; takes no part in rebalancing."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(AsyncPullConsumer(config))

    @property
    def client_id(self) -> str:
        """The id under which brokers know this consumer."""
        return self._client.client_id

    def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of ``topic``, asking the name servers now."""
        return self._call(self._client.fetch_subscribe_queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        expression: str | Sql92 = "*",
        offset: int = 0,
        max_count: int = 32,
        block_ms: int = 0,
    ) -> PullResult:
        """Read up to ``max_count`` messages from ``offset`` on."""
        return self._call(self._client.pull(queue, expression, offset, max_count, block_ms))

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message kept."""
        return self._call(self._client.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get."""
        return self._call(self._client.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a wall-clock time."""
        return self._call(self._client.search_offset(queue, timestamp_ms))

    def fetch_offset(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none."""
        return self._call(self._client.fetch_offset(queue))

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Store ``offset`` as the group's next one to consume, and wait for the answer."""
        self._call(self._client.commit_offset(queue, offset))


F = TypeVar("F", AsyncMessageFinder, AsyncAdminClient)


class _Finder(Blocking[F]):
    """Finds messages."""

    def by_key(
        self,
        topic: str,
        key: str,
        max_count: int = COUNT_MAX,
        begin_ms: int = 0,
        end_ms: int = (1 << 63) - 1,
    ) -> list[MessageExt]:
        """Return messages with ``key`` among their KEYS, oldest first, ``max_count`` a broker."""
        return self._call(self._client.by_key(topic, key, max_count, begin_ms, end_ms))

    def by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Return the messages that a producer gave this id; more than one if it was sent again."""
        return self._call(self._client.by_unique_key(topic, unique_key))

    def by_id(self, offset_message_id: str) -> MessageExt | None:
        """Return the message that a broker gave this id, None if there is none."""
        return self._call(self._client.by_id(offset_message_id))


class MessageFinder(_Finder[AsyncMessageFinder]):
    """Finds messages."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(AsyncMessageFinder(config))


class AdminClient(_Finder[AsyncAdminClient]):
    """Looks at a cluster and prepares it."""

    def __init__(self, config: ClientConfig, *, credentials: Credentials | None = None) -> None:
        super().__init__(AsyncAdminClient(config, credentials=credentials))

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._call(self._client.topics())

    def topic_route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic and the brokers that hold them."""
        return self._call(self._client.topic_route(topic))

    def create_topic(
        self, topic: str, queues: int = 8, *, cluster: str = "", broker: str = ""
    ) -> None:
        """Create a topic with so many queues on every broker, or change it."""
        self._call(self._client.create_topic(topic, queues, cluster=cluster, broker=broker))

    def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic on the brokers that hold it, and on name servers; returns who did it."""
        return self._call(self._client.delete_topic(topic))

    def topic_stats(self, topic: str) -> list[QueueStats]:
        """Return the offsets of a topic's queues, sorted."""
        return self._call(self._client.topic_stats(topic))

    def groups(self) -> list[str]:
        """Return the names of the consumer groups that any leader knows, sorted."""
        return self._call(self._client.groups())

    def delete_group(self, group: str, *, offsets: bool = False) -> list[str]:
        """Delete a group's settings on every broker, its offsets if told to; returns who did it."""
        return self._call(self._client.delete_group(group, offsets=offsets))

    def group_progress(self, group: str, topic: str = "") -> list[QueueProgress]:
        """Return how far a group has come in a topic, or in all topics in which it has offsets."""
        return self._call(self._client.group_progress(group, topic))

    def group_connections(self, group: str) -> GroupConnections | None:
        """Return who of a group is connected; None if nobody is."""
        return self._call(self._client.group_connections(group))

    def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int = END
    ) -> dict[MessageQueue, int]:
        """Have a group go on at a time, -1 for the end; returns where, by queue."""
        return self._call(self._client.reset_offsets(group, topic, timestamp_ms))

    def clone_offsets(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Give ``target`` the offsets that ``source`` has in a topic; returns them by queue."""
        return self._call(self._client.clone_offsets(source, target, topic))

    def brokers(self) -> list[BrokerPlace]:
        """Return all broker processes, sorted."""
        return self._call(self._client.brokers())

    def broker_status(self, address: str) -> dict[str, str]:
        """Return the figures of one broker, as RocketMQ names them."""
        return self._call(self._client.broker_status(address))

    def broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of one broker."""
        return self._call(self._client.broker_config(address))

    def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at an offset of a queue, None if there is none (any more)."""
        return self._call(self._client.message_at(queue, offset))


def _nothing() -> None:
    pass
