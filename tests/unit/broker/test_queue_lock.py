"""Leases of orderly consumers, here and at a new leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.state.queue_lock import EXPIRED_PER_TURN, LEASE_MS, LockChange, QueueLockTable
from ledgermq.remoting.protocol.bodies import QueueKey
from mutants.patches import BY_TESTS
from mutants.planting import planted

if TYPE_CHECKING:
    import pytest

Q0, Q1 = QueueKey("b", 0, "T"), QueueKey("b", 1, "T")


def lock(client: str, *queues: QueueKey) -> LockChange:
    return LockChange("g", client, list(queues))


def grant(table: QueueLockTable, client: str, now_ms: int, *queues: QueueKey) -> list[QueueKey]:
    granted = table.grantable(lock(client, *queues), now_ms)
    if granted:
        table.apply_lock(msgspec.json.encode(lock(client, *granted)), now_ms)
    return granted


def test_a_held_queue_is_granted_to_nobody_else_within_the_lease() -> None:
    table = QueueLockTable(lambda: 0)
    assert grant(table, "a", 0, Q0) == [Q0]
    assert grant(table, "b", LEASE_MS - 1, Q0, Q1) == [Q1]
    assert grant(table, "b", LEASE_MS, Q0) == [Q0]


def test_the_owner_renews_its_lease() -> None:
    table = QueueLockTable(lambda: 0)
    grant(table, "a", 0, Q0)
    assert grant(table, "a", LEASE_MS - 1, Q0) == [Q0]
    assert grant(table, "b", LEASE_MS + 5, Q0) == []


def test_a_grant_on_its_way_through_the_log_excludes_others() -> None:
    table = QueueLockTable(lambda: 0)
    change = lock("a", Q0)
    table.propose(change)
    assert table.grantable(lock("b", Q0), 0) == []
    assert table.grantable(lock("a", Q0), 0) == [Q0]
    table.settle(change)
    assert table.grantable(lock("b", Q0), 0) == [Q0]


def granted_behind_an_old_lease() -> list[QueueKey]:
    """Return what a third member gets while the log carries a grant to the second."""
    table = QueueLockTable(lambda: 0)
    grant(table, "a", 0, Q0)
    assert table.grantable(lock("b", Q0), LEASE_MS) == [Q0]
    table.propose(lock("b", Q0))
    return table.grantable(lock("c", Q0), LEASE_MS)


def test_a_grant_on_its_way_excludes_others_where_a_lease_has_run_out() -> None:
    assert granted_behind_an_old_lease() == []


def test_a_planted_old_lease_that_hides_a_grant_is_found_here() -> None:
    with planted(BY_TESTS["old-lease-hides-a-grant"]):
        assert granted_behind_an_old_lease() == [Q0]


def test_only_the_owner_releases() -> None:
    table = QueueLockTable(lambda: 0)
    grant(table, "a", 0, Q0)
    table.apply_unlock(msgspec.json.encode(lock("b", Q0)))
    assert table.owner("g", "T", 0, 1) == "a"
    table.apply_unlock(msgspec.json.encode(lock("a", Q0)))
    assert table.owner("g", "T", 0, 1) is None


def test_a_replica_that_applies_later_ends_the_lease_later() -> None:
    """A new leader inherits the lease and never shortens it."""
    leader, follower = QueueLockTable(lambda: 0), QueueLockTable(lambda: 0)
    payload = msgspec.json.encode(lock("a", Q0))
    leader.apply_lock(payload, 1_000)
    follower.apply_lock(payload, 1_500)
    assert leader.owner("g", "T", 0, 1_000 + LEASE_MS) is None
    assert follower.owner("g", "T", 0, 1_000 + LEASE_MS) == "a"


def test_groups_do_not_meet() -> None:
    table = QueueLockTable(lambda: 0)
    grant(table, "a", 0, Q0)
    assert table.grantable(LockChange("h", "b", [Q0]), 1) == [Q0]


def test_a_restored_lease_starts_anew() -> None:
    table = QueueLockTable(lambda: 0)
    grant(table, "a", 0, Q0)
    other = QueueLockTable(lambda: 500)
    other.restore(table.snapshot())
    assert other.owner("g", "T", 0, 500 + LEASE_MS - 1) == "a"
    other.expire(500 + LEASE_MS)
    assert len(other) == 0


def test_a_greedy_group_leaves_queues_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.state.queue_lock.LOCKS_MAX", 100)
    table = QueueLockTable(lambda: 0)
    queues = [QueueKey("b", number, "T") for number in range(200)]
    taken = []
    for group in "abcdef":
        change = LockChange(group, "c", queues)
        granted = table.grantable(change, 0)
        table.apply_lock(msgspec.json.encode(LockChange(group, "c", granted)), 0)
        assert table.grantable(LockChange(group, "c", granted), 1) == granted
        taken.append(len(granted))
    assert taken[0] == 20
    assert taken[0] > taken[1] > taken[-1] > 0
    table.expire(LEASE_MS)
    assert len(table) == 0
    assert len(table.grantable(LockChange("b", "c", queues), LEASE_MS)) == 20


def test_leases_expire_in_the_order_of_their_renewals() -> None:
    table = QueueLockTable(lambda: 0)
    grant(table, "a", 0, Q0)
    grant(table, "a", 10, Q1)
    grant(table, "a", 20, Q0)
    table.expire(LEASE_MS + 10)
    assert (table.owner("g", "T", 0, 30), table.owner("g", "T", 1, 30)) == ("a", None)
    assert len(table) == 1


def left_after_a_turn() -> int:
    """Have all leases of a group run out together; return how many a turn leaves."""
    table = QueueLockTable(lambda: 0)
    keys = [QueueKey("", number, "T") for number in range(2 * EXPIRED_PER_TURN + 1)]
    table.apply_lock(msgspec.json.encode(LockChange("g", "c", keys)), 0)
    table.expire(LEASE_MS)
    left = len(table)
    while table.expire(LEASE_MS):
        pass
    assert len(table) == 0
    return left


def test_locks_that_end_together_are_dropped_in_many_turns() -> None:
    assert left_after_a_turn() == EXPIRED_PER_TURN + 1


def test_the_planted_bug_drops_them_in_one() -> None:
    with planted(BY_TESTS["all-locks-end-in-one-turn"]):
        assert left_after_a_turn() == 0
