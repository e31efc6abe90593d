"""The rules of the Raft paper, one test each, named as the rule; the section is in the docstring.

Sections are those of "In Search of an Understandable Consensus Algorithm (Extended Version)".
Pre-vote (dissertation 9.6) comes first in every election here.
"""

import pytest

from dledger.codec.entry import encode_span
from dledger.config import FlushDiskType
from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import Role
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster


def sent(cluster, kind):
    return [message for message in cluster.network if isinstance(message, kind)]


def elected(size=3, **options):
    cluster = Cluster(size, **options)
    cluster.elect("n0")
    return cluster


# 5.1 Raft basics


@pytest.mark.parametrize("role", list(Role))
def test_server_with_a_smaller_term_updates_it_and_becomes_follower(role):
    """5.1: if one server's current term is smaller than the other's, it takes the larger one."""
    cluster = Cluster(3)
    if role is not Role.FOLLOWER:
        cluster.campaign("n0")
    if role is Role.CANDIDATE:
        cluster.step(PreVoteReply("n1", "n0", 1, granted=True))
    if role is Role.LEADER:
        cluster.stabilize()
    assert cluster["n0"].state.role is role
    cluster.step(Append("n1", "n0", 7, -1, 0, -1, None))
    state = cluster["n0"].state
    assert (state.term, state.role, state.leader_id) == (7, Role.FOLLOWER, "n1")


def test_request_with_a_stale_term_is_rejected():
    """5.1: if a server receives a request with a stale term number, it rejects the request."""
    cluster = Cluster(3)
    cluster.step(Append("n1", "n0", 5, -1, 0, -1, None))
    cluster.network.clear()
    span = encode_span(0, 3, 0, (b"stale",))
    cluster.step(Append("n2", "n0", 3, -1, 0, -1, span))
    cluster.step(Heartbeat("n2", "n0", 3, -1, 1))
    cluster.step(VoteRequest("n2", "n0", 3, 9, 3))
    assert cluster.log("n0") == []
    assert sent(cluster, HeartbeatReply) == [HeartbeatReply("n0", "n2", 5, 0)] * 2
    assert sent(cluster, VoteReply) == [VoteReply("n0", "n2", 5, granted=False)]


def test_reply_with_a_stale_term_is_ignored():
    """5.1: what belongs to an earlier term says nothing about this one."""
    cluster = elected()
    cluster.propose("n0")
    cluster.network.clear()
    before = cluster["n0"].state.log.commit_index
    cluster.step(AppendReply("n1", "n0", 0, 1))
    cluster.step(AppendReply("n2", "n0", 0, 1))
    assert cluster["n0"].state.log.commit_index == before


def test_vote_of_a_stale_term_is_ignored():
    """5.1, likewise: it was given to a candidacy that is over."""
    cluster = Cluster(5)
    cluster.campaign("n0")
    for voter in ("n1", "n2"):
        cluster.step(PreVoteReply(voter, "n0", 1, granted=True))
    assert cluster["n0"].state.role is Role.CANDIDATE
    for voter in ("n1", "n2"):
        cluster.step(VoteReply(voter, "n0", 0, granted=True))
    assert cluster["n0"].state.role is Role.CANDIDATE


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (BY_TESTS["stale-acknowledgement-counted"], test_reply_with_a_stale_term_is_ignored),
        (BY_TESTS["stale-vote-counted"], test_vote_of_a_stale_term_is_ignored),
    ],
)
def test_planted_bug_breaks_the_rule_of_stale_terms(mutant, rule):
    with planted(mutant), pytest.raises(AssertionError):
        rule()


def test_term_is_durable_before_anything_of_it_leaves():
    """5.1, Figure 2: updated on stable storage before responding to RPCs."""
    cluster = Cluster(3)
    raft = cluster["n0"]
    raft.step(VoteRequest("n1", "n0", 4, -1, 0))
    ready = raft.ready()
    assert ready.hard_state == cluster["n0"].state.saved.__class__(4, "n1")
    assert ready.replies == (VoteReply("n0", "n1", 4, granted=True),)
    assert not ready.messages
    assert raft.ready() is None, "one in flight: nothing more leaves before it is on disk"


# 5.2 Leader election


