"""The clock of a simulated machine: drifts, jumps, and shows what a slow call has cost.

Virtual time itself is the loop's; a machine sees it through its own clock, and its timers run by
that clock as well.
"""

import time
from typing import Final, Protocol

EPOCH_MS: Final = 1_700_000_000_000
"""Wall time at the beginning of every run."""
MS: Final = 1_000_000
"""Nanoseconds of a millisecond."""


class VirtualTime(Protocol):
    """Who knows the virtual time."""

    now_ns: int
    drifting: bool
    """Whether any clock runs at a rate of its own."""


class SimClock:
    """A `ledgermq.runtime.clock.Clock` over virtual time."""

    __slots__ = (
        "_base_ns", "_peak_ms", "_since_ns", "_time", "changed_ns", "lag_ns", "rate",
        "wall_offset_ms",
    )  # fmt: skip

    def __init__(self, time: VirtualTime) -> None:
        """Make a clock that is right."""
        self._time = time
        self._since_ns = 0
        self._base_ns = 0
        self._peak_ms = 0
        self.changed_ns = 0
        """When its rate was changed last; timers that were set before follow the one of then."""
        self.rate = 1.0
        """How many seconds pass on this clock in one of virtual time."""
        self.wall_offset_ms = 0
        """How far wall time is off, besides the drift."""
        self.lag_ns = 0
        """What the calls of this very callback have cost so far, see `Process.charge`."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the beginning of the run, as this machine counts them."""
        now = self._time.now_ns + self.lag_ns
        if self.rate == 1.0:
            return self._base_ns + now - self._since_ns
        return self._base_ns + int((now - self._since_ns) * self.rate)

    def monotonic_ms(self) -> int:
        """Return milliseconds since the beginning of the run, as this machine counts them."""
        if self.rate == 1.0:
            return (self._base_ns + self._time.now_ns + self.lag_ns - self._since_ns) // MS
        return self.monotonic_ns() // MS

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch, as this machine believes."""
        return EPOCH_MS + self.wall_offset_ms + self.monotonic_ns() // MS

    @property
    def highest_ms(self) -> int:
        """Return the latest wall time that was ever shown."""
        return max(self._peak_ms, self.wall_ms())

    def local(self, wall_ms: int) -> time.struct_time:
        """Return a wall time; all simulated machines stand at Greenwich, wherever this one does."""
        return time.gmtime(wall_ms / 1000)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self._peak_ms = self.highest_ms
        self.wall_offset_ms += by_ms

    def set_rate(self, rate: float) -> None:
        """Let the clock run faster (above 1) or slower from now on; timers set later follow."""
        assert rate > 0, rate
        self._base_ns = self.monotonic_ns()
        self._since_ns = self._time.now_ns + self.lag_ns
        self.rate, self.changed_ns = rate, self._time.now_ns
        self._time.drifting = True
