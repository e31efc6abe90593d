"""How much may be under way, how far back a leader goes, how long it stays without answers."""

from dledger.codec.entry import encode_span
from dledger.core.messages import (
    NO_ROUND,
    Append,
    AppendReject,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
)
from dledger.core.model import Role
from dledger.core.replication import SPANS_PER_TURN
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster


def appends(cluster, receiver):
    return [
        m for m in cluster.network
        if isinstance(m, Append) and m.receiver == receiver and m.span is not None
    ]  # fmt: skip


def elected(size=3, **options):
    cluster = Cluster(size, **options)
    cluster.elect("n0")
    return cluster


def test_window_of_a_follower_is_bounded_in_messages_and_bytes():
    by_count = elected(inflight_spans_max=5, span_bytes_max=60)
    by_bytes = elected(inflight_bytes_max=400, span_bytes_max=60)
    for cluster in (by_count, by_bytes):
        for _ in range(40):
            cluster.propose("n0")
        sent = [m.span for m in appends(cluster, "n1")]
        progress = cluster["n0"].state.progress["n1"]
        assert progress.inflight_bytes == sum(len(span.data) for span in sent)
        if cluster is by_count:
            assert len(sent) == 5
        else:
            assert 400 <= progress.inflight_bytes < 400 + 60
        cluster.stabilize()
        assert cluster.log("n1") == cluster.log("n0"), "and it comes all the same"


def test_one_turn_sends_a_follower_few_messages():
    cluster = elected(span_bytes_max=60)
    cluster.isolate("n1")
    for _ in range(40):
        cluster.propose("n0")
    cluster.stabilize()
    cluster.heal()
    state = cluster["n0"].state
    state.progress["n1"].become_replicate()
    state.progress["n1"].next_index = state.progress["n1"].match_index + 1
    ready = cluster["n0"].ready()
    assert sum(isinstance(m, Append) and m.receiver == "n1" for m in ready.messages) == (
        SPANS_PER_TURN
    )


def test_leader_goes_back_a_term_at_a_time_however_many_entries_it_has():
    """5.3: all of the conflicting entries in a term cost one rejected request."""
    cluster = Cluster(3, logs=([1] * 5 + [4] * 50, [1] * 5 + [2] * 40 + [3] * 40, [1] * 5))
    cluster.replicas["n0"].raft.state.term = 4
    cluster.cut = {("n1", "n0"), ("n0", "n1")}
    cluster.elect("n0")
    cluster.heal()
    cluster.tick_all(8)
    rejects = 0
    while cluster.network:
        rejects += isinstance(cluster.deliver(), AppendReject)
    cluster.tick_all(8)
    while cluster.network:
        rejects += isinstance(cluster.deliver(), AppendReject)
    assert cluster.log("n1") == cluster.log("n0")
    assert 1 <= rejects <= 3


def test_leader_cut_off_steps_down_on_the_tick_of_the_timeout():
    cluster = elected()
    cluster.tick_all(4)
    cluster.stabilize()
    cluster.propose("n0")
    cluster.isolate("n0")
    state = cluster["n0"].state
    cluster.tick("n0", 19)
    assert state.role is Role.LEADER
    cluster.tick("n0")
    assert state.role is Role.FOLLOWER
    assert state.log.commit_index < state.log.last_index, "what was pending is not committed"
    assert any(event.kind.value == "lost_quorum" for event in cluster.replicas["n0"].events)


def test_answers_of_a_minority_do_not_keep_a_leader():
    cluster = elected(5)
    cluster.tick_all(4)
    cluster.stabilize()
    cluster.isolate("n0")
    for _ in range(20):
        cluster.tick("n0")
        cluster.step(HeartbeatReply("n1", "n0", 1, 0))
    assert cluster["n0"].state.role is Role.FOLLOWER


def test_any_answer_counts_for_the_quorum():
    cluster = elected()
    cluster.tick_all(4)
    cluster.stabilize()
    cluster.isolate("n0")
    for _ in range(60):
        cluster.tick("n0")
        cluster.step(AppendReject("n2", "n0", 1, 7, 0, 1, 0))
    assert cluster["n0"].state.role is Role.LEADER


def test_what_leaves_nothing_to_do_wakes_nobody_up():
    cluster = Cluster(3)
    cluster.elect("n0")
    cluster.stabilize()
    leader, follower = cluster["n0"], cluster["n1"]
    term = leader.state.term
    follower.tick()
    assert not follower.is_due()
    leader.step(HeartbeatReply("n1", "n0", term, 1))
    leader.step(AppendReply("n1", "n0", term, leader.state.log.last_index))
    assert not leader.is_due()
    follower.step(Heartbeat("n0", "n1", term, leader.state.log.commit_index, 2))
    assert follower.is_due(), "it owes an answer"
    leader.unreachable("n1")
    leader.tick()
    assert leader.is_due(), "whoever is lost is probed"


