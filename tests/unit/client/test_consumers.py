"""Pull and push consumers: delivery, commits, rebalance, failures, failover."""

import asyncio
from collections import Counter

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    ResponseError,
)
from ledgermq.client.assignment import COMMIT_ALL_PERIODS
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.runtime.clock import SystemClock
from mutants.patches import ALL, BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

QUEUE = MessageQueue(TOPIC, "group-0", 0)
FROM_FIRST = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000, local_retry_ms=20
)
GROUP = "test-group"


class LaterClock(SystemClock):
    """The machine's clock, later by what the test says."""

    later_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.later_ms

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.later_ms * 1_000_000


class Recorder:
    """A listener that counts bodies and can wait for a number of them."""

    def __init__(self, fail=None):
        self.seen = []
        self.fail = fail or (lambda _message: False)
        self.commits = []
        self.fetches = []
        self.assigned = {}
        self._changed = asyncio.Event()

    def __call__(self, messages, _context):
        self.seen += [message.body for message in messages]
        self._changed.set()
        if any(self.fail(message) for message in messages):
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    def on_assignment(self, topic, queues):
        self.assigned[topic] = list(queues)
        self._changed.set()

    def on_commit(self, queue, offset, ok, t_start_ns, t_end_ns):
        assert t_start_ns <= t_end_ns
        self.commits.append((queue, offset, ok))
        self._changed.set()

    def on_fetch(self, queue, offset, t_start_ns, t_end_ns):
        assert t_start_ns <= t_end_ns
        self.fetches.append((queue, offset))

    async def until(self, condition):
        async with asyncio.timeout(8):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def produce(cluster, count, start=0, topic=TOPIC):
    async with Producer(cluster.config(group="pg")) as producer:
        for i in range(start, start + count):
            await producer.send(Message(topic, b"%d" % i))


def consumer_of(cluster, recorder, options=FROM_FIRST, topic=TOPIC, **settings):
    config = cluster.config(**{"leader_check_ms": 50, "persist_offset_ms": 50, **settings})
    consumer = PushConsumer(config, recorder, options, observer=recorder)
    consumer.subscribe(topic)
    return consumer


def test_pull_reads_what_was_sent_and_long_polls_for_more():
    async def body(cluster):
        await produce(cluster, 10)
        async with PullConsumer(cluster.config()) as consumer:
            queues = await consumer.fetch_subscribe_queues(TOPIC)
            assert len(queues) == 4
            found = []
            for queue in queues:
                result = await consumer.pull(queue, offset=0)
                assert (result.status, result.min_offset) == (PullStatus.FOUND, 0)
                assert result.next_offset == result.max_offset == len(result.messages)
                found += [message.body for message in result.messages]
            assert sorted(found) == sorted(b"%d" % i for i in range(10))
            end = await consumer.max_offset(queues[0])
            nothing = await consumer.pull(queues[0], offset=end)
            assert (nothing.status, nothing.messages) == (PullStatus.NO_NEW_MESSAGE, [])
            waiting = asyncio.ensure_future(consumer.pull(queues[0], offset=end, block_ms=5_000))
            await produce(cluster, 4)
            assert len((await waiting).messages) == 1
            illegal = await consumer.pull(queues[0], offset=end + 100)
            assert (illegal.status, illegal.next_offset) == (PullStatus.OFFSET_ILLEGAL, end + 1)

    run(body)


def test_pull_consumer_keeps_offsets_at_the_broker():
    async def body(cluster):
        async with PullConsumer(cluster.config()) as consumer:
            assert await consumer.fetch_offset(QUEUE) == -1
            await consumer.commit_offset(QUEUE, 7)
            assert await consumer.fetch_offset(QUEUE) == 7
            assert await consumer.min_offset(QUEUE) == 0
            assert await consumer.search_offset(QUEUE, 0) == 0

    run(body)


def test_pull_filters_tags_exactly():
    async def body(cluster):
        async with Producer(cluster.config(group="pg")) as producer:
            for tags in ("Aa", "BB", ""):  # The first two have the same hash code.
                await producer.send(Message(TOPIC, b"x" + tags.encode(), tags=tags), QUEUE)
        async with PullConsumer(cluster.config()) as consumer:
            result = await consumer.pull(QUEUE, "Aa")
        assert [message.body for message in result.messages] == [b"xAa"]

    run(body)