def test_servers_start_as_followers():
    """5.2: when servers start up, they begin as followers."""
    assert all(Cluster(3)[node].state.role is Role.FOLLOWER for node in ("n0", "n1", "n2"))


def test_follower_remains_follower_while_it_hears_a_leader():
    """5.2: a server remains a follower as long as it receives valid RPCs from a leader."""
    cluster = elected()
    for _ in range(100):
        cluster.tick("n1", 10)
        cluster.step(Heartbeat("n0", "n1", 1, -1, 1))
    assert cluster["n1"].state.role is Role.FOLLOWER


def test_leader_sends_heartbeats_to_all():
    """5.2: leaders send periodic heartbeats to all followers."""
    cluster = elected()
    cluster.tick("n0", 4)
    assert {beat.receiver for beat in sent(cluster, Heartbeat)} == {"n1", "n2"}
    cluster.network.clear()
    cluster.tick("n0", 3)
    assert not sent(cluster, Heartbeat)
    cluster.tick("n0")
    assert len(sent(cluster, Heartbeat)) == 2


def test_follower_without_leader_starts_an_election():
    """5.2: no communication over an election timeout: assume no leader and begin an election."""
    cluster = Cluster(3)
    cluster.tick("n0", 40)
    assert {request.receiver for request in sent(cluster, PreVoteRequest)} == {"n1", "n2"}
    cluster.deliver()
    cluster.deliver(1)
    while not sent(cluster, VoteRequest):
        cluster.deliver()
    state = cluster["n0"].state
    assert (state.role, state.term, state.voted_for) == (Role.CANDIDATE, 1, "n0")


@pytest.mark.parametrize(
    ("size", "votes", "role"),
    [(1, 0, Role.LEADER), (3, 0, Role.CANDIDATE), (3, 1, Role.LEADER), (5, 1, Role.CANDIDATE),
     (5, 2, Role.LEADER), (4, 1, Role.CANDIDATE), (4, 2, Role.LEADER)],
)  # fmt: skip
def test_candidate_wins_with_votes_of_a_majority(size, votes, role):
    """5.2: a candidate wins if it receives votes from a majority of the full cluster."""
    cluster = Cluster(size)
    cluster.campaign("n0")
    for number in range(1, size):
        cluster.step(PreVoteReply(f"n{number}", "n0", 1, granted=True))
    for number in range(1, votes + 1):
        cluster.step(VoteReply(f"n{number}", "n0", 1, granted=True))
    assert cluster["n0"].state.role is role


def test_votes_are_counted_by_voter():
    """5.2: each server votes once; a repeated reply is still one vote."""
    cluster = Cluster(5)
    cluster.campaign("n0")
    for number in range(1, 5):
        cluster.step(PreVoteReply(f"n{number}", "n0", 1, granted=True))
    for _ in range(4):
        cluster.step(VoteReply("n1", "n0", 1, granted=True))
    assert cluster["n0"].state.role is Role.CANDIDATE


def test_server_votes_for_at_most_one_candidate_a_term():
    """5.2: each server votes for at most one candidate in a given term, first come first served."""
    cluster = Cluster(3)
    cluster.step(VoteRequest("n1", "n0", 1, -1, 0))
    cluster.step(VoteRequest("n2", "n0", 1, -1, 0))
    cluster.step(VoteRequest("n1", "n0", 1, -1, 0))
    assert [(reply.receiver, reply.granted) for reply in sent(cluster, VoteReply)] == [
        ("n1", True), ("n2", False), ("n1", True),
    ]  # fmt: skip


def test_vote_is_remembered_over_a_restart():
    """5.2, Figure 2: votedFor is persistent."""
    cluster = Cluster(3)
    cluster.step(VoteRequest("n1", "n0", 1, -1, 0))
    cluster.crash("n0", power=True)
    cluster.restart("n0")
    cluster.network.clear()
    cluster.step(VoteRequest("n2", "n0", 1, -1, 0))
    assert sent(cluster, VoteReply) == [VoteReply("n0", "n2", 1, granted=False)]


def test_candidate_returns_to_follower_when_it_hears_a_leader_of_its_term():
    """5.2: a leader whose term is at least as large is legitimate; the candidate follows."""
    cluster = Cluster(3)
    cluster.campaign("n0")
    cluster.step(PreVoteReply("n1", "n0", 1, granted=True))
    cluster.step(Append("n2", "n0", 1, -1, 0, -1, None))
    state = cluster["n0"].state
    assert (state.role, state.leader_id) == (Role.FOLLOWER, "n2")


