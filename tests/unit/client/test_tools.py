"""A consumer answers RocketMQ's tools: 220, 221, 307 and 309, as its broker passes them on."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageModel,
    MessageQueue,
    PushConsumer,
)
from ledgermq.client import direct as direct_module
from ledgermq.client.tools import parse_offsets
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.message import encode_record
from ledgermq.remoting.protocol.tolerant_json import loads
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_live_changes import Listener, produce

GROUP = "test-group"
QUEUE = MessageQueue(TOPIC, "group-0", 0)
KEY = '{"brokerName":"group-0","queueId":%d,"topic":"orders"}'


def consumer_of(cluster, listen, **options):
    settings = {
        "consume_from": ConsumeFrom.FIRST_OFFSET, "suspend_ms": 200, "pull_timeout_ms": 1_000,
        "order_suspend_ms": 10,
    }  # fmt: skip
    config = cluster.config(persist_offset_ms=50)
    consumer = PushConsumer(config, listen, ConsumeOptions(**{**settings, **options}))
    consumer.subscribe(TOPIC)
    return consumer


def member(cluster):
    """The connection of the one member, as the leader sees it."""
    return next(iter(cluster.replicas[0].clients[GROUP].values()))


async def ask(cluster, code, fields, body=b""):
    command = RemotingCommand(code=code, ext_fields=fields, body=body)
    return await member(cluster).request(command, 15_000)


def tell_reset(cluster, body, group=GROUP):
    fields = {"topic": TOPIC, "group": group, "timestamp": "0", "isForce": "true"}
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    member(cluster).send(RemotingCommand(code, FLAG_ONEWAY, ext_fields=fields, body=body))


def as_map(*offsets):
    rows = ",".join((KEY % number) + f":{offset}" for number, offset in enumerate(offsets))
    return f'{{"offsetTable":{{{rows}}}}}'.encode()


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


def told_of_reset(consumer):
    """Return an event that is set once a reset has reached a consumer's queues."""
    assignment, told = consumer.assignment, asyncio.Event()
    move = assignment.move
    assignment.move = lambda offsets: (move(offsets), told.set())
    return told


def committed(cluster, number=0):
    return cluster.group.offsets.get((GROUP, TOPIC, number))


@pytest.mark.parametrize(
    "body",
    [
        as_map(1, 2),
        b'{"offsetTable":[{"brokerName":"group-0","offset":1,"queueId":0,"topic":"orders"},'
        b'{"brokerName":"group-0","offset":2,"queueId":1,"topic":"orders"}]}',
    ],
    ids=["java", "cpp"],
)
def test_both_forms_of_a_reset_are_read(body):
    assert parse_offsets(body) == {QUEUE: 1, QUEUE._replace(queue_id=1): 2}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b"[]", b'{"offsetTable":7}', b'{"offsetTable":[7]}', as_map(-1),
        as_map(1 << 63),
        b'{"offsetTable":{"x":1}}', b'{"offsetTable":[{"brokerName":"b","queueId":0,"topic":"t"}]}',
        as_map('"x"'), b'{"offsetTable":{{"brokerName":"b"}:1}}',
    ],
)  # fmt: skip
def test_what_is_no_reset_is_refused(body):
    with pytest.raises(RemoteProtocolError):
        parse_offsets(body)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_reset_goes_back_and_is_committed(orderly):
    async def body(cluster):
        listener = Listener()
        async with consumer_of(cluster, listener, orderly=orderly) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 12)
            await listener.until(12)
            await until(lambda: [committed(cluster, n) for n in range(4)] == [3] * 4)
            del listener.seen[TOPIC][:]
            tell_reset(cluster, as_map(1, 3))
            await listener.until(2)
            await until(lambda: committed(cluster) == 3)
            assert listener.seen[TOPIC] == [b"4", b"8"]
            assert (TOPIC, 0, 1) in cluster.replicas[0].commits

    run(body)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_reset_drops_what_is_in_hand_and_what_waits(orderly):
    async def body(cluster):
        gate, seen = asyncio.Event(), []

        async def listen(messages, context):
            seen.extend(int(message.body) for message in messages)
            await gate.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        async with consumer_of(cluster, listen, orderly=orderly, concurrency=2) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 40)
            await until(lambda: len(seen) == 2)
            told = told_of_reset(consumer)
            tell_reset(cluster, as_map(9, 9, 9, 9))
            await told.wait()
            await asyncio.sleep(0.1)
            assert len(seen) == 2
            gate.set()
            await until(lambda: len(seen) == 6)
            assert sorted(seen[2:]) == [36, 37, 38, 39]
            await until(lambda: [committed(cluster, n) for n in range(4)] == [10] * 4)

    run(body)


