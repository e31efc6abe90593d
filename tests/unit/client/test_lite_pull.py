"""A member of a group that is polled: at least once, seeks, bounds, revoked queues."""

import asyncio
import contextlib

import pytest

from ledgermq.client import (
    ConsumeFrom,
    LitePullConsumer,
    LitePullOptions,
    MessageModel,
    MessageQueue,
    NotRunning,
    ResponseError,
)
from ledgermq.remoting.protocol.codes import RequestCode
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_live_changes import OTHER, QUEUES, produce

GROUP = "test-group"


def consumer_of(cluster, *, subscribe=True, config=None, **options):
    settings = {
        "consume_from": ConsumeFrom.FIRST_OFFSET, "suspend_ms": 200, "pull_timeout_ms": 1_000,
        "auto_commit_interval_ms": 20,
    }  # fmt: skip
    made = LitePullConsumer(
        cluster.config(leader_check_ms=50, **(config or {})),
        LitePullOptions(**{**settings, **options}),
    )
    if subscribe:
        made.subscribe(TOPIC)
    return made


async def bodies(consumer, count, max_count=None):
    found = []
    async with asyncio.timeout(5):
        while len(found) < count:
            found += await consumer.poll(1, max_count)
    return [int(message.body) for message in found]


def committed(cluster):
    return [cluster.group.offsets.get((GROUP, TOPIC, number), -1) for number in range(4)]


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


def test_what_is_polled_is_all_there_is_and_is_committed():
    async def body(cluster):
        await produce(cluster, 12)
        async with consumer_of(cluster) as consumer:
            assert sorted(await bodies(consumer, 12)) == list(range(12))
            assert await consumer.poll(0) == []
            await until(lambda: committed(cluster) == [3] * 4)
            assert await consumer.poll(0.05) == []
            await produce(cluster, 1)
            assert await bodies(consumer, 1) == [0]
        assert committed(cluster) == [4, 3, 3, 3]

    run(body)


async def crash_behind_a_poll(cluster):
    """Poll once and never again; returns what is committed then."""
    await produce(cluster, 8)
    consumer = consumer_of(cluster)
    async with consumer:
        async with asyncio.timeout(5):
            while not await consumer.poll(1, 2):
                pass
        await asyncio.sleep(0.2)  # ten intervals, and pulls
        return committed(cluster)


def test_what_the_last_poll_gave_out_is_not_committed():
    async def body(cluster):
        assert sum(n for n in await crash_behind_a_poll(cluster) if n > 0) == 0

    run(body)


def test_a_poll_that_commits_at_once_is_found():
    async def body(cluster):
        assert sum(n for n in await crash_behind_a_poll(cluster) if n > 0) == 2

    with planted(BY_TESTS["polled-is-done-at-once"]):
        run(body)


REFUSED = {
    "commit of no offset": lambda consumer: consumer.commit({QUEUES[0]: -1}),
    "commit of offsets of its own": lambda consumer: consumer.commit({QUEUES[0]: 1}),
    "poll for nothing": lambda consumer: consumer.poll(0, 0),
}


async def committed_behind_a_refusal(cluster, call):
    """Poll, have a call refused, and never come back; returns how much is committed then."""
    await produce(cluster, 8)
    consumer = consumer_of(cluster)
    async with consumer:
        async with asyncio.timeout(5):
            while not await consumer.poll(1, 2):
                pass
        with pytest.raises(ValueError, match=r"negative|auto_commit|at least 1"):
            await call(consumer)
        await asyncio.sleep(0.2)  # ten intervals, and pulls
        return sum(n for n in committed(cluster) if n > 0)


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_call_that_is_refused_leaves_what_is_in_hand(call):
    async def body(cluster):
        assert await committed_behind_a_refusal(cluster, call) == 0

    run(body)


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (BY_TESTS["refused-commit-is-done"], "commit of no offset"),
        (BY_TESTS["refused-commit-is-done"], "commit of offsets of its own"),
        (BY_TESTS["refused-poll-is-done"], "poll for nothing"),
    ],
)
def test_a_refused_call_that_is_done_with_what_is_in_hand_is_found(bug, name):
    async def body(cluster):
        assert await committed_behind_a_refusal(cluster, REFUSED[name]) == 2

    with planted(bug):
        run(body)


async def fail_in_the_block(cluster):
    await produce(cluster, 8)
    with contextlib.suppress(ZeroDivisionError):
        async with consumer_of(cluster) as consumer:
            assert len(await bodies(consumer, 4, 4)) == 4
            raise ZeroDivisionError
    return sum(n for n in committed(cluster) if n > 0)


