"""Leadership handed over on purpose, and to the preferred leader (dissertation 3.10)."""

import pytest

from dledger.core.leadership import Phase
from dledger.core.messages import TimeoutNow, VoteRequest
from dledger.core.model import Role
from dledger.core.raft import Raft
from dledger.errors import TransferFailed
from tests.unit.dledger.cluster import Cluster

ELECTION_TICKS = 20


def elected(size=3, **options):
    cluster = Cluster(size, **options)
    cluster.elect("n0")
    cluster.tick_all(4)
    cluster.stabilize()
    return cluster


def begin(cluster, target):
    found = []
    cluster.do("n0", lambda raft: found.append(raft.transfer(target)))
    return found[0]


def role(cluster, node_id):
    return cluster[node_id].state.role


def run(cluster, ticks):
    for _ in range(ticks):
        cluster.tick_all()
        cluster.stabilize()


def test_target_in_step_leads_the_next_term_at_once():
    cluster = elected()
    transfer = begin(cluster, "n1")
    cluster.stabilize()
    assert (role(cluster, "n0"), role(cluster, "n1")) == (Role.FOLLOWER, Role.LEADER)
    assert cluster["n1"].state.term == 2
    assert transfer.phase is Phase.DONE
    assert cluster["n0"].state.transfer is None


def test_everything_accepted_is_committed_before_the_target_is_asked():
    cluster = elected()
    cluster.propose("n0")
    transfer = begin(cluster, "n1")
    assert not [m for m in cluster.network if isinstance(m, TimeoutNow)]
    assert transfer.phase is Phase.CATCHING_UP
    last_index = cluster["n0"].state.log.last_index
    while transfer.phase is Phase.CATCHING_UP:
        cluster.deliver()
    assert cluster["n0"].state.log.commit_index == last_index
    assert role(cluster, "n0") is Role.LEADER
    cluster.stabilize()
    assert role(cluster, "n1") is Role.LEADER


def test_target_that_lags_is_brought_up_to_date_first():
    cluster = elected()
    cluster.isolate("n1")
    for _ in range(5):
        cluster.propose("n0")
    cluster.stabilize()
    cluster.heal()
    transfer = begin(cluster, "n1")
    run(cluster, ELECTION_TICKS - 1)
    assert transfer.phase is Phase.DONE
    assert role(cluster, "n1") is Role.LEADER
    assert cluster.log("n1")[:6] == cluster.log("n0")[:6]


@pytest.mark.parametrize(
    ("target", "words"), [("n0", "leads already"), ("n9", "no voter")], ids=["self", "unknown"]
)
def test_transfer_that_makes_no_sense_is_refused_at_once(target, words):
    cluster = elected()
    with pytest.raises(TransferFailed, match=words):
        cluster["n0"].transfer(target)
    assert cluster["n0"].state.transfer is None


def test_follower_refuses_to_transfer():
    with pytest.raises(TransferFailed, match="does not lead"):
        elected()["n1"].transfer("n2")


def test_second_transfer_is_refused_while_one_is_under_way():
    cluster = elected()
    cluster.isolate("n1")
    begin(cluster, "n1")
    with pytest.raises(TransferFailed, match="transfer to n1 is under way"):
        cluster["n0"].transfer("n2")


def test_target_that_was_silent_for_an_election_timeout_is_refused_at_once():
    cluster = elected()
    cluster.crash("n1")
    run(cluster, ELECTION_TICKS)
    with pytest.raises(TransferFailed, match="n1 has not answered"):
        cluster["n0"].transfer("n1")


def test_transfer_to_a_target_that_dies_ends_within_an_election_timeout_and_the_leader_serves():
    cluster = elected()
    cluster.crash("n1")
    transfer = begin(cluster, "n1")
    run(cluster, ELECTION_TICKS)
    assert (transfer.phase, cluster["n0"].state.transfer) == (Phase.FAILED, None)
    assert "was asked to campaign and did not" in transfer.failure
    assert role(cluster, "n0") is Role.LEADER
    assert cluster.propose("n0")
    cluster.stabilize()
    assert cluster["n0"].state.log.commit_index == cluster["n0"].state.log.last_index


def test_transfer_to_a_target_that_stays_behind_says_how_far_it_came():
    cluster = elected()
    cluster.propose("n0")
    cluster.network = [m for m in cluster.network if m.receiver != "n1"]
    cluster.isolate("n1")
    transfer = begin(cluster, "n1")
    run(cluster, ELECTION_TICKS)
    assert "n1 did not catch up within an election timeout" in transfer.failure
    assert "up to 0 of 1" in transfer.failure


