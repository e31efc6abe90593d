"""Transactions: halves, decisions, questions of brokers, and listeners that misbehave."""

import ast
import asyncio
import contextlib
import logging
import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from ledgermq.client import (
    InvalidMessage,
    Message,
    MessageExt,
    NotRunning,
    Outcome,
    Producer,
    SendFailed,
    TransactionOptions,
    TransactionProducer,
    TransactionState,
)
from ledgermq.client.limits import CHECKS_WAITING_MAX
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.message import encode_record
from ledgermq.remoting.protocol.properties import parse_properties
from mutants.patches import ALL
from mutants.planting import planted
from tests.fixtures import wire
from tests.unit.client import fakes
from tests.unit.client.cluster import TOPIC, run

ROOT = Path(__file__).parents[3]
GROUP = "test-group"
END = RequestCode.END_TRANSACTION
COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip


class Listener:
    """Says what it was told to say; ``before`` runs first, in either method."""

    def __init__(self, state=COMMIT, *, checked=COMMIT, before=None) -> None:
        self.state = state
        self.checked = checked
        self.before = before
        self.executed = []
        self.asked: list[MessageExt] = []

    async def execute(self, message, arg):
        self.executed.append((message, arg))
        if self.before is not None:
            await self.before()
        return self.state

    async def check(self, message):
        self.asked.append(message)
        if self.before is not None:
            await self.before()
        return self.checked


def ends(broker) -> list[dict[str, str]]:
    return [one.ext_fields for one in broker.requests if one.code == END]


def states(broker) -> list[int]:
    return [int(fields["commitOrRollback"]) for fields in ends(broker)]


def half_of(broker, index: int = 0) -> MessageExt:
    return next(stored for stored in broker.group.queues.values() if stored)[index]


async def ask(broker, half: MessageExt, *, group: str = GROUP, offset: int | None = None) -> None:
    """Ask the producer about a half, as a broker does."""
    fields = {
        "commitLogOffset": str(half.physical_offset if offset is None else offset),
        "tranStateTableOffset": str(half.queue_offset),
        "msgId": half.message_id(),
        "transactionId": half.message_id(),
        "offsetMsgId": half.offset_message_id(),
    }
    await broker.wait_for(lambda: group in broker.producers)
    broker.producers[group].send_oneway(
        RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields,
                        body=encode_record(half))
    )  # fmt: skip


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK, UNKNOWN])
def test_a_half_is_sent_and_then_decided_as_the_local_transaction_ended(state):
    async def body(cluster):
        broker, listener = cluster.replicas[0], Listener(state)
        async with TransactionProducer(cluster.config(), listener) as producer:
            sent = Message(TOPIC, b"x", keys="k", sharding_key="s")
            result = await producer.send_in_transaction(sent, {"order": 7})
            await broker.wait_for(lambda: len(ends(broker)) == 1)
        half = half_of(broker)
        assert parse_properties(half.properties) == {
            "UNIQ_KEY": result.msg_id, "WAIT": "true", "KEYS": "k", "__SHARDINGKEY": "s",
            "TRAN_MSG": "true", "PGROUP": GROUP, "CHECK_IMMUNITY_TIME_IN_SECONDS": "31",
        }  # fmt: skip
        assert half.sys_flag == 4
        ((message, arg),) = listener.executed
        assert (message.body, message.keys, message.transaction_id) == (b"x", "k", result.msg_id)
        assert arg == {"order": 7}
        assert (result.state, result.told) == (state, True)
        assert ends(broker) == [
            {
                "producerGroup": GROUP, "commitOrRollback": str(int(state)), "msgId": result.msg_id,
                "commitLogOffset": str(half.physical_offset), "bname": result.queue.broker_name,
                "tranStateTableOffset": str(half.queue_offset), "fromTransactionCheck": "false",
                "transactionId": result.msg_id,
            }
        ]  # fmt: skip

    run(body)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TransactionOptions(execute_timeout_ms=1_001), "3"),
        (TransactionOptions(check_immunity_s=90), "90"),
        (TransactionOptions(check_immunity_s=0), None),
    ],
)
def test_brokers_are_told_to_ask_nobody_while_a_local_transaction_may_run(options, said):
    async def body(cluster):
        broker = cluster.replicas[0]
        async with TransactionProducer(cluster.config(), Listener(), options) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"x"))
        properties = parse_properties(half_of(broker).properties)
        assert properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS") == said

    run(body)
    with pytest.raises(ValueError, match="check_immunity_s must not be negative"):
        TransactionOptions(check_immunity_s=-1)


