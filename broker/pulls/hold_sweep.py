"""Answers held pulls whose time is up; while none is held, nothing wakes up for it.

It sleeps until the earliest deadline that was known when it looked last, or an earlier one that was
held since. A pull that messages have woken meanwhile is no reason to look before that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgermq.runtime.tasks import attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.pulls.long_polling import HoldTable
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.tasks import Supervisor


class HoldSweep:
    """The timer of one table of held pulls."""

    def __init__(
        self, held: HoldTable, clock: Clock, tasks: Supervisor, expire: Callable[[int], None]
    ) -> None:
        """Begin; ``expire`` is given the time, and answers what is due by then."""
        self._held = held
        self._clock = clock
        self._expire = expire
        self._alarm = tasks.alarm("held pulls", self._sweep)
        held.on_earlier = self._sleep_until
        self._look_again()

    def _sleep_until(self, due_ms: int) -> None:
        self._alarm.set(max(0, due_ms - self._clock.monotonic_ms()))

    def _sweep(self) -> None:
        # What is due and was not answered in this slice is due at once: the loop turns between.
        attempt("held pulls", self._expire_now)
        self._look_again()

    def _expire_now(self) -> None:
        self._expire(self._clock.monotonic_ms())

    def _look_again(self) -> None:
        due_ms = self._held.next_due_ms()
        if due_ms is not None:
            self._sleep_until(due_ms)