def test_an_error_in_the_block_commits_nothing_that_was_in_hand():
    async def body(cluster):
        assert await fail_in_the_block(cluster) == 0

    run(body)


def test_a_block_that_commits_what_failed_is_found():
    async def body(cluster):
        assert await fail_in_the_block(cluster) == 4

    with planted(BY_TESTS["failed-block-commits"]):
        run(body)


def test_iteration_gives_one_at_a_time_and_loses_nothing_at_a_break():
    async def body(cluster):
        await produce(cluster, 8)
        first = []
        async with consumer_of(cluster) as consumer:
            async for message in consumer:
                first.append(int(message.body))
                if len(first) == 3:
                    break
        assert sum(n for n in committed(cluster) if n > 0) == 3
        async with consumer_of(cluster) as consumer:
            assert sorted(first + await bodies(consumer, 5)) == list(range(8))

    run(body)


def test_without_auto_commit_only_what_is_said_is_committed():
    async def body(cluster):
        await produce(cluster, 8)
        async with consumer_of(cluster, auto_commit=False) as consumer:
            await bodies(consumer, 8)
            await consumer.poll(0.1)
            assert set(committed(cluster)) <= {-1, 0}
            with pytest.raises(ValueError, match="it was not committed"):
                await consumer.commit({MessageQueue(TOPIC, "nowhere", 0): 5, QUEUES[1]: 1})
            assert committed(cluster)[1] == 1
            assert await consumer.committed(QUEUES[1]) == 1
            await consumer.commit()
            assert committed(cluster) == [2] * 4
            await produce(cluster, 4)
            await bodies(consumer, 4)
        assert committed(cluster) == [2] * 4

    run(body)


def test_a_commit_that_fails_raises():
    async def body(cluster):
        await produce(cluster, 4)
        config = {"request_timeout_ms": 200}
        async with consumer_of(cluster, config=config, auto_commit=False) as consumer:
            await bodies(consumer, 4)
            cluster.replicas[0].leader = False
            with pytest.raises(ResponseError):
                await consumer.commit()
            cluster.replicas[0].leader = True
            await consumer.commit()
            assert committed(cluster) == [1] * 4
            with pytest.raises(ValueError, match="negative"):
                await consumer.commit({QUEUES[0]: -1})
            for odd in (2.5, "3", True, None):
                with pytest.raises(ValueError, match="must be a whole number"):
                    await consumer.commit({QUEUES[0]: odd})
                with pytest.raises(ValueError, match="must be a whole number"):
                    await consumer.seek(QUEUES[0], odd)

    run(body, replicas=1)


