"""What is polled, filtered and replied is judged; so is the order of a connection."""

from types import SimpleNamespace

import pytest

from broker.pulls.sql92 import compile_sql92
from ledgermq.client import MessageQueue
from sim.oracles.base import Findings, Violation
from sim.oracles.further import (
    AHEAD,
    CALLED,
    DONE,
    FILTERED,
    FILTERS,
    LEFT,
    POLLED,
    REPLIED,
    WAITS,
    Further,
    Polling,
    reply_to,
)
from sim.oracles.pipeline import Pipeline
from sim.oracles.wire import Said
from sim.workload import colour_of
from tests.unit.sim.logs import Log

QUEUE = MessageQueue("orders", "b", 0)
PLACE = ("orders", 0)
TAP = SimpleNamespace(other="10.0.2.1")
RED, REST = 0, 3
"""Filters: one by a tag, one by a property that may not be there."""


class Judged:
    def __init__(self, dropped=0):
        self.log = Log()
        self.findings = Findings()
        record = SimpleNamespace(is_rich=True)
        self.judge = Further(self.log.truth, self.findings, record, {PLACE: dropped})
        self.polling = Polling("x0", self.judge)

    @property
    def oracle(self):
        found = self.findings.first
        return None if found is None else found.oracle

    def give(self, *offsets):
        self.polling.on_done()
        self.polling.on_given([(QUEUE, offset) for offset in offsets])
        return self


@pytest.mark.parametrize(
    ("dropped", "polls", "oracle"),
    [
        (0, [(3, 4), (5,)], None),
        (0, [(3, 4), (6,)], POLLED),
        (0, [(3, 5)], POLLED),
        (0, [(3, 4), (4,)], POLLED),
        (6, [(3, 4), (6,)], None),
        (6, [(3, 4), (7,)], POLLED),
    ],
)
def test_polls_go_on_where_the_one_before_ended(dropped, polls, oracle):
    judged = Judged(dropped)
    for offsets in polls:
        judged.give(*offsets)
    assert judged.oracle == oracle


@pytest.mark.parametrize(("offset", "oracle"), [(2, None), (5, POLLED), (1, POLLED)])
def test_a_poll_behind_a_seek_begins_there(offset, oracle):
    judged = Judged().give(3, 4)
    judged.polling.on_moved(QUEUE, 2)
    judged.give(offset)
    assert judged.oracle == oracle


def test_a_queue_that_is_paused_gives_nothing_out_and_then_goes_on_where_it_was():
    judged = Judged().give(3, 4)
    judged.polling.on_paused(QUEUE)
    judged.polling.on_paused(None)
    assert judged.give(5).oracle is None
    judged.polling.on_paused(QUEUE._replace(queue_id=1))
    assert judged.give(6).oracle is None
    judged.polling.on_paused(QUEUE)
    assert judged.give(7).oracle == POLLED


def test_a_queue_that_lost_messages_while_it_was_paused_is_noticed():
    judged = Judged().give(3, 4)
    judged.polling.on_paused(QUEUE)
    judged.polling.on_paused(None)
    assert judged.give(9).oracle == POLLED


def test_a_queue_that_is_taken_anew_begins_anywhere():
    judged = Judged().give(3, 4)
    judged.polling.on_taken(QUEUE)
    assert judged.give(1).oracle is None
    judged.polling.on_moved(QUEUE, None)
    assert judged.give(9).oracle is None


@pytest.mark.parametrize(("offset", "oracle"), [(3, None), (4, DONE)])
def test_what_was_just_given_out_is_not_committed(offset, oracle):
    judged = Judged().give(3, 4)
    judged.polling.on_commit(QUEUE, offset)
    assert judged.oracle == oracle


@pytest.mark.parametrize(("offset", "oracle"), [(5, None), (6, AHEAD)])
def test_nothing_is_committed_that_was_not_given_out(offset, oracle):
    judged = Judged().give(3, 4)
    judged.polling.on_done()
    judged.polling.on_commit(QUEUE, offset)
    assert judged.oracle == oracle


def test_what_was_given_out_before_is_done_with_when_the_caller_comes_again():
    judged = Judged().give(3, 4)
    judged.polling.on_done()
    judged.polling.on_commit(QUEUE, 5)
    assert judged.oracle is None


