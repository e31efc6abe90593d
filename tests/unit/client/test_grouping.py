"""Groups of concurrent sends against a fake cluster on loopback."""

import asyncio
import contextlib
import struct

import pytest

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import InvalidMessage, SendFailed, TooManyPending
from ledgermq.client.message import Message, MessageQueue
from ledgermq.client.producer import Producer
from ledgermq.remoting.protocol.command import make_response
from ledgermq.remoting.protocol.errors import Outcome
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import decode_batch, offset_message_id
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run

SINGLE, BATCH = 310, 320


@contextlib.asynccontextmanager
async def busy_producer(cluster, **settings):
    """A producer that has just sent several messages at once; the leader has forgotten them."""
    async with Producer(cluster.config(**settings)) as producer:
        await producer.send(Message(TOPIC, b"warm"))
        await burst(producer, [b"warm"] * 3)
        for replicas in cluster.brokers.values():
            for broker in replicas:
                broker.requests.clear()
        cluster.group.queues.clear()
        yield producer


async def burst(producer, bodies, **options):
    messages = [Message(TOPIC, body) for body in bodies]
    return await asyncio.gather(*(producer.send(message, **options) for message in messages))


def numbered(count):
    return [b"%d" % i for i in range(count)]


def requests_of(broker):
    """Bodies of the messages of each send request, in the order of arrival."""
    return [
        [element.body for element in decode_batch(request.body)]
        if request.code == BATCH
        else [request.body]
        for request in broker.requests
        if request.code in {SINGLE, BATCH}
    ]


def stored_where(cluster, result):
    return cluster.group.queues[TOPIC, result.queue.queue_id][result.queue_offset]


def test_sends_of_one_turn_are_one_request_and_each_gets_its_own_result():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            results = await burst(producer, numbered(9))
        assert requests_of(cluster.replicas[0]) == [numbered(9)]
        for i, result in enumerate(results):
            stored = stored_where(cluster, result)
            assert stored.body == b"%d" % i
            assert parse_properties(stored.properties)["UNIQ_KEY"] == result.msg_id
            stored_id = offset_message_id(stored.store_host, stored.physical_offset)
            assert stored_id == result.offset_msg_id
            (attempt,) = result.attempts
            assert (attempt.broker_addr, attempt.code) == (cluster.replicas[0].addr, 0)
        assert len({result.msg_id for result in results}) == 9
        assert [result.queue_offset for result in results] == list(range(9))

    run(body)


def test_members_keep_their_attributes():
    async def body(cluster):
        messages = [
            Message(TOPIC, b"0", tags="T", keys="k1 k2", properties={"a": "é"}, flag=-7),
            Message(TOPIC, b"1"),
            Message(TOPIC, b"2", properties={"b": "2"}),
        ]
        async with busy_producer(cluster) as producer:
            results = await asyncio.gather(*map(producer.send, messages))
        assert cluster.replicas[0].count(BATCH) == 1
        stored = [stored_where(cluster, result) for result in results]
        assert [one.flag for one in stored] == [-7, 0, 0]
        own = [{"TAGS": "T", "KEYS": "k1 k2", "a": "é"}, {}, {"b": "2"}]
        assert [parse_properties(one.properties) for one in stored] == [
            {"UNIQ_KEY": result.msg_id, "WAIT": "true"} | more
            for result, more in zip(results, own, strict=True)
        ]

    run(body)


def test_groups_are_cut_at_the_number_of_messages_and_take_queues_in_turn():
    async def body(cluster):
        async with busy_producer(cluster, auto_batch_messages_max=4) as producer:
            results = await burst(producer, numbered(10))
        assert list(map(len, requests_of(cluster.replicas[0]))) == [4, 4, 2]
        queues = [result.queue.queue_id for result in results]
        assert [len(set(queues[i : i + 4])) for i in (0, 4, 8)] == [1, 1, 1]
        assert len(set(queues)) == 3

    run(body)


def test_groups_are_cut_at_their_bytes():
    async def body(cluster):
        async with busy_producer(cluster, auto_batch_bytes_max=1_000) as producer:
            bodies = [b"a" * 300, b"b" * 300, b"c" * 300, b"d" * 903, b"e" * 904, b"f"]
            await burst(producer, bodies)
        broker = cluster.replicas[0]
        assert sorted(requests_of(broker)) == sorted(
            [bodies[:2], bodies[2:3], bodies[3:4], bodies[4:5], bodies[5:]]
        )
        assert max(len(r.body) for r in broker.requests if r.code == BATCH) <= 1_000

    run(body)


