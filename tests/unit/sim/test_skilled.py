"""What skilled clients judge, what their expressions say, and which plans have them."""

from types import SimpleNamespace

import pytest
from msgspec import structs

from broker.limits import LOG_ROOM_BYTES
from broker.pulls.sql92 import compile_sql92
from ledgermq.client import MessageQueue, PullStatus
from sim.faults.draw import draw
from sim.faults.plan import decode_plan, encode_plan
from sim.faults.skilled import Skilled, draw_skilled
from sim.oracles import shares
from sim.oracles.base import Violation
from sim.rng import SplitRng
from sim.skilled import filters, frames, halves, members
from sim.skilled.batches import Batches
from sim.skilled.expressions import Expression, draw_expression, draw_properties
from sim.skilled.filters import Filters
from sim.skilled.frames import Frames
from sim.skilled.halves import COMMIT, ROLLBACK, DelayedHalves, Sent
from sim.skilled.locks import Locks
from sim.skilled.members import TRIES_CALM, NewGroups
from sim.smallness import ROOM, with_small
from tests.unit.sim.test_everyday import judge

QUEUE = MessageQueue("T", "g", 0)
RED = Expression("colour = 'red'", lambda properties: properties.get("colour") == "red")


@pytest.mark.parametrize("seed", range(60))
def test_an_expression_says_what_brokers_say(seed):
    rng = SplitRng(seed)
    expression = draw_expression(rng.split("expression"))
    matches = compile_sql92(expression.text).matches
    for number in range(20):
        properties = draw_properties(rng.split(f"message{number}"))
        assert expression.matches(properties) == matches(properties), (expression.text, properties)


def read(offset, *, got, upto):
    messages = [
        SimpleNamespace(queue_offset=at, content=lambda body=body: body) for at, body in got
    ]
    result = SimpleNamespace(
        status=PullStatus.FOUND, messages=messages, min_offset=0, next_offset=upto
    )
    sent = {b"red": {"colour": "red"}, b"blue": {"colour": "blue"}}
    one, life = judge(Filters, _topic="T", _sent=sent, _places={3: b"red", 4: b"blue"})
    life.dropped = 0
    one.check(QUEUE, RED, offset, result)
    return life.oracles


@pytest.mark.parametrize(
    ("offset", "got", "upto", "found"),
    [
        (0, [(3, b"red")], 5, []),
        (0, [], 5, [filters.OTHERWISE]),
        (0, [], 3, []),
        (4, [], 5, []),
        (0, [(3, b"red"), (4, b"blue")], 5, [filters.OTHERWISE]),
        (0, [(3, b"red"), (5, b"unknown")], 6, [filters.OTHERWISE]),
    ],
)
def test_a_read_brings_what_its_expression_wants_of_what_it_passes(offset, got, upto, found):
    assert read(offset, got=got, upto=upto) == found


@pytest.mark.parametrize(
    ("sent", "now_ms", "found"),
    [
        (Sent(1, COMMIT, 100), 1_100, []),
        (Sent(1, COMMIT, 100), 1_099, [halves.EARLY]),
        (Sent(0, COMMIT, 100), 100, []),
        (Sent(1, ROLLBACK, 100), 9_000, [halves.UNCOMMITTED]),
        (Sent(1), 9_000, [halves.UNCOMMITTED]),
    ],
)
def test_a_half_is_handed_out_once_it_is_committed_and_due(sent, now_ms, found):
    one, life = judge(DelayedHalves, _sent={b"one": sent}, _delays_ms=(0, 1_000), _topic="T")
    life.now = now_ms
    one.check(b"one")
    assert life.oracles == found
    assert sent.came


def test_what_is_committed_is_missing_until_it_comes_or_may_be_dropped():
    sent = Sent(2, COMMIT, 0, is_taken=True)
    one, life = judge(DelayedHalves, _sent={b"one": sent}, _topic="T")
    life.dropped = {}
    assert "was not handed out" in one.missing()
    life.dropped = {(halves.SCHEDULE_TOPIC, 1): 4}
    assert not one.missing()


