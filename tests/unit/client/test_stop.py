"""Stopping clients that have something under way: what ends how, and that nothing begins."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    Message,
    MessageFinder,
    MessageQueue,
    NotRunning,
    Outcome,
    Producer,
    PullConsumer,
    PushConsumer,
    SendFailed,
    SendStatus,
)
from ledgermq.client.assignment import QUERIES_AT_ONCE_MAX
from ledgermq.remoting.protocol.codes import RequestCode
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_consumers import Recorder, produce

QUEUE = MessageQueue(TOPIC, "group-0", 0)
SENDS = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
PATIENT_MS = 15_000
"""Budget of what is under way at a stop: longer than the test would wait for it."""
PROMPT_S = 5


@asynccontextmanager
async def started(client):
    """Start a client that the block stops; a failing test leaves no connection behind."""
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


def patient(cluster, **settings):
    budgets = dict.fromkeys(
        ("send_timeout_ms", "request_timeout_ms", "stop_timeout_ms"), PATIENT_MS
    )
    return cluster.config(**{**budgets, **settings})


def begin(coroutine):
    return asyncio.ensure_future(coroutine)


def count_sends(broker):
    return sum(broker.count(code) for code in SENDS)


async def begin_send(producer, body=b"x"):
    """Begin a send and return once it is on the wire or waits."""
    send = begin(producer.send(Message(TOPIC, body)))
    await asyncio.sleep(0)
    return send


async def stop_promptly(client, *pending):
    """Stop and return how ``pending`` has ended by the time that the stop returns."""
    async with asyncio.timeout(PROMPT_S):
        await client.stop()
    assert all(one.done() for one in pending), "stop returned, and something is still pending"
    return [one.exception() for one in pending]


def test_a_request_that_is_never_answered_is_not_sent_again_and_its_outcome_is_unknown():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.misbehave.append(fakes.ignore)
        async with started(Producer(patient(cluster, stop_timeout_ms=20))) as producer:
            send = await begin_send(producer)
            await broker.wait_for(lambda: count_sends(broker) == 1)
            (failure,) = await stop_promptly(producer, send)
        assert isinstance(failure, SendFailed)
        assert failure.outcome is Outcome.UNKNOWN
        assert [attempt.error_class for attempt in failure.attempts] == ["ConnectionLost"]
        assert "the producer was stopped; the message may be stored" in str(failure)
        assert "closed: on this side" in str(failure)
        assert count_sends(broker) == 1

    run(body)


def test_a_send_between_two_attempts_ends_at_once_and_is_certainly_not_stored():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.leader = False
        async with started(Producer(patient(cluster))) as producer:
            send = await begin_send(producer)
            await broker.wait_for(lambda: count_sends(broker) >= 3)
            (failure,) = await stop_promptly(producer, send)
            sends = count_sends(broker)
        assert failure.outcome is Outcome.FAILED
        assert {attempt.code for attempt in failure.attempts} == {14}
        assert "the producer was stopped; the message is certainly not stored" in str(failure)
        assert count_sends(broker) == sends
        assert cluster.group.bodies(TOPIC) == []

    run(body)


def test_a_lost_attempt_is_remembered_by_a_send_that_waits_for_its_next_one():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.misbehave.append(fakes.drop_after)
        async with started(Producer(patient(cluster))) as producer:
            broker.misbehave.extend([fakes.not_leader] * 1_000)
            send = await begin_send(producer)
            await broker.wait_for(lambda: count_sends(broker) >= 3)
            (failure,) = await stop_promptly(producer, send)
        assert failure.outcome is Outcome.UNKNOWN
        assert cluster.group.bodies(TOPIC) == [b"x"]

    run(body)


def test_a_send_that_waits_for_a_route_was_not_sent():
    async def body(cluster):
        server = cluster.name_servers[0]
        async with started(Producer(patient(cluster))) as producer, server.seen:
            send = await begin_send(producer)
            oneway = begin(producer.send_oneway(Message(TOPIC, b"oneway")))
            failure, other = await stop_promptly(producer, send, oneway)
        assert failure.outcome is other.outcome is Outcome.FAILED
        assert failure.attempts == ()
        assert "stopped before the message was sent" in str(failure)
        assert isinstance(failure.__cause__, NotRunning)
        assert isinstance(other, NotRunning)
        assert cluster.replicas[0].requests == []

    run(body)


@pytest.mark.parametrize(
    ("code", "remark", "outcome"),
    [
        (14, "not the leader", Outcome.FAILED),
        (2, "busy", Outcome.FAILED),
        (2, "outcome unknown", Outcome.UNKNOWN),
        (1, "half-way", Outcome.UNKNOWN),
    ],
)
@pytest.mark.parametrize("together", [1, 4])
def test_an_answer_that_comes_during_the_stop_decides_and_is_the_last(
    code, remark, outcome, together
):
    async def body(cluster):
        broker, asked, release = cluster.replicas[0], asyncio.Event(), asyncio.Event()

        async def refuse_late(_broker, connection, request):
            asked.set()
            await release.wait()
            return fakes.answer(code, remark)(_broker, connection, request)

        async with started(Producer(patient(cluster))) as producer:
            await producer.send(Message(TOPIC, b"warm"))
            await asyncio.gather(*[producer.send(Message(TOPIC, b"warm")) for _ in range(3)])
            broker.misbehave.extend([refuse_late] * together)
            before = count_sends(broker)
            sends = [begin(producer.send(Message(TOPIC, b"x"))) for _ in range(together)]
            await asked.wait()
            stop = begin(stop_promptly(producer, *sends))
            await asyncio.sleep(0)
            assert not stop.done()
            begun = count_sends(broker)
            release.set()
            failures = await stop
        assert {failure.outcome for failure in failures} == {outcome}
        assert [len(failure.attempts) for failure in failures] == [1] * together
        assert count_sends(broker) == begun > before
        assert set(cluster.group.bodies(TOPIC)) == {b"warm"}

    run(body)


def test_an_illegal_message_is_called_that_during_a_stop_too():
    async def body(cluster):
        broker, asked, release = cluster.replicas[0], asyncio.Event(), asyncio.Event()

        async def refuse_late(_broker, connection, request):
            asked.set()
            await release.wait()
            return fakes.answer(13, "illegal")(_broker, connection, request)

        broker.misbehave.append(refuse_late)
        async with started(Producer(patient(cluster))) as producer:
            send = await begin_send(producer)
            await asked.wait()
            stop = begin(stop_promptly(producer, send))
            await asyncio.sleep(0)
            release.set()
            (failure,) = await stop
        assert "stopped" not in str(failure)
        assert "illegal" in str(failure)

    run(body)


def test_a_second_stop_does_not_cut_the_first_one_short():
    async def body(cluster):
        broker, asked, release = cluster.replicas[0], asyncio.Event(), asyncio.Event()

        async def slow(_broker, _connection, request):
            asked.set()
            await release.wait()
            return await broker.store(request)

        broker.misbehave.append(slow)
        async with started(Producer(patient(cluster))) as producer:
            send = await begin_send(producer)
            await asked.wait()
            stops = [begin(producer.stop()) for _ in range(2)]
            await asyncio.sleep(0)
            release.set()
            assert (await send).status is SendStatus.SEND_OK
            await asyncio.gather(*stops)
            await producer.stop()
        assert broker.unregistered == [producer.client_id]

    run(body)


def test_a_stop_that_was_cancelled_is_carried_on_by_the_next():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.misbehave.append(fakes.ignore)
        async with started(Producer(patient(cluster, stop_timeout_ms=100))) as producer:
            send = await begin_send(producer)
            await broker.wait_for(lambda: count_sends(broker) == 1)
            stop = begin(producer.stop())
            await asyncio.sleep(0)
            stop.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stop
            with pytest.raises(NotRunning):
                await producer.send(Message(TOPIC, b"y"))
            (failure,) = await stop_promptly(producer, send)
        assert failure.outcome is Outcome.UNKNOWN
        assert broker.unregistered == [producer.client_id]

    run(body)


@pytest.mark.parametrize("kind", [Producer, PullConsumer, MessageFinder])
def test_who_was_stopped_says_so_and_who_was_not_started_too(kind):
    def use(client):
        if kind is Producer:
            return client.send(Message(TOPIC, b"x"))
        if kind is PullConsumer:
            return client.max_offset(QUEUE)
        return client.by_key(TOPIC, "key")

    async def body(cluster):
        client = kind(cluster.config())
        with pytest.raises(NotRunning, match=r"await start\(\) first"):
            await use(client)
        async with started(client):
            await client.stop()
            with pytest.raises(NotRunning, match="was stopped") as caught:
                await use(client)
        assert caught.value.outcome is Outcome.FAILED

    run(body)


def test_a_pull_that_the_broker_holds_ends_at_once_and_is_not_repeated():
    async def body(cluster):
        broker = cluster.replicas[0]
        async with started(PullConsumer(patient(cluster))) as consumer:
            pull = begin(consumer.pull(QUEUE, block_ms=PATIENT_MS))
            await broker.wait_for(lambda: broker.count(RequestCode.PULL_MESSAGE) == 1)
            (failure,) = await stop_promptly(consumer, pull)
        assert isinstance(failure, NotRunning)
        assert failure.outcome is Outcome.UNKNOWN
        assert broker.count(RequestCode.PULL_MESSAGE) == 1

    run(body)


def test_a_call_that_waits_for_a_leader_ends_at_once():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.leader = False
        async with started(PullConsumer(patient(cluster))) as consumer:
            commit = begin(consumer.commit_offset(QUEUE, 1))
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            await broker.wait_for(lambda: broker.count(code) >= 3)
            (failure,) = await stop_promptly(consumer, commit)
        assert isinstance(failure, NotRunning)
        assert failure.outcome is Outcome.FAILED

    run(body)


def test_a_commit_that_is_on_the_wire_is_answered_before_the_consumer_closes():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.commits_wait_for = asyncio.Event()
        async with started(PullConsumer(patient(cluster))) as consumer:
            commit = begin(consumer.commit_offset(QUEUE, 7))
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            await broker.wait_for(lambda: broker.count(code) == 1)
            stop = begin(consumer.stop())
            await asyncio.sleep(0)
            broker.commits_wait_for.set()
            await commit
            await stop
        assert broker.commits == [(TOPIC, 0, 7)]

    run(body)


def test_commits_that_nobody_answers_hold_up_a_push_consumer_only_once():
    """Not once for every so many queues."""
    queues = 4 * QUERIES_AT_ONCE_MAX

    async def body(cluster):
        cluster.publish(queues=queues)
        await produce(cluster, queues)
        broker, recorder = cluster.replicas[0], Recorder()
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, commit_on_pull=False)
        config = cluster.config(request_timeout_ms=200)
        consumer = PushConsumer(config, recorder, options)
        consumer.subscribe(TOPIC)
        async with started(consumer):
            await recorder.until(lambda: len(recorder.seen) == queues)
            broker.commits_wait_for = asyncio.Event()
            before = broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
            await stop_promptly(consumer)
        commits = broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) - before
        assert QUERIES_AT_ONCE_MAX <= commits <= 2 * QUERIES_AT_ONCE_MAX

    run(body)
