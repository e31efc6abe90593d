"""Clients with habits, and brokers under pressure: what a plan has of them, one after the other.

Each has a stream of its own. Those that were not made for each other are not in one plan. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from sim.faults.everyday import EVERYDAY, RESTARTS_MAX, draw_everyday
from sim.faults.fitful import FITFUL, draw_fitful
from sim.faults.plan import Package
from sim.faults.planned import FIRST_MS, QUIET_MS, from_recipe
from sim.faults.pressed import PRESSED, draw_pressed
from sim.faults.recipes import NAMESRV_RESTARTED
from sim.faults.skilled import SKILLED, draw_skilled

if TYPE_CHECKING:
    from sim.faults.plan import FaultEvent, Options, Workload
    from sim.rng import SplitRng


def with_habits(
    rng: SplitRng, options: Options, workload: Workload, events: list[FaultEvent]
) -> tuple[Options, Workload, list[FaultEvent]]:
    """Return the same with what a plan of a group has of them; ``rng``: that of the plan."""
    options, workload, events = _with_everyday(rng.split(EVERYDAY), options, workload, events)
    options, workload, events = _with_fitful(rng.split(FITFUL), options, workload, events)
    if workload.fitful is None:
        skilled = draw_skilled(rng.split(SKILLED), is_alone=bool(options.alone))
        workload = structs.replace(workload, skilled=skilled)
        is_behind = any(one.package is Package.BEHIND for one in events)
        options, workload = draw_pressed(rng.split(PRESSED), options, workload, is_behind=is_behind)
    return options, workload, events


def _are_clocks_alike(options: Options, events: list[FaultEvent]) -> bool:
    """Tell whether all clocks show the same time, and go on doing so."""
    return not options.clock_spread_ms and all(one.package is not Package.CLOCK for one in events)


def _with_everyday(
    rng: SplitRng, options: Options, workload: Workload, events: list[FaultEvent]
) -> tuple[Options, Workload, list[FaultEvent]]:
    """Return the same with clients that do what users do every day, in a share of the plans.

    Where they keep values at name servers these believe who has the key of the members.
    """
    is_steady = _are_clocks_alike(options, events)
    everyday = draw_everyday(rng, is_alone=bool(options.alone), is_steady=is_steady)
    workload = structs.replace(workload, everyday=everyday)
    if everyday is None or not everyday.values:
        return options, workload, events
    return structs.replace(options, peer_key=True), workload, _with_restarts(rng, options, events)


def _with_fitful(
    rng: SplitRng, options: Options, workload: Workload, events: list[FaultEvent]
) -> tuple[Options, Workload, list[FaultEvent]]:
    """Return the same with clients that come and go, in a share of the plans.

    Where they set values at name servers these believe who has the key of the members.
    """
    fitful = draw_fitful(
        rng,
        may_be=not options.alone and not (workload.small and workload.small.turn_ms),
        is_steady=_are_clocks_alike(options, events),
        has_transactions=workload.transactional is not None,
    )
    workload = structs.replace(workload, fitful=fitful)
    if fitful is None or not fitful.names:
        return options, workload, events
    return structs.replace(options, peer_key=True), workload, _with_restarts(rng, options, events)


def _with_restarts(rng: SplitRng, options: Options, events: list[FaultEvent]) -> list[FaultEvent]:
    """Return the events of a plan, and starts of name servers among them."""
    for number in range(rng.split("restarts").randint(1, RESTARTS_MAX)):
        stream = rng.split(f"restart{number}")
        at_ms = stream.split("at").randint(FIRST_MS, options.safety_ms - QUIET_MS)
        events = [*events, from_recipe(NAMESRV_RESTARTED, Package.NAMESRV, at_ms, stream, options)]
    return sorted(events, key=lambda event: (event.at_ms, event.package.value, event.seed))
