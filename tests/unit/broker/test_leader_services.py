"""Services of the leader: an example through changes of leader, replay and snapshot."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.leader.service import LeaderService
from broker.leader.services import LeaderServices
from broker.offsets.replication import OffsetReplicator
from broker.state.snapshot import Snapshot
from broker.state.table import ReplicatedTable
from broker.table_text import text_in_steps
from broker.tables import Tables
from ledgermq.remoting.protocol.bodies import decode_file
from ledgermq.remoting.protocol.limits import Limit, Scope, Unit
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.tasks import Supervisor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
    from typing import Any

    from store.results import PutStatus

REMINDERS_MAX = Limit(3, "reminders", Unit.COUNT, Scope.GROUP, "2, and none is kept")


class Reminder(msgspec.Struct):
    """A record: ``text`` is due at ``at_ms``; without a time it was delivered."""

    text: str
    at_ms: int | None = None


class Saved(msgspec.Struct):
    reminders: dict[str, int]


class Reminders(ReplicatedTable):
    """What is due when, on every replica."""

    file = "reminders.json"

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        return {"reminder": self._apply}

    def snapshot_steps(self) -> Iterator[bytes]:
        return text_in_steps(lambda part: Saved(dict(part)), list(self.rows.items()))

    def restore(self, data: bytes) -> None:
        self.rows = decode_file(data, Saved).reminders

    def gauges(self) -> Iterable[tuple[Limit, Callable[[], int]]]:
        yield REMINDERS_MAX, lambda: len(self.rows)

    def _apply(self, payload: bytes) -> None:
        reminder = msgspec.json.decode(payload, type=Reminder)
        if reminder.at_ms is None:
            self.rows.pop(reminder.text, None)
        else:
            self.rows[reminder.text] = reminder.at_ms


class Bell(LeaderService):
    """Delivers reminders that are due: the leader alone, from the table that all have."""

    name: ClassVar = "bell"
    period_ms: ClassVar = 50

    def __init__(self, log: Log, clock: FakeClock) -> None:
        self.table = Reminders()
        self._log = log
        self._clock = clock
        self.due: list[tuple[int, str]] | None = None
        """In the order of time; made anew in each term."""

    def tables(self) -> Iterable[ReplicatedTable]:
        return (self.table,)

    def start(self, term: int) -> Coroutine[Any, Any, None] | None:
        assert self.due is None, f"term {term} begins in another one"
        self.due = sorted((at_ms, text) for text, at_ms in self.table.rows.items())
        return None

    def stop(self) -> None:
        self.due = None

    def tick(self) -> None:
        assert self.due is not None
        while self.due and self.due[0][0] <= self._clock.monotonic_ms():
            _, text = self.due.pop(0)
            self._log.append("reminder", Reminder(text))


class Log:
    """What is committed: every replica applies it."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []

    def append(self, kind: str, record: msgspec.Struct) -> None:
        self.records.append((kind, msgspec.json.encode(record)))


class Replica:
    """Tables and services of one broker over a log that it shares."""

    def __init__(self, log: Log, clock: FakeClock, *others: LeaderService) -> None:
        self.log = log
        self.applied = 0
        self.tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), clock)
        self.bell = Bell(log, clock)
        self.tasks = Supervisor()
        self.services = LeaderServices([*others, self.bell], self.tables.add, self.tasks)
        self.snapshot = Snapshot("/none", self.tables.state, RealDisk())

    def replay(self) -> None:
        for kind, payload in self.log.records[self.applied :]:
            assert self.tables.state.apply(self.applied, kind, payload)
            self.applied += 1

    def lead(self, term: int) -> None:
        self.replay()
        self.services.on_writable(True, term)

    def follow(self, term: int) -> None:
        self.services.on_writable(False, term)

    def tick(self) -> None:
        for service in self.services._services:
            self.services._tick(service)


def delivered(log: Log) -> list[str]:
    found = [json.loads(payload) for _, payload in log.records]
    return [one["text"] for one in found if one["at_ms"] is None]


def test_what_is_due_is_delivered_once_whoever_leads() -> None:
    log, clock = Log(), FakeClock()
    first, second = Replica(log, clock), Replica(log, clock)
    now = clock.monotonic_ms()
    for text, at_ms in (("soon", now + 10), ("later", now + 20), ("last", now + 30)):
        log.append("reminder", Reminder(text, at_ms))
    first.tick()
    assert delivered(log) == [], "nobody leads"
    first.lead(1)
    clock.now_ms += 10
    first.tick()
    assert delivered(log) == ["soon"]
    first.follow(2)
    clock.now_ms += 10
    first.tick()
    assert delivered(log) == ["soon"], "it leads no more"
    second.lead(2)
    second.tick()
    assert delivered(log) == ["soon", "later"]
    # 3. A replica without the log takes a snapshot and what came after it, and leads.
    files = second.snapshot.take()
    third = Replica(log, clock)
    third.snapshot.restore(files)
    third.applied = 4
    second.follow(3)
    third.lead(3)
    clock.now_ms += 10
    third.tick()
    assert delivered(log) == ["soon", "later", "last"]
    third.replay()
    assert third.bell.table.rows == {}
    assert third.tables.usage.report()["reminders"] == [0, 3]


