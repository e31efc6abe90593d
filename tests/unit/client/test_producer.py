"""Sends: results, retries, failover, outcomes."""

import asyncio
import time

import pytest

from ledgermq.client import (
    InvalidMessage,
    Message,
    MessageQueue,
    NoRoute,
    NotRunning,
    Outcome,
    Producer,
    SendFailed,
    SendResult,
    SendStatus,
    TooManyPending,
    delivery,
)
from ledgermq.client.slow_brokers import SlowBrokers
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run


def test_sends_go_round_the_queues_and_return_where_they_are():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            results = [await producer.send(Message(TOPIC, b"%d" % i)) for i in range(8)]
        assert sorted((r.queue.queue_id, r.queue_offset) for r in results) == [
            (queue, offset) for queue in range(4) for offset in range(2)
        ]
        assert {r.status for r in results} == {SendStatus.SEND_OK}
        assert len({r.msg_id for r in results}) == 8
        assert all(len(r.msg_id) == len(r.offset_msg_id) == 32 for r in results)
        (attempt,) = results[0].attempts
        assert attempt.broker_addr == cluster.replicas[0].addr
        assert attempt.t_start_ns < attempt.t_end_ns
        assert sorted(cluster.group.bodies(TOPIC)) == [b"%d" % i for i in range(8)]

    run(body)


@pytest.mark.parametrize("together", [1, 3])
def test_a_broker_with_one_queue_gets_its_turns(together):
    async def body(cluster):
        cluster.publish(queues=1)
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"connects"), MessageQueue(TOPIC, "group-0", 0))
            for _ in range(6):
                sends = [producer.send(Message(TOPIC, b"x")) for _ in range(together)]
                await asyncio.gather(*sends)
        counts = [len(replicas[0].group.bodies(TOPIC)) for replicas in cluster.brokers.values()]
        assert sum(counts) == 6 * together + 1
        assert min(counts) >= 2 * together, counts

    run(body, groups=2, replicas=1)


def test_the_stored_message_carries_the_key_of_the_result():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            message = Message(TOPIC, b"x", tags="T", keys="k1 k2", properties={"a": "é"})
            result = await producer.send(message, MessageQueue(TOPIC, "group-0", 2))
        assert result.queue.queue_id == 2
        (stored,) = cluster.group.queues[TOPIC, 2]
        assert parse_properties(stored.properties) == {
            "UNIQ_KEY": result.msg_id, "WAIT": "true", "TAGS": "T", "KEYS": "k1 k2", "a": "é",
        }  # fmt: skip

    run(body)


def test_batch_is_stored_in_one_queue_in_order():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            result = await producer.send_batch([Message(TOPIC, b"%d" % i) for i in range(5)])
        assert cluster.group.bodies(TOPIC) == [b"0", b"1", b"2", b"3", b"4"]
        assert result.queue_offset == 0
        assert len(result.msg_id.split(",")) == len(result.offset_msg_id.split(",")) == 5

    run(body)


def test_oneway_wants_no_answer():
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config()) as producer:
            await producer.send_oneway(Message(TOPIC, b"x"))
            await broker.wait_for(lambda: broker.count(310) == 1)
        assert cluster.group.bodies(TOPIC) == [b"x"]
        assert next(r for r in broker.requests if r.code == 310).is_oneway

    run(body)


def test_many_concurrent_sends_share_one_connection():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            sends = [producer.send(Message(TOPIC, b"%d" % i)) for i in range(500)]
            results = await asyncio.gather(*sends)
            assert len(cluster.replicas[0].connections) == 1
        assert len({(r.queue, r.queue_offset) for r in results}) == 500
        assert cluster.name_servers[0].asked.count(TOPIC) == 1

    run(body)


def test_a_leader_change_is_survived_and_recorded():
    async def body(cluster):
        old, new = cluster.replicas
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"0"))
            cluster.elect(1)
            cluster.publish(leader=1)
            result = await producer.send(Message(TOPIC, b"1"))
        assert [a.broker_addr for a in result.attempts] == [old.addr, new.addr]
        assert (result.attempts[0].code, result.attempts[0].outcome) == (14, Outcome.FAILED)
        assert cluster.group.bodies(TOPIC).count(b"1") == 1

    run(body)


def test_sends_wait_while_there_is_no_leader():
    async def body(cluster):
        old, new = cluster.replicas
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"0"))
            cluster.elect(-1)
            cluster.publish(leader=None)
            sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"1"))) for _ in range(20)]
            await old.wait_for(lambda: old.count(310) + old.count(320) >= 3)
            server = cluster.name_servers[0]
            asked = len(server.asked)
            await server.wait_for(lambda: len(server.asked) > asked + 2)
            cluster.elect(1)
            cluster.publish(leader=1)
            results = await asyncio.gather(*sends)
        assert {r.attempts[-1].broker_addr for r in results} == {new.addr}
        assert {a.outcome for r in results for a in r.attempts[:-1]} == {Outcome.FAILED}

    run(body)


