"""What a polled member is told while it is in the middle of something else."""

import asyncio

from ledgermq.client import LitePullConsumer
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_lite_pull import consumer_of
from tests.unit.client.test_live_changes import OTHER


def watching(cluster) -> LitePullConsumer:
    """Return a consumer that looks at queues when the test has it look."""
    return consumer_of(cluster, queues_check_ms=60_000)


async def told_after_a_change_of_listener(cluster):
    """Name another listener while the queues are looked at; return who hears of a change."""
    told = []
    async with watching(cluster) as consumer:
        consumer.on_queues_changed(TOPIC, lambda *_: told.append("former"))
        look = asyncio.create_task(consumer._look_at_queues())
        await asyncio.sleep(0)
        consumer.on_queues_changed(TOPIC, lambda *_: told.append("latter"))
        await look
        await consumer._look_at_queues()
        cluster.publish(queues=5)
        await consumer._look_at_queues()
    return told


def test_who_asks_last_to_be_told_of_queues_is_told():
    async def body(cluster):
        assert await told_after_a_change_of_listener(cluster) == ["latter"]

    run(body)


def test_a_listener_of_queues_that_fails_keeps_no_other_from_hearing(caplog):
    async def body(cluster):
        told = []
        cluster.publish(TOPIC, OTHER)
        async with watching(cluster) as consumer:
            consumer.on_queues_changed(TOPIC, lambda *_: 1 // 0)
            consumer.on_queues_changed(OTHER, lambda topic, _: told.append(topic))
            await consumer._look_at_queues()
            cluster.publish(TOPIC, OTHER, queues=5)
            await consumer._look_at_queues()
            assert told == [OTHER]

    run(body)
    assert "event=queues_listener_failed" in caplog.text