def test_decisions_are_those_that_the_java_client_sent():
    """Of the same answers and questions; only its answers lacked the id of the transaction."""
    from ledgermq.client.halves import Half
    from ledgermq.client.message import MessageQueue, SendResult, SendStatus

    frames = wire("java497_tx")
    sends = {frame.row["opaque"]: frame for frame in frames if frame.code == 310}
    answers = [frame for frame in frames if frame.answers == 310]
    decided = [frame.ext_fields for frame in frames if frame.code == END]
    for answer, recorded in zip(answers, decided[:3], strict=True):
        sent = sends[answer.row["opaque"]].ext_fields
        msg_id = parse_properties(sent["i"].encode())["UNIQ_KEY"]
        # Ours also say for how long nobody is to be asked; Java's leave that to the broker.
        assert {"TRAN_MSG\x01true", f"PGROUP\x01{sent['a']}"} <= set(sent["i"].split("\x02"))
        stored = answer.ext_fields
        queue = MessageQueue(sent["b"], sent["n"], int(stored["queueId"]))
        result = SendResult(
            SendStatus.SEND_OK, msg_id, stored["msgId"], queue, int(stored["queueOffset"]), ()
        )
        state = TransactionState(int(recorded["commitOrRollback"]))
        ours = Half.of_sent(result).end(sent["a"], state).ext_fields
        assert ours == recorded | {"transactionId": msg_id}
    questions = [frame.ext_fields for frame in frames if frame.code == 39]
    assert len(questions) == len(decided[3:]) == 2
    for question, recorded in zip(questions, decided[3:], strict=True):
        half = Half.of_question(question, question["msgId"])
        state = TransactionState(int(recorded["commitOrRollback"]))
        assert half.end(recorded["producerGroup"], state).ext_fields == recorded


def test_a_half_that_was_not_stored_raises_and_nothing_is_executed():
    async def body(cluster):
        listener = Listener()
        config = cluster.config(retry_times=0)
        async with TransactionProducer(config, listener) as producer:
            cluster.replicas[0].misbehave.append(fakes.answer(16, "not now"))
            with pytest.raises(SendFailed) as refused:
                await producer.send_in_transaction(Message(TOPIC, b"x"))
            cluster.replicas[0].misbehave.append(fakes.drop_after)
            with pytest.raises(SendFailed) as lost:
                await producer.send_in_transaction(Message(TOPIC, b"x"))
        assert (refused.value.outcome, lost.value.outcome) == (Outcome.FAILED, Outcome.UNKNOWN)
        assert not listener.executed
        assert not ends(cluster.replicas[0])

    run(body)


