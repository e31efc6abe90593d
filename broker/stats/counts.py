"""How many messages were stored, handed out and given back: by topic, by group, in all.

Sends and pulls add to a plain dictionary, once each; every two seconds `fold` brings what is new
into windows of a minute, an hour and a day. Counted since this process started, on this replica.
A name that was silent longest makes room for a new one.
Source: RocketMQ BrokerStatsManager, StatsItemSet 4.9.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from broker.limits import TRAFFIC_NAMES_MAX

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ledgermq.runtime.clock import Clock

_SECOND_MS: Final = 1_000
#: Slots and their length; one is always under way.
_MINUTE: Final = (7, 10 * _SECOND_MS)
_HOUR: Final = (7, 600 * _SECOND_MS)
_DAY: Final = (25, 3_600 * _SECOND_MS)

Name = TypeVar("Name", bound="Hashable")


class Rate(msgspec.Struct, frozen=True):
    """What was counted in a window."""

    sum: int
    per_second: float


class Window:
    """Counts of the last slots; older ones fall out."""

    __slots__ = ("_counts", "_slot", "_slot_ms")

    def __init__(self, shape: tuple[int, int], now_ms: int) -> None:
        slots, self._slot_ms = shape
        self._counts = [0] * slots
        self._slot = now_ms // self._slot_ms

    def add(self, count: int, now_ms: int) -> None:
        """Count so many now."""
        self._advance(now_ms)
        self._counts[-1] += count

    def rate(self, now_ms: int, since_ms: int, slots: int | None = None) -> Rate:
        """Return what the last ``slots`` hold, of counting that began at ``since_ms``."""
        self._advance(now_ms)
        counts = self._counts[-(slots or len(self._counts)) :]
        begin_ms = (self._slot - len(counts) + 1) * self._slot_ms
        elapsed_ms = max(now_ms - max(begin_ms, since_ms), _SECOND_MS)
        return Rate(sum(counts), sum(counts) * _SECOND_MS / elapsed_ms)

    def _advance(self, now_ms: int) -> None:
        new = min(now_ms // self._slot_ms - self._slot, len(self._counts))
        if new > 0:
            self._counts = self._counts[new:] + [0] * new
            self._slot = now_ms // self._slot_ms


class Series:
    """What was counted under one name."""

    __slots__ = ("day", "hour", "minute", "since_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.minute = Window(_MINUTE, now_ms)
        self.hour = Window(_HOUR, now_ms)
        self.day = Window(_DAY, now_ms)
        self.since_ms = now_ms
        self.total = 0

    def add(self, count: int, now_ms: int) -> None:
        """Count so many now."""
        self.total += count
        for window in (self.minute, self.hour, self.day):
            window.add(count, now_ms)

    def rates(self, now_ms: int) -> tuple[Rate, Rate, Rate]:
        """Return what a minute, an hour and a day hold."""
        minute, hour, day = (
            window.rate(now_ms, self.since_ms) for window in (self.minute, self.hour, self.day)
        )
        return minute, hour, day

    def recent(self, now_ms: int) -> tuple[float, float, float]:
        """Return how many a second there were in 10 s, a minute and ten minutes."""
        since = self.since_ms
        return (
            self.minute.rate(now_ms, since, 2).per_second,
            self.minute.rate(now_ms, since).per_second,
            self.hour.rate(now_ms, since, 2).per_second,
        )


class Days(msgspec.Struct):
    """A total at the last two midnights, 0 for those before the start."""

    yesterday_morning: int = 0
    today_morning: int = 0


class Pulls(msgspec.Struct):
    """How many looks into a queue found messages, and how many did not."""

    found: int = 0
    missed: int = 0


class TrafficCounts:
    """Counts of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ms = clock.monotonic_ms()
        self.puts: defaultdict[str, int] = defaultdict(int)
        """Messages stored since the last `fold`, by topic: sends add to it."""
        self.gets: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Messages handed out since the last `fold`, by topic and group: pulls add to it."""
        self.backs: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Messages given back since the last `fold`, by topic and group."""
        self.pulls = Pulls()
        """Looks of pulls into queues since the last `fold`: pulls add to it."""
        self.broker_puts = Series(now_ms)
        self.broker_gets = Series(now_ms)
        self.pulls_found = Series(now_ms)
        self.pulls_missed = Series(now_ms)
        self.put_days = Days()
        self.get_days = Days()
        self._puts: dict[str, Series] = {}
        self._gets: dict[tuple[str, str], Series] = {}
        self._backs: dict[tuple[str, str], Series] = {}
        self._day = self._today()

    def fold(self) -> None:
        """Bring what is new into the windows."""
        now_ms, today = self._clock.monotonic_ms(), self._today()
        if today != self._day:
            self._day = today
            for days, series in (
                (self.put_days, self.broker_puts),
                (self.get_days, self.broker_gets),
            ):
                days.yesterday_morning, days.today_morning = days.today_morning, series.total
        if self.puts:
            self.broker_puts.add(_fold(self.puts, self._puts, now_ms), now_ms)
        if self.gets:
            self.broker_gets.add(_fold(self.gets, self._gets, now_ms), now_ms)
        if self.backs:
            _fold(self.backs, self._backs, now_ms)
        pulls = self.pulls
        if pulls.found or pulls.missed:
            self.pulls_found.add(pulls.found, now_ms)
            self.pulls_missed.add(pulls.missed, now_ms)
            pulls.found = pulls.missed = 0

    def of_topic(self, topic: str) -> Series | None:
        """Return what was stored in a topic, None if nothing was."""
        if self.puts:
            self.fold()
        return self._puts.get(topic)

    def of_group(self, topic: str, group: str) -> Series | None:
        """Return what a group was handed out of a topic, None if nothing was."""
        if self.gets:
            self.fold()
        return self._gets.get((topic, group))

    def of_back(self, topic: str, group: str) -> Series | None:
        """Return what a group gave back of a topic, None if nothing was."""
        if self.backs:
            self.fold()
        return self._backs.get((topic, group))

    def __len__(self) -> int:
        return max(len(self._puts), len(self._gets), len(self._backs))

    def _today(self) -> int:
        return self._clock.local(self._clock.wall_ms()).tm_yday


def _fold(new: dict[Name, int], known: dict[Name, Series], now_ms: int) -> int:
    """Move counts into their series, those of longest silence first; return their sum."""
    for name, count in new.items():
        series = known.pop(name, None)
        if series is None:
            if len(known) >= TRAFFIC_NAMES_MAX:
                del known[next(iter(known))]
            series = Series(now_ms)
        known[name] = series
        series.add(count, now_ms)
    total = sum(new.values())
    new.clear()
    return total
