"""What becomes of messages whose listener failed: given back, sent from here, or kept."""

import asyncio
from dataclasses import replace

import pytest

from ledgermq.client import ConsumeStatus, Message, Producer, PushConsumer
from ledgermq.remoting.protocol.codes import VERSION_MAX_RECONSUME, RequestCode
from ledgermq.remoting.protocol.compression import COMPRESSED_ZLIB
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import ALL
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.fakes import answer
from tests.unit.client.test_consumers import FROM_FIRST, GROUP, QUEUE

RETRY = f"%RETRY%{GROUP}"


class Failing:
    """A listener that fails for the first deliveries; it notes what it saw."""

    def __init__(self, failures, delay_level=0):
        self.failures = failures
        self.delay_level = delay_level
        self.seen = []
        self.changed = asyncio.Event()

    def __call__(self, messages, context):
        (message,) = messages
        self.seen.append((message.topic, message.reconsume_times, message.message_id()))
        self.changed.set()
        context.delay_level = self.delay_level
        if len(self.seen) <= self.failures:
            raise ValueError("not yet")
        return ConsumeStatus.CONSUME_SUCCESS

    async def until(self, condition):
        async with asyncio.timeout(8):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


def consuming(cluster, listener, options=FROM_FIRST):
    cluster.publish(RETRY, queues=1)
    config = cluster.config(leader_check_ms=50, persist_offset_ms=50)
    consumer = PushConsumer(config, listener, options)
    consumer.subscribe(TOPIC)
    return consumer


async def produce_one(cluster, body=b"x"):
    async with Producer(cluster.config(group="pg")) as producer:
        sent = await producer.send(Message(TOPIC, body, tags="T"), QUEUE)
    return sent.msg_id


async def committed(cluster, topic, offset):
    async with asyncio.timeout(5):
        while cluster.group.offsets.get((GROUP, topic, 0)) != offset:
            await asyncio.sleep(0.02)


def sends_to_retry(cluster):
    return [
        request
        for broker in cluster.replicas
        for request in broker.requests
        if request.code == RequestCode.SEND_MESSAGE_V2 and request.ext_fields["b"] == RETRY
    ]


def test_a_failed_message_comes_back_as_itself_until_it_is_consumed():
    async def body(cluster):
        cluster.group.send_back_refusal = None
        msg_id = await produce_one(cluster)
        listener = Failing(2)
        async with consuming(cluster, listener):
            await listener.until(lambda: len(listener.seen) == 3)
            assert listener.seen == [(TOPIC, times, msg_id) for times in range(3)]
            await committed(cluster, TOPIC, 1)
            await committed(cluster, RETRY, 2)
        assert [fields["originTopic"] for fields in cluster.group.sent_back] == [TOPIC, TOPIC]
        assert cluster.group.sent_back[0] == {
            "offset": "0",
            "group": GROUP,
            "delayLevel": "0",
            "originMsgId": msg_id,
            "originTopic": TOPIC,
            "unitMode": "false",
        }, "the group's retryMaxTimes counts where the consumer has no limit of its own"
        assert sends_to_retry(cluster) == []

    run(body)


@pytest.mark.parametrize(("level", "times_max"), [(5, 3), (-1, 0)])
def test_listeners_choose_the_level_and_options_the_limit(level, times_max):
    async def body(cluster):
        cluster.group.send_back_refusal = None
        await produce_one(cluster)
        listener = Failing(1, level)
        options = replace(FROM_FIRST, max_reconsume_times=times_max)
        async with consuming(cluster, listener, options):
            await listener.until(lambda: len(listener.seen) == 2)
        (fields,) = cluster.group.sent_back
        assert (fields["delayLevel"], fields["maxReconsumeTimes"]) == (str(level), str(times_max))

    run(body)


