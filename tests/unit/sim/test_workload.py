"""Operations are drawn from the seed; searches and locks come beside the others."""

import msgspec

from sim.faults.draw import draw
from sim.faults.plan import Workload
from sim.record import Record
from sim.rng import SplitRng
from sim.trace import Trace
from sim.workload import Kind, draw_operations

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
    assert {record.tag_of(key) for key in range(1, 10)} == {"", "red", "blue"}
    assert record.tag_of(None) == ""
