"""A read is told once a majority has answered a round behind it, and when it is known."""

from types import SimpleNamespace

import pytest

from dledger.core.messages import Heartbeat, HeartbeatReply
from sim.oracles.base import Findings
from sim.oracles.reading import EARLY, ROUND, Reading
from sim.oracles.truth import Truth

VOTERS = ("n0", "n1", "n2")


class Future:
    """What a read waits for."""

    value = None

    def done(self):
        return self.value is not None

    def cancelled(self):
        return False

    def exception(self):
        return None if isinstance(self.value, int) else self.value

    def result(self):
        return self.value


class Group:
    """A leader of term 3 that is asked for reads, and its followers."""

    def __init__(self, *, is_written=True):
        self.findings = Findings()
        self.oracle = Reading(Truth(VOTERS), self.findings)
        self.futures, self.value = [], 7
        leadership = SimpleNamespace(begin_read=self.begin, release=self.release)
        user = SimpleNamespace(on_committed=lambda _index: None, on_snapshot=lambda *_: None)
        latest = SimpleNamespace(index=2 if is_written else 9)
        self.leader = SimpleNamespace(
            name="n0", last_index=8,
            state=SimpleNamespace(term=3, membership=SimpleNamespace(latest=latest)),
            node=SimpleNamespace(_leadership=leadership, _user=user, commit_index=4),
        )  # fmt: skip
        self.oracle.on_boot(self.leader)
        self.node = self.leader.node

    def begin(self):
        self.futures.append(Future())
        return self.futures[-1]

    def release(self, _commit_index):
        for future in self.futures:
            future.value = self.value

    def beat(self, number, *answers, term=3):
        for peer in VOTERS[1:]:
            self.oracle.on_message(self.leader, Heartbeat("n0", peer, term, 4, number))
        for name in answers:
            follower = SimpleNamespace(name=name)
            self.oracle.on_message(follower, HeartbeatReply(name, "n0", term, number))

    def told(self, index=7):
        self.node._user.on_committed(index)
        self.node._leadership.release(index)
        found = self.findings.first
        return None if found is None else found.oracle


def asked(*answers, term=3, **more):
    group = Group(**more)
    group.beat(1, "n1", "n2")
    group.node._leadership.begin_read()
    group.beat(2, *answers, term=term)
    return group


def test_a_read_that_a_majority_has_confirmed_is_sound():
    assert asked("n2").told() is None
    later = asked()
    later.beat(3, "n1")
    assert later.told() is None


def test_answers_to_a_round_before_it_confirm_no_read():
    assert asked().told() == ROUND


def test_answers_of_another_term_confirm_no_read():
    assert asked("n1", "n2", term=2).told() == ROUND


def test_a_read_that_failed_tells_nothing():
    group = asked()
    group.value = ValueError("not the leader")
    assert group.told() is None


def test_nobody_knows_whom_a_configuration_counts_that_is_not_written():
    assert asked(is_written=False).told() is None


def test_a_read_is_not_told_before_what_it_covers():
    group = asked("n1")
    assert group.told(6) == EARLY


def test_a_snapshot_tells_all_it_covers():
    group = asked("n1")
    meta = SimpleNamespace(id=SimpleNamespace(last_index=7))
    group.node._user.on_snapshot(meta, b"")
    group.node._leadership.release(7)
    assert group.findings.first is None


@pytest.mark.parametrize("voters", [("n0",), ("n0", "n1")])
def test_the_leader_counts_as_one(voters):
    group = Group()
    group.oracle._truth.first_voters = voters
    group.node._leadership.begin_read()
    assert group.told() == (None if len(voters) == 1 else ROUND)
