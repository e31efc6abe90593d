"""A replica that must not lead, because its disk hangs or its last entries are damaged."""

import pytest

from dledger.core import election
from dledger.core.model import Role
from dledger.core.ready import EventKind
from dledger.core.state import RaftState
from tests.unit.dledger.cluster import Cluster


def hindered_leader():
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.do("n0", lambda raft: raft.hinder("disk_hung"))
    return cluster


def test_hindered_leader_gives_up_office_and_another_is_elected():
    cluster = hindered_leader()
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


def test_hindered_replica_does_not_campaign():
    cluster = hindered_leader()
    cluster.do("n0", lambda raft: raft.campaign())
    assert not campaigns_alone(cluster)


def test_replica_campaigns_again_once_it_may():
    cluster = hindered_leader()
    cluster.do("n0", lambda raft: raft.hinder(None))
    kinds = [e.extra for e in cluster.replicas["n0"].events if e.kind is EventKind.HINDERED]
    assert kinds == ["reason=disk_hung", "reason=None"]
    assert campaigns_alone(cluster)


def test_hindered_replica_votes():
    cluster = hindered_leader()
    cluster.crash("n2")
    cluster.elect("n1")
    assert cluster["n1"].state.role is Role.LEADER


def test_a_core_that_campaigns_all_the_same_is_caught(monkeypatch):
    campaign = election.campaign

    def forgetful(state: RaftState) -> None:
        hindered, state.hindered = state.hindered, None
        campaign(state)
        state.hindered = hindered

    monkeypatch.setattr(election, "campaign", forgetful)
    with pytest.raises(AssertionError):
        test_hindered_replica_does_not_campaign()