def test_a_message_larger_than_a_group_does_not_cut_the_others():
    async def body(cluster):
        async with busy_producer(cluster, auto_batch_bytes_max=1_000) as producer:
            await burst(producer, [b"a", b"b" * 904, b"c"])
        assert sorted(requests_of(cluster.replicas[0])) == [[b"a", b"c"], [b"b" * 904]]

    run(body)


def test_one_send_at_a_time_is_never_a_batch():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            for one in numbered(3):
                await producer.send(Message(TOPIC, one))
        assert requests_of(cluster.replicas[0]) == [[b"0"], [b"1"], [b"2"]]
        assert cluster.replicas[0].count(BATCH) == 0

    run(body)


def test_the_first_send_of_an_idle_producer_leaves_at_once():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            await producer.send(Message(TOPIC, b"idle"))
            await burst(producer, numbered(4))
        assert requests_of(cluster.replicas[0])[1:] == [[b"0"], numbered(4)[1:]]

    run(body)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        (Message(TOPIC, b"special"), {"queue": MessageQueue(TOPIC, "group-0", 2)}),
        (Message(TOPIC, b"special"), {"timeout_ms": 2_000}),
        (Message(TOPIC, b"special", delay_level=3), {}),
        (Message(TOPIC, b"special" * 1_000), {}),
        (Message(TOPIC, b"special", properties={"a": "b" * 32_680}), {}),
        (Message("other", b"special"), {}),
    ],
)
def test_what_cannot_share_a_request_goes_alone(message, options):
    async def body(cluster):
        cluster.publish("other")
        async with busy_producer(cluster) as producer:
            ordinary = [producer.send(Message(TOPIC, one)) for one in numbered(4)]
            await asyncio.gather(*ordinary[:2], producer.send(message, **options), *ordinary[2:])
        broker = cluster.replicas[0]
        assert numbered(4) in requests_of(broker)
        (alone,) = [request for request in broker.requests if request.code == SINGLE]
        assert (alone.body == message.body) == (len(message.body) < 4_096)

    run(body)


def test_a_retry_topic_gets_no_batches():
    async def body(cluster):
        topic = "%RETRY%group"
        cluster.publish(TOPIC, topic)
        async with busy_producer(cluster) as producer:
            await asyncio.gather(*(producer.send(Message(topic, one)) for one in numbered(5)))
            await asyncio.gather(*(producer.send(Message(topic, one)) for one in numbered(5)))
        assert cluster.replicas[0].count(BATCH) == 0
        assert sorted(cluster.group.bodies(topic)) == sorted(numbered(5) * 2)

    run(body)


def test_switched_off_every_send_is_a_request():
    async def body(cluster):
        async with busy_producer(cluster, auto_batch=False) as producer:
            await burst(producer, numbered(5))
        assert cluster.replicas[0].count(SINGLE) == 5
        assert cluster.replicas[0].count(BATCH) == 0

    run(body)


def test_an_invalid_message_harms_no_neighbour():
    async def body(cluster):
        bad = [Message(TOPIC, b""), Message(TOPIC, b"x", tags="\x01"), Message(TOPIC, "text")]
        async with busy_producer(cluster) as producer:
            messages = [Message(TOPIC, b"0"), *bad, Message(TOPIC, b"1")]
            sends = [producer.send(message) for message in messages]
            endings = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(ending) for ending in endings[1:4]] == [InvalidMessage] * 3
        assert requests_of(cluster.replicas[0]) == [[b"0", b"1"]]
        assert stored_where(cluster, endings[4]).body == b"1"

    run(body)


async def refuse_poison(broker, _connection, request):
    if b"poison" in request.body:
        return make_response(request, 13, "the message is illegal")
    return await broker.store(request)


async def one_of_a_group_is_illegal(cluster):
    cluster.replicas[0].misbehave.extend([refuse_poison] * 100)
    async with busy_producer(cluster) as producer:
        messages = [Message(TOPIC, one) for one in (b"0", b"poison", b"2")]
        sends = [producer.send(message) for message in messages]
        first, poisoned, last = await asyncio.gather(*sends, return_exceptions=True)
    assert not isinstance(first, SendFailed)
    assert stored_where(cluster, first).body == b"0"
    assert stored_where(cluster, last).body == b"2"
    assert [(a.code, a.outcome) for a in last.attempts] == [(13, Outcome.FAILED), (0, None)]
    assert parse_properties(stored_where(cluster, last).properties)["UNIQ_KEY"] == last.msg_id
    assert isinstance(poisoned, SendFailed)
    assert [a.code for a in poisoned.attempts] == [13, 13]
    assert poisoned.outcome is Outcome.FAILED
    assert len(cluster.group.bodies(TOPIC)) == 2