@pytest.mark.parametrize(
    ("answered", "is_heard", "found"),
    [
        ([True, True], True, []),
        ([True, False], False, []),
        ([True, False, True], True, [frames.UNANSWERED]),
    ],
)
def test_each_of_many_requests_is_answered(answered, is_heard, found):
    one, life = judge(Frames, _topic="T")
    one.check(answered, is_heard=is_heard)
    assert life.oracles == found


@pytest.mark.parametrize(
    ("calm_ms", "times", "found"),
    [(0, TRIES_CALM, [members.NOT_MADE]), (0, TRIES_CALM - 1, []), (None, 20, []), (999, 20, [])],
)
def test_who_comes_often_enough_in_calm_times_has_a_group_made(calm_ms, times, found):
    one, life = judge(NewGroups, _open={"g": []})
    life.calm_since_ms = lambda: calm_ms
    for at in range(times):
        one._check("g", 10 * at)
    assert life.oracles == found


def test_queues_that_are_read_are_consumed_at_once_and_in_order():
    place = (MessageQueue("T", "g", 3), 7)
    one, life = judge(
        Locks, _got={False: {b"one"}, True: set()}, _stored={b"one": place[0]},
        _places={b"one": place[1]}, _read=4,
    )  # fmt: skip
    assert "in order" in one.missing()
    one._read = 2
    assert not one.missing()
    one._read, life.dropped = 4, 8
    assert not one.missing()


def test_messages_of_a_batch_are_alike_in_length_alone():
    one, _ = judge(Batches, _made=0)
    batches = [one.draw(SplitRng(seed)) for seed in range(20)]
    for batch in batches:
        assert len({len(body) + len(key) + len(tag) for body, key, tag in batch}) == 1
        assert len({body for body, _, _ in batch}) == len(batch)
    assert any(len({len(body) for body, _, _ in batch}) > 1 for batch in batches)


def test_what_waits_for_room_is_what_is_counted():
    flows = SimpleNamespace(_waiting={"10.0.0.1": [(object(), 30), (object(), 0)]})
    held = shares._by_waiting(SimpleNamespace(_flows=flows))
    assert held == {"10.0.0.1": 30}
    share = SimpleNamespace(used=40, _used_by={"10.0.0.1": 40})
    with pytest.raises(Violation, match="bytes that wait"):
        shares._compare("n0", "bytes that wait", share, held)


def test_some_plans_have_them_and_their_parts_vary():
    drawn = [draw_skilled(SplitRng(seed), is_alone=False) for seed in range(400)]
    having = [one for one in drawn if one is not None]
    assert 40 < len(having) < 120
    for part in ("filters", "halves", "batches", "frames", "locks", "members"):
        assert {getattr(one, part) for one in having} == {True, False}
    assert not any(draw_skilled(SplitRng(seed), is_alone=True) for seed in range(50))


def test_a_plan_that_has_them_is_read_as_it_was_written():
    plan = next(one for one in map(draw, range(1, 60)) if one.workload.skilled is not None)
    assert decode_plan(encode_plan(plan)) == plan
    without = structs.replace(plan, workload=structs.replace(plan.workload, skilled=None))
    text = encode_plan(without).replace(b',"skilled":null', b"")
    assert decode_plan(text) == without


def test_little_of_a_log_may_wait_while_such_a_plan_runs():
    plan = draw(1)
    skilled = Skilled(room_bytes=7, turn_frames=3)
    plan = structs.replace(plan, workload=structs.replace(plan.workload, skilled=skilled))
    from broker.sends import room
    from ledgermq.remoting.transport import turns

    assert ROOM.endswith("LOG_ROOM_BYTES")
    with with_small(plan):
        assert room.LOG_ROOM_BYTES == 7
        assert turns.FEW_FRAMES == 3
    assert room.LOG_ROOM_BYTES == LOG_ROOM_BYTES
