"""Linearizable reads without a log entry each (dissertation 6.4)."""

import pytest

from dledger.core.messages import Heartbeat, HeartbeatReply
from dledger.core.model import Role
from dledger.core.raft import Raft
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster


class Reader:
    """Collects what the cores confirm."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.confirmed = []
        for replica in cluster.replicas.values():
            complete = replica.driver.complete

            def spy(ready, complete=complete):
                self.confirmed += ready.reads
                return complete(ready)

            replica.driver.complete = spy

    def ask(self, node_id, times=1):
        batches = []
        self.cluster.do(
            node_id, lambda raft: batches.extend(raft.read_index() for _ in range(times))
        )
        return batches

    def answers(self):
        return [(read.batch, read.index) for read in self.confirmed]


def elected(size=3, **options):
    cluster = Cluster(size, **options)
    cluster.elect("n0")
    cluster.tick_all(4)
    cluster.stabilize()
    return cluster, Reader(cluster)


def test_read_is_confirmed_by_a_round_of_a_majority():
    cluster, reader = elected()
    cluster.propose("n0")
    cluster.stabilize()
    (batch,) = reader.ask("n0")
    assert reader.answers() == []
    cluster.stabilize()
    assert reader.answers() == [(batch, cluster["n0"].state.log.commit_index)]


def test_many_reads_of_a_turn_share_one_round():
    cluster, reader = elected()
    assert len(set(reader.ask("n0", 50))) == 1
    assert sum(isinstance(m, Heartbeat) for m in cluster.network) == 2
    cluster.stabilize()
    assert len(reader.answers()) == 1


def test_reads_asked_while_a_round_is_out_share_the_next_one():
    cluster, reader = elected()
    first = reader.ask("n0")
    later = reader.ask("n0") + reader.ask("n0")
    assert later[0] == later[1] != first[0]
    assert sum(isinstance(m, Heartbeat) for m in cluster.network) == 2
    cluster.stabilize()
    assert [batch for batch, _ in reader.answers()] == [first[0], later[0]]


def test_leader_cut_off_never_confirms():
    cluster, reader = elected()
    cluster.isolate("n0")
    reader.ask("n0")
    cluster.elect("n1")
    cluster.propose("n1")
    cluster.stabilize()
    for _ in range(19):
        cluster.tick("n0")
        cluster.stabilize()
    cluster.heal()
    for _ in range(60):
        cluster.tick_all()
        cluster.stabilize()
    assert reader.answers() == []
    assert cluster["n0"].state.role is Role.FOLLOWER


def test_answer_to_an_earlier_round_confirms_nothing():
    cluster, reader = elected()
    round_before = cluster["n0"].state.heartbeat_round
    cluster.isolate("n0")
    reader.ask("n0")
    term = cluster["n0"].state.term
    cluster.step(HeartbeatReply("n1", "n0", term, round_before))
    cluster.step(HeartbeatReply("n2", "n0", term, round_before))
    assert reader.answers() == []
    cluster.step(HeartbeatReply("n2", "n0", term, round_before + 1))
    assert len(reader.answers()) == 1


def confirmed_by_an_answer_to_a_later_round():
    """Return what a leader confirms that nobody hears, behind an answer that nobody can give."""
    cluster, reader = elected()
    raft = cluster["n0"]
    later = raft.state.heartbeat_round + 100
    cluster.do("n0", lambda raft: raft.step(HeartbeatReply("n1", "n0", raft.state.term, later)))
    reader.ask("n0")
    return reader.answers()


def test_answer_to_a_round_that_has_not_begun_confirms_nothing():
    assert confirmed_by_an_answer_to_a_later_round() == []
    with planted(BY_TESTS["round-of-the-future-believed"]):
        assert len(confirmed_by_an_answer_to_a_later_round()) == 1


def test_answers_are_counted_by_follower():
    cluster, reader = elected(5)
    number = cluster["n0"].state.heartbeat_round + 1
    cluster.isolate("n0")
    reader.ask("n0")
    for _ in range(3):
        cluster.step(HeartbeatReply("n1", "n0", 1, number))
    assert reader.answers() == []
    cluster.step(HeartbeatReply("n2", "n0", 1, number))
    assert len(reader.answers()) == 1


def test_lost_round_is_confirmed_by_a_later_heartbeat():
    cluster, reader = elected()
    reader.ask("n0")
    cluster.network.clear()
    cluster.tick_all(4)
    cluster.stabilize()
    assert len(reader.answers()) == 1


def test_new_leader_first_commits_an_entry_of_its_term():
    """Before that it does not know how far its predecessors had committed (5.4.2)."""
    cluster, reader = elected()
    cluster.propose("n0")
    cluster.stabilize()
    cluster.forget_leader()
    cluster.campaign("n1")
    while cluster["n1"].state.role is not Role.LEADER:
        cluster.deliver()
    reader.ask("n1")
    assert cluster["n1"].state.reads.round is None
    cluster.stabilize()
    ((_, index),) = reader.answers()
    assert index == cluster["n1"].state.log.last_index


def test_group_of_one_confirms_at_once():
    cluster = Cluster(1)
    cluster.elect("n0")
    reader = Reader(cluster)
    (batch,) = reader.ask("n0")
    assert reader.answers() == [(batch, 0)]


def test_loss_of_leadership_drops_what_is_not_confirmed():
    cluster, reader = elected()
    (before,) = reader.ask("n0")
    cluster.do("n0", Raft.resign)
    cluster.network.clear()
    cluster.elect("n0")
    assert reader.answers() == []
    (after,) = reader.ask("n0")
    cluster.stabilize()
    assert [batch for batch, _ in reader.answers()] == [after]
    assert after != before


def test_followers_are_not_asked():
    cluster, _ = elected()
    with pytest.raises(AssertionError):
        cluster["n1"].read_index()


def test_read_survives_a_full_disk():
    cluster, reader = elected()
    reader.ask("n0")
    replies = []
    for message in list(cluster.network):
        cluster.step(message) if message.receiver != "n0" else replies.append(message)
    cluster.replicas["n0"].store.is_full = True
    cluster.propose("n0")
    cluster.stabilize()
    cluster.replicas["n0"].store.is_full = False
    cluster.tick_all(4)
    cluster.stabilize()
    assert len(reader.answers()) == 1
