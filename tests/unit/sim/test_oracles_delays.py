"""Delayed messages are judged by the committed log alone: each rule is violated alone here."""

import contextlib

import pytest

from ledgermq.remoting.protocol.message import MessageExt, encode_record
from sim.oracles.base import Violation
from sim.oracles.delays import (
    CHANGED,
    EARLY,
    LATE,
    PASSED,
    SCHEDULE_TOPIC,
    TWICE,
    Delays,
    levels_of,
)
from sim.oracles.records import parts_of
from store.origins import origin_of
from tests.unit.sim.logs import Log, parts

WAITS = {"DELAY": "2", "REAL_TOPIC": "later", "REAL_QID": "1", "KEYS": "9"}
LEVEL, QUEUE = 1, ("later", 1)
DELAYS_MS = (1_000, 2_000)


class One(Log):
    """Two messages that wait in level 2; the second was stored a second later."""

    def __init__(self, **options):
        super().__init__()
        self.dropped = {}
        self.oracle = Delays(self.truth, DELAYS_MS, self.dropped, **options)
        for at in range(2):
            said = parts(stored_ms=1_000 + 1_000 * at, properties=WAITS)
            self.add(SCHEDULE_TOPIC, LEVEL, 90 + at, said)

    def copy(self, offset, stored_ms=5_000, topic="later", key=None, **said):
        usual = {"origin": (LEVEL, offset), "stored_ms": stored_ms, "properties": WAITS}
        self.add(topic, 1, 90 + offset if key is None else key, parts(**(usual | said)))


def test_each_copy_in_its_order_and_time_is_right():
    one = One()
    assert one.oracle.waiting(2_999) == []
    assert one.oracle.waiting(9_000) == [(2, 0), (2, 1)]
    one.copy(0, 3_000)
    one.copy(1, 4_000)
    assert one.oracle.waiting(9_000) == []
    assert one.oracle.copies == 2
    assert one.truth.statements[-1].content == [LEVEL, 1]


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        (EARLY, lambda one: one.copy(0, 2_999)),
        (TWICE, lambda one: [one.copy(0), one.copy(0)]),
        (PASSED, lambda one: one.copy(1)),
        (PASSED, lambda one: one.copy(2)),
        (PASSED, lambda one: one.state("delivered", [LEVEL, 0])),
        (CHANGED, lambda one: one.copy(0, topic="other")),
        (CHANGED, lambda one: one.copy(0, key=91)),
        (CHANGED, lambda one: one.copy(0, body=b"other")),
        (CHANGED, lambda one: one.copy(0, born_ms=8)),
        (CHANGED, lambda one: one.copy(0, born_host=b"\1" * 8)),
        (CHANGED, lambda one: one.copy(0, flag=1)),
        (CHANGED, lambda one: one.copy(0, reconsume_times=1)),
        (CHANGED, lambda one: one.copy(0, properties=WAITS | {"KEYS": "8"})),
    ],
)
def test_each_rule_is_violated_alone(name, spoil):
    one = One()
    with pytest.raises(Violation, match=name):
        spoil(one)


def test_what_was_dropped_with_the_log_need_not_come():
    one = One()
    one.dropped[SCHEDULE_TOPIC, LEVEL] = 1
    assert one.oracle.waiting(9_000) == [(2, 1)]
    one.copy(1)


def test_a_copy_is_early_by_the_time_of_its_send_too():
    one = One()
    one.oracle.sent_ns = lambda _key: 10
    one.now_ns = 1_999_000_000
    with pytest.raises(Violation, match=EARLY):
        one.copy(0)


def test_a_copy_is_late_where_nothing_has_happened_for_long():
    for disturbed_ms, stored_ms in ((6_000, 5_000), (0, 4_000)):  # the first is due at 3 s
        one = One()
        one.oracle.sent_ns, one.now_ns = (lambda _key: 0), 8_000_000_000
        one.oracle.disturbed_ns = lambda at_ms=disturbed_ms: at_ms * 1_000_000
        one.copy(0, stored_ms)
    one = One()
    one.now_ns, one.oracle.disturbed_ns = 8_000_000_000, lambda: 0
    one.copy(0, 4_001)  # clocks were moved
    one = One()
    one.oracle.sent_ns, one.oracle.disturbed_ns = (lambda _key: 0), lambda: 0
    one.now_ns = 8_000_000_000
    with pytest.raises(Violation, match=LATE):
        one.copy(0, 4_001)


def test_where_puts_are_refused_a_copy_may_be_later():
    for stored_ms, is_late in ((7_000, False), (7_001, True)):
        one = One(are_refused=True)
        one.oracle.sent_ns, one.oracle.disturbed_ns = (lambda _key: 0), lambda: 0
        one.now_ns = 8_000_000_000
        with pytest.raises(Violation, match=LATE) if is_late else contextlib.nullcontext():
            one.copy(0, stored_ms)


def test_a_stamp_is_the_beginning_of_its_millisecond():
    one = One()
    one.oracle.sent_ns = lambda _key: 900_000
    one.now_ns = 2_000_000_000
    one.copy(0)


def test_what_nobody_can_deliver_is_passed_over():
    one = One()
    one.copy(0)
    one.copy(1)
    one.add(SCHEDULE_TOPIC, LEVEL, None, parts(stored_ms=6_000), body_hash=1)
    one.state("delivered", [LEVEL, 2])
    assert one.oracle.waiting(99_000) == []


def test_levels_are_read_as_the_setting_has_them():
    assert levels_of("1s 2m 1h") == (1_000, 120_000, 3_600_000)
    assert len(levels_of("")) == 18


@pytest.mark.parametrize("host", [bytes(8), bytes(20)])
def test_parts_of_a_record_are_those_that_were_written(host):
    is_long = len(host) > 8
    flags = 0x30 if is_long else 0
    record = encode_record(
        MessageExt(
            "later", 1, 3, flags, 2, 48, 71, host, 72, host, 4, origin_of(5, 1 << 33), b"body",
            b"KEYS\x019\x02DELAY\x012",
        )
    )  # fmt: skip
    said = parts_of(bytes(48) + record)
    assert said == parts(
        flag=3, sys_flag=flags, born_ms=71, born_host=host, stored_ms=72, reconsume_times=4,
        origin=(5, 1 << 33), physical=48, properties={"KEYS": "9", "DELAY": "2"},
    )  # fmt: skip
