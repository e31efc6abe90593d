"""What brokers of a plan are pressed by, see `sim.faults.pressed`. Pure: values and their JSON."""

from __future__ import annotations

import msgspec

from sim.faults.traffic import Count  # noqa: TC001 - msgspec reads it


class Pressed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each part is off where it is False or 0."""

    crowded: bool = False
    """Disks that others fill, and that have room again; brokers look at them."""
    forcibly: bool = False
    """Whether a broker drops what is not old to make room."""
    in_vain: bool = False
    """Hand-overs to who does not take over; who leads goes on, and ends later."""
    ahead_ms: Count = 0
    """How far the clock of a broker is ahead as it begins."""
