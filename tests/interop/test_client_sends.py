"""What our producers promise, at our group and at RocketMQ's brokers (`tests.interop.servers`)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from ledgermq import (
    AdminClient,
    Decided,
    Hook,
    Message,
    MessageFinder,
    NoReply,
    Outcome,
    Producer,
    SendFailed,
    Sending,
    SendStatus,
    TransactionOptions,
    TransactionProducer,
    TransactionState,
)
from tests.interop.servers import Seen, Server, member, name, run, stored, topic_of, until

if TYPE_CHECKING:
    from ledgermq import ConsumeContext, ConsumeStatus, HalfMessage, MessageExt

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip
TRACES = "RMQ_SYS_TRACE_TOPIC"
FEW_MS = 1_000


def test_a_message_is_stored_where_its_result_says(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "single")
        sent = Message(topic, b"one", tags="A", keys="k1 k2", properties={"city": "rome"}, flag=7)
        async with Producer(server.config("single")) as producer:
            result = await producer.send(sent)
        [found] = await stored(server, topic, 1)
        assert result.status is SendStatus.SEND_OK
        assert (found.queue_id, found.queue_offset) == (
            result.queue.queue_id,
            result.queue_offset,
        )
        assert (found.body, found.flag, found.message_id()) == (b"one", 7, result.msg_id)
        properties = found.property_map()
        assert (properties["TAGS"], properties["city"]) == ("A", "rome")
        assert properties["KEYS"] == "k1 k2"
        async with MessageFinder(server.config("finding")) as finder:
            at = await finder.by_id(result.offset_msg_id)
            assert at is not None
            assert at.body == b"one"
            for key in ("k1", "k2"):
                assert [one.body for one in await finder.by_key(topic, key, 32)] == [b"one"]
            unique = await finder.by_unique_key(topic, result.msg_id)
            assert [one.body for one in unique] == [b"one"]

    run(body())


def test_a_topic_comes_into_being_with_its_first_message(server: Server) -> None:
    async def body() -> None:
        topic = name("made")
        async with Producer(server.config("making")) as producer:
            await producer.send(Message(topic, b"first"), timeout_ms=30_000)
        assert [one.body for one in await stored(server, topic, 1)] == [b"first"]

    run(body())


def test_batches_lie_behind_one_another_and_have_ids_of_their_own(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "batch", 2)
        messages = [Message(topic, b"%d" % n, tags=f"t{n % 2}") for n in range(30)]
        async with Producer(server.config("batch")) as producer:
            first = await producer.send_batch(messages)
            rest = await producer.send_all(
                [Message(topic, b"x" * 300_000) for _ in range(8)], first.queue
            )
            crowd = await asyncio.gather(
                *(producer.send(Message(topic, b"crowd%d" % n)) for n in range(100))
            )
        found = await stored(server, topic, 138)
        mine = [one for one in found if one.queue_id == first.queue.queue_id][:30]
        assert [one.body for one in mine] == [one.body for one in messages]
        assert [one.queue_offset for one in mine] == list(range(30))
        assert [one.message_id() for one in mine] == first.msg_id.split(",")
        assert [one.maybe_property("TAGS") for one in mine] == [m.tags for m in messages]
        assert len(rest) > 1
        places = {one.message_id(): (one.queue_id, one.queue_offset) for one in found}
        for result in crowd:
            place = (result.queue.queue_id, result.queue_offset)
            assert places[result.msg_id] == place

    run(body())


def test_what_is_sent_oneway_arrives(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "oneway")
        async with Producer(server.config("oneway")) as producer:
            ids = {await producer.send_oneway(Message(topic, b"%d" % n)) for n in range(20)}
            found = await stored(server, topic, 20)
        assert {one.message_id() for one in found} == ids

    run(body())


def test_messages_of_one_key_lie_in_order_in_one_queue(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "keyed")
        async with Producer(server.config("keyed")) as producer:
            for number in range(12):
                for key in ("a", "b", "c"):
                    one = Message(topic, b"%s%d" % (key.encode(), number), sharding_key=key)
                    await producer.send(one)
        found = await stored(server, topic, 36)
        for key in (b"a", b"b", b"c"):
            mine = [one for one in found if one.body.startswith(key)]
            assert len({one.queue_id for one in mine}) == 1
            assert [one.body for one in mine] == [b"%s%d" % (key, n) for n in range(12)]

    run(body())


def test_large_bodies_are_compressed_and_come_back_whole(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "large")
        large = b"compress me " * 20_000
        async with Producer(server.config("large")) as producer:
            await producer.send(Message(topic, large))
        [found] = await stored(server, topic, 1)
        assert found.body == large
        assert found.size < len(large) // 4

    run(body())


def test_a_message_that_no_broker_takes_has_certainly_failed(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "refused")
        config = server.config("refused", max_message_bytes=8 << 20, compress_over_bytes=0)
        async with Producer(config) as producer:
            with pytest.raises(SendFailed) as caught:
                await producer.send(Message(topic, bytes(5 << 20)))
        assert caught.value.outcome is Outcome.FAILED
        assert await stored(server, topic, 0) == []

    run(body())


def test_delayed_messages_come_when_they_are_due(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "delayed")
        came: dict[bytes, float] = {}
        seen = Seen(lambda message, _: came.setdefault(message.body, time.time()) and _success())
        async with member(server, name("delayed"), seen, topic) as consumer:
            await consumer.wait_joined()
            async with Producer(server.config("delayed")) as producer:
                began = time.time()
                for level in (1, 2):
                    sent = Message(topic, b"%d" % level, keys="due", delay_level=level)
                    await producer.send(sent)
            await until(lambda: len(seen.bodies) == 2, "delayed message")
        for level, delay_s in ((1, 1), (2, 5)):
            assert came[b"%d" % level] >= began + delay_s - 0.05
        assert sorted(seen.bodies) == [b"1", b"2"]
        assert {one.topic for one in seen.messages} == {topic}
        assert {one.maybe_property("KEYS") for one in seen.messages} == {"due"}

    run(body())


def _success() -> ConsumeStatus:
    from ledgermq import ConsumeStatus

    return ConsumeStatus.CONSUME_SUCCESS


class Ledger:
    """Local transactions: the body says what is answered, and what is so in the end."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def execute(self, message: HalfMessage, _arg: object) -> TransactionState:
        """Commit, roll back, or do not know."""
        return {b"yes": COMMIT, b"no": ROLLBACK}.get(message.body, UNKNOWN)

    def check(self, message: MessageExt) -> TransactionState:
        """Know it at the second time."""
        key = message.message_id()
        self.asked[key] = self.asked.get(key, 0) + 1
        if self.asked[key] < 2:
            return UNKNOWN
        return COMMIT if message.body == b"later-yes" else ROLLBACK


