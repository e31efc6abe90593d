"""From a seed to a plan about a broker without a group that has every kind of message. Pure.

It runs beside a group of one, has RocketMQ's plain log, and is killed, stopped and without power.
The stream is one of its own: what `sim.faults.draw` makes of the same seed does not depend on it.
"""

from typing import Final

from msgspec import structs

from sim.faults.ambush_draw import (
    AMBUSHES,
    OF_ALONE,
    POINTS,
    ambushes,
    has_ambushes,
    with_points,
)
from sim.faults.draw import draw_package
from sim.faults.plan import Options, Package, Plan, Workload
from sim.faults.small import STREAM, draw_small
from sim.faults.traffic import LEVELS, Delayed, Membership, Transactional
from sim.rng import SplitRng

ALONE: Final = "alone"
"""The mode of such plans, and the stream that they are drawn from."""
SHARE: Final = 0.15
"""Seeds of a campaign that have such a plan, too."""
CALM_P: Final = 0.05
"""Plans without a fault."""
PAYMENTS_P: Final = 0.7
"""Plans with transactions."""
EVENTS_MAX: Final = 40
FLUSHES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")


def is_alone_too(seed: int) -> bool:
    """Tell whether a campaign runs a plan about a broker alone beside that of the seed."""
    return SplitRng(seed).split(ALONE).split("too").chance(SHARE)


def draw_alone(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = SplitRng(seed).split(ALONE)
    options = _draw_options(rng.split("options"))
    workload = _draw_workload(rng.split("workload"))
    workload = structs.replace(workload, small=draw_small(rng.split(STREAM)))
    is_calm = rng.split("calm").chance(CALM_P)
    events = [] if is_calm else draw_package(rng.split("faults"), Package.ALONE, options)
    hidden = rng.split(AMBUSHES)
    if has_ambushes(hidden):
        events = sorted([*events, *ambushes(hidden, options, OF_ALONE)], key=lambda one: one.at_ms)
    events = with_points(rng.split(POINTS), events, options, OF_ALONE)
    return Plan(seed=seed, options=options, workload=workload, events=tuple(events[:EVENTS_MAX]))


def _draw_options(rng: SplitRng) -> Options:
    return Options(
        brokers=1,
        alone="plain",
        alone_flush=rng.split("flush").choice(FLUSHES),
        segment_bytes=rng.split("segments").choice((64, 256)) * 1024,
        queue_file_bytes=rng.split("queue files").choice((400, 2_000, 20_000)),
        safety_ms=rng.split("safety").choice((8_000, 12_000)),
        checkpoint_ms=rng.split("checkpoints").choice((300, 1_500, 5_000)),
        delay_levels=rng.split("levels").choice(LEVELS),
    )


def _draw_workload(rng: SplitRng) -> Workload:
    workload = Workload(
        rate_per_s=rng.split("rate").choice((5.0, 10.0, 20.0)),
        producers=rng.split("producers").randint(1, 2),
        consumers=rng.split("consumers").randint(1, 2),
        queues=rng.split("queues").choice((1, 4)),
        batch_p=rng.split("batches").choice((0.0, 0.3)),
        body_max=rng.split("bodies").choice((128, 1_024, 8_192)),
        burst_p=rng.split("bursts").choice((0.0, 0.0, 0.2)),
        burst_max=rng.split("burst max").choice((8, 40)),
        tags=rng.split("tags").chance(0.5),
        compress_over=rng.split("compress").choice((0, 200)),
        delayed=Delayed(share=rng.split("delayed").choice((0.3, 0.8))),
    )
    if not rng.split("payments").chance(PAYMENTS_P):
        return workload
    return structs.replace(workload, transactional=_draw_payments(rng.split("payment")))


def _draw_payments(rng: SplitRng) -> Transactional:
    return Transactional(
        share=rng.split("share").choice((0.3, 0.8)),
        group=Membership(members=rng.split("members").randint(1, 2)),
        rollback_p=rng.split("rollbacks").choice((0.2, 0.5)),
        untold_p=rng.split("untold").choice((0.0, 0.3, 0.8)),
        never_p=rng.split("never").choice((0.0, 0.2)),
        check_ms=rng.split("checks").choice((500, 1_500)),
        check_max=rng.split("most").choice((1, 3)),
        immunity_s=rng.split("immunity").choice((0, 0, 1)),
    )
