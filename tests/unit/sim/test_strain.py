"""What strains a group: drawn in few plans, beside what they have, and a sound group stands it."""

import contextlib
from types import SimpleNamespace

import pytest

from dledger.errors import PendingFull
from sim.faults.draw import SLOW_LIVENESS_MS, draw
from sim.faults.further import Further
from sim.faults.plan import FaultKind, Options, Plan, Workload
from sim.faults.strain import (
    BATCH_SEGMENT_BYTES,
    RETRY_TIMES,
    STRAIN_P,
    Strain,
    draw_strain,
)
from sim.faults.traffic import Delayed
from sim.kinds import Odd
from sim.oracles.base import Violation
from sim.refusals import Refusals
from sim.rng import SplitRng
from sim.run import VALID, run_plan
from sim.workload import BATCH_BODY_MAX, BATCH_MAX, Kind, draw_operations
from sim.world import World
from tests.unit.sim.test_oracles_brokers import Broker, pull

SEEDS = 1_000


def test_each_part_is_drawn_in_some_plans_and_none_in_most():
    drawn = [draw_strain(SplitRng(seed), 1 << 20) for seed in range(SEEDS)]
    found = [one for one in drawn if one is not None]
    assert len(found) == pytest.approx(STRAIN_P * SEEDS, rel=0.3)
    for field in Strain.__struct_fields__:
        values = {getattr(one, field) for one in found}
        assert len(values) > 1, field
        assert getattr(Strain(), field) in values, field


def test_larger_batches_come_only_where_a_segment_has_room_for_them():
    small = [draw_strain(SplitRng(seed), BATCH_SEGMENT_BYTES - 1) for seed in range(SEEDS)]
    assert {one.batch_max for one in small if one is not None} == {0}


def test_more_brokers_are_stopped_where_the_strain_says_so():
    plans = [draw(seed) for seed in range(1, 300)]
    strained = [plan for plan in plans if plan.workload.strain is not None]
    often = [one for one in strained if one.workload.strain.stop_every_ms]
    assert often
    assert len(strained) < len(plans) / 4
    stops = [sum(e.kind is FaultKind.STOP for e in one.events) for one in often]
    assert sum(stops) > 2 * len(often)


def operations(strain):
    workload = Workload(batch_p=0.5, strain=strain)
    return draw_operations(SplitRng(7), workload, 20_000)


def test_what_is_strained_comes_beside_what_there_is():
    plain, strained = operations(None), operations(Strain(reads=2.0, batch_max=40))
    by_number = {op.number: op for op in strained}
    for op in plain:
        other = by_number[op.number]
        if op.kind is Kind.BATCH:
            assert other.size_bytes <= BATCH_BODY_MAX
            assert 2 <= other.messages <= 40
        else:
            assert other == op
    assert max(op.messages for op in strained if op.kind is Kind.BATCH) > BATCH_MAX
    more = [op for op in strained if op.number not in {one.number for one in plain}]
    assert {op.kind for op in more} == {Kind.READ_INDEX}
    assert len(more) > len(plain)


def test_a_sound_group_stands_it():
    strain = Strain(
        reads=2.0, due_at_once=70, batch_max=24, units_max=1, count_max=2, forth_again=True
    )
    workload = Workload(
        rate_per_s=6.0, batch_p=0.3, strain=strain, delayed=Delayed(share=0.2),
        further=Further(every_ms=150, back_p=0.5),
    )  # fmt: skip
    options = Options(safety_ms=3_000, delay_levels="1s 2s 1s 2s 3s")
    result = run_plan(Plan(seed=11, options=options, workload=workload))
    assert result.verdict == VALID, (result.oracle, result.text)
    assert result.counters["reads"] > 20
    assert result.counters["set_back"]
    assert result.counters["sent"] > strain.due_at_once


@pytest.mark.parametrize("changed_s", [None, 2.0])
def test_a_timer_that_was_set_before_the_clock_changed_excuses_who_is_late(changed_s):
    broker = Broker()
    broker.hear(11, pull(4, sysFlag="2", suspendTimeoutMillis="1000"))
    broker.rate_changed_ns = 0 if changed_s is None else int(changed_s * 1e9)
    broker.replica.state.tick += 70
    if changed_s is None:
        with pytest.raises(Violation, match="A41 answer too late"):
            broker.brokers.on_tick(broker.replica)
    else:
        broker.brokers.on_tick(broker.replica)


def test_puts_are_refused_until_the_faults_are_over_and_a_sound_group_stands_it():
    strain = Strain(refused_p=0.2, retry_times=1, due_at_once=12)
    workload = Workload(
        rate_per_s=8.0, batch_p=0.2, burst_p=0.2, strain=strain, delayed=Delayed(share=0.2)
    )
    options = Options(safety_ms=3_000, delay_levels="1s 2s 1s 2s 3s", alone="plain")
    result = run_plan(Plan(seed=5, options=options, workload=workload))
    assert result.verdict == VALID, (result.oracle, result.text)
    assert result.counters["refused"] > 10
    assert result.counters["ok"] > result.counters["refused"]


def test_nothing_is_refused_where_the_plan_does_not_say_so():
    plan = Plan(seed=5, options=Options(safety_ms=1_000), workload=Workload(strain=Strain()))
    assert "refused" not in run_plan(plan).counters


@pytest.mark.parametrize("is_over", [False, True])
def test_a_put_that_is_refused_has_not_reached_the_log(is_over):
    log = SimpleNamespace(reserve=[].append)
    commit_log = SimpleNamespace(_log=log, _reserve=log.reserve)
    controller = SimpleNamespace(
        store=SimpleNamespace(writer=SimpleNamespace(_commit_log=commit_log))
    )
    heard = []
    Refusals((1.0, 0.0), lambda: is_over, heard.append).listen(controller, SplitRng(1))
    with contextlib.nullcontext() if is_over else pytest.raises(PendingFull):
        commit_log._reserve(7)
    assert log.reserve.__self__ == ([7] if is_over else [])
    assert len(heard) == (0 if is_over else 1)


@pytest.mark.parametrize("strain", [None, Strain(retry_times=0)])
def test_producers_try_again_as_often_as_the_plan_says(strain):
    world = World(Plan(seed=5, options=Options(), workload=Workload(strain=strain)))
    config = world.layout.client_config("p0")
    assert config.retry_times == (RETRY_TIMES if strain is None else 0)


def test_there_is_time_in_the_end_for_much_that_is_read_slowly_and_for_clocks_far_ahead():
    usual_ms, plans = Options().liveness_ms, [draw(seed) for seed in range(300, 400)]
    for plan in plans:
        options, workload = plan.options, plan.workload
        waits = workload.delayed or workload.retrying or workload.transactional
        if waits and options.clock_spread_ms == 90_000:
            assert options.liveness_ms == SLOW_LIVENESS_MS
        if options.liveness_ms == SLOW_LIVENESS_MS:
            assert waits or (workload.strain is not None and Odd.BATCH in workload.odd)
    slow = [plan.seed for plan in plans if plan.options.liveness_ms == SLOW_LIVENESS_MS]
    assert {343, 372} <= set(slow)
    assert len(slow) < 20
    assert sum(plan.options.liveness_ms == usual_ms for plan in plans) > 70
