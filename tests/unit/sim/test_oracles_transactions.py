"""Transactions are judged by halves, copies and op messages in the log, and by what was decided."""

import pytest

from sim.oracles.base import Violation
from sim.oracles.model import COPIED, Model
from sim.oracles.transactions import (
    ASKED,
    CHANGED,
    COUNT,
    EARLY,
    EARLY_ASKED,
    HALF_TOPIC,
    MISSING,
    OP_TOPIC,
    PARK_TOPIC,
    ROLLED_BACK,
    TWICE,
    End,
    Transactions,
    immunity_ms,
)
from tests.unit.sim.logs import Log, parts

KEY = 91
PLACE = 4_848
CHECK_MAX = 2
CHECK_MS = 500
SENT = {"REAL_TOPIC": "payments", "REAL_QID": "1", "TRAN_MSG": "true", "KEYS": str(KEY)}


class One(Log):
    """A half, and what has been decided about it."""

    def __init__(self, end=None):
        super().__init__()
        self.dropped = {}
        self.oracle = Transactions(self.truth, "payments", (CHECK_MAX, CHECK_MS), self.dropped)
        self.add(HALF_TOPIC, 0, KEY, parts(physical=PLACE, properties=SENT))
        if end is not None:
            self.oracle.decide(KEY, end)

    def copy(self, topic="payments", key=KEY, **said):
        usual = {"half": PLACE, "sys_flag": 8, "properties": SENT}
        self.add(topic, 1, key, parts(**(usual | said)))
        return self

    def park(self):
        self.add(PARK_TOPIC, 0, KEY, parts(half=PLACE, properties=SENT))
        return self

    def finish(self):
        self.add(OP_TOPIC, 0, None, parts(body=b"0"), body_hash=1)
        return self

    def ask(self, *counts):
        for count in counts:
            self.state(ASKED, [[0, count]])
        return self


def test_a_commit_and_a_rollback_are_over_with_the_op_message():
    committed = One(End.COMMIT).copy()
    assert committed.oracle.open() == [0]
    assert committed.finish().oracle.open() == []
    assert One(End.ROLLBACK).finish().oracle.open() == []


def test_what_nobody_knows_is_parked_after_the_last_question():
    assert One().ask(1, 2).park().finish().oracle.open() == []


def test_a_copy_may_say_how_often_was_asked():
    One(End.COMMIT).ask(1).copy(properties=SENT | {"TRANSACTION_CHECK_TIMES": "1"})


def test_the_first_decision_stands():
    one = One(End.ROLLBACK)
    assert one.oracle.decide(KEY, End.COMMIT) is End.ROLLBACK


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        (EARLY, lambda: One().copy()),
        (EARLY, lambda: One(End.COMMIT).copy(half=None, sys_flag=0)),
        (ROLLED_BACK, lambda: One(End.ROLLBACK).copy()),
        (TWICE, lambda: One(End.COMMIT).copy().copy()),
        (TWICE, lambda: One(End.COMMIT).ask(1, 2).park().copy()),
        (TWICE, lambda: One(End.ROLLBACK).finish().copy()),
        (MISSING, lambda: One(End.COMMIT).finish()),
        (MISSING, lambda: One().finish()),
        (COUNT, lambda: One().ask(1).park()),
        (COUNT, lambda: One().ask(2)),
        (COUNT, lambda: One().ask(1, 1)),
        (COUNT, lambda: One().ask(1, 2, 3)),
        (CHANGED, lambda: One(End.COMMIT).copy(topic="other")),
        (CHANGED, lambda: One(End.COMMIT).copy(key=92)),
        (CHANGED, lambda: One(End.COMMIT).copy(body=b"other")),
        (CHANGED, lambda: One(End.COMMIT).copy(properties=SENT | {"KEYS": "92"})),
    ],
)
def test_each_rule_is_violated_alone(name, spoil):
    with pytest.raises(Violation, match=name):
        spoil()


@pytest.mark.parametrize(("asked_ms", "is_early"), [(1_499, True), (1_500, False)])
def test_nobody_is_asked_before_a_half_is_old_enough(asked_ms, is_early):
    one = One()
    one.truth.times[1, 1] = asked_ms
    if is_early:
        with pytest.raises(Violation, match=EARLY_ASKED):
            one.ask(1)
    else:
        one.ask(1)


@pytest.mark.parametrize(
    ("said", "least_ms"), [("", CHECK_MS), ("2", 2_000), ("0", 0), ("soon", 0), ("9999", 0)]
)
def test_who_asks_to_be_left_alone_is(said, least_ms):
    assert immunity_ms(said, CHECK_MS) == least_ms


def test_a_half_that_says_so_is_asked_for_later():
    sent = SENT | {"CHECK_IMMUNITY_TIME_IN_SECONDS": "2"}
    for waited_ms, is_early in ((1_999, True), (2_000, False)):
        one = One()
        one.oracle._halves[0].parts = parts(physical=PLACE, properties=sent)
        one.truth.times[1, 1] = one.truth.times[0, 1] + waited_ms
        if is_early:
            with pytest.raises(Violation, match=EARLY_ASKED):
                one.ask(1)
        else:
            one.ask(1)


def test_a_half_that_was_dropped_with_the_log_is_excused():
    one = One(End.COMMIT)
    one.dropped[HALF_TOPIC, 0] = 1
    assert one.oracle.open() == []
    one.finish()


def test_the_model_has_the_open_halves_and_how_often_was_asked():
    one = One(End.COMMIT).ask(1).copy()
    model = Model()
    for statement, halves in zip(
        one.finish().truth.statements, ({0: 0}, {0: 1}, {0: COPIED}, {}), strict=True
    ):
        model.apply(statement)
        assert model.halves == halves
    assert model.knows