async def reset_during_a_commit(cluster):
    """Reset while a commit is under way and fails; returns what the broker took afterwards."""
    listener, leader = Listener(), cluster.replicas[0]
    async with consumer_of(cluster, listener, commit_on_pull=False) as consumer:
        await consumer.wait_joined(5)
        await produce(cluster, 20)
        await listener.until(20)
        await until(lambda: [committed(cluster, n) for n in range(4)] == [5] * 4)
        consumer.pause()
        leader.commits_wait_for = asyncio.Event()
        held, told = consumer.assignment.held, told_of_reset(consumer)
        begun = leader.count(RequestCode.UPDATE_CONSUMER_OFFSET)
        late = asyncio.gather(*[consumer.assignment._commit(one) for one in held])
        await until(lambda: leader.count(RequestCode.UPDATE_CONSUMER_OFFSET) >= begun + 4)
        tell_reset(cluster, as_map(0, 0, 0, 0))
        await told.wait()
        leader.commits.clear()
        leader.leader = False  # They fail, and are tried again.
        leader.commits_wait_for.set()
        leader.commits_wait_for = None
        await asyncio.sleep(0.05)
        leader.leader = True
        await late
        await until(lambda: len(leader.commits) >= 4)
        await asyncio.sleep(0.2)
        return [offset for _, _, offset in leader.commits]


def test_no_older_offset_is_committed_after_a_reset():
    async def body(cluster):
        assert set(await reset_during_a_commit(cluster)) == {0}

    run(body, replicas=1)


def test_the_fence_of_a_reset_is_what_keeps_older_offsets_out():
    async def body(cluster):
        assert 5 in await reset_during_a_commit(cluster)

    with planted(BY_TESTS["reset-without-fence"]):
        run(body, replicas=1)


async def reset_while_taken(cluster, count):
    """Reset while offsets are being asked; returns what the listener gets: ``count`` at least."""
    listener = Listener()
    await produce(cluster, 12)
    cluster.group.offsets.update({(GROUP, TOPIC, number): 2 for number in range(4)})
    consumer = consumer_of(cluster, listener)
    gate, asking = asyncio.Event(), asyncio.Event()
    claim = consumer.claim

    async def slow(queue, how):
        offset = await claim(queue, how)
        asking.set()
        await gate.wait()
        return offset

    consumer.claim = slow
    async with consumer:
        await asking.wait()
        told = told_of_reset(consumer)
        tell_reset(cluster, as_map(0, 0, 0, 0))
        await told.wait()
        gate.set()
        await consumer.wait_joined(5)
        await listener.until(count)
        await asyncio.sleep(0.2)
    return listener.seen[TOPIC]


def test_a_reset_counts_for_queues_that_are_being_taken():
    async def body(cluster):
        assert len(await reset_while_taken(cluster, 12)) == 12

    run(body)


def test_a_reset_that_forgets_queues_being_taken_is_found():
    async def body(cluster):
        assert len(await reset_while_taken(cluster, 4)) == 4

    with planted(BY_TESTS["reset-forgets-what-is-being-taken"]):
        run(body)


async def reset_of_a_queue_that_went(cluster, count):
    """A reset that counted for a queue being taken, which another member has had since.

    Returns how much the listener gets: ``count`` at least.
    """
    listener = Listener()
    async with consumer_of(cluster, listener) as consumer:
        await consumer.wait_joined(5)
        await produce(cluster, 8)
        await listener.until(8)
        await until(lambda: [committed(cluster, n) for n in range(4)] == [2] * 4)
        assignment = consumer.assignment
        await assignment.change(TOPIC, assignment.queues[1:])
        assignment._taking.add(QUEUE)
        assignment.move({QUEUE: 0})
        assignment._taking.discard(QUEUE)  # It failed, and others took the queue.
        await assignment.change(TOPIC, [one for one in assignment.queues if one != QUEUE])
        await assignment.change(TOPIC, sorted({QUEUE, *assignment.queues}))
        await listener.until(count)
        await asyncio.sleep(0.2)
        return len(listener.seen[TOPIC])


def test_a_reset_is_forgotten_with_the_queue():
    async def body(cluster):
        assert await reset_of_a_queue_that_went(cluster, 8) == 8

    run(body)


def test_a_reset_that_outlives_its_queue_is_found():
    async def body(cluster):
        assert await reset_of_a_queue_that_went(cluster, 10) == 10

    with planted(BY_TESTS["reset-remembered-for-ever"]):
        run(body)


