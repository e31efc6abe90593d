"""Figure 2 of the Raft paper, line by line, where `test_raft_paper` has no test of the sentence.

The order is the figure's: state, AppendEntries, RequestVote, followers, candidates, leaders.
Indexes are one lower than in the paper.
"""

import pytest

from dledger.codec.entry import encode_span
from dledger.config import DLedgerConfig, FlushDiskType
from dledger.core.messages import (
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    VoteReply,
    VoteRequest,
)
from dledger.core.model import Role
from dledger.core.state import RaftConfig
from tests.unit.dledger.cluster import Cluster
from tests.unit.dledger.test_raft_paper import elected, sent


def append(term, prev_index, prev_term, commit_index, *bodies, position=0):
    span = encode_span(prev_index + 1, term, position, bodies) if bodies else None
    return Append("n1", "n0", term, prev_index, prev_term, commit_index, span)


def candidate(size=3):
    cluster = Cluster(size)
    cluster.campaign("n0")
    for number in range(1, size):
        cluster.step(PreVoteReply(f"n{number}", "n0", 1, granted=True))
    return cluster


# State


def test_term_vote_and_log_survive_a_loss_of_power():
    """Figure 2, persistent state: currentTerm, votedFor and log[] are on stable storage."""
    cluster = Cluster(3, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    cluster.campaign("n0")
    cluster.stabilize()
    cluster.sync_all()
    cluster.stabilize()
    before = {
        node: (list(cluster.log(node)), cluster[node].state.voted_for) for node in cluster.ids
    }
    for node in cluster.ids:
        cluster.crash(node, power=True)
        cluster.restart(node)
    assert before == {
        node: (list(cluster.log(node)), cluster[node].state.voted_for) for node in cluster.ids
    }
    assert {cluster[node].state.term for node in cluster.ids} == {1}


def test_commit_index_only_rises():
    """Figure 2, volatile state: commitIndex begins at nothing and increases monotonically."""
    cluster = Cluster(3)
    assert cluster["n0"].state.log.commit_index == -1
    cluster.step(append(1, -1, 0, 1, b"a", b"b"))
    for late in (append(1, -1, 0, 0, b"a", b"b"), Heartbeat("n1", "n0", 1, -1, 1)):
        cluster.step(late)
        assert cluster["n0"].state.log.commit_index == 1


def test_entries_are_applied_in_order_and_once():
    """Figure 2, all servers: if commitIndex > lastApplied, apply log[lastApplied]."""
    cluster = elected()
    told = []
    for _ in range(3):
        cluster.propose("n0")
        cluster.stabilize()
        told.append(cluster.replicas["n0"].applied)
    assert told == sorted(set(told)) == [1, 2, 3]
    assert cluster.committed == cluster.log("n0")


def test_next_index_begins_behind_the_leaders_last_entry_and_match_index_at_nothing():
    """Figure 2, state on leaders: nextIndex is last + 1, matchIndex 0, in each term."""
    cluster = Cluster(3, logs=[[1, 1, 1], [1, 1, 1], [1]])
    cluster.campaign("n0")
    while cluster["n0"].state.role is not Role.LEADER:
        cluster.deliver()
    found = {
        p.node_id: (p.next_index, p.match_index) for p in cluster["n0"].state.progress.values()
    }
    assert found == {"n1": (3, -1), "n2": (3, -1)}


def test_match_index_does_not_fall_for_a_late_acknowledgement():
    """Figure 2, state on leaders: matchIndex increases monotonically."""
    cluster = elected()
    cluster.propose("n0")
    cluster.stabilize()
    cluster.step(AppendReply("n1", "n0", 1, 0))
    assert cluster["n0"].state.progress["n1"].match_index == 1


# AppendEntries


def test_append_of_an_older_term_is_refused_and_the_newer_named():
    """Figure 2, AppendEntries 1: reply false if term < currentTerm."""
    cluster = Cluster(3)
    cluster.step(Heartbeat("n2", "n0", 4, -1, 1))
    cluster.network.clear()
    cluster.step(append(3, -1, 0, -1, b"old"))
    assert cluster.log("n0") == []
    assert [reply.term for reply in sent(cluster, HeartbeatReply)] == [4]


def test_conflicting_entry_and_all_that_follow_are_deleted():
    """Figure 2, AppendEntries 3: an entry of another term goes, and all that follow it."""
    cluster = Cluster(3, logs=[[1, 2, 2, 2], [], []])
    cluster.step(append(3, 0, 1, -1, b"new", position=49))
    assert cluster.log("n0") == [(1, b"1"), (3, b"new")]


def test_nothing_is_deleted_without_a_conflict():
    """Figure 2, AppendEntries 3, the other half: what agrees stays, whatever follows it."""
    cluster = Cluster(3, logs=[[1, 1, 1], [], []])
    cluster.step(Append("n1", "n0", 1, -1, 0, -1, encode_span(0, 1, 0, (b"1",))))
    assert cluster.terms("n0") == [1, 1, 1]
    assert sent(cluster, AppendReply)[-1].match_index == 0, "it vouches only for what it compared"


def test_entries_not_in_the_log_are_appended():
    """Figure 2, AppendEntries 4: append any new entries not already in the log."""
    cluster = Cluster(3, logs=[[1], [], []])
    cluster.step(append(1, -1, 0, -1, b"1", b"2", b"3"))
    assert cluster.log("n0") == [(1, b"1"), (1, b"2"), (1, b"3")]


def test_follower_takes_the_smaller_of_the_leaders_commit_index_and_its_last_new_entry():
    """Figure 2, AppendEntries 5: commitIndex = min(leaderCommit, index of last new entry)."""
    cluster = Cluster(3, logs=[[1, 1, 1, 1], [], []])
    for commit_index, expected in ((0, 0), (9, 1)):
        cluster.step(Append("n1", "n0", 2, 1, 1, commit_index, None))
        assert cluster["n0"].state.log.commit_index == expected


def test_heartbeat_never_commits_beyond_the_log():
    """Figure 2, AppendEntries 5, for our heartbeats: what is not here is not committed here."""
    cluster = Cluster(3, logs=[[1], [], []])
    cluster.step(Heartbeat("n1", "n0", 1, 7, 1))
    assert cluster["n0"].state.log.commit_index <= 0


# RequestVote


def test_vote_of_an_older_term_is_refused():
    """Figure 2, RequestVote 1: reply false if term < currentTerm."""
    cluster = Cluster(3)
    cluster.step(Heartbeat("n2", "n0", 4, -1, 1))
    cluster.network.clear()
    cluster.step(VoteRequest("n1", "n0", 3, 9, 3))
    assert sent(cluster, VoteReply) == [VoteReply("n0", "n1", 4, granted=False)]


def test_free_vote_goes_to_a_log_at_least_as_up_to_date():
    """Figure 2, RequestVote 2: votedFor is null or the candidate, and its log is good enough."""
    cluster = Cluster(3, logs=[[1, 1], [], []])
    for sender, last_index, expected in (("n1", 0, False), ("n2", 1, True), ("n1", 5, False)):
        cluster.network.clear()
        cluster.step(VoteRequest(sender, "n0", 2, last_index, 1))
        assert [reply.granted for reply in sent(cluster, VoteReply)] == [expected]


# Followers


def test_follower_answers_candidates_and_leaders():
    """Figure 2, followers: respond to RPCs from candidates and leaders."""
    cluster = Cluster(3)
    cluster.step(VoteRequest("n2", "n0", 1, -1, 0))
    cluster.step(append(2, -1, 0, -1, b"x"))
    cluster.step(append(2, 5, 2, -1, b"x", position=500))
    cluster.step(Heartbeat("n1", "n0", 2, -1, 3))
    kinds = [type(message) for message in cluster.network]
    assert sorted(kinds, key=lambda kind: kind.__name__) == [
        AppendReject, AppendReply, HeartbeatReply, VoteReply,
    ]  # fmt: skip


def test_granting_a_vote_restarts_the_election_timer():
    """Figure 2, followers: ... without receiving AppendEntries *or granting a vote*."""
    cluster = Cluster(3)
    cluster.tick("n0", 15)
    cluster.step(VoteRequest("n1", "n0", 1, -1, 0))
    assert cluster["n0"].state.election_elapsed == 0


def test_append_and_heartbeat_restart_the_election_timer():
    """Figure 2, followers: *without receiving AppendEntries from the current leader*."""
    cluster = Cluster(3)
    for message in (append(1, -1, 0, -1, b"x"), Heartbeat("n1", "n0", 1, -1, 1)):
        cluster.tick("n0", 15)
        cluster.step(message)
        assert cluster["n0"].state.election_elapsed == 0


def test_refused_candidate_does_not_restart_the_election_timer():
    """Figure 2, followers: only a vote that is given counts as a reason to wait."""
    cluster = Cluster(3, logs=[[1, 1], [], []])
    cluster["n0"].state.term = 2
    cluster.tick("n0", 15)
    cluster.step(VoteRequest("n1", "n0", 2, -1, 0))
    assert cluster["n0"].state.election_elapsed == 15


# Candidates


def test_candidate_raises_its_term_votes_for_itself_and_asks_all_others():
    """Figure 2, candidates: increment currentTerm, vote for self, reset the timer, ask everyone."""
    cluster = candidate(5)
    state = cluster["n0"].state
    assert (state.role, state.term, state.voted_for) == (Role.CANDIDATE, 1, "n0")
    assert state.votes == {"n0": True}
    assert state.election_elapsed == 0
    assert [request.receiver for request in sent(cluster, VoteRequest)] == ["n1", "n2", "n3", "n4"]


def test_votes_of_a_majority_make_a_leader():
    """Figure 2, candidates: if votes received from majority of servers: become leader."""
    cluster = candidate(5)
    for number, role in ((1, Role.CANDIDATE), (2, Role.LEADER)):
        cluster.step(VoteReply(f"n{number}", "n0", 1, granted=True))
        assert cluster["n0"].state.role is role


def test_append_of_a_new_leader_makes_a_candidate_follow():
    """Figure 2, candidates: if AppendEntries received from new leader: convert to follower."""
    cluster = candidate()
    cluster.step(append(1, -1, 0, -1, b"x"))
    state = cluster["n0"].state
    assert (state.role, state.leader_id) == (Role.FOLLOWER, "n1")
    assert cluster.log("n0") == [(1, b"x")]


def test_candidate_whose_timeout_elapses_starts_a_new_election():
    """Figure 2, candidates: if election timeout elapses: start new election."""
    cluster = candidate()
    cluster.network.clear()
    cluster.tick("n0", 20)
    cluster.step(PreVoteReply("n1", "n0", 2, granted=True))
    state = cluster["n0"].state
    assert (state.role, state.term, state.votes) == (Role.CANDIDATE, 2, {"n0": True})


# Leaders


def test_new_leader_speaks_to_each_follower_at_once():
    """Figure 2, leaders: upon election send initial AppendEntries to each server."""
    cluster = candidate(5)
    cluster.network.clear()
    for number in (1, 2):
        cluster.step(VoteReply(f"n{number}", "n0", 1, granted=True))
    assert [message.receiver for message in sent(cluster, Append)] == ["n1", "n2", "n3", "n4"]


def test_idle_leader_prevents_election_timeouts():
    """Figure 2, leaders: repeat heartbeats during idle periods to prevent election timeouts."""
    cluster = elected(5)
    for _ in range(300):
        cluster.tick_all()
        cluster.stabilize()
    assert cluster.leader() == "n0"
    assert {cluster[node].state.term for node in cluster.ids} == {1}


def test_entries_from_next_index_on_are_sent():
    """Figure 2, leaders: if last log index >= nextIndex, send the entries from nextIndex on."""
    cluster = elected()
    cluster.isolate("n2")
    for _ in range(3):
        cluster.propose("n0")
    cluster.stabilize()
    cluster.heal()
    cluster.step(AppendReject("n2", "n0", 1, 3, 0, 1, 0))
    cluster.step(AppendReply("n2", "n0", 1, 0))
    spans = [message.span for message in sent(cluster, Append) if message.span is not None]
    assert (spans[-1].first_index, spans[-1].last_index) == (1, 3)


def test_acknowledgement_advances_next_and_match_index():
    """Figure 2, leaders: if successful, update nextIndex and matchIndex for the follower."""
    cluster = elected()
    cluster.propose("n0")
    cluster.network.clear()
    cluster.step(AppendReply("n1", "n0", 1, 1))
    progress = cluster["n0"].state.progress["n1"]
    assert (progress.match_index, progress.next_index) == (1, 2)


def test_refusal_moves_next_index_back_and_it_is_tried_again():
    """Figure 2, leaders: if it fails for log inconsistency, decrement nextIndex and retry."""
    cluster = Cluster(3, logs=[[1, 1, 1, 1], [1], [1, 1, 1, 1]])
    cluster.campaign("n0")
    while cluster["n0"].state.role is not Role.LEADER:
        cluster.deliver()
    cluster.network.clear()
    cluster.step(AppendReject("n1", "n0", 2, 3, 0, 1, 0))
    assert cluster["n0"].state.progress["n1"].next_index == 1
    assert [(m.receiver, m.prev_index) for m in sent(cluster, Append)] == [("n1", 0)]


def test_leader_commits_what_a_majority_holds_of_its_own_term():
    """Figure 2, leaders: a majority of matchIndex >= N, log[N].term = currentTerm: commit."""
    cluster = Cluster(5, logs=[[1], [1], [1], [1], [1]])
    cluster.campaign("n0")
    while cluster["n0"].state.role is not Role.LEADER:
        cluster.deliver()
    cluster.network.clear()
    heard = []
    for number, match_index in ((1, 0), (2, 0), (3, 0), (1, 1), (2, 1)):
        cluster.step(AppendReply(f"n{number}", "n0", 2, match_index))
        heard.append(cluster["n0"].state.log.commit_index)
    assert heard == [-1, -1, -1, -1, 1]


# 5.3, 5.5 and 5.6


def test_entries_are_identified_by_index_and_term_alone():
    """5.3, Log Matching: same index and term store the same command, and all before is equal."""
    cluster = Cluster(3, logs=[[1, 1, 2], [1, 1], [1]])
    cluster.elect("n0")
    assert cluster.log("n0") == cluster.log("n1") == cluster.log("n2")


def test_extraneous_uncommitted_entries_are_removed():
    """5.3: a follower may have entries the leader has not; they are removed, leader's are kept."""
    cluster = Cluster(3, logs=[[1, 2], [1, 1, 1], [1, 2]])
    cluster.elect("n0")
    assert cluster.terms("n1") == [1, 2, 3]


def test_refusal_skips_a_whole_term():
    """5.3: the follower may name the term of the conflict, and the leader go past all of it."""
    cluster = Cluster(3, logs=[[1, 1, 4, 4, 4], [1, 1, 2, 2, 2, 3, 3, 3], [1, 1, 4, 4, 4]])
    cluster.elect("n0")
    probes = [event for event in cluster.replicas["n0"].events if event.kind.value == "probe"]
    assert [event.index for event in probes if event.peer == "n1"] == [2]


def test_follower_that_was_down_is_brought_up_to_date():
    """5.5: requests are retried indefinitely; after its restart the server completes them."""
    cluster = elected()
    cluster.crash("n2")
    for _ in range(5):
        cluster.propose("n0")
        cluster.stabilize()
    cluster.restart("n2")
    for _ in range(30):
        cluster.tick_all()
        cluster.stabilize()
    assert cluster.log("n2") == cluster.log("n0")


def test_candidate_that_crashed_after_its_vote_does_not_vote_for_another():
    """5.5, 5.2: a crashed candidate keeps the vote it gave itself."""
    cluster = candidate()
    cluster.crash("n0", power=True)
    cluster.restart("n0")
    cluster.network.clear()
    cluster.step(VoteRequest("n1", "n0", 1, 5, 1))
    assert [reply.granted for reply in sent(cluster, VoteReply)] == [False]


def test_election_timeout_is_longer_than_the_heartbeat_interval():
    """5.6: broadcastTime << electionTimeout; settings that break it are refused."""
    with pytest.raises(AssertionError):
        RaftConfig(
            self_id="n0", voters=("n0",), heartbeat_ticks=9, election_ticks_min=9,
            election_ticks_max=20,
        )  # fmt: skip
    config = DLedgerConfig(group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, directory="unused")
    assert config.election_ticks_min >= 5 * config.heartbeat_ticks
    assert config.election_ticks_max >= 1.5 * config.election_ticks_min


def test_safety_does_not_depend_on_timing():
    """5.1, 5.6: however fast a clock runs, no property fails (`Cluster.check`)."""
    cluster = Cluster(3, seed=3)
    for round_number in range(200):
        cluster.tick("n0", 7 * (round_number % 3))
        cluster.tick("n1", 11 * (round_number % 2))
        cluster.tick("n2", 1)
        for _ in range(round_number % 17):
            if cluster.network:
                cluster.deliver()
    assert len(cluster.leaders) > 0, "somebody must have led"
