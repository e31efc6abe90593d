"""Messages that listeners fail for, against real brokers: again later, and at last dead letters."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
)
from tests.integration.broker_cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "may-fail"
GROUP = "readers"
DEAD_LETTERS = f"%DLQ%{GROUP}"
OPTIONS = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=1_000, pull_timeout_ms=5_000,
    local_retry_ms=600_000,
)  # fmt: skip
"""What is kept by the client comes again much later than these tests take."""
WAIT_S = 60


class Deliveries:
    """A listener that fails for a message as often as told; it notes what it saw."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.seen: dict[bytes, list[tuple[str, int, str]]] = {}

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        (message,) = messages
        seen = self.seen.setdefault(message.body, [])
        seen.append((message.topic, message.reconsume_times, message.message_id()))
        context.delay_level = 1
        if message.reconsume_times < self.failures:
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    def done(self, count: int) -> bool:
        """Tell whether so many messages have come to their end."""
        ends = [max(times for _, times, _ in seen) for seen in self.seen.values()]
        return sum(times >= self.failures for times in ends) >= count

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await asyncio.sleep(0.02)


def config_of(group: Cluster, name: str) -> ClientConfig:
    return ClientConfig(
        namesrv_addrs=(group.config(0).namesrv_addr,), group=name, rebalance_ms=500,
        persist_offset_ms=200, leader_check_ms=200,
    )  # fmt: skip


def consumer_of(
    group: Cluster, listener: Deliveries, options: ConsumeOptions = OPTIONS
) -> PushConsumer:
    consumer = PushConsumer(config_of(group, GROUP), listener, options)
    consumer.subscribe(TOPIC)
    return consumer


async def send(group: Cluster, count: int) -> list[str]:
    """Send messages with bodies 0, 1, ...; return their ids."""
    await group.leader()
    async with Producer(config_of(group, "senders")) as producer:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(Exception):
                    await producer.create_topic(TOPIC, 2)
                    break
                await asyncio.sleep(0.1)
        sent = [await producer.send(Message(TOPIC, b"%d" % i, tags="T")) for i in range(count)]
    return [result.msg_id for result in sent]


async def dead_letters(group: Cluster, count: int) -> list[MessageExt]:
    """Wait for so many dead letters and return all that there are."""
    async with PullConsumer(config_of(group, "undertakers")) as consumer, asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(Exception):
                (queue,) = await consumer.fetch_subscribe_queues(DEAD_LETTERS)
                found = await consumer.pull(queue, offset=0)
                if found.status is PullStatus.FOUND and len(found.messages) >= count:
                    return found.messages
            await asyncio.sleep(0.1)


async def committed(group: Cluster, queue: MessageQueue) -> int:
    async with PullConsumer(config_of(group, GROUP)) as consumer:
        return await consumer.fetch_offset(queue)


def test_a_listener_that_fails_twice_has_the_message_again_and_again(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(tmp_path) as group:
            (msg_id,) = await send(group, 1)
            listener = Deliveries(failures=2)
            async with consumer_of(group, listener):
                await listener.until(lambda: listener.done(1))
            assert listener.seen == {b"0": [(TOPIC, times, msg_id) for times in range(3)]}
            retries = MessageQueue(f"%RETRY%{GROUP}", "g0", 0)
            assert await committed(group, retries) == 2

    asyncio.run(body())


def test_who_always_fails_makes_a_dead_letter(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(tmp_path) as group:
            (msg_id,) = await send(group, 1)
            listener = Deliveries(failures=99)
            options = replace(OPTIONS, max_reconsume_times=2)
            async with consumer_of(group, listener, options):
                (dead,) = await dead_letters(group, 1)
            assert [times for _, times, _ in listener.seen[b"0"]] == [0, 1, 2]
            assert (dead.body, dead.message_id(), dead.reconsume_times) == (b"0", msg_id, 3)
            properties = dead.property_map()
            assert (properties["RETRY_TOPIC"], properties["TAGS"]) == (TOPIC, "T")
            origin = properties["ORIGIN_MESSAGE_ID"]
            answer = await group.ask(0, 33, offset=int(origin[16:], 16))
            assert answer.code == 0
            assert msg_id.encode() in answer.body

    asyncio.run(body())


def test_nothing_is_lost_when_the_leader_dies_before_what_was_given_back_is_due(
    tmp_path: Path,
) -> None:
    count = 20

    async def body() -> None:
        async with cluster(tmp_path, count=3) as group:
            await send(group, count)
            listener = Deliveries(failures=2)
            async with consumer_of(group, listener):
                await listener.until(lambda: len(listener.seen) == count)
                await group.stop(await group.leader())
                await listener.until(lambda: listener.done(count))
            for seen in listener.seen.values():
                # A copy may have been made twice where an answer was lost with the leader.
                assert {times for _, times, _ in seen} == {0, 1, 2}
                assert {topic for topic, _, _ in seen} == {TOPIC}

    asyncio.run(body())