async def seek_back(cluster):
    """Seek while more is cached; returns what comes of that queue."""
    await produce(cluster, 80)
    async with consumer_of(cluster, pull_batch_count=5) as consumer:
        await consumer.wait_joined(5)
        consumer.pause(QUEUES[1:])
        await bodies(consumer, 4, 2)
        await asyncio.sleep(0.2)
        await consumer.seek(QUEUES[0], 17)
        found = []
        for _ in range(10):
            found += [m for m in await consumer.poll(0.05) if m.queue_id == 0]
        return [int(message.body) // 4 for message in found]


def test_after_a_seek_nothing_comes_that_was_pulled_before():
    async def body(cluster):
        assert await seek_back(cluster) == [17, 18, 19]

    run(body)


def test_a_seek_that_keeps_the_cache_is_found():
    async def body(cluster):
        assert await seek_back(cluster) != [17, 18, 19]

    with planted(ALL["seek-keeps-what-was-pulled"]):
        run(body)


def test_seeks_go_to_the_ends_and_to_times():
    async def body(cluster):
        await produce(cluster, 12)
        async with consumer_of(cluster) as consumer:
            await consumer.wait_joined(5)
            await bodies(consumer, 12)
            await consumer.seek_to_begin(QUEUES[2])
            assert await bodies(consumer, 3) == [2, 6, 10]
            await consumer.seek_to_end(QUEUES[2])
            assert consumer.position(QUEUES[2]) == 3
            stored = cluster.group.queues[TOPIC, 2]
            when_ms = stored[0].store_timestamp + 1
            expected = sum(message.store_timestamp < when_ms for message in stored)
            assert await consumer.offset_for_timestamp(QUEUES[2], when_ms) == expected
            await consumer.seek_to_timestamp(QUEUES[2], 0)
            assert await bodies(consumer, 3) == [2, 6, 10]
            for wrong in (QUEUES[0]._replace(queue_id=9), MessageQueue(OTHER, "group-0", 0)):
                with pytest.raises(ValueError, match="not assigned"):
                    await consumer.seek(wrong, 0)
            with pytest.raises(ValueError, match="negative"):
                await consumer.seek(QUEUES[0], -1)

    run(body)


def test_an_old_offset_is_not_committed_after_a_seek():
    async def body(cluster):
        await produce(cluster, 8)
        async with consumer_of(cluster, auto_commit_interval_ms=60_000) as consumer:
            await bodies(consumer, 8)
            await consumer.poll(0)
            leader = cluster.replicas[0]
            gate = leader.commits_wait_for = asyncio.Event()
            late = asyncio.create_task(consumer.assignment.commit_all())
            await asyncio.sleep(0.05)
            seek = asyncio.create_task(consumer.seek(QUEUES[0], 0))
            await asyncio.sleep(0.05)
            leader.commits_wait_for = None
            gate.set()
            await asyncio.gather(late, seek)
            await consumer.assignment.commit_all()
            assert committed(cluster) == [0, 2, 2, 2]

    run(body)


async def give_away(cluster):
    """A second member comes while messages wait; returns what the first gives out afterwards."""
    await produce(cluster, 40)
    config = {"instance_name": "a"}
    async with consumer_of(cluster, config=config, pull_batch_count=4) as first:
        await first.wait_joined(5)
        await bodies(first, 4, 4)
        await asyncio.sleep(0.1)
        async with consumer_of(cluster, config={"instance_name": "b"}) as second:
            await until(lambda: len(first.assigned_queues) == len(second.assigned_queues) == 2)
            kept = {queue.queue_id for queue in first.assigned_queues}
            found = []
            for _ in range(6):
                found += await first.poll(0.05)
            mine = {message.queue_id for message in found}
            return mine - kept, committed(cluster)


def test_nothing_of_a_revoked_queue_is_given_out_or_committed():
    async def body(cluster):
        strange, offsets = await give_away(cluster)
        assert strange == set()
        assert offsets[2:] == [0, 0]

    run(body)


def test_a_revoked_queue_that_is_given_out_is_found():
    async def body(cluster):
        strange, _ = await give_away(cluster)
        assert strange

    with planted(BY_TESTS["revoked-queue-given-out"]):
        run(body)


def test_two_members_share_and_lose_nothing():
    async def body(cluster):
        await produce(cluster, 40)
        found = []
        async with consumer_of(cluster, config={"instance_name": "a"}) as first:
            found += await bodies(first, 5, 5)
            async with consumer_of(cluster, config={"instance_name": "b"}) as second:
                async with asyncio.timeout(10):
                    while set(found) != set(range(40)):
                        for member in (first, second):
                            found += [int(m.body) for m in await member.poll(0.05)]
            await until(lambda: len(first.assigned_queues) == 4)

    run(body)


def test_chosen_queues_are_read_whoever_else_does():
    async def body(cluster):
        await produce(cluster, 8)
        other, chosen = [consumer_of(cluster, subscribe=False) for _ in range(2)]
        other.assign(QUEUES)
        chosen.assign(QUEUES[1:3])
        async with other, chosen:
            assert sorted(await bodies(chosen, 4)) == [1, 2, 5, 6]
            assert sorted(await bodies(other, 8)) == list(range(8))
            chosen.assign(QUEUES[3:])
            await until(lambda: chosen.assigned_queues == QUEUES[3:])
            await produce(cluster, 4)
            assert set(await bodies(chosen, 1)) <= {3, 7}
            data = cluster.replicas[0].heartbeats
            sent = [one for one in data if one["clientID"] == chosen.client_id]
            assert all(not one["consumerDataSet"][0]["subscriptionDataSet"] for one in sent)
            with pytest.raises(ValueError, match="cannot subscribe"):
                chosen.subscribe(TOPIC)
        with pytest.raises(ValueError, match="cannot be assigned"):
            consumer_of(cluster).assign(QUEUES)

    run(body)


def test_pulls_carry_the_expression_and_tags_are_compared():
    async def body(cluster):
        await produce(cluster, 4, tags="a")
        await produce(cluster, 4, tags="b")
        consumer = consumer_of(cluster, subscribe=False)
        consumer.assign(QUEUES, "b")
        async with consumer:
            assert len(await bodies(consumer, 4)) == 4
            assert await consumer.poll(0.1) == []
        pulls = [r for r in cluster.replicas[0].requests if r.code == RequestCode.PULL_MESSAGE]
        assert {pull.ext_fields["subscription"] for pull in pulls} == {"b"}

    run(body)


def test_a_queue_that_is_not_there_is_said():
    async def body(cluster):
        consumer = consumer_of(cluster, subscribe=False)
        consumer.assign([QUEUES[0]._replace(queue_id=77)])
        async with consumer:
            await until(lambda: consumer.problems)
            assert "queue_id=77" in str(consumer.problems[TOPIC])

    run(body)


def test_paused_queues_give_out_nothing_and_go_on():
    async def body(cluster):
        await produce(cluster, 8)
        async with consumer_of(cluster) as consumer:
            await consumer.wait_joined(5)
            await asyncio.sleep(0.1)  # All is cached.
            consumer.pause(QUEUES[:2])
            assert sorted(await bodies(consumer, 4)) == [2, 3, 6, 7]
            assert await consumer.poll(0.1) == []
            waiting = asyncio.create_task(consumer.poll(5))
            await asyncio.sleep(0.05)
            consumer.resume()
            found = [int(message.body) for message in await waiting]
            while len(found) < 4:
                found += [int(message.body) for message in await consumer.poll(1)]
            assert sorted(found) == [0, 1, 4, 5]

    run(body)


@pytest.mark.parametrize(
    "bound", [{"max_cached_messages": 10}, {"max_cached_bytes": 9}, {"max_offset_span": 8}]
)
def test_the_cache_of_a_queue_is_bounded(bound):
    async def body(cluster):
        await produce(cluster, 400)
        async with consumer_of(cluster, pull_batch_count=4, **bound) as consumer:
            await consumer.wait_joined(5)
            await asyncio.sleep(0.3)
            cached = [held.process_queue.cached_count for held in consumer.assignment.held]
            assert max(cached) <= 16
            assert sorted(await bodies(consumer, 400)) == list(range(400))

    run(body)


def test_the_cache_of_all_queues_is_bounded():
    async def body(cluster):
        await produce(cluster, 400)
        options = {"pull_batch_count": 4, "max_cached_messages_all": 20}
        async with consumer_of(cluster, **options) as consumer:
            await consumer.wait_joined(5)
            await asyncio.sleep(0.3)
            cached = [held.process_queue.cached_count for held in consumer.assignment.held]
            assert sum(cached) <= 20 + 4 * 4
            assert sorted(await bodies(consumer, 400)) == list(range(400))

    run(body)


def test_changes_of_a_topics_queues_are_told():
    async def body(cluster):
        told = []
        async with consumer_of(cluster, queues_check_ms=20) as consumer:
            consumer.on_queues_changed(TOPIC, lambda topic, queues: told.append((topic, queues)))
            assert await consumer.fetch_queues(TOPIC) == QUEUES
            await asyncio.sleep(0.1)
            assert told == []
            cluster.publish(queues=5)
            await until(lambda: told)
            assert told == [(TOPIC, [*QUEUES, MessageQueue(TOPIC, "group-0", 4)])]

    run(body)


def test_one_task_polls_and_a_stop_ends_it():
    async def body(cluster):
        consumer = consumer_of(cluster)
        with pytest.raises(NotRunning):
            await consumer.poll()
        async with consumer:
            waiting = asyncio.create_task(consumer.poll(30))
            await asyncio.sleep(0.05)
            with pytest.raises(RuntimeError, match="another task polls"):
                await consumer.poll()
        with pytest.raises(NotRunning):
            await waiting
        with pytest.raises(NotRunning):
            await consumer.poll()

    run(body)


def test_a_broadcasting_member_keeps_its_offsets_itself(tmp_path):
    async def body(cluster):
        await produce(cluster, 8)
        options = {"model": MessageModel.BROADCASTING, "local_offsets_dir": str(tmp_path)}
        async with consumer_of(cluster, config={"instance_name": "x"}, **options) as consumer:
            assert sorted(await bodies(consumer, 8)) == list(range(8))
        assert set(committed(cluster)) == {-1}
        async with consumer_of(cluster, config={"instance_name": "x"}, **options) as consumer:
            assert await consumer.poll(0.2) == []

    run(body)


def test_a_tool_moves_it_and_asks_how_it_runs():
    async def body(cluster):
        await produce(cluster, 8)
        async with consumer_of(cluster) as consumer:
            await bodies(consumer, 8)
            consumer.move({QUEUES[0]: 1})
            assert await bodies(consumer, 1) == [4]

    run(body)


@pytest.mark.parametrize("wrong", [{"poll_count_max": 0}, {"pull_timeout_ms": 1}])
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LitePullOptions(**wrong)


def test_a_new_group_that_commits_by_itself_skips_nothing_when_it_begins_again():
    async def body(cluster):
        options = {"auto_commit": False, "consume_from": ConsumeFrom.LAST_OFFSET}
        await produce(cluster, 8)
        async with consumer_of(cluster, **options) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 4)
            await bodies(consumer, 4)
        async with consumer_of(cluster, **options) as consumer:
            assert len(await bodies(consumer, 4)) == 4

    run(body)


