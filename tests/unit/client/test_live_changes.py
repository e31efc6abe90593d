"""A running consumer is told to pause, to go on, and to consume something else."""

import asyncio

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    PushConsumer,
    Sql92,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run

OTHER = "payments"
QUEUES = [MessageQueue(TOPIC, "group-0", number) for number in range(4)]


class Listener:
    """Notes bodies by topic."""

    def __init__(self):
        self.seen = {TOPIC: [], OTHER: []}

    def __call__(self, messages, context):
        self.seen[context.queue.topic] += [message.body for message in messages]
        return ConsumeStatus.CONSUME_SUCCESS

    async def until(self, count, topic=TOPIC):
        async with asyncio.timeout(5):
            while len(self.seen[topic]) < count:
                await asyncio.sleep(0.01)


def consumer_of(cluster, listener, *, orderly):
    options = ConsumeOptions(
        consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000,
        orderly=orderly,
    )  # fmt: skip
    config = cluster.config(leader_check_ms=50, persist_offset_ms=50)
    consumer = PushConsumer(config, listener, options)
    consumer.subscribe(TOPIC)
    return consumer


async def produce(cluster, count, topic=TOPIC, tags=""):
    async with Producer(cluster.config(group="pg")) as producer:
        for number in range(count):
            queue = MessageQueue(topic, "group-0", number % 4)
            await producer.send(Message(topic, b"%d" % number, tags), queue)


@pytest.mark.parametrize("orderly", [False, True])
def test_what_is_paused_is_not_pulled_until_it_goes_on(orderly):
    async def body(cluster):
        listener = Listener()
        async with consumer_of(cluster, listener, orderly=orderly) as consumer:
            await consumer.wait_joined(5)
            await asyncio.sleep(0.05)  # polls wait at the broker now
            consumer.pause(QUEUES[:2])
            await produce(cluster, 8)
            await listener.until(4)
            await asyncio.sleep(0.3)
            assert sorted(listener.seen[TOPIC]) == [b"2", b"3", b"6", b"7"]
            consumer.pause()
            await produce(cluster, 4)
            consumer.resume(QUEUES[:1])
            await asyncio.sleep(0.3)
            assert len(listener.seen[TOPIC]) == 4
            assert consumer.assigned_queues == QUEUES
            consumer.resume()
            await listener.until(12)
        assert [cluster.group.offsets["test-group", *queue[::2]] for queue in QUEUES] == [3] * 4

    run(body)


def test_single_queues_that_are_resumed_while_all_are_paused_are_a_warning(caplog):
    async def body(cluster):
        consumer = consumer_of(cluster, Listener(), orderly=False)
        consumer.pause(QUEUES[:2])
        consumer.resume(QUEUES[:1])
        consumer.pause()
        consumer.resume()
        assert "event=still_paused" not in caplog.text
        consumer.pause()
        consumer.resume(QUEUES[:1])
        assert caplog.text.count("event=still_paused") == 1

    run(body)


@pytest.mark.parametrize("orderly", [False, True])
def test_topics_come_and_go_while_it_runs(orderly):
    async def body(cluster):
        cluster.publish(TOPIC, OTHER)
        listener = Listener()
        async with consumer_of(cluster, listener, orderly=orderly) as consumer:
            await produce(cluster, 4)
            await listener.until(4)
            consumer.subscribe(OTHER)
            await produce(cluster, 4, OTHER)
            await listener.until(4, OTHER)
            consumer.unsubscribe(TOPIC)
            async with asyncio.timeout(5):
                while {queue.topic for queue in consumer.assigned_queues} != {OTHER}:
                    await asyncio.sleep(0.01)
            assert cluster.group.offsets["test-group", TOPIC, 0] == 1
            await produce(cluster, 4)
            await produce(cluster, 4, OTHER)
            await listener.until(8, OTHER)
            assert len(listener.seen[TOPIC]) == 4
            with pytest.raises(ValueError, match="not subscribed"):
                consumer.unsubscribe(TOPIC)
            consumer.subscribe(TOPIC)
            await listener.until(8)
        topics = {queue[1] for queue in cluster.group.locks}
        assert topics == set()

    run(body)


def test_another_expression_is_for_what_is_pulled_from_then_on():
    async def body(cluster):
        listener = Listener()
        async with consumer_of(cluster, listener, orderly=False) as consumer:
            await produce(cluster, 4, tags="red")
            await listener.until(4)
            consumer.subscribe(TOPIC, "blue")
            await produce(cluster, 4, tags="red")
            await produce(cluster, 4, tags="blue")
            await listener.until(8)
            await asyncio.sleep(0.2)
            assert len(listener.seen[TOPIC]) == 8

    run(body)