def test_a_message_that_the_broker_finds_illegal_fails_alone():
    run(one_of_a_group_is_illegal)
    with planted(BY_TESTS["refused-with-its-group"]), pytest.raises(AssertionError):
        run(one_of_a_group_is_illegal)


def test_a_flag_that_is_no_number_fails_alone():
    async def body(cluster):
        messages = [Message(TOPIC, b"0"), Message(TOPIC, b"1", flag=1.5), Message(TOPIC, b"2")]
        async with busy_producer(cluster) as producer:
            sends = map(producer.send, messages)
            first, wrong, last = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(wrong, InvalidMessage)
        assert [stored_where(cluster, result).body for result in (first, last)] == [b"0", b"2"]

    run(body)


def test_an_answer_that_is_no_text_ends_all_members():
    async def body(cluster):
        async def answer_garbage(_broker, connection, request):
            header = b'{"code":1,"flag":1,"opaque":%d,"remark":"\xe8"}' % request.opaque
            connection.write(struct.pack(">II", 4 + len(header), len(header)) + header)

        async with busy_producer(cluster, retry_times=0) as producer:
            cluster.replicas[0].misbehave.append(answer_garbage)
            sends = [producer.send(Message(TOPIC, one)) for one in numbered(3)]
            endings = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(ending) for ending in endings] == [SendFailed] * 3
        assert {ending.attempts[0].code for ending in endings} == {1}

    run(body)


async def refuse_batches(broker, _connection, request):
    if request.code == BATCH:
        return make_response(request, 3, " request type 320 not supported")
    return await broker.store(request)


def test_a_broker_without_batches_keeps_its_turns():
    async def body(cluster):
        cluster.publish(queues=1)
        first, second = (replicas[0] for replicas in cluster.brokers.values())
        second.misbehave.extend([refuse_batches] * 100)
        async with Producer(cluster.config()) as producer:
            for name in cluster.brokers:
                await producer.send(Message(TOPIC, b"connects"), MessageQueue(TOPIC, name, 0))
            for _ in range(4):
                await burst(producer, numbered(3))
            before = second.count(SINGLE)
            for _ in range(8):
                await burst(producer, numbered(3))
        assert second.count(BATCH) == 1
        assert second.count(SINGLE) >= before + 4
        assert len(first.group.bodies(TOPIC)) + len(second.group.bodies(TOPIC)) == 2 + 12 * 3

    run(body, groups=2, replicas=1)


def test_a_broker_without_batches_gets_no_more_of_them():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            cluster.replicas[0].misbehave.extend([refuse_batches] * 100)
            for _ in range(3):
                await burst(producer, numbered(5))
        assert cluster.replicas[0].count(BATCH) == 1
        assert sorted(cluster.group.bodies(TOPIC)) == sorted(numbered(5) * 3)

    run(body)


def test_the_unknown_outcome_of_a_group_is_that_of_each_member():
    async def body(cluster):
        async with busy_producer(cluster, retry_times=0) as producer:
            cluster.replicas[0].misbehave.append(fakes.drop_after)
            sends = [producer.send(Message(TOPIC, one)) for one in numbered(4)]
            endings = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(ending) for ending in endings] == [SendFailed] * 4
        assert {ending.outcome for ending in endings} == {Outcome.UNKNOWN}
        assert cluster.group.bodies(TOPIC) == numbered(4)

    run(body)


def test_members_of_a_lost_group_go_on_alone_under_their_ids():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            cluster.replicas[0].misbehave.append(fakes.drop_after)
            results = await burst(producer, numbered(4))
        stored = [m for queue in cluster.group.queues.values() for m in queue]
        ids = [parse_properties(message.properties)["UNIQ_KEY"] for message in stored]
        assert sorted(ids) == sorted([result.msg_id for result in results] * 2)
        for result in results:
            assert [a.outcome for a in result.attempts] == [Outcome.UNKNOWN, None]
            assert result.attempts[0].error_class == "ConnectionLost"

    run(body)


def test_members_of_a_group_follow_the_leader():
    async def body(cluster):
        old, new = cluster.replicas
        async with busy_producer(cluster) as producer:
            cluster.elect(1)
            cluster.publish(leader=1)
            results = await burst(producer, numbered(4))
        for result in results:
            assert [a.broker_addr for a in result.attempts] == [old.addr, new.addr]
            assert (result.attempts[0].code, result.attempts[0].outcome) == (14, Outcome.FAILED)
        assert sorted(cluster.group.bodies(TOPIC)) == numbered(4)

    run(body)