def test_a_half_on_too_few_disks_is_rolled_back_unexecuted():
    async def body(cluster):
        broker, listener = cluster.replicas[0], Listener()

        async def flush_timeout(one, _connection, request):
            answer = await one.store(request)
            answer.code = 10
            return answer

        broker.misbehave.append(flush_timeout)
        async with TransactionProducer(cluster.config(), listener) as producer:
            result = await producer.send_in_transaction(Message(TOPIC, b"x"))
            await broker.wait_for(lambda: len(ends(broker)) == 1)
        assert (result.state, states(broker), listener.executed) == (ROLLBACK, [12], [])

    run(body)


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        (Listener("commit"), "execute_returned"),
        (Listener(None), "execute_returned"),
        (Listener(before=lambda: asyncio.sleep(30)), "execute_takes_too_long"),
        (Listener(before=lambda: 1 / 0), "execute_failed"),
    ],
)
def test_a_listener_that_raises_hangs_or_says_nonsense_leaves_it_unknown(listener, said, caplog):
    async def body(cluster):
        broker = cluster.replicas[0]
        options = TransactionOptions(execute_timeout_ms=50)
        async with TransactionProducer(cluster.config(), listener, options) as producer:
            result = await producer.send_in_transaction(Message(TOPIC, b"x"))
            await broker.wait_for(lambda: len(ends(broker)) == 1)
        assert (result.state, states(broker)) == (UNKNOWN, [0])
        (warning,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert f"event={said}" in warning.getMessage()
        assert result.msg_id in warning.getMessage()

    run(body)


def unknown_becomes_rollback() -> None:
    test_a_listener_that_raises_hangs_or_says_nonsense_leaves_it_unknown(
        Listener(before=lambda: 1 / 0), "execute_failed", Records()
    )


class Records:
    """What ``caplog`` is to a check that is run inside a test."""

    records = ()


def test_functions_run_beside_the_loop():
    loop_thread = threading.get_ident()
    ran_in = []

    class Blocking:
        def execute(self, _message, gate):
            ran_in.append(threading.get_ident())
            gate.wait(5)
            return ROLLBACK

        def check(self, _message):
            ran_in.append(threading.get_ident())
            return COMMIT

    async def body(cluster):
        broker = cluster.replicas[0]
        async with TransactionProducer(cluster.config(), Blocking()) as producer:
            gate = threading.Event()
            waiting = asyncio.ensure_future(
                producer.send_in_transaction(Message(TOPIC, b"x"), gate)
            )
            await until(lambda: ran_in)
            await producer.send(Message(TOPIC, b"the loop goes on"))
            gate.set()
            assert (await waiting).state is ROLLBACK
            await ask(broker, half_of(broker))
            await broker.wait_for(lambda: states(broker) == [12, 8])
        assert loop_thread not in ran_in

    run(body)


def test_what_brokers_ask_is_answered_where_it_was_asked():
    async def body(cluster):
        old, new = cluster.replicas
        listener = Listener(UNKNOWN, checked=COMMIT)
        async with TransactionProducer(cluster.config(), listener) as producer:
            result = await producer.send_in_transaction(Message(TOPIC, b"x" * 9_000, keys="k"))
            cluster.elect(1)
            cluster.publish(leader=1)
            await producer.send(Message(TOPIC, b"goes to the new leader"))
            half = half_of(old)
            await ask(new, half, offset=123_456)
            await new.wait_for(lambda: len(ends(new)) == 1)
        (asked,) = listener.asked
        assert (asked.body, asked.maybe_property("KEYS")) == (b"x" * 9_000, "k")
        assert asked.message_id() == result.msg_id
        assert ends(new) == [
            {
                "producerGroup": GROUP, "commitOrRollback": "8", "msgId": result.msg_id,
                "commitLogOffset": "123456", "tranStateTableOffset": str(half.queue_offset),
                "fromTransactionCheck": "true", "transactionId": result.msg_id,
            }
        ]  # fmt: skip
        assert states(old) == [0]

    run(body)


def test_nobody_is_asked_while_the_local_transaction_runs():
    async def body(cluster):
        broker, gate = cluster.replicas[0], asyncio.Event()
        listener = Listener(COMMIT, checked=ROLLBACK, before=gate.wait)
        async with TransactionProducer(cluster.config(), listener) as producer:
            waiting = asyncio.ensure_future(producer.send_in_transaction(Message(TOPIC, b"x")))
            await until(lambda: listener.executed)
            await ask(broker, half_of(broker))
            await broker.wait_for(lambda: states(broker) == [0])
            gate.set()
            assert (await waiting).state is COMMIT
            await broker.wait_for(lambda: states(broker) == [0, 8])
        assert not listener.asked

    run(body)


def test_who_sends_halves_over_another_connection_is_asked_over_it():
    """The broker was away, and back at the same address: no route tells of it."""

    async def body(cluster):
        broker = cluster.replicas[0]
        listener = Listener(UNKNOWN)
        config = cluster.config(heartbeat_ms=60_000)
        async with TransactionProducer(config, listener) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"1"))
            await broker.wait_for(lambda: GROUP in broker.producers)
            await producer.send_in_transaction(Message(TOPIC, b"2"))
            greeted = len(broker.heartbeats)
            broker.producers.clear()
            for connection in broker.connections:
                connection.abort("gone")
            await until(lambda: not producer.links.addrs)
            await producer.send_in_transaction(Message(TOPIC, b"3"))
            await ask(broker, half_of(broker))
            await until(lambda: listener.asked)
            await producer.send_in_transaction(Message(TOPIC, b"4"))
            assert len(broker.heartbeats) == greeted + 1, "one behind each connection"

    run(body)


