"""What must hold of a replica after every step. Run in tests and in the simulator.

The properties of a whole cluster (paper Figure 3) need all replicas and are checked there.
"""

from itertools import pairwise

from dledger.core.model import FOLLOWER, LEADER, Role
from dledger.core.raft import Raft
from dledger.core.state import RaftState


def check(raft: Raft) -> None:
    """Assert everything that one replica alone can know to be wrong."""
    state = raft.state
    log = state.log
    last_index, commit_index = log.last_index, log.commit_index
    assert -1 <= commit_index <= last_index, (commit_index, last_index)
    assert log.persisted_index <= log.handed_index, (log.persisted_index, log.handed_index)
    assert log.handed_index <= last_index, (log.handed_index, last_index)
    assert state.delivered_index <= commit_index, (state.delivered_index, commit_index)
    assert log.last_term <= state.term, (log.last_term, state.term)
    assert state.saved.term <= state.term, (state.saved.term, state.term)
    _check_runs(state)
    _check_role(state)
    _check_membership(state)
    for progress in state.progress.values():
        assert progress.match_index < progress.next_index, progress.describe()
        assert progress.next_index <= last_index + 1, progress.describe()
        if progress.inflight:
            assert progress.inflight_bytes == sum(size for _, size in progress.inflight)
            assert not progress.probing, progress.describe()
            assert progress.sent_tick is not None, f"nobody waits for {progress.describe()}"
        else:
            assert not progress.inflight_bytes, progress.describe()


def _check_runs(state: RaftState) -> None:
    """Each term of the log begins behind the one before, and with an entry that is there."""
    log = state.log
    runs = log.last_runs()
    for (first, term), (second, next_term) in pairwise(runs):
        assert first < second, runs
        assert term < next_term, runs
    if runs:
        first, term = runs[-1]
        assert first <= log.last_index, (runs, log.last_index)
        assert term == log.last_term, (runs, log.last_term)


def _check_role(state: RaftState) -> None:
    role, node_id, leader_id = state.role, state.node_id, state.leader_id
    if role is LEADER:
        assert leader_id == node_id, leader_id
        assert state.voted_for == node_id, state.voted_for
        assert state.log.last_term == state.term, "a leader opens its term with an entry"
        assert tuple(state.progress) == state.others, list(state.progress)
        return
    assert not state.progress, list(state.progress)
    if role is FOLLOWER:
        assert leader_id != node_id, leader_id
    else:
        assert leader_id is None, leader_id
        assert role is Role.PRE_CANDIDATE or state.voted_for == node_id, state.voted_for


def _check_membership(state: RaftState) -> None:
    """The group as the rest of the core sees it is that of the latest configuration in the log."""
    latest = state.membership.latest
    configuration = latest.configuration
    voters = configuration.voters
    assert latest.index <= state.log.last_index, (latest.index, state.log.last_index)
    assert state.voters == voters, (state.voters, voters)
    assert not configuration.learners or not voters.keys() & configuration.learners.keys(), latest
    assert state.quorum == len(voters) // 2 + 1, (state.quorum, list(voters))
    assert state.is_voter == (state.node_id in voters), state.is_voter
    if state.role is LEADER:
        counted = [progress.node_id for progress in state.voting]
        rejoining = state.rejoining
        expected = [peer for peer in state.others if peer in voters and peer not in rejoining]
        assert counted == expected, (counted, expected)
        assert len(counted) + len(state.uncounted) + state.is_voter == len(voters), counted
        assert not state.fresh, "a leader has no past to wait for"