def test_a_killed_leader_is_survived():
    async def body(cluster):
        old, new = cluster.replicas
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"0"))
            old.misbehave.extend([fakes.ignore] * 10)
            sends = [asyncio.ensure_future(producer.send(Message(TOPIC, b"1"))) for _ in range(10)]
            await old.wait_for(lambda: old.count(310) + old.count(320) == 3)
            await old.stop()
            cluster.elect(1)
            cluster.publish(leader=1)
            results = await asyncio.gather(*sends)
        for result in results:
            assert result.attempts[0].error_class == "ConnectionLost"
            assert result.attempts[0].outcome is Outcome.UNKNOWN
            assert result.attempts[-1].broker_addr == new.addr

    run(body)


def test_a_frozen_leader_is_left_once_the_route_names_another():
    async def body(cluster):
        old, new = cluster.replicas
        async with Producer(cluster.config(stall_ms=60)) as producer:
            await producer.send(Message(TOPIC, b"0"))
            old.misbehave.append(fakes.ignore)
            send = asyncio.ensure_future(producer.send(Message(TOPIC, b"1")))
            await old.wait_for(lambda: old.count(310) == 2)
            cluster.elect(1)
            cluster.publish(leader=1)
            result = await send
        assert [a.broker_addr for a in result.attempts] == [old.addr, new.addr]
        assert result.attempts[0].outcome is Outcome.UNKNOWN

    run(body)


def test_the_better_of_two_name_servers_is_believed():
    async def body(cluster):
        fresh = cluster.name_servers[1]
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"0"))
            cluster.elect(1)
            ids = {0: cluster.replicas[1].addr, 1: cluster.replicas[0].addr}
            fresh.publish(TOPIC, {"group-0": ids})
            result = await producer.send(Message(TOPIC, b"1"))
        assert result.attempts[-1].broker_addr == cluster.replicas[1].addr

    run(body, name_servers=2)


def test_a_dead_name_server_is_passed_over():
    async def body(cluster):
        await cluster.name_servers[0].stop()
        async with Producer(cluster.config()) as producer:
            result = await producer.send(Message(TOPIC, b"0"))
            assert result.queue_offset == 0

    run(body, name_servers=2)


@pytest.mark.parametrize(
    ("misbehave", "outcome", "stored"),
    [
        (fakes.drop_before, Outcome.UNKNOWN, 0),
        (fakes.drop_after, Outcome.UNKNOWN, 3),
        (fakes.not_leader, Outcome.FAILED, 0),
        (fakes.answer(2, "[PC_SYNCHRONIZED]broker busy"), Outcome.FAILED, 0),
        (fakes.answer(2, "quorum not reached, outcome unknown"), Outcome.UNKNOWN, 0),
        (fakes.answer(1, "stepped down, outcome unknown"), Outcome.UNKNOWN, 0),
        (fakes.answer(13, "the message is illegal"), Outcome.FAILED, 0),
        (fakes.answer(17, "topic not exist"), Outcome.FAILED, 0),
    ],
)
def test_the_outcome_of_a_failed_send(misbehave, outcome, stored, monkeypatch):
    monkeypatch.setattr(delivery, "ATTEMPT_MS_MIN", 1_500)  # a busy machine answers in that

    async def body(cluster):
        cluster.replicas[0].misbehave.extend([misbehave] * 100)
        async with Producer(cluster.config(send_timeout_ms=1_800)) as producer:
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(TOPIC, b"x"))
        assert caught.value.outcome is outcome
        assert {a.outcome for a in caught.value.attempts} == {outcome}
        assert len(cluster.group.bodies(TOPIC)) == stored

    run(body)


def test_one_unknown_attempt_makes_the_whole_send_unknown():
    async def body(cluster):
        cluster.replicas[0].misbehave.extend([fakes.drop_before, fakes.answer(13, "illegal")])
        async with Producer(cluster.config()) as producer:
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(TOPIC, b"x"))
        assert [a.outcome for a in caught.value.attempts] == [Outcome.UNKNOWN, Outcome.FAILED]
        assert caught.value.outcome is Outcome.UNKNOWN

    run(body)


