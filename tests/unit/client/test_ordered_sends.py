"""Ordered sends: one key, one queue, however often they are tried; batches that are cut."""

import asyncio

import pytest

from ledgermq.client import (
    BatchFailed,
    InvalidMessage,
    Message,
    MessageQueue,
    Outcome,
    Producer,
    SelectorFailed,
    SendFailed,
    select_by_hash,
    select_by_random,
)
from ledgermq.remoting.protocol.properties import SHARDING_KEY, java_string_hash
from mutants.patches import ALL
from mutants.planting import planted
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run

KEY = "order-7"


def queue_of(key, groups=1):
    """Where RocketMQ's hash puts a key: four queues a group, groups by name."""
    place = abs(java_string_hash(key)) % (4 * groups)
    return MessageQueue(TOPIC, f"group-{place // 4}", place % 4)


def bodies(cluster, queue):
    group = cluster.brokers[queue.broker_name][0].group
    return [message.body for message in group.queues[TOPIC, queue.queue_id]]


async def sent_in_order(cluster):
    """Each key's messages lie in its queue, in order, though sends fail and are tried again."""
    failures = [fakes.drop_after, fakes.drop_before, fakes.answer(2, "[TIMEOUT_CLEAN_QUEUE]")]
    keys = [f"order-{number}" for number in range(5)]
    async with Producer(cluster.config(retry_times=10)) as producer:
        for name, replicas in cluster.brokers.items():
            await producer.send(Message(TOPIC, b"connects"), MessageQueue(TOPIC, name, 0))
            replicas[0].misbehave.extend(failures)

        async def send(key):
            for number in range(6):
                body = f"{key}:{number}".encode()
                result = await producer.send(Message(TOPIC, body, sharding_key=key))
                assert result.queue == queue_of(key, groups=2)

        await asyncio.gather(*map(send, keys))
    for key in keys:
        stored = bodies(cluster, queue_of(key, groups=2))
        mine = [body for body in stored if body.startswith(key.encode() + b":")]
        assert list(dict.fromkeys(mine)) == [f"{key}:{number}".encode() for number in range(6)]
        assert mine == sorted(mine)


def test_the_messages_of_a_key_keep_their_queue_and_order_through_failures():
    run(sent_in_order, groups=2, replicas=1)


PLANTED = (ALL["selected-anew-for-each-try"], ALL["client-retried-on-another-queue"])


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_a_planted_retry_on_another_queue_is_noticed(mutant):
    with planted(mutant), pytest.raises((AssertionError, SendFailed)):
        run(sent_in_order, groups=2, replicas=1)


def test_the_key_is_on_the_message_and_sends_of_one_turn_share_no_request_with_it():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"first"))
            plain = [producer.send(Message(TOPIC, b"plain")) for _ in range(8)]
            keyed = [producer.send(Message(TOPIC, b"%d" % n, sharding_key=KEY)) for n in range(8)]
            results = await asyncio.gather(*plain, *keyed)
        assert {result.queue for result in results[8:]} == {queue_of(KEY)}
        stored = cluster.group.queues[TOPIC, queue_of(KEY).queue_id]
        keyed = [m for m in stored if m.maybe_property(SHARDING_KEY) == KEY]
        assert [message.body for message in keyed] == [b"%d" % n for n in range(8)]

    run(body)


def test_a_queue_or_selector_given_goes_before_the_key():
    async def body(cluster):
        other = queue_of(KEY)._replace(queue_id=(queue_of(KEY).queue_id + 1) % 4)
        async with Producer(cluster.config()) as producer:
            message = Message(TOPIC, b"x", sharding_key=KEY)
            assert (await producer.send(message, other)).queue == other
            assert (await producer.send(message, lambda queues, _: queues[2])).queue.queue_id == 2
            assert (await producer.send(message, select_by_hash("b"))).queue == queue_of("b")
            seen = {(await producer.send(message, select_by_random())).queue for _ in range(60)}
            assert len(seen) == 4
            await producer.send_oneway(Message(TOPIC, b"oneway", sharding_key=KEY))
            async with asyncio.timeout(5):
                while b"oneway" not in bodies(cluster, queue_of(KEY)):
                    await asyncio.sleep(0.01)

    run(body)


