"""Broadcasting against a real broker: two members, one is away for a while."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ledgermq.client import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageModel,
    Producer,
    PushConsumer,
)
from tests.integration.broker_cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOPIC = "to-all"
GROUP = "caches"
COUNT = 100


def config_of(group: Cluster, name: str) -> ClientConfig:
    return ClientConfig(
        namesrv_addrs=(group.config(0).namesrv_addr,), group=GROUP, instance_name=name,
        persist_offset_ms=200, leader_check_ms=200,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def member(
    group: Cluster, directory: Path, name: str, seen: list[bytes]
) -> AsyncIterator[PushConsumer]:
    def listen(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        seen.extend(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    options = ConsumeOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, model=MessageModel.BROADCASTING,
        local_offsets_dir=str(directory / "offsets"), suspend_ms=1_000, pull_timeout_ms=5_000,
    )  # fmt: skip
    consumer = PushConsumer(config_of(group, name), listen, options)
    consumer.subscribe(TOPIC)
    async with consumer:
        await consumer.wait_joined(10)
        yield consumer


async def send(producer: Producer, start: int) -> None:
    for number in range(start, start + COUNT):
        await producer.send(Message(TOPIC, b"%d" % number))


async def until(seen: list[bytes], count: int) -> None:
    async with asyncio.timeout(20):
        while len(seen) < count:
            await asyncio.sleep(0.02)


def test_both_members_get_all_and_one_that_was_away_gets_the_rest(tmp_path: Path) -> None:
    async def body() -> None:
        one: list[bytes] = []
        other: list[bytes] = []
        async with cluster(tmp_path) as group:
            await group.leader()
            producing = ClientConfig(namesrv_addrs=(group.config(0).namesrv_addr,), group="pg")
            async with Producer(producing) as producer:
                await send(producer, 0)
                async with member(group, tmp_path, "one", one):
                    async with member(group, tmp_path, "other", other):
                        await until(one, COUNT)
                        await until(other, COUNT)
                    await send(producer, COUNT)
                    await until(one, 2 * COUNT)
                async with member(group, tmp_path, "other", other):
                    await until(other, 2 * COUNT)
                    await asyncio.sleep(0.3)
            expected = sorted(b"%d" % number for number in range(2 * COUNT))
            assert sorted(one) == sorted(other) == expected
            broker = group.brokers[0]
            assert broker is not None
            answer = await group.ask(
                0, 14, consumerGroup=GROUP, topic=TOPIC, queueId=0, setZeroIfNotFound="false"
            )
            assert answer.code == 22, "a broker keeps an offset of a broadcasting group"

    asyncio.run(body())
