"""Leaders, votes and terms are judged across restarts."""

from typing import Any

import pytest

from dledger.core.messages import PreVoteRequest, VoteReply, VoteRequest
from dledger.core.model import Role
from sim.oracles.base import Violation
from sim.oracles.election import ElectionSafety, Votes
from sim.oracles.replica import Change, Replica


class Standing(Replica):
    """A replica whose key is given."""

    def __init__(self, name: str, term: int = 0, incarnation: int = 1) -> None:
        super().__init__(name, 1)
        self.incarnation = incarnation
        self.given: Any = (Role.FOLLOWER, term, -1, -1, 0, -1, -1)

    def read_key(self) -> Any:
        return self.given


def became(role: Role, term: int, before_term: int = 0) -> Change:
    return Change(
        (Role.FOLLOWER, before_term, -1, -1, 0, -1, -1), (role, term, -1, -1, 0, -1, -1), -1, -1
    )


def test_a_term_has_one_leader():
    oracle = ElectionSafety()
    oracle.on_change(Standing("n0"), became(Role.LEADER, 3))
    oracle.on_change(Standing("n1"), became(Role.LEADER, 4))
    oracle.on_change(Standing("n1"), became(Role.FOLLOWER, 3))
    with pytest.raises(Violation, match="term 3 has two leaders"):
        oracle.on_change(Standing("n1"), became(Role.LEADER, 3))


def test_a_leader_that_restarts_must_not_lead_its_old_term():
    oracle = ElectionSafety()
    oracle.on_change(Standing("n0"), became(Role.LEADER, 3))
    with pytest.raises(Violation, match="life 2"):
        oracle.on_change(Standing("n0", incarnation=2), became(Role.LEADER, 3))


def test_a_vote_is_given_once_in_a_term():
    votes = Votes()
    replica = Standing("n2")
    votes.on_message(replica, VoteReply("n2", "n0", 5, granted=True))
    votes.on_message(replica, VoteReply("n2", "n0", 5, granted=True))
    votes.on_message(replica, VoteReply("n2", "n1", 5, granted=False))
    votes.on_message(replica, VoteReply("n2", "n1", 6, granted=True))
    with pytest.raises(Violation, match="for n0 and for n1"):
        votes.on_message(replica, VoteReply("n2", "n1", 5, granted=True))


def test_a_candidate_votes_for_itself():
    votes = Votes()
    replica = Standing("n2")
    votes.on_message(replica, VoteReply("n2", "n0", 5, granted=True))
    with pytest.raises(Violation, match="A31"):
        votes.on_message(replica, VoteRequest("n2", "n1", 5, last_index=3, last_term=2))


def test_a_term_that_was_told_must_survive_a_restart():
    votes = Votes()
    votes.on_message(Standing("n1"), VoteReply("n1", "n0", 5, granted=False))
    votes.on_boot(Standing("n1", term=5))
    with pytest.raises(Violation, match="A32"):
        votes.on_boot(Standing("n1", term=4))


def test_a_planned_term_need_not_survive():
    votes = Votes()
    votes.on_message(Standing("n1"), PreVoteRequest("n1", "n0", 9, last_index=3, last_term=2))
    votes.on_boot(Standing("n1", term=4))


def test_a_wiped_replica_is_another_one():
    votes = Votes()
    replica = Standing("n1")
    votes.on_message(replica, VoteReply("n1", "n0", 5, granted=True))
    replica.is_wiped = True
    votes.on_boot(replica)
    votes.on_message(replica, VoteReply("n1", "n2", 5, granted=True))


def test_a_term_never_falls_within_a_life():
    with pytest.raises(Violation, match="from term 7 to 6"):
        Votes().on_change(Standing("n1"), became(Role.FOLLOWER, 6, before_term=7))
