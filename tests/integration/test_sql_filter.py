"""SQL92 from end to end: our client and command line, a group of three brokers, real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from cli.consume import Printer, Wanted, print_messages
from ledgermq import (
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ResponseError,
    Sql92,
)
from tests.integration.broker_cluster import Cluster, cluster, until

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "goods"
COUNT = 40
CHEAP_IN_PARIS = "price BETWEEN 3 AND 16 AND city = 'paris' OR sale IS NOT NULL"
WANTED = {*(n for n in range(3, 17) if n % 2), 30}


def config(group: Cluster, name: str) -> ClientConfig:
    return ClientConfig(namesrv_addrs=(f"127.0.0.1:{group._namesrv_port}",), group=name)


async def produce(group: Cluster) -> None:
    async with Producer(config(group, "producers")) as producer:
        for number in range(COUNT):
            properties = {"price": str(number), "city": "paris" if number % 2 else "rome"}
            if number == 30:
                properties["sale"] = "yes"
            await producer.send(Message(TOPIC, b"%d" % number, properties=properties))


async def pulled(group: Cluster) -> set[int]:
    found: set[int] = set()
    async with PullConsumer(config(group, "pullers")) as consumer:
        for queue in await consumer.fetch_subscribe_queues(TOPIC):
            offset, end = 0, await consumer.max_offset(queue)
            while offset < end:
                result = await consumer.pull(queue, Sql92(CHEAP_IN_PARIS), offset)
                assert result.status in {PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE}
                found |= {int(message.body) for message in result.messages}
                offset = result.next_offset
            with pytest.raises(ResponseError, match="line 1, column 9"):
                await consumer.pull(queue, Sql92("price > > 3"))
    return found


async def pushed(group: Cluster) -> list[int]:
    found: list[int] = []

    def listen(messages: list, _context: object) -> ConsumeStatus:
        found.extend(int(message.body) for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = PushConsumer(config(group, "pushed"), listen, options=options)
    consumer.subscribe(TOPIC, Sql92(CHEAP_IN_PARIS))
    async with consumer:
        await until(lambda: set(found) >= WANTED, "every message wanted")
        async with Producer(config(group, "producers")) as producer:
            # It waits at the end of its queues now: what it does not want does not wake it.
            await producer.send(Message(TOPIC, b"98", properties={"price": "98"}))
            await producer.send(Message(TOPIC, b"99", properties={"sale": "no"}))
        await until(lambda: 99 in found, "the message that wakes it")
    return found


async def refused(group: Cluster) -> str:
    consumer = PushConsumer(config(group, "refused"), lambda *_: ConsumeStatus.CONSUME_SUCCESS)
    consumer.subscribe(TOPIC, Sql92("price > > 3"))
    async with consumer:
        await until(lambda: consumer.problems, "the refusal")
        return str(consumer.problems[TOPIC])


def test_consumers_get_what_an_expression_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with cluster(tmp_path, 3) as group:
            await group.leader()
            await produce(group)
            assert await pulled(group) == WANTED
            assert sorted(await pushed(group)) == sorted(WANTED | {99})
            assert "line 1, column 9" in await refused(group)
            wanted = Wanted(
                topic=TOPIC, expression="*", sql="sale = 'yes'", group="cli", count=1, seconds=20
            )
            servers = (f"127.0.0.1:{group._namesrv_port}",)
            assert await print_messages(servers, wanted, Printer(wanted)) == 0
            assert capsys.readouterr().out.endswith(" 30\n")

    asyncio.run(main())
