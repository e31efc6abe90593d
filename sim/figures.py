"""Figures of the simulator itself, and of elections in it: ``ledgermq sim --bench, --elections N``.

Speed is measured over runs without faults: three brokers, ten operations a second. Election time is
virtual: from the moment the leader ends until another replica leads, over many seeds.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Final

from ledgermq.runtime.clock import SystemClock
from sim.faults.plan import Options, Plan, Workload
from sim.inode import PowerLossMode
from sim.machines import NS_PER_MS
from sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPEED_MS: Final = 60_000
FIRST_LEADER_MS: Final = 20_000
ELECTION_MS_MAX: Final = 60_000
STEP_MS: Final = 1
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)

IDLE: Final = Workload(rate_per_s=0.0, producers=0, consumers=0)


def measure_speed(seed: int = 1, *, virtual_ms: int = SPEED_MS) -> dict[str, float]:
    """Run three brokers at ten operations a second without faults; return rates and counts."""
    plan = Plan(seed=seed, options=Options(safety_ms=virtual_ms))
    clock = SystemClock()
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    try:
        world = World(plan)
        world.start_all()
        started_ns = clock.monotonic_ns()
        world.loop.run_until(virtual_ms * NS_PER_MS)
        wall_s = (clock.monotonic_ns() - started_ns) / 1e9
        events = world.loop.events
        sent = world.record.counters.get("sent", 0)
        world.close()
    finally:
        gc.enable()
        logging.disable(disabled)
    return {
        "seed": seed,
        "virtual_s": virtual_ms / 1000,
        "wall_s": round(wall_s, 3),
        "events": events,
        "messages": sent,
        "events_per_s": round(events / wall_s),
        "times_real_time": round(virtual_ms / 1000 / wall_s, 1),
    }


def election_ms(seed: int, *, power: bool = False) -> float | None:
    """Return how long a group of three is without a leader after it has lost the first one.

    Args:
        seed: of everything, the moment of the end included.
        power: cut its power, so that nothing tells the others; else kill the process.

    Returns None where nobody was elected within `ELECTION_MS_MAX`.
    """
    options = Options(safety_ms=FIRST_LEADER_MS)
    world = World(Plan(seed=seed, options=options, workload=IDLE))
    world.start_all()
    loop = world.loop
    loop.run_until_true(lambda: world.leader() is not None, FIRST_LEADER_MS)
    loop.run_for(1_000 + world.rng.split("moment").randint(0, 1_000))
    leader = world.leader()
    result = None
    if leader is not None:
        if power:
            world.power_loss(leader, PowerLossMode.LOST)
        else:
            world.crash(leader)
        began_ns = loop.now_ns
        if loop.run_until_true(lambda: world.leader() is not None, ELECTION_MS_MAX):
            result = (loop.now_ns - began_ns) / NS_PER_MS
    world.close()
    return result


def measure_elections(
    seeds: Sequence[int], report: Callable[[int], None] = lambda _done: None
) -> dict[str, object]:
    """Return quantiles of the election time after a kill and after a loss of power."""
    options = Options()
    timeout_ms = options.election_ticks_max * options.tick_ms
    figures: dict[str, object] = {"seeds": len(seeds), "election_timeout_ms": timeout_ms}
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for name, power in (("kill", False), ("power", True)):
            found: list[float] = []
            missing = 0
            for done, seed in enumerate(seeds):
                took = election_ms(seed, power=power)
                if took is None:
                    missing += 1
                else:
                    found.append(took)
                report(done + 1)
            figures[name] = {**quantiles(found), "not_elected": missing}
    finally:
        logging.disable(disabled)
    return figures


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the quantiles of some values, by the name p50, p90, p99, p100."""
    ordered = sorted(values)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {
        f"p{round(100 * share)}": round(ordered[min(last, int(share * len(ordered)))], 1)
        for share in QUANTILES
    }
