"""Runs a world in pieces, so that one that does not come to an end is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.machines import NS_PER_MS, Machines
from sim.oracles.base import Violation
from sim.standstill import limited

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS_MAX: Final = 20_000_000
"""A run of more events than this has gone wild."""
CHUNK_MS: Final = 500
"""How often a run is asked whether it has gone wild."""
LIVENESS: Final = "liveness"


def run_until(world: Machines, at_ms: int, look: Callable[[], None]) -> None:
    """Run up to a time; ``look`` is called after each piece. Errors: `Violation`, `StoodStill`."""
    while world.loop.now_ns < at_ms * NS_PER_MS:
        step_ms = min(at_ms, world.loop.now_ns // NS_PER_MS + CHUNK_MS)
        with limited():
            world.loop.run_until(step_ms * NS_PER_MS)
        look()
        if world.loop.events > EVENTS_MAX:
            raise Violation(LIVENESS, f"more than {EVENTS_MAX} events: something spins")


def run_audit(
    world: Machines,
    is_done: Callable[[], bool],
    describe: Callable[[], str],
    look: Callable[[], None],
) -> None:
    """Run the liveness phase until it is done. Errors: `Violation`: it took too long."""
    options = world.plan.options
    at_ms, limit_ms = options.safety_ms, options.safety_ms + options.liveness_ms
    while not is_done():
        at_ms += CHUNK_MS
        if at_ms > limit_ms:
            raise Violation(
                LIVENESS, f"{options.liveness_ms} ms after everything was healed: {describe()}"
            )
        run_until(world, at_ms, look)
