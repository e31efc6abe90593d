"""Any sequence of requests that change replicated state: answered, bounded, equal everywhere."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.config import BrokerConfig
from broker.fair_share import FairShare
from broker.limits import LOCKS_MAX, STATE_ENTRY_BYTES_MAX, TOPIC_QUEUES_MAX, TOPICS_BYTES_MAX
from broker.offsets.cleaning import OffsetCleaner
from broker.offsets.replication import OffsetReplicator
from broker.state.snapshot import Snapshot
from broker.state.subscription import group_name_is_valid
from broker.tables import Tables
from ledgermq.remoting.protocol.errors import InvalidHeader, RemoteProtocolError
from ledgermq.runtime.disk import RealDisk
from mutants.patches import ALL
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import FakeClock, FakeConnection, frame, request, smaller
from tests.unit.broker.test_processors import Bench, FakeAlarm

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = tuple[Any, ...]

SMALL = 20_000
LOCKS = smaller(LOCKS_MAX, 40)
TOPICS = smaller(TOPICS_BYTES_MAX, 6_000)

odd = st.one_of(
    st.sampled_from(["", " ", "a/b", "..", "a@b", "%RETRY%g", "x" * 256, "y" * 200_000, "\u00e9"]),
    st.text(max_size=20),
)
topics = st.one_of(st.sampled_from(["T", "U", "TBW102", "new"]), odd)
groups = st.one_of(st.sampled_from(["g", "h", "i"]), odd)
numbers = st.one_of(
    st.integers(-2, 70_000), st.sampled_from([-(2**63), 2**63 - 1, 2**31 - 1, 2**31, 2**70])
)
queue = st.fixed_dictionaries(
    {}, optional={"topic": topics, "queueId": numbers, "brokerName": odd, "more": odd}
)
steps = st.one_of(
    st.tuples(st.just("offset"), groups, topics, numbers, numbers),
    st.tuples(st.just("offsets"), groups, st.integers(1, 300)),
    st.tuples(st.just("lock"), groups, odd, st.lists(queue, max_size=6)),
    st.tuples(st.just("unlock"), groups, odd, st.lists(queue, max_size=6)),
    st.tuples(st.just("lock"), groups, st.just("c"), st.just([{"topic": "U", "queueId": 7}] * 9)),
    st.tuples(st.just("topic"), topics, numbers, numbers, numbers, odd),
    st.tuples(st.just("beat"), st.lists(groups, max_size=4)),
    st.tuples(st.just("time"), st.integers(0, 100_000)),
    st.tuples(st.just("flush"), st.sampled_from([PutStatus.OK, PutStatus.FULL])),
    st.tuples(st.just("clean")),
)


class Hostile:
    """A broker's processors under requests of any content, and a replica that follows."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.tables = self.bench.tables
        self.bench.put_topic("T", 4)
        self.bench.put_topic("U", 5_000)
        self.tables.offsets.room = FairShare(SMALL)
        self.log = self.bench.store
        self.replicator = OffsetReplicator(
            self.tables.offsets, self.log, lambda _, function: FakeAlarm(function)
        )
        self.cleaner = OffsetCleaner(self.tables, self.log)
        self.entries: list[tuple[str, bytes]] = []
        self.connection = FakeConnection()
        self.seen = 0

    def step(self, kind: str, *arguments: Any) -> None:
        getattr(self, kind)(*arguments)
        self.bench.work()
        self.check()

    def answered(self, ask: Callable[[], object]) -> None:
        """Whatever is asked is answered, or refused by an error that the door answers."""
        before = len(self.connection.answers)
        try:
            answer = ask()
        except (InvalidHeader, RemoteProtocolError):
            return
        self.bench.work()
        assert answer is not None or len(self.connection.answers) == before + 1
        remarks = [getattr(answer, "remark", None), *[a.remark for a in self.connection.answers]]
        assert all(len(remark or "") < 2_000 for remark in remarks)
        self.connection.answers.clear()

    def offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        sent = frame(15, commitOffset=offset, **fields)
        self.answered(lambda: self.bench.offset.handle_update(self.connection, sent))
        self.answered(
            lambda: self.bench.offset.handle_query(self.connection, request(14, **fields))
        )

    def offsets(self, group: str, count: int) -> None:
        for queue_id in range(count):
            self.offset(group, "U", queue_id, 1)

    def lock(self, group: str, client: str, queues: list[Any], code: int = 41) -> None:
        body = json.dumps({"consumerGroup": group, "clientId": client, "mqSet": queues}).encode()
        handle = self.bench.lock.handle_lock if code == 41 else self.bench.lock.handle_unlock
        self.answered(lambda: asyncio.run(handle(None, request(code, body))))

    def unlock(self, group: str, client: str, queues: list[Any]) -> None:
        self.lock(group, client, queues, 42)

    def topic(self, name: str, read: int, write: int, perm: int, kind: str) -> None:
        fields = {
            "topic": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm,
            "topicFilterType": kind or "SINGLE_TAG",
        }  # fmt: skip
        handle = self.bench.admin.handle_update_topic
        self.answered(lambda: asyncio.run(handle(None, request(17, **fields))))

    def beat(self, names: list[str]) -> None:
        data = [{"groupName": name} for name in names]
        body = json.dumps({"clientID": "c", "consumerDataSet": data}).encode()
        sent = frame(34, body)
        self.answered(lambda: self.bench.client.handle_heartbeat(self.connection, sent))

    def time(self, ms: int) -> None:
        self.bench.clock.now_ms += ms
        self.tables.locks.expire(self.bench.clock.now_ms)

    def flush(self, status: PutStatus) -> None:
        self.replicator.flush()
        self.finish(status)

    def clean(self) -> None:
        self.cleaner.tick()
        self.finish(PutStatus.OK)

    def finish(self, status: PutStatus) -> None:
        states, self.log.states = self.log.states, []
        for kind, payload, done in states:
            self.note(kind, payload)
            if status is PutStatus.OK:
                assert self.tables.state.apply(1, kind, payload)
                self.entries.append((kind, payload))
            done(status)

    def note(self, kind: str, payload: bytes) -> None:
        assert len(payload) <= STATE_ENTRY_BYTES_MAX, kind

    def check(self) -> None:
        proposed = self.bench.proposer.proposed
        for kind, payload in proposed[self.seen :]:
            self.note(kind.value, payload)
            self.entries.append((kind.value, payload))
        self.seen = len(proposed)
        assert self.tables.offsets.room.used <= SMALL
        assert len(self.tables.locks) <= LOCKS
        assert self.tables.topics.encoded_bytes <= TOPICS + 1_024

    def replica(self) -> Tables:
        """Return the tables of a member that applied the same log."""
        made = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
        other = Bench()
        other.tables = made
        other.put_topic("T", 4)
        other.put_topic("T", 4)  # as the bench does
        other.put_topic("U", 5_000)
        for kind, payload in self.entries:
            assert made.state.apply(1, kind, payload)
        return made


