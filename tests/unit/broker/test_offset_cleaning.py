"""Offsets that nobody can read are removed on all replicas, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.groups.client_registry import Client, GroupTraits
from broker.leader.services import LeaderServices
from broker.limits import STATE_ENTRY_BYTES_MAX
from broker.offsets.cleaning import ENTRIES_PER_WALK, OffsetCleaner
from broker.state.kinds import StateKind
from broker.state.subscription import GroupChange, GroupRemoval, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange, TopicRemoval
from broker.tables import Tables
from ledgermq.remoting.protocol.bodies import TopicConfig
from ledgermq.runtime.tasks import Supervisor
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import FakeClock, FakeConnection, FakeStore

if TYPE_CHECKING:
    from broker.state.consumer_offset import OffsetMap


class Bench:
    """Tables with topic T of four queues and group g, and a cleaner over them."""

    def __init__(self) -> None:
        self.tables = Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())
        self.log = FakeStore()
        self.cleaner = OffsetCleaner(self.tables, self.log)
        topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        self.apply(StateKind.TOPIC, TopicChange(topic, 1))
        self.apply(StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="g"), 1))
        self.cleaner.tick()

    def apply(self, kind: StateKind, change: object) -> None:
        assert self.tables.state.apply(1, kind.value, msgspec.json.encode(change))

    def put(self, table: OffsetMap) -> None:
        self.apply(StateKind.OFFSET, table)

    def walk(self, times: int = 1) -> int:
        """Walk over all of the table; apply what is proposed and return in how many entries."""
        for _ in range(times):
            self.cleaner.tick()
        proposed, self.log.states = self.log.states, []
        for kind, payload, done in proposed:
            assert len(payload) <= STATE_ENTRY_BYTES_MAX
            assert self.tables.state.apply(1, kind, payload)
            done(PutStatus.OK)
        return len(proposed)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_offsets_of_what_does_not_exist_are_removed(bench: Bench) -> None:
    bench.put(
        {
            "T@g": {0: 1, 3: 1, 4: 1, -1: 1, 2**31: 1},
            "gone@g": {0: 1},
            "T@h": {0: 1},
            "SCHEDULE_TOPIC_XXXX@g": {0: 1},
            "rmq_sys_of_rocketmq@g": {7: 1},
        }
    )
    assert bench.walk(1) == 0
    assert bench.walk(1) == 1
    left = dict(bench.tables.offsets.applied())
    assert left == {"T@g": [0, 3], "SCHEDULE_TOPIC_XXXX@g": [0], "rmq_sys_of_rocketmq@g": [7]}
    assert bench.walk(3) == 0


def offset_in_a_topic_that_is_made_anew() -> int | None:
    """Return where a group goes on in a topic that was deleted with messages in queue 1."""
    bench = Bench()
    bench.cleaner = OffsetCleaner(
        bench.tables, bench.log, holds=lambda topic, queue_id: (topic, queue_id) == ("T", 1)
    )
    bench.put({"T@g": {0: 5, 1: 7}, "T@nobody": {1: 7}})
    bench.apply(StateKind.FORGET_TOPIC, TopicRemoval("T", 2))
    bench.walk(4)
    assert bench.tables.offsets.query("g", "T", 0) is None
    assert bench.tables.offsets.query("nobody", "T", 1) is None
    return bench.tables.offsets.query("g", "T", 1)


def test_a_topic_that_is_made_anew_and_its_groups_go_on_where_they_were() -> None:
    """A group without an offset is told 0, and would read again what it has consumed."""
    assert offset_in_a_topic_that_is_made_anew() == 7
    with planted(BY_TESTS["read-again-in-a-topic-made-anew"]):
        assert offset_in_a_topic_that_is_made_anew() is None


def test_a_queue_that_a_topic_gets_back_goes_on_where_its_groups_were() -> None:
    bench = Bench()
    bench.cleaner = OffsetCleaner(
        bench.tables, bench.log, holds=lambda topic, queue_id: (topic, queue_id) == ("T", 3)
    )
    bench.put({"T@g": {0: 5, 2: 6, 3: 7}})
    narrow = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    bench.apply(StateKind.TOPIC, TopicChange(narrow, 2))
    bench.walk(4)
    assert dict(bench.tables.offsets.rows()) == {"T@g": {0: 5, 3: 7}}


def removals_of_a_key_of_nothing() -> int:
    """How many entries it takes to remove what lies under a key without a topic."""
    bench = Bench()
    bench.put({"T0cg": {0: 1}, "@g": {0: 1}, "T@g": {0: 1}})
    return sum(bench.walk() for _ in range(8))


def test_a_key_without_a_topic_is_removed_once() -> None:
    assert removals_of_a_key_of_nothing() == 1
    with planted(BY_TESTS["offsets-removed-by-another-name"]):
        assert removals_of_a_key_of_nothing() > 3


def test_a_group_that_is_just_being_created_keeps_its_offset(bench: Bench) -> None:
    bench.put({"T@new": {0: 1}})
    assert bench.walk() == 0
    bench.apply(StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="new"), 1))
    assert bench.walk(3) == 0
    assert bench.tables.offsets.query("new", "T", 0) == 1


def left_of_who_comes_back() -> list[str]:
    """What is left of a group that is there again before the second walk over much has ended."""
    bench = Bench()
    bench.put({"T@back": {0: 1}})
    bench.put({f"gone{number}@g": {0: 1} for number in range(6_000)})
    for _ in range(4):  # one walk, and in the next one the offset is found again
        bench.cleaner.tick()
    bench.apply(StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="back"), 1))
    bench.put({"T@back": {0: 7}})
    bench.walk(8)
    return [key for key in bench.tables.offsets.applied_keys() if key.startswith("T@")]


def test_a_group_that_is_back_before_a_walk_has_ended_keeps_its_offset() -> None:
    assert left_of_who_comes_back() == ["T@back"]
    with planted(BY_TESTS["offsets-removed-as-they-were-found"]):
        assert left_of_who_comes_back() == []


def left_of_a_directory() -> list[str]:
    """What is left of the offsets that a broker on its own begins with, and of one of later."""
    bench = Bench()
    bench.cleaner = OffsetCleaner(bench.tables, bench.log, leaves_first=True)
    bench.put({"T@absent": {0: 1, 9: 1}, "lost@g": {0: 1}})
    bench.cleaner.start(1)
    bench.put({"T@h": {0: 1}})
    bench.walk(3)
    return sorted(bench.tables.offsets.applied_keys())


def test_a_broker_on_its_own_leaves_what_it_begins_with() -> None:
    """RocketMQ keeps offsets of groups that are in no table, and so must who takes over."""
    assert left_of_a_directory() == ["T@absent", "lost@g"]
    with planted(BY_TESTS["offsets-of-a-directory-cleaned"]):
        assert left_of_a_directory() == []


def left_of_what_is_deleted() -> list[str]:
    """What is left of the offsets with which a broker began, once topics and groups are deleted."""
    bench = Bench()
    bench.cleaner = OffsetCleaner(bench.tables, bench.log, leaves_first=True)
    topic = TopicConfig(topic_name="U", read_queue_nums=4, write_queue_nums=4)
    bench.apply(StateKind.TOPIC, TopicChange(topic, 1))
    bench.apply(StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="h"), 1))
    bench.put({"U@g": {0: 1}, "T@h": {0: 1}, "T@g": {0: 1, 9: 1}, "lost@g": {0: 1}})
    bench.cleaner.start(1)
    bench.apply(StateKind.FORGET_TOPIC, TopicRemoval("U", 2))
    bench.apply(StateKind.FORGET_GROUP, GroupRemoval("h", 2))
    bench.walk(3)
    return sorted(bench.tables.offsets.applied_keys())


def test_a_broker_on_its_own_leaves_no_offsets_of_what_is_deleted() -> None:
    """A group that is made anew does not go on where the former one was."""
    assert left_of_what_is_deleted() == ["T@g", "lost@g"]
    with planted(BY_TESTS["offsets-of-what-was-deleted-left"]):
        assert left_of_what_is_deleted() == ["T@g", "T@h", "U@g", "lost@g"]


def test_a_group_with_members_keeps_its_offset(bench: Bench) -> None:
    bench.put({"T@h": {0: 1}})
    client = Client(FakeConnection(), "c", 0, 0, 0)
    bench.tables.consumers.register("h", GroupTraits("", "", ""), client, [])
    assert bench.walk(3) == 0


def test_a_follower_removes_nothing(bench: Bench) -> None:
    services = LeaderServices([bench.cleaner], bench.tables.add, Supervisor())
    bench.put({"gone@g": {0: 1}})
    for _ in range(5):
        services._tick(bench.cleaner)
    assert bench.log.states == []
    for term in (1, 3):
        services.on_writable(True, term)
        assert bench.walk(1 if term == 1 else 2) == 0
        services.on_writable(False, term + 1)
    services.on_writable(True, 5)
    assert bench.walk(2) == 0, "what was found in another term does not count"
    assert bench.walk(1) == 1


def test_much_is_removed_in_entries_of_bounded_size(bench: Bench) -> None:
    names = [f"{number:05}{'x' * 120}@{'y' * 250}" for number in range(3_000)]
    bench.put({name: {0: 1} for name in names})
    bench.put({"T@h": dict.fromkeys(range(-20_000, 0), 1), '"@"': {2**63: 1}})
    entries = [bench.walk() for _ in range(240)]
    assert max(entries) == ENTRIES_PER_WALK
    assert len(bench.tables.offsets) == 0
    assert bench.tables.offsets.room.used == 0


def test_planted_never_forgotten() -> None:
    with planted(BY_TESTS["offsets-never-forgotten"]):
        bench = Bench()
        bench.put({"gone@g": {0: 1}})
        assert bench.walk(3) > 0
        assert len(bench.tables.offsets) == 1
