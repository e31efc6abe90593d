"""Plans: JSON, the budget over many seeds, independent streams, the same under any hash seed."""

import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from sim.faults.ambush_draw import OF_GROUP, ambushes
from sim.faults.apply import EFFECTS, NO_FAULTS
from sim.faults.budget import damage_ms, problems, within_budget
from sim.faults.draw import (
    BEHIND_COMPACT_P,
    BEHIND_SEGMENT_BYTES,
    HUGE_BODY_MAX,
    HUGE_RATE_PER_S,
    draw,
)
from sim.faults.plan import (
    FaultEvent,
    FaultKind,
    Options,
    Package,
    Plan,
    Role,
    Workload,
    decode_plan,
    encode_plan,
)
from sim.faults.recipes import RECIPES
from sim.layout import Layout
from sim.rng import SplitRng

SEEDS = range(1_000)


@pytest.fixture(scope="module")
def plans():
    return [draw(seed) for seed in SEEDS]


def event(kind, at_ms, for_ms=1_000, package=Package.DISK_DAMAGE, **params):
    return FaultEvent(at_ms=at_ms, kind=kind, package=package, for_ms=for_ms, params=params)


# Files


def test_plan_file_has_one_line_for_each_event_and_reads_back_equal():
    for seed in (1, 5, 9):
        plan = draw(seed)
        data = encode_plan(plan)
        assert decode_plan(data) == plan
        assert data.count(b"\n") == (len(plan.events) + 2 if plan.events else 1)


def test_plan_without_events_reads_back_equal():
    plan = Plan(seed=-3, workload=Workload(skip=(1, 2)))
    assert decode_plan(encode_plan(plan)) == plan


def test_plan_written_by_hand_needs_only_what_it_changes():
    text = b"""{"seed": 7, "options": {"brokers": 5}, "events": [
        {"at_ms": 10, "kind": "crash", "package": "crash", "target": "n2"}]}"""
    plan = decode_plan(text)
    assert plan.options == Options(brokers=5)
    assert plan.events[0].target == "n2"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"{}", "seed"),
        (b'{"seed": 1, "format": 99}', "format 99"),
        (b'{"seed": 1, "events": [{"at_ms": 1, "kind": "rain", "package": "crash"}]}', "rain"),
        (b"nonsense", "malformed"),
    ],
)
def test_wrong_plan_file_says_where(text, what):
    with pytest.raises(ValueError, match=what):
        decode_plan(text)


# The draw


def test_same_seed_same_plan():
    assert draw(12) == draw(12)
    assert draw(12) != draw(13)