def test_a_greeting_that_is_refused_comes_again_with_the_next_half():
    async def body(cluster):
        broker = cluster.replicas[0]
        config = cluster.config(heartbeat_ms=60_000)
        async with TransactionProducer(config, Listener(UNKNOWN)) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"1"))
            await broker.wait_for(lambda: GROUP in broker.producers)
            broker.producers.clear()
            broker.refused_heartbeats = 1
            for connection in broker.connections:
                connection.abort("gone")
            await until(lambda: not producer.links.addrs)
            await producer.send_in_transaction(Message(TOPIC, b"2"))
            await until(lambda: not broker.refused_heartbeats)
            await until(lambda: not any(map(producer._instance._is_greeting, producer.links.addrs)))
            assert GROUP not in broker.producers
            await producer.send_in_transaction(Message(TOPIC, b"3"))
            await until(lambda: GROUP in broker.producers)

    run(body)


def test_of_many_questions_some_are_asked_at_once_and_the_last_place_is_answered():
    async def body(cluster):
        broker, gate = cluster.replicas[0], asyncio.Event()
        listener = Listener(UNKNOWN, checked=COMMIT)
        options = TransactionOptions(checks_max=2)
        async with TransactionProducer(cluster.config(), listener, options) as producer:
            for number in range(5):
                await producer.send_in_transaction(Message(TOPIC, b"%d" % number, sharding_key="k"))
            await broker.wait_for(lambda: len(ends(broker)) == 5)
            listener.before = gate.wait
            for number in range(5):
                await ask(broker, half_of(broker, number), offset=100 + number)
            for number in (0, 4):
                await ask(broker, half_of(broker, number), offset=200 + number)
            await until(lambda: len(listener.asked) == 2)
            await producer.send(Message(TOPIC, b"behind the questions"))
            assert len(listener.asked) == 2
            gate.set()
            await broker.wait_for(lambda: len(ends(broker)) == 10)
            assert len(listener.asked) == 5
        places = sorted(int(fields["commitLogOffset"]) for fields in ends(broker)[5:])
        assert places == [101, 102, 103, 200, 204]
        assert producer.checks.dropped == 0

    run(body)


def test_questions_beyond_what_may_wait_are_dropped_and_counted(monkeypatch):
    async def body(cluster):
        broker, gate = cluster.replicas[0], asyncio.Event()
        listener = Listener(UNKNOWN)
        options = TransactionOptions(checks_max=1)
        async with TransactionProducer(cluster.config(), listener, options) as producer:
            for number in range(4):
                await producer.send_in_transaction(Message(TOPIC, b"%d" % number, sharding_key="k"))
            listener.before = gate.wait
            for number in range(4):
                await ask(broker, half_of(broker, number))
                if not number:
                    await until(lambda: listener.asked)
            await until(lambda: producer.checks.dropped == 2)
            gate.set()
            await until(lambda: len(listener.asked) == 2)

    assert CHECKS_WAITING_MAX == 2_000
    monkeypatch.setattr("ledgermq.client.checks.CHECKS_WAITING_MAX", 1)
    run(body)


