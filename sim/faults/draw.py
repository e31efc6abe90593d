"""From a seed to a plan: settings of the run, which faults it has, and when.

Swarm testing: each seed has its own few packages of faults, at its own rates. Each package draws
from a stream of its own and each event from another, so that no event depends on another one. At
last, what would exceed the contract is left out (`sim.faults.budget`), unless it is asked for.
Pure. Source: chaos.md 1.1 (VOPR), 6.4.
"""

from collections.abc import Sequence
from typing import Final

from sim.faults.budget import within_budget
from sim.faults.plan import FaultEvent, Options, Package, Plan, Workload
from sim.faults.recipes import RECIPES, Drawn, Recipe
from sim.kinds import Odd
from sim.rng import SplitRng

BASELINE_P: Final = 0.03
"""Seeds without any fault."""
PACKAGE_P: Final = 0.3
"""How probable it is that a package is on."""
EVENTS_MAX: Final = 50
PREFERRED_P: Final = 0.15
"""How probable it is that one broker is to lead whenever it can."""
PEER_KEY_P: Final = 0.5
FIRST_MS: Final = 1_500
"""No fault comes before: the group has elected its first leader."""
ODD_P: Final = 0.15
"""How probable it is that one kind of odd clients is there."""
ODD_KINDS: Final = (
    Odd.LARGE, Odd.PULL, Odd.QUERY, Odd.ADMIN, Odd.LOCK, Odd.GARBAGE, Odd.DEAF, Odd.SILENT,
    Odd.REGISTER,
)  # fmt: skip
"""Those that default plans have."""
QUIET_MS: Final = 500
"""No fault comes in the last part of the safety phase."""


def draw(seed: int, *, overkill: bool = False, packages: Sequence[Package] | None = None) -> Plan:
    """Return the plan of a seed.

    Args:
        seed: of everything.
        overkill: also draw what may exceed the contract.
        packages: those that are on; None for the seed's own choice.
    """
    rng = SplitRng(seed).split("plan")
    on = _choose_packages(rng.split("packages")) if packages is None else tuple(packages)
    options = _draw_options(rng.split("options"), overkill=overkill, on=on)
    events: list[FaultEvent] = []
    for package in on:
        events += _draw_package(rng.split(package.value), package, options)
    events.sort(key=lambda event: (event.at_ms, event.package.value, event.seed))
    if not overkill:
        events = within_budget(events, options)
    return Plan(
        seed=seed,
        options=options,
        workload=_draw_workload(rng.split("workload")),
        events=tuple(events[:EVENTS_MAX]),
    )


def _choose_packages(rng: SplitRng) -> tuple[Package, ...]:
    if rng.split("baseline").chance(BASELINE_P):
        return ()
    on = tuple(one for one in Package if rng.split(one.value).chance(PACKAGE_P))
    return on or (rng.split("only").choice(list(Package)),)


def _draw_options(rng: SplitRng, *, overkill: bool, on: Sequence[Package]) -> Options:
    """Draw the settings; a setting's stream is its own, too."""
    has_members = Package.MEMBERS in on
    heartbeat, low, high = rng.split("ticks").choice(((2, 10, 20), (1, 8, 14), (3, 14, 30)))
    return Options(
        brokers=rng.split("brokers").weighted((3, 5), (0.85, 0.15)),
        spares=1 if has_members else 0,
        namesrvs=rng.split("namesrvs").weighted((1, 2), (0.7, 0.3)),
        flush_disk_type=rng.split("flush").choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        heartbeat_ticks=heartbeat,
        election_ticks_min=low,
        election_ticks_max=high,
        segment_bytes=rng.split("segments").choice((64, 128, 256)) * 1024,
        queue_file_bytes=rng.split("queue files").choice((400, 2_000, 20_000)),
        safety_ms=rng.split("safety").choice((8_000, 10_000, 14_000)),
        preferred="n0" if rng.split("preferred").chance(PREFERRED_P) else "",
        peer_key=rng.split("peer key").chance(PEER_KEY_P),
        overkill=overkill,
    )


def _draw_workload(rng: SplitRng) -> Workload:
    return Workload(
        rate_per_s=rng.split("rate").choice((5.0, 10.0, 20.0)),
        producers=rng.split("producers").randint(1, 3),
        consumers=rng.split("consumers").randint(1, 2),
        queues=rng.split("queues").choice((1, 4, 8)),
        ordered_queues=rng.split("ordered").randint(0, 1),
        batch_p=rng.split("batches").choice((0.0, 0.1, 0.4)),
        burst_p=rng.split("bursts").choice((0.0, 0.1, 0.3)),
        search_p=rng.split("searches").choice((0.0, 0.0, 0.05)),
        lock_p=rng.split("locks").choice((0.0, 0.0, 0.05)),
        tags=rng.split("tags").chance(0.5),
        body_max=rng.split("bodies").choice((128, 1024, 8192)),
        odd=_draw_odd(rng.split("odd")),
    )


def _draw_odd(rng: SplitRng) -> dict[Odd, float]:
    """Return the kinds of odd operations that a seed has, and how often each comes."""
    return {
        kind: rng.split(f"{kind.value} share").choice((0.01, 0.03, 0.1))
        for kind in ODD_KINDS
        if rng.split(kind.value).chance(ODD_P)
    }


def _draw_package(rng: SplitRng, package: Package, options: Options) -> list[FaultEvent]:
    """Draw the events of a package: a mean interval, then one event after the other."""
    interval_ms = rng.split("interval").choice((800, 1_500, 3_000, 6_000))
    recipes = RECIPES[package]
    weights = [recipe.weight for recipe in recipes]
    events: list[FaultEvent] = []
    at_ms = float(FIRST_MS)
    number = 0
    while True:
        stream = rng.split(f"event{number}")
        at_ms += stream.split("at").exponential(interval_ms)
        if at_ms >= options.safety_ms - QUIET_MS:
            return events
        recipe = stream.split("kind").weighted(recipes, weights)
        if options.overkill or not recipe.is_overkill:
            events.append(_event(recipe, package, int(at_ms), stream, options))
        number += 1


def _event(
    recipe: Recipe, package: Package, at_ms: int, stream: SplitRng, options: Options
) -> FaultEvent:
    drawn: Drawn = recipe.draw(stream.split("params"), options)
    return FaultEvent(
        at_ms=at_ms,
        kind=recipe.kind,
        package=package,
        target=drawn.target,
        for_ms=max(0, min(drawn.for_ms, options.safety_ms - at_ms)),
        seed=stream.split("seed").randint(0, (1 << 31) - 1),
        params=drawn.params,
    )