def appended_and_committed():
    """A follower that was sent an entry with the word that it is committed, and owes no answer."""
    cluster = elected()
    cluster.stabilize()
    leader, follower = cluster["n0"].state, cluster["n1"]
    last = leader.log.last_index
    span = encode_span(last + 1, leader.term, leader.log.end_position, (b"new",))
    follower.step(Append("n0", "n1", leader.term, last, leader.term, last + 1, span))
    assert follower.state.log.commit_index == last + 1
    follower.state.ack_index = None
    return follower


def test_a_commit_alone_needs_no_ready():
    cluster = elected()
    cluster.stabilize()
    leader, term = cluster["n0"], cluster["n0"].state.term
    last = leader.state.log.last_index
    leader.propose(encode_span(last + 1, term, leader.state.log.end_position, (b"new",)))
    ready = leader.ready()
    leader.advance(ready)
    leader.persisted(last + 1)
    assert leader.take_commit() is None, "nobody else has it"
    leader.step(AppendReply("n1", "n0", term, last + 1))
    assert leader.take_commit() == last + 1
    assert leader.take_commit() is None, "once"
    assert leader.ready() is None


def test_a_commit_is_not_taken_before_its_entries_are_written():
    follower = appended_and_committed()
    assert follower.take_commit() is None
    ready = follower.ready()
    assert ready.entries
    assert follower.take_commit() is None, "they are being written"
    with planted(BY_TESTS["commit-before-its-entries"]):
        assert appended_and_committed().take_commit() is not None


def test_two_ticks_may_pass_at_once_where_the_next_one_changes_nothing():
    cluster = elected()
    leader, follower = cluster["n0"], cluster["n1"]
    assert not leader.is_calm(), "its heartbeats have their times"
    assert follower.is_calm()
    while follower.is_calm():
        cluster.tick("n1")
    assert follower.state.role is Role.FOLLOWER
    cluster.tick("n1")
    assert follower.state.role is Role.PRE_CANDIDATE
    assert not follower.is_calm()


def acknowledged_after_a_full_disk():
    """What a follower says it holds where one entry came while another could not be written."""
    cluster = elected()
    cluster.stabilize()
    leader, follower = cluster["n0"].state, cluster["n1"]
    last, term, position = leader.log.last_index, leader.term, leader.log.end_position
    one = encode_span(last + 1, term, position, (b"one",))
    other = encode_span(last + 2, term, one.end_position, (b"other",))
    follower.step(Append("n0", "n1", term, last, term, last, one))
    ready = follower.ready()
    follower.step(Append("n0", "n1", term, last + 1, term, last, other))
    follower.abort(ready)
    assert follower.state.log.last_index == last
    said = follower.ready().replies
    return [reply.match_index - last for reply in said if isinstance(reply, AppendReply)]


def test_what_a_full_disk_kept_out_is_not_acknowledged():
    assert acknowledged_after_a_full_disk() == []
    with planted(BY_TESTS["acknowledged-though-dropped"]):
        assert acknowledged_after_a_full_disk() == [2]


def entries_after_a_lost_end():
    """How many entries a follower has that lost three with the power, and how many its leader.

    One more comes first, and others when the leader has given up to wait for its answer: what is
    refused of several under way tells the leader of the loss all the same.
    """
    cluster = elected()
    cluster.sync_all()
    for _ in range(3):
        cluster.propose("n0")
    cluster.stabilize()
    cluster.crash("n1", power=True)
    cluster.restart("n1")
    assert len(cluster.log("n0")) - len(cluster.log("n1")) == 3
    for number in range(40):
        if number % 10 == 0:
            cluster.propose("n0")
        cluster.tick("n0")
        cluster.stabilize()
    assert cluster["n0"].state.role is Role.LEADER
    return len(cluster.log("n1")), len(cluster.log("n0"))


def test_a_follower_that_lost_its_end_is_sent_it_by_the_same_leader():
    assert entries_after_a_lost_end() == (8, 8)
    with planted(BY_TESTS["lost-end-not-believed"]):
        assert entries_after_a_lost_end() == (1, 8)


def heard(cluster, kind):
    return [message for message in cluster.network if isinstance(message, kind)]


def test_a_risen_commit_index_is_told_at_the_next_tick_and_not_answered():
    cluster = elected()
    cluster.tick("n0", 4)
    cluster.stabilize()
    cluster.propose("n0")
    cluster.stabilize()
    cluster.tick("n0")
    notices = heard(cluster, Heartbeat)
    assert [(notice.commit_index, notice.round) for notice in notices] == [(1, NO_ROUND)] * 2
    cluster.network.clear()
    for notice in notices:
        cluster.step(notice)
    assert not cluster.network
    assert [cluster.replicas[node].applied for node in cluster.ids] == [1, 1, 1]
    cluster.tick("n0")
    assert not cluster.network  # it is told once
    cluster.tick("n0", 2)
    beats = heard(cluster, Heartbeat)
    assert [beat.round > NO_ROUND for beat in beats] == [True, True]
    cluster.network.clear()
    cluster.step(beats[0])
    assert heard(cluster, HeartbeatReply) == [HeartbeatReply("n1", "n0", 1, beats[0].round)]