def test_questions_to_another_group_and_broken_ones_harm_nobody(caplog):
    async def body(cluster):
        broker, listener = cluster.replicas[0], Listener(UNKNOWN)
        async with TransactionProducer(cluster.config(), listener) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"x"))
            half = half_of(broker)
            own = half.properties
            half.properties = own.replace(b"test-group", b"other-grou")
            await ask(broker, half)
            broker.producers[GROUP].send_oneway(
                RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, body=b"no record")
            )
            half.properties = own
            await ask(broker, half)
            await broker.wait_for(lambda: states(broker) == [0, 8])
        assert len(listener.asked) == 1
        assert "event=check_of_another_group" in caplog.text

    run(body)


def test_a_question_to_another_group_inflates_nothing(monkeypatch):
    inflated = []
    content = MessageExt.content
    monkeypatch.setattr(MessageExt, "content", lambda one: inflated.append(1) or content(one))

    async def body(cluster):
        broker, listener = cluster.replicas[0], Listener(UNKNOWN)
        async with TransactionProducer(cluster.config(), listener) as producer:
            await producer.send_in_transaction(Message(TOPIC, b"x" * 9_000))
            half = half_of(broker)
            assert half.sys_flag & 1
            own = half.properties
            half.properties = own.replace(b"test-group", b"other-grou")
            await ask(broker, half)
            half.properties = own
            await ask(broker, half)
            await broker.wait_for(lambda: states(broker) == [0, 8])
        assert [one.body for one in listener.asked] == [b"x" * 9_000]
        assert inflated == [1]

    run(body)


def test_a_decision_that_cannot_be_sent_is_told(caplog):
    async def body(cluster):
        broker = cluster.replicas[0]

        async def broker_gone():
            for connection in broker.connections:
                connection.abort("gone")
            await broker.stop()
            await until(lambda: not producer.links.addrs)

        producer = TransactionProducer(cluster.config(), Listener(before=broker_gone))
        async with producer:
            result = await producer.send_in_transaction(Message(TOPIC, b"x"))
        assert (result.state, result.told) == (COMMIT, False)
        assert "event=decision_unsent state=COMMIT" in caplog.text

    run(body, replicas=1)


