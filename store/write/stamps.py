"""Store timestamps: they never fall along a log, and a clock that leaps does not take them along.

A stamp that lies in the future cannot be taken back: the next ones may not be lower, so that all
messages would carry it until the clock has caught up. So the wall clock is compared with a *line*:
a time that was believed, and what the monotonic clock has counted since. A wall clock that is ahead
of the line by more than `JUMP_MS` has leapt; stamps go along the line then, until the wall clock is
back, or has kept its new time for `FOLLOW_MS`: whoever set it had that long to set it back.

A wall clock that is behind the last stamp has stamps wait for it. Where it is more than `JUMP_MS`
behind, they go on at half the pace of the monotonic clock: what waits by them, delayed messages and
questions about halves, would stand still for as long as the clock was set back.

At a start there is no line yet. In a group, one that has not heard the others begins with the last
stamp of the log, for `UNHEARD_MS` at most. Otherwise the first one is the wall clock's, unless that
is more than `IDLE_MAX_MS` ahead of the last stamp in the log: no group is taken to have been silent
for so long. A stamp in the log that is ahead of the line moves the line up to it.

In a group the members compare their clocks (`GroupClock`). Where a majority says that the own wall
clock is wrong, it is corrected by what they say, at a start as at any time. And where a majority
agrees on the time, a log whose last stamp lies more than `HEAL_MS` in the future goes on with the
right time: stamps fall once, from those that a wrong clock has made. A search by time then finds
the right message behind them, or the first of the wrong ones, which is earlier, and never a later
one. Pure but for the clocks.
"""

import logging
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ledgermq.runtime.clock import Clock

JUMP_MS: Final = 60_000
"""Nobody corrects a clock that runs by more at a time; drift of so much in an hour is followed."""
FOLLOW_MS: Final = 3_600_000
"""As long as retention by age distrusts a clock that leapt (`broker.retention_policy`)."""
IDLE_MAX_MS: Final = 366 * 24 * 3_600_000
HEAL_MS: Final = 24 * 3_600_000
"""Less than this ahead, a log lets the time come."""
UNHEARD_MS: Final = 5_000
"""A leader hears a majority within a second or so, or they are of a version that tells no clock."""

_log = logging.getLogger(__name__)


class GroupClock(Protocol):
    """What a majority of the group says of the time."""

    def correction_ms(self) -> int | None:
        """Return what to add to the own wall clock, None where no majority says anything."""
        ...


class Alone:
    """A `GroupClock` of nobody."""

    def correction_ms(self) -> None:
        """Return that nobody says anything."""


ALONE: Final = Alone()


