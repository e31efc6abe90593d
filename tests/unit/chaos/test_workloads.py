"""Workloads of every kind: who works, and what the history gets of waiting, order and refusals."""

import asyncio
import contextlib
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker.pulls.sql92 import compile_sql92
from chaos.checker import check_history
from chaos.closing import DELAYED, REFUSED, Closing, _owed, is_kept, keeps_all
from chaos.generator import Op
from chaos.history.payload import encode_body, make_key
from chaos.members import Plan, consumer_specs, producer_specs
from chaos.record import Recorder
from chaos.scenario import DELAYS_MS, MAIN_GROUP, TAGS, WORKLOADS, Scenario, Step, demo
from chaos.workload import consumer
from chaos.workload.consumer import Witnessed
from chaos.workload.producer import Sender
from chaos.workload.transactions import FATES, Decider
from chaos.workload.worker import WorkerSpec
from cli.runs import Workload
from ledgermq.client import (
    ConsumeContext,
    ConsumeStatus,
    HalfMessage,
    MessageQueue,
    TransactionState,
)
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.clock import SystemClock
from mutants.patches import ALL, HARNESS_BUGS
from mutants.planting import planted
from tests.unit.chaos.histories import clean
from tests.unit.chaos.test_word import SPEC, STORED, Library, result_of, sent

QUEUE = MessageQueue("t", "b", 0)
CLUSTER = SimpleNamespace(
    nodes=("n0",), name_server_addrs=lambda: ("ns:1",), client_addr=lambda _: ("h", 1)
)


def plan_of(name: str, tmp_path: Any) -> Plan:
    return Plan(
        scenario=demo(workload=name), run=tmp_path, run_id="ab" * 16, seed=1,
        cluster=CLUSTER, broker_name="b",
    )  # type: ignore[arg-type]  # fmt: skip