def test_candidate_continues_when_it_hears_a_leader_of_an_older_term():
    """5.2: if the term in the RPC is smaller, the candidate rejects it and stays candidate."""
    cluster = Cluster(3)
    cluster.campaign("n0")
    cluster.step(PreVoteReply("n1", "n0", 1, granted=True))
    cluster.step(Append("n2", "n0", 0, -1, 0, -1, None))
    assert cluster["n0"].state.role is Role.CANDIDATE


def test_candidate_times_out_and_starts_again():
    """5.2: with split votes each candidate times out and starts a new election."""
    cluster = Cluster(3)
    cluster.campaign("n0")
    cluster.step(PreVoteReply("n1", "n0", 1, granted=True))
    cluster.tick("n0", 40)
    cluster.step(PreVoteReply("n1", "n0", 2, granted=True))
    assert (cluster["n0"].state.role, cluster["n0"].state.term) == (Role.CANDIDATE, 2)


def test_election_timeouts_are_randomized():
    """5.2: election timeouts are chosen randomly from a fixed interval."""
    cluster = Cluster(3)
    seen = set()
    for _ in range(500):
        cluster["n0"].state.restart_election_timer()
        seen.add(cluster["n0"].state.election_timeout)
    assert seen == set(range(20, 41))


def test_split_votes_are_rare():
    """5.2: randomization makes split votes rare and quickly resolved."""
    elections = 0
    for seed in range(50):
        cluster = Cluster(5, seed=seed)
        while not any(cluster[node].state.role is Role.LEADER for node in cluster.ids):
            cluster.tick_all()
            for _ in range(len(cluster.network)):  # one hop takes one tick
                cluster.deliver()
        elections += cluster[cluster.leader()].state.term
    assert elections <= 75


# 5.3 Log replication


def test_leader_appends_to_its_log_and_sends_to_all():
    """5.3: the leader appends the command, then issues AppendEntries in parallel."""
    cluster = elected()
    cluster.propose("n0", b"x")
    assert cluster.log("n0")[-1] == (1, b"x")
    appends = sent(cluster, Append)
    assert {append.receiver for append in appends} == {"n1", "n2"}
    assert all(append.span.first_index == 1 for append in appends)


def test_entry_is_committed_once_a_majority_has_it():
    """5.3: committed once the leader that created the entry has replicated it on a majority."""
    cluster = elected(5)
    cluster.propose("n0")
    cluster.network.clear()
    cluster.step(AppendReply("n1", "n0", 1, 1))
    assert cluster["n0"].state.log.commit_index == 0
    cluster.step(AppendReply("n2", "n0", 1, 1))
    assert cluster["n0"].state.log.commit_index == 1