def test_a_term_ends_before_the_next_one_begins() -> None:
    replica = Replica(Log(), FakeClock())
    replica.lead(1)
    replica.lead(2)
    assert replica.bell.due == []
    replica.services.stop()
    assert replica.bell.due is None
    with planted(BY_TESTS["service-outlives-its-term"]):
        replica.lead(3)
        replica.follow(4)
        assert replica.bell.due == [], "it runs on, though another one leads"


class Odd(LeaderService):
    """Fails, or takes its time."""

    name: ClassVar = "odd"
    period_ms: ClassVar = 50

    def __init__(self, *, fails: bool = False, gate: asyncio.Event | None = None) -> None:
        self._fails = fails
        self._gate = gate
        self.heard: list[str] = []

    def start(self, term: int) -> Coroutine[Any, Any, None] | None:
        self.heard.append(f"start {term}")
        if self._fails:
            raise ValueError("broken")
        return None if self._gate is None else self._wait(self._gate)

    async def _wait(self, gate: asyncio.Event) -> None:
        await gate.wait()
        self.heard.append("begun")

    def stop(self) -> None:
        self.heard.append("stop")
        if self._fails:
            raise ValueError("broken")

    def tick(self) -> None:
        self.heard.append("tick")

    def before_hand_over(self) -> None:
        self.heard.append("hand over")


def told() -> list[dict[str, Any]]:
    """Return what the loop's exception handler is told from now on."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


def test_a_start_that_fails_keeps_nobody() -> None:
    async def scenario() -> None:
        errors, odd = told(), Odd(fails=True)
        replica = Replica(Log(), FakeClock(), odd)
        replica.lead(1)
        replica.tick()
        replica.services.before_hand_over()
        assert replica.bell.due == []
        replica.follow(2)
        assert replica.bell.due is None
        assert odd.heard == ["start 1", "stop"]
        assert [one["message"] for one in errors] == [
            "the start of odd in term 1", "the end of odd",
        ]  # fmt: skip

    asyncio.run(scenario())


def test_a_slow_start_keeps_nobody_and_ends_with_its_term() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        odd = Odd(gate=gate)
        replica = Replica(Log(), FakeClock(), odd)
        replica.lead(1)
        await asyncio.sleep(0)
        replica.tick()
        assert replica.bell.due == []
        gate.set()
        replica.lead(2)  # before the first start could go on
        replica.tick()
        for _ in range(5):
            await asyncio.sleep(0)
        replica.tick()
        replica.services.before_hand_over()
        assert odd.heard == ["start 1", "stop", "start 2", "begun", "tick", "hand over"]
        await replica.tasks.stop()

    asyncio.run(scenario())


def test_timers_do_nothing_where_nobody_leads() -> None:
    async def scenario() -> None:
        odd = Odd()
        replica = Replica(Log(), FakeClock(), odd)
        replica.services.schedule()
        await asyncio.sleep(0.12)
        assert odd.heard == []
        replica.lead(1)
        await asyncio.sleep(0.12)
        assert set(odd.heard) == {"start 1", "tick"}
        await replica.tasks.stop()

    asyncio.run(scenario())


def test_offsets_that_are_not_replicated_end_with_the_term() -> None:
    tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
    store = StateLog()
    replicator = OffsetReplicator(tables.offsets, store, Supervisor().alarm)
    services = LeaderServices([replicator], tables.add, Supervisor())
    services.on_writable(True, 1)
    tables.offsets.commit("g", "T", 0, 5)
    services.before_hand_over()
    assert store.proposed == [b'{"T@g":{"0":5}}']
    services.on_writable(False, 2)
    assert tables.offsets.query("g", "T", 0) is None


class StateLog:
    """Takes proposals and commits none."""

    writable = True

    def __init__(self) -> None:
        self.proposed: list[bytes] = []

    def propose_state(self, _kind: str, payload: bytes, _done: Callable[[PutStatus], None]) -> None:
        self.proposed.append(payload)


def test_a_table_of_a_service_may_not_take_a_kind_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reminders, "file", "topics.json")
    with pytest.raises(ValueError, match=r"Reminders: topics.json belongs to another table"):
        Replica(Log(), FakeClock())
