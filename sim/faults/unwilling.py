"""Requests at which brokers fail by chance, though they lead: in some plans with members of groups.

A broker that has too much to do, or whose handler has stumbled, answers so at any time, and whoever
asks has to stand that: it asks again, keeps nothing that it was not given, and goes nowhere by it.
It is drawn from a stream of its own, behind everything else, so that plans without it are as they
were. Pure: values and their JSON. Source: spec/wire.md 1.7; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from sim.rng import SplitRng

UNWILLING: Final = "unwilling"
"""The stream that it is drawn from."""
UNWILLING_P: Final = 0.15


class Unwilling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of the requests fail, by what is asked; each is off where it is 0."""

    commits: float = 0.0
    """Commits of offsets (15)."""
    offsets: float = 0.0
    """Questions where a group, or a queue, is (14, 29 to 31)."""
    members: float = 0.0
    """Questions for the members of a group (38)."""
    locks: float = 0.0
    """Locks of queues, and their ends (41, 42)."""
    is_busy: bool = False
    """Whether brokers say that they are busy (2), not that they have failed (1)."""


def draw_unwilling(rng: SplitRng, *, has_members: bool) -> Unwilling | None:
    """Return what a plan has of it; each part from a stream of its own."""
    if not has_members or not rng.split("on").chance(UNWILLING_P):
        return None
    return Unwilling(
        commits=rng.split("commits").choice((0.1, 0.2, 0.5)),
        offsets=rng.split("offsets").choice((0.1, 0.2, 0.5)),
        members=rng.split("members").choice((0.0, 0.0, 0.2)),
        locks=rng.split("locks").choice((0.1, 0.2, 0.4)),
        is_busy=rng.split("codes").chance(0.25),
    )
