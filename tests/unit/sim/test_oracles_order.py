"""Order is judged by where messages lie, who has the locks, and what listeners have in hand."""

import pytest

from sim.oracles.base import Findings, Violation
from sim.oracles.order import (
    FALSE,
    GIVEN,
    LEASE_NS,
    LEFT,
    MOVED,
    PAST,
    SKIPPED,
    TWO,
    WORKED,
    Locks,
    Order,
)
from tests.unit.sim.logs import Log, parts

KEY = "key1"
QUEUES = 2
QUEUE = ("steps", 0)


def alive():
    return True


class One(Log):
    """Three messages of a key."""

    def __init__(self, times_max=-1):
        super().__init__()
        self.findings = Findings()
        self.dropped = {}
        self.oracle = Order(
            self.truth, self.findings, ("steppers", "steps"), QUEUES, times_max, self.dropped
        )
        for number in range(3):
            self.step(number)

    def step(self, number, queue_id=0, key="key1"):
        self.add("steps", queue_id, 90 + number, parts(properties={"__SHARDINGKEY": key}))

    def begin(self, *offsets, member="o0", lives=alive):
        self.oracle.on_begun(member, QUEUE, offsets, lives)
        return None if self.findings.first is None else self.findings.first.oracle

    def end(self, *offsets, member="o0", is_done=True):
        self.oracle.on_ended(member, QUEUE, offsets, is_done=is_done)

    def commit(self, offset):
        self.state("offset", {"steps@steppers": {"0": offset}})


def test_one_after_the_other_is_right():
    one = One()
    for offset in range(3):
        assert one.begin(offset) is None
        one.end(offset)
        one.commit(offset + 1)
    assert one.oracle.open() == []


def test_a_key_whose_message_lies_elsewhere_is_found():
    with pytest.raises(Violation, match=MOVED):
        One().step(4, queue_id=1)


def test_who_was_killed_has_nothing_in_hand():
    one = One()
    assert one.begin(0, lives=lambda: False) is None
    assert one.begin(0, member="o1") is None


def ended(one):
    one.end(0)


def cancelled(one):
    one.oracle.on_cancelled("o0", QUEUE)


def left(one):
    """Its listener is at work still."""


@pytest.mark.parametrize(
    ("after", "member", "queue", "found"),
    [
        (left, "o0", QUEUE, WORKED),
        (left, "o1", QUEUE, None),
        (left, "o0", ("steps", 1), None),
        (ended, "o0", QUEUE, None),
        (cancelled, "o0", QUEUE, None),
    ],
)
def test_a_lock_is_given_back_when_no_listener_is_at_work(after, member, queue, found):
    one = One()
    one.begin(0)
    after(one)
    one.oracle.on_unlocked(member, queue)
    assert (None if one.findings.first is None else one.findings.first.oracle) == found


def test_two_at_a_time_are_found():
    one = One()
    one.begin(0)
    assert one.begin(0, member="o1") == TWO


def test_what_lies_behind_an_unfinished_message_is_found():
    one = One()
    one.begin(0)
    one.end(0, is_done=False)
    assert one.begin(1) == SKIPPED


def test_what_was_dropped_is_not_waited_for():
    one = One()
    one.dropped[QUEUE] = 1
    assert one.begin(1) is None


def test_a_commit_past_an_unfinished_message_is_found():
    with pytest.raises(Violation, match=PAST):
        One().commit(1)


def test_a_message_that_is_given_up_too_early_is_found():
    one = One(times_max=1)
    one.begin(0)
    one.end(0, is_done=False)
    with pytest.raises(Violation, match=FALSE):
        one.add("%DLQ%steppers", 0, 90)


def test_what_was_given_up_is_done_with():
    one = One(times_max=0)
    one.begin(0)
    one.end(0, is_done=False)
    one.add("%DLQ%steppers", 0, 90)
    assert one.begin(1) is None
    one.commit(1)


def lock(log, owner, kind="lock"):
    log.state(kind, {"group": "g", "clientId": owner, "queues": [{"topic": "t", "queueId": 0}]})


def test_a_lock_that_was_given_back_or_ran_out_is_free():
    log = Log()
    Locks(log.truth)
    lock(log, "a")
    lock(log, "a")
    lock(log, "a", "unlock")
    lock(log, "b")
    log.now_ns += LEASE_NS
    lock(log, "c")


def test_a_lock_that_two_have_is_found():
    log = Log()
    Locks(log.truth)
    lock(log, "a")
    lock(log, "b", "unlock")
    log.now_ns += LEASE_NS - 1
    with pytest.raises(Violation, match=GIVEN):
        lock(log, "b")


@pytest.mark.parametrize(("asked", "is_wrong"), [(None, True), (2, True), (3, False), (4, False)])
def test_who_unlocks_has_asked_for_its_offset_before(asked, is_wrong):
    one = One()
    one.oracle.on_left("o0", QUEUE, 3, asked)
    assert (one.findings.first is not None) == is_wrong
    assert not is_wrong or one.findings.first.oracle == LEFT
