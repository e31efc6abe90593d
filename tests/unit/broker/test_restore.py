"""A snapshot replaces the tables: what it does not hold is gone."""

from __future__ import annotations

import msgspec
import pytest

from broker.state.subscription import (
    SYSTEM_GROUPS,
    GroupChange,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from broker.state.topic_config import TopicTable
from ledgermq.remoting.protocol.bodies import TopicConfig
from mutants.patches import BY_TESTS
from mutants.planting import planted


def topics(*names: str) -> TopicTable:
    table = TopicTable([TopicConfig(topic_name="system")], 1)
    for name in names:
        table._put(TopicConfig(topic_name=name))
    return table


def restored_topics() -> None:
    table, other = topics("a", "b", "c"), topics("b", "d")
    entries = table.entries
    assert b'"a"' in table.encode()
    table.restore(other.snapshot())
    assert table.entries is entries, "the hot path looks into it"
    assert sorted(entries) == ["b", "d", "system"]
    assert table.encoded_bytes == other.encoded_bytes
    assert b'"a"' not in table.encode()


def restored_groups() -> None:
    table = SubscriptionGroupTable(0)
    empty = table.snapshot()
    table.apply(msgspec.json.encode(GroupChange(SubscriptionGroupConfig(group_name="g"), 1)))
    assert table.get("g") is not None
    table.restore(empty)
    assert table.get("g") is None
    assert len(table) == len(SYSTEM_GROUPS)


def test_topics_that_a_snapshot_lacks_are_gone() -> None:
    restored_topics()


def test_groups_that_a_snapshot_lacks_are_gone() -> None:
    restored_groups()


def test_without_that_they_stay() -> None:
    with planted(BY_TESTS["restored-topics-added"]):
        for check in (restored_topics, restored_groups):
            with pytest.raises(AssertionError):
                check()


def test_system_groups_that_a_foreign_snapshot_lacks_stay() -> None:
    table = SubscriptionGroupTable(0)
    table.restore(b'{"dataVersion":{"timestamp":1,"counter":2},"subscriptionGroupTable":{}}')
    assert len(table) == len(SYSTEM_GROUPS)
