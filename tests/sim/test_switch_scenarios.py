"""Losses of data after a switch that users of Kafka and RocketMQ have reported, each as a plan.

Our brokers come through; with the same mistake planted they do not. Sources: KIP-101 (scenarios 1
and 2), KAFKA-1211, KIP-966; apache/rocketmq issues 5663 and 7689.
"""

from contextlib import nullcontext

import pytest

from mutants.patches import ALL
from mutants.planting import planted
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Plan, Workload
from sim.faults.switch import Switch
from sim.run import VALID, VIOLATED, run_plan

pytestmark = pytest.mark.slow


def event(kind, target, at_ms, for_ms, **params):
    return FaultEvent(
        at_ms=at_ms, kind=kind, package=Package.SWITCH, target=target, for_ms=for_ms, params=params
    )


def plan(*events, safety_ms=20_000, brokers=2, flush="SYNC_FLUSH", rate=20.0, **switch):
    settings = {"silence_ms": 1_200, "beat_ms": 200, "poll_ms": 200, "behind_max_ms": 1_500}
    options = Options(
        switch=Switch(brokers=brokers, flush=flush, **(settings | switch)),
        namesrvs=3, flush_disk_type=flush, segment_bytes=1 << 20, safety_ms=safety_ms,
        liveness_ms=120_000, delay_levels="1s 2s 4s",
    )  # fmt: skip
    workload = Workload(
        rate_per_s=rate, producers=1, consumers=1, queues=2, ordered_queues=0, batch_p=0.0,
        compact_p=0.0, body_max=512,
    )  # fmt: skip
    return Plan(seed=1, options=options, workload=workload, events=tuple(events))


def run(one, bug=None):
    with planted(bug) if bug else nullcontext():
        return run_plan(one)


FOLLOWER_COMES_BACK_AND_LEADS = plan(
    event(FaultKind.CRASH, "follower", 9_000, 200),
    event(FaultKind.CRASH, "leader", 12_000, 3_000),
    event(FaultKind.CRASH, "follower", 16_000, 200),
    event(FaultKind.CRASH, "leader", 18_000, 1_500),
)
"""KIP-101, scenario 1, and KAFKA-1211: who comes back forgets what it had not known to count."""

BOTH_WROTE = plan(
    event(FaultKind.ISOLATE, "leader", 9_000, 900),
    event(FaultKind.CRASH, "leader", 9_800, 4_000),
    event(FaultKind.ISOLATE, "leader", 15_000, 900),
    event(FaultKind.CRASH, "leader", 15_800, 4_000),
)
"""KIP-101, scenario 2: two logs that differ at the same positions, twice, with the roles turned."""

LAST_ONE_STANDING = plan(
    event(FaultKind.ISOLATE, "leader", 9_000, 4_000),
    event(FaultKind.CRASH, "leader", 12_500, 3_000),
)
"""KIP-966: the one that is left was out of the set; it waits for who has what was acknowledged."""

GROWN_UNHEARD = plan(
    event(FaultKind.CRASH, "follower", 8_000, 3_000),
    event(FaultKind.NAMESRV_DELAY, "leader", 10_500, 9_000, which="all", side="from", base_ms=600),
    event(FaultKind.SLOW_DISK, "follower", 11_250, 8_000, ms=250, op="sync"),
    event(FaultKind.CRASH, "leader", 18_000, 3_000),
    rate=20.0,
    safety_ms=24_000,
)
"""apache/rocketmq 5663: the set has grown, and the master has not heard of it."""

KILLED_AGAIN_AND_AGAIN = plan(
    event(FaultKind.CRASH_LOOP, "a0", 8_000, 5_000, count=4, period_ms=1_500),
    event(FaultKind.CRASH_LOOP, "a1", 14_000, 5_000, count=4, period_ms=1_500),
    brokers=3,
    safety_ms=22_000,
)
"""apache/rocketmq 7689: masters are killed one after the other."""

END_LOST_WITH_THE_POWER = plan(
    event(FaultKind.POWER_LOSS, "follower", 9_500, 300, mode="lost"),
    event(FaultKind.CRASH, "leader", 9_600, 5_000),
    flush="ASYNC_FLUSH",
    rate=60.0,
)
"""KIP-966, unclean shutdown: an in-sync replica comes back without its end, and the master dies."""

PLANS = {
    "KIP-966-unclean": END_LOST_WITH_THE_POWER,
    "KIP-101-1": FOLLOWER_COMES_BACK_AND_LEADS,
    "KIP-101-2": BOTH_WROTE,
    "KIP-966": LAST_ONE_STANDING,
    "5663": GROWN_UNHEARD,
    "7689": KILLED_AGAIN_AND_AGAIN,
}


@pytest.mark.parametrize("name", PLANS)
def test_reported_loss_does_not_happen_here(name):
    result = run(PLANS[name])
    assert result.verdict == VALID, (result.oracle, result.text)
    assert not result.without_effect, result.without_effect
    assert result.counters["epochs"] > 1


@pytest.mark.parametrize(
    ("name", "bug", "oracle"),
    [
        (
            "KIP-101-1",
            ALL["switch-cut-to-what-counts"],
            "A36 in sync without what was acknowledged",
        ),
        ("KIP-101-2", ALL["switch-tail-kept"], "A34 epochs of a log"),
        (
            "KIP-966",
            ALL["controller-elects-whoever-lives"],
            "A36 elected from outside the in-sync set",
        ),
        (
            "KIP-966-unclean",
            ALL["lost-end-stays-in-sync"],
            "A36 decided otherwise than the rules say",
        ),
        (
            "5663",
            ALL["switch-asked-for-does-not-count"],
            "A38 counted before the in-sync set had it",
        ),
        ("7689", ALL["switch-acknowledged-before-the-set"], "A38 counted before it was synced"),
    ],
)
def test_with_the_same_mistake_it_does(name, bug, oracle):
    result = run(PLANS[name], bug)
    assert (result.verdict, result.oracle) == (VIOLATED, oracle), result.text
