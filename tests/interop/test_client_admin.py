"""The admin client, and the client without asyncio, at our group and at RocketMQ's brokers."""

from __future__ import annotations

import asyncio
import time

import pytest

from ledgermq import (
    AdminClient,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    LitePullOptions,
    Message,
    NoOffset,
    sync,
)
from ledgermq.remoting.protocol.errors import SystemFailure
from ledgermq.runtime.cancel import timeout
from tests.interop.servers import (
    WITHIN_S,
    Seen,
    Server,
    member,
    name,
    run,
    send_all,
    topic_of,
    until,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COUNT = 20
BODIES = [b"%d" % number for number in range(COUNT)]


async def status_of(server: Server, admin: AdminClient, address: str) -> dict[str, str]:
    """Return what a broker says of itself.

    RocketMQ's answers 1 in the first second of its life, until it has sampled what it counts.
    """
    async with timeout(WITHIN_S):
        while True:
            try:
                return await admin.broker_status(address)
            except SystemFailure:
                if server.is_ours:
                    raise
            await asyncio.sleep(0.2)


def test_topics_and_brokers_are_seen_and_topics_deleted(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "seen")
        await send_all(server, topic, BODIES)
        async with AdminClient(server.config("admin")) as admin:
            assert topic in await admin.topics()
            [leader] = [one for one in await admin.brokers() if one.broker_id == 0]
            assert (await admin.topic_route(topic)).broker_names == {leader.name}
            stats = await admin.topic_stats(topic)
            assert sum(one.max_offset for one in stats) == COUNT
            assert await status_of(server, admin, leader.address)
            assert (await admin.broker_config(leader.address))["brokerName"] == leader.name
            first = await admin.message_at(stats[0].queue, 0)
            assert first is not None
            assert first.body in BODIES
            assert await admin.message_at(stats[0].queue, COUNT) is None
            await admin.delete_topic(topic)
            assert topic not in await admin.topics()

    run(body())


def test_groups_are_seen_and_moved(server: Server) -> None:
    async def body() -> None:
        topic, group, other = await topic_of(server, "moved"), name("moved"), name("copied")
        seen = Seen()
        async with AdminClient(server.config("admin")) as admin:
            with pytest.raises(NoOffset):
                await admin.reset_offsets(group, topic, 0)
            assert await admin.group_connections(group) is None
            async with member(server, group, seen, topic) as consumer:
                await send_all(server, topic, BODIES)
                await until(lambda: len(seen.bodies) == COUNT, "message")
                assert group in await admin.groups()
                found = await admin.group_connections(group)
                assert found is not None
                assert [one.client_id for one in found.members] == [consumer.client_id]
                assert found.subscriptions[topic] == "*"
                for _ in range(100):
                    rows = await admin.group_progress(group, topic)
                    if rows and not sum(row.lag for row in rows):
                        break
                    await asyncio.sleep(0.1)
                assert sum(row.consumer_offset for row in rows) == COUNT
                assert sum(row.broker_offset for row in rows) == COUNT
                moved = await admin.reset_offsets(group, topic, 0)
                assert len(moved) == 4
                assert set(moved.values()) == {0}
                await until(lambda: len(seen.bodies) == 2 * COUNT, "message again")
            assert await admin.group_connections(group) is None
            cloned = await admin.clone_offsets(group, other, topic)
            assert sum(cloned.values()) == COUNT
            back = await admin.reset_offsets(other, topic, 0)
            assert set(back.values()) == {0}
            await admin.reset_offsets(group, topic)
        for who, wanted in ((other, COUNT), (group, 0)):
            seen.messages.clear()
            async with member(server, who, seen, topic) as consumer:
                await consumer.wait_joined()
                await until(lambda wanted=wanted: len(seen.bodies) >= wanted, "message")  # type: ignore[misc]  # bound for the loop
                await asyncio.sleep(0.5)
            assert len(seen.bodies) == wanted

    run(body())


def test_the_same_without_asyncio(server: Server) -> None:
    topics: list[str] = []

    async def prepare() -> None:
        topics.append(await topic_of(server, "plain"))

    run(prepare())
    [topic], config = topics, server.config(name("plain"))
    seen: list[bytes] = []

    def listen(messages: object, _context: object) -> ConsumeStatus:
        seen.extend(message.body for message in messages)  # type: ignore[attr-defined]  # a list
        return ConsumeStatus.CONSUME_SUCCESS

    options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = sync.PushConsumer(config, listen, options)
    consumer.subscribe(topic)
    with sync.Producer(config) as producer, consumer:
        sent = {producer.send(Message(topic, body)).msg_id for body in BODIES}
        deadline = time.monotonic() + 60
        while len(seen) < COUNT and time.monotonic() < deadline:
            time.sleep(0.05)
    assert len(sent) == COUNT
    assert sorted(seen) == sorted(BODIES)
    polled = sync.LitePullConsumer(
        server.config(name("plain")), LitePullOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    )
    polled.subscribe(topic)
    found: list[bytes] = []
    with polled:
        for _ in range(60):
            found += [message.body for message in polled.poll(1)]
            if len(found) >= COUNT:
                break
    assert sorted(found) == sorted(BODIES)
