"""A broker's order to go on elsewhere, and a later one that comes before it is followed."""

import asyncio
from types import SimpleNamespace

from ledgermq.client import ConsumeFrom, ConsumeOptions, ConsumeStatus, MessageQueue, PushConsumer
from ledgermq.client.message import PullResult, PullStatus
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.puller import Puller
from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.loop import SimLoop
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_live_changes import QUEUES, produce

QUEUE = MessageQueue("orders", "b", 0)


async def moves(*, meanwhile):
    """Have a broker reset a queue to 3; return where it is moved."""
    moved = []
    one = ProcessQueue(QUEUE, 7)
    puller = Puller(SimpleNamespace(move=moved.append), one)
    told = PullResult(
        status=PullStatus.OFFSET_ILLEGAL, next_offset=3, min_offset=0, max_offset=9, messages=[]
    )
    going = asyncio.ensure_future(puller._on_illegal_offset(told))
    await asyncio.sleep(0.1)
    if meanwhile:
        one.move(5)
    await going
    return moved


def test_a_reset_of_the_broker_is_followed_unless_a_later_one_has_come():
    assert SimLoop().run_until_complete(moves(meanwhile=False)) == [{QUEUE: 3}]
    assert SimLoop().run_until_complete(moves(meanwhile=True)) == []
    with planted(BY_TESTS["older-reset-stands"]):
        assert SimLoop().run_until_complete(moves(meanwhile=True)) == [{QUEUE: 3}]


async def goes_on_behind_two_resets(cluster):
    """Reset a queue that is being locked anew after a reset; return what is consumed then."""
    seen, begun, gate = [], asyncio.Event(), asyncio.Event()

    def listen(messages, context):
        if context.queue == QUEUES[0]:
            seen.append(messages[0].queue_offset)
        return ConsumeStatus.CONSUME_SUCCESS

    await produce(cluster, 16)
    options = ConsumeOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, orderly=True, suspend_ms=200, pull_timeout_ms=1_000
    )
    consumer = PushConsumer(cluster.config(), listen, options)
    consumer.subscribe(TOPIC)
    async with consumer, asyncio.timeout(5):
        while len(seen) < 4:
            await asyncio.sleep(0.01)
        take = consumer.locks.take

        async def slow(queues):
            begun.set()
            await gate.wait()
            return await take(queues)

        consumer.locks.take = slow
        consumer.move({QUEUES[0]: 3})
        await begun.wait()
        consumer.move({QUEUES[0]: 1})
        gate.set()
        while seen.count(3) < 2:
            await asyncio.sleep(0.01)
    return seen[4:]


def test_a_reset_of_a_queue_that_is_being_locked_is_followed():
    async def body(cluster):
        assert await goes_on_behind_two_resets(cluster) == [1, 2, 3]

    run(body)


def test_a_reset_that_is_lost_between_release_and_lock_is_found_here():
    async def body(cluster):
        assert await goes_on_behind_two_resets(cluster) == [3]

    with planted(BY_TESTS["moved-between-release-and-lock"]):
        run(body)