def test_stop_waits_for_the_decision_of_what_is_under_way():
    async def body(cluster):
        broker, gate = cluster.replicas[0], asyncio.Event()
        listener = Listener(before=gate.wait)
        producer = TransactionProducer(cluster.config(), listener)
        await producer.start()
        waiting = asyncio.ensure_future(producer.send_in_transaction(Message(TOPIC, b"x")))
        await until(lambda: listener.executed)
        stopping = asyncio.ensure_future(producer.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        with pytest.raises(NotRunning):
            await producer.send_in_transaction(Message(TOPIC, b"too late"))
        gate.set()
        assert (await waiting).told
        await stopping
        await broker.wait_for(lambda: states(broker) == [8])

    run(body)


def test_stop_waits_for_hanging_listeners_for_a_bounded_time():
    async def body(cluster):
        broker, gate = cluster.replicas[0], threading.Event()

        class Hanging:
            def execute(self, _message, _arg):
                gate.wait(10)
                return COMMIT

            async def check(self, _message):
                await asyncio.Event().wait()

        producer = TransactionProducer(cluster.config(stop_timeout_ms=200), Hanging())
        await producer.start()
        waiting = asyncio.ensure_future(producer.send_in_transaction(Message(TOPIC, b"x")))
        await broker.wait_for(lambda: broker.count(310) == 1)
        other = half_of(broker)
        other.properties = other.properties.replace(b"UNIQ_KEY\x01", b"UNIQ_KEY\x01A")
        await ask(broker, other)
        async with asyncio.timeout(5):
            await producer.stop()
        gate.set()
        assert not (await waiting).told
        assert not states(broker)

    run(body)


def test_cancelling_a_caller_leaves_the_half_to_the_broker():
    async def body(cluster):
        broker, gate = cluster.replicas[0], asyncio.Event()
        listener = Listener(before=gate.wait)
        async with TransactionProducer(cluster.config(), listener) as producer:
            waiting = asyncio.ensure_future(producer.send_in_transaction(Message(TOPIC, b"x")))
            await until(lambda: listener.executed)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            gate.set()
            await ask(broker, half_of(broker))
            await broker.wait_for(lambda: states(broker) == [8])
        assert len(listener.asked) == 1

    run(body)


def test_what_cannot_be_a_transaction_is_refused_before_anything_is_sent():
    async def body(cluster):
        listener = Listener()
        with pytest.raises(InvalidMessage, match="group is blank"):
            TransactionProducer(cluster.config(group=""), listener)
        with pytest.raises(TypeError, match=r"execute\(\.\.\.\)"):
            TransactionProducer(cluster.config(), lambda message, arg: COMMIT)  # type: ignore[arg-type]
        producer = TransactionProducer(cluster.config(), listener)
        with pytest.raises(NotRunning):
            await producer.send_in_transaction(Message(TOPIC, b"x"))
        async with producer:
            with pytest.raises(InvalidMessage, match="delayed"):
                await producer.send_in_transaction(Message(TOPIC, b"x", delay_level=3))
            with pytest.raises(InvalidMessage, match="batches"):
                await producer.send_in_transaction([Message(TOPIC, b"x")])
            with pytest.raises(InvalidMessage, match="reserved"):
                await producer.send_in_transaction(
                    Message(TOPIC, b"x", properties={"PGROUP": "other"})
                )
        async with Producer(cluster.config()) as plain:
            assert not hasattr(plain, "send_in_transaction")
        assert not cluster.replicas[0].count(310)

    run(body)


def test_the_documented_way_to_a_transaction_works():
    """The code of docs/client.md, as it stands there but for the address."""
    section = (ROOT / "docs" / "client.md").read_text().partition("\n## Transactions\n")[2]
    code = section.partition("```python\n")[2].partition("```")[0]

    async def body(cluster):
        broker, stored, said = cluster.replicas[0], {}, []
        ours = code.replace("127.0.0.1:9876", cluster.name_servers[0].addr)
        names = {
            "store_order": lambda key, order: stored.setdefault(key, order) is not None,
            "find_order": stored.get,
            "print": lambda *words: said.append(words),
        }
        compiled = compile(ours, "docs/client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await eval(compiled, names)
        await broker.wait_for(lambda: states(broker) == [8])
        assert list(stored.values()) == [4711]
        assert said == [(COMMIT, next(iter(stored)))]

    run(body)


def test_the_example_keeps_its_database_and_its_messages_together(tmp_path):
    async def body(cluster):
        broker, database = cluster.replicas[0], tmp_path / "orders.db"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "examples/transaction.py", cluster.name_servers[0].addr, TOPIC, "5",
            str(database), cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert states(broker) == [8, 8, 12, 8, 8]
        with contextlib.closing(sqlite3.connect(database)) as opened:
            rows = opened.execute("select id, what from orders").fetchall()
        decided = {fields["msgId"]: int(fields["commitOrRollback"]) for fields in ends(broker)}
        assert {key for key, _ in rows} == {key for key, state in decided.items() if state == 8}
        assert said.decode().count("COMMIT") == 4

    run(body)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (ALL["client-tx-failed-listener-commits"], unknown_becomes_rollback),
        (
            ALL["client-tx-checked-while-it-runs"],
            test_nobody_is_asked_while_the_local_transaction_runs,
        ),
        (
            ALL["client-tx-first-place-answered"],
            test_of_many_questions_some_are_asked_at_once_and_the_last_place_is_answered,
        ),
        (
            ALL["client-tx-unstored-half-executed"],
            test_a_half_on_too_few_disks_is_rolled_back_unexecuted,
        ),
        (
            ALL["client-tx-stop-forgets-decisions"],
            test_stop_waits_for_the_decision_of_what_is_under_way,
        ),
        (
            ALL["client-tx-unknown-over-its-new-connection"],
            test_who_sends_halves_over_another_connection_is_asked_over_it,
        ),
        (
            ALL["client-tx-refused-greeting-counts"],
            test_a_greeting_that_is_refused_comes_again_with_the_next_half,
        ),
    ],
)
def test_planted_bugs_are_found(mutant, check):
    with planted(mutant), pytest.raises((AssertionError, TimeoutError)):
        check()
