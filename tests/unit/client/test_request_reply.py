"""Requests and their replies, against fakes and against a broker with a name server."""

import asyncio

import pytest

from ledgermq.client import (
    InvalidMessage,
    Message,
    NoReply,
    NotRunning,
    Outcome,
    Producer,
    SendFailed,
    TooManyPending,
)
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.compression import COMPRESSED_ZLIB, compress
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.protocol.properties import format_properties, parse_properties
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.fixtures import wire
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run

GROUP = "test-group"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


async def stored_request(broker, number: int = 0) -> dict[str, str]:
    """Wait for a request and return its properties."""
    await broker.wait_for(lambda: broker.count(310) > number)
    sent = [one for one in broker.requests if one.code == 310][number]
    return parse_properties(sent.ext_fields["i"].encode())


async def push(broker, asked: dict[str, str], body: bytes = b"re", sys_flag: int = 0):
    """Pass a reply on, with the fields that a real broker sent."""
    recorded = next(frame for frame in wire("java497_request_reply") if frame.code == PUSH)
    properties = {
        "PUSH_REPLY_TIME": "1", "MSG_TYPE": "reply", "CORRELATION_ID": asked["CORRELATION_ID"],
        "UNIQ_KEY": "U",
    }  # fmt: skip
    fields = recorded.ext_fields | {
        "properties": format_properties(properties).decode(), "sysFlag": str(sys_flag),
    }  # fmt: skip
    command = RemotingCommand(PUSH, ext_fields=fields, body=body)
    return await broker.producers[GROUP].request(command, 1_000)


async def answered(broker, producer):
    """Have a producer greet a broker, and get a reply."""
    asking = asyncio.ensure_future(producer.request(Message(TOPIC, b"0"), 5_000))
    assert (await push(broker, await stored_request(broker))).code == 0
    await asking


def test_a_request_returns_its_reply():
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config()) as producer:
            first = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 5_000))
            asked = await stored_request(broker)
            assert (asked["TTL"], asked["REPLY_TO_CLIENT"]) == ("5000", producer.client_id)
            second = asyncio.ensure_future(producer.request(Message(TOPIC, b"2", keys="k")))
            other = await stored_request(broker, 1)
            assert other["TTL"] == "3000"
            large = b"x" * 9_000
            assert (await push(broker, other, compress(large), COMPRESSED_ZLIB)).code == 0
            assert (await push(broker, asked, b"one")).code == 0
            assert ((await first).body, (await second).body) == (b"one", large)
            assert (await first).maybe_property("UNIQ_KEY") == "U"
            assert producer._requests.waiting == 0

    run(body)


def test_a_reply_that_nobody_waits_for_is_not_decompressed(monkeypatch):
    """Anybody may send one to any producer: 66 KB of it inflate to 64 MB."""
    inflated = []
    content = MessageExt.content
    monkeypatch.setattr(MessageExt, "content", lambda one: inflated.append(1) or content(one))

    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config()) as producer:
            asking = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 5_000))
            asked = await stored_request(broker)
            stranger, bomb = {"CORRELATION_ID": "nobody's"}, compress(bytes(100_000))
            assert (await push(broker, stranger, bomb, COMPRESSED_ZLIB)).code == 0
            assert (producer._requests.late, inflated) == (1, [])
            assert (await push(broker, asked, b"no zlib stream", COMPRESSED_ZLIB)).code == 1
            assert (await push(broker, asked, compress(b"two"), COMPRESSED_ZLIB)).code == 0
            assert (await asking).body == b"two"
            with planted(BY_TESTS["late-reply-inflated"]):
                inflated.clear()
                await push(broker, stranger, bomb, COMPRESSED_ZLIB)
                assert inflated

    run(body)


