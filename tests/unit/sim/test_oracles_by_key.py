"""What is found by a key is of the time that was asked for, no more than that, and found again."""

from types import SimpleNamespace

import pytest

from sim.oracles.base import Violation
from sim.oracles.by_key import NAME, WHOLE_MS, ByKey

STORED = 100_000
WIDE = (0, 1 << 62)


class Broker:
    """One that has five messages of a key, stored at the same time."""

    def __init__(self):
        self.replica = SimpleNamespace(
            name="n0", incarnation=0, store=SimpleNamespace(first_index=0)
        )
        truth = SimpleNamespace(times={(at, 1): STORED for at in range(5)})
        self.oracle = ByKey(truth)

    def answer(self, *places, span=WIDE, limit=9, unique="false"):
        fields = {"topic": "orders", "key": "k", "_UNIQUE_KEY_QUERY": unique}
        numbers = {"beginTimestamp": span[0], "endTimestamp": span[1], "maxNum": limit}
        request = SimpleNamespace(text=fields.__getitem__, number=numbers.__getitem__)
        rows = [SimpleNamespace(entry_index=at, term=1) for at in places]
        try:
            self.oracle.check(self.replica, request, rows)
        except Violation as found:
            return found.oracle
        return None


@pytest.mark.parametrize(
    ("span", "found"),
    [
        (WIDE, None),
        ((STORED, STORED), None),
        ((STORED + WHOLE_MS, 1 << 62), None),
        ((STORED + WHOLE_MS + 1, 1 << 62), NAME),
        ((0, STORED - WHOLE_MS - 1), NAME),
    ],
)
def test_what_is_found_is_of_that_time(span, found):
    assert Broker().answer(0, span=span) == found


def test_no_more_is_found_than_was_asked_for():
    assert Broker().answer(0, 1, limit=2) is None
    assert Broker().answer(0, 1, 2, limit=2) == NAME
    assert Broker().answer(0, 1, 2, limit=1, unique="true") is None


def test_what_was_found_is_found_again():
    broker = Broker()
    assert broker.answer(0, 1) is None
    assert broker.answer(1, 0) is None
    assert broker.answer(0) == NAME


@pytest.mark.parametrize("cause", ["dropped", "another life", "as many as asked for", "the span"])
def test_what_is_not_found_again_may_have_a_cause(cause):
    broker = Broker()
    broker.answer(0, 1)
    if cause == "dropped":
        broker.replica.store.first_index = 1
    elif cause == "another life":
        broker.replica.incarnation = 1
    limit = 1 if cause == "as many as asked for" else 9
    span = (STORED + WHOLE_MS // 2, 1 << 62) if cause == "the span" else WIDE
    assert broker.answer(1, span=span, limit=limit) is None