class Notes:
    """A recorder that keeps rows."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []

    def write(self, table: str, row: dict[str, Any]) -> None:
        self.rows.append((table, row))

    def write_all(self, table: str, rows: list[dict[str, Any]]) -> None:
        self.rows += [(table, row) for row in rows]

    def of(self, table: str) -> list[dict[str, Any]]:
        return [row for name, row in self.rows if name == table]


def message(seq: int, times: int = 0) -> MessageExt:
    key = make_key(1, seq)
    return MessageExt(
        topic="t", queue_id=0, flag=0, sys_flag=0, queue_offset=seq, physical_offset=0,
        born_timestamp=0, born_host=b"", store_timestamp=0, store_host=b"",
        reconsume_times=times, prepared_offset=0, properties=b"",
        body=encode_body(bytes(16), key, 64),
    )  # fmt: skip


def hear(spec: WorkerSpec, *messages: MessageExt) -> tuple[ConsumeStatus, ConsumeContext, Notes]:
    notes, context = Notes(), ConsumeContext(QUEUE)
    seen = Witnessed(spec, notes, SystemClock())  # type: ignore[arg-type]
    status = asyncio.run(seen.listen(list(messages), context))
    return status, context, notes


@pytest.mark.parametrize("name", WORKLOADS)
def test_members_of_every_workload_have_names_and_numbers_of_their_own(name, tmp_path):
    plan = plan_of(name, tmp_path)
    specs = [*producer_specs(plan), *consumer_specs(plan)]
    assert len({spec.worker for spec in specs}) == len({spec.name for spec in specs}) == len(specs)
    assert set(plan.modes) == set(plan.consumed)
    assert plan.consumed[MAIN_GROUP] == plan.topics
    assert {spec.history_group for spec in consumer_specs(plan)} <= set(plan.consumed)


def test_each_member_of_a_broadcast_is_a_group_of_its_own_in_the_history(tmp_path):
    plan = plan_of("broadcast", tmp_path)
    cast = [spec for spec in consumer_specs(plan) if spec.mode == "broadcast"]
    groups = [spec.history_group for spec in cast]
    assert groups == ["chaos-cast@chaos-cast-0", "chaos-cast@chaos-cast-1"]
    assert {spec.group for spec in cast} == {"chaos-cast"}
    assert [plan.modes[group] for group in groups] == ["broadcast"] * 2
    _, _, notes = hear(cast[0], message(1))
    assert notes.of("deliveries")[0]["grp"] == groups[0]


def test_every_nth_message_waits_and_its_place_is_not_told(monkeypatch):
    spec = msgspec.structs.replace(
        SPEC, chosen_queues=0, delay_every=1, delay_levels=(2, 5), delays_ms=DELAYS_MS
    )
    monkeypatch.setattr("tests.unit.chaos.test_word.SPEC", spec)
    row = sent(result_of(STORED))
    assert (row["kind"], row["delay_ms"]) == ("delay", DELAYS_MS[4])
    assert (row["queue_id"], row["queue_offset"], row["msg_id"]) == (None, None, "id")


def test_who_chooses_a_queue_sends_a_shard():
    row = sent(result_of(STORED))
    assert (row["kind"], row["shard_key"], row["asked_queue"]) == ("orderly", "6", 2)


def test_level_goes_to_the_library():
    spec = msgspec.structs.replace(SPEC, delay_every=1, delay_levels=(2,), chosen_queues=0,
                                   delays_ms=DELAYS_MS)  # fmt: skip
    given: list[Any] = []

    class Heard(Library):
        async def send(self, message: Any, queue: object, **options: object) -> Any:
            given.append(message)
            return await super().send(message, queue, **options)

    sender = Sender(spec, Heard(result_of(STORED)), SystemClock())  # type: ignore[arg-type]
    op = Op(f="send", value={"size": 200}, process=6)
    asyncio.run(sender.invoke(op, sender.prepare(op)))
    assert [message.delay_level for message in given] == [2]


def test_what_is_refused_for_good_climbs_the_ladder():
    spec = msgspec.structs.replace(
        SPEC, refuse_every=1, reconsume_max=2, delays_ms=(10, 20, 30, 40, 50)
    )
    for times, wait_ms in ((0, 30), (1, 40), (2, 50), (9, 50)):
        status, context, notes = hear(spec, message(3, times))
        assert status is ConsumeStatus.RECONSUME_LATER
        assert context.delay_level == 0, "the brokers count"
        (nack,) = notes.of("acks")
        assert (nack["kind"], nack["reconsume"], nack["delay_ms"]) == ("nack", times, wait_ms)
        assert nack["msg_key"] == make_key(1, 3)


def test_who_refuses_once_names_another_level_each_time():
    spec = msgspec.structs.replace(SPEC, fail_every=1, delays_ms=DELAYS_MS)
    notes, levels = Notes(), []
    seen = Witnessed(spec, notes, SystemClock())  # type: ignore[arg-type]
    for number in range(4):
        context = ConsumeContext(QUEUE)
        with contextlib.suppress(consumer.ListenerFailedError):
            asyncio.run(seen.listen([message(number)], context))
        levels.append(context.delay_level)
    assert levels == [1, 2, 5, 1]
    waits_ms = [nack["delay_ms"] for nack in notes.of("acks")]
    assert waits_ms == [DELAYS_MS[level - 1] for level in levels]
    usual_ms = DELAYS_MS[consumer.LADDER_FROM - 1]
    assert max(waits_ms) > usual_ms, "a broker that takes the usual level is too early"


def test_orderly_call_takes_a_moment_and_waits_as_it_says():
    spec = msgspec.structs.replace(SPEC, mode="orderly", fail_every=1, delays_ms=DELAYS_MS)
    status, context, notes = hear(spec, message(1), message(2))
    assert status is ConsumeStatus.RECONSUME_LATER
    rows, nacks = notes.of("deliveries"), notes.of("acks")
    assert all(row["t_proc_begin"] < row["t_proc_end"] for row in rows)
    assert len({row["op_id"] for row in rows}) == 1
    assert [nack["delay_ms"] for nack in nacks] == [context.suspend_ms] * 2
    assert hear(spec, message(1, times=1))[0] is ConsumeStatus.CONSUME_SUCCESS


class Asleep(SystemClock):
    """A clock that goes on only while somebody sleeps."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_each_other_refusal_is_raised_and_long_calls_come_now_and_then(monkeypatch, mode):
    clock = Asleep()
    monkeypatch.setattr(consumer, "HELD_LONG_S", 0.05)
    monkeypatch.setattr(consumer, "asyncio", SimpleNamespace(sleep=clock.sleep))
    spec = msgspec.structs.replace(SPEC, mode=mode, fail_every=1, delays_ms=DELAYS_MS)
    notes = Notes()
    seen = Witnessed(spec, notes, clock)  # type: ignore[arg-type]
    for _ in range(2):
        status = asyncio.run(seen.listen([message(1)], ConsumeContext(QUEUE)))
        assert status is ConsumeStatus.RECONSUME_LATER
        with pytest.raises(consumer.ListenerFailedError):
            asyncio.run(seen.listen([message(1)], ConsumeContext(QUEUE)))
    assert len(notes.of("acks")) == len(notes.of("deliveries")) == 4
    took_ns = []
    for _ in range(consumer.LONG_EVERY - 4):
        begun_ns = clock.now_ns
        asyncio.run(seen.listen([message(1, times=1)], ConsumeContext(QUEUE)))
        took_ns.append(clock.now_ns - begun_ns)
    assert took_ns[-1] >= 50_000_000
    assert max(took_ns[:-1]) < 50_000_000
    noted = [row["t_proc_end"] - row["t_proc_begin"] for row in notes.of("deliveries")]
    assert max(noted[:-1]) < 50_000_000
    # What is held by a concurrent listener is on record: a kill leaves no hole in what it got.
    assert (noted[-1] >= 50_000_000) is (mode == "orderly")