def test_only_committed_transactions_are_consumed(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "decided")
        ledger, seen = Ledger(), Seen()
        options = TransactionOptions(check_immunity_s=0)
        async with member(server, name("decided"), seen, topic):
            group = name("deciding")
            async with TransactionProducer(server.config(group), ledger, options) as producer:
                results = {
                    body: await producer.send_in_transaction(
                        Message(topic, body, tags="T", keys="tx")
                    )
                    for body in (b"yes", b"no", b"later-yes", b"later-no")
                }
                assert results[b"yes"].state is COMMIT
                assert results[b"no"].state is ROLLBACK
                await until(lambda: len(ledger.asked) == 2, "question")
                await until(lambda: min(ledger.asked.values()) == 2, "second question")
                await until(lambda: b"later-yes" in seen.bodies, "late commit")
                await asyncio.sleep(1)
        assert sorted(seen.bodies) == [b"later-yes", b"yes"]
        for one in seen.messages:
            assert one.message_id() == results[one.body].msg_id
            assert one.maybe_property("TAGS") == "T"
            assert one.maybe_property("KEYS") == "tx"
        asked = {results[body].msg_id for body in (b"later-yes", b"later-no")}
        assert set(ledger.asked) == asked

    run(body())


def test_another_producer_of_the_group_is_asked_when_one_is_gone(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "orphaned")
        first, second, seen = Ledger(), Ledger(), Seen()
        options = TransactionOptions(check_immunity_s=0)
        config = server.config(name("orphans"))
        async with member(server, name("orphaned"), seen, topic):
            async with TransactionProducer(config, first, options) as producer:
                await producer.send_in_transaction(Message(topic, b"later-yes"))
            async with TransactionProducer(config, second, options) as producer:
                await producer.fetch_publish_queues(topic)
                await until(lambda: b"later-yes" in seen.bodies, "late commit")

    run(body())