def test_pull_decompresses_bodies():
    async def body(cluster):
        async with Producer(cluster.config(group="pg")) as producer:
            await producer.send(Message(TOPIC, b"long" * 5_000), QUEUE)
        assert len(cluster.group.queues[TOPIC, 0][0].body) < 1_000
        async with PullConsumer(cluster.config()) as consumer:
            result = await consumer.pull(QUEUE)
        assert result.messages[0].body == b"long" * 5_000

    run(body)


def test_pull_survives_a_leader_change():
    async def body(cluster):
        await produce(cluster, 4)
        async with PullConsumer(cluster.config()) as consumer:
            await consumer.pull(QUEUE)
            cluster.elect(1)
            cluster.publish(leader=1)
            assert len((await consumer.pull(QUEUE)).messages) == 1
            await cluster.replicas[0].stop()
            assert len((await consumer.pull(QUEUE)).messages) == 1

    run(body)


def test_a_pull_that_waits_goes_on_waiting_at_the_next_leader():
    # The leader dies when the pull has waited longer than a request may take.
    async def body(cluster):
        clock = LaterClock()
        async with PullConsumer(cluster.config(), clock=clock) as consumer:
            await consumer.fetch_subscribe_queues(TOPIC)
            waiting = asyncio.ensure_future(consumer.pull(QUEUE, block_ms=10_000))
            leader = cluster.replicas[0]
            await leader.wait_for(lambda: leader.count(RequestCode.PULL_MESSAGE) == 1)
            clock.later_ms = 5_000
            cluster.elect(1)
            cluster.publish(leader=1)
            await cluster.replicas[0].stop()
            await produce(cluster, 4)
            assert len((await waiting).messages) == 1

    run(body)


def test_a_commit_that_is_refused_for_want_of_a_heartbeat_is_repeated_after_one():
    async def body(cluster):
        leader = cluster.replicas[0]
        leader.wants_heartbeats = True
        async with PullConsumer(cluster.config()) as consumer:
            await consumer.pull(QUEUE)
            leader.clients.clear()  # it has started anew, or its answer was faster
            await consumer.commit_offset(QUEUE, 3)
            assert await consumer.fetch_offset(QUEUE) == 3
        assert leader.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 2

    run(body)
    with planted(BY_TESTS["commit-without-a-heartbeat"]), pytest.raises(ResponseError):
        run(body)


def test_a_refused_pull_raises_the_brokers_error():
    async def body(cluster):
        async with PullConsumer(cluster.config()) as consumer:
            with pytest.raises(ResponseError) as caught:
                await consumer.search_offset(QUEUE._replace(topic=TOPIC), "no number")
            assert caught.value.code == 1

    run(body)


def test_push_delivers_everything_and_commits():
    async def body(cluster):
        await produce(cluster, 100)
        recorder = Recorder()
        async with consumer_of(cluster, recorder):
            await recorder.until(lambda: len(recorder.seen) == 100)
            await produce(cluster, 20, start=100)
            await recorder.until(lambda: len(recorder.seen) == 120)
            await recorder.until(lambda: bool(recorder.commits))
        assert Counter(recorder.seen) == Counter(b"%d" % i for i in range(120))
        offsets = cluster.group.offsets
        assert sum(offsets[GROUP, TOPIC, queue] for queue in range(4)) == 120
        assert all(ok for _, _, ok in recorder.commits)

    run(body)


def test_push_goes_on_where_the_group_stopped():
    async def body(cluster):
        await produce(cluster, 10)
        first, second = Recorder(), Recorder()
        async with consumer_of(cluster, first):
            await first.until(lambda: len(first.seen) == 10)
        await produce(cluster, 10, start=10)
        async with consumer_of(cluster, second):
            await second.until(lambda: len(second.seen) == 10)
        assert sorted(second.seen) == sorted(b"%d" % i for i in range(10, 20))
        of_topic = [offset for queue, offset in first.fetches if queue.topic == TOPIC]
        assert of_topic == [-1] * 4, "the group had none"
        assert sum(offset for queue, offset in second.fetches if queue.topic == TOPIC) == 10

    run(body)


async def goes_where_the_server_resets(cluster):
    """Have one pull answered as RocketMQ 5 resets a group; return whether the member goes there."""
    await produce(cluster, 20)
    recorder = Recorder()
    async with consumer_of(cluster, recorder):
        await recorder.until(lambda: len(recorder.seen) == 20)
        assert await committed(cluster, 20)
        for queue in range(4):
            cluster.group.resets[GROUP, TOPIC, queue] = 3
        return await seen_again(recorder, 20 + 4 * 2)