def files(tables: Tables) -> dict[str, bytes]:
    taken = Snapshot("/none", tables.state, RealDisk()).take()
    del taken["queueLock.json"]  # leases run out on each replica by itself
    return taken


def play(script: list[Step]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("broker.state.queue_lock.LOCKS_MAX", LOCKS)
        patch.setattr("broker.state.topic_config.TOPICS_BYTES_MAX", TOPICS)
        hostile = Hostile()
        for step in script:
            hostile.step(*step)
        hostile.flush(PutStatus.OK)
        assert not hostile.tables.offsets.has_pending
        for key, queue_ids in hostile.tables.offsets.applied():
            topic, _, group = key.rpartition("@")
            assert group_name_is_valid(group)
            entry = hostile.tables.topics.get(topic)
            assert entry is not None
            assert all(0 <= queue_id < TOPIC_QUEUES_MAX for queue_id in queue_ids)
        assert files(hostile.tables) == files(hostile.replica())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(st.lists(steps, max_size=25))
def test_hostile_requests_are_answered_and_leave_bounded_state(script: list[Step]) -> None:
    play(script)


@pytest.mark.parametrize(
    ("bug", "step"),
    [
        ("offsets-of-nothing", ("offset", "g", "T", 70_000, 1)),
        ("locks-of-nothing", ("lock", "g", "c", [{"topic": "y" * 200_000, "queueId": 1}])),
        ("any-topic-filter-type", ("topic", "new", 1, 1, 6, "y" * 200_000)),
    ],
)
def test_planted_bugs_are_found(bug: str, step: Step) -> None:
    play([step, ("flush", PutStatus.OK)])
    with planted(ALL[bug]), pytest.raises(AssertionError):
        play([step, ("flush", PutStatus.OK)])