def test_brokers_know_who_asks_before_they_have_a_reply():
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config(heartbeat_ms=60_000)) as producer:
            asking = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 5_000))
            asked = await stored_request(broker)
            codes = [one.code for one in broker.requests]
            assert 34 in codes[: codes.index(310)]
            await push(broker, asked)
            await asking
            broker.producers.clear()
            for connection in broker.connections:
                connection.abort("gone")
            async with asyncio.timeout(5):
                while producer.links.addrs:
                    await asyncio.sleep(0.005)
            again = asyncio.ensure_future(producer.request(Message(TOPIC, b"2"), 5_000))
            asked = await stored_request(broker, 1)
            assert GROUP in broker.producers
            await push(broker, asked)
            await again

    run(body)


def knows_who_asks_over_another_connection():
    """A send has made the connection anew, and has not said who sends."""

    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config(heartbeat_ms=60_000)) as producer:
            asking = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 5_000))
            await push(broker, await stored_request(broker))
            await asking
            broker.producers.clear()
            for connection in broker.connections:
                connection.abort("gone")
            async with asyncio.timeout(5):
                while producer.links.addrs:
                    await asyncio.sleep(0.005)
            await producer.send(Message(TOPIC, b"plain"))
            broker.producers.clear()
            again = asyncio.ensure_future(producer.request(Message(TOPIC, b"2"), 5_000))
            asked = await stored_request(broker, 2)
            try:
                assert GROUP in broker.producers
                await push(broker, asked)
                await again
            finally:
                again.cancel()

    run(body)


def test_a_broker_is_told_who_asks_over_each_connection():
    knows_who_asks_over_another_connection()
    with planted(BY_TESTS["greeted-once-for-all"]), pytest.raises(AssertionError):
        knows_who_asks_over_another_connection()


def knows_who_asks_once_it_refused():
    """A broker has refused the heartbeats of a producer, and is asked for a reply again."""

    async def body(cluster):
        broker = cluster.replicas[0]
        broker.refused_heartbeats = 1_000
        async with Producer(cluster.config(heartbeat_ms=60_000)) as producer:
            with pytest.raises(NoReply):
                await producer.request(Message(TOPIC, b"1"), 200)
            broker.refused_heartbeats = 0
            asking = asyncio.ensure_future(producer.request(Message(TOPIC, b"2"), 5_000))
            asked = await stored_request(broker, 1)
            try:
                assert GROUP in broker.producers
                await push(broker, asked)
                await asking
            finally:
                asking.cancel()

    run(body)


def test_a_broker_that_refused_a_heartbeat_is_told_again_who_asks():
    knows_who_asks_once_it_refused()
    with planted(BY_TESTS["greeted-though-refused"]), pytest.raises(AssertionError):
        knows_who_asks_once_it_refused()


def waits_no_longer_than_asked() -> None:
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config()) as producer:
            await answered(broker, producer)  # the time is for the send, and not for a connection
            with pytest.raises(NoReply) as late:
                await producer.request(Message(TOPIC, b"1"), 500)
            asked = await stored_request(broker, 1)
            assert late.value.correlation_id == asked["CORRELATION_ID"]
            assert asked["CORRELATION_ID"] in str(late.value)
            assert late.value.outcome is Outcome.UNKNOWN
            assert producer._requests.waiting == 0
            assert (await push(broker, asked)).code == 0
            assert producer._requests.late == 1

    run(body)


def test_without_a_reply_in_time_the_id_is_told_and_a_late_one_is_counted():
    waits_no_longer_than_asked()


def test_a_table_that_only_grows_is_found():
    with planted(BY_TESTS["client-requests-wait-for-ever"]), pytest.raises(AssertionError):
        waits_no_longer_than_asked()


def test_how_many_requests_wait_is_bounded(monkeypatch):
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config()) as producer:
            waiting = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 5_000))
            asked = await stored_request(broker)
            with pytest.raises(TooManyPending):
                await producer.request(Message(TOPIC, b"2"))
            await push(broker, asked)
            await waiting
            assert broker.count(310) == 1

    monkeypatch.setattr("ledgermq.client.request_reply.REQUESTS_WAITING_MAX", 1)
    run(body)


