"""Planted bugs at edges, each in the smallest question that it answers otherwise."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from broker import retention_policy
from broker.cluster.registration import Registrar
from broker.modes.plain import PlainRetainedLog
from broker.retention.retained_log import SegmentAges
from broker.retention_policy import Level, RetentionConfig, Situation
from broker.state.consumer_offset import ConsumerOffsetTable
from dledger.core import install, replication
from dledger.core.log import RaftLog
from dledger.core.messages import HeartbeatReply
from dledger.core.model import NodeId, SnapshotId, Span
from dledger.storage import trim
from ledgermq.client import MessageQueue
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.remoting.protocol.bodies import TopicConfigWrapper
from ledgermq.remoting.protocol.command import RemotingCommand
from mutants.patches import ALL
from mutants.planting import planted
from namesrv.route_table import Registration, RouteTable
from store.queues import start
from store.queues.consume_queue import ConsumeQueue
from tests.unit.dledger.test_clocks import DAY, after

if TYPE_CHECKING:
    from collections.abc import Callable

    from mutants.planting import Mutant


class View:
    """A log that was trimmed before entry 5, the first one of term 4; term 5 begins with 7."""

    first_index, last_index, base_term = 5, 9, 3
    snapshot = None

    def term_runs(self) -> list[tuple[int, int]]:
        return [(5, 4), (7, 5)]


def raft_log() -> RaftLog:
    return RaftLog(View(), commit_index=5)  # type: ignore[arg-type]  # what is asked for


def conflict() -> int | None:
    return raft_log().find_conflict(Span(5, 9, 4, 0, b"", b""))


def term_before_the_log() -> int | None:
    return raft_log().term_at(4)


def shared_with_an_older_term() -> int:
    return raft_log().find_at_most(4, 2)


def base_term_of_a_trim() -> int:
    def entry(index: int) -> tuple[int, int, int]:
        return (100, 40, 2) if index == 5 else (60, 40, 1)

    found = trim.plan_trim(SimpleNamespace(bases=[0, 100]), 0, 9, entry)  # type: ignore[arg-type]
    assert found is not None
    return found.base_term


def silent_after_an_answer() -> bool:
    progress: Any = SimpleNamespace(silent=True, sent_tick=1, contact_tick=0, round_heard=0)
    state = SimpleNamespace(progress={"n1": progress}, tick=3, heartbeat_round=4)
    replication.on_heartbeat_reply(state, HeartbeatReply(NodeId("n1"), NodeId("n0"), 4, 1))  # type: ignore[arg-type]
    return bool(progress.silent)


def taken_without_a_snapshot() -> bool:
    """Whether who holds entry 7 of term 4 takes a snapshot up to 7 of term 5 for its own log."""
    log = SimpleNamespace(commit_index=4, last_index=9, term_at=lambda _index: 4)
    state = SimpleNamespace(log=log, staging=None, ack_index=None, events=[], messages=[])
    state.term, state.role, state.leader_id, state.node_id = 6, None, None, "n1"
    wanted = SnapshotId(7, 5, 100, 1)
    message = SimpleNamespace(id=wanted, sender="n0", term=6, data=b"", offset=0)
    install.on_install_snapshot(state, message)  # type: ignore[arg-type]
    return bool(state.ack_index == 7)


def correction() -> int:
    found = after(-DAY, 0, 0)[0]
    return 0 if found is None else found // DAY


def begin_after_a_trim() -> int:
    queue = SimpleNamespace(min_offset=2, max_offset=9)
    log_start = start.LogStart(SimpleNamespace(maybe_make=lambda *_: queue))  # type: ignore[arg-type]
    assert not any(log_start.settle([("T", 0, 5)]))
    return int(queue.min_offset)


def files_dropped() -> list[int]:
    gone: list[int] = []
    files = SimpleNamespace(
        file_bytes=400, file_blocks=1, remove=gone.append, forget_damage=lambda _queue: None
    )
    queue: Any = SimpleNamespace(
        _files=files, min_offset=30, written=1_200, first_file=0, crcs=b"", unchecked=0,
        path=lambda start: start,
    )  # fmt: skip
    ConsumeQueue.drop_files(queue)
    return gone


def closing_times() -> list[int | None]:
    ages = SegmentAges(SimpleNamespace())  # type: ignore[arg-type]  # nothing is read
    ages._stamps = {0: 10, 100: 20}
    return [one.closed_ms for one in ages.segments([0, 100], 200)]


def begins_told() -> list[int]:
    told: list[int] = []

    async def nothing(*_: object) -> None:
        return

    store = SimpleNamespace(
        checkpoints=SimpleNamespace(write=nothing, covered=999),
        log_start=SimpleNamespace(resolve=nothing, advance_to=told.append),
    )
    log = SimpleNamespace(
        config=SimpleNamespace(segment_bytes=100), first_position=0, end_position=950,
        drop_before=lambda _begin: 0,
    )  # fmt: skip
    retained = PlainRetainedLog(log, store, SimpleNamespace(saved_index=999), nothing)  # type: ignore[arg-type]
    asyncio.run(retained.drop_before(250))
    return told


def is_due_at_another_hour() -> bool:
    return retention_policy.is_due(Situation(0, 5, Level.OK), RetentionConfig(hours=(4,)))


class Client:
    """Name servers that answer with a code; ``on_request`` hears of each registration."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.count = 0
        self.on_request: Callable[[], None] = lambda: None

    async def request(self, _addr: str, _command: RemotingCommand, _ms: int) -> RemotingCommand:
        self.count += 1
        if self.count == 1:
            self.on_request()
        return RemotingCommand(self.code)


