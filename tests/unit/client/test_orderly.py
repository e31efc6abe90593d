"""Orderly consumption: one batch of a queue in hand, failures tried again, locks looked at."""

import asyncio
import dataclasses
import logging
from collections import defaultdict

import msgspec
import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
)
from ledgermq.client.orderly import OrderlyService
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.queue_locks import RENEW_MS, VALID_MS
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.errors import ConnectFailed
from ledgermq.runtime.clock import SystemClock
from mutants.patches import ALL
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_process_queue import message as message_at

ORDERLY = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000, orderly=True,
    order_suspend_ms=20,
)  # fmt: skip
GROUP = "test-group"


class LaterClock(SystemClock):
    """The machine's clock, later by what the test says."""

    later_ms = 0

    def monotonic_ms(self):
        return super().monotonic_ms() + self.later_ms


class Listener:
    """Notes what it is given by queue, and that it never has two calls of a queue at once."""

    def __init__(self, fail=lambda _message, _attempt: False, work_s=0.001):
        self.seen = defaultdict(list)
        self.tries = defaultdict(int)
        self.in_hand = set()
        self.overlaps = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._fail = fail
        self._work_s = work_s
        self._changed = asyncio.Event()

    async def __call__(self, messages, context):
        self.overlaps += context.queue in self.in_hand
        self.in_hand.add(context.queue)
        self._changed.set()
        await asyncio.sleep(self._work_s)
        await self.go_on.wait()
        self.in_hand.discard(context.queue)
        for message in messages:
            self.tries[message.body] += 1
        if any(self._fail(message, self.tries[message.body]) for message in messages):
            self._changed.set()
            return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        self.seen[context.queue] += [message.queue_offset for message in messages]
        self._changed.set()
        return ConsumeStatus.CONSUME_SUCCESS

    @property
    def count(self):
        return sum(map(len, self.seen.values()))

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def produce(cluster, count, queues=4):
    async with Producer(cluster.config(group="pg")) as producer:
        for i in range(count):
            await producer.send(
                Message(TOPIC, b"%d" % i), MessageQueue(TOPIC, "group-0", i % queues)
            )


def consumer_of(cluster, listener, options=ORDERLY, clock=None, **settings):
    config = cluster.config(**{"leader_check_ms": 50, "persist_offset_ms": 50, **settings})
    consumer = PushConsumer(config, listener, options, clock=clock or SystemClock())
    consumer.subscribe(TOPIC)
    return consumer


def in_order(listener, count, queues=4):
    return all(
        listener.seen[MessageQueue(TOPIC, "group-0", number)]
        == list(range(len(range(number, count, queues))))
        for number in range(queues)
    )


async def locks_of(cluster, consumer):
    return {key[2] for key, owner in cluster.group.locks.items() if owner == consumer.client_id}


async def a_failing_message_holds_its_queue(cluster):
    await produce(cluster, 40)
    listener = Listener(fail=lambda message, attempt: message.queue_offset % 3 == 1 and attempt < 3)
    async with consumer_of(cluster, listener):
        await listener.until(lambda: listener.count >= 40)
    assert in_order(listener, 40)
    assert not listener.overlaps
    assert listener.tries[b"4"] == 3
    assert not cluster.group.sent_back
    ends = dict.fromkeys(range(4), 10)
    assert {key[2]: at for key, at in cluster.group.offsets.items() if key[1] == TOPIC} == ends


def test_a_failing_message_is_tried_again_and_nothing_overtakes_it():
    run(a_failing_message_holds_its_queue)


def test_a_planted_skip_is_noticed():
    with planted(ALL["client-orderly-retry-skips"]), pytest.raises((AssertionError, TimeoutError)):
        run(a_failing_message_holds_its_queue)


def test_a_listener_that_raises_or_returns_nonsense_has_failed():
    async def body(cluster):
        await produce(cluster, 2, queues=1)
        calls = []

        def listen(messages, _context):
            calls.append((messages[0].queue_offset, messages[0].reconsume_times))
            if len(calls) == 1:
                raise ValueError("no")
            return None if len(calls) == 2 else ConsumeStatus.CONSUME_SUCCESS

        async with consumer_of(cluster, listen):
            async with asyncio.timeout(5):
                while len(calls) < 4:
                    await asyncio.sleep(0.01)
        assert calls == [(0, 0), (0, 1), (0, 2), (1, 0)]

    run(body)


