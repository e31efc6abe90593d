"""Sends that nobody answers, when the leader they went to is gone."""

import asyncio

import pytest

from ledgermq.client import Message, NoRoute, Outcome, Producer, TooManyPending
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

SEND = 310


async def send_behind_a_break(cluster, goes_to):
    """Send one-way to a group whose leader has died and come back to follow another one."""
    old, new = cluster.replicas
    async with Producer(cluster.config()) as producer:
        await producer.send(Message(TOPIC, b"0"))
        cluster.elect(1)
        cluster.publish(leader=1)
        await hang_up(old, producer)
        await producer.send_oneway(Message(TOPIC, b"1"))
        asked = cluster.replicas[goes_to]
        await asked.wait_for(lambda: old.count(SEND) + new.count(SEND) == 2)


async def hang_up(broker, producer):
    """Break the connection to a broker that goes on listening, as one that was started again."""
    for connection in broker.connections:
        connection.abort("gone")
    while producer.links.maybe_link("group-0") is not None:
        await asyncio.sleep(0)


def test_behind_a_broken_connection_the_next_leader_is_asked_for():
    """Who died and comes back to follow would drop all that is sent, until routes are polled."""

    async def body(cluster):
        await send_behind_a_break(cluster, goes_to=1)
        assert cluster.group.bodies(TOPIC) == [b"0", b"1"]

    async def broken(cluster):
        with planted(BY_TESTS["oneway-to-a-broken-link"]):
            await send_behind_a_break(cluster, goes_to=0)
        assert cluster.group.bodies(TOPIC) == [b"0"]

    run(body)
    run(broken)


@pytest.mark.parametrize("is_named", [True, False], ids=["out of reach", "no leader named"])
def test_a_leader_that_cannot_be_reached_is_looked_for_once(is_named):
    async def body(cluster):
        old, new = cluster.replicas
        if not is_named:
            cluster.publish(leader=None)
        async with Producer(cluster.config()) as producer:
            await producer.fetch_publish_queues(TOPIC)
            cluster.elect(1)
            cluster.publish(leader=1)
            await old.stop()
            await producer.send_oneway(Message(TOPIC, b"1"))
            await new.wait_for(lambda: new.count(SEND) == 1)
        assert cluster.group.bodies(TOPIC) == [b"1"]

    run(body)


def test_where_nobody_leads_the_caller_is_told():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"0"))
            cluster.publish(leader=None)
            await hang_up(cluster.replicas[0], producer)
            with pytest.raises(NoRoute):
                await producer.send_oneway(Message(TOPIC, b"1"))

    run(body)


def test_a_connection_that_works_asks_for_no_route():
    async def body(cluster):
        broker, server = cluster.replicas[0], cluster.name_servers[0]
        async with Producer(cluster.config()) as producer:
            for number in range(3):
                await producer.send_oneway(Message(TOPIC, b"%d" % number))
            await broker.wait_for(lambda: broker.count(SEND) == 3)
        assert server.asked.count(TOPIC) == 1

    run(body)


async def send_to_who_reads_nothing(cluster):
    """Send one-way to a broker that has stopped reading; returns how many messages were taken."""
    async with Producer(
        cluster.config(max_pending_bytes=1_000_000, compress_over_bytes=0)
    ) as producer:
        await producer.send(Message(TOPIC, b"0"))
        for connection in cluster.replicas[0].connections:
            connection._transport.pause_reading()
        taken, refusal = 0, None
        while taken < 200 and refusal is None:
            try:
                await producer.send_oneway(Message(TOPIC, b"x" * 100_000))
                taken += 1
            except TooManyPending as error:
                refusal = error
        for connection in cluster.replicas[0].connections:
            connection._transport.resume_reading()
        await cluster.replicas[0].wait_for(lambda: cluster.replicas[0].count(SEND) == taken + 1)
        await producer.send_oneway(Message(TOPIC, b"1"))
    return taken, refusal


def test_what_a_broker_does_not_read_is_bounded():
    async def body(cluster):
        taken, refusal = await send_to_who_reads_nothing(cluster)
        assert 9 < taken < 200
        assert refusal.outcome is Outcome.FAILED
        assert "max_pending_bytes (1000000)" in str(refusal)

    async def broken(cluster):
        with planted(BY_TESTS["oneway-without-an-end"]):
            assert await send_to_who_reads_nothing(cluster) == (200, None)

    run(body)
    run(broken)


def test_a_loop_of_sends_that_waits_for_nothing_is_no_flood():
    async def body(cluster):
        async with Producer(
            cluster.config(max_pending_bytes=300_000, compress_over_bytes=0)
        ) as producer:
            await producer.send(Message(TOPIC, b"0"))
            for number in range(100):
                await producer.send_oneway(Message(TOPIC, b"%d" % number * 10_000))
            await cluster.replicas[0].wait_for(lambda: cluster.replicas[0].count(SEND) == 101)

    run(body)
