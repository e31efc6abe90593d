"""Limits and times that production has, drawn small: runs outlast them, and meet them again.

None in most plans. It is drawn from a stream of its own, behind everything else, so that plans
without it are as they were. Pure: values and their JSON. Source: spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sim.rng import SplitRng

EDGES: Final = "limits and times"
"""The stream that it is drawn from."""
EDGES_P: Final = 0.3
BUSY_OVER: Final = 8
"""A plan with more messages at once is busy."""
BEATS: Final = 4
"""Members say that they live so often before they would be forgotten."""
VALID: Final = 2
"""A client believes in a lock for so small a part of its lease, as by default."""
RENEWED: Final = 4
"""It asks for it again after so small a part."""


class Edges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each of these is as in production where it is 0 or False; milliseconds."""

    lease_ms: Count = 0
    """How long a lock of a queue holds."""
    silent_ms: Count = 0
    """How long a member may say nothing before its group goes on without it."""
    queues_flushed: Count = 0
    """Queues that are written in one tick."""
    unwritten: Count = 0
    """Units of queues that wait to be written, behind which nothing more is put into queues."""
    dispatch: Count = 0
    """Entries that are read back from the log in one turn."""
    read_bytes: Count = 0
    """Bytes that a broker hands out for one read: messages are larger."""
    key_slots: Count = 0
    """Slots of a file of the key index: most keys share theirs, and files are many."""
    refused_p: float = 0.0
    """How many of the puts are refused, as if too much waited for a majority."""
    slow_files_ms: Count = 0
    """How long it takes a member to write down how far it has come, at most."""
    tools_ms: Count = 0
    """How often somebody asks what tools ask, as a mean; 0: nobody does."""
    due_at_once: Count = 0
    """Messages that are sent together to wait for the same moment, where messages wait."""
    moments: bool = False
    """Whether there are such moments as `sim.faults.moments` has."""


def draw_edges(rng: SplitRng, *, is_busy: bool = False) -> Edges | None:
    """Return what a plan has of it; each part from a stream of its own.

    Args:
        rng: of the plan.
        is_busy: whether many messages come at once: none of them waits for what is that slow.
    """
    if not rng.split("on").chance(EDGES_P):
        return None
    return Edges(
        lease_ms=rng.split("leases").choice((0, 4_000, 6_000)),
        silent_ms=rng.split("silence").choice((0, 0, 6_000)),
        queues_flushed=rng.split("queues").choice((0, 1, 1)),
        unwritten=0 if is_busy else rng.split("unwritten").choice((0, 12, 40)),
        dispatch=0 if is_busy else rng.split("dispatch").choice((0, 1, 3)),
        read_bytes=0 if is_busy else rng.split("reads").choice((0, 0, 600, 3_000)),
        key_slots=rng.split("slots").choice((0, 8, 24)),
        refused_p=rng.split("refusals").choice((0.0, 0.0, 0.1, 0.3)),
        slow_files_ms=rng.split("files").choice((0, 300)),
        tools_ms=rng.split("tools").choice((0, 40, 120)),
        due_at_once=rng.split("due").choice((0, 6)),
        moments=rng.split("moments").chance(0.75),
    )
