"""Delta debugging leaves what a failure needs, and nothing else."""

import msgspec

from sim.campaign import Case, plan_of
from sim.faults.plan import LateGroup, Workload
from sim.faults.small import SMALL, Small
from sim.run import VALID, VIOLATED, Result
from sim.shrink import KINDS, Shrinker, ddmin


def test_parts_that_are_not_needed_go():
    tried: list[list[int]] = []

    def fails(parts: list[int]) -> bool:
        tried.append(parts)
        return {3, 17} <= set(parts)

    assert ddmin(list(range(20)), fails) == [3, 17]
    assert len(tried) < 80


def test_a_failure_that_needs_nothing_is_left_with_nothing():
    assert ddmin([1, 2, 3], lambda _parts: True) == []


def test_a_failure_that_needs_everything_keeps_everything():
    parts = list(range(6))
    assert ddmin(parts, lambda some: some == parts) == parts


def test_order_is_kept():
    assert ddmin([5, 1, 4, 2], lambda parts: {5, 2} <= set(parts)) == [5, 2]


def test_nothing_stays_nothing():
    assert ddmin([], lambda _parts: False) == []


def full_plan():
    """Return a plan that has all that can be left out."""
    workloads = [plan_of(Case(seed, "raft"), overkill=False).workload for seed in range(1, 120)]
    every = {
        kind: next(had for one in workloads if (had := getattr(one, kind)) is not None)
        for kind in KINDS
    }
    every["small"] = Small(turn_ms=5.0, limits=tuple(SMALL))
    every["late"] = (LateGroup(), LateGroup(start="first"), LateGroup(tags="a"))
    plan = plan_of(Case(1, "raft"), overkill=False)
    return msgspec.structs.replace(plan, workload=msgspec.structs.replace(plan.workload, **every))


def shrunk(fails):
    """Return the workload that is left of the full plan if runs fail as ``fails`` says."""

    def run(plan):
        verdict = VIOLATED if fails(plan.workload) else VALID
        return Result(
            seed=1, verdict=verdict, digest="", events=0, virtual_ms=10**6, wall_s=0.0, counters={},
            faults={},
        )  # fmt: skip

    plan = full_plan()
    return Shrinker(plan, run(plan), run=run).shrink().plan.workload


def test_kinds_limits_and_late_groups_that_are_not_needed_go():
    needed = "store.queues.start:SLICE_QUEUES"
    left = shrunk(
        lambda workload: (
            workload.delayed is not None
            and workload.small is not None
            and needed in workload.small.limits
            and any(group.start == "first" for group in workload.late)
        )
    )
    assert {kind for kind in KINDS if getattr(left, kind) is not None} == {"delayed", "small"}
    assert left.small == Small(turn_ms=0.0, limits=(needed,))
    assert [group.start for group in left.late] == ["first"]


def test_all_kinds_that_a_workload_may_lack_are_tried():
    fields = {one.name: one for one in msgspec.structs.fields(Workload)}
    assert set(KINDS) == {name for name, one in fields.items() if one.default is None}


def test_a_turn_that_has_to_last_stays():
    left = shrunk(lambda workload: workload.small is not None and workload.small.turn_ms > 0)
    assert left.small == Small(turn_ms=5.0)
