"""Hooks of sends, listeners and transactions, and the traces that are made of them."""

import ast
import asyncio
import dataclasses
import time
from pathlib import Path

import msgspec
import pytest

from ledgermq.client import (
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Hook,
    InvalidMessage,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    SendFailed,
    SendKind,
    TransactionProducer,
    TransactionState,
    trace_codec,
)
from ledgermq.client.hooks import Consuming, Decided, Sending
from ledgermq.client.message import Attempt, SendResult, SendStatus
from ledgermq.remoting.protocol.frame import FrameDecoder
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.protocol.properties import format_properties
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.fixtures import wire
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run
from tests.unit.client.test_transactions import Listener, ask

ROOT = Path(__file__).parents[3]
TRACES = "RMQ_SYS_TRACE_TOPIC"
OPTIONS = ConsumeOptions(
    consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=500, pull_timeout_ms=2_000
)


class Journal(Hook):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard = []
        self.decided = []

    def before_send(self, sending):
        assert sending.result is sending.error is None
        sending.notes["seen"] = len(self.heard)
        self.heard.append(("before", sending))

    def after_send(self, sending):
        assert sending.notes["seen"] < len(self.heard)
        self.heard.append(("after", sending))

    def before_consume(self, consuming):
        self.heard.append(("consume", consuming))

    def after_consume(self, consuming):
        self.heard.append(("consumed", consuming))

    def on_decided(self, decided):
        self.decided.append(decided)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.heard]

    @property
    def last(self):
        return self.heard[-1][1]


class Broken(Hook):
    """Raises whatever it hears."""

    def before_send(self, sending):
        raise ValueError("before")

    def after_send(self, sending):
        raise ValueError("after")

    def before_consume(self, consuming):
        raise ValueError("consume")

    def after_consume(self, consuming):
        raise ValueError("consumed")

    def on_decided(self, decided):
        raise ValueError("decided")


def test_hooks_hear_of_every_kind_of_send():
    async def body(cluster):
        journal = Journal()
        async with Producer(cluster.config(hooks=(journal,), retry_times=0)) as producer:
            result = await producer.send(Message(TOPIC, b"1"))
            assert journal.names == ["before", "after"]
            sending = journal.last
            assert (sending.result, sending.group, sending.kind) == (
                result, "test-group", SendKind.NORMAL,
            )  # fmt: skip
            await producer.send(Message(TOPIC, b"2", delay_level=3))
            assert journal.last.kind is SendKind.DELAYED
            batch = [Message(TOPIC, b"3"), Message(TOPIC, b"4")]
            await producer.send_batch(batch)
            assert journal.last.messages == tuple(batch)
            await producer.send_oneway(Message(TOPIC, b"5"))
            assert (journal.last.result, journal.last.error) == (None, None)
            broker = cluster.replicas[0]
            await broker.wait_for(lambda: broker.count(310) == 3)
            cluster.replicas[0].misbehave.append(fakes.answer(16, "no"))
            with pytest.raises(SendFailed) as refused:
                await producer.send(Message(TOPIC, b"6"))
            assert journal.last.error is refused.value
            with pytest.raises(InvalidMessage):
                await producer.send(Message(TOPIC, b""))
            assert journal.names == ["before", "after"] * 6

    run(body)


def test_concurrent_sends_share_requests_with_hooks_too():
    async def body(cluster):
        journal = Journal()
        async with Producer(cluster.config(hooks=(journal,))) as producer:
            await producer.send(Message(TOPIC, b"connects"))
            sends = [producer.send(Message(TOPIC, b"%d" % number)) for number in range(20)]
            results = await asyncio.gather(*sends)
            heard = {one.result.msg_id for name, one in journal.heard if name == "after"}
            assert {one.msg_id for one in results} < heard
            assert cluster.replicas[0].count(320)
            producer.send(Message(TOPIC, b"never awaited")).close()

    run(body)