def test_a_reset_of_another_group_or_without_sense_changes_nothing():
    async def body(cluster):
        listener = Listener()
        async with consumer_of(cluster, listener) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 4)
            await listener.until(4)
            tell_reset(cluster, as_map(0), group="others")
            tell_reset(cluster, b"{")
            tell_reset(cluster, as_map(-5))
            await produce(cluster, 4)
            await listener.until(8)
            assert len(listener.seen[TOPIC]) == 8

    run(body)


def test_a_broadcasting_member_goes_on_at_a_reset(tmp_path: Path):
    async def body(cluster):
        listener = Listener()
        model = MessageModel.BROADCASTING
        options = {"model": model, "local_offsets_dir": str(tmp_path)}
        async with consumer_of(cluster, listener, **options) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 8)
            await listener.until(8)
            tell_reset(cluster, as_map(1))
            await listener.until(9)
        assert listener.seen[TOPIC][8:] == [b"4"]

    run(body)


def test_the_status_is_where_the_group_is():
    async def body(cluster):
        listener = Listener()
        async with consumer_of(cluster, listener) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 6)
            await listener.until(6)
            fields = {"topic": TOPIC, "group": GROUP}
            answer = await ask(cluster, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields)
            table = loads(answer.body)["messageQueueTable"]
            assert {dict(key)["queueId"]: n for key, n in table.items()} == {0: 2, 1: 2, 2: 1, 3: 1}
            fields["group"] = "others"
            answer = await ask(cluster, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields)
            assert (answer.code, "not exist" in answer.remark) == (1, True)

    run(body)


async def running(cluster, **fields):
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    asked = {"consumerGroup": GROUP, "clientId": "any", **fields}
    return loads((await ask(cluster, code, asked)).body)