@pytest.mark.parametrize(
    ("number", "passed", "got", "oracle"),
    [
        (RED, 3, {1}, None),
        (RED, 3, set(), FILTERED),
        (RED, 1, set(), None),
        (RED, 3, {1, 2}, FILTERED),
        (REST, 3, {0, 1}, None),
        (REST, 3, {0, 1, 2}, FILTERED),
    ],
)
def test_a_filter_hands_out_what_has_the_properties(number, passed, got, oracle):
    judged = Judged()
    keys = (1, 2, 4)
    assert [colour_of(key, is_rich=True) for key in keys] == ["c1", "c2", "c4"]
    for index, (key, tag) in enumerate(zip(keys, ("blue", "red", "blue"), strict=True)):
        judged.log.add("orders", 0, key)
        judged.log.truth.tags[index, 1] = tag
    judged.judge.on_filtered(PLACE, range(passed), number, got)
    assert judged.oracle == oracle
    assert FILTERS[RED][0] == "TAGS = 'red'"


@pytest.mark.parametrize(("asked", "oracle"), [(None, LEFT), (4, LEFT), (5, None)])
def test_who_stops_has_committed_what_it_gave_out(asked, oracle):
    judged = Judged().give(3, 4)
    judged.polling.on_done()
    if asked is not None:
        judged.polling.on_commit(QUEUE, asked)
    judged.polling.on_stopped([QUEUE])
    assert judged.oracle == oracle
    moved = Judged().give(3, 4)
    moved.polling.on_moved(QUEUE, 9)
    moved.polling.on_stopped([QUEUE])
    assert moved.oracle is None


@pytest.mark.parametrize(("asked", "oracle"), [(None, CALLED), (4, CALLED), (5, None)])
def test_a_call_commits_all_that_was_given_out(asked, oracle):
    judged = Judged().give(3, 4)
    judged.polling.on_done()
    if asked is not None:
        judged.polling.on_commit(QUEUE, asked)
    judged.polling.on_committed([QUEUE])
    assert judged.oracle == oracle
    other = Judged().give(3, 4)
    other.polling.on_committed([])
    assert other.oracle is None


def test_a_seek_that_goes_elsewhere_and_a_request_that_stays_are_told():
    judged = Judged()
    judged.judge.on_all_ended("x0", 0)
    assert judged.oracle is None
    judged.judge.on_all_ended("x0", 2)
    assert judged.oracle == WAITS
    judged = Judged()
    judged.polling.on_elsewhere(QUEUE, "max_offset is 7", 0)
    assert judged.oracle == POLLED


@pytest.mark.parametrize(("expression", "test"), FILTERS)
def test_filters_mean_what_the_broker_makes_of_them(expression, test):
    matches = compile_sql92(expression).matches
    for tag in ("", "red", "blue", "Aa", "BB"):
        for colour in (None, "c1", "c2", "c3", "c4", "c5"):
            told = {"TAGS": tag, "colour": colour}
            texts = {name: text for name, text in told.items() if text}
            assert matches(texts) == test(tag, colour), (expression, tag, colour)


def test_a_reply_is_that_of_its_request():
    judged = Judged()
    judged.judge.on_replied(b"one", reply_to(b"one"))
    assert judged.oracle is None
    judged.judge.on_replied(b"one", reply_to(b"two"))
    assert judged.oracle == REPLIED


def send(queue_id="0", more=b""):
    return Said(310, {"b": "orders", "e": queue_id}, b"", 0, b"KEYS" + more)


def told(offset, queue_id=0, code=0):
    fields = {"queueId": str(queue_id), "queueOffset": str(offset)}
    return Said(code, fields, b"", 0, b"")


@pytest.mark.parametrize(
    ("first", "second", "is_sound"),
    [
        (told(4), told(5), True),
        (told(5), told(4), False),
        (told(5, code=2), told(4), True),
        (told(5, queue_id=1), told(4), True),
    ],
)
def test_sends_of_a_connection_lie_in_their_order(first, second, is_sound):
    requests = [send(), send()]
    for answered in (requests, requests[::-1]):
        pipeline = Pipeline()
        for request in requests:
            pipeline.on_request(request)
        answers = {id(requests[0]): first, id(requests[1]): second}
        first_asked, last_asked = answered
        pipeline.on_answer(TAP, first_asked, answers[id(first_asked)])
        if is_sound:
            pipeline.on_answer(TAP, last_asked, answers[id(last_asked)])
        else:
            with pytest.raises(Violation):
                pipeline.on_answer(TAP, last_asked, answers[id(last_asked)])


@pytest.mark.parametrize("request_", [send("-1"), send(more=b"DELAY\x01"), send(more=b"TRAN_MSG")])
def test_what_may_lie_elsewhere_is_not_compared(request_):
    pipeline, other = Pipeline(), send()
    pipeline.on_request(request_)
    pipeline.on_request(other)
    pipeline.on_answer(TAP, request_, told(5))
    pipeline.on_answer(TAP, other, told(4))
