"""What a polled member is told while it is in the middle of something else."""

import asyncio

import pytest

from ledgermq.client import InvalidMessage, LitePullConsumer, MessageQueue
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_lite_pull import bodies, consumer_of
from tests.unit.client.test_live_changes import OTHER, QUEUES, produce


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


def test_an_assignment_that_is_refused_changes_nothing():
    async def body(cluster):
        await produce(cluster, 8)
        fresh = consumer_of(cluster, subscribe=False)
        with pytest.raises(InvalidMessage):
            fresh.assign(QUEUES, "|| a |")
        fresh.subscribe(TOPIC)  # It has been assigned nothing.
        async with consumer_of(cluster, subscribe=False) as consumer:
            consumer.assign(QUEUES[:1])
            await consumer.wait_joined(5)
            other = MessageQueue(OTHER, "group-0", 0)
            with pytest.raises(InvalidMessage):
                consumer.assign([other], "|| a |")
            await consumer._rebalance()
            assert consumer.assigned_queues == QUEUES[:1]
            assert list(consumer.subscriptions) == [TOPIC]

    run(body)


@pytest.mark.parametrize("nonsense", [QUEUES[0], [TOPIC], ["a", "b"], TOPIC])
def test_what_are_no_queues_is_refused(nonsense):
    async def body(cluster):
        await produce(cluster, 4)
        async with consumer_of(cluster, subscribe=False) as consumer:
            for act in (consumer.assign, consumer.pause, consumer.resume):
                with pytest.raises(TypeError, match="is no MessageQueue"):
                    act(nonsense)
            consumer.assign(queue for queue in QUEUES)
            consumer.pause(queue for queue in QUEUES)
            assert await consumer.poll(0.2) == []
            consumer.resume(queue for queue in QUEUES)
            await bodies(consumer, 4)

    run(body)


async def told_of_a_queue_kept_against_its_share(cluster):
    """Seek in a queue just as it is being given away; return whether all is told to be well."""
    await produce(cluster, 16)
    async with consumer_of(cluster, subscribe=False, auto_commit=False) as consumer:
        consumer.assign(QUEUES)
        await consumer.wait_joined(5)
        changing = asyncio.create_task(consumer.assignment.change(TOPIC, QUEUES[1:]))
        await asyncio.sleep(0)
        await consumer.seek(QUEUES[0], 3)
        is_done = await changing
        assert consumer.assigned_queues == QUEUES
        assert await consumer.assignment.change(TOPIC, QUEUES[1:])
        assert consumer.assigned_queues == QUEUES[1:]
    return is_done


def test_a_queue_that_a_seek_kept_from_its_next_member_is_given_away_soon():
    async def body(cluster):
        assert not await told_of_a_queue_kept_against_its_share(cluster)

    run(body)


def test_a_planted_queue_that_is_kept_in_silence_is_noticed():
    async def body(cluster):
        assert await told_of_a_queue_kept_against_its_share(cluster)

    with planted(BY_TESTS["kept-by-a-seek"]):
        run(body)


async def goes_on_behind_a_cancelled_seek(cluster):
    """Cancel a seek that waits for a commit; return what is given out next."""
    await produce(cluster, 16)
    async with consumer_of(cluster, subscribe=False, auto_commit=False) as consumer:
        consumer.assign(QUEUES)
        await bodies(consumer, 16)
        held = next(one for one in consumer.assignment.held if one.process_queue.queue == QUEUES[0])
        async with held.turn:
            seek = asyncio.create_task(consumer.seek(QUEUES[0], 3))
            await asyncio.sleep(0.05)
            seek.cancel()
            with pytest.raises(asyncio.CancelledError):
                await seek
        return [int(message.body) for message in await consumer.poll(2)]


def test_a_queue_is_consumed_though_the_seek_in_it_was_cancelled():
    async def body(cluster):
        assert await goes_on_behind_a_cancelled_seek(cluster) == [12]

    run(body)


def test_a_planted_queue_that_a_cancelled_seek_leaves_is_noticed():
    async def body(cluster):
        assert await goes_on_behind_a_cancelled_seek(cluster) == []

    with planted(BY_TESTS["left-by-a-cancelled-seek"]):
        run(body)


async def pull_loops_left_by_a_stop_amid_a_seek(cluster):
    """Stop while a seek waits for a commit; return whether its pull loop runs on for ever."""
    await produce(cluster, 4)
    consumer = consumer_of(cluster, subscribe=False)
    consumer.assign(QUEUES)
    async with consumer:
        await bodies(consumer, 4)
        held = next(one for one in consumer.assignment.held if one.process_queue.queue == QUEUES[0])
        await held.turn.acquire()
        seek = asyncio.create_task(consumer.seek(QUEUES[0], 0))
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.1, held.turn.release)
        await consumer._instance.stop(consumer=True, drained=lambda: True)
        await seek
        await asyncio.sleep(0.05)
        left = [task for task in asyncio.all_tasks() if task.get_name().startswith("pull-")]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)  # None is left to who looks next.
    return len(left)


def test_a_stop_amid_a_seek_leaves_no_pull_loop():
    async def body(cluster):
        assert await pull_loops_left_by_a_stop_amid_a_seek(cluster) == 0

    run(body)


def test_a_planted_task_that_begins_behind_the_stop_is_noticed():
    async def body(cluster):
        assert await pull_loops_left_by_a_stop_amid_a_seek(cluster) == 1

    with planted(BY_TESTS["begun-behind-the-stop"]):
        run(body)