def test_drain_waits_for_what_comes_again_and_not_for_dead_letters(tmp_path):
    nack = {"kind": "nack", "grp": "g", "msg_key": 1, "t_inv": 5}
    for times, owed in ((1, 1), (2, 0)):
        raw = tmp_path / str(times)
        with Recorder(raw / "c-0.jsonl") as recorder:
            recorder.write("acks", nack | {"reconsume": times})
        assert _owed(raw, {"g": 2}) == ({REFUSED: 1} if owed else {})
        assert _owed(raw, {}) == {REFUSED: 1}


def test_drain_waits_for_delayed_messages_that_are_stored_and_came_nowhere(tmp_path):
    raw = tmp_path / "raw"
    value = {"topic": "t", "kind": "delay", "body_hash": 0, "body_len": 1}
    with Recorder(raw / "p-0.jsonl") as recorder:
        for key, outcome in ((1, "ok"), (2, "ok"), (3, "info"), (4, "fail")):
            event = {"f": "send", "op_id": key, "process": 1, "t_mono_ns": key}
            recorder.write("events", event | {"type": "invoke", "value": value | {"msg_key": key}})
            recorder.write("events", event | {"type": outcome, "value": {}})
    assert _owed(raw, {}) == {DELAYED: 2}
    with Recorder(raw / "c-0.jsonl") as recorder:
        for group in ("g", "h"):
            recorder.write("deliveries", {"grp": group, "msg_key": 1, "t_proc_end": 9})
    assert _owed(raw, {}) == {DELAYED: 1}


def test_filter_by_properties_chooses_as_the_table_of_tags_says_and_denies_the_unknown(tmp_path):
    plan = plan_of("sql", tmp_path)
    (spec,) = (spec for spec in consumer_specs(plan) if spec.sql)
    (tags,) = plan.subscriptions[spec.group].values()
    (expression,) = spec.expressions.values()
    sender = Sender(producer_specs(plan)[0], Library(result_of(STORED)), SystemClock())  # type: ignore[arg-type]

    def chosen() -> set[str | None]:
        matches, found = compile_sql92(expression).matches, set()
        for _ in TAGS:
            member = sender._make(6, 200)
            sent = sender._message(member, 0)
            if matches(sent.properties):
                found.add(member["tag"])
        return found

    assert chosen() == set(tags) == {"red", "BB"}
    with planted(ALL["not-of-unknown-is-true"]):
        assert chosen() == {"red", "BB", None}


