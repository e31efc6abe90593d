"""What a run comes to seldom, since it is short: a quarter of the plans that may have it has some.

It is drawn from a stream of its own, behind everything else, so that plans without it are as they
were. Pure: values and their JSON. Source: `mutants.lapses`; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sim.rng import SplitRng

SELDOM: Final = "seldom"
"""The stream that it is drawn from."""
SELDOM_P: Final = 0.25
LEASE_MS: Final = 6_000
"""Members have to renew a lock several times in a run."""


class Seldom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each of these is as in production where it is 0."""

    lease_ms: Count = 0
    """How long a lock of a queue holds, where no edge says so."""


def draw_seldom(rng: SplitRng, *, is_in_order: bool) -> Seldom | None:
    """Return what a plan has of it."""
    if not is_in_order or not rng.split("on").chance(SELDOM_P):
        return None
    return Seldom(lease_ms=LEASE_MS)