def test_batches_are_handed_out_whole_and_the_listener_says_how_long_to_wait():
    async def body(cluster):
        await produce(cluster, 10, queues=1)
        calls = []

        def listen(messages, context):
            calls.append(([message.queue_offset for message in messages], context.suspend_ms))
            context.suspend_ms = 10
            failed = len(calls) == 1
            return ConsumeStatus.RECONSUME_LATER if failed else ConsumeStatus.CONSUME_SUCCESS

        options = dataclasses.replace(ORDERLY, consume_batch_count=4, order_suspend_ms=30_000)
        async with consumer_of(cluster, listen, options):
            async with asyncio.timeout(5):
                while len(calls) < 4:
                    await asyncio.sleep(0.01)
        handed = [offsets for offsets, _ in calls]
        assert handed == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    run(body)


def test_what_was_tried_too_often_goes_to_the_dead_letters_and_is_kept_where_it_can_not():
    async def body(cluster):
        await produce(cluster, 3, queues=1)
        listener = Listener(fail=lambda message, _attempt: message.body == b"1")
        options = dataclasses.replace(ORDERLY, max_reconsume_times=2)
        async with consumer_of(cluster, listener, options) as consumer:
            await listener.until(lambda: listener.tries[b"1"] >= 5)
            assert dict(listener.seen) == {MessageQueue(TOPIC, "group-0", 0): [0]}
            sent_back = []

            async def take(_addr, message, level, times):
                sent_back.append((message.body, level, times))

            consumer.api.send_back = take
            await listener.until(lambda: listener.count == 2)
        assert sent_back == [(b"1", -1, 2)]
        assert listener.tries[b"2"] == 1
        assert cluster.group.offsets[GROUP, TOPIC, 0] == 3

    run(body)


def test_queues_are_locked_while_they_are_consumed_and_unlocked_at_the_end():
    async def body(cluster):
        await produce(cluster, 8)
        listener = Listener()
        async with consumer_of(cluster, listener) as consumer:
            await listener.until(lambda: listener.count == 8)
            assert await locks_of(cluster, consumer) == {0, 1, 2, 3}
        assert cluster.group.locks == {}

    run(body)


def test_nothing_is_consumed_of_a_queue_that_another_has_locked():
    async def body(cluster):
        await produce(cluster, 8)
        cluster.group.locks[GROUP, TOPIC, 2] = "another"
        listener = Listener()
        async with consumer_of(cluster, listener) as consumer:
            await listener.until(lambda: listener.count == 6)
            await asyncio.sleep(0.1)
            assert MessageQueue(TOPIC, "group-0", 2) not in listener.seen
            assert len(consumer.assigned_queues) == 3
            del cluster.group.locks[GROUP, TOPIC, 2]
            await listener.until(lambda: listener.count == 8)
        assert cluster.group.locks == {}

    run(body)


async def locks_are_renewed_in_time(cluster):
    """Before the 30 s of a lock are over, it has been asked for again; nothing is lost."""
    await produce(cluster, 4)
    clock, listener = LaterClock(), Listener()
    broker = cluster.replicas[0]
    async with consumer_of(cluster, listener, clock=clock) as consumer:
        await listener.until(lambda: listener.count == 4)
        for _ in range(3):
            asked = broker.count(RequestCode.LOCK_BATCH_MQ)
            clock.later_ms += RENEW_MS
            await broker.wait_for(
                lambda asked=asked: broker.count(RequestCode.LOCK_BATCH_MQ) > asked
            )
        assert all(consumer.locks.holds(queue) for queue in consumer.assigned_queues)
        assert len(consumer.assigned_queues) == 4
        await produce(cluster, 4)
        await listener.until(lambda: listener.count == 8)
    assert all(offsets == [0, 1] for offsets in listener.seen.values())


def test_locks_are_renewed_before_they_run_out():
    run(locks_are_renewed_in_time)


def test_planted_locks_that_are_never_renewed_are_noticed():
    mutant = ALL["orderly-lock-never-renewed"]
    with planted(mutant), pytest.raises((AssertionError, TimeoutError)):
        run(locks_are_renewed_in_time)


async def a_lock_that_ran_out_ends_consumption(cluster):
    """The broker is gone and the lock's time over: what was pulled must not be handed out."""
    await produce(cluster, 8, queues=1)
    clock = LaterClock()
    listener = Listener()
    listener.go_on.clear()
    async with consumer_of(cluster, listener, clock=clock) as consumer:
        await listener.until(lambda: listener.in_hand)
        cluster.elect(-1)  # Nobody leads: no renewal, no new lock.
        clock.later_ms = VALID_MS + 1
        listener.go_on.set()
        await listener.until(lambda: listener.count >= 1)
        await asyncio.sleep(0.1)
        assert listener.seen[MessageQueue(TOPIC, "group-0", 0)] == [0]
        assert not [c for c in cluster.replicas[0].commits if c[2] == 1]
        cluster.elect(0)
        await listener.until(lambda: listener.count >= 9)
        # What was in hand when the lock was lost was not committed: it comes again.
        assert listener.seen[MessageQueue(TOPIC, "group-0", 0)] == [0, *range(8)]
        assert consumer.assigned_queues


