"""What is older than it is to be kept is gone when nothing hinders that."""

from types import SimpleNamespace

import pytest

from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Plan
from sim.oracles.base import Violation
from sim.oracles.expiry import CALM_MS, DROPPING_MS, NAME, SETTLE_MS, SLACK_MS, Expiry
from sim.oracles.replica import Mark

MS = 1_000_000
KEPT_MS = 1_500
SEGMENT = 1_000
WALL_MS = 1_700_000_000_000


class World:
    """One replica with entries of 100 bytes, stored each 100 ms from 0 on, in three segments."""

    def __init__(self, now_ms=60_000, faults_ms=0, first_position=0, **options):
        settings = {"retention_ms": KEPT_MS, "segment_bytes": SEGMENT, **options}
        self.plan = Plan(seed=1, options=Options(**settings))
        self.loop = SimpleNamespace(now_ns=now_ms * MS)
        self.health = SimpleNamespace(faults_ms=lambda _now_ms: faults_ms)
        clock = SimpleNamespace(wall_ms=lambda: WALL_MS + now_ms)
        self.hosts = {"n0": SimpleNamespace(clock=clock)}
        self.replica = SimpleNamespace(
            is_up=True, boot_ns=0, is_corrupt=False, disk=SimpleNamespace(is_watched=False),
            node=SimpleNamespace(first_position=first_position), applied_index=29,
        )  # fmt: skip
        marks = [Mark(1, 100 * index, 100, 0) for index in range(30)]
        times = {(index, 1): WALL_MS + 100 * index for index in range(30)}
        truth = SimpleNamespace(committed=marks, times=times)
        self.watch = SimpleNamespace(replicas={"n0": self.replica}, truth=truth)

    def look(self):
        Expiry(self).look()


CLOSED_MS = 1_000
"""When the first message of the second segment was stored."""


def test_a_segment_that_is_too_old_is_found():
    with pytest.raises(Violation, match=NAME):
        World(CLOSED_MS + KEPT_MS + SLACK_MS + CALM_MS + 1).look()


def test_who_drops_a_few_at_a_time_is_at_it():
    world = World()
    expiry = Expiry(world)
    with pytest.raises(Violation, match=NAME):
        expiry.look()
    world.replica.node.first_position = 100
    expiry.look()
    world.loop.now_ns += (DROPPING_MS - 1) * MS
    expiry.look()
    world.loop.now_ns += MS
    with pytest.raises(Violation, match=NAME):
        expiry.look()


def test_its_age_is_that_of_the_message_behind_it():
    World(CLOSED_MS + KEPT_MS + SLACK_MS).look()
    with pytest.raises(Violation, match=f"is {KEPT_MS + SLACK_MS + 1} ms old"):
        World(CLOSED_MS + KEPT_MS + SLACK_MS + 1).look()


def test_the_last_segment_stays():
    World(first_position=2 * SEGMENT).look()


def test_what_is_not_applied_closes_nothing():
    world = World()
    world.replica.applied_index = 9
    world.look()


@pytest.mark.parametrize(
    "hindrance",
    [
        {"is_up": False}, {"boot_ns": (60_000 - CALM_MS + 1) * MS}, {"is_corrupt": True},
        {"disk": SimpleNamespace(is_watched=True)},
    ],
)  # fmt: skip
def test_who_was_hindered_is_not_judged(hindrance):
    world = World()
    vars(world.replica).update(hindrance)
    world.look()


def test_nobody_is_soon_after_a_fault():
    World(faults_ms=60_000 - CALM_MS + 1).look()


@pytest.mark.parametrize(
    "options", [{"retention_ms": 0}, {"retention_by": "request"}, {"clock_spread_ms": 300}]
)
def test_nor_where_nothing_goes_by_age_or_clocks_differ(options):
    world = World(**options)
    world.look()
    assert not Expiry(world).is_on
    assert Expiry(world).until_ms == 0


def test_nor_where_clocks_are_set():
    world = World()
    jump = FaultEvent(at_ms=1, kind=FaultKind.CLOCK_JUMP, package=Package.CLOCK)
    world.plan = Plan(seed=1, options=world.plan.options, events=(jump,))
    assert not Expiry(world).is_on


def test_a_run_goes_on_until_there_is_something_to_see():
    world = World()
    assert Expiry(world).until_ms == world.plan.options.safety_ms + SETTLE_MS + KEPT_MS
