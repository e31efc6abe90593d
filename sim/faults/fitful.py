"""Clients that come and go, and change their minds: in some plans of a group.

They stop before anything has come and start again, are polled while queues are paused, subscribe to
something else before the news before that has arrived, and raise where they are asked how a
transaction ended; somebody sets and deletes the order of topics at name servers, and takes leave of
them for others. It is drawn from a stream of its own, behind everything else, so that plans without
it are as they were. Pure: values and their JSON. Source: docs/client.md; spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count, Positive  # noqa: TC001 - msgspec reads them

if TYPE_CHECKING:
    from sim.rng import SplitRng

FITFUL: Final = "fitful clients"
"""The stream that it is drawn from."""
FITFUL_P: Final = 0.15
TRANSACTIONS_P: Final = 0.5
"""Likewise where there are transactions."""
PART_P: Final = 0.5
"""How probable each part is where there are any."""
RAISES: Final = (0.1, 0.4)


class Fitful(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one machine of such clients does; each part is off where it is False or 0."""

    every_ms: Positive = 150
    """How long a step of a part waits for the next one, as a mean."""
    returning: bool = False
    """Groups that stop before the first message and start again, and members sent back."""
    polled: bool = False
    """Members that are polled: of several queues some are paused with messages in hand."""
    hurried: bool = False
    """Subscriptions that change before a broker has answered to the change before, and stops."""
    held: bool = False
    """Members in order whose listeners take long, of more queues than they work at, in turn."""
    names: bool = False
    """Orders of topics at name servers, and who takes leave or registers in another's name."""
    slow_checks: Count = 0
    """For how many periods of questions the longest local transactions run, of those there are."""
    raise_p: float = 0.0
    """How often who is asked about a transaction raises, and who runs one."""


def draw_fitful(
    rng: SplitRng, *, may_be: bool, is_steady: bool, has_transactions: bool
) -> Fitful | None:
    """Return what a plan has of it; each part from a stream of its own.

    Args:
        rng: of the plan.
        may_be: not where there is a broker outside the group, whose topics are elsewhere, nor
            where each turn of long work lasts: groups and topics come to be all the time.
        is_steady: whether all clocks show the same time, so that what is signed is never too old.
        has_transactions: whether somebody sends in transactions.
    """
    often = TRANSACTIONS_P if has_transactions else FITFUL_P
    if not may_be or not rng.split("on").chance(often):
        return None
    return Fitful(
        every_ms=rng.split("every").choice((50, 150, 400)),
        returning=rng.split("returning").chance(PART_P),
        polled=rng.split("polled").chance(PART_P),
        hurried=rng.split("hurried").chance(PART_P),
        held=rng.split("held").chance(PART_P),
        names=rng.split("names").chance(PART_P) and is_steady,
        slow_checks=rng.split("slow").choice((0, 1, 3)) if has_transactions else 0,
        raise_p=rng.split("raise").choice(RAISES) if has_transactions else 0.0,
    )
