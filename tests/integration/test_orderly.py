"""Orderly consumption against real brokers: members come and go, leaders change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
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
    PushConsumer,
)
from tests.integration.broker_cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOPIC = "in-order"
QUEUES = 4
COUNT = 400
OPTIONS = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, orderly=True, order_suspend_ms=20, suspend_ms=1_000,
    pull_timeout_ms=5_000,
)  # fmt: skip


class Journal:
    """What all members were given, in the order in which they said that it was done."""

    def __init__(self) -> None:
        self.done: dict[MessageQueue, list[int]] = defaultdict(list)
        self.by_member: dict[str, int] = defaultdict(int)
        self.in_hand: set[MessageQueue] = set()
        self.overlaps = 0
        self._failed: set[tuple[MessageQueue, int]] = set()

    async def listen(
        self, member: str, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:
        self.overlaps += context.queue in self.in_hand
        self.in_hand.add(context.queue)
        await asyncio.sleep(0.002)
        self.in_hand.discard(context.queue)
        place = (context.queue, messages[0].queue_offset)
        if messages[0].queue_offset % 10 == 5 and place not in self._failed:
            self._failed.add(place)
            return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        self.done[context.queue] += [message.queue_offset for message in messages]
        self.by_member[member] += len(messages)
        return ConsumeStatus.CONSUME_SUCCESS

    def assert_in_order(self, *, twice: bool = False) -> None:
        """Nothing is missing or overtaken; ``twice``: after a crash, a tail may come again."""
        assert not self.overlaps
        for queue, offsets in self.done.items():
            assert sorted(set(offsets)) == list(range(len(set(offsets)))), queue
            for before, after in itertools.pairwise(offsets):
                assert after == before + 1 or (twice and after <= before), (queue, before, after)


async def until(journal: Journal, count: int) -> None:
    async with asyncio.timeout(30):
        while sum(len(set(offsets)) for offsets in journal.done.values()) < count:
            await asyncio.sleep(0.02)


def namesrv_of(group: Cluster) -> tuple[str, ...]:
    return (group.config(0).namesrv_addr,)


def config_of(group: Cluster, name: str) -> ClientConfig:
    return ClientConfig(
        namesrv_addrs=namesrv_of(group), group="in-order", instance_name=name,
        rebalance_ms=500, persist_offset_ms=200, leader_check_ms=200,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def member(group: Cluster, journal: Journal, name: str) -> AsyncIterator[PushConsumer]:
    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        return await journal.listen(name, messages, context)

    consumer = PushConsumer(config_of(group, name), listen, OPTIONS)
    consumer.subscribe(TOPIC)
    async with consumer:
        yield consumer


def queues_of(consumer: PushConsumer) -> list[MessageQueue]:
    return [queue for queue in consumer.assigned_queues if queue.topic == TOPIC]


async def fill(producer: Producer, start: int, count: int) -> None:
    queues = await producer.fetch_publish_queues(TOPIC)
    for number in range(start, start + count):
        await producer.send(Message(TOPIC, b"%d" % number), queues[number % QUEUES])


async def prepare(group: Cluster, producer: Producer) -> None:
    await group.leader()
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(Exception):
                await producer.create_topic(TOPIC, QUEUES)
                if len(await producer.fetch_publish_queues(TOPIC)) == QUEUES:
                    return
            await asyncio.sleep(0.1)


def test_a_member_that_leaves_in_the_middle_breaks_no_order_and_loses_nothing(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        journal = Journal()
        async with (
            cluster(tmp_path) as group,
            Producer(ClientConfig(namesrv_addrs=namesrv_of(group), group="pg")) as producer,
        ):
            await prepare(group, producer)
            await fill(producer, 0, COUNT)
            async with member(group, journal, "stays") as stays:
                async with member(group, journal, "leaves"):
                    await until(journal, COUNT // 2)
                await fill(producer, COUNT, COUNT)
                await until(journal, 2 * COUNT)
                assert len(queues_of(stays)) == QUEUES
        journal.assert_in_order()
        assert sum(map(len, journal.done.values())) == 2 * COUNT
        assert min(journal.by_member["stays"], journal.by_member["leaves"]) > 0

    asyncio.run(body())


def test_order_is_kept_when_the_leader_dies_and_locks_live_on(tmp_path: Path) -> None:
    async def body() -> None:
        journal = Journal()
        async with (
            cluster(tmp_path, count=3) as group,
            Producer(ClientConfig(namesrv_addrs=namesrv_of(group), group="pg")) as producer,
        ):
            await prepare(group, producer)
            await fill(producer, 0, COUNT)
            async with (
                member(group, journal, "one") as one,
                member(group, journal, "two") as two,
            ):
                await until(journal, COUNT // 4)
                await group.stop(await group.leader())
                await group.leader()
                await fill(producer, COUNT, COUNT // 2)
                await until(journal, COUNT + COUNT // 2)
                assert len(queues_of(one)) + len(queues_of(two)) == QUEUES
        journal.assert_in_order(twice=True)

    asyncio.run(body())


def test_what_can_never_be_consumed_ends_in_the_dead_letters_and_holds_up_nothing(
    tmp_path: Path,
) -> None:
    tries: dict[int, int] = defaultdict(int)
    done: list[int] = []

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        (message,) = messages
        tries[message.queue_offset] += 1
        if message.body == b"poison":
            return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        done.append(message.queue_offset)
        return ConsumeStatus.CONSUME_SUCCESS

    async def body() -> None:
        async with (
            cluster(tmp_path) as group,
            Producer(ClientConfig(namesrv_addrs=namesrv_of(group), group="pg")) as producer,
            PullConsumer(ClientConfig(namesrv_addrs=namesrv_of(group), group="looks")) as looks,
        ):
            await prepare(group, producer)
            first = (await producer.fetch_publish_queues(TOPIC))[0]
            for text in (b"one", b"poison", b"two", b"three"):
                await producer.send(Message(TOPIC, text), first)
            options = replace(OPTIONS, max_reconsume_times=2)
            consumer = PushConsumer(config_of(group, "one"), listen, options)
            consumer.subscribe(TOPIC)
            async with consumer, asyncio.timeout(20):
                while len(done) < 3:
                    await asyncio.sleep(0.02)
                (dead,) = await looks.fetch_subscribe_queues("%DLQ%in-order")
                found = await looks.pull(dead, block_ms=5_000)
            assert await looks.max_offset(first) == 4
            assert [message.body for message in found.messages] == [b"poison"]
        assert done == [0, 2, 3]
        assert dict(tries) == {0: 1, 1: 3, 2: 1, 3: 1}

    asyncio.run(body())
