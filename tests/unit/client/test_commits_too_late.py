"""A commit of a polled member that comes while its queue goes elsewhere is told as it is."""

import asyncio

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_lite_pull import committed, consumer_of
from tests.unit.client.test_live_changes import QUEUES, produce


async def told_of_a_commit_behind_the_last_one(cluster, offsets):
    """Commit while the last commit of a queue that is given away is on its way; return an error."""
    await produce(cluster, 16)
    async with consumer_of(cluster, subscribe=False, auto_commit=False) as consumer:
        consumer.assign(QUEUES)
        await consumer.wait_joined(5)
        while consumer.position(QUEUES[0]) < 4:
            await consumer.poll(1)
        await consumer.commit({QUEUES[0]: 1})
        commit, begun, gate = consumer.api.commit_offset, asyncio.Event(), asyncio.Event()

        async def slow(*args):
            begun.set()
            await gate.wait()
            await commit(*args)

        consumer.api.commit_offset = slow
        changing = asyncio.create_task(consumer.assignment.change(TOPIC, QUEUES[1:]))
        await begun.wait()
        late = asyncio.create_task(consumer.commit(offsets))
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.wait({changing, late})
        assert committed(cluster)[0] == 1
        return late.exception()


@pytest.mark.parametrize("offsets", [None, {QUEUES[0]: 4}])
def test_a_commit_that_was_not_sent_is_no_success(offsets):
    async def body(cluster):
        error = await told_of_a_commit_behind_the_last_one(cluster, offsets)
        assert isinstance(error, ValueError)
        assert str(QUEUES[0]) in str(error)

    run(body)


def test_a_planted_success_of_what_was_not_sent_is_noticed():
    async def body(cluster):
        assert await told_of_a_commit_behind_the_last_one(cluster, {QUEUES[0]: 4}) is None

    with planted(BY_TESTS["commit-behind-the-last-told-as-done"]):
        run(body)


def test_a_commit_of_other_queues_is_one():
    async def body(cluster):
        assert await told_of_a_commit_behind_the_last_one(cluster, {QUEUES[1]: 2}) is None
        assert committed(cluster)[1] == 2

    run(body)
