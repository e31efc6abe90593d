"""What users' clients do every day, and the others of a plan do not: in some plans of a group.

They send messages that have nothing but a body and one thing more, send to topics that nobody has
made, subscribe to them before they are there, change what they subscribe to, remove groups, and
keep values at name servers; local transactions take long. It is drawn from a stream of its own,
behind everything else, so that plans without it are as they were. Pure: values and their JSON.
Source: docs/client.md; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count, Positive  # noqa: TC001 - msgspec reads them

if TYPE_CHECKING:
    from sim.rng import SplitRng

EVERYDAY: Final = "everyday clients"
"""The stream that it is drawn from."""
EVERYDAY_P: Final = 0.2
RESTARTS_MAX: Final = 3
"""Of name servers, where somebody keeps values there."""
PART_P: Final = 0.6
"""How probable each part is where there are any."""


class Everyday(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one machine of such clients does; each part is off where it is False or 0."""

    every_ms: Positive = 250
    """How long a step of a part waits for the next one, as a mean."""
    bare: bool = False
    """Messages with nothing but a body and one thing more: a delay, a tag, a key, a property."""
    unmade: bool = False
    """Sends one behind the other to a topic that is not there."""
    early: bool = False
    """Groups that subscribe to such a topic before, and begin at the end."""
    changing: bool = False
    """Members that subscribe to other tags while they consume; a clock is put back at times."""
    groups: bool = False
    """Groups that are removed with their offsets, and set up while clients have them made."""
    values: bool = False
    """Values that are put, read and deleted at each name server, some of which begin anew."""
    slow_checks: Count = 0
    """For how many periods of questions the longest local transactions run, of those there are."""


def draw_everyday(rng: SplitRng, *, is_alone: bool, is_steady: bool) -> Everyday | None:
    """Return what a plan has of it; each part from a stream of its own.

    Args:
        rng: of the plan.
        is_alone: whether there is a broker outside the group: its topics are elsewhere.
        is_steady: whether all clocks show the same time, so that what is signed is never too old.
    """
    if is_alone or not rng.split("on").chance(EVERYDAY_P):
        return None
    return Everyday(
        every_ms=rng.split("every").choice((100, 250, 600)),
        bare=rng.split("bare").chance(PART_P),
        unmade=rng.split("unmade").chance(PART_P),
        early=rng.split("early").chance(PART_P),
        changing=rng.split("changing").chance(PART_P),
        groups=rng.split("groups").chance(PART_P),
        values=rng.split("values").chance(PART_P) and is_steady,
        slow_checks=rng.split("slow").choice((0, 2, 3)),
    )
