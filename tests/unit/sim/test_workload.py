"""Operations are drawn from the seed; searches and locks come beside the others."""

import msgspec

from sim.faults.draw import draw
from sim.faults.plan import Workload
from sim.record import Record
from sim.rng import SplitRng
from sim.trace import Trace
from sim.workload import TAGS_DRAWN, Kind, colour_of, draw_operations, keys_of

BESIDE = {Kind.SEARCH, Kind.LOCK}
UNTIL_MS = 60_000


def operations(workload):
    return draw_operations(SplitRng(7), workload, UNTIL_MS)


def test_searches_and_locks_change_no_other_operation():
    plain, more = Workload(), Workload(search_p=0.2, lock_p=0.2)
    assert not BESIDE & {op.kind for op in operations(plain)}
    assert {op.kind for op in operations(more)} >= BESIDE
    assert [op for op in operations(more) if op.kind not in BESIDE] == operations(plain)


def test_operations_come_in_the_order_of_their_times_and_each_can_be_left_out():
    workload = Workload(search_p=0.2, lock_p=0.2)
    every = operations(workload)
    assert [op.at_ms for op in every] == sorted(op.at_ms for op in every)
    numbers = [op.number for op in every]
    assert len(set(numbers)) == len(numbers)
    skip = tuple(numbers[::2])
    rest = operations(msgspec.structs.replace(workload, skip=skip))
    assert rest == [op for op in every if op.number not in skip]


def test_default_plans_have_all_kinds_of_operations_and_settings():
    plans = [draw(seed) for seed in range(1, 61)]
    for chosen in (
        {plan.workload.tags for plan in plans},
        {plan.workload.search_p > 0 for plan in plans},
        {plan.workload.lock_p > 0 for plan in plans},
        {bool(plan.options.preferred) for plan in plans},
    ):
        assert chosen == {False, True}


def test_tags_are_drawn_where_there_are_any():
    record = Record("run", Trace())
    assert {record.tag_of(key) for key in range(1, 10)} == {""}
    record.has_tags = True
    assert {record.tag_of(key) for key in range(1, 10)} == set(TAGS_DRAWN)
    assert record.tag_of(None) == ""


def test_each_dimension_has_several_values_among_default_plans():
    plans = [draw(seed) for seed in range(1, 121)]
    for choose in (
        lambda plan: plan.workload.ordered_queues,
        lambda plan: plan.workload.cancel_p,
        lambda plan: plan.workload.query_p,
        lambda plan: plan.workload.burst_max,
        lambda plan: plan.workload.compress_over,
        lambda plan: plan.workload.rich,
        lambda plan: plan.workload.fail_p,
        lambda plan: plan.workload.suspend_ms,
        lambda plan: plan.workload.pull_counts,
        lambda plan: plan.workload.seek_p,
        lambda plan: len(plan.workload.late),
        lambda plan: plan.workload.body_max,
        lambda plan: plan.options.safety_ms,
        lambda plan: plan.options.checkpoint_ms,
        lambda plan: plan.options.clock_spread_ms,
        lambda plan: plan.options.retention_ms,
        lambda plan: plan.options.segment_bytes,
    ):
        assert len({choose(plan) for plan in plans}) > 1


def test_bursts_become_as_large_as_they_may():
    workload = Workload(burst_p=0.9, batch_p=0.0, burst_max=200)
    sizes = [op.messages for op in operations(workload) if op.kind is Kind.BURST]
    assert max(sizes) > 150
    assert min(sizes) >= 2
    small = Workload(burst_p=0.9, batch_p=0.0)
    assert max(op.messages for op in operations(small) if op.kind is Kind.BURST) == 8


def test_rich_messages_share_keys_and_have_a_property_of_the_users():
    assert keys_of(7, is_rich=False) == "7"
    assert colour_of(7, is_rich=False) is None
    assert keys_of(7, is_rich=True).split(" ")[0] == "7"
    assert keys_of(7, is_rich=True).split(" ")[1:] == keys_of(12, is_rich=True).split(" ")[1:]
    assert {colour_of(key, is_rich=True) for key in range(9)} == {f"c{n}" for n in range(7)}