def a_hook_that_raises_changes_nothing() -> None:
    async def body(cluster):
        broker, journal = cluster.replicas[0], Journal()
        config = cluster.config(hooks=(Broken(), journal))
        seen = []

        def listen(messages, _context):
            seen.extend(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        async with TransactionProducer(config, Listener()) as producer:
            assert (await producer.send(Message(TOPIC, b"1"))).status is SendStatus.SEND_OK
            result = await producer.send_in_transaction(Message(TOPIC, b"2"))
            assert result.told
            kinds = [one.kind for name, one in journal.heard if name == "after"]
            assert kinds == [SendKind.NORMAL, SendKind.HALF]
            stores = cluster.group.queues.values()
            (half,) = [one for stored in stores for one in stored if one.sys_flag == 4]
            await ask(broker, half)
            async with asyncio.timeout(5):
                while len(journal.decided) < 2:
                    await asyncio.sleep(0.005)
            assert [one.from_check for one in journal.decided] == [False, True]
            assert journal.decided[0].msg_id == result.msg_id
            assert journal.decided[0].broker_addr == journal.decided[1].broker_addr == broker.addr
        consumer = PushConsumer(config, listen, OPTIONS)
        consumer.subscribe(TOPIC)
        async with consumer:
            async with asyncio.timeout(5):
                while len(seen) < 2:
                    await asyncio.sleep(0.005)
        assert journal.names[4:].count("consumed") == 2
        assert journal.last.succeeded

    run(body)


def test_a_hook_that_raises_changes_nothing_and_is_told(caplog):
    a_hook_that_raises_changes_nothing()
    for name in ("before_send", "after_send", "before_consume", "after_consume", "on_decided"):
        assert f"hook=Broken.{name}" in caplog.text


def test_hooks_hear_what_listeners_make_of_messages():
    journal = Journal()

    async def later(_messages, _context):
        return ConsumeStatus.RECONSUME_LATER

    async def raises(_messages, _context):
        raise ValueError("no")

    async def scenario():
        from ledgermq.client.hooks import Hooks
        from ledgermq.client.message import ConsumeContext
        from ledgermq.runtime.clock import SystemClock

        hooks = Hooks([journal], "g", SystemClock())
        context = ConsumeContext(MessageQueue("t", "b", 0))
        assert await hooks.listener(later)([stored()], context) is ConsumeStatus.RECONSUME_LATER
        assert (journal.last.status, journal.last.succeeded) == (
            ConsumeStatus.RECONSUME_LATER, False,
        )  # fmt: skip
        with pytest.raises(ValueError, match="no"):
            await hooks.listener(raises)([stored()], context)
        assert isinstance(journal.last.error, ValueError)
        with pytest.raises(ZeroDivisionError):
            hooks.listener(lambda _messages, _context: 1 / 0)([stored()], context)
        assert isinstance(journal.last.error, ZeroDivisionError)
        assert hooks.listener(lambda _messages, _context: None)([stored()], context) is None
        assert (journal.last.status, journal.last.error) == (None, None)

    asyncio.run(scenario())


def stored(**properties: str) -> MessageExt:
    return MessageExt(
        topic="t", queue_id=0, flag=0, sys_flag=0, queue_offset=0, physical_offset=0,
        born_timestamp=0, born_host=b"\x7f\0\0\1\0\0\0\1", store_timestamp=0,
        store_host=b"\x7f\0\0\1\0\0\0\1", reconsume_times=0, prepared_offset=0, body=b"x",
        properties=format_properties({"UNIQ_KEY": "U"} | properties),
    )  # fmt: skip


def recorded_traces() -> list[str]:
    frames = [
        frame
        for frame in wire("java497_trace")
        if frame.code == 310 and frame.kind == "request" and frame.ext_fields["b"] == TRACES
    ]
    return [bytes(next(iter(FrameDecoder().feed(frame.raw))).body).decode() for frame in frames]


def test_traces_are_those_that_the_java_client_sent():
    sent, consumed = recorded_traces()
    fields = sent.rstrip("\x02").split("\x01")
    sending = Sending(
        group=fields[3],
        messages=(Message(fields[4], b"traced", tags=fields[6], keys=fields[7]),),
        kind=SendKind(int(fields[11])),
        t_start_ms=int(fields[1]),
        took_ms=int(fields[10]),
        result=SendResult(
            SendStatus.SEND_OK, fields[5], fields[12], MessageQueue("t", "b", 0), 0,
            (Attempt(fields[8], 0, 0, 0, "", None),),
        ),
    )  # fmt: skip
    assert trace_codec.of_send(sending) == [(sent, (fields[5], fields[7]))]
    elsewhere = msgspec.structs.replace(sending.result, region="elsewhere")
    [(text, _)] = trace_codec.of_send(dataclasses.replace(sending, result=elsewhere))
    assert text.split("\x01")[2] == "elsewhere"
    before, after = (record.split("\x01") for record in consumed.split("\x02")[:2])
    consuming = Consuming(
        group=before[3],
        queue=MessageQueue("t", "b", 0),
        messages=[stored(UNIQ_KEY=before[5], KEYS=before[7])],
        t_start_ms=int(before[1]),
        status=ConsumeStatus.CONSUME_SUCCESS,
    )
    ours = trace_codec.of_call(consuming, before[4]) + trace_codec.of_outcome(consuming, after[1])
    assert "".join(text for text, _ in ours) == consumed
    assert [keys for _, keys in ours] == [(before[5], before[7])] * 2


@pytest.mark.parametrize(
    ("status", "error", "code", "success"),
    [
        (ConsumeStatus.CONSUME_SUCCESS, None, "0", "true"),
        (None, ValueError(), "2", "false"),
        (None, None, "3", "false"),
        (ConsumeStatus.RECONSUME_LATER, None, "4", "false"),
    ],
)
def test_the_end_of_a_call_has_the_codes_of_java(status, error, code, success):
    consuming = Consuming(
        group="g", queue=MessageQueue("t", "b", 0), messages=[stored()], t_start_ms=5, took_ms=7,
        status=status, error=error,
    )  # fmt: skip
    ((text, keys),) = trace_codec.of_outcome(consuming, "R")
    assert text == f"SubAfter\x01R\x01U\x017\x01{success}\x01null\x01{code}\x0112\x01g\x02"
    assert keys == ("U",)


def test_what_brokers_do_not_want_traced_is_not():
    consuming = Consuming(
        group="g", queue=MessageQueue("t", "b", 0), messages=[stored(TRACE_ON="false")],
        t_start_ms=5,
    )  # fmt: skip
    assert trace_codec.of_call(consuming, "R") == trace_codec.of_outcome(consuming, "R") == []


def test_a_decision_is_traced_as_java_does():
    decided = Decided(
        group="g", topic="t", msg_id="M", tags="", keys="k", state=TransactionState.UNKNOWN,
        broker_addr="h:1", from_check=True, t_ms=9,
    )  # fmt: skip
    assert trace_codec.of_decision(decided) == (
        "EndTransaction\x019\x01DefaultRegion\x01g\x01t\x01M\x01null\x01k\x01h:1\x012\x01M\x01"
        "UNKNOW\x01true\x02",
        ("M", "k"),
    )


def test_each_message_of_a_batch_has_a_record_of_its_own():
    messages = (Message("t", b"1", keys="a"), Message("t", b"22"))
    result = SendResult(
        SendStatus.FLUSH_DISK_TIMEOUT, "M1,M2", "O1,O2", MessageQueue("t", "b", 0), 0, ()
    )
    sending = Sending(
        group="g", messages=messages, kind=SendKind.NORMAL, t_start_ms=1, result=result
    )
    first, second = trace_codec.of_send(sending)
    for (text, _), fields in (
        (first, "M1,null,a,null,1,0,0,O1,false"),
        (second, "M2,null,null,null,2,0,0,O2,false"),
    ):
        assert text.rstrip("\x02").split("\x01")[5:] == fields.split(",")
    assert (first[1], second[1]) == (("M1", "a"), ("M2",))


def traced(broker) -> list[MessageExt]:
    return [
        message
        for (topic, _), messages in broker.group.queues.items()
        if topic == TRACES
        for message in messages
    ]


def test_a_producer_and_a_consumer_trace_a_message():
    async def body(cluster):
        cluster.publish(TOPIC, TRACES, queues=1)
        broker, seen = cluster.replicas[0], []

        async def listen(messages, _context):
            seen.extend(messages)
            return ConsumeStatus.CONSUME_SUCCESS

        config = cluster.config(trace=True, group="traced")
        async with TransactionProducer(config, Listener()) as producer:
            result = await producer.send(Message(TOPIC, b"x", keys="k1 k2", tags="T"))
            half = await producer.send_in_transaction(Message(TOPIC, b"half"))
            consumer = PushConsumer(config, listen, OPTIONS)
            consumer.subscribe(TOPIC)
            async with consumer:
                async with asyncio.timeout(5):
                    while len(seen) < 2:
                        await asyncio.sleep(0.005)
        found = [one for one in traced(broker) if result.msg_id in one.maybe_property("KEYS")]
        records = [
            record.split("\x01")
            for message in found
            for record in message.body.decode().split("\x02")
            if result.msg_id in record
        ]
        assert [record[0] for record in records] == ["Pub", "SubBefore", "SubAfter"]
        published, before, after = records
        assert published[2:9] == [
            "DefaultRegion", "traced", TOPIC, result.msg_id, "T", "k1 k2", broker.addr,
        ]  # fmt: skip
        assert before[4] == after[1]
        assert {"k1", "k2"} <= set(found[0].maybe_property("KEYS").split())
        everything = "".join(message.body.decode() for message in traced(broker))
        assert everything.count("EndTransaction") == everything.count("COMMIT_MESSAGE") == 1
        assert half.msg_id in everything
        groups = {
            producer["groupName"]
            for beat in broker.heartbeats
            for producer in beat.get("producerDataSet", [])
        }
        assert "_INNER_TRACE_PRODUCER-traced" in groups
        assert producer.tracing.dropped == consumer.tracing.dropped == 0

    run(body)


def traces_that_cannot_be_sent_keep_nobody_waiting() -> None:
    async def body(cluster):
        """Nobody knows the topic of traces; so many records wait, the others are dropped."""
        producer = Producer(cluster.config(trace=True))
        async with producer:
            t_start = time.monotonic()
            for number in range(40):
                await producer.send(Message(TOPIC, b"%d" % number))
            assert time.monotonic() - t_start < 3
            assert producer.tracing.dropped >= 20
        assert producer.tracing.dropped == 40
        assert len(cluster.group.bodies(TOPIC)) == 40

    run(body)


def test_traces_that_cannot_be_sent_are_dropped_and_counted(monkeypatch, caplog):
    monkeypatch.setattr("ledgermq.client.trace.TRACES_WAITING_MAX", 10)
    monkeypatch.setattr("ledgermq.client.trace.RECORDS_MAX", 10)
    traces_that_cannot_be_sent_keep_nobody_waiting()
    assert "event=traces_dropped" in caplog.text


def test_a_stop_that_was_cancelled_is_made_good_by_the_next_one():
    async def body(cluster):
        producer = Producer(cluster.config(trace=True))
        await producer.start()
        await producer.send(Message(TOPIC, b"x"))  # nobody knows the topic of its trace
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.stop(), 0.2)
        await producer.stop()
        assert not producer.tracing._producer._instance.running
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "traces"]

    run(body)