def test_a_request_that_is_not_sent_says_so_unless_a_reply_proves_otherwise():
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config(retry_times=0)) as producer:
            broker.misbehave.append(fakes.answer(16, "not now"))
            with pytest.raises(SendFailed):
                await producer.request(Message(TOPIC, b"1"), 5_000)

            async def reply_and_drop(one, connection, request):
                asked = parse_properties(request.ext_fields["i"].encode())
                await push(one, asked, b"proof")
                connection.abort("told to")

            broker.misbehave.append(reply_and_drop)
            assert (await producer.request(Message(TOPIC, b"2"), 5_000)).body == b"proof"
            assert producer._requests.waiting == 0

    run(body)


def test_stop_ends_what_waits_for_a_reply():
    async def body(cluster):
        broker = cluster.replicas[0]
        producer = Producer(cluster.config())
        with pytest.raises(NotRunning):
            await producer.request(Message(TOPIC, b"1"))
        await producer.start()
        waiting = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 60_000))
        await stored_request(broker)
        await asyncio.sleep(0.01)
        await producer.stop()
        with pytest.raises(NotRunning) as stopped:
            await waiting
        assert stopped.value.outcome is Outcome.UNKNOWN

    run(body)


def test_a_broken_reply_harms_nobody():
    async def body(cluster):
        broker = cluster.replicas[0]
        async with Producer(cluster.config()) as producer:
            waiting = asyncio.ensure_future(producer.request(Message(TOPIC, b"1"), 5_000))
            asked = await stored_request(broker)
            command = RemotingCommand(PUSH, ext_fields={"topic": "x"}, body=b"re")
            assert (await broker.producers[GROUP].request(command, 1_000)).code == 1
            assert (await push(broker, asked, b"no zlib", COMPRESSED_ZLIB)).code == 1
            assert not waiting.done()
            await push(broker, asked)
            await waiting

    run(body)


def test_a_reply_goes_as_the_java_client_sends_it():
    frames = wire("java497_request_reply")
    recorded = next(frame for frame in frames if frame.code == 325).ext_fields
    asked = parse_properties(
        next(frame for frame in frames if frame.code == 310).ext_fields["i"].encode()
    )

    async def body(cluster):
        broker = cluster.replicas[0]
        cluster.publish(TOPIC, recorded["b"], queues=1)
        async with Producer(cluster.config()) as producer:
            await producer.send(Message(TOPIC, b"ping", properties={"some": "other"}))
            message = next(iter(cluster.group.queues.values()))[0]
            with pytest.raises(InvalidMessage, match="no CLUSTER, CORRELATION_ID"):
                await producer.reply(message, b"re")
            message.properties = format_properties(asked | {"CLUSTER": "FixtureCluster"})
            await producer.reply(message, b"re:ping")
            with pytest.raises(InvalidMessage, match="empty"):
                await producer.reply(message, b"")
        (sent,) = [one for one in broker.requests if one.code == 325]
        assert sent.body == b"re:ping"
        ours = dict(sent.ext_fields)
        mine, theirs = (parse_properties(one["i"].encode()) for one in (ours, recorded))
        theirs["WAIT"] = "true"  # Ours says on every message what is the default there.
        assert mine | {"UNIQ_KEY": ""} == theirs | {"UNIQ_KEY": ""}
        of_its_time = {"a", "g", "i", "n"}
        for name in set(recorded) - of_its_time:
            assert ours[name] == recorded[name], name

    run(body)


def test_a_broker_that_does_not_answer_is_greeted_once_for_all_requests():
    async def body(cluster):
        hung, greeted = cluster.brokers["group-1"][0].addr, []
        async with Producer(cluster.config()) as producer:
            greet = producer._instance.heartbeat

            async def heartbeat(addr):
                greeted.append(addr)
                await (asyncio.Event().wait() if addr == hung else greet(addr))

            producer._instance.heartbeat = heartbeat
            asking = [producer.request(Message(TOPIC, b"x"), 200) for _ in range(20)]
            endings = await asyncio.gather(*asking, return_exceptions=True)
            assert {type(one) for one in endings} == {NoReply}
            assert greeted.count(hung) <= 2  # The heartbeats of the client are one of them.
            await producer._instance.background.stop()

    run(body, groups=2)