def test_an_unanswered_send_ends_with_its_budget():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"w"))  # It has a route and a connection now.
            cluster.replicas[0].misbehave.append(fakes.ignore)
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(TOPIC, b"x"), timeout_ms=100)
            (attempt,) = caught.value.attempts
            assert (attempt.error_class, attempt.outcome) == ("RequestTimeout", Outcome.UNKNOWN)
            await producer.send(Message(TOPIC, b"y"))

    run(body)


def test_a_retry_prefers_another_group():
    async def body(cluster):
        first, second = cluster.brokers["group-0"][0], cluster.brokers["group-1"][0]
        for broker in (first, second):
            broker.misbehave.append(fakes.answer(1, "broken"))
        async with Producer(cluster.config()) as producer:
            result = await producer.send(Message(TOPIC, b"x"))
        addrs = [a.broker_addr for a in result.attempts]
        assert set(addrs[:2]) == {first.addr, second.addr}

    run(body, groups=2, replicas=1)


def queues_after_a_failure(**settings):
    """The brokers of sends after one at which the first failed."""
    found = []

    async def body(cluster):
        failing = cluster.brokers["group-0"][0]
        async with Producer(cluster.config(auto_batch=False, **settings)) as producer:
            for _ in range(8):
                await producer.send(Message(TOPIC, b"x"))
            failing.misbehave.append(fakes.answer(1, "broken"))
            while failing.misbehave:
                await producer.send(Message(TOPIC, b"x"))
            found.extend([await producer.send(Message(TOPIC, b"x")) for _ in range(8)])

    run(body, groups=2, replicas=1)
    return {result.queue.broker_name for result in found}


def test_sends_keep_away_from_a_broker_that_failed_where_that_is_wanted():
    assert queues_after_a_failure() == {"group-0", "group-1"}
    assert queues_after_a_failure(avoid_slow_brokers=True) == {"group-1"}
    with planted(BY_TESTS["failures-forgotten-by-the-next-send"]):
        assert queues_after_a_failure(avoid_slow_brokers=True) == {"group-0", "group-1"}


def test_slow_brokers_are_kept_away_from_for_as_long_as_by_rocketmq():
    clock = [0]
    slow = SlowBrokers(lambda: clock[0])
    for took_ms, away_ms in (
        (549, 0), (550, 30_000), (1_000, 60_000), (2_999, 120_000), (3_000, 180_000),
        (15_000, 600_000),
    ):  # fmt: skip
        slow.note("b", took_ms)
        for at_ms, is_avoided in ((0, away_ms > 0), (away_ms - 1, away_ms > 0), (away_ms, False)):
            clock[0] = at_ms
            assert slow.is_avoided("b") is is_avoided
        clock[0] = 0
    slow.note("b", 3)
    assert not slow.is_avoided("b")


def test_status_10_is_a_success():
    async def body(cluster):
        async def stored_but_slow(broker, _connection, request):
            response = await broker.store(request)
            response.code = 10
            return response

        cluster.replicas[0].misbehave.append(stored_but_slow)
        async with Producer(cluster.config()) as producer:
            result = await producer.send(Message(TOPIC, b"x"))
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT

    run(body)


def test_an_unknown_topic_uses_the_default_topics_route():
    async def body(cluster):
        cluster.publish("TBW102", queues=8)
        async with Producer(cluster.config()) as producer:
            results = [await producer.send(Message("new", b"x")) for _ in range(8)]
            assert {r.queue.queue_id for r in results} == {0, 1, 2, 3}

    run(body)


def test_no_route_at_all_is_a_certain_failure():
    async def body(cluster):
        async with Producer(cluster.config(send_timeout_ms=500)) as producer:
            with pytest.raises(SendFailed, match="no name server knows it") as caught:
                await producer.send(Message("nowhere", b"x"))
        assert caught.value.outcome is Outcome.FAILED
        assert isinstance(caught.value.__cause__, NoRoute)

    run(body)


def test_no_attempt_begins_whose_answer_could_not_be_waited_for(monkeypatch):
    monkeypatch.setattr(delivery, "ATTEMPT_MS_MIN", 1_000)

    async def body(cluster):
        cluster.replicas[0].misbehave.extend([fakes.not_leader] * 100)
        async with Producer(cluster.config(send_timeout_ms=1_500)) as producer:
            begun_ns = time.monotonic_ns()
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(TOPIC, b"x"))
        begun_ms = [(one.t_start_ns - begun_ns) / 1e6 for one in caught.value.attempts]
        assert max(begun_ms) < 800, "half a second, and some for a busy machine"

    run(body)


def test_an_attempt_that_comes_too_late_is_seen(monkeypatch):
    with planted(BY_TESTS["attempts-to-the-last-moment"]), pytest.raises(AssertionError):
        test_no_attempt_begins_whose_answer_could_not_be_waited_for(monkeypatch)