def test_a_stop_by_another_task_commits_nothing_that_is_in_hand():
    async def body(cluster):
        await produce(cluster, 8)
        consumer = consumer_of(cluster, auto_commit_interval_ms=60_000)
        await consumer.start()
        in_hand = asyncio.Event()

        async def work():
            await bodies(consumer, 8)
            in_hand.set()
            await asyncio.Event().wait()

        worker = asyncio.create_task(work())
        await in_hand.wait()
        await consumer.stop()
        worker.cancel()
        assert max(committed(cluster)) < 2

    run(body)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_seek_amid_a_commit_and_a_rebalance_leaves_one_pull_loop(leaves):
    async def body(cluster):
        await produce(cluster, 8)
        async with consumer_of(cluster, auto_commit_interval_ms=60_000) as consumer:
            await bodies(consumer, 8)
            await consumer.poll(0)
            assignment = consumer.assignment
            (held,) = [one for one in assignment.held if one.process_queue.queue == QUEUES[0]]
            wanted = QUEUES[1:] if leaves else QUEUES
            async with held.turn:
                seek = asyncio.create_task(consumer.seek(QUEUES[0], 0))
                await asyncio.sleep(0.05)
                change = asyncio.create_task(assignment.change(TOPIC, wanted))
                await asyncio.sleep(0.05)
            await change
            if leaves:
                with pytest.raises(ValueError, match="not assigned"):
                    await seek
            else:
                await seek
            pulling = [task.get_name() for task in asyncio.all_tasks()]
            names = [name for name in pulling if name.startswith("pull-")]
            assert sorted(names) == sorted(f"pull-{queue}" for queue in assignment.queues)
            if not leaves:
                assert sorted(await bodies(consumer, 2)) == [0, 4]

    run(body)


