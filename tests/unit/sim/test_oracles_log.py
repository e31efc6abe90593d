"""The logs of replicas are compared with each other and with what was committed."""

from typing import Any

import pytest

from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.log import Commits, LeaderCompleteness, LogMatching
from sim.oracles.replica import Change, Mark, Replica
from sim.oracles.truth import Truth

BITS = {"n0": 1, "n1": 2, "n2": 4}
VOTERS = ("n0", "n1", "n2")


class Kept(Replica):
    """A replica that holds marks; its entries are zeros."""

    def __init__(self, name: str, marks: list[Mark]) -> None:
        super().__init__(name, BITS[name])
        self.marks = marks
        self.delivered = -1

    def read_key(self) -> Any:
        return (Role.FOLLOWER, 9, self.delivered, self.last_index, 0, -1, self.delivered)

    def entry_bytes(self, mark: Mark) -> bytes:
        return bytes(max(48, mark.size))


def marks(*terms: int) -> list[Mark]:
    return [Mark(term, 100 * at, 100, 1000 * term + at) for at, term in enumerate(terms)]


def change(
    *, kept: int, old_last: int, role: Role = Role.FOLLOWER, term: int = 9, delivered: int = -1
) -> Change:
    key: Any = (role, term, delivered, 0, 0, -1, delivered)
    return Change(key, key, kept, old_last)


def elected(term: int) -> Change:
    before: Any = (Role.CANDIDATE, term, -1, 0, 0, -1, -1)
    now: Any = (Role.LEADER, term, -1, 0, 0, -1, -1)
    return Change(before, now, 0, 0)


def held_by(truth: Truth, *replicas: Kept) -> None:
    matching = LogMatching(truth, keeps_unsynced=True)
    for replica in replicas:
        matching.on_change(replica, change(kept=-1, old_last=-1))


def test_entries_of_one_index_and_term_must_be_equal():
    truth = Truth(VOTERS)
    held_by(truth, Kept("n0", marks(1, 1)), Kept("n1", marks(1, 2)))
    other = marks(1, 1)
    other[1] = other[1]._replace(crc=5)
    with pytest.raises(Violation, match="A34 log matching: index 1 of term 1"):
        held_by(truth, Kept("n2", other))


def test_what_was_cut_is_held_no_more():
    truth = Truth(VOTERS)
    replica = Kept("n0", marks(1, 1))
    held_by(truth, replica)
    replica.marks = marks(1)
    LogMatching(truth, keeps_unsynced=True).on_change(replica, change(kept=0, old_last=1))
    assert truth.holders == {(0, 1): 1, (1, 1): 0}
    assert truth.ever == {(0, 1): 1, (1, 1): 1}


def test_a_leader_must_not_cut_its_log():
    replica = Kept("n0", marks(1))
    with pytest.raises(Violation, match="append-only"):
        LogMatching(Truth(VOTERS), keeps_unsynced=True).on_change(
            replica, change(kept=0, old_last=1, role=Role.LEADER)
        )


def test_what_was_told_committed_must_not_be_cut():
    replica = Kept("n0", marks(1))
    with pytest.raises(Violation, match="A35 committed then lost"):
        LogMatching(Truth(VOTERS), keeps_unsynced=True).on_change(
            replica, change(kept=0, old_last=1, delivered=1)
        )


def test_a_commit_needs_a_majority_that_holds_the_entry():
    truth = Truth(VOTERS)
    replica = Kept("n0", marks(1, 1))
    held_by(truth, replica)
    commits = Commits(truth, BITS, is_sync=True)
    commits.on_boot(replica)
    with pytest.raises(Violation, match=r"held by \['n0'\]"):
        commits.on_change(replica, change(kept=1, old_last=1, delivered=0))


def test_a_change_of_the_voters_that_came_with_a_commit_does_not_count_for_it():
    truth = Truth(VOTERS)
    first, second = Kept("n0", marks(1, 1)), Kept("n1", marks(1))
    held_by(truth, first, second)
    truth.configurations[1, 1] = ("n0", "n2", "n3")
    commits = Commits(truth, BITS, is_sync=True)
    commits.on_boot(first)
    with pytest.raises(Violation, match=r"held by \['n0', 'n1'\] of voters \['n0', 'n2', 'n3'\]"):
        commits.on_change(first, change(kept=1, old_last=1, delivered=0))
    commits.on_change(first, change(kept=0, old_last=0, delivered=0))
    assert truth.committed == marks(1)


def test_a_commit_of_a_majority_is_the_truth():
    truth = Truth(VOTERS)
    first, second = Kept("n0", marks(1, 1)), Kept("n1", marks(1, 1))
    held_by(truth, first, second)
    commits = Commits(truth, BITS, is_sync=True)
    for replica in (first, second):
        commits.on_boot(replica)
        commits.on_change(replica, change(kept=1, old_last=1, delivered=1))
    assert truth.committed == marks(1, 1)


def test_two_replicas_must_not_commit_different_entries():
    truth = Truth(VOTERS)
    truth.committed, truth.commit_terms = marks(1, 1), [1, 1]
    replica = Kept("n2", marks(1, 2))
    commits = Commits(truth, BITS, is_sync=True)
    commits.on_boot(replica)
    with pytest.raises(Violation, match="A35 state machine safety: index 1"):
        commits.on_change(replica, change(kept=1, old_last=1, delivered=1))


def test_a_leader_must_hold_what_earlier_terms_committed():
    truth = Truth(VOTERS)
    truth.committed, truth.commit_terms = marks(1, 1, 2), [1, 1, 3]
    oracle = LeaderCompleteness(truth)
    oracle.on_change(Kept("n1", marks(1, 1, 2)), elected(4))
    # Elected late in a term below the one that committed entry 2: it need not have it.
    oracle.on_change(Kept("n1", marks(1, 1)), elected(3))
    with pytest.raises(Violation, match="without index 2"):
        oracle.on_change(Kept("n1", marks(1, 1)), elected(4))
