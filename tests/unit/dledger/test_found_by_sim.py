"""What the simulator has found in the core, or would have to, each as its smallest run."""

from dledger.core.messages import Append, AppendReply
from dledger.core.model import Role
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster, encode_span
from tests.unit.dledger.test_raft_paper import sent


def test_an_acknowledgement_goes_with_the_leader_it_is_for():
    """While a vote is being synced an append comes, and then the leader is silent for too long.

    The follower asked itself whom to acknowledge to, and died.
    """
    cluster = Cluster(3)
    cluster.elect("n0")
    raft = cluster["n1"]
    term, last = raft.state.term, raft.state.log.last_index
    span = encode_span(last + 1, term, raft.state.log.end_position, (b"x",))
    raft.step(Append("n0", "n1", term, last, raft.state.log.last_term, last, span))
    for _ in range(100):
        raft.tick()
    assert raft.state.role is Role.PRE_CANDIDATE
    ready = raft.ready()
    assert ready is not None
    assert not [reply for reply in ready.replies if isinstance(reply, AppendReply)]
    assert [part.last_index for part in ready.entries] == [last + 1]


def acknowledged_beyond_the_commit():
    """Return how much of an earlier leader's end is acknowledged to one that has not seen it.

    n0 appends at n1 alone. n2 leads next, and n1 gets what is committed for the second time.
    """
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.propose("n0")
    cluster.stabilize()
    cluster.tick_all(10)
    cluster.stabilize()
    state = cluster["n1"].state
    term, commit = state.term, state.log.commit_index
    span = encode_span(commit + 1, term, state.log.end_position, (b"x",))
    cluster.step(Append("n0", "n1", term, commit, term, commit, span))
    cluster.network.clear()
    cluster.step(Append("n2", "n1", term + 1, commit - 1, term, commit, None))
    cluster.sync("n1")
    return [reply.match_index - commit for reply in sent(cluster, AppendReply)]


def test_a_repeated_append_is_acknowledged_as_far_as_it_is_committed():
    assert acknowledged_beyond_the_commit() == [0]
    with planted(BY_TESTS["own-end-acknowledged"]):
        assert acknowledged_beyond_the_commit() == [1]
