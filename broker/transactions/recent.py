"""Halves that were stored just now, at hand for their commit: most come within milliseconds.

What is here is committed and in the log as it is here, so that nothing need be read back. It is
bounded in bytes, the oldest go first; whatever is not here is read from the log. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.limits import RECENT_HALVES_BYTES_MAX

if TYPE_CHECKING:
    from store.results import PutMessage

OVERHEAD_BYTES: Final = 1_000
"""What a half takes here besides its body and properties."""


class RecentHalves:
    """Halves by where they lie in the log, in the order in which they were stored."""

    def __init__(self) -> None:
        self._halves: dict[int, PutMessage] = {}
        self.size_bytes = 0

    def note(self, physical: int, half: PutMessage) -> None:
        """Keep a half that lies there for some time."""
        halves = self._halves
        halves[physical] = half
        self.size_bytes += _size(half)
        while self.size_bytes > RECENT_HALVES_BYTES_MAX:
            self.forget(next(iter(halves)))

    def find(self, physical: int) -> PutMessage | None:
        """Return the half that lies there, None if it is not at hand."""
        return self._halves.get(physical)

    def forget(self, physical: int) -> None:
        """Keep it no longer."""
        half = self._halves.pop(physical, None)
        if half is not None:
            self.size_bytes -= _size(half)


def _size(half: PutMessage) -> int:
    return OVERHEAD_BYTES + len(half.body) + len(half.properties)
