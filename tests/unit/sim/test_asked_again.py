"""Leaders that lose their place while they ask how halves end, and get it back."""

import pytest

from sim.faults.draw import draw
from sim.faults.moments import INSISTS_MS, with_asked_again
from sim.faults.plan import FaultKind, Options, Plan, Role, Workload
from sim.faults.traffic import Transactional
from sim.rng import SplitRng
from sim.run import VALID, run_plan
from tests.unit.sim.fault_world import event


@pytest.fixture(scope="module")
def plans():
    return [draw(seed) for seed in range(1, 301)]


def test_somebody_is_to_be_asked_whenever_a_leader_loses_its_place(plans):
    known = [one.workload.transactional for one in plans]
    again = [one for one in known if one is not None and one.asked_again]
    assert 0.3 < len(again) / sum(one is not None for one in known) < 0.7
    assert {(one.check_ms, one.untold_p) for one in again} == {(500, 0.8)}
    for plan in plans:
        asked = plan.workload.transactional
        if asked is not None and asked.asked_again:
            kinds = {(one.kind, one.target) for one in plan.events}
            assert {(FaultKind.ISOLATE, Role.LEADER), (FaultKind.TRANSFER, Role.EX_LEADER)} <= kinds


def test_a_leader_is_away_for_as_long_as_it_takes_to_ask_and_leads_again():
    options, kept, dropped = Options(safety_ms=14_000), 0, 0
    usual = event("crash", at_ms=3_000)
    for seed in range(50):
        events = with_asked_again(SplitRng(seed), [usual], options, 500)
        kept += usual in events
        dropped += any(one.kind is FaultKind.DROP for one in events)
        cuts = [one for one in events if one.kind is FaultKind.ISOLATE]
        backs = [one for one in events if one.kind is FaultKind.TRANSFER]
        assert len(cuts) == len(backs) in {1, 2}
        for cut, back in zip(cuts, backs, strict=True):
            assert cut.for_ms >= 500
            assert 20 <= back.at_ms - cut.end_ms <= 500
            assert back.for_ms == min(INSISTS_MS, options.safety_ms - back.at_ms)
        assert [one.at_ms for one in events] == sorted(one.at_ms for one in events)
    assert 10 < kept < 40
    assert dropped > 10


def test_halves_end_though_their_leader_lost_its_place_while_it_asked():
    asked = Transactional(share=0.8, untold_p=0.8, never_p=0.2, check_ms=500, asked_again=True)
    options = Options(safety_ms=9_000)
    events = with_asked_again(SplitRng(3), [], options, asked.check_ms)
    plan = Plan(
        seed=5, options=options, workload=Workload(transactional=asked), events=tuple(events)
    )
    result = run_plan(plan)
    assert result.verdict == VALID, (result.oracle, result.text)
    assert result.counters["transactions_asked"] > 10
