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

    def local(self, wall_ms: int) -> time.struct_time:
        """Return a wall time as it is called where this machine stands."""
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

    def local(self, wall_ms: int) -> time.struct_time:
        """Return a wall time in the time zone of the process."""
        return time.localtime(wall_ms / 1000)


def local_stamp(clock: Clock, wall_ms: int) -> str:
    """Return a wall time as ``yyyyMMddHHmmssSSS``, where the machine stands."""
    return time.strftime("%Y%m%d%H%M%S", clock.local(wall_ms)) + f"{wall_ms % 1000:03d}"
