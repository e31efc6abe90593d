"""Producers and consumers come, go and fall silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.fair_share import FairShare
from broker.groups.client_registry import (
    EXPIRY_MS,
    Client,
    ConsumerRegistry,
    GroupTraits,
    ProducerRegistry,
    Subscription,
)
from broker.serving_limits import CLIENTS_BYTES_MAX, CONNECTION_GROUPS_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted

if TYPE_CHECKING:
    import pytest

TRAITS = GroupTraits("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")


@dataclass
class FakeConnection:
    id: int
    slow: bool = False


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


def news_of_another_id() -> bool:
    """Return whether a group is told that a member has another client id: all share by ids."""
    registry = ConsumerRegistry()
    registry.register("g", TRAITS, client(1), [Subscription("T")])
    changed = registry.register("g", TRAITS, client(1, "d"), [Subscription("T")])
    assert registry.client_ids("g") == ["d"]
    assert not registry.register("g", TRAITS, client(1, "d"), [Subscription("T")])
    return changed


def test_a_member_with_another_client_id_changes_the_group() -> None:
    assert news_of_another_id()


def test_a_planted_change_of_a_client_id_that_nobody_is_told_of_is_noticed() -> None:
    with planted(BY_TESTS["another-id-told-to-nobody"]):
        assert not news_of_another_id()


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


def silent_groups_of_a_client(registry: ConsumerRegistry | ProducerRegistry) -> list[str]:
    """Return what expires of a client that named two groups once, and one of them since."""

    def heartbeat(now_ms: int, *names: str) -> None:
        one = client(1, now_ms=now_ms)  # as one heartbeat has it, for all its groups
        for name in names:
            if isinstance(registry, ConsumerRegistry):
                registry.register(name, TRAITS, one, [Subscription("T")])
            else:
                registry.register(name, one)

    heartbeat(0, "g", "left")
    heartbeat(EXPIRY_MS, "g")
    return registry.expire(EXPIRY_MS + 1)


def test_a_member_that_has_left_is_not_heard_of_by_another_group() -> None:
    """Its word that it leaves (35) was lost; its process goes on in another group."""
    assert silent_groups_of_a_client(ConsumerRegistry()) == ["left"]
    assert silent_groups_of_a_client(ProducerRegistry()) == ["left"]
    with planted(BY_TESTS["heard-of-in-another-group"]):
        assert silent_groups_of_a_client(ConsumerRegistry()) == []


def test_a_member_is_heard_of_where_its_address_has_no_room_left() -> None:
    """What a group subscribes to is charged to the address that was heard of last."""
    room = FairShare(CLIENTS_BYTES_MAX)
    registry = ConsumerRegistry(room)
    for now_ms in (0, EXPIRY_MS):
        for number, holder in ((1, "full"), (2, "other")):
            one = client(number, now_ms=now_ms)
            one.holder = holder
            registry.register("g", TRAITS, one, [Subscription("T")])
        if not now_ms:
            room.take("full", CLIENTS_BYTES_MAX // 4)
            assert not room.fits("full")
    assert registry.expire(EXPIRY_MS + 1) == []


def members_after_two_minutes_of_heartbeats() -> list[str]:
    consumers, producers = ConsumerRegistry(), ProducerRegistry()
    for now_ms in range(0, EXPIRY_MS + 1, EXPIRY_MS // 4):
        consumers.register("g", TRAITS, client(1, now_ms=now_ms), [])
        producers.register("p", client(2, "d", now_ms))
    consumers.expire(EXPIRY_MS + 1)
    producers.expire(EXPIRY_MS + 1)
    return consumers.client_ids("g") + [one.client_id for one in producers.clients("p")]


def test_a_member_whose_heartbeats_go_on_does_not_expire() -> None:
    assert members_after_two_minutes_of_heartbeats() == ["c", "d"]


def test_a_planted_member_that_lives_by_its_first_heartbeat_is_found_here() -> None:
    with planted(BY_TESTS["member-by-its-first-heartbeat"]):
        assert members_after_two_minutes_of_heartbeats() == ["d"]


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


def groups_looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the groups that the end of one of 500 connections looks at."""
    registry = ProducerRegistry()
    for number in range(500):
        registry.register(f"g{number}", client(number))
    looked_at: list[str] = []
    unregister = registry.unregister

    def noted(group: str, number: int) -> bool:
        looked_at.append(group)
        return unregister(group, number)

    monkeypatch.setattr(registry, "unregister", noted)
    registry.close(7)
    assert registry.clients("g7") == []
    assert len(registry.clients("g8")) == 1
    return looked_at


def test_the_end_of_a_connection_costs_what_it_was_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups_looked_at(monkeypatch) == ["g7"]
    with planted(BY_TESTS["closing-looks-at-all-groups"]):
        assert len(groups_looked_at(monkeypatch)) == 500


def test_a_connection_is_in_so_many_groups_and_an_address_has_its_share() -> None:
    room = FairShare(CLIENTS_BYTES_MAX)
    registry = ProducerRegistry(room)
    for number in range(CONNECTION_GROUPS_MAX + 5):
        registry.register(f"g{number}", client(1))
    assert registry.clients(f"g{CONNECTION_GROUPS_MAX - 1}")
    assert not registry.clients(f"g{CONNECTION_GROUPS_MAX}")
    registry.close(1)
    assert room.used == 0


def test_subscriptions_of_one_address_take_no_more_than_its_share() -> None:
    room = FairShare(10_000_000)
    registry = ConsumerRegistry(room)
    large = [Subscription("T", "x" * 16_000, version=1)]
    for number in range(1_000):
        registry.register(f"g{number}", TRAITS, client(number), large)
    taken = sum(registry.get(f"g{number}") is not None for number in range(1_000))
    assert 100 < taken < 130
    other = client(5_000)
    other.holder = "192.0.2.1"
    assert registry.register("other", TRAITS, other, large)
    for number in [*range(1_000), 5_000]:
        registry.close(number)
    assert room.used == 0


def test_a_sweep_looks_at_a_slice_and_goes_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.groups.client_registry.SWEEP_MAX", 10)
    registry = ConsumerRegistry()
    for number in range(20):
        registry.register(f"g{number}", TRAITS, client(number), [])
    sizes = [len(registry.expire(EXPIRY_MS + 1)) for _ in range(5)]
    assert sizes == [5, 5, 5, 5, 0]


def texts_held(expression_type: str, consume_type: str) -> int:
    """Return how many groups one address may fill with such texts."""
    registry = ConsumerRegistry(FairShare(10_000_000))
    traits = GroupTraits(consume_type, "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    wanted = [Subscription("T", "*", expression_type, version=1)]
    for number in range(300):
        registry.register(f"g{number}", traits, client(number), wanted)
    return sum(registry.get(f"g{number}") is not None for number in range(300))


def test_every_text_of_a_heartbeat_that_is_kept_is_weighed() -> None:
    assert texts_held("TAG", "CONSUME_PASSIVELY") == 300
    assert texts_held("x" * 100_000, "CONSUME_PASSIVELY") < 30
    assert texts_held("TAG", "x" * 100_000) < 30


def test_without_that_the_kind_of_an_expression_is_free() -> None:
    with planted(BY_TESTS["expression-type-unweighed"]):
        assert texts_held("x" * 100_000, "CONSUME_PASSIVELY") == 300
