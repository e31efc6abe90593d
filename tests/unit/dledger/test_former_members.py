"""Who was removed is heard no more, whatever certificate it has, until it is added again."""

import pytest

from dledger.codec.configuration import encode_configuration
from dledger.codec.peer import PeerCodec
from dledger.codec.snapshot import decode_snapshot, encode_snapshot
from dledger.core.configuration import (
    FORMER_MAX,
    Change,
    ChangeKind,
    ConfigEntry,
    Configuration,
    changed,
)
from dledger.core.messages import (
    Append,
    AppendReply,
    AskMembers,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    PreVoteRequest,
    RecoveringReply,
    TimeoutNow,
    ToldMembers,
    VoteRequest,
)
from dledger.core.model import Role, SnapshotId
from dledger.core.ready import EventKind
from dledger.errors import CorruptEntry
from dledger.peers.vouching import ASK_INTERVAL_MS, Voucher
from ledgermq.remoting.protocol.frame import FrameDecoder
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster

ADD, PROMOTE, REMOVE = ChangeKind.ADD_LEARNER, ChangeKind.PROMOTE, ChangeKind.REMOVE


def settle(cluster, ticks=12):
    for _ in range(ticks):
        cluster.tick_all()
        cluster.stabilize()


def without_n3():
    """A group of three that was one of four; n3 is cut off."""
    cluster = Cluster(4)
    cluster.elect("n0")
    cluster.isolate("n3")
    assert cluster.change("n0", REMOVE, "n3") is None
    settle(cluster)
    return cluster


def add_again(cluster):
    cluster.heal()
    assert cluster.change("n0", ADD, "n3") is None
    settle(cluster)
    assert cluster.change("n0", PROMOTE, "n3") is None
    settle(cluster)


def what_deposes(receiver, term):
    return [
        AppendReply("n3", receiver, term, 0),
        HeartbeatReply("n3", receiver, term, 1),
        RecoveringReply("n3", receiver, term, 0, 1),
        Heartbeat("n3", receiver, term, 0, 1),
        Append("n3", receiver, term, -1, 0, -1, None),
        VoteRequest("n3", receiver, term, 1 << 40, term - 1, True),
        PreVoteRequest("n3", receiver, term, 1 << 40, term - 1),
        InstallSnapshot("n3", receiver, term, SnapshotId(1 << 40, 1, 100, 0), 0, b""),
        TimeoutNow("n3", receiver, term, 2),
    ]


def facts(cluster, node):
    state = cluster[node].state
    return state.term, state.role, state.leader_id, state.voted_for, state.log.last_index


def is_deposed():
    cluster = without_n3()
    for message in what_deposes("n0", cluster["n0"].state.term + 1):
        cluster.step(message)
    return cluster["n0"].state.role is not Role.LEADER


def test_who_was_removed_is_not_heard():
    cluster = without_n3()
    for node in ("n0", "n1", "n2"):
        before = facts(cluster, node)
        for term in (before[0], before[0] + 1, before[0] + 100):
            for message in what_deposes(node, term):
                cluster.network.clear()
                cluster.step(message)
                assert facts(cluster, node) == before, message
                assert not cluster.network, "it was answered"
        words = [e.extra for e in cluster.replicas[node].events if e.kind is EventKind.REFUSED]
        assert words
        assert "flaw=removed" in words[0]


def test_the_planted_bug_lets_it_depose_the_leader():
    assert not is_deposed()
    with planted(BY_TESTS["former-member-heard"]):
        assert is_deposed()


def test_it_is_a_member_until_its_removal_is_committed():
    cluster = Cluster(4)
    cluster.elect("n0")
    cluster.isolate("n0")
    assert cluster.change("n0", REMOVE, "n3") is None  # nobody else ever learns of it
    term = cluster["n0"].state.term
    cluster.step(HeartbeatReply("n3", "n0", term + 1, 1))
    assert cluster["n0"].state.term == term + 1


def test_a_leader_that_removed_itself_names_its_successor():
    cluster = Cluster(3)
    cluster.elect("n0")
    assert cluster.change("n0", REMOVE, "n0") is None
    cluster.stabilize()
    settle(cluster, 3)
    assert cluster.leader() in {"n1", "n2"}
    state = cluster["n1"].state
    assert state.membership.is_shut_out("n0", state.log.commit_index)


def test_the_leader_of_an_older_term_names_nobody():
    cluster = without_n3()
    before = facts(cluster, "n1")
    cluster.step(TimeoutNow("n3", "n1", before[0], before[-1]))
    assert facts(cluster, "n1") == before


def test_it_is_heard_again_when_it_is_added_again():
    cluster = without_n3()
    add_again(cluster)
    assert cluster["n1"].state.membership.latest.configuration.former == ()
    term = cluster["n1"].state.term
    cluster.step(HeartbeatReply("n3", "n0", term + 1, 1))
    assert cluster["n0"].state.term == term + 1


# A member that does not know yet that it was added again


