"""Plans about a master and its slaves: drawn from a stream of their own, kept in files, run."""

import pytest

from sim.campaign import CHOICES, EVERY, RAFT, Case, cases, plan_of
from sim.faults.alone_draw import ALONE, is_alone_too
from sim.faults.classic import MASTER, MODES
from sim.faults.classic_draw import AWAY_MS, draw_classic, is_classic_too
from sim.faults.draw import draw
from sim.faults.plan import FaultKind, decode_plan, encode_plan
from sim.faults.recipes import RECIPES, Package
from sim.faults.switch import CONTROLLER
from sim.faults.switch_draw import is_switch_too

SEEDS = range(1, 121)


def test_a_plan_comes_back_from_its_file():
    for seed in SEEDS[:40]:
        plan = draw_classic(seed)
        assert decode_plan(encode_plan(plan)) == plan


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_that_is_asked_for_changes_nothing_else(mode):
    for seed in SEEDS[:20]:
        asked, own = draw_classic(seed, mode), draw_classic(seed)
        assert asked.options.classic.mode == mode
        assert (asked.events, asked.workload) == (own.events, own.workload)


def test_faults_meet_masters_and_slaves_of_the_plan():
    plans = [draw_classic(seed) for seed in SEEDS]
    for plan in plans:
        hosts = plan.options.classic.names
        brokers = {
            one.target for one in plan.events if one.target.startswith("a") and one.target != "all"
        }
        assert brokers <= set(hosts)
        assert all(one.end_ms <= plan.options.safety_ms for one in plan.events)
    kinds = {one.kind for plan in plans for one in plan.events}
    assert kinds == {recipe.kind for recipe in RECIPES[Package.CLASSIC]} | {FaultKind.AMBUSH}
    away = [one for plan in plans for one in plan.events if one.for_ms == AWAY_MS]
    assert {one.target for one in away} == {MASTER}
    assert 0.1 * len(SEEDS) < len(away) < 0.3 * len(SEEDS)
    assert {FaultKind.WIPE, FaultKind.POWER_LOSS, FaultKind.ONE_WAY} <= kinds
    assert any(not plan.events for plan in plans)


def test_a_seed_of_a_group_has_no_part_of_it():
    plans = [draw(seed) for seed in SEEDS[:40]]
    assert all(plan.options.classic is None for plan in plans)
    assert not any(one.package is Package.CLASSIC for plan in plans for one in plan.events)


def test_a_campaign_runs_both_kinds_of_plans():
    both = list(cases(SEEDS, EVERY))
    assert [case.seed for case in both if case.mode == RAFT] == list(SEEDS)
    assert [case.seed for case in both if case.mode == CONTROLLER] == [
        seed for seed in SEEDS if is_switch_too(seed)
    ]
    assert [case.seed for case in both if case.mode == ALONE] == [
        seed for seed in SEEDS if is_alone_too(seed)
    ]
    others = [case for case in both if case.mode not in {RAFT, CONTROLLER, ALONE}]
    assert [case.seed for case in others] == [seed for seed in SEEDS if is_classic_too(seed)]
    assert {case.mode for case in others} == set(MODES)
    assert 0.15 * len(SEEDS) < len(others) < 0.35 * len(SEEDS)


@pytest.mark.parametrize("mode", [one for one in CHOICES if one != EVERY])
def test_a_campaign_of_one_mode_runs_that_alone(mode):
    assert list(cases(range(1, 4), mode)) == [Case(1, mode), Case(2, mode), Case(3, mode)]
    options = plan_of(Case(1, mode), overkill=False).options
    assert (None if options.classic is None else options.classic.mode) == (
        mode if mode in MODES else None
    )
    assert (options.switch is None) == (mode != CONTROLLER)
