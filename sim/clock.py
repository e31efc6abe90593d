"""The clock of a simulated machine: drifts, jumps, and shows what a slow call has cost.

Virtual time itself is the loop's; a machine sees it through its own clock, and its timers run by
that clock as well.
"""

import time
from collections.abc import Sequence
from typing import Final, Protocol

EPOCH_MS: Final = 1_700_000_000_000
"""Wall time at the beginning of every run."""
FAR_MS: Final = 60_000
"""Stamps stand still where the clock is behind them by less."""
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
        "_base_ns", "_shown", "_since_ns", "_time", "changed_ns", "lag_ns", "rate",
        "wall_offset_ms",
    )  # fmt: skip

    def __init__(self, time: VirtualTime) -> None:
        """Make a clock that is right."""
        self._time = time
        self._since_ns = 0
        self._base_ns = 0
        self._shown: list[tuple[int, int]] = []
        """Each wall time (ms) from which it was set, and when (ns)."""
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
        return max([self.wall_ms(), *(shown_ms for shown_ms, _ in self._shown)])

    def farthest_ms(self, rate: float) -> int:
        """Return how far another clock of now would have to be to have been as far behind this one.

        ``rate``: how fast that one has gone on since then, at most.
        """
        now_ns = self._time.now_ns
        shown = (ms + int(rate * (now_ns - at_ns) / MS) for ms, at_ns in self._shown)
        return max([self.wall_ms(), *shown])

    def stamped_ms(self, pace: float) -> int:
        """Return how far store times may have come that once followed this clock.

        They go on at so many seconds in one of virtual time where clocks are far behind them.
        """
        now_ns = self._time.now_ns
        paced = (ms + int(pace * (now_ns - at_ns) / MS) for ms, at_ns in self._shown)
        return max([self.wall_ms(), *paced])

    def local(self, wall_ms: int) -> time.struct_time:
        """Return a wall time; all simulated machines stand at Greenwich, wherever this one does."""
        return time.gmtime(wall_ms / 1000)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back."""
        self._shown.append((self.wall_ms(), self._time.now_ns))
        self.wall_offset_ms += by_ms

    def set_rate(self, rate: float) -> None:
        """Let the clock run faster (above 1) or slower from now on; timers set later follow."""
        assert rate > 0, rate
        self._base_ns = self.monotonic_ns()
        self._since_ns = self._time.now_ns + self.lag_ns
        self.rate, self.changed_ns = rate, self._time.now_ns
        self._time.drifting = True


def latest_stamp_ms(clocks: Sequence[SimClock]) -> int:
    """Return the latest store time that brokers with these clocks may have given.

    Where a clock is far behind what another one has shown, stamps go on by half of the monotonic
    clock of whoever gives them (`store.write.stamps`).
    """
    slowest_ms, rate = min(one.wall_ms() for one in clocks), max(one.rate for one in clocks)
    # Stamps went on while a clock was far behind, also where it is so no more.
    behind_ms = max(one.farthest_ms(rate) for one in clocks) - slowest_ms
    pace = rate / 2 if behind_ms > FAR_MS else 0.0
    return max(one.stamped_ms(pace) for one in clocks)