class Vouchers:
    """The vouchers of a cluster of cores."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.sent = []
        self.now_ms = 0
        self.each = {i: Voucher(cluster[i], self.sent.append) for i in cluster.ids}

    def go(self):
        self.now_ms += ASK_INTERVAL_MS
        for voucher in self.each.values():
            voucher.pass_time(self.now_ms)
        found, self.sent[:] = list(self.sent), []
        for message in found:
            self.each[message.receiver].on_message(message)
        answers, self.sent[:] = list(self.sent), []
        for message in answers:
            self.each[message.receiver].on_message(message)
        return found, answers


def lagging():
    """n2 has seen n3 go, was away when it came back; now n3 leads and n0 lives, too."""
    cluster = without_n3()
    cluster.isolate("n2")
    cut = set(cluster.cut)
    cluster.heal()
    cluster.cut = {(a, b) for a, b in cut if "n2" in (a, b)}
    assert cluster.change("n0", ADD, "n3") is None
    settle(cluster)
    assert cluster.change("n0", PROMOTE, "n3") is None
    settle(cluster)
    cluster.do("n0", lambda raft: raft.resign())
    cluster.elect("n3")
    cluster.heal()
    return cluster


def catches_up():
    cluster = lagging()
    vouchers = Vouchers(cluster)
    for _ in range(5):
        settle(cluster)
        vouchers.go()
    return cluster["n2"].state.log.last_index == cluster["n3"].state.log.last_index


def test_who_lags_asks_the_others_and_hears_the_one_added_again():
    assert catches_up()
    with planted(BY_TESTS["nobody-vouches"]):
        assert not catches_up()


def test_nobody_is_asked_as_long_as_nobody_is_shut_out():
    cluster = Cluster(3)
    cluster.elect("n0")
    vouchers = Vouchers(cluster)
    assert vouchers.go() == ([], [])


def test_a_former_member_vouches_for_nobody():
    cluster = without_n3()
    vouchers = Vouchers(cluster)
    state = cluster["n1"].state
    found = Configuration({"n3": "x:1"}, version=99)
    vouchers.each["n1"].on_message(ToldMembers("n3", "n1", 9, found))
    assert state.membership.is_shut_out("n3", state.log.commit_index)
    vouchers.each["n1"].on_message(AskMembers("n3", "n1", 9, 0))
    assert not vouchers.sent


@pytest.mark.parametrize(
    "told",
    [
        Configuration({"n3": "x:1"}, version=1),  # what is known already
        Configuration({}, {"n3": "x:1"}, 99),
        Configuration({f"n{number}": "x:1" for number in range(100)}, {}, 99),
    ],
)
def test_what_cannot_be_or_is_old_counts_for_nothing(told):
    cluster = without_n3()
    state = cluster["n1"].state
    Vouchers(cluster).each["n1"].on_message(ToldMembers("n0", "n1", 9, told))
    assert state.membership.is_shut_out("n3", state.log.commit_index)


def test_what_the_others_said_ends_with_what_the_log_says():
    cluster = without_n3()
    state = cluster["n1"].state
    told = Configuration({"n0": "", "n1": "", "n3": ""}, version=2)
    assert state.membership.vouch(told)
    assert not state.membership.vouch(told)
    assert not state.membership.is_shut_out("n3", state.log.commit_index)
    state.membership.add(ConfigEntry(50, 1, Configuration({"n0": ""}, {}, 2, ("n3",))))
    assert state.membership.is_shut_out("n3", 50)


# As bytes


def test_former_members_are_in_the_bytes_only_if_there_are_any():
    first = Configuration({"n0": "a:1", "n1": "b:1"}, {}, 4)
    assert encode_configuration(first) == (
        b'{"voters":{"n0":"a:1","n1":"b:1"},"learners":{},"version":4}'
    )
    second = changed(first, Change(REMOVE, "n1"))
    assert encode_configuration(second).endswith(b'"version":5,"removed":["n1"]}')
    for found in (first, second):
        data = encode_snapshot((7, 2, 4096), 7, ConfigEntry(3, 1, found), b"")
        assert decode_snapshot(data)[0].configuration.configuration == found


def test_only_the_last_former_members_are_remembered():
    found = Configuration({"n0": "a:1"})
    for number in range(1, FORMER_MAX + 10):
        found = changed(found, Change(ADD, f"n{number}", "b:1"))
        found = changed(found, Change(REMOVE, f"n{number}"))
    assert len(found.former) == FORMER_MAX
    assert found.former[-1] == f"n{FORMER_MAX + 9}"


def frame_of(buffers):
    (frame,) = FrameDecoder().feed(b"".join(buffers))
    return frame


def test_the_two_messages_are_read_back_equal():
    codec, other = PeerCodec("g", "n0", ("n1",)), PeerCodec("g", "n1", ("n0",))
    told = Configuration({"n0": "a:1"}, {"n1": "b:1"}, 4, ("n2",))
    for message in (AskMembers("n0", "n1", 3, 4), ToldMembers("n0", "n1", 3, told)):
        assert other.decode(frame_of(codec.encode(message))) == message
    data = bytearray(b"".join(codec.encode(ToldMembers("n0", "n1", 3, told))))
    data[-3] ^= 1
    with pytest.raises(CorruptEntry, match="CRC of its text"):
        other.decode(frame_of((bytes(data),)))
