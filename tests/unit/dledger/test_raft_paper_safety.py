"""The rules of the Raft paper on safety (5.4 and later), and of the dissertation; one test each.

Sections are those of "In Search of an Understandable Consensus Algorithm (Extended Version)".
Pre-vote (dissertation 9.6) comes first in every election here.
"""

import pytest

from dledger.core.messages import (
    AppendReply,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import Role
from tests.unit.dledger.cluster import Cluster
from tests.unit.dledger.test_raft_paper import elected, sent

# 5.4 Safety


@pytest.mark.parametrize(
    ("mine", "last_index", "last_term", "granted"),
    [
        ([1, 1, 2], 2, 2, True),  # equal
        ([1, 1, 2], 3, 2, True),  # longer
        ([1, 1, 2], 1, 2, False),  # shorter
        ([1, 1, 2], 0, 3, True),  # later term, however short
        ([1, 1, 2], 9, 1, False),  # earlier term, however long
        ([], -1, 0, True),
    ],
)
def test_voter_denies_its_vote_to_a_log_less_up_to_date(mine, last_index, last_term, granted):
    """5.4.1: the later term wins; with equal last terms the longer log is more up-to-date."""
    cluster = Cluster(3, logs=[mine, [], []])
    cluster.step(PreVoteRequest("n1", "n0", 5, last_index, last_term))
    cluster.step(VoteRequest("n1", "n0", 5, last_index, last_term))
    assert [reply.granted for reply in sent(cluster, PreVoteReply)] == [granted]
    assert [reply.granted for reply in sent(cluster, VoteReply)] == [granted]


def test_leader_commits_only_entries_of_its_term_by_counting():
    """5.4.2: only log entries from the leader's current term are committed by counting replicas."""
    cluster = Cluster(3, logs=[[1, 2], [1, 2], [1]])
    cluster.campaign("n0")
    while cluster["n0"].state.role is not Role.LEADER:
        cluster.deliver()
    cluster.network.clear()
    cluster.step(AppendReply("n1", "n0", 3, 1))
    cluster.step(AppendReply("n2", "n0", 3, 1))
    assert cluster["n0"].state.log.commit_index == -1
    cluster.step(AppendReply("n1", "n0", 3, 2))
    assert cluster["n0"].state.log.commit_index == 2


def test_leader_opens_its_term_with_an_entry():
    """8 (and 5.4.2): a leader commits a blank no-op entry at the start of its term."""
    cluster = elected()
    assert cluster.log("n0") == [(1, b"noop")]
    assert cluster.committed == [(1, b"noop")]


def test_new_leader_has_all_committed_entries():
    """5.4.3, Leader Completeness: whoever lacks a committed entry cannot win."""
    cluster = elected()
    cluster.isolate("n2")
    cluster.propose("n0")
    cluster.stabilize()
    cluster.heal()
    cluster.crash("n0")
    cluster.forget_leader()
    cluster.campaign("n2")
    cluster.stabilize()
    assert cluster["n2"].state.role is not Role.LEADER
    cluster.elect("n1")
    assert cluster.log("n2")[1] == cluster.committed[1]


# 5.5, 6 and the dissertation


def test_requests_are_idempotent():
    """5.5: a follower ignores entries of a repeated AppendEntries that it already has."""
    cluster = elected()
    cluster.propose("n0")
    repeated = list(cluster.network)
    cluster.stabilize()
    before = [list(cluster.log(node)) for node in cluster.ids]
    cluster.network += repeated * 3
    cluster.stabilize()
    assert [cluster.log(node) for node in cluster.ids] == before


def test_vote_request_is_disregarded_while_a_leader_is_heard():
    """6: a server that heard from a current leader neither updates its term nor grants its vote."""
    cluster = elected()
    cluster.network.clear()
    cluster.step(VoteRequest("n2", "n1", 9, 99, 8))
    assert cluster["n1"].state.term == 1
    assert not cluster.network


def test_pre_vote_is_refused_while_a_leader_is_heard():
    """Dissertation 9.6: a server that was cut off must not disturb a healthy cluster."""
    cluster = elected()
    cluster.isolate("n2")
    cluster.tick("n2", 200)
    assert cluster["n2"].state.term == 1, "pre-vote does not raise the term"
    cluster.heal()
    cluster.tick("n2", 40)
    cluster.stabilize()
    assert cluster["n0"].state.role is Role.LEADER
    assert {cluster[node].state.term for node in cluster.ids} == {1}


def test_leader_without_a_majority_steps_down():
    """Dissertation 6.2: a leader steps down if no election timeout passes with a heard majority."""
    cluster = elected()
    cluster.isolate("n0")
    cluster.tick("n0", 19)
    assert cluster["n0"].state.role is Role.LEADER
    cluster.tick("n0", 1)
    assert cluster["n0"].state.role is Role.FOLLOWER


def test_lost_connection_to_the_leader_hastens_the_election():
    """Ours: the hint shortens the wait; pre-vote keeps it harmless while the leader lives."""
    cluster = elected()
    cluster.crash("n0")
    for node in ("n1", "n2"):
        cluster.do(node, lambda raft: raft.unreachable("n0"))
    for _ in range(20):
        cluster.tick_all()
        cluster.stabilize()
    assert cluster[cluster.leader()].state.term == 2


def test_lost_connection_to_a_living_leader_does_no_harm():
    """Ours: whoever still hears the leader refuses the pre-vote of the one that does not."""
    cluster = elected()
    cluster.do("n1", lambda raft: raft.unreachable("n0"))
    for _ in range(60):
        cluster.tick_all()
        cluster.stabilize()
    assert {cluster[node].state.term for node in cluster.ids} == {1}
    assert cluster.leader() == "n0"