def test_a_seek_stands_whenever_a_rebalance_begins_amid_it():
    async def body(cluster):
        await produce(cluster, 16)
        async with consumer_of(cluster, subscribe=False, auto_commit=False) as consumer:
            consumer.assign(QUEUES)
            await bodies(consumer, 16)
            for turns in range(12):
                seek = asyncio.create_task(consumer.seek(QUEUES[0], 3))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await asyncio.gather(seek, consumer.assignment.change(TOPIC, QUEUES))
                assert consumer.position(QUEUES[0]) == 3, turns
                assert await bodies(consumer, 1) == [12]

    run(body)


def test_paused_queues_do_not_starve_the_others():
    async def body(cluster):
        await produce(cluster, 400)
        options = {"pull_batch_count": 4, "max_cached_messages_all": 20}
        async with consumer_of(cluster, **options) as consumer:
            await consumer.wait_joined(5)
            await asyncio.sleep(0.2)
            consumer.pause(QUEUES[:3])
            found = await bodies(consumer, 100)
            assert len(found) == 100

    run(body)


@pytest.mark.parametrize(
    ("bug", "check"),
    [
        (
            BY_TESTS["beginning-not-committed"],
            test_a_new_group_that_commits_by_itself_skips_nothing_when_it_begins_again,
        ),
        (
            BY_TESTS["released-whoever-holds-it"],
            lambda: test_a_seek_amid_a_commit_and_a_rebalance_leaves_one_pull_loop(False),
        ),
        (
            BY_TESTS["seek-released-by-a-rebalance"],
            test_a_seek_stands_whenever_a_rebalance_begins_amid_it,
        ),
        (
            BY_TESTS["stop-commits-what-is-in-hand"],
            test_a_stop_by_another_task_commits_nothing_that_is_in_hand,
        ),
        (
            BY_TESTS["paused-queues-fill-the-cache"],
            test_paused_queues_do_not_starve_the_others,
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_bug_of_a_polling_member_is_found(bug, check):
    with planted(bug), pytest.raises((AssertionError, TimeoutError, KeyError)):
        check()