async def tried_again_as_chosen(cluster):
    """The first send of a producer, which has no connection yet, and fails at first."""
    asked = []

    def choose(queues, _message):
        asked.append(queues)
        return queues[len(asked) - 1]

    cluster.replicas[0].misbehave.append(fakes.drop_before)
    async with Producer(cluster.config(retry_times=5)) as producer:
        result = await producer.send(Message(TOPIC, b"x"), choose)
    assert (result.queue.queue_id, len(asked)) == (0, 1)
    assert len(result.attempts) == 2


def test_a_selector_is_asked_once_however_often_a_send_is_tried():
    run(tried_again_as_chosen, replicas=1)
    with planted(ALL["selector-asked-again"]), pytest.raises(AssertionError):
        run(tried_again_as_chosen, replicas=1)


def test_a_selector_that_fails_sends_nothing_and_says_so():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            for _ in range(2):  # without a route yet, and with one
                with pytest.raises(SelectorFailed, match="nothing was sent") as caught:
                    await producer.send(Message(TOPIC, b"x"), lambda _queues, _message: "q")
                assert caught.value.outcome is Outcome.FAILED
                await producer.send(Message(TOPIC, b"well"))
            assert cluster.group.bodies(TOPIC) == [b"well"] * 2

    run(body)


async def sent_elsewhere(cluster):
    """Return what a send to a queue of another topic stores in the topic of its message."""
    queue = MessageQueue("payments", "group-0", 1)
    async with Producer(cluster.config()) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(InvalidMessage, match="no queue of the message's topic 'orders'"):
                await send(Message(TOPIC, b"x"), queue)
        with pytest.raises(InvalidMessage, match="7 is no queue"):
            await producer.send(Message(TOPIC, b"x"), 7)


def test_a_queue_of_another_topic_is_refused():
    run(sent_elsewhere)
    with planted(ALL["queue-of-another-topic"]), pytest.raises(pytest.fail.Exception):
        run(sent_elsewhere)


def test_a_topic_without_a_queue_is_a_certain_failure():
    async def body(cluster):
        cluster.publish(queues=0)
        async with Producer(cluster.config(send_timeout_ms=300)) as producer:
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(TOPIC, b"x", sharding_key=KEY))
            assert caught.value.outcome is Outcome.FAILED

    run(body)


def test_batches_keep_the_key_and_refuse_two():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            one = [Message(TOPIC, b"%d" % n, sharding_key=KEY) for n in range(3)]
            assert (await producer.send_batch(one)).queue == queue_of(KEY)
            with pytest.raises(InvalidMessage, match="2 sharding keys"):
                await producer.send_batch([*one, Message(TOPIC, b"x", sharding_key="b")])
            two = [*one, Message(TOPIC, b"x", sharding_key="b")]
            assert (await producer.send_batch(two, queue_of("b"))).queue == queue_of("b")

    run(body)


def test_a_long_list_is_sent_as_batches_in_order():
    async def body(cluster):
        many = [Message(TOPIC, b"%05d" % n, sharding_key=KEY) for n in range(3_000)]
        async with Producer(cluster.config()) as producer:
            results = await producer.send_all(many)
            assert len(results) == 3
            assert bodies(cluster, queue_of(KEY)) == [message.body for message in many]
            assert await producer.send_all([]) == []

    run(body)


def test_a_batch_that_fails_says_what_is_stored_and_what_is_not():
    async def body(cluster):
        many = [Message(TOPIC, b"%05d" % n, sharding_key=KEY) for n in range(3_000)]
        broker = cluster.replicas[0]

        async def stores(broker, _connection, request):
            return await broker.store(request)

        async with Producer(cluster.config(retry_times=0)) as producer:
            broker.misbehave.extend([stores, fakes.drop_after])
            with pytest.raises(BatchFailed) as caught:
                await producer.send_all(many)
            error = caught.value
            assert error.outcome is Outcome.UNKNOWN
            assert len(error.results) == 1
            assert error.messages == tuple(many[1_024:2_048])
            assert error.unsent == 3_000 - 2_048
            assert len(bodies(cluster, queue_of(KEY))) == 2_048
            broker.misbehave.append(fakes.drop_before)
            with pytest.raises(SendFailed) as caught:
                await producer.send_all(many)
            assert not isinstance(caught.value, BatchFailed)

    run(body)


def test_a_key_with_separators_is_refused():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            with pytest.raises(InvalidMessage, match="sharding_key"):
                await producer.send(Message(TOPIC, b"x", sharding_key="a\x01b"))
            assert cluster.group.bodies(TOPIC) == []

    run(body)