def test_traces_come_in_messages_of_bounded_size():
    async def body(cluster):
        cluster.publish(TOPIC, TRACES, queues=1)
        broker = cluster.replicas[0]
        async with Producer(cluster.config(trace=True)) as producer:
            keys = " ".join(f"key-{number:04}" for number in range(900))
            for _ in range(5):
                await producer.send(Message(TOPIC, b"x", keys=keys))
            await producer.send(Message(TOPIC, b"x", keys="k" * 30_000))
            for _ in range(150):
                await producer.send(Message(TOPIC, b"x"))
        sent = traced(broker)
        records = [message.content().decode().count("\x02") for message in sent]
        assert sum(records) == 156
        assert max(records) <= 100
        assert max(len(message.properties) for message in sent) < 20_000
        assert producer.tracing.dropped == 0

    run(body)


def test_without_hooks_and_traces_nothing_is_between_the_caller_and_the_send():
    async def body(cluster):
        async with Producer(cluster.config()) as producer:
            assert producer._hooks is producer.tracing is None
            sending = producer.send(Message(TOPIC, b"x"))
            assert sending.__qualname__ == "Producer._send"
            await sending

    run(body)


def test_the_documented_hook_hears_of_sends():
    """The code of docs/client.md, as it stands there but for the address."""
    section = (ROOT / "docs" / "client.md").read_text().partition("\n## Hooks and traces\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]

    async def body(cluster):
        cluster.publish(TOPIC, TRACES, queues=1)
        said = []

        async def slowly(broker, _connection, request):
            await asyncio.sleep(0.15)
            return await broker.store(request)

        cluster.replicas[0].misbehave.append(slowly)
        ours = code.replace("127.0.0.1:9876", cluster.name_servers[0].addr)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        names = {"print": lambda *words: said.append(words)}
        await eval(compile(ours, "docs/client.md", "exec", flags=flags), names)
        slow, sent = said
        assert slow[:2] == ("slow or failed:", TOPIC)
        assert slow[2] >= 150
        (trace,) = traced(cluster.replicas[0])
        assert trace.maybe_property("KEYS").split() == [*sent, "4711"]

    run(body)


def test_a_hook_that_may_fail_a_send_is_found():
    with (
        planted(BY_TESTS["client-hook-fails-the-send"]),
        pytest.raises((AssertionError, ValueError)),
    ):
        a_hook_that_raises_changes_nothing()


def test_traces_without_end_are_found(monkeypatch):
    monkeypatch.setattr("ledgermq.client.trace.TRACES_WAITING_MAX", 10)
    monkeypatch.setattr("ledgermq.client.trace.RECORDS_MAX", 10)
    with planted(BY_TESTS["client-traces-without-end"]), pytest.raises(AssertionError):
        traces_that_cannot_be_sent_keep_nobody_waiting()


def test_a_trace_found_by_nothing_is_found():
    with planted(BY_TESTS["client-trace-not-found-by-its-message"]), pytest.raises(AssertionError):
        test_a_producer_and_a_consumer_trace_a_message()
