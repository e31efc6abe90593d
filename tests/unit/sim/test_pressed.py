"""Plans whose brokers are pressed: what they have, what is done, and what is judged."""

from types import SimpleNamespace

import pytest

from ledgermq.runtime.disk import Space
from sim.dropping import CLOCK, UNSURE_MS, Dropping
from sim.faults.budget import problems
from sim.faults.cluster import ClockJump
from sim.faults.disk import DiskFull
from sim.faults.draw import draw
from sim.faults.plan import FaultKind, decode_plan, encode_plan
from sim.faults.pressed import ONCE_MS, USED, WAITING
from sim.faults.skilled import Skilled
from sim.oracles.base import Findings, Violation
from sim.oracles.crowding import LOOKS_MS, NAME, Crowding

PLANS = [plan for plan in map(draw, range(1, 400)) if plan.workload.pressed is not None]


def test_some_plans_have_them_and_their_parts_vary():
    assert 20 <= len(PLANS) <= 60
    for part in ("crowded", "in_vain", "forcibly"):
        assert {getattr(plan.workload.pressed, part) for plan in PLANS} == {True, False}
    for plan in PLANS:
        assert decode_plan(encode_plan(plan)) == plan
        assert not problems(plan.events, plan.options)
        once = Skilled(every_ms=ONCE_MS, once=True)
        assert plan.workload.skilled == (once if plan.workload.pressed.in_vain else None)


def test_nothing_waits_for_a_time_where_a_clock_is_days_ahead():
    ahead = [plan for plan in PLANS if plan.workload.pressed.ahead_ms]
    assert ahead
    for plan in ahead:
        assert not any(getattr(plan.workload, kind) for kind in WAITING)
        assert plan.options.retention_ms
        kinds = {one.kind for one in plan.events}
        if FaultKind.AMBUSH not in kinds:  # these may be all that happens
            jumps = [one for one in plan.events if one.kind is FaultKind.CLOCK_JUMP]
            assert any(one.number("back") for one in jumps)


def test_disks_are_told_to_be_crowded():
    full = [one for plan in PLANS for one in plan.events if one.kind is FaultKind.DISK_FULL]
    assert {one.number("used") for one in full} >= set(USED)


def applied(kind, target, **params):
    """Return an effect of an event at one machine."""
    effect = object.__new__(kind)
    event = SimpleNamespace(
        number=lambda name: params.get(name, 0), text=lambda name: params.get(name, "")
    )
    vars(effect).update(event=event, target=target, name="n0", names=("n0",))
    return effect


def test_a_crowded_disk_has_room_and_is_told_to_have_little():
    disk = SimpleNamespace(told_used=None, writes_refused=0, times_told=3, limit=lambda _free: None)
    target = SimpleNamespace(disk=lambda _name: disk, start=lambda _name: None)
    effect = applied(DiskFull, target, used=0.93)
    effect.apply()
    assert disk.told_used == 0.93
    assert effect.count() == 3
    effect.undo()
    assert disk.told_used is None


@pytest.mark.parametrize(("back", "left"), [(1, [5, -5]), (0, [5])])
def test_a_clock_is_set_back_where_the_plan_says_so(back, left):
    jumps = []
    target = SimpleNamespace(host=lambda _name: SimpleNamespace(clock=clock))
    clock = SimpleNamespace(jump=jumps.append)
    effect = applied(ClockJump, target, ms=5, back=back)
    effect.apply()
    effect.undo()
    assert jumps == left


class Broker:
    """One whose disk is crowded."""

    name = "n0"

    def __init__(self, used):
        self.incarnation = 1
        self.now = 1_000
        self.disk = SimpleNamespace(is_watched=False, capacity_bytes=None, told_used=used)
        self.disk.space = lambda _path: Space(
            round(1_000 * (1 - (self.disk.told_used or 0))), 1_000
        )
        self.crowding = Crowding()
        self.crowding.on_tick(self)

    def now_ms(self):
        return self.now

    def take(self, after_ms):
        """Take a message that came so long after."""
        note = SimpleNamespace(now_ms=1_000 + after_ms)
        self.crowding.on_taken(self, SimpleNamespace(note=note))


def test_a_broker_takes_nothing_once_its_disk_is_full():
    broker = Broker(0.93)
    broker.take(LOOKS_MS)
    with pytest.raises(Violation, match=NAME):
        broker.take(LOOKS_MS + 1)
    broker.incarnation = 2  # it has begun anew, and has not looked yet
    broker.take(LOOKS_MS + 1)
    broker = Broker(0.88)
    broker.take(9_000)


@pytest.mark.parametrize(("used", "after_ms", "refuses"), [
    (0.93, LOOKS_MS, True), (0.93, LOOKS_MS + 1, False), (0.88, 0, True), (0.8, 0, False),
])  # fmt: skip
def test_a_broker_may_refuse_until_it_has_looked_again(used, after_ms, refuses):
    broker = Broker(used)
    broker.disk.told_used = None
    broker.now += after_ms
    broker.crowding.on_tick(broker)
    assert broker.crowding.refuses(broker) is refuses


@pytest.mark.parametrize(("ahead_ms", "is_forced", "found"), [
    (UNSURE_MS + 1, False, CLOCK), (UNSURE_MS + 1, True, None), (UNSURE_MS, False, None),
])  # fmt: skip
def test_who_begins_with_a_clock_days_ahead_drops_nothing_by_age(ahead_ms, is_forced, found):
    findings = Findings()
    clock = SimpleNamespace(wall_ms=lambda: 1_000 + ahead_ms)
    world = SimpleNamespace(findings=findings, hosts={"n0": SimpleNamespace(clock=clock)})
    dropping = Dropping(world)
    segments = [SimpleNamespace(closed_ms=1_000), SimpleNamespace(closed_ms=None)]
    retained = SimpleNamespace(segments=lambda: segments)
    dropping.on_started("n0", SimpleNamespace(_retention=SimpleNamespace(_retained=retained)))
    dropping._check_clock("n0", is_forced=is_forced)
    assert (findings.first and findings.first.oracle) == found
