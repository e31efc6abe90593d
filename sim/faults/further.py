"""What further clients of a plan do: poll, filter by SQL, ask about queues, ask each other.

None in most plans. It is drawn from a stream of its own, behind everything else. Pure: values and
their JSON. Source: spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count, Membership, Positive

if TYPE_CHECKING:
    from sim.rng import SplitRng

FURTHER: Final = "further clients"
"""The stream that it is drawn from."""
FURTHER_P: Final = 0.2


class Further(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients that do what others do not: one polls; of the steps of others these are shares."""

    every_ms: Positive = 150
    """How long a step waits for the next one."""
    group: Membership = Membership(members=1)
    """One host; what else it says of members counts for none of them."""
    seek_p: float = 0.1
    """How often a poll comes behind a seek."""
    pause_p: float = 0.0
    """How often a queue is paused for some polls."""
    manual: bool = False
    """Whether what was polled is committed by a call of its own."""
    poll_counts: tuple[Positive, ...] = (3, 32)
    pull_count: Positive = 32
    """Messages of a pull of the consumer that is polled: with few, a queue waits in parts."""
    filter_p: float = 0.2
    """Reads with a filter over properties."""
    ask_p: float = 0.2
    """Questions of where messages lie, and where a queue was at a time."""
    request_p: float = 0.15
    """Messages that want a reply."""
    reset_p: float = 0.05
    """How often the group that polls is told to go on elsewhere."""
    back_p: float = 0.1
    """Offsets that are committed, and set back."""
    list_p: float = 0.0
    """Lists of messages that a producer sends as batches that are small enough."""
    oneway_p: float = 0.0
    """Sends that nobody answers."""
    elsewhere_p: float = 0.0
    """How many of the seeks go to the beginning, the end, or a time, whatever lies there."""
    life_polls: Count = 0
    """After how many polls, as a mean, the consumer stops, and another one comes; 0: never."""
    slow_ms: Count = 0
    """How long whoever is asked takes for a reply, at most."""


def draw_further(rng: SplitRng) -> Further | None:
    """Return what a plan has of it."""
    if not rng.split("on").chance(FURTHER_P):
        return None
    return Further(
        every_ms=rng.split("every").choice((50, 150, 400)),
        seek_p=rng.split("seeks").choice((0.0, 0.1, 0.3)),
        pause_p=rng.split("pauses").choice((0.0, 0.0, 0.4)),
        manual=rng.split("manual").chance(0.4),
        poll_counts=rng.split("counts").choice(((1,), (3, 32), (100,))),
        pull_count=rng.split("pulls").choice((32, 32, 2)),
        reset_p=rng.split("resets").choice((0.0, 0.05, 0.1)),
        list_p=rng.split("lists").choice((0.0, 0.15)),
        oneway_p=rng.split("oneway").choice((0.0, 0.15)),
        elsewhere_p=rng.split("elsewhere").choice((0.0, 0.5)),
        life_polls=rng.split("lives").choice((0, 0, 15)),
        slow_ms=rng.split("slow").choice((0, 400)),
    )