class Stamps:
    """Gives each message the time at which it was stored."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._own_wall_ms = clock.wall_ms
        self._correction_ms = 0
        self.group: GroupClock = ALONE
        self._unheard_since_ms: int | None = None
        """When the line was drawn at the last stamp of the log, to wait for the others."""
        self._has_heard = False
        self._line_ms = clock.wall_ms()
        self._line_at_ms = clock.monotonic_ms()
        self._trusted_ms = self._line_ms + JUMP_MS
        """Up to here the wall clock is believed without a look at the other one."""
        self._leapt_by_ms = 0
        """How far the wall clock is ahead of the line; 0 while it is believed."""
        self._paced_at_ms = self._line_at_ms
        """Up to when stamps have gone on while the wall clock was far behind them."""
        self._leapt_at_ms = 0
        self.last = 0
        """The last one given, or found in the log."""

    def now(self) -> int:
        """Return the time to stamp a message with. Hot."""
        wall_ms = self._own_wall_ms() + self._correction_ms
        if wall_ms > self.last:
            if wall_ms > self._trusted_ms:
                wall_ms = self._check(wall_ms)
            self.last = max(self.last, wall_ms)
        return self.last

    def carry_on(self, stored_ms: int) -> None:
        """Go on behind the last stamp in the log, 0 for none; at the beginning of a leadership."""
        self.last = max(self.last, stored_ms)
        monotonic_ms = self._paced_at_ms = self._clock.monotonic_ms()
        line_ms = self._line(monotonic_ms)
        if stored_ms > line_ms or 0 < stored_ms < line_ms - IDLE_MAX_MS:
            self._draw(stored_ms, monotonic_ms)
        elif not self._has_heard and self.group is not ALONE and 0 < stored_ms < line_ms - JUMP_MS:
            self._draw(stored_ms, monotonic_ms)
            self._unheard_since_ms = monotonic_ms

    def tick(self) -> None:
        """Look at the clocks, from time to time: a leap counts from when it happened."""
        self._compare(self.group.correction_ms())
        self._maybe_wait_no_more()
        wall_ms = self._wall_ms()
        self._check(wall_ms)
        monotonic_ms = self._clock.monotonic_ms()
        self._pace(wall_ms, monotonic_ms)
        if (
            monotonic_ms - self._line_at_ms >= FOLLOW_MS
            and abs(wall_ms - self._line(monotonic_ms)) <= JUMP_MS
        ):
            self._draw(wall_ms, monotonic_ms)

    def _pace(self, wall_ms: int, monotonic_ms: int) -> None:
        """Let stamps go on where the wall clock is far behind; it comes nearer all the same.

        Nobody is early by that: no time that is waited for is shorter than it is in truth.
        """
        passed_ms, self._paced_at_ms = monotonic_ms - self._paced_at_ms, monotonic_ms
        if self.last > wall_ms + JUMP_MS:
            self.last += passed_ms // 2

    def _compare(self, correction_ms: int | None) -> None:
        """Go by what a majority says; where there is none, by what one said last."""
        if correction_ms is None:
            return
        self._has_heard = True
        if abs(correction_ms - self._correction_ms) > JUMP_MS:
            if correction_ms:
                _log.warning("event=clock_overruled correction_ms=%d by=majority", correction_ms)
            else:
                _log.warning("event=clock_believed by=majority")
            self._correction_ms, self._leapt_by_ms = correction_ms, 0
            self._draw(self._wall_ms(), self._clock.monotonic_ms())
        wall_ms = self._wall_ms()
        if self.last > wall_ms + HEAL_MS:
            _log.warning("event=stamps_healed ahead_ms=%d", self.last - wall_ms)
            self.last = wall_ms
            self._draw(wall_ms, self._clock.monotonic_ms())

    def _maybe_wait_no_more(self) -> None:
        """Believe the wall clock, as the others have corrected it or said nothing."""
        since_ms, monotonic_ms = self._unheard_since_ms, self._clock.monotonic_ms()
        if since_ms is not None and (self._has_heard or monotonic_ms - since_ms >= UNHEARD_MS):
            self._unheard_since_ms, self._has_heard, self._leapt_by_ms = None, True, 0
            self._draw(self._wall_ms(), monotonic_ms)

    def _wall_ms(self) -> int:
        return self._own_wall_ms() + self._correction_ms

    def status(self) -> dict[str, int]:
        """Return what an administrator asks, in ms."""
        return {
            "clock_ahead_ms": self._leapt_by_ms,
            "clock_correction_ms": self._correction_ms,
            "log_ahead_of_clock_ms": max(0, self.last - self._wall_ms()),
        }

    def _line(self, monotonic_ms: int) -> int:
        return self._line_ms + monotonic_ms - self._line_at_ms

    def _draw(self, time_ms: int, monotonic_ms: int) -> None:
        self._line_ms, self._line_at_ms = time_ms, monotonic_ms
        self._trusted_ms = time_ms + JUMP_MS

    def _check(self, wall_ms: int) -> int:
        """Return the time to go by: the wall clock's, or the line's if that has leapt."""
        monotonic_ms = self._clock.monotonic_ms()
        line_ms = self._line(monotonic_ms)
        self._trusted_ms = line_ms + JUMP_MS
        if wall_ms <= self._trusted_ms:
            if self._leapt_by_ms:
                self._leapt_by_ms = 0
                _log.warning("event=clock_is_back ahead_ms=%d", wall_ms - line_ms)
            return wall_ms
        if self._unheard_since_ms is not None:
            return line_ms
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