def test_a_lock_that_ran_out_ends_consumption_until_it_is_taken_anew():
    run(a_lock_that_ran_out_ends_consumption)


def test_a_planted_listener_call_without_a_lock_is_noticed():
    with planted(ALL["orderly-without-lock"]), pytest.raises(AssertionError):
        run(a_lock_that_ran_out_ends_consumption)


def test_a_renewal_that_is_refused_ends_consumption_before_it_commits(caplog):
    async def body(cluster):
        await produce(cluster, 4, queues=1)
        listener = Listener()
        async with consumer_of(cluster, listener, persist_offset_ms=60_000) as consumer:
            await listener.until(lambda: listener.count == 4)
            cluster.group.locks[GROUP, TOPIC, 0] = "another"
            cluster.group.offsets[GROUP, TOPIC, 0] = 3  # What the other has come to.
            before = len(cluster.replicas[0].commits)
            consumer.locks.renew_soon(["group-0"])
            async with asyncio.timeout(5):
                while MessageQueue(TOPIC, "group-0", 0) in consumer.assigned_queues:
                    await asyncio.sleep(0.01)
            assert (TOPIC, 0, 4) not in cluster.replicas[0].commits[before:]
            del cluster.group.locks[GROUP, TOPIC, 0]
            await listener.until(lambda: listener.count == 5)  # 3 again, from what stood there.

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "event=lock_lost" in caplog.text


def test_a_new_leader_is_asked_for_the_locks_at_once():
    async def body(cluster):
        await produce(cluster, 4)
        listener = Listener()
        async with consumer_of(cluster, listener) as consumer:
            await listener.until(lambda: listener.count == 4)
            cluster.group.locks.clear()  # As where a master takes them with it.
            cluster.elect(1)
            cluster.publish(leader=1)
            await cluster.replicas[1].wait_for(
                lambda: cluster.replicas[1].count(RequestCode.LOCK_BATCH_MQ) > 0
            )
            assert await locks_of(cluster, consumer) == {0, 1, 2, 3}

    run(body)


async def a_revoked_queue_ends_before_it_is_given_away(cluster):
    await produce(cluster, 40)
    first, second = Listener(), Listener()
    first.go_on.clear()
    one = consumer_of(cluster, first, rebalance_ms=100, instance_name="a")
    other = consumer_of(cluster, second, rebalance_ms=100, instance_name="b")
    async with one:
        await first.until(lambda: len(first.in_hand) == 4)
        async with other:
            await asyncio.sleep(0.5)
            assert not second.seen
            first.go_on.set()
            await second.until(lambda: second.count >= 15)
            async with asyncio.timeout(5):
                while first.count + second.count < 40:
                    await asyncio.sleep(0.01)
            assert len(one.assigned_queues) == len(other.assigned_queues) == 2
    for number in range(4):
        queue = MessageQueue(TOPIC, "group-0", number)
        assert first.seen[queue] + second.seen[queue] == list(range(10))
    assert cluster.group.locks == {}


def test_a_revoked_queue_is_given_away_only_when_nothing_of_it_is_in_hand():
    run(a_revoked_queue_ends_before_it_is_given_away)


def test_a_planted_unlock_of_what_is_in_hand_is_noticed():
    with planted(ALL["unlocked-before-it-ended"]), pytest.raises(AssertionError):
        run(a_revoked_queue_ends_before_it_is_given_away)


async def a_queue_is_committed_before_it_is_unlocked(cluster):
    await produce(cluster, 4)
    listener = Listener()
    broker = cluster.replicas[0]
    async with consumer_of(cluster, listener) as consumer:
        await listener.until(lambda: listener.count == 4)
        consumer.unsubscribe(TOPIC)
        await broker.wait_for(lambda: not cluster.group.locks)
    said = defaultdict(list)
    for request in broker.requests:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            fields = request.ext_fields
            said[fields["topic"], int(fields["queueId"])].append("commit")
        elif request.code == RequestCode.UNLOCK_BATCH_MQ:
            for queue in msgspec.json.decode(request.body)["mqSet"]:
                said[queue["topic"], queue["queueId"]].append("unlock")
    for number in range(4):
        assert said[TOPIC, number][-2:] == ["commit", "unlock"]


