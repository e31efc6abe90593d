"""Topics and groups are removed by records of the log, with all offsets of a group."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.limits import STATE_ENTRY_BYTES_MAX
from broker.offsets.removal import AT_ONCE, OffsetRemoval
from broker.state.kinds import StateKind
from broker.state.subscription import GroupChange, GroupRemoval, SubscriptionGroupConfig
from broker.state.topic_config import TopicChange, TopicRemoval
from broker.tables import Tables
from ledgermq.remoting.protocol.bodies import TopicConfig
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.results import PutStatus
from tests.unit.broker.fakes import ApplyingProposer, FakeClock


def make() -> Tables:
    return Tables(BrokerConfig(broker_cluster_name="C", broker_name="b"), FakeClock())


def apply(tables: Tables, kind: StateKind, change: msgspec.Struct) -> None:
    assert tables.state.apply(1, kind.value, msgspec.json.encode(change))


def test_a_topic_goes_with_what_it_took_up_and_again_without_effect() -> None:
    tables = make()
    before = tables.topics.encoded_bytes, tables.topics.encode()
    apply(tables, StateKind.TOPIC, TopicChange(TopicConfig(topic_name="T"), 5))
    for _ in range(2):
        apply(tables, StateKind.FORGET_TOPIC, TopicRemoval("T", 6))
        assert tables.topics.get("T") is None
        assert (tables.topics.encoded_bytes, tables.topics.encode()) == before
    assert tables.topics.data_version.timestamp == 6
    apply(tables, StateKind.FORGET_TOPIC, TopicRemoval("TBW102", 7))
    assert tables.topics.get("TBW102") is not None
    restored = make()
    restored.topics.restore(tables.topics.snapshot())
    assert restored.topics.entries.keys() == tables.topics.entries.keys()


def test_a_removal_is_applied_wherever_the_log_is() -> None:
    with planted(BY_TESTS["deleted-topic-stays-with-followers"]):
        tables = make()
        apply(tables, StateKind.TOPIC, TopicChange(TopicConfig(topic_name="T"), 5))
        apply(tables, StateKind.FORGET_TOPIC, TopicRemoval("T", 6))
        assert tables.topics.get("T") is not None


def test_a_group_goes_unless_it_is_of_the_system() -> None:
    tables = make()
    apply(tables, StateKind.GROUP, GroupChange(SubscriptionGroupConfig(group_name="g"), 5))
    for name in ("g", "g", "TOOLS_CONSUMER"):
        apply(tables, StateKind.FORGET_GROUP, GroupRemoval(name, 6))
    assert tables.groups.get("g") is None
    assert tables.groups.get("TOOLS_CONSUMER") is not None


def removed(tables: Tables, group: str) -> ApplyingProposer:
    proposer = ApplyingProposer(tables.state)
    status = asyncio.run(OffsetRemoval(tables.offsets, proposer).of_group(group))
    assert status is PutStatus.OK
    return proposer


def test_offsets_go_in_entries_that_fit_those_of_other_groups_stay() -> None:
    tables = make()
    applied = {f"T{number}@g": dict.fromkeys(range(2_000), 7) for number in range(5)}
    for key, queues in ({"T@other": {0: 1}} | applied).items():
        tables.offsets.apply(msgspec.json.encode({key: queues}))
    used = tables.offsets.room.used
    proposer = removed(tables, "g")
    assert [*tables.offsets.readers()] == [("T", "other")]
    assert tables.offsets.room.used < used / 100
    assert len(proposer.proposed) > 1
    assert all(len(payload) <= STATE_ENTRY_BYTES_MAX for _, payload in proposer.proposed)


def test_a_removal_has_so_many_entries_under_way_and_stops_at_a_failure() -> None:
    tables = make()
    for number in range(200):
        tables.offsets.apply(msgspec.json.encode({f"T{number}@g": dict.fromkeys(range(200), 7)}))
    asked: list[bytes] = []
    most = under_way = 0

    class Slow:
        async def propose(self, _kind: str, payload: bytes) -> PutStatus:
            nonlocal most, under_way
            asked.append(payload)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return PutStatus.OK if len(asked) <= AT_ONCE else PutStatus.NOT_LEADER

    status = asyncio.run(OffsetRemoval(tables.offsets, Slow()).of_group("g"))
    assert (status, most, len(asked)) == (PutStatus.NOT_LEADER, AT_ONCE, 2 * AT_ONCE)


def test_what_nobody_has_proposed_yet_goes_too_and_what_is_on_its_way() -> None:
    tables = make()
    tables.offsets.commit("g", "T", 0, 5)
    (on_its_way,) = tables.offsets.take_proposals()
    tables.offsets.commit("g", "T", 1, 5)
    tables.offsets.commit("other", "T", 1, 5)

    class Late(ApplyingProposer):
        async def propose(self, kind: str, payload: bytes) -> PutStatus:
            tables.offsets.apply(on_its_way)  # it stands before this in the log
            return await super().propose(kind, payload)

    status = asyncio.run(OffsetRemoval(tables.offsets, Late(tables.state)).of_group("g"))
    assert status is PutStatus.OK
    assert [*tables.offsets.readers()] == [("T", "other")]
    assert tables.offsets.query("g", "T", 0) is None


def left_after_a_refusal(*, is_unknown: bool) -> list[tuple[str, str]]:
    """Return whose offsets there are when a proposal is refused as its group is removed."""
    tables = make()
    used = tables.offsets.room.used
    tables.offsets.commit("g", "T", 0, 5)
    (on_its_way,) = tables.offsets.take_proposals()

    class Refusing(ApplyingProposer):
        async def propose(self, kind: str, payload: bytes) -> PutStatus:
            tables.offsets.give_back(on_its_way, may_come=is_unknown)
            return await super().propose(kind, payload)

    status = asyncio.run(OffsetRemoval(tables.offsets, Refusing(tables.state)).of_group("g"))
    assert status is PutStatus.OK
    for payload in tables.offsets.take_proposals():
        tables.offsets.apply(payload)
    left = [*tables.offsets.readers()]
    assert left or tables.offsets.room.used == used
    return left


@pytest.mark.parametrize("is_unknown", [False, True])
def test_an_offset_that_was_refused_meanwhile_is_not_put_again(is_unknown: bool) -> None:
    assert left_after_a_refusal(is_unknown=is_unknown) == []
    with planted(BY_TESTS["refused-offset-of-a-removed-group"]):
        assert left_after_a_refusal(is_unknown=is_unknown) == [("T", "g")]


def test_offsets_that_were_accepted_a_moment_ago_do_not_come_back() -> None:
    def left() -> list[tuple[str, str]]:
        tables = make()
        tables.offsets.commit("g", "T", 0, 5)
        removed(tables, "g")
        return [*tables.offsets.readers()]

    assert left() == []
    with planted(BY_TESTS["removed-offsets-come-back"]):
        assert left() == [("T", "g")]
