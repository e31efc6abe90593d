"""Members compare their clocks: a majority overrules one, and one overrules nobody."""

import logging

import pytest

from dledger.codec.peer import PeerCodec
from dledger.core.messages import TellClock
from dledger.peers.clocks import APART_MS, STALE_MS, Clocks
from ledgermq.remoting.protocol.frame import FrameDecoder
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.dledger.cluster import Cluster

T0 = 1_700_000_000_000
DAY = 24 * 3_600_000


class Clock:
    """A machine's two clocks; ``off`` is how wrong the wall clock is."""

    def __init__(self, off=0):
        self.off = off
        self.now = 0

    def wall_ms(self):
        return T0 + self.now + self.off

    def monotonic_ms(self):
        return 7 + self.now


class Members:
    """A group whose members tell each other the time."""

    def __init__(self, *offs):
        self.cluster = Cluster(len(offs))
        self.clocks = {i: Clock(off) for i, off in zip(self.cluster.ids, offs, strict=True)}
        self.sent = []
        self.each = {
            i: Clocks(self.cluster[i], clock, self.sent.append) for i, clock in self.clocks.items()
        }
        self.silent = set()

    def go(self, ms=2_000):
        for clock in self.clocks.values():
            clock.now += ms
        for node, clocks in self.each.items():
            if node not in self.silent:
                clocks.pass_time(self.clocks[node].monotonic_ms())
        for message in self.sent:
            self.each[message.receiver].on_message(message)
        self.sent.clear()

    def corrections(self):
        return [clocks.correction_ms() for clocks in self.each.values()]


def after(*offs):
    members = Members(*offs)
    members.go()
    return members.corrections()


@pytest.mark.parametrize("wrong", [100 * DAY, -100 * DAY, APART_MS + 1_000])
def test_a_majority_overrules_one(wrong):
    assert after(0, wrong, 500) == [0, (500 if wrong > 0 else 0) - wrong, 0]
    assert after(wrong, 0, 0, 300, -300)[0] == pytest.approx(-wrong, abs=300)
    assert after(wrong, 0, 0, 300, -300)[1:] == [0] * 4


def test_the_planted_bugs_ignore_a_majority_or_believe_one():
    with planted(BY_TESTS["majority-clock-ignored"]):
        assert after(0, DAY, 0)[1] is None
    with planted(BY_TESTS["one-clock-overrules"]):
        assert after(0, DAY, 0)[0] == DAY


@pytest.mark.parametrize("apart", [0, 1_000, APART_MS, -APART_MS])
def test_clocks_that_are_about_right_are_left_alone(apart):
    assert after(0, apart, 0) == [0, 0, 0]


def test_where_no_majority_agrees_nobody_is_overruled():
    assert after(0, DAY) == [None, None]
    assert after(0, DAY, -DAY) == [None, -DAY, DAY], "the one in the middle"
    assert after(0, 0, DAY, DAY) == [None] * 4
    assert after(0) == [None]


def test_without_a_majority_nothing_is_known():
    members = Members(0, 0, 0)
    assert members.corrections() == [None] * 3
    members.silent = {"n1", "n2"}
    members.go()
    assert members.corrections() == [None, 0, 0]


def test_what_was_told_counts_for_a_while_only():
    members = Members(0, DAY, 0)
    members.go()
    members.silent = {"n0", "n2"}
    members.go(STALE_MS - 1)
    assert members.corrections()[1] == -DAY
    members.go(2)
    assert members.corrections()[1] is None


def test_a_leap_of_the_own_clock_is_seen_at_once():
    members = Members(0, 0, 0)
    members.go()
    members.clocks["n0"].off = DAY
    assert members.corrections() == [-DAY, 0, 0]
    members.clocks["n0"].off = 0
    assert members.corrections() == [0, 0, 0]


def test_only_members_are_listened_to():
    members = Members(0, 0, 0)
    for sender in ("n8", "n9"):
        members.each["n0"].on_message(TellClock(sender, "n0", 1, T0 + DAY))
    members.each["n0"].on_message(TellClock("n1", "n0", 1, -1))
    assert members.each["n0"].ahead() == {}


def test_a_difference_is_told_once_and_by_name(caplog):
    caplog.set_level(logging.WARNING)
    members = Members(0, DAY)
    for _ in range(5):
        members.go()
    found = [r.getMessage() for r in caplog.records if "peer=n1" in r.getMessage()]
    assert found == [f"event=clocks_differ peer=n1 ahead_ms={DAY}"]
    members.clocks["n1"].off = 0
    for _ in range(5):
        members.go()
    assert "event=clocks_agree peer=n1" in caplog.text


def test_who_is_never_to_tell_tells_nothing():
    cluster, sent = Cluster(3), []
    Clocks(cluster["n0"], Clock(), sent.append, 0).pass_time(10**6)
    assert not sent


def test_the_message_is_read_back_equal():
    codec, other = PeerCodec("g", "n0", ("n1",)), PeerCodec("g", "n1", ("n0",))
    message = TellClock("n0", "n1", 3, T0)
    (frame,) = FrameDecoder().feed(b"".join(codec.encode(message)))
    assert other.decode(frame) == message
