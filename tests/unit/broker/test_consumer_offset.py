"""Offsets: answered at once, replicated later, never half of either."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from broker.limits import STATE_ENTRY_BYTES_MAX
from broker.offsets.replication import OffsetReplicator
from broker.state.consumer_offset import OFFSET_MAX, ConsumerOffsetTable
from mutants.patches import BY_TESTS, MUTANTS
from mutants.planting import planted
from store.results import PutStatus
from store.write.uncommitted import LATE

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def table() -> ConsumerOffsetTable:
    return ConsumerOffsetTable()


def replicate(table: ConsumerOffsetTable) -> None:
    for payload in table.take_proposals():
        table.apply(payload)


def test_a_committed_offset_is_answered_at_once(table: ConsumerOffsetTable) -> None:
    assert table.query("g", "T", 0) is None
    assert table.commit("g", "T", 0, 7)
    assert table.query("g", "T", 0) == 7
    assert table.query("g", "T", 1) is None


def test_a_smaller_offset_is_accepted(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 7)
    replicate(table)
    table.commit("g", "T", 0, 3)
    replicate(table)
    assert table.query("g", "T", 0) == 3


def test_what_is_not_replicated_is_dropped_with_the_leadership(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 7)
    replicate(table)
    table.commit("g", "T", 0, 9)
    table.drop_pending()
    assert table.query("g", "T", 0) == 7
    assert table.take_proposals() == []


def test_updates_of_a_second_are_one_proposal(table: ConsumerOffsetTable) -> None:
    for offset in range(100):
        table.commit("g", "T", 0, offset)
        table.commit("g", "T", 1, offset)
    payloads = table.take_proposals()
    assert len(payloads) == 1
    assert payloads[0] == b'{"T@g":{"0":99,"1":99}}'


def fill_with_long_names(table: ConsumerOffsetTable) -> int:
    group, topic = "g" * 255, "t" * 127
    return sum(
        table.commit(f"{number:03}{group[3:]}", f"{name}{topic[1:]}", queue_id, OFFSET_MAX)
        for number in range(200)
        for name in range(5)
        for queue_id in (2**31 - 1, 2**31 - 2)
    )


def test_proposals_are_bounded_in_bytes(table: ConsumerOffsetTable) -> None:
    assert fill_with_long_names(table) == 2_000
    payloads = table.take_proposals()
    assert len(payloads) > 1
    assert max(map(len, payloads)) <= STATE_ENTRY_BYTES_MAX
    for payload in payloads:
        table.apply(payload)
    assert len(table) == 2_000
    assert not table.has_pending


def test_planted_proposals_bounded_by_count_alone_are_found(table: ConsumerOffsetTable) -> None:
    fill_with_long_names(table)
    with planted(BY_TESTS["offset-proposals-by-count"]):
        assert max(map(len, table.take_proposals())) > STATE_ENTRY_BYTES_MAX


def test_proposals_may_be_taken_a_few_at_a_time(table: ConsumerOffsetTable) -> None:
    for queue_id in range(5):
        table.commit("g", "T", queue_id, 1)
    assert table.take_proposals(3) == [b'{"T@g":{"0":1,"1":1,"2":1}}']
    assert table.has_proposals
    assert table.take_proposals(3) == [b'{"T@g":{"3":1,"4":1}}']
    assert not table.has_proposals


def commit_all(table: ConsumerOffsetTable, group: str) -> int:
    """Commit offsets until there is no room; return how many."""
    count = 0
    while table.commit(group, "T", count, 1):
        count += 1
    return count


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ConsumerOffsetTable:
    monkeypatch.setattr("broker.state.consumer_offset.OFFSETS_BYTES_MAX", 100_000)
    return ConsumerOffsetTable()


def test_a_greedy_group_leaves_room_for_others(small: ConsumerOffsetTable) -> None:
    taken = [commit_all(small, group) for group in "abcdefghij"]
    assert taken[0] > taken[1] > taken[-1] > 10
    assert small.room.used < 100_000
    assert small.commit("a", "T", 0, 2), "what it has it may move on"
    assert not small.commit("a", "T", taken[0], 2)


def test_planted_without_shares_one_group_takes_all(small: ConsumerOffsetTable) -> None:
    with planted(BY_TESTS["no-fair-shares"]):
        commit_all(small, "a")
        assert commit_all(small, "b") <= 1


def test_room_is_given_back(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 5)
    one = table.room.used
    assert one > 0
    table.drop_pending()
    assert table.room.used == 0
    table.commit("g", "T", 0, 5)
    table.commit("g", "T", 1, 5)
    replicate(table)
    table.commit("g", "T", 1, 6)
    table.drop_pending()
    assert table.room.used == 2 * one
    other = ConsumerOffsetTable()
    other.restore(table.snapshot())
    assert other.room.used == 2 * one
    for made in (table, other):
        made.apply_forget(b'{"offsets":{"T@g":[0,1,7],"U@g":[0]}}')
        assert (made.room.used, len(made)) == (0, 0)
        assert made.query("g", "T", 0) is None


def test_what_came_since_a_removal_was_proposed_stays(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 5)
    replicate(table)
    table.commit("g", "T", 0, 6)
    table.apply_forget(b'{"offsets":{"T@g":[0]}}')
    assert table.query("g", "T", 0) == 6
    replicate(table)
    assert table.query("g", "T", 0) == 6
    table.apply_forget(b'{"offsets":{"T@g":[0]}}')
    assert table.room.used == 0


def test_an_older_proposal_does_not_hide_a_newer_offset(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 5)
    (first,) = table.take_proposals()
    table.commit("g", "T", 0, 6)
    table.apply(first)
    assert table.query("g", "T", 0) == 6
    replicate(table)
    assert table.query("g", "T", 0) == 6
    assert not table.has_pending


def test_a_refused_proposal_is_due_again(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 5)
    table.commit("g", "T", 1, 1)
    (payload,) = table.take_proposals()
    table.commit("g", "T", 1, 2)
    table.take_proposals()
    table.give_back(payload)
    assert table.take_proposals() == [b'{"T@g":{"0":5}}']


def end_a_proposal(table: ConsumerOffsetTable, status: PutStatus) -> None:
    """Propose an offset, and end that so."""
    settled: list[Callable[[PutStatus], None]] = []
    log = SimpleNamespace(
        writable=True, propose_state=lambda _kind, _payload, done: settled.append(done)
    )
    replicator = OffsetReplicator(table, log, lambda _name, _run: SimpleNamespace(set=bool))
    table.commit("g", "T", 0, 5)
    replicator.tick()
    (done,) = settled
    done(status)


def due_after(table: ConsumerOffsetTable, status: PutStatus) -> list[bytes]:
    """Propose an offset, end that so, and return what is proposed next."""
    end_a_proposal(table, status)
    return table.take_proposals()


@pytest.mark.parametrize(
    "status", sorted(set(PutStatus) - {PutStatus.OK, PutStatus.UNKNOWN}, key=str)
)
def test_what_was_not_put_is_due_again_as_long_as_its_leader_leads(
    table: ConsumerOffsetTable, status: PutStatus
) -> None:
    """A hand-over that comes to nothing refuses what is put meanwhile: the leader goes on."""
    assert due_after(table, status) == [b'{"T@g":{"0":5}}']
    table.drop_pending()
    table.give_back(b'{"T@g":{"0":5}}')
    assert table.take_proposals() == []


@pytest.mark.parametrize("status", sorted(LATE, key=str))
def test_what_is_late_goes_with_its_group(table: ConsumerOffsetTable, status: PutStatus) -> None:
    """A broker on its own says FLUSH_TIMEOUT of what its disk is slow to sync, and it comes."""
    end_a_proposal(table, status)
    assert table.withdraw("g") == {"T@g": [0]}


def test_planted_loss_in_a_hand_over_that_fails_is_found(table: ConsumerOffsetTable) -> None:
    with planted(MUTANTS["refused-amid-a-hand-over"]), pytest.raises(AssertionError):
        test_what_was_not_put_is_due_again_as_long_as_its_leader_leads(table, PutStatus.NOT_LEADER)


def test_an_equal_offset_of_before_does_not_end_what_waits(table: ConsumerOffsetTable) -> None:
    """A group that goes back and forth while the log is slow was left where it had been between."""
    payloads = []
    for offset in (10, 3):
        table.commit("g", "T", 0, offset)
        payloads += table.take_proposals()
    table.commit("g", "T", 0, 10)
    for payload in payloads:
        table.apply(payload)
        assert table.query("g", "T", 0) == 10
    replicate(table)
    assert not table.has_pending
    assert table.query("g", "T", 0) == 10


def test_an_offset_that_is_applied_is_taken_again_where_another_one_follows(
    table: ConsumerOffsetTable,
) -> None:
    table.commit("g", "T", 0, 10)
    replicate(table)
    table.commit("g", "T", 0, 3)
    payloads = table.take_proposals()
    table.drop("T@g", 0)
    table.commit("g", "T", 0, 10)
    for payload in payloads:
        table.apply(payload)
    replicate(table)
    assert table.query("g", "T", 0) == 10


def test_a_proposal_that_is_late_is_in_the_log_all_the_same(table: ConsumerOffsetTable) -> None:
    payloads = []
    for offset in (10, 3):
        table.commit("g", "T", 0, offset)
        payloads += table.take_proposals()
        table.give_back(payloads[-1], may_come=True)
    table.commit("g", "T", 0, 10)
    for payload in payloads:
        table.apply(payload)
        assert table.query("g", "T", 0) == 10
    replicate(table)
    assert table.query("g", "T", 0) == 10


def test_what_was_refused_is_not_waited_for(table: ConsumerOffsetTable) -> None:
    for offset in (10, 3):
        table.commit("g", "T", 0, offset)
        (payload,) = table.take_proposals()
        table.give_back(payload)
    replicate(table)
    assert not table.has_pending
    assert not table._proposed


def test_a_group_that_is_removed_leaves_out_nothing_that_is_on_its_way(
    table: ConsumerOffsetTable,
) -> None:
    """An offset that was proposed came back, where a newer one waited as its group was removed."""
    table.commit("g", "T", 0, 9)
    table.take_proposals()
    table.commit("g", "T", 0, 10)
    assert table.withdraw("g") == {"T@g": [0]}


def test_a_repeated_commit_of_the_applied_offset_costs_nothing(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 5)
    replicate(table)
    table.commit("g", "T", 0, 5)
    assert not table.has_pending
    assert table.take_proposals() == []


def test_a_snapshot_holds_only_what_is_applied(table: ConsumerOffsetTable) -> None:
    table.commit("g", "T", 0, 5)
    replicate(table)
    table.commit("g", "T", 0, 6)
    other = ConsumerOffsetTable()
    other.restore(table.snapshot())
    assert other.query("g", "T", 0) == 5
    assert len(other) == 1


def test_rows_come_in_the_order_of_the_commits_whatever_the_hashes(
    table: ConsumerOffsetTable,
) -> None:
    groups = [f"group{number}" for number in range(20)]
    for group in groups:
        table.commit(group, "orders", 0, 1)
    assert [key for key, _ in table.rows()] == [f"orders@{group}" for group in groups]
    assert list(table.readers()) == [("orders", group) for group in groups]
