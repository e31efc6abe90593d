"""What strains a group beyond the usual: more at once, smaller limits, more ends in good order.

None in most plans. It is drawn from a stream of its own, behind everything else, so that plans
without it are as they were. Pure: values and their JSON. Source: spec/proof.md 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sim.faults.traffic import Count  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from sim.rng import SplitRng

STRAIN: Final = "strain"
"""The stream that it is drawn from."""
STRAIN_P: Final = 0.15
RETRY_TIMES: Final = 2
"""As producers are set by default."""
BATCH_SEGMENT_BYTES: Final = 64 * 1024
"""A batch lies in one segment: in smaller ones there are no larger batches."""


class Strain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each of these is off where it is 0 or False."""

    reads: float = 0.0
    """Read indexes asked for, for each other operation, beside the usual ones."""
    due_at_once: Count = 0
    """Messages that are sent together to wait for the same moment, where messages wait."""
    batch_max: Count = 0
    """Messages of the largest batch."""
    units_max: Count = 0
    """Messages that a broker looks at for one read."""
    count_max: Count = 0
    """Messages that a broker hands out for one read."""
    forth_again: bool = False
    """Whether an offset that was set back is set forth again to where it was."""
    spans: bool = False
    """Whether what was found by a key is asked for again, within and outside its time."""
    checkpoint_ms: Count = 0
    """How often queues are noted, as a period that is shorter than that in which logs are synced:
    a log that loses its end begins from an earlier note."""
    refused_p: float = 0.0
    """How many of the puts are refused, as if too much waited for a majority."""
    stop_every_ms: Count = 0
    """How often a broker is stopped in good order, as a mean."""
    key_slots: Count = 0
    """Slots of a file of the key index, which has four times as many entries; 0: as usual."""
    retry_times: Count = RETRY_TIMES
    """How often a producer tries a send again that a broker refused, or did not answer."""


def draw_strain(rng: SplitRng, segment_bytes: int) -> Strain | None:
    """Return what a plan has of it; each part from a stream of its own."""
    if not rng.split("on").chance(STRAIN_P):
        return None
    is_large = segment_bytes >= BATCH_SEGMENT_BYTES
    return Strain(
        reads=rng.split("reads").choice((0.0, 1.0, 3.0)),
        due_at_once=rng.split("due").choice((0, 12, 80)),
        batch_max=rng.split("batches").choice((0, 24, 40)) if is_large else 0,
        units_max=rng.split("units").choice((0, 1, 5)),
        count_max=rng.split("counts").choice((0, 2, 7)),
        forth_again=rng.split("forth").chance(0.7),
        spans=rng.split("spans").chance(0.5),
        checkpoint_ms=rng.split("checkpoints").choice((0, 0, 60)),
        refused_p=rng.split("refusals").choice((0.0, 0.02, 0.2)),
        stop_every_ms=rng.split("stops").choice((0, 1_500, 4_000)),
        key_slots=rng.split("slots of keys").choice((0, 0, 16)),
        retry_times=rng.split("retries").choice((0, 1, RETRY_TIMES, RETRY_TIMES, 5)),
    )
