"""When a slave stands in for its master, for how long, and for which requests."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    SendFailed,
)
from ledgermq.client import stand_ins as module
from ledgermq.client.stand_ins import PROBE_MS, REFUSED_MS, STAND_IN_AFTER_MS, StandIns
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.errors import RemotingError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_consumers import Recorder, consumer_of, produce

QUEUE = MessageQueue(TOPIC, "group-0", 0)
OPTIONS = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=200, pull_timeout_ms=1_000, local_retry_ms=20
)


def routes(**addrs):
    return SimpleNamespace(brokers={"a": {int(key[1:]): addr for key, addr in addrs.items()}})


def failing(table, since_ms=0):
    stand_ins = StandIns(table)
    stand_ins.on_failure("a", table.brokers["a"].get(0), since_ms)
    return stand_ins


def test_the_master_is_asked_while_it_answers():
    stand_ins = StandIns(routes(i0="m", i1="s"))
    assert stand_ins.choose("a", 10**9) is None


def test_a_slave_stands_in_once_the_master_has_failed_long_enough():
    stand_ins = failing(routes(i0="m", i2="s2", i1="s1"))
    assert stand_ins.choose("a", STAND_IN_AFTER_MS - 1) is None
    assert stand_ins.choose("a", STAND_IN_AFTER_MS) == "s1"
    stand_ins.on_success("a", "m")
    assert stand_ins.choose("a", STAND_IN_AFTER_MS + 1) is None


def test_a_later_failure_does_not_begin_the_time_anew():
    table = routes(i0="m", i1="s")
    stand_ins = failing(table)
    stand_ins.on_failure("a", "m", STAND_IN_AFTER_MS - 1)
    assert stand_ins.choose("a", STAND_IN_AFTER_MS) == "s"


def test_the_master_is_probed_now_and_then_by_one_request():
    stand_ins = failing(routes(i0="m", i1="s"))
    t_ms = STAND_IN_AFTER_MS + PROBE_MS
    assert stand_ins.take_probe("a", t_ms - 1) is None
    assert stand_ins.take_probe("a", t_ms) == "m"
    assert stand_ins.take_probe("a", t_ms) is None
    assert stand_ins.choose("a", t_ms) == "s"
    assert stand_ins.take_probe("a", t_ms + PROBE_MS) == "m"


def test_nobody_probes_a_master_that_routes_do_not_name():
    stand_ins = failing(routes(i1="s"))
    assert stand_ins.choose("a", 10**9) == "s"
    assert stand_ins.take_probe("a", 10**9) is None


def test_a_master_that_routes_name_again_is_asked_at_once():
    table = routes(i0="m", i1="s")
    stand_ins = failing(table)
    del table.brokers["a"][0]
    stand_ins.on_failure("a", None, 500)
    assert stand_ins.choose("a", STAND_IN_AFTER_MS) == "s"
    table.brokers["a"][0] = "m"
    assert stand_ins.choose("a", STAND_IN_AFTER_MS + 1) is None
    assert stand_ins.choose("a", STAND_IN_AFTER_MS + 2) is None


def test_a_slave_that_refuses_is_left_alone_for_a_while_and_another_asked():
    stand_ins = failing(routes(i0="m", i1="s1", i2="s2"))
    stand_ins.on_success("a", "s1")
    assert stand_ins.is_proven("a", "s1")
    stand_ins.on_failure("a", "s1", STAND_IN_AFTER_MS)
    assert not stand_ins.is_proven("a", "s1")
    assert stand_ins.choose("a", STAND_IN_AFTER_MS) == "s2"
    stand_ins.on_failure("a", "s2", STAND_IN_AFTER_MS)
    assert stand_ins.choose("a", STAND_IN_AFTER_MS + 1) is None
    assert stand_ins.choose("a", STAND_IN_AFTER_MS + REFUSED_MS) == "s1"


def test_a_broker_name_without_slaves_has_no_stand_in():
    assert failing(routes(i0="m")).choose("a", 10**9) is None


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(module, "STAND_IN_AFTER_MS", 100)
    monkeypatch.setattr(module, "PROBE_MS", 100)


def commits(broker):
    return sum(offset for topic, _, offset in dict_of(broker).values() if topic == TOPIC)


def dict_of(broker):
    return {(topic, queue): (topic, queue, offset) for topic, queue, offset in broker.commits}


def test_consumption_goes_on_at_a_slave_and_comes_back(soon):
    async def body(cluster):
        master, slave = cluster.replicas
        slave.serves_reads = True
        await produce(cluster, 20)
        recorder = Recorder()
        async with consumer_of(cluster, recorder, OPTIONS):
            await recorder.until(lambda: len(set(recorder.seen)) == 20)
            port = master.port
            await master.stop()
            cluster.publish(leader=None)
            for queue in range(4):  # what the slave has got and nobody has consumed
                message = cluster.group.queues[TOPIC, queue][0]
                fields = {"b": TOPIC, "e": str(queue), "f": "0", "g": "1"}
                cluster.group.append(fields, b"late-%d" % queue, message.properties, 0)
            await cluster.group.wake()
            await recorder.until(lambda: len(set(recorder.seen)) == 24)
            await slave.wait_for(lambda: commits(slave) == 24)
            assert slave.count(RequestCode.LOCK_BATCH_MQ) == 0
            master.port = port
            master.commits.clear()
            await master.start()
            cluster.publish()
            await produce(cluster, 20, start=100)
            await recorder.until(lambda: len(set(recorder.seen)) == 44)
            await master.wait_for(lambda: commits(master) == 44)
        assert len(recorder.seen) == 44

    run(body)


def test_a_master_that_routes_still_name_is_missed_as_well(soon):
    async def body(cluster):
        master, slave = cluster.replicas
        slave.serves_reads = True
        await produce(cluster, 8)
        async with PullConsumer(cluster.config()) as consumer:
            assert await consumer.max_offset(QUEUE) == 2
            await master.stop()
            assert await consumer.max_offset(QUEUE) == 2
            await consumer.commit_offset(QUEUE, 1)
            assert slave.commits == [(TOPIC, 0, 1)]
            assert len((await consumer.pull(QUEUE)).messages) == 2

    run(body)


def check_no_offset_is_asked_of_followers():
    async def body(cluster):
        master, follower = cluster.replicas
        await produce(cluster, 4)
        async with PullConsumer(cluster.config(request_timeout_ms=600)) as consumer:
            await consumer.fetch_offset(QUEUE)
            await master.stop()
            cluster.publish(leader=None)
            for ask in (consumer.fetch_offset, consumer.max_offset, consumer.fetch_offset):
                with pytest.raises(RemotingError, match=r"leader|connect|route"):
                    await ask(QUEUE)
            assert follower.count(RequestCode.QUERY_CONSUMER_OFFSET) == 0
            assert follower.count(RequestCode.GET_MIN_OFFSET) == 1

    run(body)


def test_followers_of_a_raft_group_are_asked_once_and_for_no_offset(soon):
    check_no_offset_is_asked_of_followers()


def test_planted_questions_to_followers_are_found(soon):
    planted_bug = planted(BY_TESTS["offsets-asked-of-followers"])
    with planted_bug, pytest.raises((AssertionError, pytest.fail.Exception)):
        check_no_offset_is_asked_of_followers()


def check_a_suggestion_is_followed():
    async def body(cluster):
        master, slave = cluster.replicas
        slave.serves_reads = True
        slave.suggests = master.suggests = 2
        await produce(cluster, 20)
        recorder = Recorder()
        async with consumer_of(cluster, recorder, OPTIONS):
            await slave.wait_for(lambda: slave.count(RequestCode.PULL_MESSAGE) >= 4)
            slave.suggests = master.suggests = 0
            before = master.count(RequestCode.PULL_MESSAGE)
            await master.wait_for(lambda: master.count(RequestCode.PULL_MESSAGE) > before + 4)
        for request in slave.requests:
            if request.code == RequestCode.PULL_MESSAGE:
                assert not int(request.ext_fields["sysFlag"]) & 1
        assert slave.commits == []

    run(body)


def test_a_suggested_slave_is_pulled_from_and_commits_stay_with_the_master():
    check_a_suggestion_is_followed()


def check_no_slave_moves_a_queue():
    async def body(cluster):
        master, slave = cluster.replicas
        slave.serves_reads = slave.illegal = True
        await produce(cluster, 20)
        recorder = Recorder()
        async with consumer_of(cluster, recorder, OPTIONS):
            await recorder.until(lambda: len(recorder.seen) == 20)
            master.suggests = 2
            await slave.wait_for(lambda: slave.count(RequestCode.PULL_MESSAGE) >= 4)
            await asyncio.sleep(1.5)
            await produce(cluster, 4, start=50)
            await recorder.until(lambda: len(set(recorder.seen)) == 24)
        assert len(recorder.seen) == 24

    run(body)


def test_a_slave_that_lags_moves_no_queue():
    check_no_slave_moves_a_queue()


def test_planted_belief_in_a_slave_that_lags_is_found():
    with planted(BY_TESTS["slave-moves-a-queue"]), pytest.raises((AssertionError, TimeoutError)):
        check_no_slave_moves_a_queue()


def test_producers_and_locks_never_go_to_a_slave(soon):
    async def body(cluster):
        master, slave = cluster.replicas
        slave.serves_reads = True
        await produce(cluster, 4)
        recorder = Recorder()
        async with consumer_of(cluster, recorder, replace(OPTIONS, orderly=True)):
            await recorder.until(lambda: len(recorder.seen) == 4)
            await master.stop()
            cluster.publish(leader=None)
            async with Producer(cluster.config(send_timeout_ms=1_000)) as producer:
                with pytest.raises(SendFailed):
                    await producer.send(Message(TOPIC, b"x"))
            await asyncio.sleep(0.5)
        assert slave.count(RequestCode.SEND_MESSAGE_V2) == 0
        assert slave.count(RequestCode.LOCK_BATCH_MQ) == 0

    run(body)
