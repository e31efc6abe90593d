"""Time, the only source of it.

Everything that needs to know the time takes a `Clock`; the simulator supplies a virtual one. It
knows nothing of timers: those belong to the event loop.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time for durations, wall time for stamps that leave the process."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary point; never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the same arbitrary point; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch; may jump."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        """Return milliseconds of the machine's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Return nanoseconds of the machine's monotonic clock."""
        return time.monotonic_ns()

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


def local_hour(wall_ms: int) -> int:
    """Return the hour, 0..23, that a time is in where this machine stands."""
    return time.localtime(wall_ms / 1000).tm_hour


def local_stamp(wall_ms: int) -> str:
    """Return a time where this machine stands as ``yyyyMMddHHmmssSSS``."""
    now = time.localtime(wall_ms / 1000)
    return time.strftime("%Y%m%d%H%M%S", now) + f"{wall_ms % 1000:03d}"
