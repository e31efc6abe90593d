"""What is due, and what next: where each level stands, without a clock or a log.

A level is a queue in which messages wait for the same time, so that its first one is due first;
nobody looks behind one that is not due. Levels take turns.
Source: spec/wire.md 7.4; RocketMQ ScheduleMessageService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_MS_MAX: Final = 5_000
"""Nobody waits longer without a look at the clock, which may be put right meanwhile."""


class Level:
    """Where one level stands.

    Args:
        next_offset: the first message that is not delivered.
        delay_ms: how long messages wait in it; None: the configuration does not say.
    """

    __slots__ = ("_delay_ms", "_doubted_ms", "due_ms", "next_offset", "queue_id")

    def __init__(self, queue_id: int, next_offset: int, delay_ms: int | None) -> None:
        self.queue_id = queue_id
        self.next_offset = next_offset
        self._delay_ms = delay_ms
        self.due_ms: int | None = 0
        """When to look at it again; None: when something comes into it."""
        self._doubted_ms: int | None = None
        """When messages are delivered whose time cannot be true."""

    def is_due(self, now_ms: int) -> bool:
        """Tell whether to look at it now.

        That is later than it can be where the clock has been put right since it was noted.
        """
        due_ms, delay_ms = self.due_ms, self._delay_ms
        if due_ms is None:
            return False
        return due_ms <= now_ms or (delay_ms is not None and due_ms > now_ms + delay_ms)

    def ready(self, times_ms: Sequence[int], now_ms: int) -> int:
        """Return how many of the next messages are due, and note when to look again.

        ``times_ms``: when they are, in their order; none: there are no more.
        """
        for count, time_ms in enumerate(times_ms):
            due_ms = self._believed(time_ms, now_ms)
            if due_ms > now_ms:
                self.due_ms = due_ms
                return count
        self.due_ms = now_ms if times_ms else None
        return len(times_ms)

    def _believed(self, time_ms: int, now_ms: int) -> int:
        """Return when a message is due that says so of itself.

        One that came before now cannot have longer to wait than its level says: it was stamped by
        a clock that was wrong, and has been put right. Such messages wait that long once more,
        all together: none is early then, and none waits until the wrong time comes.
        """
        if self._delay_ms is None or time_ms <= now_ms + self._delay_ms:
            self._doubted_ms = None  # what comes behind it was stamped by a clock that was right
            return time_ms
        if self._doubted_ms is None:
            self._doubted_ms = now_ms + self._delay_ms
        return self._doubted_ms


class Agenda:
    """All levels in one term of a leader."""

    def __init__(self) -> None:
        self.levels: dict[int, Level] = {}
        self._first = 0

    def due(self, now_ms: int) -> list[Level]:
        """Return the levels to look at now, another one first each time."""
        levels = list(self.levels.values())
        self._first += 1
        at = self._first % len(levels) if levels else 0
        return [level for level in levels[at:] + levels[:at] if level.is_due(now_ms)]

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long nothing is due, None while nothing waits at all."""
        times_ms = [level.due_ms for level in self.levels.values() if level.due_ms is not None]
        if not times_ms:
            return None
        return min(max(0, min(times_ms) - now_ms), WAIT_MS_MAX)
