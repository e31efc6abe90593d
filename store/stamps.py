"""Store timestamps: they never fall along a log, and a clock that leaps does not take them along.

A stamp that lies in the future cannot be taken back: the next ones may not be lower, so that all
messages would carry it until the clock has caught up. So the wall clock is compared with a *line*:
a time that was believed, and what the monotonic clock has counted since. A wall clock that is ahead
of the line by more than `JUMP_MS` has leapt; stamps go along the line then, until the wall clock is
back, or has kept its new time for `FOLLOW_MS`: whoever set it had that long to set it back.

At a start there is no line yet. The first one is the wall clock's, unless that is more than
`IDLE_MAX_MS` ahead of the last stamp in the log: no group is taken to have been silent for so long.
A stamp in the log that is ahead of the line moves the line up to it. Pure but for the clocks.
"""

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledgermq.runtime.clock import Clock

JUMP_MS: Final = 60_000
"""Nobody corrects a clock that runs by more at a time; drift of so much in an hour is followed."""
FOLLOW_MS: Final = 3_600_000
"""As long as retention by age distrusts a clock that leapt (`store.retention`)."""
IDLE_MAX_MS: Final = 366 * 24 * 3_600_000

_log = logging.getLogger(__name__)


class Stamps:
    """Gives each message the time at which it was stored."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._wall_ms = clock.wall_ms
        self._line_ms = clock.wall_ms()
        self._line_at_ms = clock.monotonic_ms()
        self._trusted_ms = self._line_ms + JUMP_MS
        """Up to here the wall clock is believed without a look at the other one."""
        self._leapt_by_ms = 0
        """How far the wall clock is ahead of the line; 0 while it is believed."""
        self._leapt_at_ms = 0
        self.last = 0
        """The last one given, or found in the log."""

    def now(self) -> int:
        """Return the time to stamp a message with. Hot."""
        wall_ms = self._wall_ms()
        if wall_ms > self.last:
            if wall_ms > self._trusted_ms:
                wall_ms = self._judge(wall_ms)
            self.last = max(self.last, wall_ms)
        return self.last

    def carry_on(self, stored_ms: int) -> None:
        """Go on behind the last stamp in the log, 0 for none; at the beginning of an office."""
        self.last = max(self.last, stored_ms)
        monotonic_ms = self._clock.monotonic_ms()
        line_ms = self._line(monotonic_ms)
        if stored_ms > line_ms or 0 < stored_ms < line_ms - IDLE_MAX_MS:
            self._draw(stored_ms, monotonic_ms)

    def tick(self) -> None:
        """Look at the clocks, from time to time: a leap counts from when it happened."""
        wall_ms = self._wall_ms()
        self._judge(wall_ms)
        monotonic_ms = self._clock.monotonic_ms()
        if (
            monotonic_ms - self._line_at_ms >= FOLLOW_MS
            and abs(wall_ms - self._line(monotonic_ms)) <= JUMP_MS
        ):
            self._draw(wall_ms, monotonic_ms)

    def status(self) -> dict[str, int]:
        """Return what an administrator asks, in ms."""
        return {
            "clock_ahead_ms": self._leapt_by_ms,
            "log_ahead_of_clock_ms": max(0, self.last - self._wall_ms()),
        }

    def _line(self, monotonic_ms: int) -> int:
        return self._line_ms + monotonic_ms - self._line_at_ms

    def _draw(self, time_ms: int, monotonic_ms: int) -> None:
        self._line_ms, self._line_at_ms = time_ms, monotonic_ms
        self._trusted_ms = time_ms + JUMP_MS

    def _judge(self, wall_ms: int) -> int:
        """Return the time to go by: the wall clock's, or the line's if that has leapt."""
        monotonic_ms = self._clock.monotonic_ms()
        line_ms = self._line(monotonic_ms)
        self._trusted_ms = line_ms + JUMP_MS
        if wall_ms <= self._trusted_ms:
            if self._leapt_by_ms:
                self._leapt_by_ms = 0
                _log.warning("event=clock_is_back ahead_ms=%d", wall_ms - line_ms)
            return wall_ms
        ahead_ms = wall_ms - line_ms
        if not self._leapt_by_ms or abs(ahead_ms - self._leapt_by_ms) > JUMP_MS:
            self._leapt_by_ms, self._leapt_at_ms = ahead_ms, monotonic_ms
            _log.warning(
                "event=clock_leapt ahead_ms=%d stamps=monotonic followed_in_ms=%d",
                ahead_ms, FOLLOW_MS,
            )  # fmt: skip
        if monotonic_ms - self._leapt_at_ms < FOLLOW_MS:
            return line_ms
        self._leapt_by_ms = 0
        self._draw(wall_ms, monotonic_ms)
        _log.warning("event=clock_followed ahead_ms=%d", ahead_ms)
        return wall_ms
