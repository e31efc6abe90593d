"""Clients that know what a broker can do, and others of a plan do not ask for: in some plans.

They filter by whatever SQL92 can say, have halves wait for a level of delay, send batches whose
messages differ in what nobody looks at, write many requests at once, lock queues that are to be
written no more, and join groups until these are there. It is drawn from a stream of its own, behind
everything else, so that plans without it are as they were. Pure: values and their JSON.
Source: spec/wire.md; docs/transactions.md; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count, Positive  # noqa: TC001 - msgspec reads them

if TYPE_CHECKING:
    from sim.rng import SplitRng

SKILLED: Final = "skilled clients"
"""The stream that it is drawn from."""
SKILLED_P: Final = 0.2
PART_P: Final = 0.6
"""How probable each part is where there are any."""


class Skilled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one machine of such clients does; each part is off where it is False or 0."""

    every_ms: Positive = 250
    """How long a step of a part waits for the next one, as a mean."""
    filters: bool = False
    """Reads by expressions of SQL92 that are drawn, of properties that are missing, or no numbers;
    what waits for something that lies behind more than one read looks at."""
    halves: bool = False
    """Halves with a level of delay, committed, rolled back, or neither."""
    batches: bool = False
    """Batches whose messages are equally long and not alike."""
    frames: bool = False
    """Many requests at once, of which some have to wait for room."""
    locks: bool = False
    """Locks of queues that are not written any more; some are given back late."""
    members: bool = False
    """Members that come again and again until their group is there."""
    once: bool = False
    """Groups that commit once; only where leaders hand over in vain."""
    room_bytes: Count = 0
    """So little of the log may wait for its commit before large sends have to; 0: as usual."""
    turn_frames: Count = 0
    """So many requests of a connection are taken in one turn of a loop; 0: as usual."""
    units_max: Count = 0
    """Messages that a broker looks at for one read, where no strain says so; 0: as usual."""
    lease_ms: Count = 0
    """How long a lock holds, where nothing else says so; 0: as usual."""


def draw_skilled(rng: SplitRng, *, is_alone: bool) -> Skilled | None:
    """Return what a plan has of it; each part from a stream of its own.

    Args:
        rng: of the plan.
        is_alone: whether there is a broker outside the group: its topics are elsewhere.
    """
    if is_alone or not rng.split("on").chance(SKILLED_P):
        return None
    locks = rng.split("locks").chance(PART_P)
    return Skilled(
        every_ms=rng.split("every").choice((100, 250, 600)),
        filters=rng.split("filters").chance(PART_P),
        halves=rng.split("halves").chance(PART_P),
        batches=rng.split("batches").chance(PART_P),
        frames=rng.split("frames").chance(PART_P),
        locks=locks,
        members=rng.split("members").chance(PART_P),
        room_bytes=rng.split("room").choice((0, 1, 20_000)),
        turn_frames=rng.split("turns").choice((0, 3, 10)),
        units_max=rng.split("units").choice((0, 3, 8)),
        lease_ms=rng.split("lease").choice((2_000, 4_000)) if locks else 0,
    )
