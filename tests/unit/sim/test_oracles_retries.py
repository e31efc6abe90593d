"""Retries and dead letters are judged by the log and by which listener failed."""

import pytest

from sim.oracles.base import Findings, Violation
from sim.oracles.delays import SCHEDULE_TOPIC
from sim.oracles.retries import ALIVE, CHANGED, FALSE, LADDER, LOST, UNASKED, Retries
from sim.oracles.wire import Said
from tests.unit.sim.logs import Log, parts

KEY = 91
RETRY, DEAD = "%RETRY%workers", "%DLQ%workers"
TIMES_MAX, LEVELS = 2, 4


class One(Log):
    """One message, for which a listener has failed once."""

    def __init__(self, *, failed=True, level=0):
        super().__init__()
        self.dropped = {}
        self.oracle = Retries(
            self.truth, Findings(), ("workers", "tasks"), TIMES_MAX, LEVELS, self.dropped
        )
        self.place = self.add("tasks", 0, KEY, parts(properties={"KEYS": str(KEY)}))
        if failed:
            self.oracle.on_failed(self.place, KEY, 0, level)

    def give_back(self, code=36, **fields):
        """Let a broker hear that the message is given back, or a copy of it from its consumer."""
        said = {"offset": self.truth_position()} if code == 36 else fields
        self.oracle.hear(Said(code, said, b"", 0, b""))

    def truth_position(self):
        return int(self.id_of(self.place)[-16:], 16)

    def copy(self, times=1, level=3, body_hash=None, topic="tasks", asked=True, **said):
        if asked:
            self.give_back()
        properties = {
            "KEYS": str(KEY),
            "REAL_TOPIC": RETRY,
            "RETRY_TOPIC": topic,
            "ORIGIN_MESSAGE_ID": self.id_of(self.place),
        } | said
        where = (SCHEDULE_TOPIC, level - 1) if level else (DEAD, 0)
        return self.add(
            *where, KEY, parts(reconsume_times=times, properties=properties), body_hash
        )  # fmt: skip

    def retry(self, times, place):
        """Deliver what waits, and let the listener fail again."""
        said = self.truth.parts[self.truth.row(*place).entry_index, 1]
        origin = (place[1], place[2])
        there = self.add(RETRY, 0, KEY, said._replace(origin=origin))
        self.oracle.on_failed(there, KEY, times, 0)

    def commit(self, offset, topic="tasks"):
        self.state("offset", {f"{topic}@workers": {"0": offset}})


def test_a_ladder_that_ends_with_a_dead_letter_is_right():
    one = One()
    one.retry(1, one.copy(1, 3))
    one.commit(1)
    one.retry(2, one.copy(2, 4))
    assert one.oracle.open() == [KEY]
    one.copy(3, 0)
    one.commit(2, RETRY)
    assert one.oracle.open() == []


def test_what_is_finished_needs_no_copy():
    one = One()
    one.oracle.on_finished(one.place, KEY)
    one.commit(1)
    assert one.oracle.open() == []


def test_the_listener_may_say_when_and_that_it_gives_up():
    One(level=2).copy(1, 2)
    One(level=-1).copy(1, 0)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        (LADDER, lambda: One(failed=False).copy()),
        (LADDER, lambda: One().copy(level=4)),
        (LADDER, lambda: One().copy(times=2)),
        (LADDER, lambda: One().add(RETRY, 0, KEY, parts())),
        (FALSE, lambda: One().copy(level=0)),
        (CHANGED, lambda: One().copy(topic=RETRY)),
        (CHANGED, lambda: One().copy(body_hash=5)),
        (CHANGED, lambda: One().copy(KEYS="5")),
        (CHANGED, lambda: One().copy(ORIGIN_MESSAGE_ID="0" * 32)),
        (LOST, lambda: One().commit(1)),
    ],
)
def test_each_rule_is_violated_alone(name, spoil):
    with pytest.raises(Violation, match=name):
        spoil()


def test_a_message_that_was_delivered_too_often_does_not_come_again():
    one = One()
    one.retry(1, one.copy(1, 3))
    one.retry(2, one.copy(2, 4))
    with pytest.raises(Violation, match=ALIVE):
        one.copy(3, 4)


def test_what_was_dropped_with_the_log_is_excused():
    one = One()
    one.dropped["tasks", 0] = 1
    assert one.oracle.open() == []
    one.commit(1)


def test_each_copy_was_asked_for_by_a_request_of_its_own():
    one = One()
    one.copy()
    with pytest.raises(Violation, match=UNASKED):
        one.copy(asked=False)


def test_a_copy_may_be_asked_for_twice_and_be_sent_by_the_consumer():
    one = One()
    one.give_back()
    one.give_back(310, b=RETRY, i=f"KEYS\x01k\x02ORIGIN_MESSAGE_ID\x01{one.id_of(one.place)}")
    one.copy(asked=False)
    one.copy(asked=False)
    one.give_back(310, b="tasks", i="")
    one.give_back(310, b=RETRY, i="ORIGIN_MESSAGE_ID\x01short")
    with pytest.raises(Violation, match=UNASKED):
        one.copy(asked=False)