def test_leader_counts_itself_only_once_durable():
    """5.3, dissertation 10.2.1: the leader may send before its disk has it, not count itself."""
    cluster = Cluster(3, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    cluster.campaign("n0")
    cluster.stabilize()
    cluster.sync("n1")
    cluster.stabilize()
    assert cluster["n0"].state.log.commit_index == -1, "one follower, and the leader not yet"
    cluster.sync("n0")
    assert cluster["n0"].state.log.commit_index == 0


def test_follower_acknowledges_only_what_is_durable():
    """5.3, Figure 2: log[] is persistent state, on stable storage before responding."""
    cluster = Cluster(3, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    cluster.campaign("n0")
    cluster.stabilize()
    assert cluster.log("n1") == [(1, b"noop")]
    assert not sent(cluster, AppendReply)
    cluster.sync("n1")
    assert sent(cluster, AppendReply) == [AppendReply("n1", "n0", 1, 0)]


def test_followers_learn_the_commit_index():
    """5.3: once a follower learns that an entry is committed, it applies it, in log order."""
    cluster = elected()
    cluster.propose("n0")
    cluster.stabilize()
    cluster.tick("n0", 4)
    cluster.stabilize()
    assert [cluster.replicas[node].applied for node in cluster.ids] == [1, 1, 1]


def test_follower_commits_no_more_than_it_knows_to_match():
    """5.3, Figure 2: commitIndex = min(leaderCommit, index of last new entry)."""
    cluster = Cluster(3, logs=[[1, 1, 1], [1], [1]])
    cluster.step(Append("n1", "n0", 2, 0, 1, 5, None))
    assert cluster["n0"].state.log.commit_index == 0


def test_committing_an_entry_commits_all_before_it():
    """5.3: this also commits all preceding entries, including those of previous leaders."""
    cluster = Cluster(3, logs=[[1, 2, 2], [1, 2], [1]])
    cluster.elect("n0")
    assert cluster.committed == [(1, b"1"), (2, b"2"), (2, b"2"), (3, b"noop")]


def test_leader_retries_what_was_lost():
    """5.3: the leader retries AppendEntries indefinitely until all followers store all entries."""
    cluster = elected()
    for _ in range(5):
        cluster.propose("n0")
        cluster.network.clear()
    for _ in range(40):
        cluster.tick("n0")
        cluster.stabilize()
    assert cluster.log("n1") == cluster.log("n2") == cluster.log("n0")


def test_append_is_refused_without_the_entry_before_it():
    """5.3: the follower refuses entries if it has no entry with the same index and term."""
    cluster = Cluster(3, logs=[[1, 1], [], []])
    for prev in ((3, 1), (1, 2)):
        cluster.step(Append("n1", "n0", 3, *prev, -1, encode_span(prev[0] + 1, 3, 99, (b"x",))))
    assert cluster.terms("n0") == [1, 1]
    assert len(sent(cluster, AppendReject)) == 2
    assert not sent(cluster, AppendReply)


FIGURE_7 = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]


@pytest.mark.parametrize(
    "follower",
    [
        [1, 1, 1, 4, 4, 5, 5, 6, 6],
        [1, 1, 1, 4],
        [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        [1, 1, 1, 4, 4, 4, 4],
        [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
        [],
    ],
    ids="abcdef0",
)
def test_leader_makes_followers_logs_equal_its_own(follower):
    """5.3, Figure 7: conflicting entries are overwritten; missing ones are sent."""
    cluster = Cluster(3, logs=[FIGURE_7, follower, FIGURE_7])
    cluster["n0"].state.term = cluster["n2"].state.term = 7  # the leader is that of term 8
    cluster.elect("n0")
    assert cluster.log("n1") == cluster.log("n0")
    assert cluster["n0"].state.term == 8
    rounds = [e for e in cluster.replicas["n0"].events if e.kind.value == "probe"]
    assert len(rounds) <= 3, "a whole term is skipped in one round trip"


def test_equal_tail_is_kept_when_an_append_repeats():
    """5.3: delete entries only on a conflict; a late append must not cut what follows it."""
    cluster = elected()
    for _ in range(3):
        cluster.propose("n0")
    late = sent(cluster, Append)[0]
    cluster.stabilize()
    follower = late.receiver
    before = list(cluster.log(follower))
    cluster.step(late)
    cluster.step(Append("n0", follower, 1, -1, 0, -1, encode_span(0, 1, 0, (b"noop",))))
    assert cluster.log(follower) == before


def test_leader_never_overwrites_its_own_log():
    """5.3, Leader Append-Only: a leader only appends; an append of its own term changes nothing."""
    cluster = elected()
    before = list(cluster.log("n0"))
    cluster.step(Append("n1", "n0", 1, -1, 0, -1, encode_span(0, 1, 0, (b"other",))))
    assert cluster.log("n0") == before
    assert cluster["n0"].state.role is Role.LEADER


def test_slow_follower_does_not_hold_up_the_others():
    """5.3: a minority of slow servers need not impact overall performance."""
    cluster = elected()
    cluster.isolate("n2")
    for _ in range(10):
        cluster.propose("n0")
        cluster.stabilize()
    assert cluster["n0"].state.log.commit_index == 10


def test_truncation_below_the_commit_index_is_refused():
    """5.3 with 5.4: what is committed is never cut; a leader that asks for it ends this replica."""
    cluster = elected()
    cluster.propose("n0")
    cluster.stabilize()
    cluster.tick("n0", 4)
    cluster.stabilize()
    with pytest.raises(AssertionError):
        cluster["n1"].state.log.truncate(1)
