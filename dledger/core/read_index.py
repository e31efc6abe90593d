"""Reads that see everything acknowledged before they were asked for, without a log entry each.

A leader's commit index is such a point, if it still leads. So: note the commit index, *then* start
a round of heartbeats; when a majority has answered that round, or a later one, no other leader can
have committed anything before the note was taken.

1. n0 leads term 1 and is cut off. 2. n1 is elected in term 2 and commits. 3. n0 is asked to read: a
round begins, nobody answers, nothing is confirmed; after an election timeout n0 steps down. An
answer to a round that began before step 3 would prove nothing, hence the numbers.

What is asked while a round is out shares the next one: two rounds at most for any number of reads.
A new leader first commits an entry of its own term: before that it does not know how far its
predecessors had committed (5.4.2).

Source: Ongaro's dissertation 6.4; etcd raft, read_only.go.
"""

from dledger.core.leadership import Round
from dledger.core.messages import Heartbeat
from dledger.core.model import Role
from dledger.core.ready import ReadConfirmed
from dledger.core.state import RaftState


def request(state: RaftState) -> int:
    """Ask for a read at the leader; return the batch whose confirmation answers it."""
    assert state.role is Role.LEADER, state.role
    state.reads.wanted = True
    return state.reads.next_batch


def advance(state: RaftState) -> None:
    """Confirm what a majority has answered, and start a round for what was asked meanwhile."""
    reads = state.reads
    _maybe_confirm(state)
    if not reads.wanted or reads.round is not None:
        return
    log = state.log
    if log.term_at(log.commit_index) != state.term:
        return
    state.heartbeat_round += 1
    reads.round = Round(reads.next_batch, state.heartbeat_round, log.commit_index)
    reads.next_batch += 1
    reads.wanted = False
    state.messages += [
        Heartbeat(
            state.node_id, progress.node_id, state.term,
            min(log.commit_index, progress.match_index), state.heartbeat_round,
        )
        for progress in state.progress.values()
    ]  # fmt: skip
    _maybe_confirm(state)  # a group of one asks nobody


def _maybe_confirm(state: RaftState) -> None:
    reads = state.reads
    if reads.round is None:
        return
    batch, number, index = reads.round
    answered = state.is_voter + sum(follower.round_heard >= number for follower in state.voting)
    if answered >= state.quorum:
        reads.confirmed.append(ReadConfirmed(batch, index))
        reads.round = None