async def seen_again(recorder, goal):
    """Return whether so many messages come in the end, and no more."""
    for _ in range(200):
        if len(recorder.seen) >= goal:
            break
        await asyncio.sleep(0.02)
    return len(recorder.seen) == goal


def test_a_member_goes_where_its_broker_resets_the_group():
    async def body(cluster):
        assert await goes_where_the_server_resets(cluster)

    async def spoilt(cluster):
        assert not await goes_where_the_server_resets(cluster)

    run(body)
    with planted(BY_TESTS["reset-of-the-server-waited-out"]):
        run(spoilt)


COMMITS_ONLY = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000,
    commit_on_pull=False,
)  # fmt: skip


async def committed(cluster, goal):
    """Wait until the group has committed ``goal`` messages; tell whether it ever does."""
    offsets = cluster.group.offsets
    for _ in range(150):
        if sum(offsets.get((GROUP, TOPIC, queue), 0) for queue in range(4)) == goal:
            return True
        await asyncio.sleep(0.02)
    return False


async def offsets_come_again(cluster, lose, **settings):
    """Have a group commit all it has done; ``lose`` it, and tell whether it is committed again."""
    await produce(cluster, 8)
    recorder = Recorder()
    async with consumer_of(cluster, recorder, COMMITS_ONLY, **settings):
        await recorder.until(lambda: len(recorder.seen) == 8)
        assert await committed(cluster, 8)
        cluster.group.offsets.clear()
        lose(cluster)
        return await committed(cluster, 8)


def lead_by_another(cluster):
    cluster.elect(1)
    cluster.publish(leader=1)


@pytest.mark.parametrize(
    ("lose", "period_ms"), [(lambda _cluster: None, 50), (lead_by_another, 400)]
)
def test_offsets_that_a_broker_took_and_lost_are_committed_again(lose, period_ms):
    """After some periods in any case, and in the next one where another broker leads."""

    async def body(cluster):
        assert await offsets_come_again(cluster, lose, persist_offset_ms=period_ms)
        with planted(ALL["acknowledged-offset-not-repeated"]):
            cluster.elect(0)
            cluster.publish(leader=0)
            cluster.group.queues.clear()
            cluster.group.offsets.clear()
            assert not await offsets_come_again(cluster, lose, persist_offset_ms=50)

    run(body)


def test_offsets_that_are_as_they_were_are_sent_in_every_sixth_period_only():
    async def body(cluster):
        await produce(cluster, 8)
        recorder = Recorder()
        consumer = consumer_of(cluster, recorder, COMMITS_ONLY, persist_offset_ms=60_000)
        async with consumer:
            await recorder.until(lambda: len(recorder.seen) == 8)
            sent = []
            for _ in range(2 * COMMIT_ALL_PERIODS):
                before = len(recorder.commits)
                await consumer.assignment.commit_due()
                sent.append(len(recorder.commits) - before)
            assert sent == [4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 4]

    run(body)


def test_consume_from_last_skips_what_was_there():
    async def body(cluster):
        await produce(cluster, 8)
        recorder = Recorder()
        options = ConsumeOptions(suspend_ms=200, pull_timeout_ms=1_000)
        consumer = consumer_of(cluster, recorder, options)
        async with consumer:
            await recorder.until(lambda: TOPIC in recorder.assigned)
            await produce(cluster, 4, start=8)
            await recorder.until(lambda: len(recorder.seen) == 4)
        assert sorted(recorder.seen) == sorted(b"%d" % i for i in range(8, 12))

    run(body)


async def consume_from_last_behind_a_new_name_server(cluster):
    """The name server that is asked first has just started, and no broker has registered there."""
    await produce(cluster, 8)
    cluster.name_servers[0].routes.clear()
    recorder = Recorder()
    async with consumer_of(cluster, recorder, ConsumeOptions(suspend_ms=200)):
        await recorder.until(lambda: TOPIC in recorder.assigned)
        cluster.publish()
        await produce(cluster, 4, start=8)
        await recorder.until(lambda: len(recorder.seen) == 4)
    assert sorted(recorder.seen) == sorted(b"%d" % i for i in range(8, 12))


def test_consume_from_last_begins_at_the_end_behind_a_name_server_that_has_just_started():
    run(consume_from_last_behind_a_new_name_server, name_servers=2)