def test_requests_get_their_replies(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "asked")
        replier = Producer(server.config("replying"))

        async def answer(message: MessageExt) -> None:
            await replier.reply(message, b"re: " + message.body)

        tasks: list[asyncio.Task[None]] = []

        def listen(message: MessageExt, _: ConsumeContext) -> ConsumeStatus:
            if message.body != b"silence":
                tasks.append(asyncio.ensure_future(answer(message)))
            return _success()

        async with (
            replier,
            member(server, name("replying"), Seen(listen), topic) as consumer,
            Producer(server.config("asking")) as asker,
        ):
            await consumer.wait_joined()
            for number in range(5):
                reply = await asker.request(Message(topic, b"%d" % number), 20_000)
                assert reply.body == b"re: %d" % number
            with pytest.raises(NoReply) as caught:
                await asker.request(Message(topic, b"silence"), FEW_MS)
            assert caught.value.outcome is Outcome.UNKNOWN
            await asyncio.gather(*tasks)

    run(body())


class Heard(Hook):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.sends: list[Sending] = []
        self.decided: list[Decided] = []

    def after_send(self, sending: Sending) -> None:
        """Note it."""
        self.sends.append(sending)

    def on_decided(self, decided: Decided) -> None:
        """Note it."""
        self.decided.append(decided)


def test_hooks_hear_and_traces_are_found(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "traced")
        hook, seen, group = Heard(), Seen(), name("tracing")
        config = server.config(group, hooks=(hook,), trace=True)
        async with TransactionProducer(config, Ledger()) as producer:
            result = await producer.send(Message(topic, b"plain", tags="A", keys="kk"))
            decided = await producer.send_in_transaction(Message(topic, b"yes"))
        assert [one.result.msg_id for one in hook.sends if one.result] == [
            result.msg_id,
            decided.msg_id,
        ]
        assert [one.state for one in hook.decided] == [COMMIT]
        consumer = member(server, group, seen, topic)
        consumer = type(consumer)(config, seen, consumer.options)
        consumer.subscribe(topic)
        async with consumer:
            await until(lambda: len(seen.bodies) == 2, "message")
        kinds = {}
        for msg_id, wanted in ((result.msg_id, 3), (decided.msg_id, 4)):
            await until_traced(server, msg_id, wanted, kinds)
        assert sorted(kinds[result.msg_id]) == ["Pub", "SubAfter", "SubBefore"]
        assert sorted(kinds[decided.msg_id]) == ["EndTransaction", "Pub", "SubAfter", "SubBefore"]

    run(body())


async def until_traced(
    server: Server, msg_id: str, wanted: int, kinds: dict[str, list[str]]
) -> None:
    """Wait until the traces of a message are there; SubAfter names it only by its request."""
    async with MessageFinder(server.config("tracing")) as finder:
        for _ in range(200):
            found = await finder.by_key(TRACES, msg_id, 32)
            records = [
                fields
                for message in found
                for record in message.body.decode().split("\x02")
                if msg_id in (fields := record.split("\x01"))
            ]
            kinds[msg_id] = [fields[0] for fields in records]
            if len(records) >= wanted:
                return
            await asyncio.sleep(0.1)
    raise AssertionError(kinds)


def test_a_deleted_topic_is_gone(server: Server) -> None:
    async def body() -> None:
        topic = await topic_of(server, "deleted")
        async with Producer(server.config("deleted")) as producer:
            await producer.send(Message(topic, b"one"))
        async with AdminClient(server.config("admin")) as admin:
            await admin.delete_topic(topic)
            assert topic not in await admin.topics()

    run(body())
