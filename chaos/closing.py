"""The end of a run: the groups read the rest, the auditor reads all, and questions are asked.

When everything is quiet the system can be asked what it knows, and each answer has one right value
by what is recorded elsewhere: where a group has come to, which message an id or a key names, who
leads; and where nothing of a log may go, a queue begins with its first message. They become rows of
``answers``, for the checkers to judge.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from chaos.catalogue.contracts import RAFT
from chaos.catalogue.kinds import Takes
from chaos.convert import make_sends
from chaos.history.payload import decode_body
from chaos.nemesis.wait import until
from chaos.net.wire import StatusConnection
from chaos.parts import Parts
from chaos.record import read_recording
from chaos.scenario import STILL_S, Scenario, planned_faults
from chaos.stillness import Stillness
from chaos.workload.audit import GROUP as AUDITOR
from chaos.workload.audit import (
    QueueEnds,
    audit_queue,
    auditor,
    drain_rows,
    in_turns,
    queue_ends,
)
from ledgermq.client import (
    ClientConfig,
    MessageFinder,
    MessageQueue,
    NoRoute,
    PullConsumer,
    RemotingError,
)

REFUSED = "what was refused"
DELAYED = "what was delayed"
SAMPLES = 12
"""Messages of each producer that are asked for by id and by key."""
FINDABLE = ("plain", "orderly")
"""Kinds of messages that one id names from the beginning."""
WAITING = ("delay", "txn")
"""Kinds that lie elsewhere at first: their key names them once they are where they were sent to."""
KEYED = ("batch", *WAITING)
"""Kinds of messages that only a key names."""
DUE_MARGIN_S = 0.5
DLQ_PREFIX = "%DLQ%"
ANSWER_TIMEOUT_S = 5.0
SILENT_S_MAX = 60.0
"""After so long without answers, all questions of the end together, no more are asked."""

ROUTE_OF_TOPIC = 105
TRIM = "trim"
"""The fault that takes the beginning of a log."""


class NobodyAnswers(Exception):  # noqa: N818 - it says what is the matter
    """The questions of the end have waited for long enough."""


class Closing:
    """Closes one run."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ends: dict[MessageQueue, QueueEnds] = {}
        self._begins: dict[tuple[str, int], int] = {}
        self._retried = False
        self._still = Stillness(int(STILL_S * 1e9))
        self._silent_s = 0.0
        """How long questions of the end have waited for answers that did not come."""

    def _topics(self) -> dict[str, tuple[str, ...]]:
        """Return the topics that each group consumes."""
        return self._parts.plan.consumed

    async def drain(self) -> None:
        """Wait until every group has committed everything, then stop the consumers.

        Who has not is waited for as long as it moves; who stands still is put on record.
        """
        parts = self._parts
        parts.phase("drain", "the groups read the rest")
        if parts.scenario.workload.delay_every:  # until the last of what waits is due
            await asyncio.sleep(max(parts.plan.delays_s) + DUE_MARGIN_S)
        async with auditor(parts.cluster.name_server_addrs()) as reader:

            async def drained() -> bool:
                try:
                    self._ends = {
                        queue: ends
                        for topic in parts.plan.topics
                        for queue, ends in (await queue_ends(reader, topic)).items()
                    }
                except RemotingError:
                    self._still.forget()
                    return False
                where = {name: at for name, at, _ in self._late()}
                if self._ends and not where:
                    raw, most = parts.options.run / "raw", parts.plan.reconsume_max
                    begun_ns = parts.clock.monotonic_ns()
                    owed = await asyncio.to_thread(_owed, raw, most)
                    if owed:  # All of a long recording is read each time: let others work as long.
                        await asyncio.sleep((parts.clock.monotonic_ns() - begun_ns) / 1e9)
                    # What was to come may have been on a disk that is gone.
                    where = {} if parts.lost_alone else owed
                    self._retried = REFUSED not in where
                self._still.note(parts.clock.monotonic_ns(), where)
                return bool(self._ends) and not where

            async def over() -> bool:
                return await drained() or self._still.is_over(parts.clock.monotonic_ns())

            if not await until(drained, parts.scenario.drain_s):
                late = "; ".join(f"{name} at {at} of {end}" for name, at, end in self._late())
                late = late or "messages that were refused or delayed did not come"
                if self._still:
                    late += f"; waiting until it moves no more, {STILL_S:.0f} s at the least"
                parts.view.notice(f"not drained: {late}")
                if self._still:  # else nobody tells where the ends are
                    await until(over, STILL_S + parts.scenario.drain_s)
                    self._judge_still()
        await parts.workers.stop("consumer")
        parts.problems += parts.workers.problems

    def _judge_still(self) -> None:
        """Put on record what stands still; where a disk was lost nothing is owed.

        Nor is it to a group without a member: the harness let that end.
        """
        if self._parts.lost_alone:
            return
        still = self._still.still(self._parts.clock.monotonic_ns())
        if REFUSED in still and owes_what_is_refused(self._parts.scenario):
            told = f"{still[REFUSED]} never did, in {STILL_S:.0f} s"
            self._write("drain", REFUSED, "all of it came again", told, {})
            self._retried = True  # it never will: queues are drained, and A1 and A27 can tell
        living = {spec.history_group for spec in self._parts.workers.living("consumer")}
        for name, at, end in self._late():
            group, _, _ = name.rpartition(" ")
            if still.get(name) == at and group in living:
                told = f"at {at} for {STILL_S:.0f} s"
                self._write("drain", name, f"read to {end}", told, {"grp": group})

    def _late(self) -> Iterable[tuple[str, int, int]]:
        """Yield by group and queue how far who has not read to the end has read, and the end."""
        for group, topics in self._topics().items():
            committed = self._parts.workers.committed(group)
            for queue, end in sorted(self._ends.items()):
                at = committed.get(_name(queue), 0)
                if queue.topic in topics and at < end.end_off:
                    yield f"{group} {_name(queue)}", at, end.end_off

    async def audit(self) -> None:
        """Read every queue from its beginning to its end and record the drain facts."""
        parts = self._parts
        parts.phase("audit", f"reading {len(self._ends)} queues from their beginning")
        try:
            async with auditor(parts.cluster.name_server_addrs()) as reader:
                await in_turns(sorted(self._ends), partial(self._audit_queue, reader))
                for group in parts.plan.reconsume_max:
                    await self._read_letters(reader, group)
        except RemotingError as error:
            parts.problem(f"the audit failed: {type(error).__name__}: {error}")

    async def _audit_queue(self, reader: PullConsumer, queue: MessageQueue) -> None:
        """Read one queue, and record its drain facts. Errors: ``RemotingError``."""
        recorder = self._parts.recorder
        final, empty = await audit_queue(reader, queue, recorder, self._parts.clock)
        self._begins[queue.topic, queue.queue_id] = final.min_off
        for row in self._drain_rows(queue, final, empty):
            recorder.write("drain", row)

    async def _read_letters(self, reader: PullConsumer, group: str) -> None:
        """Read what a group refused for the last time; a group that did not has no such topic."""
        try:
            queues = await reader.fetch_subscribe_queues(DLQ_PREFIX + group)
        except NoRoute:
            return

        async def read(queue: MessageQueue) -> None:
            recorder, clock = self._parts.recorder, self._parts.clock
            await audit_queue(reader, queue, recorder, clock, letters_of=group)

        await in_turns(queues, read)

    def _drain_rows(
        self, queue: MessageQueue, final: QueueEnds, empty: int
    ) -> Iterable[dict[str, object]]:
        ends, number = {queue: final}, queue.queue_id
        for group, topics in self._topics().items():
            if queue.topic in topics:
                known = self._parts.workers.committed(group)
                for row in drain_rows(group, ends, {number: known.get(_name(queue), 0)}, empty):
                    # A member that gets everything had the whole run to begin with a queue.
                    never = _name(queue) not in known and self._is_cast(group)
                    row["drained"] = never or (bool(row["drained"]) and self._retried)
                    if self._begins_late(group):
                        begun = self._parts.workers.first(group).get(_name(queue), final.end_off)
                        row["min_off"] = max(final.min_off, begun)
                    yield row
        yield from drain_rows(AUDITOR, ends, {number: final.end_off}, empty)

    def _is_cast(self, group: str) -> bool:
        return self._parts.plan.modes[group] == "broadcast"

    def _begins_late(self, group: str) -> bool:
        groups = self._parts.scenario.workload.groups
        return any(one.name == group and one.from_last for one in groups)

    async def ask(self) -> None:
        """Ask the questions of the end."""
        parts = self._parts
        parts.phase("ask", "offsets, ids, keys and routes, now that all is quiet")
        try:
            for group, topics in self._topics().items():
                if not self._is_cast(group):  # its members keep them
                    await self._ask_offsets(group, topics)
            await self._ask_messages()
            await self._ask_routes()
        except NobodyAnswers:
            parts.problems.append(
                f"of the questions at the end many had no answer for {SILENT_S_MAX:.0f} s, and the"
                " rest were not asked"
            )
        self.judge_begins()

    async def _ask_offsets(self, group: str, topics: tuple[str, ...]) -> None:
        committed = self._parts.workers.committed(group)
        config = self._config(group, "asker")
        async with PullConsumer(config) as consumer:
            for queue in sorted(self._ends):
                name = _name(queue)
                if queue.topic in topics and name in committed:
                    told = await self._answer(partial(consumer.fetch_offset, queue))
                    about = {"topic": queue.topic, "queue_id": queue.queue_id, "grp": group}
                    self._write(
                        "group_offset", f"{group} {name}", str(committed[name]), told, about
                    )

    async def _ask_messages(self) -> None:
        """Ask for messages by the broker's id, and by key."""
        sends = [
            send
            for path in sorted((self._parts.options.run / "raw").glob("producer-*.jsonl"))
            for send in await asyncio.to_thread(_some_sends, path)
        ]
        there = await asyncio.to_thread(_audited, self._parts.options.run / "raw")
        sends = may_be_asked_for(sends, there, is_taken=bool(self._parts.lost_alone))
        sends = [send for send in sends if is_kept(send, self._begins)]
        async with MessageFinder(self._config("chaos-finder", "finder")) as finder:
            for send in sends:
                key, topic = str(send["msg_key"]), str(send["topic"])
                if send["kind"] in FINDABLE:
                    told = await self._answer(partial(finder.by_id, send["msg_id"]), _key_of)
                    self._write("message_by_id", str(send["msg_id"]), key, told, {"topic": topic})
                told = await self._answer(partial(finder.by_key, topic, key), _keys_of)
                self._write("message_by_key", key, key, told, {"topic": topic})

    async def _ask_routes(self) -> None:
        """Ask each name server who leads: it must be the one that the brokers name."""
        parts = self._parts
        leader = next((n for n, s in sorted(parts.statuses.items()) if s.leads), None)
        if leader is None:
            return
        expected = ":".join(map(str, parts.cluster.client_addr(leader)))
        for addr in parts.cluster.name_server_addrs():
            host, _, port = addr.rpartition(":")
            server = StatusConnection(host, int(port))
            for topic in parts.plan.topics:
                told = await self._answer(partial(_leader_of, server, topic))
                self._write("route", f"{topic} at {addr}", expected, told, {"topic": topic})
            server.close()

    def judge_begins(self) -> None:
        """Say that queues begin with 0: what lies before a begin A1 takes for removed."""
        if keeps_all(self._parts.scenario):
            for (topic, number), begin in sorted(self._begins.items()):
                about = {"topic": topic, "queue_id": number}
                self._write("queue_begin", f"{topic}/{number}", "0", str(begin), about)

    def _config(self, group: str, name: str) -> ClientConfig:
        addrs = self._parts.cluster.name_server_addrs()
        return ClientConfig(namesrv_addrs=addrs, group=group, instance_name=name)

    async def _answer(
        self,
        question: Callable[[], Awaitable[Any]],
        words: Callable[[Any], str | None] = lambda told: None if told is None else str(told),
    ) -> str | None:
        """Ask until somebody answers; None if nobody does. Errors: `NobodyAnswers`, in the end."""
        answers: list[Any] = []
        begun_ns = self._parts.clock.monotonic_ns()

        async def answered() -> bool:
            try:
                answers.append(await question())
            except (RemotingError, OSError, EOFError, TimeoutError, ValueError):
                return False
            return True

        await until(answered, ANSWER_TIMEOUT_S)
        if answers:
            return words(answers[0])
        self._silent_s += (self._parts.clock.monotonic_ns() - begun_ns) / 1e9
        if self._silent_s > SILENT_S_MAX:
            raise NobodyAnswers
        return None

    def _write(
        self, kind: str, subject: str, expected: str, told: str | None, more: dict[str, Any]
    ) -> None:
        row = {"kind": kind, "subject": subject, "expected": expected, "told": told, **more}
        row["t"] = self._parts.clock.monotonic_ns()
        self._parts.recorder.write("answers", row)


