"""Each member of a broadcasting group gets each message, and its file says how far it has come."""

import json

import pytest

from sim.oracles.base import Findings
from sim.oracles.broadcast import BEGAN, KEPT, LATE, SETTLED_NS, WRITTEN_NS, Broadcast
from tests.unit.sim.logs import Log

QUEUE = ("orders", 0)


def file(offset, broker="group"):
    key = json.dumps({"brokerName": broker, "queueId": 0, "topic": "orders"}, separators=(",", ":"))
    return f'{{"offsetTable":{{{key}:{offset}}}}}'.encode()


class One(Log):
    """A queue of four messages."""

    def __init__(self, *, is_first=True):
        super().__init__()
        self.findings = Findings()
        self.dropped = {}
        self.oracle = Broadcast(
            self.truth, self.findings, ("group", "orders"), is_first=is_first, dropped=self.dropped
        )
        for number in range(4):
            self.add(*QUEUE, 90 + number)

    def hand(self, *offsets):
        for offset in offsets:
            self.oracle.on_handed("v0", QUEUE, offset)
            self.oracle.on_taken("v0", QUEUE, offset)
        return self

    def stop(self, content):
        self.oracle.on_stopped("v0", content)
        return None if self.findings.first is None else self.findings.first.oracle

    def missing(self):
        return [offset for _, offset in self.oracle.missing("v0")]


def test_who_begins_at_the_first_gets_all():
    one = One()
    assert one.hand(0, 1).missing() == [2, 3]
    assert one.hand(2, 3).missing() == []


def test_who_begins_at_the_end_gets_all_from_then_on():
    one = One(is_first=False)
    assert one.missing() == []
    assert one.hand(1, 3).missing() == [2]


def test_what_was_dropped_is_not_missed():
    one = One()
    one.dropped[QUEUE] = 2
    assert one.hand(2).missing() == [3]


def test_a_member_that_stops_has_written_what_it_did():
    assert One().hand(0, 1).stop(file(2)) is None


@pytest.mark.parametrize("content", [None, b"", file(1), file(2, "other")])
def test_a_file_that_says_less_is_found(content):
    assert One().hand(0, 1).stop(content) == KEPT


def test_a_life_begins_where_the_one_before_has_written():
    one = One().hand(0, 1)
    one.stop(file(2))
    one.hand(2)
    assert one.findings.first is None
    one.stop(file(3))
    one.hand(1)
    assert one.findings.first.oracle == BEGAN


def test_who_has_done_its_work_has_written_it_down():
    one = One().hand(0, 1)
    assert one.oracle.unwritten("v0", file(1)) == [(QUEUE, 1)]
    assert one.oracle.unwritten("v0", file(2)) == []
    assert one.oracle.unwritten("v1", b"") == []


def test_who_is_killed_before_it_has_written_may_begin_anew():
    one = One(is_first=False).hand(0)
    one.now_ns = SETTLED_NS - 1
    one.oracle.on_killed("v0", None)
    assert one.hand(2, 3).missing() == []
    other = One(is_first=False).hand(0)
    other.now_ns = SETTLED_NS
    other.oracle.on_killed("v0", None)
    assert other.hand(2, 3).missing() == [1]


@pytest.mark.parametrize(
    ("content", "after_ns", "found"),
    [
        (file(2), WRITTEN_NS, None),
        (file(1), WRITTEN_NS, LATE),
        (None, WRITTEN_NS, LATE),
        (file(1), WRITTEN_NS - 1, None),
    ],
)
def test_who_is_killed_has_written_what_it_took_long_before(content, after_ns, found):
    one = One().hand(0, 1)
    one.now_ns += after_ns
    one.oracle.on_killed("v0", content)
    first = one.findings.first
    assert (None if first is None else first.oracle) == found


def test_what_was_taken_behind_a_gap_need_not_be_written():
    one = One().hand(0, 2)
    one.now_ns += WRITTEN_NS
    one.oracle.on_killed("v0", file(1))
    assert one.findings.first is None


def test_what_was_taken_behind_one_that_takes_long_need_not_be_written():
    one = One()
    one.oracle.on_handed("v0", QUEUE, 0)
    one.hand(1)
    one.now_ns += WRITTEN_NS
    one.oracle.on_killed("v0", file(0))
    assert one.findings.first is None


def test_what_another_life_took_is_not_asked_for():
    one = One().hand(0, 1)
    one.oracle.on_killed("v0", None)
    one.now_ns += WRITTEN_NS
    one.hand(0).oracle.on_killed("v0", None)
    assert one.findings.first is None
