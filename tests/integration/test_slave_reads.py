"""A master dies with kill -9: consumers go on at its slave, commit there, and come back to it."""

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
    Producer,
    PullConsumer,
    PushConsumer,
    SendFailed,
)
from ledgermq.remoting.protocol.command import RemotingCommand
from tests.integration.broker_cluster import pull_fields
from tests.integration.classic_brokers import Classic, classic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

TOPIC = "orders"
QUEUES = 4
TIMEOUT_S = 240
WAIT_S = 60
OPTIONS = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=1_000)


class Seen:
    """A listener that keeps bodies."""

    def __init__(self) -> None:
        self.bodies: Counter[bytes] = Counter()

    def __call__(self, messages: list[Message], _context: object) -> ConsumeStatus:
        self.bodies.update(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS


def consumer_of(brokers: Classic, group: str, listener: Seen) -> PushConsumer:
    config = brokers.config(group, persist_offset_ms=500, rebalance_ms=1_000)
    consumer = PushConsumer(config, listener, OPTIONS)
    consumer.subscribe(TOPIC)
    return consumer


async def holds(what: str, ask: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that has to be asked for."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not await ask():
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_S} s: {what}") from None


async def end_of(brokers: Classic, name: str) -> int:
    """Return how many messages a broker has in all queues."""
    answers = [await brokers.ask(name, 30, topic=TOPIC, queueId=queue) for queue in range(QUEUES)]
    return sum(int(one.ext_fields.get("offset", 0)) for one in answers)


async def committed(brokers: Classic, name: str, group: str) -> int:
    """Return the sum of a group's offsets at a broker, -1 while one is not known."""
    total = 0
    for queue in range(QUEUES):
        question = offset_question(group, queue)
        answer = await brokers.client.request(brokers.address(name), question, 5_000)
        if answer.code:
            return -1
        total += int(answer.ext_fields["offset"])
    return total


def offset_question(group: str, queue: int) -> RemotingCommand:
    fields = {
        "consumerGroup": group, "topic": TOPIC, "queueId": str(queue), "setZeroIfNotFound": "false",
    }  # fmt: skip
    return RemotingCommand(14, ext_fields=fields)


async def read_some(brokers: Classic, group: str, count: int) -> set[bytes]:
    """Read and commit so many messages of each queue."""
    found: set[bytes] = set()
    async with PullConsumer(brokers.config(group)) as consumer:
        for queue in await consumer.fetch_subscribe_queues(TOPIC):
            result = await consumer.pull(queue, max_count=count)
            found |= {message.body for message in result.messages}
            await consumer.commit_offset(queue, count)
    return found


async def send(brokers: Classic, numbers: range) -> set[bytes]:
    bodies = {b"%d" % number for number in numbers}
    async with Producer(brokers.config("p", send_timeout_ms=10_000)) as producer:
        for body in sorted(bodies):
            await producer.send(Message(TOPIC, body))
    return bodies


async def check(directory: Path) -> None:
    async with classic(directory) as brokers:
        await brokers.start("a0")
        await brokers.start("a1")
        async with AdminClient(brokers.config("admin")) as admin:
            await admin.create_topic(TOPIC, QUEUES)
        sent = await send(brokers, range(100))
        live = Seen()
        running = consumer_of(brokers, "live", live)
        await running.start()
        before = await read_some(brokers, "late", 10)
        await holds("all are read", lambda: is_true(set(live.bodies) == sent))

        async def is_told() -> bool:
            return (
                await committed(brokers, "a1", "late") == 10 * QUEUES
                and await committed(brokers, "a1", "live") == 100
                and await end_of(brokers, "a1") == 100
            )

        await holds("the slave has messages and offsets", is_told)
        brokers.kill("a0")
        try:
            await while_the_master_is_gone(brokers, sent, before)
            await brokers.start("a0")
            await after_its_return(brokers, sent, live)
        finally:
            await running.stop()


async def is_true(value: bool) -> bool:
    return value


async def while_the_master_is_gone(brokers: Classic, sent: set[bytes], before: set[bytes]) -> None:
    rest = Seen()
    async with consumer_of(brokers, "late", rest):
        await holds(
            "the slave gives out the rest", lambda: is_true(set(rest.bodies) == sent - before)
        )
    assert await committed(brokers, "a1", "late") == 100
    async with Producer(brokers.config("p", send_timeout_ms=500)) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message(TOPIC, b"to a slave"))
    for queue in range(QUEUES):
        answer = await brokers.ask(
            "a1", 15, consumerGroup="alone", topic=TOPIC, queueId=queue, commitOffset=20
        )
        assert answer.code == 0, answer
    fields = pull_fields(TOPIC, 10_000, queueId=0)
    beyond = await brokers.ask("a1", 11, **fields)
    assert (beyond.code, beyond.ext_fields["nextBeginOffset"]) == (19, "10000")


async def after_its_return(brokers: Classic, sent: set[bytes], live: Seen) -> None:
    async def are_back() -> bool:
        return (
            await committed(brokers, "a0", "late") == 100
            and await committed(brokers, "a0", "alone") == 20 * QUEUES
        )

    await holds("offsets committed to the slave are with the master", are_back)
    sent |= await send(brokers, range(100, 150))
    await holds("consumption goes on", lambda: is_true(set(live.bodies) == sent))

    async def is_committed() -> bool:
        return await committed(brokers, "a0", "live") == 150

    await holds("and is committed to the master", is_committed)

    async def is_copied() -> bool:
        return await end_of(brokers, "a1") == 150

    await holds("the slave follows again", is_copied)


def test_consumers_go_on_at_a_slave_and_come_back(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(check(tmp_path), TIMEOUT_S))
