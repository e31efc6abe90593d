"""Slaves report in time, members renew their locks, and no plan but some has short leases."""

import asyncio
from types import SimpleNamespace

import pytest

from broker.sends.room import LogRoom
from ledgermq.client import MessageQueue
from mutants.patches import ALL
from mutants.planting import planted
from sim.edging import lease_ms
from sim.faults.draw import draw
from sim.faults.seldom import LEASE_MS, draw_seldom
from sim.oracles import shares
from sim.oracles.base import Findings, Violation
from sim.oracles.renewing import NAME as RAN_OUT
from sim.oracles.renewing import REFUSED, RUN_OUT, SLOWEST, Renewing
from sim.oracles.reporting import NAME as LATE
from sim.oracles.reporting import SETTLING, SLACK_MS, Reporting
from sim.rng import SplitRng

QUEUE = MessageQueue("steps", "g", 0)
NS_PER_MS = 1_000_000
HEARTBEAT_MS = 500


class Slave:
    """A slave that said something at time 0, and what looks at it."""

    def __init__(self):
        self.now_ms, self.held_up, self.closing = 0, False, False
        transport = SimpleNamespace(is_closing=lambda: self.closing)
        ha = SimpleNamespace(
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms), is_following=True,
            config=SimpleNamespace(heartbeat_ms=HEARTBEAT_MS),
            _link=SimpleNamespace(_transport=transport, _said_ms=0),
        )  # fmt: skip
        self.ha = ha
        self.broker = SimpleNamespace(_mode=SimpleNamespace(_ha=ha))
        self.oracle = Reporting(lambda _name: self.held_up)

    def look(self, now_ms):
        self.now_ms = now_ms
        self.oracle.look([("a1", self.broker)])


def test_a_slave_that_reports_when_it_is_time():
    slave = Slave()
    for now_ms in range(0, HEARTBEAT_MS + SLACK_MS, 20):
        slave.look(now_ms)


def test_a_slave_that_reports_late_is_found_at_the_second_look():
    slave = Slave()
    slave.look(HEARTBEAT_MS + SLACK_MS + 1)
    with pytest.raises(Violation, match=LATE):
        slave.look(HEARTBEAT_MS + SLACK_MS + 2)


@pytest.mark.parametrize("why", ["held up", "closing", "not following", "a master"])
def test_a_slave_that_cannot_report_is_not_late(why):
    slave = Slave()
    slave.held_up, slave.closing = why == "held up", why == "closing"
    slave.ha.is_following = why != "not following"
    if why == "a master":
        slave.broker._mode = SimpleNamespace()
    for now_ms in (2 * HEARTBEAT_MS, 2 * HEARTBEAT_MS + 1):
        slave.look(now_ms)


def test_what_a_slave_was_held_up_by_is_given_time():
    slave = Slave()
    slave.held_up = True
    slave.look(HEARTBEAT_MS + 400)
    slave.held_up = False
    for late in range(SETTLING + 1):
        slave.look(HEARTBEAT_MS + 400 + late)
    with pytest.raises(Violation, match=LATE):
        slave.look(HEARTBEAT_MS + 500)


class Member:
    """A member in order whose lock is lost."""

    def __init__(self, calm_since_ms, *, renew_ms=1_500):
        self.findings, self.lost, self.refused = Findings(), [], []
        locks = SimpleNamespace(
            valid_ms=3_000,
            renew_ms=renew_ms,
            _lose=lambda *lost: self.lost.append(lost),
            _ask=self.ask,
            _renew=self.renew,
            _until_ms={},
        )
        host = SimpleNamespace(locks=locks)
        push = SimpleNamespace(assignment=SimpleNamespace(_host=host))
        since_ns = None if calm_since_ms is None else calm_since_ms * NS_PER_MS
        now_ns = SLOWEST * locks.valid_ms * NS_PER_MS
        Renewing(self.findings, lambda: now_ns, lambda: since_ns).follow(push)
        self.locks = locks

    async def ask(self, _queues):
        return self.refused

    async def renew(self, _name):
        await self.locks._ask([QUEUE])

    def lose(self, why):
        self.locks._lose(QUEUE, why)
        assert self.lost == [(QUEUE, why)]
        return None if self.findings.first is None else self.findings.first.oracle


@pytest.mark.parametrize(("is_held", "found"), [(True, REFUSED), (False, None)])
def test_a_queue_whose_renewal_is_refused_is_held_no_more(is_held, found):
    member = Member(None, renew_ms=2_000)
    member.locks._until_ms = {QUEUE: 1} if is_held else {}
    member.refused = [QUEUE]
    asyncio.run(member.locks._renew("b0"))
    assert (member.findings.first and member.findings.first.oracle) == found


def test_what_is_refused_as_it_is_taken_is_not_judged():
    member = Member(None)
    member.locks._until_ms = {QUEUE: 1}
    member.refused = [QUEUE]
    asyncio.run(member.locks._ask([QUEUE]))
    member.refused = []
    asyncio.run(member.locks._renew("b0"))
    assert member.findings.first is None


def test_a_lock_that_runs_out_with_nothing_in_the_way_is_found():
    assert Member(0).lose(RUN_OUT) == RAN_OUT


def test_a_lock_may_be_refused_or_run_out_while_something_happens():
    assert Member(0).lose("the broker refused to renew it") is None
    assert Member(1).lose(RUN_OUT) is None
    assert Member(None).lose(RUN_OUT) is None


def test_where_a_look_that_comes_late_is_too_late_nothing_is_judged():
    assert Member(0, renew_ms=2_000).lose(RUN_OUT) is None


class OfARoom:
    """A broker whose log stood still once with something large before it."""

    def __init__(self):
        self.used, now_ms = 1 << 30, [0]
        room = LogRoom(lambda: self.used, SimpleNamespace(monotonic_ms=lambda: now_ms[0]))
        now_ms[0] = 5_000
        assert room._has_room()
        self.controller = SimpleNamespace(_room=room)

    def commit(self):
        self.used = 0
        self.controller._room.on_progress()
        shares._check_room("n0", self.controller)


def test_a_room_that_stays_open_after_a_stall_is_found():
    OfARoom().commit()
    shares._check_room("n0", OfARoom().controller)  # it stands still
    with planted(ALL["once-stalled-always-open"]), pytest.raises(Violation, match=shares.OPEN):
        OfARoom().commit()


def test_leases_are_short_in_some_plans_with_messages_in_order():
    drawn = [draw_seldom(SplitRng(seed), is_in_order=True) for seed in range(200)]
    assert 20 < sum(one is not None for one in drawn) < 80
    assert not any(draw_seldom(SplitRng(seed), is_in_order=False) for seed in range(50))
    plan = draw(90)
    assert plan.workload.seldom is not None
    assert lease_ms(plan) == LEASE_MS