def test_planted_trust_in_the_first_name_server_is_found():
    with planted(BY_TESTS["new-by-one-name-server"]), pytest.raises(TimeoutError):
        run(consume_from_last_behind_a_new_name_server, name_servers=2)


class Silent(asyncio.Protocol):
    """A name server that hangs: it takes requests, and answers none."""

    def __init__(self, asked):
        self.asked = asked

    def data_received(self, data):
        self.asked.append(data)


def test_topics_that_are_nowhere_hold_up_no_other_where_a_name_server_hangs():
    async def body(cluster):
        asked, recorder = [], Recorder()
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: Silent(asked), "127.0.0.1") as server:
            silent = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            consumer = consumer_of(
                cluster, recorder, ConsumeOptions(suspend_ms=200), request_timeout_ms=800,
                namesrv_addrs=(cluster.name_servers[0].addr, silent),
            )  # fmt: skip
            missing = {f"missing-{number}" for number in range(4)}
            for topic in missing:
                consumer.subscribe(topic)
            async with consumer:
                await recorder.until(lambda: TOPIC in recorder.assigned)
                assert not missing & consumer._queues_at_first.keys()
                while not missing & consumer._queues_at_first.keys():
                    await asyncio.sleep(0.005)
                assert all(topic.encode() in b"".join(asked) for topic in missing), "one by one"
                while not missing <= consumer._queues_at_first.keys():
                    await asyncio.sleep(0.005)

    run(body)


async def consume_from_last_of_a_new_topic(cluster):
    recorder = Recorder()
    options = ConsumeOptions(suspend_ms=200, pull_timeout_ms=1_000)
    async with consumer_of(cluster, recorder, options, "born-later") as consumer:
        while "born-later" not in consumer._queues_at_first:
            await asyncio.sleep(0.005)
        for number in range(8):  # all of it before anybody can look again
            fields = {"b": "born-later", "e": str(number % 4), "f": "0", "g": "1"}
            cluster.group.append(fields, b"%d" % number, b"", 0)
        cluster.publish(TOPIC, "born-later")
        assert recorder.assigned.get("born-later") is None
        await recorder.until(lambda: len(recorder.seen) == 8)


def test_consume_from_last_skips_nothing_of_a_topic_that_is_new():
    run(consume_from_last_of_a_new_topic)


def test_planted_skipping_the_beginning_of_a_new_topic_is_found():
    with planted(BY_TESTS["new-queues-skipped"]), pytest.raises(TimeoutError):
        run(consume_from_last_of_a_new_topic)


def test_a_new_group_commits_where_it_begins():
    async def body(cluster):
        await produce(cluster, 8)
        first, second = Recorder(), Recorder()
        options = ConsumeOptions(suspend_ms=15_000)
        async with consumer_of(cluster, first, options):
            await first.until(lambda: len(first.commits) == 4)
        await produce(cluster, 4, start=8)
        async with consumer_of(cluster, second, options):
            await second.until(lambda: len(second.seen) == 4)

    run(body)


def test_members_share_the_queues_and_take_over_when_one_leaves():
    async def body(cluster):
        first, second = Recorder(), Recorder()
        async with consumer_of(cluster, first) as one:
            await first.until(lambda: len(one.assigned_queues) == 4)
            async with consumer_of(cluster, second) as two:
                await second.until(lambda: len(two.assigned_queues) == 2)
                await first.until(lambda: len(one.assigned_queues) == 2)
                assert not set(one.assigned_queues) & set(two.assigned_queues)
                await produce(cluster, 40)
                await first.until(lambda: len(first.seen) == 20)
                await second.until(lambda: len(second.seen) == 20)
            await first.until(lambda: len(one.assigned_queues) == 4)
            await produce(cluster, 40, start=40)
            await first.until(lambda: len(first.seen) == 60)
        assert set(first.seen) | set(second.seen) == {b"%d" % i for i in range(80)}

    run(body)


def test_a_failed_message_returns_and_holds_the_commit():
    async def body(cluster):
        await produce(cluster, 8)
        recorder = Recorder(fail=lambda m: m.body == b"3" and m.reconsume_times < 2)
        async with consumer_of(cluster, recorder):
            await recorder.until(lambda: recorder.seen.count(b"3") == 3)
        assert Counter(recorder.seen) == Counter([b"%d" % i for i in range(8)] + [b"3"] * 2)
        assert sum(cluster.group.offsets[GROUP, TOPIC, q] for q in range(4)) == 8

    run(body)


