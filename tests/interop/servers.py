"""The servers against which our client's suite runs, and what its tests share.

Ours, and RocketMQ's of two versions. What a test may take for granted of each is said here, so that
a test that has to tell them apart says by which trait.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from bench import java
from bench.cluster import Cluster
from ledgermq import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    NoRoute,
    Producer,
    PullConsumer,
    PushConsumer,
    RemotingError,
)
from ledgermq.runtime.cancel import timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from pathlib import Path

    from bench.processes import ServerProcesses

WITHIN_S = 60.0
QUEUES = 4
SETTINGS = (
    "transactionTimeOut=500",
    "transactionCheckInterval=1000",
    "traceTopicEnable=true",
    "enablePropertyFilter=true",
)
SETTINGS_5 = ("transactionOpBatchInterval=50",)
"""RocketMQ 5 writes down decisions every 3 s; asked about so young a half, it asks once more."""
OURS, REAL, REAL_GROUP, REAL_5 = "ours", "RocketMQ 4.9.7", "its DLedger group", "RocketMQ 5.3.3"
ALL = (OURS, REAL, REAL_GROUP, REAL_5)
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of one kind."""

    kind: str
    namesrv_addr: str

    @property
    def is_ours(self) -> bool:
        """Whether it is made of our brokers."""
        return self.kind == OURS

    def config(self, group: str, **more: Any) -> ClientConfig:
        """Return settings of a client of ``group`` that looks often, for quick tests."""
        wanted: dict[str, Any] = {
            "rebalance_ms": 500, "persist_offset_ms": 500, "leader_check_ms": 500,
            "route_poll_ms": 1_000, "heartbeat_ms": 3_000, "send_timeout_ms": 10_000,
            "request_timeout_ms": 10_000, **more,
        }  # fmt: skip
        return ClientConfig(namesrv_addrs=(self.namesrv_addr,), group=group, **wanted)


def start(kind: str, home: Path) -> ServerProcesses:
    """Return a server of ``kind`` as a context manager; skips the test where it cannot be had."""
    if kind == OURS:
        return Cluster(home, replicas=3, sync_flush=False, settings=SETTINGS)
    try:
        tools = java.prepare("5.3.3") if kind == REAL_5 else java.prepare()
    except java.JavaUnavailableError as error:
        pytest.skip(f"our client against {kind} skipped: {error}")
    replicas = 3 if kind == REAL_GROUP else 1
    settings = SETTINGS + SETTINGS_5 if kind == REAL_5 else SETTINGS
    return java.RealRocketMQ(
        tools, home, replicas=replicas, sync_flush=False, settings=settings, heap_mb=512
    )


def name(stem: str) -> str:
    """Return a name for a topic or a group that no other test uses."""
    return f"{stem}_{next(_numbers)}"


def run(body: Coroutine[Any, Any, None]) -> None:
    """Run a test that uses the client."""
    asyncio.run(body)


async def until(met: Callable[[], bool], what: str = "it", within_s: float = WITHIN_S) -> None:
    """Wait until ``met``; says what did not come."""
    try:
        async with timeout(within_s):
            while not met():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"no {what} within {within_s} s") from None


async def topic_of(server: Server, stem: str, queues: int = QUEUES) -> str:
    """Create a topic, and wait until the name server tells of its queues."""
    topic = name(stem)
    async with Producer(server.config("preparing")) as producer, timeout(WITHIN_S):
        while True:
            with contextlib.suppress(RemotingError):  # of a server that has just started
                await producer.create_topic(topic, queues)
                if len(await producer.fetch_publish_queues(topic)) == queues:
                    return topic
            await asyncio.sleep(0.1)


async def send_all(server: Server, topic: str, bodies: Iterable[bytes], **more: Any) -> None:
    """Send messages one after the other."""
    async with Producer(server.config("sending")) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **more))


async def stored(server: Server, topic: str, count: int) -> list[MessageExt]:
    """Return the messages of a topic by queue and offset, once there are ``count``."""
    found: list[MessageExt] = []
    async with PullConsumer(server.config("reading")) as reader, timeout(WITHIN_S):
        while len(found) < count:
            found = []
            queues: list[MessageQueue] = []
            with contextlib.suppress(NoRoute):  # of a topic that is about to come
                queues = await reader.fetch_subscribe_queues(topic)
            for queue in sorted(queues):
                offset = await reader.min_offset(queue)
                while offset < await reader.max_offset(queue):
                    result = await reader.pull(queue, "*", offset)
                    found += result.messages
                    offset = result.next_offset
            await asyncio.sleep(0.05)
    return found


class Seen:
    """A listener that notes what it is given; each message with its number of redeliveries."""

    def __init__(self, says: Callable[[MessageExt, ConsumeContext], ConsumeStatus] | None = None):
        self.messages: list[MessageExt] = []
        self._says = says

    def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Note it; success, unless somebody else is to say."""
        said = ConsumeStatus.CONSUME_SUCCESS
        for message in messages:
            self.messages.append(message)
            if self._says is not None:
                said = self._says(message, context)
        return said

    @property
    def bodies(self) -> list[bytes]:
        """The bodies, in the order in which they came."""
        return [message.body for message in self.messages]


def member(
    server: Server, group: str, listener: Seen, topic: str, expression: Any = "*", **options: Any
) -> PushConsumer:
    """Return a member of a group that begins at the first message, unless told otherwise."""
    wanted = {
        "consume_from": ConsumeFrom.FIRST_OFFSET, "suspend_ms": 2_000, "pull_timeout_ms": 8_000,
        "local_retry_ms": 1_000, **options,
    }  # fmt: skip
    consumer = PushConsumer(server.config(group), listener, ConsumeOptions(**wanted))
    consumer.subscribe(topic, expression)
    return consumer