def test_a_group_at_a_frozen_leader_goes_to_the_new_one():
    async def body(cluster):
        old, new = cluster.replicas
        async with busy_producer(cluster, stall_ms=60) as producer:
            link = producer.links.maybe_link("group-0")
            answered_ns = link.t_progress_ns
            old.misbehave.append(fakes.ignore)
            sends = [
                asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(3)
            ]
            await old.wait_for(lambda: old.count(BATCH) == 1)
            assert link.pending == 1
            assert link.t_progress_ns > answered_ns
            cluster.elect(1)
            cluster.publish(leader=1)
            results = await asyncio.gather(*sends)
        for result in results:
            assert [a.broker_addr for a in result.attempts] == [old.addr, new.addr]
            assert result.attempts[0].outcome is Outcome.UNKNOWN

    run(body)


def test_the_answer_of_a_group_is_progress():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            results = await burst(producer, numbered(3))
            link = producer.links.maybe_link("group-0")
            assert {r.attempts[0].t_end_ns for r in results} == {link.t_progress_ns}
            assert results[0].attempts[0].t_start_ns < link.t_progress_ns

    run(body)


def test_a_connection_that_closes_before_the_group_leaves_fails_the_attempt():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            sends = [
                asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(3)
            ]
            link = producer.links.maybe_link("group-0")
            asyncio.get_running_loop().call_soon(link.connection.abort, "in the same turn")
            results = await asyncio.gather(*sends)
        assert {r.attempts[0].error_class for r in results} == {"ConnectionLost"}
        assert sorted(cluster.group.bodies(TOPIC)) == numbered(3)
        assert link.pending == 0

    run(body)


def test_a_send_cancelled_before_its_group_leaves_is_not_sent():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            sends = [
                asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(4)
            ]
            asyncio.get_running_loop().call_soon(sends[1].cancel)
            endings = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(endings.pop(1), asyncio.CancelledError)
        assert requests_of(cluster.replicas[0]) == [[b"0", b"2", b"3"]]
        assert [stored_where(cluster, one).body for one in endings] == [b"0", b"2", b"3"]

    run(body)


def test_a_group_whose_members_are_all_cancelled_does_not_leave():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            sends = [
                asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(2)
            ]
            for send in sends:
                asyncio.get_running_loop().call_soon(send.cancel)
            await asyncio.gather(*sends, return_exceptions=True)
            await producer.send(Message(TOPIC, b"later"))
        assert requests_of(cluster.replicas[0]) == [[b"later"]]

    run(body)


def test_a_cancelled_send_leaves_the_others_their_results():
    async def body(cluster):
        release = asyncio.Event()

        async def slow(broker, _connection, request):
            await release.wait()
            return await broker.store(request)

        broker = cluster.replicas[0]
        async with busy_producer(cluster) as producer:
            broker.misbehave.append(slow)
            sends = [
                asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(3)
            ]
            await broker.wait_for(lambda: broker.count(BATCH) == 1)
            sends[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await sends[0]
            release.set()
            results = [await send for send in sends[1:]]
        assert [stored_where(cluster, result).body for result in results] == [b"1", b"2"]

    run(body)


def test_budgets_of_different_length_do_not_mix():
    async def body(cluster):
        async with busy_producer(cluster) as producer:
            cluster.replicas[0].misbehave.append(fakes.ignore)
            hasty = [producer.send(Message(TOPIC, b"hasty"), timeout_ms=80) for _ in range(3)]
            patient = [producer.send(Message(TOPIC, b"patient")) for _ in range(3)]
            endings = await asyncio.gather(*hasty, *patient, return_exceptions=True)
        assert {type(ending) for ending in endings[:3]} == {SendFailed}
        assert {ending.attempts[-1].error_class for ending in endings[:3]} == {"RequestTimeout"}
        assert cluster.group.bodies(TOPIC) == [b"patient"] * 3

    run(body)


def test_stop_waits_for_the_members_of_groups():
    async def body(cluster):
        producer = Producer(cluster.config())
        await producer.start()
        await producer.send(Message(TOPIC, b"warm"))
        await burst(producer, [b"warm"] * 3)
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(4)]
        stop = asyncio.ensure_future(producer.stop())
        results = await asyncio.gather(*sends)
        await stop
        assert [stored_where(cluster, result).body for result in results] == numbered(4)
        assert cluster.replicas[0].unregistered == [producer.client_id]

    run(body)


