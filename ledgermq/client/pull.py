"""The pull consumer: the user decides which queue to read from where, and what to commit.

It takes no part in rebalancing. Reads go to the leader and are repeated through a change of leader
within ``request_timeout_ms``. Source: DefaultMQPullConsumerImpl.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ledgermq.client.broker_api import PullRequest
from ledgermq.client.config import ClientConfig
from ledgermq.client.instance import ClientInstance
from ledgermq.client.lifecycle import StartStop
from ledgermq.client.message import MessageQueue, PullResult
from ledgermq.client.subscription import Sql92, parse_subscription
from ledgermq.client.validation import check_group, check_topic
from ledgermq.remoting.protocol.bodies import ConsumerData, HeartbeatData
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import ResponseError
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng, SystemRng

T = TypeVar("T")

_SYSTEM_CLOCK = SystemClock()
PULL_COUNT_MAX = 1024


class PullConsumer(StartStop):
    """Reads queues; use it as an async context manager."""

    def __init__(
        self, config: ClientConfig, *, clock: Clock = _SYSTEM_CLOCK, rng: Rng | None = None
    ) -> None:
        check_group(config.group)
        self.config = config
        self._clock = clock
        self._instance = ClientInstance(config, clock, rng or SystemRng())
        self._leaders = self._instance.leader_calls()
        self._pending = 0

    @property
    def client_id(self) -> str:
        """The id under which brokers know this consumer."""
        return self._instance.client_id

    async def start(self) -> None:
        """Begin heartbeats and route polling; contacts nobody yet."""
        self._instance.start(self._heartbeat)

    async def stop(self) -> None:
        """Let calls in progress finish (at most ``stop_timeout_ms``), leave the group, close.

        None of them is tried again, and pulls that the broker may hold are not waited for: they
        raise ``NotRunning``. Calling it again is harmless.
        """
        await self._instance.stop(consumer=True, drained=lambda: not self._pending)

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of ``topic``, asking the name servers now."""
        check_topic(topic)
        self._check_running()
        return list((await self._instance.routes.refresh(topic)).subscribe_queues)

    async def pull(
        self,
        queue: MessageQueue,
        expression: str | Sql92 = "*",
        offset: int = 0,
        max_count: int = 32,
        block_ms: int = 0,
    ) -> PullResult:
        """Read up to ``max_count`` messages from ``offset`` on.

        ``expression`` is ``*``, ``TagA || TagB`` or `Sql92`. ``block_ms`` lets the broker hold the
        answer while there is nothing new; after a change of leader the next one holds it for the
        rest of that time. Errors: ``RemotingError`` of the last try.
        """
        if not 1 <= max_count <= PULL_COUNT_MAX:
            raise ValueError(f"max_count {max_count} is not in 1..{PULL_COUNT_MAX}")
        if offset < 0 or block_ms < 0:
            raise ValueError(f"offset {offset} and block_ms {block_ms} must not be negative")
        version = self._clock.wall_ms()
        subscription = parse_subscription(queue.topic, expression, version)
        api, timeout_ms = self._instance.api, self.config.request_timeout_ms
        block_until_ms = self._clock.monotonic_ms() + block_ms

        def ask(addr: str) -> Awaitable[PullResult]:
            left_ms = max(block_until_ms - self._clock.monotonic_ms(), 0)
            request = PullRequest(
                queue=queue,
                offset=offset,
                max_count=max_count,
                suspend_ms=left_ms,
                expression=subscription.expression,
                expression_type=subscription.expression_type,
                sub_version=version,
            )
            return api.pull(addr, request, left_ms + timeout_ms)

        result = await self._call(queue, ask, block_ms)
        result.messages[:] = subscription.select(result.messages)
        return result

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message kept."""
        return await self._call(queue, lambda addr: self._instance.api.min_offset(addr, queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get."""
        return await self._call(queue, lambda addr: self._instance.api.max_offset(addr, queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a wall-clock time."""
        api = self._instance.api
        return await self._call(queue, lambda addr: api.search_offset(addr, queue, timestamp_ms))

    async def fetch_offset(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none."""
        return await self._call(queue, lambda addr: self._instance.api.fetch_offset(addr, queue))

    async def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Store ``offset`` as the group's next one to consume and wait for the answer."""
        if offset < 0:
            raise ValueError(f"offset {offset} must not be negative")
        await self._call(queue, lambda addr: self._commit(addr, queue, offset))

    async def _commit(self, addr: str, queue: MessageQueue, offset: int) -> None:
        """Commit at a broker; RocketMQ 5 knows a group only from its first heartbeat on (26)."""
        api = self._instance.api
        try:
            await api.commit_offset(addr, queue, offset)
        except ResponseError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._instance.heartbeat(addr)
            await api.commit_offset(addr, queue, offset)

    async def _call(
        self, queue: MessageQueue, ask: Callable[[str], Awaitable[T]], block_ms: int = 0
    ) -> T:
        self._check_running()
        if block_ms:
            return await self._leaders.call(queue, ask, block_ms, slaves=True)
        self._pending += 1
        try:
            return await self._leaders.call(queue, ask, slaves=True)
        finally:
            self._pending -= 1

    def _check_running(self) -> None:
        self._instance.check_running("consumer")

    def _heartbeat(self) -> HeartbeatData:
        group = ConsumerData(group_name=self.config.group, consume_type="CONSUME_ACTIVELY")
        return HeartbeatData(client_id=self.client_id, consumer_data_set=[group])