def registrar(code: int = 0) -> tuple[Registrar, Client]:
    client = Client(code)
    made = Registrar(
        ["ns:1"], client, build=lambda: RemotingCommand(103),
        build_leave=lambda: RemotingCommand(104), on_registered=lambda _answer: True,
        period_ms=30_000,
    )  # fmt: skip
    client.on_request = made.change
    return made, client


def pause_after_a_refusal() -> float:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise asyncio.CancelledError

    made, _ = registrar(code=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("broker.cluster.registration.asyncio.sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(made._serve(made._servers[0]))
    return slept[0]


def registered_after_a_lost_connection() -> bool:
    made, _ = registrar()
    made.connection_lost("ns:1")
    return made._servers[0].changed.is_set()


def registrations_with_a_change_meanwhile() -> int:
    made, client = registrar()

    async def serve() -> None:
        task = asyncio.ensure_future(made._serve(made._servers[0]))
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(serve())
    return client.count


def broker(addr: str = "a:1", term: int = -1, connection: int = 1) -> Registration:
    return Registration(
        broker_id=0, addr=addr, cluster="c", broker_name="b", ha_addr="", raft_term=term,
        topics=TopicConfigWrapper(), connection=connection,
    )  # fmt: skip


def known_after_an_older_connection_ends() -> int:
    table = RouteTable()
    table.register(broker(connection=1), 0)
    table.register(broker(connection=2), 0)
    table.on_connection_closed(1)
    return len(list(table.broker_addrs()))


def older_leader_is_refused() -> bool:
    table = RouteTable()
    table.register(broker(term=5), 0)
    return bool(table.register(broker("b:1", term=4, connection=2), 0).refusal)


def committed_past() -> int | None:
    queue = ProcessQueue(MessageQueue("T", "b", 0), 0)
    messages: list[Any] = [SimpleNamespace(queue_offset=at, body=b"") for at in range(3)]
    queue.put(messages, 3)
    queue.finish(messages[2:])
    return queue.maybe_commit_offset()


def due_after_a_refusal() -> bool:
    table = ConsumerOffsetTable()
    table.commit("g", "T", 0, 7)
    (payload,) = table.take_proposals()
    table.give_back(payload)
    return table.has_proposals


CASES: dict[str, tuple[Mutant, Callable[[], object], object]] = {
    mutant.name: (mutant, ask, right)
    for mutant, ask, right in (
        (ALL["conflict-within-a-span"], conflict, 7),
        (ALL["term-before-the-log-forgotten"], term_before_the_log, 3),
        (ALL["shared-entry-before-the-log"], shared_with_an_older_term, 3),
        (ALL["trim-takes-the-next-term"], base_term_of_a_trim, 1),
        (ALL["silent-for-ever"], silent_after_an_answer, False),
        (ALL["snapshot-over-any-entry"], taken_without_a_snapshot, False),
        (ALL["clock-corrected-the-wrong-way"], correction, 1),
        (ALL["queues-begin-as-before-the-trim"], begin_after_a_trim, 5),
        (ALL["queue-file-dropped-too-early"], files_dropped, [0]),
        (ALL["age-of-the-first-message"], closing_times, [20, None]),
        (ALL["plain-drops-one-segment-more"], begins_told, [200]),
        (ALL["plain-queues-keep-what-is-dropped"], begins_told, [200]),
        (ALL["expires-at-any-hour"], is_due_at_another_hour, False),
        (ALL["registration-tried-once"], pause_after_a_refusal, 0.5),
        (ALL["name-server-that-forgot-us"], registered_after_a_lost_connection, True),
        (ALL["change-during-a-registration"], registrations_with_a_change_meanwhile, 2),
        (ALL["closed-by-an-older-connection"], known_after_an_older_connection_ends, 1),
        (ALL["older-term-takes-the-route"], older_leader_is_refused, True),
        (ALL["finished-out-of-order"], committed_past, 0),
        (ALL["refused-proposal-forgotten"], due_after_a_refusal, True),
    )
}


@pytest.mark.parametrize("name", CASES)
def test_only_the_planted_bug_answers_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "hear_leader", lambda *_: True)
    monkeypatch.setattr(trim, "_maybe_first_index", lambda _data, _base: 5)
    mutant, ask, right = CASES[name]
    assert ask() == right
    with planted(mutant):
        assert ask() != right
