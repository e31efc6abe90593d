"""One fault of a plan, as draws of moments and of worn brokers write it down. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.faults.plan import FaultEvent, FaultKind, Package

if TYPE_CHECKING:
    from sim.faults.plan import Options, Value, Workload
    from sim.faults.recipe import Drawn, Recipe
    from sim.rng import SplitRng

FIRST_MS: Final = 1_500
"""No fault comes before: the group has elected its first leader."""
QUIET_MS: Final = 500
"""No fault comes in the last part of the safety phase."""
PACKAGES: Final = {
    FaultKind.ADD: Package.MEMBERS,
    FaultKind.AMBUSH: Package.AMBUSH,
    FaultKind.BIT_ROT: Package.DISK_DAMAGE,
    FaultKind.CLOCK_JUMP: Package.CLOCK,
    FaultKind.CRASH: Package.CRASH,
    FaultKind.DELAY: Package.LINK,
    FaultKind.DISK_FULL: Package.DISK_FULL,
    FaultKind.DROP: Package.FRAMES,
    FaultKind.HALVES: Package.PARTITION,
    FaultKind.HUNG_DISK: Package.DISK_SLOW,
    FaultKind.ISOLATE: Package.PARTITION,
    FaultKind.NAMESRV_DELAY: Package.NAMESRV,
    FaultKind.NAMESRV_RESET: Package.NAMESRV,
    FaultKind.PAUSE: Package.PAUSE,
    FaultKind.REMOVE: Package.MEMBERS,
    FaultKind.RESTART_ALL: Package.CRASH,
    FaultKind.SPOIL: Package.DERIVED,
    FaultKind.TRANSFER: Package.TRANSFER,
    FaultKind.WIPE: Package.BEHIND,
}
"""To which package a fault of theirs belongs."""


def fault(
    rng: SplitRng, options: Options, times: tuple[int, int], kind: FaultKind, target: str,
    params: dict[str, Value] | None = None,
) -> FaultEvent:  # fmt: skip
    """Return a fault from a time on (ms) for so long; none begins or ends behind the run."""
    at_ms = max(0, min(times[0], options.safety_ms - 1))
    return FaultEvent(
        at_ms=at_ms,
        kind=kind,
        package=PACKAGES[kind],
        target=target,
        for_ms=max(0, min(times[1], options.safety_ms - at_ms)),
        seed=rng.split("seed").randint(0, (1 << 31) - 1),
        params=params or {},
    )


def is_story(workload: Workload) -> bool:
    """Tell whether faults of a plan belong together, so that none of them may be left out."""
    asked = workload.transactional
    return workload.edges is not None or (asked is not None and asked.asked_again)


def from_recipe(
    recipe: Recipe, package: Package, at_ms: int, stream: SplitRng, options: Options
) -> FaultEvent:
    """Return a fault of a recipe from a time on (ms); it ends with the run at the latest."""
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
