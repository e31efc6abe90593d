"""What the simulator has found in the core, each as the smallest run that shows it."""

from dledger.core.messages import Append, AppendReply
from dledger.core.model import Role
from tests.unit.dledger.cluster import Cluster, encode_span


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
