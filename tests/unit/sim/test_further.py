"""Further clients: some plans have them, and they do all that they are there for."""

from sim.faults.draw import draw
from sim.faults.further import FURTHER_P, Further
from sim.faults.plan import Options, Plan, Workload, decode_plan, encode_plan
from sim.run import VALID, run_plan

SEEDS = 200
STEPS = (
    "polled",
    "seeks",
    "pauses",
    "filtered",
    "asked",
    "replied",
    "resets",
    "set_back",
    "new_topics",
)


def test_a_share_of_the_plans_has_further_clients():
    count = sum(draw(seed).workload.further is not None for seed in range(1, SEEDS + 1))
    assert 0.6 * FURTHER_P < count / SEEDS < 1.4 * FURTHER_P


def test_further_clients_take_all_their_steps():
    further = Further(every_ms=100, seek_p=0.3, pause_p=0.3, reset_p=0.2, poll_counts=(3,))
    workload = Workload(further=further, rich=True, tags=True)
    plan = Plan(seed=2, options=Options(safety_ms=8_000), workload=workload)
    assert decode_plan(encode_plan(plan)) == plan
    result = run_plan(plan)
    assert result.verdict == VALID, (result.oracle, result.text)
    assert [name for name in STEPS if not result.counters.get(name)] == []