def test_lost_wish_is_repeated():
    cluster = elected()
    begin(cluster, "n1")
    cluster.network.clear()
    run(cluster, 4)
    assert role(cluster, "n1") is Role.LEADER


def test_candidate_by_transfer_is_voted_for_although_a_leader_is_heard():
    cluster = elected()
    begin(cluster, "n1")
    cluster.deliver()
    requests = [m for m in cluster.network if isinstance(m, VoteRequest)]
    assert [m.transfer for m in requests] == [True, True]
    assert cluster["n2"].state.hears_leader()
    cluster.stabilize()
    assert cluster["n2"].state.voted_for == "n1"


def test_wish_that_was_held_up_does_not_move_a_target_with_another_log():
    cluster = elected()
    begin(cluster, "n1")
    (held,) = [m for m in cluster.network if isinstance(m, TimeoutNow)]
    cluster.network.clear()
    for _ in range(ELECTION_TICKS):
        cluster.tick_all()
        cluster.network = [m for m in cluster.network if not isinstance(m, TimeoutNow)]
        cluster.stabilize()
    cluster.propose("n0")
    cluster.stabilize()
    cluster.step(held)
    cluster.stabilize()
    assert role(cluster, "n0") is Role.LEADER
    assert role(cluster, "n1") is Role.FOLLOWER


def test_target_that_cannot_win_is_no_stuck_candidate():
    """DLedger's issue 85: the preferred node stayed a candidate for ever."""
    cluster = elected()
    begin(cluster, "n1")
    cluster.deliver()
    assert role(cluster, "n1") is Role.CANDIDATE
    cluster.network.clear()
    cluster.isolate("n1")
    run(cluster, 3 * ELECTION_TICKS)
    assert role(cluster, "n1") is Role.PRE_CANDIDATE
    term = cluster["n1"].state.term
    cluster.heal()
    run(cluster, 6 * ELECTION_TICKS)
    leader = cluster.leader()
    assert {cluster[i].state.leader_id for i in cluster.ids} == {leader}
    assert {cluster[i].state.term for i in cluster.ids} <= {term, term + 1, term + 2}


def test_every_message_of_a_transfer_may_be_lost():
    """Whatever one message is lost: within some timeouts somebody leads, and all follow."""
    for lost in range(12):
        cluster = elected(seed=lost)
        begin(cluster, "n1")
        for _ in range(lost):
            if cluster.network:
                cluster.deliver()
        if cluster.network:
            cluster.network.pop(0)
        run(cluster, 6 * ELECTION_TICKS)
        leader = cluster.leader()
        assert [cluster[i].state.leader_id for i in cluster.ids] == [leader] * 3
        assert cluster["n0"].state.transfer is None
        assert cluster.propose(leader)
        cluster.stabilize()
        assert cluster[leader].state.log.commit_index == cluster[leader].state.log.last_index


def test_loss_of_leadership_ends_a_transfer():
    cluster = elected()
    cluster.isolate("n0")
    transfer = begin(cluster, "n1")
    cluster.do("n0", Raft.resign)
    assert transfer.phase is Phase.DONE
    assert cluster["n0"].state.transfer is None


# The preferred leader


def test_preferred_leader_leads_once_it_is_in_step():
    cluster = elected(preferred_leader="n2")
    run(cluster, 60)
    assert role(cluster, "n2") is Role.LEADER
    run(cluster, 200)
    assert cluster["n2"].state.term == 2, "and stays it"


def test_preferred_leader_that_is_down_changes_nothing():
    cluster = elected(preferred_leader="n2")
    cluster.crash("n2")
    run(cluster, 300)
    assert role(cluster, "n0") is Role.LEADER
    assert cluster["n0"].state.term == 1
    cluster.restart("n2")
    run(cluster, 100)
    assert role(cluster, "n2") is Role.LEADER


def test_failed_transfer_to_the_preferred_leader_is_not_repeated_at_once():
    cluster = elected(preferred_leader="n2")
    events = cluster.replicas["n0"].events

    def started():
        return sum(e.extra == "started" for e in events)

    counts = []
    for ticks in (300, 300, 400, 400, 400, 400):  # at 40, 440, 1240, 2840 ticks
        for _ in range(ticks):
            cluster.tick_all()
            cluster.network = [m for m in cluster.network if not isinstance(m, TimeoutNow)]
            cluster.stabilize()
        counts.append(started())
    assert counts == [1, 2, 2, 3, 3, 3]
    assert role(cluster, "n0") is Role.LEADER
