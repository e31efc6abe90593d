"""Limits that a plan draws small: they are production's own, hold for one run, and are put back."""

from __future__ import annotations

import asyncio
import importlib
import json

import pytest
from msgspec import structs

from sim.campaign import RAFT, Case, plan_of
from sim.faults.plan import Plan, Workload, decode_plan, encode_plan
from sim.faults.small import SMALL, Small, draw_small
from sim.loop import SimLoop
from sim.rng import SplitRng
from sim.run import VALID, run_plan
from sim.smallness import with_small


def limit(name):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def plan_with(small, plan=None):
    plan = plan or Plan(seed=7)
    return structs.replace(plan, workload=structs.replace(plan.workload, small=small))


class BrokenRunError(Exception):
    """A run that breaks."""


def break_with(name):
    with with_small(plan_with(Small(limits=(name,)))):
        raise BrokenRunError(limit(name))


@pytest.mark.parametrize("name", SMALL)
def test_each_limit_is_smaller_for_the_length_of_a_run(name):
    usual = limit(name)
    assert 0 < SMALL[name] < usual
    with pytest.raises(BrokenRunError, match=f"^{SMALL[name]}$"):
        break_with(name)
    assert limit(name) == usual


def turn_ns(small):
    """How long the turn of the others lasts for a process that gives it to them."""
    loop, left = SimLoop(1), []
    host = loop.add_host("a", "10.0.0.1")

    async def give():
        began = loop.now_ns
        await asyncio.sleep(0)
        left.append(loop.now_ns - began)

    with with_small(plan_with(small)):
        loop.spawn(loop.boot(host), give())
        loop.run_for(1_000)
    loop.close()
    return left[0]


def test_the_turn_of_the_others_lasts_where_the_plan_says_so():
    assert turn_ns(None) < 10_000
    assert turn_ns(Small()) < 10_000
    assert turn_ns(Small(turn_ms=5.0)) > 10_000
    assert asyncio.sleep.__module__ == "asyncio.tasks"


def test_some_plans_have_small_limits_and_most_have_none():
    drawn = [draw_small(SplitRng(seed).split("small limits")) for seed in range(400)]
    there = [one for one in drawn if one is not None]
    assert 60 < len(there) < 140
    assert {one.turn_ms for one in there} == {0.0, 0.5, 5.0, 20.0}
    assert {name for one in there for name in one.limits} == set(SMALL)


def test_a_group_lives_with_all_of_them_and_does_the_same_twice():
    plan = plan_with(
        Small(turn_ms=5.0, limits=tuple(SMALL)), plan_of(Case(2, RAFT), overkill=False)
    )
    first, second = run_plan(plan), run_plan(plan)
    assert first.verdict == VALID, (first.oracle, first.text)
    assert first.digest == second.digest
    assert first.digest != run_plan(plan_with(None, plan)).digest


def test_a_plan_of_before_has_none():
    assert Workload().small is None


@pytest.mark.parametrize(
    ("limits", "turn_ms", "said"),
    [
        (["os:linesep"], 0, "there is no limit 'os:linesep'"),
        (["dledger.repair:RUN_MAX"] * 2, 0, "a limit is named twice"),
        ([], -1, ">= 0"),
        ([], 1e9, "<= 1000"),
    ],
)
def test_a_plan_file_with_limits_that_are_none_is_refused(limits, turn_ms, said):
    text = encode_plan(plan_with(Small(limits=("dledger.repair:RUN_MAX",))))
    plan = json.loads(text)
    plan["workload"]["small"] |= {"limits": limits, "turn_ms": turn_ms}
    assert decode_plan(text).workload.small is not None
    with pytest.raises(ValueError, match=said):
        decode_plan(json.dumps(plan).encode())


def begun_ns(small):
    """When a thread begins with what it is given, as a mean."""
    loop, begun = SimLoop(1), []
    host = loop.add_host("a", "10.0.0.1")

    async def give():
        for _ in range(20):
            began = loop.now_ns
            await asyncio.get_running_loop().run_in_executor(None, int)
            begun.append(loop.now_ns - began)

    with with_small(plan_with(small)):
        loop.spawn(loop.boot(host), give())
        loop.run_for(10_000)
    loop.close()
    return sum(begun) / len(begun)


def test_threads_begin_late_where_the_plan_says_so():
    usual = begun_ns(None)
    assert begun_ns(Small()) == usual
    assert begun_ns(Small(threads_ms=2.0)) > 10 * usual
    assert begun_ns(None) == usual
    drawn = [draw_small(SplitRng(seed).split("small limits")) for seed in range(400)]
    assert {one.threads_ms for one in drawn if one is not None} == {0.0, 2.0, 10.0}
