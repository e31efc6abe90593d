"""A replica that must not lead, because its disk hangs or its last entries are damaged."""

import pytest

from dledger.core import election
from dledger.core.model import Role
from dledger.core.ready import EventKind
from dledger.core.state import RaftState
from tests.unit.dledger.cluster import Cluster


def blocked_leader():
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.do("n0", lambda raft: raft.block("disk_hung"))
    return cluster


def test_blocked_leader_gives_up_leadership_and_another_is_elected():
    cluster = blocked_leader()
    assert cluster["n0"].state.role is Role.FOLLOWER
    for _ in range(200):
        cluster.tick_all()
        cluster.stabilize()
    assert cluster.leader() != "n0"
    assert cluster["n0"].state.leader_id == cluster.leader(), "it follows"


def campaigns_alone(cluster):
    """Whether n0 starts an election while nobody else can."""
    for other in ("n1", "n2"):
        cluster.crash(other)
    for _ in range(200):
        cluster.tick("n0")
        if cluster["n0"].state.role is not Role.FOLLOWER:
            return True
    return False


def test_blocked_replica_does_not_campaign():
    cluster = blocked_leader()
    cluster.do("n0", lambda raft: raft.campaign())
    assert not campaigns_alone(cluster)


def test_replica_campaigns_again_once_it_may():
    cluster = blocked_leader()
    cluster.do("n0", lambda raft: raft.block(None))
    kinds = [e.extra for e in cluster.replicas["n0"].events if e.kind is EventKind.BLOCKED]
    assert kinds == ["reason=disk_hung", "reason=None"]
    assert campaigns_alone(cluster)


def test_blocked_replica_votes():
    cluster = blocked_leader()
    cluster.crash("n2")
    cluster.elect("n1")
    assert cluster["n1"].state.role is Role.LEADER


def test_a_core_that_campaigns_all_the_same_is_caught(monkeypatch):
    campaign = election.campaign

    def forgetful(state: RaftState) -> None:
        blocked, state.blocked = state.blocked, None
        campaign(state)
        state.blocked = blocked

    monkeypatch.setattr(election, "campaign", forgetful)
    with pytest.raises(AssertionError):
        test_blocked_replica_does_not_campaign()
