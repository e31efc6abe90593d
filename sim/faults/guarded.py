"""Brokers that serve accounts: in some plans of a group, of which one machine asks as accounts do.

All other machines have addresses that the access file trusts. It is drawn from a stream of its own,
behind everything else, so that plans without it are as they were. Pure: values and their JSON.
Source: docs/access.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Positive  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sim.rng import SplitRng

GUARDED: Final = "guarded brokers"
"""The stream that it is drawn from."""
GUARDED_P: Final = 0.25


class Guarded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Brokers have an access file, and somebody asks who is not trusted."""

    every_ms: Positive = 100
    """How long a request waits for the next one, as a mean."""


def draw_guarded(rng: SplitRng, *, has_odd: bool) -> Guarded | None:
    """Return what a plan has of it.

    Args:
        rng: of the plan.
        has_odd: whether there are odd clients: what is no request is let in by no rule.
    """
    if has_odd or not rng.split("on").chance(GUARDED_P):
        return None
    return Guarded(every_ms=rng.split("every").choice((50, 100, 250)))
