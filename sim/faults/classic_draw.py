"""From a seed to a plan about a master and its slaves. Pure.

The stream is one of its own: what `sim.faults.draw` makes of the same seed does not depend on it.
"""

from typing import Final

from msgspec import structs

from sim.faults.ambush_draw import AMBUSHES, OF_PAIR, POINTS, ambushes, has_ambushes, with_points
from sim.faults.classic import CLASSIC, MASTER, MODES, Classic
from sim.faults.draw import draw_package
from sim.faults.plan import FaultEvent, FaultKind, Options, Package, Plan, Workload
from sim.faults.small import STREAM, draw_small
from sim.rng import SplitRng

SHARE: Final = 0.25
"""Seeds of a campaign that have such a plan, too."""
CALM_P: Final = 0.05
"""Plans without a fault."""
SWITCHES_P: Final = 0.75
"""Plans whose operator makes a slave the master."""
AWAY_P: Final = 0.2
"""Plans whose master is gone for so long that a slave has to serve."""
AWAY_MS: Final = 14_000
AROUND_MS: Final = 1_000
AWAY_BEFORE_MS: Final = 1_500
"""So long before it goes the group goes; it comes again so long behind that."""
EVENTS_MAX: Final = 40
SEGMENT_BYTES: Final = 1 << 20
SMALL_SEGMENT_BYTES: Final = 64 * 1024
BEHIND_BYTES: Final = 8 * 1024
LIVENESS_MS: Final = 240_000
"""A name server keeps a broker that lost its power for two minutes."""


def is_classic_too(seed: int) -> bool:
    """Tell whether a campaign runs a plan about master and slaves beside that of the seed."""
    return SplitRng(seed).split(CLASSIC).split("too").chance(SHARE)


def draw_classic(seed: int, mode: str | None = None) -> Plan:
    """Return the plan of a seed; ``mode``: one of `MODES`, None for the seed's own choice."""
    rng = SplitRng(seed).split(CLASSIC)
    options = _draw_options(rng.split("options"), mode or rng.split("mode").choice(MODES))
    is_calm = rng.split("calm").chance(CALM_P)
    workload = _draw_workload(rng.split("workload"))
    workload = structs.replace(workload, small=draw_small(rng.split(STREAM)))
    events = [] if is_calm else draw_package(rng.split("faults"), Package.CLASSIC, options)
    hidden = rng.split(AMBUSHES)
    is_away = rng.split("away").chance(AWAY_P)
    if is_away:
        stream = rng.split("absence")
        options, events = _with_absence(stream, options, events, workload.consumers)
    elif has_ambushes(hidden):
        events = sorted([*events, *ambushes(hidden, options, OF_PAIR)], key=lambda one: one.at_ms)
    if not is_away:
        events = with_points(rng.split(POINTS), events, options, OF_PAIR)
    return Plan(seed=seed, options=options, workload=workload, events=tuple(events[:EVENTS_MAX]))


def _with_absence(
    rng: SplitRng, options: Options, events: list[FaultEvent], consumers: int
) -> tuple[Options, list[FaultEvent]]:
    """Return the same with a master that is gone for long, while nothing else happens.

    The group is away when it goes, so that there is something left to read at a slave.
    """
    begin_ms = rng.split("at").randint(3_000, 9_000)
    kind = rng.split("kind").choice((FaultKind.CRASH, FaultKind.STOP, FaultKind.POWER_LOSS))
    away = FaultEvent(
        at_ms=begin_ms,
        kind=kind,
        package=Package.CLASSIC,
        target=MASTER,
        for_ms=AWAY_MS,
        seed=rng.split("seed").randint(0, (1 << 31) - 1),
        params={"mode": "lost"} if kind is FaultKind.POWER_LOSS else {},
    )
    safety_ms = max(options.safety_ms, begin_ms + AWAY_MS + AROUND_MS)
    others = [
        one
        for one in events
        if one.end_ms < begin_ms - AWAY_BEFORE_MS or one.at_ms > away.end_ms + AROUND_MS
    ]
    late = [
        FaultEvent(
            at_ms=begin_ms - AWAY_BEFORE_MS,
            kind=FaultKind.CLIENT_CRASH,
            package=Package.CLASSIC,
            target=f"c{number}",
            for_ms=2 * AWAY_BEFORE_MS,
        )
        for number in range(consumers)
    ]
    found = sorted([*others, away, *late], key=lambda one: (one.at_ms, one.seed))
    return structs.replace(options, safety_ms=safety_ms), found


def _draw_options(rng: SplitRng, mode: str) -> Options:
    classic = Classic(
        mode="sync-master" if mode == "sync-master" else "async-master",
        slaves=rng.split("slaves").weighted((1, 2), (0.7, 0.3)),
        slave_flush=rng.split("slave flush").choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        slave_timeout_ms=rng.split("timeout").choice((200, 1_000, 3_000)),
        behind_max=rng.split("behind").weighted((256 << 20, BEHIND_BYTES), (0.6, 0.4)),
        heartbeat_ms=rng.split("heartbeat").choice((200, 500, 2_000)),
        batch_bytes=rng.split("batch").choice((1024, 32 * 1024)),
        switches=rng.split("switches").chance(SWITCHES_P),
        delay_p=rng.split("delays").choice((0.0, 0.1)),
    )
    return Options(
        classic=classic,
        namesrvs=rng.split("namesrvs").weighted((1, 2), (0.7, 0.3)),
        flush_disk_type=rng.split("flush").choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        segment_bytes=rng.split("segments").weighted(
            (SEGMENT_BYTES, SMALL_SEGMENT_BYTES), (0.85, 0.15)
        ),
        queue_file_bytes=rng.split("queue files").choice((400, 20_000)),
        safety_ms=rng.split("safety").choice((12_000, 25_000, 45_000)),
        liveness_ms=LIVENESS_MS,
        max_wait_ack_ms=rng.split("ack").choice((500, 2_500)),
        checkpoint_ms=rng.split("checkpoints").choice((300, 5_000)),
        clock_spread_ms=rng.split("clocks").choice((0, 0, 300)),
        delay_levels="1s 2s 4s",
    )


def _draw_workload(rng: SplitRng) -> Workload:
    return Workload(
        rate_per_s=rng.split("rate").choice((4.0, 10.0)),
        producers=rng.split("producers").randint(1, 2),
        consumers=rng.split("consumers").randint(1, 2),
        queues=rng.split("queues").choice((1, 4)),
        ordered_queues=0,
        batch_p=rng.split("batches").choice((0.0, 0.2)),
        burst_p=rng.split("bursts").choice((0.0, 0.2)),
        burst_max=rng.split("burst max").choice((8, 40)),
        body_max=rng.split("bodies").choice((128, 1_024, 4_096)),
        compact_p=0.0,
        commit_on_pull=rng.split("commits").chance(0.5),
    )
