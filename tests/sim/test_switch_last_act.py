"""A broker killed while nothing else happens: how long a switch takes, and who leaves the set.

Each bug is looked for in a plan without faults: what finds it is the last act of a run.
"""

from contextlib import nullcontext

import pytest

from mutants.patches import ALL
from mutants.planting import planted
from sim.faults.plan import Options, Plan, Workload
from sim.faults.switch import Switch
from sim.run import VALID, VIOLATED, run_plan
from sim.switch.last_act import SWITCHED_MS, LastAct
from sim.switch.tables import SwitchTables

MASTER, SLAVE = 2, 3
"""Seeds: who is killed follows from them."""


def calm(seed, silence_ms=1_200):
    switch = Switch(
        brokers=2, flush="SYNC_FLUSH", silence_ms=silence_ms, beat_ms=200, poll_ms=200,
        behind_max_ms=1_500,
    )  # fmt: skip
    options = Options(
        switch=switch, namesrvs=3, flush_disk_type="SYNC_FLUSH", segment_bytes=1 << 20,
        safety_ms=6_000, liveness_ms=60_000, delay_levels="1s 2s 4s",
    )  # fmt: skip
    workload = Workload(
        rate_per_s=5.0, producers=1, consumers=1, queues=1, ordered_queues=0, batch_p=0.0,
        compact_p=0.0, body_max=128,
    )  # fmt: skip
    return Plan(seed=seed, options=options, workload=workload, events=())


def run(plan, bug=None):
    with planted(bug) if bug else nullcontext():
        return run_plan(plan)


@pytest.mark.parametrize("silence_ms", [1_200, 5_000])
def test_another_master_acknowledges_within_three_seconds(silence_ms):
    result = run(calm(MASTER, silence_ms))
    assert result.verdict == VALID, (result.oracle, result.text)
    assert 0 < result.counters["switched_ms"] <= SWITCHED_MS


def test_a_slave_that_is_gone_leaves_the_set():
    result = run(calm(SLAVE))
    assert result.verdict == VALID, (result.oracle, result.text)
    assert result.counters["sets_shrunk"] > 0


@pytest.mark.parametrize(
    ("plan", "bug", "oracle"),
    [
        (calm(MASTER, 5_000), ALL["switch-hanging-up-not-heard"], LastAct.slow_name),
        (calm(SLAVE), ALL["switch-gone-slave-stays"], LastAct.kept_name),
        (calm(SLAVE), ALL["switch-asked-set-waited-for"], LastAct.waits_name),
        (calm(SLAVE), ALL["switch-first-offset-stays"], SwitchTables.lower_name),
    ],
)
def test_with_a_planted_bug_it_is_found(plan, bug, oracle):
    result = run(plan, bug)
    assert (result.verdict, result.oracle) == (VIOLATED, oracle), result.text