def test_a_message_that_keeps_failing_is_never_committed_past():
    async def body(cluster):
        await produce(cluster, 8)
        stuck = next(
            (queue, message.queue_offset)
            for (_, queue), stored in cluster.group.queues.items()
            for message in stored
            if message.body == b"3"
        )
        recorder = Recorder(fail=lambda m: m.body == b"3")
        async with consumer_of(cluster, recorder):
            await recorder.until(lambda: recorder.seen.count(b"3") == 3)
        assert cluster.group.offsets[GROUP, TOPIC, stuck[0]] == stuck[1]

    run(body)


def test_a_listener_that_raises_or_returns_nonsense_has_failed():
    async def body(cluster):
        await produce(cluster, 2)
        answers = iter([ValueError("broken"), None])
        calls = []
        changed = asyncio.Event()

        async def listener(messages, context):
            assert context.queue.topic == TOPIC
            assert 0 < context.t_pull_start_ns <= context.t_pull_end_ns
            calls.extend(message.body for message in messages)
            changed.set()
            answer = next(answers, ConsumeStatus.CONSUME_SUCCESS)
            if isinstance(answer, Exception):
                raise answer
            return answer

        consumer = PushConsumer(cluster.config(), listener, FROM_FIRST)
        consumer.subscribe(TOPIC)
        async with consumer:
            async with asyncio.timeout(8):
                while len(calls) < 4:
                    changed.clear()
                    await changed.wait()
        assert Counter(calls) == {b"0": 2, b"1": 2}

    run(body)


def test_stop_lets_the_running_listener_finish_and_commits_it():
    async def body(cluster):
        await produce(cluster, 1)
        entered, release = asyncio.Event(), asyncio.Event()

        async def listener(_messages, _context):
            entered.set()
            await release.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = PushConsumer(cluster.config(), listener, FROM_FIRST)
        consumer.subscribe(TOPIC)
        await consumer.start()
        await entered.wait()
        stop = asyncio.ensure_future(consumer.stop())
        release.set()
        await stop
        assert sum(offset for key, offset in cluster.group.offsets.items() if key[1] == TOPIC) == 1
        assert consumer.client_id in cluster.replicas[0].unregistered

    run(body)


@pytest.mark.parametrize("kill", [False, True])
def test_consumption_follows_a_new_leader(kill):
    async def body(cluster):
        await produce(cluster, 20)
        recorder = Recorder()
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)  # Polls held for 15 s.
        async with consumer_of(cluster, recorder, options):
            await recorder.until(lambda: len(recorder.seen) == 20)
            if kill:
                await cluster.replicas[0].stop()
            cluster.elect(1)
            cluster.publish(leader=1)
            await produce(cluster, 20, start=20)
            await recorder.until(lambda: set(recorder.seen) == {b"%d" % i for i in range(40)})

    run(body)


def test_a_topic_that_appears_later_is_picked_up():
    async def body(cluster):
        recorder = Recorder()
        consumer = consumer_of(cluster, recorder)
        consumer.subscribe("later")
        async with consumer:
            await recorder.until(lambda: TOPIC in recorder.assigned)
            cluster.publish("later", queues=2)
            await recorder.until(lambda: len(recorder.assigned.get("later", ())) == 2)

    run(body)


def test_flow_control_pauses_a_queue_until_messages_are_finished():
    async def body(cluster):
        await produce(cluster, 400)
        release, all_seen = asyncio.Event(), asyncio.Event()
        seen = []

        async def listener(messages, _context):
            seen.extend(messages)
            if len(seen) == 400:
                all_seen.set()
            await release.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET,
            max_cached_messages=32,
            suspend_ms=200,
            pull_timeout_ms=1_000,
        )
        consumer = PushConsumer(cluster.config(), listener, options)
        consumer.subscribe(TOPIC)
        async with consumer:
            broker = cluster.replicas[0]
            await broker.wait_for(lambda: broker.count(11) >= 8)
            cached = [held.process_queue.cached_count for held in consumer.assignment.held]
            assert max(cached) <= 64
            release.set()
            await asyncio.wait_for(all_seen.wait(), 8)
        assert len({message.body for message in seen}) == 400

    run(body)


def test_starting_without_a_subscription_is_an_error():
    async def body(cluster):
        consumer = PushConsumer(cluster.config(), Recorder())
        with pytest.raises(ValueError, match="subscribe"):
            await consumer.start()
        await consumer.stop()

    run(body)
