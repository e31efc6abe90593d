"""Whose connection to the leader has broken helps the first to campaign: ours, not the paper's."""

from dledger.core.model import Role
from dledger.core.state import UNREACHABLE_TICKS_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.test_raft_paper import elected


def role_of_the_first_to_campaign():
    """What it is when all have seen the connection to the leader break, and one campaigns."""
    cluster = elected()
    cluster.crash("n0")
    for node in ("n1", "n2"):
        cluster.do(node, lambda raft: raft.unreachable("n0"))
    cluster.tick("n1", UNREACHABLE_TICKS_MAX)
    cluster.stabilize()
    return cluster["n1"].state.role


def test_who_lost_the_leader_helps_the_first_to_campaign():
    # Without the hint a voter refuses a pre-vote while its own timeout lasts.
    assert role_of_the_first_to_campaign() is Role.LEADER
    with planted(BY_TESTS["pre-vote-waits-for-the-dead"]):
        assert role_of_the_first_to_campaign() is Role.PRE_CANDIDATE