@pytest.mark.parametrize(
    ("level", "delay", "times_max"), [(0, "3", None), (7, "7", None), (-1, "3", "0")]
)
def test_what_the_broker_does_not_copy_is_sent_from_here(level, delay, times_max):
    async def body(cluster):
        cluster.group.send_back_refusal = (1, "look message by offset failed, 0")
        content = b"y" * 5_000
        msg_id = await produce_one(cluster, content)
        listener = Failing(1, level)
        async with consuming(cluster, listener):
            await listener.until(lambda: len(listener.seen) == 2)
            await committed(cluster, TOPIC, 1)
        assert listener.seen[1] == (TOPIC, 1, msg_id)
        (sent,) = sends_to_retry(cluster)
        fields = sent.ext_fields
        assert (fields["a"], fields["j"]) == ("CLIENT_INNER_PRODUCER", "1")
        assert fields.get("l") == times_max
        # Brokers of RocketMQ go by the group where nothing is said, if the version is older.
        assert (sent.version >= VERSION_MAX_RECONSUME) == (times_max is not None)
        assert int(fields["f"]) == COMPRESSED_ZLIB
        assert len(sent.body) < len(content)
        properties = parse_properties(fields["i"].encode())
        assert properties.pop("ORIGIN_MESSAGE_ID")
        assert properties == {
            "UNIQ_KEY": msg_id, "TAGS": "T", "RETRY_TOPIC": TOPIC, "DELAY": delay
        }  # fmt: skip

    run(body)


async def copied_for_one_that_wants_no_retries(cluster):
    """Fail for a message that the broker does not copy, with no further delivery wanted."""
    cluster.group.send_back_refusal = (1, "no")
    await produce_one(cluster)
    options = replace(FROM_FIRST, max_reconsume_times=0)
    async with consuming(cluster, Failing(1), options):
        await committed(cluster, TOPIC, 1)
    (sent,) = sends_to_retry(cluster)
    assert (sent.ext_fields["j"], sent.ext_fields.get("l")) == ("1", "0")


def test_no_retries_are_a_limit_of_what_is_sent_from_here():
    run(copied_for_one_that_wants_no_retries)
    with planted(ALL["no-retries-is-no-limit"]), pytest.raises(AssertionError):
        run(copied_for_one_that_wants_no_retries)


def test_two_copies_for_a_lost_answer_are_known_by_id_and_times():
    """At least once: docs/client.md says how the second copy is recognised."""

    async def body(cluster):
        cluster.group.send_back_refusal = None
        cluster.group.send_back_answers_lost = 1
        msg_id = await produce_one(cluster)
        listener = Failing(1)
        async with consuming(cluster, listener):
            await listener.until(lambda: len(listener.seen) == 3)
            await committed(cluster, TOPIC, 1)
        first, *copies = listener.seen
        assert first == (TOPIC, 0, msg_id)
        assert copies == [(TOPIC, 1, msg_id)] * 2
        assert len(cluster.group.sent_back) + len(sends_to_retry(cluster)) == 2

    run(body)


def test_a_broker_that_keeps_no_retries_is_sent_none():
    async def body(cluster):
        await produce_one(cluster)
        listener = Failing(2)
        async with consuming(cluster, listener):
            await listener.until(lambda: len(listener.seen) == 3)
            await committed(cluster, TOPIC, 1)
        assert [times for _, times, _ in listener.seen] == [0, 1, 2]
        assert len(cluster.group.sent_back) == 2
        assert sends_to_retry(cluster) == []

    run(body)


async def kept(cluster):
    """Fail for a message that no broker takes back."""
    cluster.group.send_back_refusal = (1, "no")
    await produce_one(cluster)
    listener = Failing(1)
    for broker in cluster.replicas:
        broker.misbehave.extend([answer(13, "illegal")])
    async with consuming(cluster, listener):
        await listener.until(lambda: bool(listener.seen))
        async with asyncio.timeout(5):
            while not sends_to_retry(cluster):
                await asyncio.sleep(0.01)
        await listener.until(lambda: len(listener.seen) == 2)
        await committed(cluster, TOPIC, 1)


def test_what_nobody_takes_back_is_kept_and_tried_here():
    run(kept)


def test_a_kept_message_that_is_forgotten_is_seen():
    with planted(ALL["failed-messages-dropped"]), pytest.raises(TimeoutError):
        run(kept)


def test_a_message_is_given_back_to_the_next_leader():
    async def body(cluster):
        cluster.group.send_back_refusal = None
        await produce_one(cluster)

        def lose_leader(_messages):
            cluster.elect(1)
            cluster.publish(TOPIC, leader=1)
            cluster.publish(RETRY, queues=1, leader=1)

        listener = Failing(1)
        inner = listener.__call__

        async def listen(messages, context):
            if not listener.seen:
                lose_leader(messages)
            return inner(messages, context)

        async with consuming(cluster, listen):
            await listener.until(lambda: len(listener.seen) == 2)
        assert len(cluster.group.sent_back) == 1
        assert sends_to_retry(cluster) == []

    run(body)
