"""What fitful clients judge, and which plans have them."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from msgspec import structs

from ledgermq.client import MessageQueue
from ledgermq.remoting.protocol.codes import ResponseCode
from sim.faults.draw import draw
from sim.faults.fitful import Fitful, draw_fitful
from sim.faults.plan import FaultKind, decode_plan, encode_plan
from sim.fitful import members, names
from sim.fitful.hurried import Hurried
from sim.fitful.names import Names
from sim.fitful.returning import Group, Returning
from sim.fitful.viewers import Places
from sim.oracles import turns
from sim.oracles.order import changes_lock
from sim.oracles.turns import Turns, _Takes
from sim.rng import SplitRng
from tests.unit.sim.habit_life import Life, judge

SEEDS = range(1, 160)
QUEUE = MessageQueue("steps", "RaftGroup0", 3)


def turns_of():
    found = []
    return Turns("steps", lambda oracle, _text: found.append(oracle)), found


@pytest.mark.parametrize(
    ("acts", "found"),
    [
        ([("sent", 0, 5), ("given", 0, 5), ("given", 0, 6)], []),
        ([("given", 0, 0), ("given", 0, 2)], ["queue 0"]),
        ([("given", 0, 4), ("sent", 0, 1), ("given", 0, 4)], ["queue 0", "queue 0"]),
        ([("given", 1, 0), ("given", 0, 0), ("given", 1, 1), ("given", 1, 0)], []),
        ([("sent", 0, 0), ("given", 0, 1)], ["queue 0"]),
    ],
)
def test_a_broadcasting_member_leaves_out_nothing_wherever_it_was_sent(acts, found):
    places, said = Places(), []
    for what, queue, offset in acts:
        if what == "sent":
            places.on_sent(queue, offset)
        else:
            said.append(places.on_given(queue, offset, 0))
    said = [one for one in said if one]
    assert len(said) == len(found)
    assert all(part in one for part, one in zip(found, said, strict=True))


def test_what_is_gone_may_be_left_out():
    places = Places()
    assert places.on_given(0, 7, 7) == ""
    assert places.on_given(0, 9, 8) == "is given 9 of queue 0, and not 8 before"


def test_what_was_sent_while_a_group_was_away_is_missing_until_it_is_handed_out_or_dropped():
    wanted = {b"one": (QUEUE, 4)}
    member, got = SimpleNamespace(group="back"), set()
    one, life = judge(Returning, _open=[Group(member, got, wanted)])
    assert "back, which came back" in one.missing()
    life.dropped = 5
    assert one.missing() == ""
    life.dropped = 0
    got.add(b"one")
    assert one.missing() == ""


def test_what_is_wanted_since_a_change_is_missing_until_it_comes():
    one, _ = judge(Hurried, _wanted={b"red": (QUEUE, 1)}, _tags=("red",), _got=set())
    assert "who wants ('red',)" in one.missing()
    one._take([SimpleNamespace(content=lambda: b"red")])
    assert one.missing() == ""


def test_two_members_at_a_queue_and_one_that_skips():
    one, found = turns_of()
    one.on_begun("a", 3, 0, 0, is_held=True)
    assert one.is_at_work(3)
    one.on_begun("b", 3, 1, 0, is_held=True)
    assert found == [turns.BOTH, turns.BEFORE]
    one.on_ended("a", 3, 0, is_done=True)
    one.on_ended("b", 3, 1, is_done=True)
    one.on_begun("b", 3, 2, 0, is_held=True)
    assert not found[2:]


def test_a_queue_that_somebody_disturbs_may_have_two():
    one, found = turns_of()
    one.disturbed.add(3)
    one.on_begun("a", 3, 0, 0, is_held=True)
    one.on_begun("b", 3, 0, 0, is_held=True)
    assert not found


def test_what_failed_is_handed_out_again_and_what_was_given_up_is_not():
    one, found = turns_of()
    one.on_begun("a", 3, 5, 5, is_held=True)
    one.on_ended("a", 3, 5, is_done=False)
    one.on_begun("a", 3, 5, 5, is_held=True)
    one.on_ended("a", 3, 5, is_done=True)
    assert not found
    one.on_begun("a", 3, 6, 5, is_held=False)
    assert found == [turns.GIVEN_UP]


def test_nothing_is_unlocked_that_is_in_hand():
    one, found = turns_of()
    one.on_unlocked("a", 3)
    one.on_begun("a", 3, 0, 0, is_held=True)
    one.on_unlocked("b", 3)
    assert not found
    one.on_unlocked("a", 3)
    assert found == [turns.UNLOCKED]


class Assigned:
    """An assignment that holds and commits nothing."""

    def __init__(self):
        self._held = {}
        self.at = 7

    async def _beginning(self, _queue):
        return self.at, self.at

    def _hold(self, queue, _offset):
        self._held[queue] = object()

    def move(self, offsets):
        pass

    def lose(self, queue):
        pass


def takes_of():
    async def none(*_args):
        pass

    found = []
    push = SimpleNamespace(
        assignment=Assigned(), api=SimpleNamespace(commit_offset=none, unlock=none)
    )
    _Takes("a", push, lambda oracle, _text: found.append(oracle)).follow()
    return push, found


def test_a_queue_goes_on_where_its_group_is_unless_it_was_sent_elsewhere():
    push, found = takes_of()
    one = push.assignment
    for offset in (7, 3):
        asyncio.run(one._beginning(QUEUE))
        one.move({QUEUE: 3} if offset == 3 else {})
        one._hold(QUEUE, offset)
    assert not found
    asyncio.run(one._beginning(QUEUE))
    one._hold(QUEUE, 3)
    assert found == [turns.ELSEWHERE]


def test_who_has_lost_a_lock_commits_nothing_before_it_has_the_queue_again():
    push, found = takes_of()
    one = push.assignment
    one._hold(QUEUE, 0)
    asyncio.run(push.api.commit_offset("addr", QUEUE, 1))
    one.lose(QUEUE)
    assert not found
    asyncio.run(push.api.commit_offset("addr", QUEUE, 1))
    assert found == [turns.COMMITS]
    one._hold(QUEUE, 1)
    asyncio.run(push.api.commit_offset("addr", QUEUE, 2))
    assert len(found) == 1


def test_both_changes_of_a_lock_are_told_apart():
    content = {"clientId": "a", "group": "g", "queues": [{"topic": "steps", "queueId": 3}]}
    one, key = SimpleNamespace(kind="unlock", content=content), ("g", "steps", 3)
    assert changes_lock(one, "", key, "unlock")
    assert changes_lock(one, "a", key, "unlock")
    assert not changes_lock(one, "b", key, "unlock")
    assert not changes_lock(one, "a", key)
    assert not changes_lock(one, "a", ("g", "steps", 4), "unlock")


def answered(**fields):
    return SimpleNamespace(code=ResponseCode.SUCCESS, body=json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("told", "known", "found"),
    [
        ("RaftGroup0:2", "RaftGroup0:2", []),
        (None, None, []),
        (None, "RaftGroup0:2", [names.ORDER]),
        ("RaftGroup0:2", None, [names.ORDER]),
    ],
)
def test_an_order_is_in_the_route_as_it_was_set(told, known, found):
    one, life = judge(Names, _topics=["t"], _known={("ns", "t"): known}, _lost=set())

    async def ask(*_args, **_more):
        return answered(orderTopicConf=told)

    one._ask = ask
    asyncio.run(one._look("ns", None))
    assert life.oracles == found
    one._lost.add(("ns", "t"))
    asyncio.run(one._look("ns", None))
    assert life.oracles == found


@pytest.mark.parametrize(
    ("code", "listed", "found"),
    [(1, True, []), (1, None, []), (0, True, [names.STRANGER]), (1, False, [names.STRANGER])],
)
def test_nobody_takes_leave_for_a_broker(code, listed, found):
    one, life = judge(Names)

    async def is_listed(*_args):
        return listed

    one._is_listed = is_listed
    told = SimpleNamespace(code=code)
    asyncio.run(one._check_there(None, ("ns", "b"), told, "a stranger"))
    assert life.oracles == found


@pytest.mark.parametrize(
    ("code", "asks", "took_ms", "listed", "found"),
    [
        (1, 0, 0, True, []),
        (0, 0, 5, True, [names.UNASKED]),
        (0, 1, 5, True, [names.UNASKED]),
        (0, 1, 500, True, []),
        (0, 0, 5, None, []),
    ],
)
def test_who_has_a_name_and_lives_is_asked_before_it_is_displaced(
    code, asks, took_ms, listed, found
):
    one, life = judge(Names)
    first = SimpleNamespace(asked=2)

    async def ask(*_args):
        first.asked += asks
        life.now += took_ms
        return SimpleNamespace(code=code)

    async def is_listed(*_args):
        return listed

    one._ask_as_broker, one._is_listed = ask, is_listed
    asyncio.run(one._second(first, None, ("ns", "b")))
    assert life.oracles == found


@pytest.mark.parametrize(("ends", "found"), [(True, []), (False, [members.HANGS])])
def test_a_member_that_does_not_stop_is_told_of(monkeypatch, ends, found):
    monkeypatch.setattr(members, "STOPS_MS", 20)
    life = Life()

    async def stop():
        await asyncio.sleep(0 if ends else 0.1)

    consumer = SimpleNamespace(stop=stop, config=SimpleNamespace(instance_name="m"))
    asyncio.run(members.stop_in_time(life, consumer))
    assert life.oracles == found


def test_some_plans_have_them_and_their_parts_vary():
    def drawn(seed, *, may_be=True, has_transactions=False):
        return draw_fitful(
            SplitRng(seed), may_be=may_be, is_steady=True, has_transactions=has_transactions
        )

    having = [one for one in map(drawn, range(400)) if one is not None]
    assert 30 < len(having) < 100
    for part in ("returning", "polled", "hurried", "held", "names"):
        assert {getattr(one, part) for one in having} == {True, False}
    assert not any(one.raise_p or one.slow_checks for one in having)
    assert not any(drawn(seed, may_be=False) for seed in range(50))
    asked = [drawn(seed, has_transactions=True) for seed in range(50)]
    assert {one.slow_checks for one in asked if one} == {0, 1, 3}
    assert all(one.raise_p for one in asked if one)


def test_orders_are_set_where_name_servers_begin_anew_and_clocks_agree():
    plans = [plan for plan in map(draw, SEEDS) if plan.workload.fitful is not None]
    assert plans
    for plan in plans:
        assert decode_plan(encode_plan(plan)) == plan
        assert not plan.options.alone
        small = plan.workload.small
        assert small is None or not small.turn_ms
        if plan.workload.fitful.names:
            assert any(one.kind is FaultKind.NAMESRV_CRASH for one in plan.events)
            assert plan.options.peer_key
            assert not plan.options.clock_spread_ms


def test_a_plan_without_them_is_read_as_before():
    plan = draw(1)
    bare_plan = structs.replace(plan, workload=structs.replace(plan.workload, fitful=None))
    text = encode_plan(bare_plan).replace(b',"fitful":null', b"")
    assert decode_plan(text) == bare_plan
    assert Fitful() == Fitful(every_ms=150)
