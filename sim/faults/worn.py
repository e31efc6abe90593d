"""Brokers that are worn: disks that hang in turn, tables with damage, little that may wait.

Each is what a cluster meets that has run for years: every disk hangs once, a saved table has a bad
sector, a follower that takes a snapshot has no room for it, a line between two sites is narrow, a
small broker lets few bytes wait for a majority. Most plans have none of this. It is drawn from a
stream of its own, behind everything else, so that plans without it are as they were.
Pure. Source: spec/proof.md D5, D7, D8, N10, 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sim.rng import SplitRng

WORN: Final = "worn"
"""The stream that it is drawn from."""
WORN_P: Final = 0.2
BEHIND_P: Final = 0.5
"""Where some replica needs a snapshot."""
BODIES_MIN: Final = 4
"""As many bodies of the largest kind may wait, at least."""

LARGE: Final = 65_536
"""A body of so many bytes takes seconds where little is under way and a machine is far away."""


class Worn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each of these is as in production where it is 0."""

    pending_bytes: Count = 0
    """Bytes that may wait for a majority, beyond which a leader refuses what is sent."""
    by_id_ms: Count = 0
    """How often somebody asks each broker for the last message that it has, by its id."""
    socket_bytes: Count = 0
    """How little is under way on a connection before its sender has to wait for the reader."""
    saved_ms: Count = 0
    """How often brokers save their tables, where that is not drawn small already."""


def draw_worn(rng: SplitRng, *, body_max: int, is_behind: bool) -> Worn | None:
    """Return what a plan has of it; each part from a stream of its own.

    Args:
        rng: of the plan.
        body_max: of its messages.
        is_behind: whether somebody is to need a snapshot.
    """
    if not rng.split("on").chance(BEHIND_P if is_behind else WORN_P):
        return None
    pending = rng.split("pending").choice((0, 32_768, 131_072))
    return Worn(
        pending_bytes=pending and max(pending, BODIES_MIN * body_max),
        by_id_ms=rng.split("ids").choice((0, 20, 50)),
        socket_bytes=rng.split("sockets").choice((0, 0, 16_384)) if body_max < LARGE else 0,
        saved_ms=rng.split("saves").choice((0, 400, 1_000)),
    )
