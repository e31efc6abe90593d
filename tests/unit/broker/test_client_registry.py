"""Producers and consumers come, go and fall silent."""

from __future__ import annotations

from dataclasses import dataclass

from broker.client_registry import (
    EXPIRY_MS,
    Client,
    ConsumerRegistry,
    GroupTraits,
    ProducerRegistry,
    Subscription,
)

TRAITS = GroupTraits("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


@dataclass
class FakeConnection:
    id: int


def client(number: int, client_id: str = "c", now_ms: int = 0) -> Client:
    return Client(FakeConnection(number), client_id, 0, 407, now_ms)


def test_a_new_member_or_topic_changes_the_group_and_a_repeat_does_not() -> None:
    registry = ConsumerRegistry()
    wanted = [Subscription("T", version=1)]
    assert registry.register("g", TRAITS, client(1), wanted)
    assert not registry.register("g", TRAITS, client(1), wanted)
    assert registry.register("g", TRAITS, client(2, "d"), wanted)
    assert registry.register("g", TRAITS, client(1), [*wanted, Subscription("U", version=1)])
    assert registry.client_ids("g") == ["c", "d"]


def test_a_subscription_is_replaced_only_by_a_newer_version() -> None:
    registry = ConsumerRegistry()
    registry.register("g", TRAITS, client(1), [Subscription("T", "A", version=2)])
    registry.register("g", TRAITS, client(1), [Subscription("T", "B", version=1)])
    group = registry.get("g")
    assert group is not None
    assert group.subscriptions["T"].expression == "A"
    assert not registry.register("g", TRAITS, client(1), [Subscription("T", "C", version=3)])
    assert group.subscriptions["T"].expression == "C"


def test_topics_no_longer_named_are_removed() -> None:
    registry = ConsumerRegistry()
    registry.register("g", TRAITS, client(1), [Subscription("T"), Subscription("U")])
    assert registry.register("g", TRAITS, client(1), [Subscription("U")])
    group = registry.get("g")
    assert group is not None
    assert list(group.subscriptions) == ["U"]


def test_a_closed_connection_leaves_all_its_groups() -> None:
    registry = ConsumerRegistry()
    registry.register("h", TRAITS, client(1), [])
    registry.register("g", TRAITS, client(1), [])
    registry.register("g", TRAITS, client(2), [])
    assert registry.close(1) == ["g", "h"]
    assert registry.close(1) == []
    assert registry.get("h") is None
    assert [connection.id for connection in registry.connections("g")] == [2]


def test_silent_members_expire() -> None:
    registry = ConsumerRegistry()
    registry.register("g", TRAITS, client(1, now_ms=0), [])
    registry.register("g", TRAITS, client(2, now_ms=10), [])
    assert registry.expire(EXPIRY_MS) == []
    assert registry.expire(EXPIRY_MS + 1) == ["g"]
    assert registry.client_ids("g") == ["c"]


def test_producers_come_and_go() -> None:
    registry = ProducerRegistry()
    registry.register("p", client(1))
    registry.register("p", client(2, now_ms=50))
    registry.close(1)
    assert len(registry.clients("p")) == 1
    assert registry.expire(EXPIRY_MS + 51) == ["p"]
    assert registry.clients("p") == []
    assert not registry.unregister("p", 1)


def test_tags_become_codes_and_a_star_takes_all() -> None:
    assert Subscription.parse("T", "TagA || TagB").codes == frozenset({2598919, 2598920})
    assert Subscription.parse("T", "*").codes is None
    assert Subscription.parse("T", None).codes is None
