"""A broker whose disk is above the highest ratio takes no messages until it is below the next one.

What it would write might be what the log of the whole group needs room for. That it refuses for
too long is judged with all else that a leader refuses (`sim.oracles.taking`): here is for how long
it has a reason. Source: spec/disk.md 5.8; docs/storage.md (retention).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sim.oracles.base import Violation

if TYPE_CHECKING:
    from sim.oracles.replica import Replica
    from sim.oracles.wire import Said

NAME: Final = "A40 message taken though the disk is full"
FULL_RATIO: Final = 0.90
FORCED_RATIO: Final = 0.85
"""Below this a disk that was full is full no more."""
PATH: Final = "/"
LOOKS_MS: Final = 1_500
"""Brokers look at their disks every half second, and drop something between."""


class Crowding:
    """Watches how full the disks of brokers are that look at them."""

    def __init__(self) -> None:
        self._full: dict[str, tuple[int, int]] = {}
        """By replica: in which life, and since when its disk has been full."""
        self._crowded: dict[str, tuple[int, int]] = {}
        """Likewise, when it was last too full to take messages again."""

    def on_tick(self, replica: Replica) -> None:
        """Look at a disk."""
        disk = replica.disk
        if disk.told_used is None and disk.capacity_bytes is None:
            self._full.pop(replica.name, None)
            return
        life, now_ms = replica.incarnation, replica.now_ms()
        used = 1.0 - disk.space(PATH).free_ratio
        if used > FORCED_RATIO:
            self._crowded[replica.name] = life, now_ms
        if used <= FULL_RATIO:
            self._full.pop(replica.name, None)
        elif self._full.get(replica.name, (-1, 0))[0] != life:
            self._full[replica.name] = life, now_ms

    def refuses(self, replica: Replica) -> bool:
        """Tell whether a broker may take its disk for full."""
        life, last_ms = self._crowded.get(replica.name, (-1, 0))
        return life == replica.incarnation and replica.now_ms() - last_ms <= LOOKS_MS

    def on_taken(self, replica: Replica, request: Said) -> None:
        """A send was told to be stored. Errors: `Violation`."""
        life, since_ms = self._full.get(replica.name, (-1, 0))
        if life != replica.incarnation or replica.disk.is_watched:
            return
        if replica.disk.told_used is not None and request.note.now_ms - since_ms > LOOKS_MS:
            waited_ms = request.note.now_ms - since_ms
            text = f"{replica.name} takes what is sent {waited_ms} ms after its disk has become"
            raise Violation(NAME, f"{text} {replica.disk.told_used:.0%} full", node=replica.name)
