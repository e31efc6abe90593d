"""What must hold of a replica after every step. Run in tests and in the simulator.

The properties of a whole cluster (paper Figure 3) need all replicas and are checked there.
"""

from dledger.core.model import Role
from dledger.core.raft import Raft


def check(raft: Raft) -> None:
    """Assert everything that one replica alone can know to be wrong."""
    state = raft.state
    log = state.log
    assert -1 <= log.commit_index <= log.last_index, (log.commit_index, log.last_index)
    assert log.persisted_index <= log.last_index, (log.persisted_index, log.last_index)
    assert log.handed_index <= log.last_index, (log.handed_index, log.last_index)
    assert state.delivered_index <= log.commit_index, (state.delivered_index, log.commit_index)
    assert log.last_term <= state.term, (log.last_term, state.term)
    assert (state.saved.term, state.term) == tuple(sorted((state.saved.term, state.term)))
    _check_role(raft)
    _check_membership(raft)
    for progress in state.progress.values():
        assert progress.match_index < progress.next_index, progress.describe()
        assert progress.next_index <= log.last_index + 1, progress.describe()
        assert progress.inflight_bytes == sum(size for _, size in progress.inflight)
        assert not progress.probing or not progress.inflight, progress.describe()


def _check_role(raft: Raft) -> None:
    state = raft.state
    match state.role:
        case Role.LEADER:
            assert state.leader_id == state.node_id, state.leader_id
            assert state.voted_for == state.node_id, state.voted_for
            assert state.log.last_term == state.term, "a leader opens its term with an entry"
            assert list(state.progress) == list(state.others), list(state.progress)
        case Role.CANDIDATE:
            assert state.voted_for == state.node_id, state.voted_for
            assert state.leader_id is None, state.leader_id
        case Role.PRE_CANDIDATE:
            assert state.leader_id is None, state.leader_id
        case Role.FOLLOWER:
            assert state.leader_id != state.node_id, state.leader_id
    if state.role is not Role.LEADER:
        assert not state.progress, list(state.progress)


def _check_membership(raft: Raft) -> None:
    """The group as the rest of the core sees it is that of the latest configuration in the log."""
    state = raft.state
    latest = state.membership.latest
    voters = latest.configuration.voters
    assert latest.index <= state.log.last_index, (latest.index, state.log.last_index)
    assert state.voters == voters, (state.voters, voters)
    assert not voters.keys() & latest.configuration.learners.keys(), latest
    assert state.quorum == len(voters) // 2 + 1, (state.quorum, list(voters))
    assert state.is_voter == (state.node_id in voters), state.is_voter
    if state.role is Role.LEADER:
        counted = [progress.node_id for progress in state.voting]
        expected = [peer for peer in state.others if peer in voters and peer not in state.newcomers]
        assert counted == expected, (counted, expected)
        assert len(counted) + len(state.uncounted) + state.is_voter == len(voters), counted
        assert not state.fresh, "a leader has no past to wait for"
