"""The admin client against a real broker process: topics, groups, offsets, brokers, messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bench.cluster import GROUP as BROKER
from bench.cluster import Cluster
from ledgermq import (
    AdminClient,
    ClientConfig,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    LitePullConsumer,
    LitePullOptions,
    Message,
    MessageQueue,
    NameServersUnreachable,
    NoRoute,
    NotRunning,
    Producer,
    PushConsumer,
)
from tests.integration.test_tools_process import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

TOPIC, GROUP, COUNT = "seen", "seen-group", 20


async def consume_all(config: ClientConfig) -> None:
    options = LitePullOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = LitePullConsumer(config, options)
    consumer.subscribe(TOPIC)
    found: list[Any] = []
    async with consumer:
        async with asyncio.timeout(20):
            while len(found) < COUNT:
                found += await consumer.poll(1)


async def look(client: AdminClient, address: str, sent: list[Any]) -> None:
    assert TOPIC in await client.topics()
    assert (await client.topic_route(TOPIC)).broker_names == {BROKER}
    stats = await client.topic_stats(TOPIC)
    assert [one.queue.queue_id for one in stats] == [0, 1, 2, 3]
    assert sum(one.max_offset - one.min_offset for one in stats) == COUNT
    assert [(one.name, one.broker_id, one.address) for one in await client.brokers()] == [
        (BROKER, 0, address)
    ]
    assert (await client.broker_status(address))["brokerVersionDesc"] == "V4_9_7"
    assert (await client.broker_config(address))["brokerName"] == BROKER
    one = sent[3]
    found = await client.message_at(one.queue, one.queue_offset)
    assert found is not None
    assert (found.body, found.message_id()) == (b"3", one.msg_id)
    assert await client.message_at(one.queue, 1_000) is None
    assert [m.body for m in await client.by_key(TOPIC, "k3")] == [b"3"]
    for wrong in (client.topic_stats("nobody-knows"), client.group_progress(GROUP, "nobody-knows")):
        with pytest.raises(NoRoute):
            await wrong


async def progress(client: AdminClient, group: str = GROUP, topic: str = TOPIC) -> tuple[int, int]:
    rows = await client.group_progress(group, topic)
    return sum(row.consumer_offset for row in rows), sum(row.lag for row in rows)


async def change(client: AdminClient, config: ClientConfig) -> None:
    assert await client.group_connections(GROUP) is None
    assert await progress(client) == (COUNT, 0)
    assert GROUP in await client.groups()
    # Nobody is connected: the tool commits.
    assert set((await client.reset_offsets(GROUP, TOPIC, 0)).values()) == {0}
    assert await progress(client) == (0, COUNT)
    seen: list[bytes] = []

    def listen(messages: list[Any], _context: object) -> ConsumeStatus:
        seen.extend(message.body for message in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer(config, listen, ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET))
    consumer.subscribe(TOPIC, "*")
    async with consumer:
        await until(lambda: len(seen) == COUNT)
        await consumer.assignment.commit_all()
        connections = await client.group_connections(GROUP)
        assert connections is not None
        assert [one.client_id for one in connections.members] == [consumer.client_id]
        assert connections.subscriptions[TOPIC] == "*"
        assert connections.consume_type == "CONSUME_PASSIVELY"
        await client.reset_offsets(GROUP, TOPIC, 0)
        await until(lambda: len(seen) == 2 * COUNT)
    assert (await client.clone_offsets(GROUP, "cloned", TOPIC)).keys() == {
        MessageQueue(TOPIC, BROKER, number) for number in range(4)
    }
    assert await progress(client, "cloned") == (COUNT, 0)
    assert sum((await client.reset_offsets("cloned", TOPIC)).values()) == COUNT
    await client.create_topic("made", 2)
    assert len((await client.topic_route("made")).publish_queues) == 2
    await client.delete_topic("made")
    assert "made" not in await client.topics()
    for wrong in (0, 1 << 20):
        with pytest.raises(ValueError, match="queues"):
            await client.create_topic("made", wrong)


def test_it_looks_at_a_cluster_and_changes_it(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        config = ClientConfig(namesrv_addrs=("127.0.0.1:1", cluster.namesrv_addr), group=GROUP)
        async with Producer(config) as producer:
            sent = [
                await producer.send(Message(TOPIC, b"%d" % n, keys=f"k{n}")) for n in range(COUNT)
            ]
        await consume_all(config)
        async with AdminClient(config) as client:
            await look(client, f"127.0.0.1:{cluster.ports[0]}", sent)
        config = ClientConfig(namesrv_addrs=(cluster.namesrv_addr,), group=GROUP)
        async with AdminClient(config) as client:
            await change(client, config)
        with pytest.raises(NotRunning):
            await client.topics()

    with Cluster(tmp_path, replicas=1, sync_flush=False) as cluster:
        asyncio.run(main(cluster))


def test_it_says_that_no_name_server_answers() -> None:
    async def main() -> None:
        config = ClientConfig(namesrv_addrs=("127.0.0.1:1",), group=GROUP)
        async with AdminClient(config) as client:
            with pytest.raises(NameServersUnreachable, match=r"127\.0\.0\.1:1"):
                await client.topics()

    asyncio.run(main())