def test_stop_ends_groups_that_nobody_answers():
    async def body(cluster):
        broker = cluster.replicas[0]
        producer = Producer(cluster.config(stop_timeout_ms=20, send_timeout_ms=400))
        await producer.start()
        await producer.send(Message(TOPIC, b"warm"))
        await burst(producer, [b"warm"] * 3)
        broker.misbehave.append(fakes.ignore)
        batches = broker.count(BATCH)
        sends = [asyncio.ensure_future(producer.send(Message(TOPIC, one))) for one in numbered(4)]
        await broker.wait_for(lambda: broker.count(BATCH) == batches + 1)
        await producer.stop()
        endings = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(ending) for ending in endings} == {SendFailed}
        assert {ending.outcome for ending in endings} == {Outcome.UNKNOWN}

    run(body)


def test_members_count_as_pending_sends():
    async def body(cluster):
        async with busy_producer(cluster, max_pending_sends=4) as producer:
            sends = [producer.send(Message(TOPIC, one)) for one in numbered(6)]
            endings = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(ending) for ending in endings[4:]] == [TooManyPending] * 2
            await burst(producer, numbered(4))
        assert requests_of(cluster.replicas[0]) == [numbered(4)] * 2

    run(body)


@pytest.mark.parametrize(("ids", "succeeds"), [(1, True), (2, False), (3, True)])
def test_an_answer_names_each_message_or_the_one_record_that_holds_them_all(ids, succeeds):
    async def body(cluster):
        stored_id = offset_message_id(pack_host("127.0.0.1", 10911), 77)

        def answer(_broker, _connection, request):
            fields = {"msgId": ",".join([stored_id] * ids), "queueId": "1", "queueOffset": "5"}
            return make_response(request, 0, ext_fields=fields)

        async with busy_producer(cluster) as producer:
            cluster.replicas[0].misbehave.append(answer)
            sends = [producer.send(Message(TOPIC, one)) for one in numbered(3)]
            endings = await asyncio.gather(*sends, return_exceptions=True)
        if succeeds:
            found = [(one.offset_msg_id, one.queue_offset, one.queue.queue_id) for one in endings]
            assert found == [(stored_id, 5, 1), (stored_id, 6, 1), (stored_id, 7, 1)]
        else:
            assert {one.outcome for one in endings} == {Outcome.UNKNOWN}

    run(body)


async def properties_changed_meanwhile(cluster, changed, count, *, fails):
    """Change what messages hold once their sends have begun; return the endings and properties."""
    own = {"a": "1"}
    messages = [Message(TOPIC, b"x", properties=own) for _ in range(count)]
    async with busy_producer(cluster) as producer:
        if fails:
            cluster.replicas[0].misbehave.append(fakes.not_leader)
        sends = [asyncio.ensure_future(producer.send(message)) for message in messages]
        await asyncio.sleep(0)
        own["a"] = changed
        await asyncio.wait(sends, timeout=4)
        [one.cancel() for one in sends]
        await asyncio.wait(sends)
    stored = [one for queue in cluster.group.queues.values() for one in queue]
    return sends, [parse_properties(one.properties).get("a") for one in stored]


@pytest.mark.parametrize("changed", ["2", 2])
@pytest.mark.parametrize(("count", "fails"), [(1, False), (1, True), (2, True)])
def test_what_is_changed_once_a_send_has_begun_is_not_sent(changed, count, fails):
    async def body(cluster):
        sends, stored = await properties_changed_meanwhile(cluster, changed, count, fails=fails)
        assert [one.cancelled() or one.exception() for one in sends] == [None] * count
        assert stored == ["1"] * count

    run(body)


@pytest.mark.parametrize(("count", "fails"), [(1, False), (2, True)])
def test_a_planted_change_once_a_send_has_begun_is_noticed(count, fails):
    async def body(cluster):
        _, stored = await properties_changed_meanwhile(cluster, "2", count, fails=fails)
        assert stored == ["2"] * count

    with planted(BY_TESTS["properties-as-they-are-later"]):
        run(body)


@pytest.mark.parametrize("name", ["auto_batch_messages_max", "auto_batch_bytes_max"])
def test_limits_of_nothing_are_refused(name):
    with pytest.raises(ValueError, match=name):
        ClientConfig(namesrv_addrs=("127.0.0.1:9876",), group="g", **{name: 0})