def keeps_all(scenario: Scenario) -> bool:
    """Tell whether logs keep their beginning: runs are short, so it goes where a fault trims it.

    An empty slave may begin where its master's last file does.
    """
    trims = any(fault.kind.nemesis == TRIM for _, fault in planned_faults(scenario))
    return scenario.mode == RAFT and not trims


def owes_what_is_refused(scenario: Scenario) -> bool:
    """Tell whether what was refused comes again in time.

    It lies in a log like other messages, and waits by a wall clock.
    """
    kinds = [fault.kind for _, fault in planned_faults(scenario)]
    return not any(kind.takes is not Takes.NOTHING or kind.moves_clock for kind in kinds)


def is_kept(send: Mapping[str, Any], begins: Mapping[tuple[str, int], int]) -> bool:
    """Tell whether a message lies where its queue still has messages: others nobody can find.

    ``begins``: the first offset of each queue, by topic and number, as the auditor was told.
    """
    begin = begins.get((send["topic"], send["queue_id"]), 0)
    return send["queue_offset"] is None or send["queue_offset"] >= begin


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.queue_id}"


def _audited(raw: Path) -> set[int]:
    """Return the keys of the messages that the auditor read."""
    rows = read_recording(raw / "harness.jsonl")
    return {row["msg_key"] for _, table, row in rows if table == "deliveries"}