async def problems_of_a_topic_given_up_while_it_is_looked_at(cluster):
    listener = Listener()
    async with consumer_of(cluster, listener, orderly=False) as consumer:
        await consumer.wait_joined(5)
        get, asked, answer = consumer.routes.get, asyncio.Event(), asyncio.Event()

        async def get_slowly(topic):
            if topic != OTHER:
                return await get(topic)
            asked.set()
            await answer.wait()
            raise NoRoute("nobody knows it")

        consumer.routes.get = get_slowly
        consumer.subscribe(OTHER)
        await asked.wait()
        consumer.unsubscribe(OTHER)
        answer.set()
        async with asyncio.timeout(5):
            while consumer._former:
                await asyncio.sleep(0.01)
        return consumer.problems


def test_a_topic_that_is_given_up_while_it_is_looked_at_is_no_problem_afterwards():
    async def body(cluster):
        assert await problems_of_a_topic_given_up_while_it_is_looked_at(cluster) == {}

    run(body)


def test_a_planted_problem_of_a_topic_that_was_given_up_is_noticed():
    async def body(cluster):
        assert list(await problems_of_a_topic_given_up_while_it_is_looked_at(cluster)) == [OTHER]

    with planted(BY_TESTS["given-up-and-a-problem"]):
        run(body)


async def pulled_anew_behind_a_change_of_mind(cluster):
    """Give a topic up and want it again, otherwise; return whose waiting pulls are dropped."""
    async with consumer_of(cluster, Listener(), orderly=False) as consumer:
        await consumer.wait_joined(5)
        anew = []
        consumer.assignment.pull_anew = anew.append
        consumer.unsubscribe(TOPIC)
        consumer.subscribe(TOPIC, "blue")
        return anew


def test_another_expression_counts_for_waiting_pulls_where_the_topic_was_given_up_between():
    async def body(cluster):
        assert await pulled_anew_behind_a_change_of_mind(cluster) == [TOPIC]

    run(body)


def test_a_planted_pull_by_what_was_wanted_before_is_noticed():
    async def body(cluster):
        assert await pulled_anew_behind_a_change_of_mind(cluster) == []

    with planted(BY_TESTS["given-up-pulls-go-on"]):
        run(body)


async def start_in_a_queue_that_is_new(cluster):
    """Give a topic up and want it again at once; return how a queue made meanwhile counts."""
    async with consumer_of(cluster, Listener(), orderly=False) as consumer:
        await consumer.wait_joined(5)
        cluster.publish(queues=5)
        await consumer.routes.refresh(TOPIC)
        consumer.unsubscribe(TOPIC)
        consumer.subscribe(TOPIC)
        await consumer._rebalance()
        return MessageQueue(TOPIC, "group-0", 4) in consumer._queues_at_first[TOPIC]


def test_a_queue_that_came_since_the_start_is_new_also_behind_a_change_of_mind():
    async def body(cluster):
        assert not await start_in_a_queue_that_is_new(cluster)

    run(body)


def test_a_planted_queue_that_counts_as_old_is_noticed():
    async def body(cluster):
        assert await start_in_a_queue_that_is_new(cluster)

    with planted(BY_TESTS["new-queue-taken-for-old"]):
        run(body)


async def assigned_once_joined(cluster, order):
    """Order something while a rebalance is under way; return what is had once it is joined."""
    cluster.publish(TOPIC, OTHER)
    async with consumer_of(cluster, Listener(), orderly=False) as consumer:
        await consumer.wait_joined(5)
        rebalancing = asyncio.create_task(consumer._rebalance())
        await asyncio.sleep(0)
        order(consumer)
        await consumer.wait_joined(5)
        await rebalancing
        return {queue.topic for queue in consumer.assigned_queues} - {"%RETRY%test-group"}


def test_who_waits_to_have_joined_waits_for_topics_of_later_too():
    async def body(cluster):
        assert await assigned_once_joined(cluster, lambda one: None) == {TOPIC}
        assert await assigned_once_joined(cluster, lambda one: one.subscribe(OTHER)) == {
            TOPIC, OTHER,
        }  # fmt: skip

    run(body)


@pytest.mark.parametrize("bug", [BY_TESTS["joined-for-ever"], BY_TESTS["joined-by-an-older-order"]])
def test_a_planted_member_that_has_joined_without_its_later_topics_is_noticed(bug):
    async def body(cluster):
        assert await assigned_once_joined(cluster, lambda one: one.subscribe(OTHER)) == {TOPIC}

    with planted(bug):
        run(body)


def test_of_expressions_that_brokers_have_accepted_the_last_one_is_remembered():
    async def body(cluster):
        consumer, asked = consumer_of(cluster, Listener(), orderly=False), []

        async def ask_any(_queues, _ask):
            asked.append(consumer.subscription(TOPIC).expression)

        consumer._ask_any = ask_any
        for number in range(3):
            consumer.subscribe(TOPIC, Sql92(f"n > {number}"))
            for _ in range(2):
                await consumer._check_filter(TOPIC, ())
        assert asked == ["n > 0", "n > 1", "n > 2"]
        assert list(consumer._checked) == [TOPIC]
        consumer.unsubscribe(TOPIC)
        await consumer._give_up_former()
        assert not consumer._checked

    run(body)