def test_plan_does_not_depend_on_the_hash_seed():
    script = (
        "import sys; sys.path.insert(0, '.');"
        "from sim.faults.draw import draw; from sim.faults.plan import encode_plan;"
        "print([encode_plan(draw(s)) for s in range(30)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_events_are_in_order_and_end_with_the_safety_phase(plans):
    for plan in plans:
        times = [one.at_ms for one in plan.events]
        assert times == sorted(times)
        assert all(0 < one.at_ms <= one.end_ms <= plan.options.safety_ms for one in plan.events)


def test_a_package_draws_the_same_with_and_without_others():
    for seed in range(50):
        alone = draw(seed, packages=[Package.CRASH])
        together = draw(seed, packages=[Package.CLOCK, Package.CRASH, Package.PAUSE])
        assert alone.events == tuple(e for e in together.events if e.package is Package.CRASH)
        assert alone.options == together.options
        assert alone.workload == together.workload


def test_no_two_events_share_their_chance(plans):
    for plan in plans[:200]:
        seeds = [one.seed for one in plan.events]
        assert len(set(seeds)) == len(seeds)


def test_seeds_differ_in_everything_that_can_differ(plans):
    """Swarm testing: each setting takes each of its values, each kind of fault comes up."""
    kinds = Counter(one.kind for plan in plans for one in plan.events)
    assert set(kinds) == set(FaultKind) - {FaultKind.LYING_SYNC}
    assert min(kinds.values()) > 10
    assert {plan.options.brokers for plan in plans} == {3, 5}
    assert {plan.options.flush_disk_type for plan in plans} == {"ASYNC_FLUSH", "SYNC_FLUSH"}
    assert {plan.options.spares for plan in plans} == {0, 1}
    assert any(not plan.events for plan in plans)
    assert {len({one.package for one in plan.events}) for plan in plans} >= {1, 2, 3, 5, 8}


def test_every_kind_can_be_drawn_and_applied():
    drawn = {recipe.kind for recipes in RECIPES.values() for recipe in recipes}
    drawn |= {one.kind for one in ambushes(SplitRng(1), Options(), OF_GROUP)}
    assert drawn == set(FaultKind) == set(EFFECTS)
    no_faults = {Package.FAR, Package.AMBUSH}
    assert set(RECIPES) == set(Package) - no_faults == set(Package) - NO_FAULTS


def test_a_replica_that_is_behind_has_others_that_drop_what_it_lacks(plans):
    away = (FaultKind.CRASH, FaultKind.ISOLATE, FaultKind.WIPE)
    shown = 0
    for plan in plans:
        events = [event for event in plan.events if event.package is Package.BEHIND]
        shown += bool(events)
        for event in events:
            assert event.kind in away
            assert event.for_ms >= min(2_000, plan.options.safety_ms - event.at_ms)
            assert plan.options.segment_bytes in BEHIND_SEGMENT_BYTES
            assert plan.workload.compact_p == BEHIND_COMPACT_P
    assert 150 <= shown <= 250, "of a thousand"


def test_large_bodies_fit_into_their_segments_and_are_few(plans):
    large = [plan for plan in plans if plan.workload.body_max == HUGE_BODY_MAX]
    assert 10 <= len(large) <= 60, "of a thousand"
    for plan in large:
        assert plan.options.segment_bytes > 2 * HUGE_BODY_MAX
        assert plan.workload.rate_per_s <= HUGE_RATE_PER_S
        assert plan.workload.batch_p == plan.workload.burst_p == 0.0


def test_targets_are_roles(plans):
    roles = {value for name, value in vars(Role).items() if name.isupper()}
    for plan in plans:
        others = {one.target for one in plan.events if one.package is not Package.FAR} - roles
        if plan.workload.worn is not None:  # each disk hangs once
            others -= {one.target for one in plan.events if one.kind is FaultKind.HUNG_DISK}
        alone = {"b0"} if plan.options.alone else set()
        assert others <= alone | {plan.options.preferred}


def test_some_clients_are_far_from_brokers_and_name_servers_alike(plans):
    shown = 0
    for plan in plans:
        far = [one for one in plan.events if one.package is Package.FAR]
        shown += bool(far)
        layout = Layout(plan)
        for brokers, servers in zip(far[::2], far[1::2], strict=True):
            assert (brokers.kind, servers.kind) == (FaultKind.DELAY, FaultKind.NAMESRV_DELAY)
            assert brokers.target == servers.target in (*layout.clients, *layout.all_members)
            assert brokers.params["base_ms"] == servers.params["base_ms"]
        assert not any(one.package is Package.FAR for one in plan.events[len(far) :])
    assert 0.03 < shown / len(plans) < 0.15


def test_some_leaders_hear_late_of_who_takes_over(plans):
    def has_one(plan):
        moves = [one for one in plan.events if one.kind is FaultKind.TRANSFER]
        slow = [
            one for one in plan.events if one.kind is FaultKind.DELAY and one.target == "leader"
        ]
        return any(
            one.params.get("spread_ms") in {40, 150} and 50 <= other.at_ms - one.at_ms <= 400
            for one in slow
            for other in moves
        )

    assert 0.02 < sum(map(has_one, plans)) / len(plans) < 0.12


# The budget


def test_default_plans_keep_to_the_budget(plans):
    for plan in plans:
        assert problems(plan.events, plan.options) == []


def test_at_any_time_a_minority_is_damaged(plans):
    """The same once more, by counting at every moment instead of at the begin of each damage."""
    for plan in plans:
        windows = [w for one in plan.events if (w := damage_ms(one, plan.options)) is not None]
        for moment in (start for start, _ in windows):
            damaged = sum(start <= moment < end for start, end in windows)
            assert damaged <= plan.options.minority < plan.options.brokers / 2


def test_overkill_leaves_the_budget():
    plans = [draw(seed, overkill=True) for seed in range(300)]
    beyond = [plan for plan in plans if problems(plan.events, plan.options)]
    assert len(beyond) > 60
    assert any(one.kind is FaultKind.LYING_SYNC for plan in plans for one in plan.events)
    assert all(plan.options.overkill for plan in plans)


def test_second_damage_of_three_replicas_waits_until_the_first_is_repaired():
    options = Options(brokers=3)
    close = [event(FaultKind.WIPE, 1_000), event(FaultKind.WIPE, 3_000)]
    assert within_budget(close, options) == close[:1]
    assert within_budget(close, Options(brokers=5)) == close
    apart = [event(FaultKind.WIPE, 1_000), event(FaultKind.WIPE, 6_000)]
    assert within_budget(apart, options) == apart


def test_power_loss_is_damage_only_where_nobody_waits_for_syncs():
    losses = [event(FaultKind.POWER_LOSS, 1_000), event(FaultKind.POWER_LOSS, 1_500)]
    assert within_budget(losses, Options(flush_disk_type="SYNC_FLUSH")) == losses
    assert within_budget(losses, Options(flush_disk_type="ASYNC_FLUSH")) == losses[:1]
    everyone = [event(FaultKind.POWER_LOSS_ALL, 1_000)]
    assert within_budget(everyone, Options(flush_disk_type="SYNC_FLUSH")) == everyone
    assert within_budget(everyone, Options(flush_disk_type="ASYNC_FLUSH")) == []


def test_corruption_and_failed_syncs_count_to_the_end():
    options = Options(brokers=3, safety_ms=30_000)
    corruption, wipe = event(FaultKind.BIT_ROT, 1_000), event(FaultKind.WIPE, 25_000)
    assert within_budget([corruption, wipe], options) == [corruption]
    failed = event(FaultKind.EIO, 1_000, op="sync")
    assert within_budget([failed, wipe], options) == [failed]
    harmless = event(FaultKind.EIO, 1_000, op="write")
    assert within_budget([harmless, wipe], options) == [harmless, wipe]


def test_problems_name_what_is_wrong():
    events = [event(FaultKind.LYING_SYNC, 1_000, for_ms=99_000)]
    first, second = problems(events, Options())
    assert first == "lying_sync at 1000 ms is beyond any contract"
    assert second == "lying_sync at 1000 ms outlasts the safety phase"


def test_taking_an_event_out_leaves_the_others_as_they_were():
    plan = draw(1)
    fewer = msgspec.structs.replace(plan, events=plan.events[1:])
    assert decode_plan(encode_plan(fewer)).events == plan.events[1:]