def _some_sends(path: Path) -> list[dict[str, Any]]:
    """Return acknowledged single sends of one producer, of each sort some, spread over the run."""
    events = [row | {"phase": None} for _, table, row in read_recording(path) if table == "events"]
    made = [send for send in make_sends(events, "") if send["outcome"] == "ok"]
    found = []
    for kinds in (FINDABLE, *((kind,) for kind in KEYED)):
        sends = [send for send in made if send["kind"] in kinds]
        found += sends[:: max(1, len(sends) // SAMPLES)][:SAMPLES]
    return found


def may_be_asked_for(
    sends: Sequence[dict[str, Any]], there: Collection[int], *, is_taken: bool
) -> list[dict[str, Any]]:
    """Return the sends whose messages have to be found; ``there``: what the auditor read.

    What went with a disk (``is_taken``) is for A1 to name; what waited and never came, as a
    transaction that was rolled back, is nowhere.
    """
    return [
        send
        for send in sends
        if send["msg_key"] in there or not (is_taken or send["kind"] in WAITING)
    ]


def _owed(raw: Path, most: Mapping[str, int]) -> dict[str, int]:
    """Return how many messages are still to come, by why: `REFUSED` or `DELAYED`, without zeros.

    Refused are those that were not handed to their group again: without what came as often as the
    group allows (``most``), which is a dead letter, and without what the group has accepted once
    (`chaos.checker.service.check_refused`). Delayed are those that no group has had: a clock that
    was set right may make them wait for a minute longer than they were to (docs/delays.md).
    """
    refused: dict[tuple[str, int], int] = {}
    given: dict[tuple[str, int], int] = {}
    accepted: Counter[tuple[str, int]] = Counter()
    waiting: set[int] = set()
    delayed: list[dict[str, Any]] = []
    for path in raw.glob("*-[0-9]*.jsonl"):
        for _, table, row in read_recording(path):
            if table == "acks" and row["kind"] == "nack":
                accepted[row["grp"], row["msg_key"]] -= 1
                if row["reconsume"] >= most.get(row["grp"], row["reconsume"] + 1):
                    continue
                who = (row["grp"], row["msg_key"])
                refused[who] = max(refused.get(who, 0), row["t_inv"])
            elif table == "deliveries":
                who = (row["grp"], row["msg_key"])
                given[who] = max(given.get(who, 0), row["t_proc_end"])
                accepted[who] += 1
            elif table == "events" and row["f"] == "send":
                if row["type"] == "invoke" and row["value"].get("kind") == "delay":
                    waiting.add(row["op_id"])
                if row["op_id"] in waiting:
                    delayed.append(row | {"phase": None})
    again = sum(given.get(who, 0) <= t and accepted[who] <= 0 for who, t in refused.items())
    stored = {send["msg_key"] for send in make_sends(delayed, "") if send["outcome"] == "ok"}
    late = len(stored - {key for _, key in given})
    return {why: count for why, count in ((REFUSED, again), (DELAYED, late)) if count}


def _key_of(message: Any) -> str | None:  # noqa: ANN401 - a message or nothing
    payload = None if message is None else decode_body(message.content() or b"")
    return None if payload is None else str(payload.msg_key)


def _keys_of(messages: Any) -> str | None:  # noqa: ANN401 - messages
    """Return the one key that all messages found have; copies of one message are legal."""
    keys = {_key_of(message) for message in messages}
    return ", ".join(sorted(map(str, keys))) if keys else None


async def _leader_of(server: StatusConnection, topic: str) -> str | None:
    """Return whom a name server gives as the leader of the topic's brokers."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    route = await server.ask(ROUTE_OF_TOPIC, ANSWER_TIMEOUT_S, fields)
    brokers = [broker.get("brokerAddrs") or {} for broker in route.get("brokerDatas") or ()]
    addrs = [told.get("0") for told in brokers]
    return ", ".join(sorted(map(str, addrs))) if addrs else None