def test_a_queue_is_committed_before_others_may_have_it():
    run(a_queue_is_committed_before_it_is_unlocked)


def test_a_planted_unlock_before_the_commit_is_noticed():
    with planted(ALL["unlocked-before-its-offset"]), pytest.raises(AssertionError):
        run(a_queue_is_committed_before_it_is_unlocked)


def test_stopping_waits_for_what_is_in_hand_and_keeps_the_lock_of_what_hangs(caplog):
    async def body(cluster):
        await produce(cluster, 8)
        listener = Listener()
        listener.go_on.clear()
        consumer = consumer_of(cluster, listener, stop_timeout_ms=300)
        await consumer.start()
        await listener.until(lambda: len(listener.in_hand) == 4)
        await consumer.stop()
        assert await locks_of(cluster, consumer) == {0, 1, 2, 3}
        assert not cluster.group.offsets.get((GROUP, TOPIC, 0))
        listener.go_on.set()
        await listener.until(lambda: listener.count == 4)
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "event=listeners_still_running count=4" in caplog.text


def test_a_listener_that_blocks_the_loop_is_a_warning(caplog, monkeypatch):
    monkeypatch.setattr("ledgermq.client.listening.BLOCKED_NS", 0)

    async def body(cluster):
        await produce(cluster, 1)
        done = asyncio.Event()

        def listen(_messages, _context):
            done.set()
            return ConsumeStatus.CONSUME_SUCCESS

        async with consumer_of(cluster, listen):
            await asyncio.wait_for(done.wait(), 5)

    with caplog.at_level(logging.WARNING):
        run(body)
    assert "event=listener_blocked_loop" in caplog.text


def test_a_listener_that_does_not_end_is_a_warning_once(caplog, monkeypatch):
    monkeypatch.setattr("ledgermq.client.listening.ENDLESS_NS", 1)

    async def body(cluster):
        await produce(cluster, 1)
        listener = Listener()
        listener.go_on.clear()
        async with consumer_of(cluster, listener):
            await listener.until(lambda: listener.in_hand)
            await asyncio.sleep(0.3)
            listener.go_on.set()

    with caplog.at_level(logging.WARNING):
        run(body)
    assert caplog.text.count("event=listener_does_not_end") == 1


def test_two_consumers_of_one_name_are_a_warning(caplog):
    async def body(cluster):
        async with consumer_of(cluster, Listener(), instance_name="a"):
            assert "event=duplicate_instance" not in caplog.text
            async with consumer_of(cluster, Listener(), instance_name="a"):
                assert "event=duplicate_instance" in caplog.text
        caplog.clear()
        async with consumer_of(cluster, Listener(), instance_name="a"):
            assert "event=duplicate_instance" not in caplog.text

    with caplog.at_level(logging.WARNING):
        run(body)


def test_a_lock_that_is_lost_before_the_queue_is_held_is_taken_again():
    async def body(cluster):
        await produce(cluster, 4)
        listener = Listener()
        consumer = consumer_of(cluster, listener)
        ask = consumer.stored_offset
        lost = []

        async def stored_offset(queue):
            if queue.queue_id == 2 and queue not in lost:
                lost.append(queue)
                consumer.locks._lose(queue, "the test says so")
            return await ask(queue)

        consumer.stored_offset = stored_offset
        async with consumer:
            await listener.until(lambda: listener.count == 4)
        assert lost
        assert in_order(listener, 4)

    run(body)


@pytest.mark.parametrize("wait_ms", [0, 9, 30_001])
def test_a_suspension_out_of_range_is_refused(wait_ms):
    with pytest.raises(ValueError, match="order_suspend_ms"):
        ConsumeOptions(order_suspend_ms=wait_ms)


def test_room_is_told_of_where_only_some_of_a_batch_are_taken_as_dead_letters():
    async def body():
        one, told = ProcessQueue(MessageQueue(TOPIC, "group-0", 0), 0), []

        async def take(_one, refused, _level):
            if refused.queue_offset == 1:
                raise ConnectFailed("nobody is there")

        options = dataclasses.replace(ORDERLY, max_reconsume_times=0, consume_batch_count=2)
        listener = Listener(fail=lambda _message, _attempt: True)
        service = OrderlyService(
            listener, options, take, lambda one: told.append(one.cached_count), lambda _queue: True
        )
        messages = [message_at(0), message_at(1)]
        one.put(messages, 2)
        service.submit(one, messages, (0, 0))
        await listener.until(lambda: sum(listener.tries.values()) >= 3)
        await service.stop(1_000)
        assert told == [1]

    asyncio.run(body())