def test_every_producer_of_a_group_tells_the_same_of_a_transaction_and_on_record_first():
    notes, fates = Notes(), []
    decider = Decider(notes, SystemClock())  # type: ignore[arg-type]
    for seq in range(len(FATES)):
        key = make_key(1, seq)
        half = HalfMessage(topic="t", body=b"")
        at_once = asyncio.run(decider.execute(half, key))
        asked = asyncio.run(decider.check(message(seq)))
        assert at_once in {asked, TransactionState.UNKNOWN}
        fates.append((at_once, asked))
    assert len(set(fates)) == 4, "committed and rolled back, at once and when asked"
    rows = notes.of("txn")
    words = [row["answer"] or row["step"] for row in rows]
    assert {row["step"] for row in rows} == {"commit", "rollback", "checkback"}
    assert words.count("commit") == 5
    assert {row["msg_key"] for row in rows} == {make_key(1, seq) for seq in range(len(FATES))}


def test_command_line_offers_every_workload():
    assert [one.value for one in Workload] == list(WORKLOADS)


@pytest.mark.parametrize(
    ("offset", "kept"), [(None, True), (6, False), (7, True), (8, True)], ids=str
)
def test_what_lies_before_the_beginning_of_its_queue_is_not_asked_for(offset, kept):
    send = {"topic": "t", "queue_id": 2, "queue_offset": offset}
    assert is_kept(send, {("t", 2): 7, ("t", 1): 99}) is kept
    assert is_kept(send, {})


def answers_of(scenario: Scenario, begin: int) -> list[dict[str, Any]]:
    """Return what a run says of a queue of which the auditor was told that it begins there."""
    notes = Notes()
    closing = Closing(SimpleNamespace(scenario=scenario, recorder=notes, clock=SystemClock()))  # type: ignore[arg-type]
    closing._begins["t", 2] = begin
    closing.judge_begins()
    return notes.of("answers")


def test_a_queue_begins_with_its_first_message_where_nothing_trims_the_log() -> None:
    def verdict(begin: int) -> str:
        history = clean(answers=answers_of(Scenario(name="s"), begin))
        return check_history(history).results["A50"].verdict

    assert verdict(0) == "valid"
    assert verdict(3) == "invalid"
    with planted(HARNESS_BUGS["queues-may-begin-anywhere"]):
        assert verdict(3) == "valid"


def test_questions_that_nobody_answers_have_an_end(monkeypatch) -> None:
    monkeypatch.setattr("chaos.closing.ANSWER_TIMEOUT_S", 0.01)
    monkeypatch.setattr("chaos.closing.SILENT_S_MAX", 0.05)
    asked, problems = [], []

    async def nobody() -> None:
        asked.append(1)
        raise TimeoutError

    async def ask_for_ever(closing: Closing) -> None:
        while len(asked) < 10_000:
            await closing._answer(nobody)

    parts = SimpleNamespace(
        scenario=Scenario(name="s"), recorder=Notes(), clock=SystemClock(), problems=problems,
        phase=lambda *_: None, plan=SimpleNamespace(consumed={}),
    )  # fmt: skip
    closing = Closing(parts)  # type: ignore[arg-type]
    monkeypatch.setattr(closing, "_ask_messages", lambda: ask_for_ever(closing))
    asyncio.run(closing.ask())
    assert "the rest were not asked" in problems[0]
    assert len(asked) < 100


def test_a_log_may_lose_its_beginning_where_a_fault_trims_it_or_a_slave_began_later() -> None:
    trims = Scenario(name="s", timeline=(Step(do="start", name="trim-1", kind="trim"),))
    assert not keeps_all(trims)
    assert answers_of(trims, 3) == answers_of(Scenario(name="s", mode="async-master"), 3) == []


def test_the_log_of_a_consumer_is_about_what_it_did_not_raise_itself():
    def logged(error):
        told = None if error is None else (type(error), error, None)
        record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "event=x", (), told)
        return consumer.is_unplanned(record)

    assert logged(KeyError("x"))
    assert logged(None)
    assert not logged(consumer.ListenerFailedError())


def test_workers_outlast_the_phases_of_their_run(tmp_path):
    """One that ends when its time is up has died amid the run: the verdict is unknown by that."""
    long = replace(demo(), warmup_s=900.0, baseline_s=900.0, quiesce_s=900.0)
    plan = replace(plan_of("plain", tmp_path), scenario=long)
    phases_s = 2_700 + long.timeline_s_max + long.drain_s_max
    assert plan.spec("producer-0", 1).seconds_max > phases_s