@pytest.mark.parametrize("orderly", [False, True])
def test_the_running_info_shows_queues_figures_and_settings(orderly):
    async def body(cluster):
        gate, seen = asyncio.Event(), []

        async def listen(messages, context):
            seen.extend(messages)
            if len(seen) > 6:
                await gate.wait()
            if seen[-1].body == b"3" and len(seen) < 6:
                return ConsumeStatus.RECONSUME_LATER
            return ConsumeStatus.CONSUME_SUCCESS

        async with consumer_of(cluster, listen, orderly=orderly) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 8)
            await until(lambda: len(seen) >= 7)
            info = await running(cluster, jstackEnable="false")
            properties = info["properties"]
            assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert properties["PROP_CONSUMEORDERLY"] == str(orderly).lower()
            assert int(properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1_600_000_000_000
            assert "jstack" not in info
            assert TOPIC in [one["topic"] for one in info["subscriptionSet"]]
            queues = {
                dict(key)["queueId"]: one
                for key, one in info["mqTable"].items()
                if dict(key)["topic"] == TOPIC
            }
            assert sorted(queues) == [0, 1, 2, 3]
            assert 1 <= sum(one["cachedMsgCount"] for one in queues.values()) <= 8
            for one in queues.values():
                assert one["lastPullTimestamp"] > 1_600_000_000_000
                assert one["locked"] == orderly
                assert (one["lastLockTimestamp"] > 0) == orderly
                assert not one["droped"]
            figures = info["statusTable"][TOPIC]
            assert figures["pullTPS"] > 0
            assert figures["consumeOKTPS"] > 0
            assert figures["consumeFailedMsgs"] == 1
            gate.set()

    run(body)


def test_stacks_come_only_if_asked_for_and_are_bounded(monkeypatch):
    async def body(cluster):
        async with consumer_of(cluster, Listener()) as consumer:
            await consumer.wait_joined(5)
            shown = (await running(cluster, jstackEnable="true"))["jstack"]
            assert "rebalance" in shown
            assert "GroupMember._rebalance_loop" in shown
            monkeypatch.setattr("ledgermq.client.running_info.STACKS_BYTES_MAX", 300)
            assert len((await running(cluster, jstackEnable="true"))["jstack"]) == 300

    run(body)


async def consume(cluster, **fields):
    stored = cluster.group.queues[TOPIC, 0][0]
    asked = {
        "consumerGroup": GROUP, "clientId": "any", "msgId": stored.message_id(),
        "brokerName": "group-0", **fields,
    }  # fmt: skip
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    answer = await ask(cluster, code, asked, encode_record(stored))
    return answer.code, loads(answer.body) if answer.body else answer.remark


def raises(_messages, _context):
    raise ValueError("é" * 5_000)


async def awaits_what_is_cancelled(*_):
    gone = asyncio.ensure_future(asyncio.sleep(9))
    gone.cancel()
    await gone


@pytest.mark.parametrize(
    ("listen", "result"),
    [
        (lambda *_: ConsumeStatus.CONSUME_SUCCESS, "CR_SUCCESS"),
        (lambda *_: ConsumeStatus.RECONSUME_LATER, "CR_LATER"),
        (lambda *_: None, "CR_RETURN_NULL"),
        (lambda *_: 7, "CR_RETURN_NULL"),
        (raises, "CR_THROW_EXCEPTION"),
        (awaits_what_is_cancelled, "CR_THROW_EXCEPTION"),
    ],
)
@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_is_consumed_for_a_tool(listen, result, orderly):
    async def body(cluster):
        seen = []

        def noted(messages, context):
            seen.append((messages[0].topic, messages[0].body, context.queue))
            return listen(messages, context)

        async with consumer_of(cluster, noted, orderly=orderly) as consumer:
            consumer.pause()
            await consumer.wait_joined(5)
            await produce(cluster, 1)
            code, told = await consume(cluster)
            assert code == ResponseCode.SUCCESS
            assert (told["consumeResult"], told["order"], told["autoCommit"]) == (
                result, orderly, True,
            )  # fmt: skip
            assert told["spentTimeMills"] >= 0
            assert seen == [(TOPIC, b"0", QUEUE)]
            assert len(told.get("remark", "").encode()) <= 1_000
            assert ("ValueError" in told.get("remark", "")) == (listen is raises)
            assert committed(cluster) in {None, 0}
            assert await consume(cluster, consumerGroup="others") == (
                1, "The Consumer Group <others> not exist in this consumer",
            )  # fmt: skip

    run(body)


def test_calls_for_tools_are_few_and_end_in_time(monkeypatch):
    async def body(cluster):
        gate = asyncio.Event()

        async def listen(_messages, _context):
            await gate.wait()
            return ConsumeStatus.CONSUME_SUCCESS

        monkeypatch.setattr(direct_module, "CALL_MS", 100)
        async with consumer_of(cluster, listen) as consumer:
            consumer.pause()
            await consumer.wait_joined(5)
            await produce(cluster, 1)
            answers = await asyncio.gather(*[consume(cluster) for _ in range(6)])
            assert sorted(code for code, _ in answers) == [2, 2, 207, 207, 207, 207]
            gate.set()
            await asyncio.sleep(0)
            assert (await consume(cluster))[1]["consumeResult"] == "CR_SUCCESS"

    run(body)


def held_by(gate, begun):
    """Return a listener that notes its call and then waits for the gate."""

    async def listen(_messages, context):
        begun.append(context)
        await gate.wait()
        return ConsumeStatus.CONSUME_SUCCESS

    return listen


def test_calls_for_tools_and_for_queues_have_one_time_to_end_at_a_stop():
    async def body(cluster):
        begun, gate = [], asyncio.Event()
        cluster.config = partial(cluster.config, stop_timeout_ms=1500)
        async with consumer_of(cluster, held_by(gate, begun)) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 1)
            asked = asyncio.ensure_future(consume(cluster))
            await until(lambda: len(begun) == 2)
            began_s = time.monotonic()
            await consumer.stop()
            assert time.monotonic() - began_s < 2.7
            gate.set()
            await asyncio.wait({asked})
            asked.exception()

    run(body)


def test_no_call_for_a_tool_begins_while_a_stop_waits_for_the_others():
    async def body(cluster):
        begun, gate = [], asyncio.Event()
        async with consumer_of(cluster, held_by(gate, begun)) as consumer:
            await consumer.wait_joined(5)
            await produce(cluster, 1)
            await until(lambda: begun)
            stop = asyncio.ensure_future(consumer.stop())
            await asyncio.sleep(0.1)
            asked = asyncio.ensure_future(consume(cluster))
            await asyncio.wait({asked}, timeout=1)
            gate.set()
            assert (await asked)[0] == ResponseCode.SYSTEM_ERROR
            await stop
        assert len(begun) == 1

    run(body)


def test_a_message_that_is_none_is_refused():
    async def body(cluster):
        async with consumer_of(cluster, Listener()) as consumer:
            await consumer.wait_joined(5)
            fields = {"consumerGroup": GROUP, "clientId": "c", "msgId": "m"}
            for wrong in (b"", b"nonsense"):
                answer = await ask(cluster, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, wrong)
                assert answer.code == ResponseCode.SYSTEM_ERROR

    run(body)
