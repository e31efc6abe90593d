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
