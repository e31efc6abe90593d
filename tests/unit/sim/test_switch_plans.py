"""Plans about brokers that controllers switch: drawn from a stream of their own, kept in files."""

from sim.faults.draw import draw
from sim.faults.plan import FaultKind, Package, Role, decode_plan, encode_plan
from sim.faults.recipes import RECIPES
from sim.faults.switch_draw import CONTROLLERS, GONE_MS, draw_switch, is_switch_too

SEEDS = range(1, 151)
LATE = (FaultKind.DELAY, FaultKind.NAMESRV_DELAY)
LATE_MS = 4_000


def test_a_plan_comes_back_from_its_file():
    for seed in SEEDS[:40]:
        plan = draw_switch(seed)
        assert decode_plan(encode_plan(plan)) == plan


def test_faults_meet_brokers_and_controllers_of_the_plan():
    roles = {value for name, value in vars(Role).items() if name.isupper()}
    plans = [draw_switch(seed) for seed in SEEDS]
    for plan in plans:
        hosts = {*plan.options.switch.names, *(f"ns{n}" for n in range(CONTROLLERS)), *roles}
        assert {one.target for one in plan.events} <= hosts
        assert all(one.end_ms <= plan.options.safety_ms for one in plan.events)
        assert [one.at_ms for one in plan.events] == sorted(one.at_ms for one in plan.events)
    kinds = {one.kind for plan in plans for one in plan.events}
    assert kinds == {recipe.kind for recipe in RECIPES[Package.SWITCH]} | {FaultKind.AMBUSH}
    targets = {one.target for plan in plans for one in plan.events}
    assert {Role.LEADER, Role.CONTROLLER, Role.NAMESRV, "a2", "ns0"} <= targets
    assert any(not plan.events for plan in plans)


def test_no_majority_of_the_controllers_runs_in_some_plans():
    def is_down(plan):
        names = {
            one.target
            for one in plan.events
            if one.kind in {FaultKind.NAMESRV_CRASH, FaultKind.POWER_LOSS}
        }
        return {"ns0", "ns1"} <= names

    assert sum(is_down(draw_switch(seed)) for seed in SEEDS) > 10


def test_a_seed_of_a_group_has_no_part_of_it():
    plans = [draw(seed) for seed in SEEDS[:40]]
    assert all(plan.options.switch is None for plan in plans)
    assert not any(one.package is Package.SWITCH for plan in plans for one in plan.events)


def test_some_seeds_of_a_campaign_have_such_a_plan_too():
    assert 0.1 * len(SEEDS) < sum(map(is_switch_too, SEEDS)) < 0.3 * len(SEEDS)


def test_some_plans_have_a_rare_story():
    """The leading controller is gone for long, or a slave loses its power as it is let in."""
    plans = [draw_switch(seed) for seed in range(300)]
    gone = [
        plan
        for plan in plans
        if any(one.kind is FaultKind.NAMESRV_CRASH and one.for_ms == GONE_MS for one in plan.events)
    ]
    late = [
        plan
        for plan in plans
        if any(one.kind in LATE and one.for_ms == LATE_MS for one in plan.events)
    ]
    assert 0.03 < len(gone) / len(plans) < 0.15
    assert 0.03 < len(late) / len(plans) < 0.15
    assert not set(map(id, gone)) & set(map(id, late))
