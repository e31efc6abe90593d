"""Offsets: answered at once, replicated later, never half of either."""

from __future__ import annotations

import pytest

from broker.consumer_offset import PROPOSAL_OFFSETS_MAX, ConsumerOffsetTable


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


def test_proposals_are_bounded(table: ConsumerOffsetTable) -> None:
    for queue_id in range(PROPOSAL_OFFSETS_MAX + 1):
        table.commit("g", "T", queue_id, 1)
    assert len(table.take_proposals()) == 2


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
