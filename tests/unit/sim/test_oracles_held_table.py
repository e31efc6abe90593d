"""A leader holds pulls where their queues end, and counts them as it holds them."""

from types import SimpleNamespace

import pytest

from broker.pulls.long_polling import HeldPull, HoldTable
from sim.oracles.base import Violation
from sim.oracles.held_table import GONE, KEPT, LOOKS, WAITS, HeldTable

RED = frozenset({1})


def pull(offset, connection=1, opaque=7, closed=False):
    return HeldPull(
        connection=SimpleNamespace(id=connection, closed=closed), opaque=opaque,
        serialize_type=0, topic="orders",
        queue_id=0, offset=offset, max_count=1, wanted=RED, deadline_ms=1_000, group="g",
        holder="10.0.3.1",
    )  # fmt: skip


def leader(*pulls, end=5, readable=True):
    table = HoldTable()
    for one in pulls:
        assert table.hold(one)
    reader = SimpleNamespace(max_offset=lambda _topic, _queue_id: end)
    controller = SimpleNamespace(
        tables=SimpleNamespace(held=table),
        store=SimpleNamespace(reader=reader, readable=readable),
    )
    return SimpleNamespace(name="n0", is_corrupt=False, controller=controller)


def look(replica, times):
    oracle = HeldTable()
    try:
        for _ in range(times):
            oracle.on_tick(replica)
    except Violation as found:
        return found.oracle
    return None


@pytest.mark.parametrize(
    ("replica", "times", "oracle"),
    [
        (leader(pull(5), pull(9, opaque=8)), LOOKS, None),
        (leader(pull(4)), LOOKS - 1, None),
        (leader(pull(4)), LOOKS, WAITS),
        (leader(pull(4), readable=False), LOOKS, None),
    ],
)
def test_a_pull_waits_where_its_queue_ends(replica, times, oracle):
    assert look(replica, times) == oracle


def test_one_that_gets_on_is_looked_at_anew():
    replica, oracle = leader(one := pull(3)), HeldTable()
    for _ in range(LOOKS - 1):
        oracle.on_tick(replica)
    one.offset = 4
    for _ in range(LOOKS - 1):
        oracle.on_tick(replica)


@pytest.mark.parametrize("what", ["_by_deadline", "_by_connection", "_filters"])
def test_counts_are_those_of_what_is_held(what):
    replica = leader(pull(5), pull(5, connection=2))
    assert look(replica, 1) is None
    getattr(replica.controller.tables.held, what).clear()
    assert look(replica, 1) == KEPT


def test_nothing_is_held_for_a_connection_that_is_gone():
    replica = leader(pull(5, closed=True))
    assert look(replica, 1) is None
    assert look(replica, 2) == GONE
