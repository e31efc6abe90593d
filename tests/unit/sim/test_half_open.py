"""Clients whose connections have ended for them alone, and who make new ones."""

import pytest

from sim.faults.draw import draw
from sim.faults.further import Further
from sim.faults.plan import FaultKind, Options, Package, Plan, Workload
from sim.network import SimNetwork
from sim.run import VALID, run_plan
from sim.world import World
from tests.unit.sim.fault_world import event

LATE_MS = 2_000


@pytest.fixture(scope="module")
def plans():
    return [draw(seed) for seed in range(1, 301)]


def test_connections_of_clients_end_for_one_end_alone_in_some_plans(plans):
    shown = [one for one in plans if any(e.kind is FaultKind.CLIENT_RESET for e in one.events)]
    assert 0.05 < len(shown) / len(plans) < 0.3
    further = [one for one in shown if one.workload.further is not None]
    assert len(further) > len(shown) / 3
    for plan in plans:
        for one in plan.events:
            assert (one.kind is FaultKind.CLIENT_RESET) == (one.package is Package.HALF_OPEN)


def test_an_asker_comes_again_while_brokers_hold_its_former_connections(monkeypatch):
    """A broker hears of it ``late_ms`` later, and the asker is replied to meanwhile."""
    held = []
    reset_one_end = SimNetwork.reset_one_end

    def reset(self, source, target):
        ends = reset_one_end(self, source, target)
        held.extend(ends)
        return ends

    monkeypatch.setattr(SimNetwork, "reset_one_end", reset)
    further = Further(every_ms=50, request_p=1.0)
    half_open = event("client_reset", at_ms=2_500, for_ms=LATE_MS, target="asker", late_ms=LATE_MS)
    options = Options(safety_ms=6_000)
    plan = Plan(seed=5, options=options, workload=Workload(further=further), events=(half_open,))
    result = run_plan(plan)
    assert result.verdict == VALID, (result.oracle, result.text)
    assert result.faults == {"client_reset": 1}
    assert held
    assert result.counters["replied"] > 10


def test_nobody_is_an_asker_where_no_client_asks_others():
    plan = Plan(seed=5, options=Options())
    assert World(plan).layout.members["x"] == ()
