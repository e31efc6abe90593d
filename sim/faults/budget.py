"""The fault budget: what a default plan may contain so that nothing it does is beyond repair.

Availability needs no budget: in the safety phase everything may be down at once, and at its end all
is healed. What needs one is *damage*, that is, faults after which a replica no longer has what it
once acknowledged: unsynced writes lost where acknowledgements do not wait for a sync, a wiped disk,
corrupt bytes, a sync that failed. At any time at most a minority of the replicas may be damaged and
not yet repaired. The plan keeps to that by counting; since it knows roles and not replicas,
`sim.faults.guard` asks again when a fault is to be applied, of the real logs. Pure.
Source: TigerBeetle's ClusterFaultAtlas; spec/proof.md D9 (leave a quorum of intact copies).
"""

from collections.abc import Sequence
from typing import Final

from sim.faults.plan import FaultEvent, FaultKind, Options, Package

REPAIR_MS: Final = 3_000
"""How long after its end a damage counts as not yet repaired, at least."""
OVERKILL: Final = frozenset({FaultKind.LYING_SYNC})
"""Never in a default plan."""


def damage_ms(event: FaultEvent, options: Options) -> tuple[int, int] | None:
    """Return from when to when an event counts as damage of one replica, None if it is none."""
    if event.package is Package.ALONE:
        return None  # of no replica
    match event.kind:
        case FaultKind.WIPE:
            return event.at_ms, event.end_ms + REPAIR_MS
        case FaultKind.BIT_ROT:
            # It is repaired when it is read, which may be never.
            return event.at_ms, options.safety_ms + options.liveness_ms
        case FaultKind.EIO if event.text("op") == "sync":
            # The page cache hides what the disk does not have, from every later sync too.
            return event.at_ms, options.safety_ms + options.liveness_ms
        case FaultKind.POWER_LOSS if not options.is_sync:
            return event.at_ms, event.end_ms + REPAIR_MS
    return None


def within_budget(events: Sequence[FaultEvent], options: Options) -> list[FaultEvent]:
    """Return the events, in their order, without those that would exceed the budget."""
    kept: list[FaultEvent] = []
    for event in events:
        if not problems([*kept, event], options, newest_only=True):
            kept.append(event)
    return kept


def problems(
    events: Sequence[FaultEvent], options: Options, *, newest_only: bool = False
) -> list[str]:
    """Return what exceeds the budget, one line each; nothing for a plan that keeps to it."""
    found: list[str] = []
    damages: list[tuple[int, int]] = []
    for event in events:
        is_newest = event is events[-1]
        if event.kind in OVERKILL:
            found.append(f"{event.kind.value} at {event.at_ms} ms is beyond any contract")
        if event.kind is FaultKind.POWER_LOSS_ALL and not options.is_sync:
            found.append(f"all lose power at {event.at_ms} ms and none had to sync")
        if event.end_ms > options.safety_ms:
            found.append(f"{event.kind.value} at {event.at_ms} ms outlasts the safety phase")
        window = damage_ms(event, options)
        if window is None:
            continue
        open_now = 1 + sum(1 for start, end in damages if start <= event.at_ms < end)
        damages.append(window)
        if open_now > options.minority and (is_newest or not newest_only):
            found.append(
                f"{event.kind.value} at {event.at_ms} ms is damage number {open_now}"
                f" of {options.brokers} replicas"
            )
    return found