def test_a_client_that_is_not_running_refuses():
    async def body(cluster):
        producer = Producer(cluster.config())
        with pytest.raises(NotRunning):
            await producer.send(Message(TOPIC, b"x"))
        await producer.start()
        await producer.stop()
        with pytest.raises(NotRunning):
            await producer.send(Message(TOPIC, b"x"))

    run(body)


def test_invalid_messages_reach_nobody():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            with pytest.raises(InvalidMessage):
                await producer.send(Message("bad topic", b"x"))
            with pytest.raises(InvalidMessage):
                await producer.send(Message(TOPIC, b""))
        assert cluster.replicas[0].requests == []

    run(body)


def test_pending_sends_are_bounded():
    async def body(cluster):
        cluster.replicas[0].misbehave.extend([fakes.ignore] * 2)
        config = cluster.config(max_pending_sends=2, send_timeout_ms=200)
        async with Producer(config) as producer:
            sends = [producer.send(Message(TOPIC, b"x")) for _ in range(3)]
            failures = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(e) for e in failures] == [SendFailed, SendFailed, TooManyPending]

    run(body)


def test_pending_bytes_are_bounded():
    async def body(cluster):
        cluster.replicas[0].misbehave.append(fakes.ignore)
        config = cluster.config(max_pending_bytes=1_000, send_timeout_ms=200)
        async with Producer(config) as producer:
            sends = [producer.send(Message(TOPIC, b"x" * 1_500)) for _ in range(2)]
            failures = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(e) for e in failures] == [SendFailed, TooManyPending]
            await producer.send(Message(TOPIC, b"x"))

    run(body)


def test_no_send_begins_that_would_be_over_the_bound():
    async def body(cluster):
        async with Producer(cluster.config(max_pending_bytes=1_000)) as producer:
            sends = [producer.send(Message(TOPIC, b"x" * size)) for size in (600, 401, 400)]
            first, second, third = await asyncio.gather(*sends, return_exceptions=True)
            assert (type(first), type(third)) == (SendResult, SendResult)
            assert (type(second), second.outcome) == (TooManyPending, Outcome.FAILED)
            assert "1 sends with 600 bytes are pending, and 401 bytes more" in str(second)

    run(body)


def test_stop_fails_sends_that_are_still_pending_without_cancelling_them():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.misbehave.append(fakes.ignore)
        config = cluster.config(stop_timeout_ms=20, send_timeout_ms=400)
        producer = Producer(config)
        await producer.start()
        send = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
        await broker.wait_for(lambda: broker.count(310) == 1)
        await producer.stop()
        with pytest.raises(SendFailed) as caught:
            await send
        assert caught.value.outcome is Outcome.UNKNOWN
        assert caught.value.attempts[0].error_class == "ConnectionLost"

    run(body)


def test_stop_waits_for_pending_sends_and_unregisters():
    async def body(cluster):
        release = asyncio.Event()

        async def slow(broker, _connection, request):
            await release.wait()
            return await broker.store(request)

        broker = cluster.replicas[0]
        broker.misbehave.append(slow)
        producer = Producer(cluster.config())
        await producer.start()
        send = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
        await broker.wait_for(lambda: any(r.code == 310 for r in broker.requests))
        stop = asyncio.ensure_future(producer.stop())
        release.set()
        assert (await send).status is SendStatus.SEND_OK
        await stop
        assert broker.unregistered == [producer.client_id]

    run(body)


def test_a_cancelled_send_disturbs_nobody():
    async def body(cluster):
        broker = cluster.replicas[0]
        broker.misbehave.append(fakes.ignore)
        async with Producer(cluster.config()) as producer:
            send = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
            await broker.wait_for(lambda: broker.count(310) == 1)
            send.cancel()
            with pytest.raises(asyncio.CancelledError):
                await send
            await producer.send(Message(TOPIC, b"y"))

    run(body)


def test_brokers_get_heartbeats_and_topics_are_created_on_leaders():
    async def body(cluster):
        leader, follower = cluster.replicas
        async with Producer(cluster.config()) as producer:
            assert len(await producer.fetch_publish_queues(TOPIC)) == 4
            await leader.wait_for(lambda: leader.count(34) == 1)
            await producer.create_topic(TOPIC, 6)
            assert leader.heartbeats[0]["clientID"] == producer.client_id
            assert leader.heartbeats[0]["producerDataSet"] == [{"groupName": "test-group"}]
        created = next(r for r in leader.requests if r.code == 17)
        assert created.ext_fields["writeQueueNums"] == "6"
        assert follower.requests == []

    run(body)
