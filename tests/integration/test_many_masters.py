"""Two masters of two names, as processes: they share topics, and each goes on alone."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ledgermq.client import (
    AdminClient,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    NoRoute,
    Producer,
    PushConsumer,
)
from tests.integration.broker_cluster import until
from tests.integration.classic_brokers import Classic, classic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TOPIC = "orders"
TIMEOUT_S = 120
ROLE = {"brokerRole": "ASYNC_MASTER"}


class Seen:
    """A listener that keeps bodies."""

    def __init__(self) -> None:
        self.bodies: Counter[bytes] = Counter()

    def __call__(self, messages: list[Message], _context: object) -> ConsumeStatus:
        self.bodies.update(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS


async def create_topics(brokers: Classic) -> None:
    """Make one topic on all masters of the cluster, one on a single broker."""
    async with AdminClient(brokers.config("admin")) as admin:
        await admin.create_topic(TOPIC, 2, cluster="C")
        await admin.create_topic("only-b", 3, broker=brokers.address("b0"))
        with pytest.raises(NoRoute, match="no master"):
            await admin.create_topic("none", 2, cluster="other")
        both = await admin.topic_route(TOPIC)
        assert Counter(one.broker_name for one in both.publish_queues) == {
            "broker-a": 2,
            "broker-b": 2,
        }
        alone = await admin.topic_route("only-b")
        assert {one.broker_name for one in alone.publish_queues} == {"broker-b"}


async def check(directory: Path) -> None:
    async with classic(directory) as brokers:
        await brokers.start("a0")
        await brokers.start("b0")
        await create_topics(brokers)
        seen = [Seen(), Seen()]
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumers = [
            PushConsumer(brokers.config("g", instance_name=f"c{i}", rebalance_ms=500), one, options)
            for i, one in enumerate(seen)
        ]
        for consumer in consumers:
            consumer.subscribe(TOPIC)
        sent: Counter[bytes] = Counter()
        used: Counter[str] = Counter()

        async def send(producer: Producer, count: int) -> None:
            for _ in range(count):
                body = b"%d" % len(sent)
                result = await producer.send(Message(TOPIC, body))
                sent[body] += 1
                used[result.queue.broker_name] += 1

        producing = Producer(brokers.config("p", send_timeout_ms=10_000))
        async with producing as producer, consumers[0], consumers[1]:
            await send(producer, 100)
            assert used == {"broker-a": 50, "broker-b": 50}
            await until(lambda: set(seen[0].bodies + seen[1].bodies) == set(sent), "all messages")
            held = [len(one.assignment.queues) for one in consumers]
            assert sum(held) >= 4
            brokers.kill("a0")
            used.clear()
            await send(producer, 50)
            assert used == {"broker-b": 50}
            reached = seen[0].bodies + seen[1].bodies
            await until(
                lambda: set(seen[0].bodies + seen[1].bodies) == set(sent),
                f"what the other broker took, of {len(sent)} {len(reached)}",
            )
            await brokers.start("a0")
            used.clear()

            async def returned() -> None:
                while not used["broker-a"]:
                    await send(producer, 2)
                    await asyncio.sleep(0.1)

            await asyncio.wait_for(returned(), 60)
            await until(lambda: set(seen[0].bodies + seen[1].bodies) == set(sent), "the rest")
        assert seen[0].bodies, "the queues were shared"
        assert seen[1].bodies, "the queues were shared"


def test_two_masters_share_a_topic_and_each_goes_on_alone(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(check(tmp_path), TIMEOUT_S))
