"""How many messages were stored, handed out and given back: by topic, by group, in all.

Sends and pulls add to a plain dictionary, once each; every two seconds `fold` brings what is new
into windows of a minute, an hour and a day, so many names at a time: there may be tens of thousands
of them. Whoever asks for one has it at once. Counted since this process started, on this replica.
A name that was silent longest makes room for a new one.
Source: RocketMQ BrokerStatsManager, StatsItemSet 4.9.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

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

NAMES_PER_FOLD: Final = 128
"""One that is known takes 5 us, one that makes another one go 30."""


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


class Traffic(Generic[Name]):
    """What is counted of one kind, by name."""

    __slots__ = ("_known", "_waiting", "broker", "new")

    def __init__(self, now_ms: int) -> None:
        self.new: defaultdict[Name, int] = defaultdict(int)
        """What came since it was taken last; always the same dictionary."""
        self.broker = Series(now_ms)
        """All of it, of whatever name."""
        self._known: OrderedDict[Name, Series] = OrderedDict()
        """Those of longest silence first."""
        self._waiting: dict[Name, int] = {}
        """What was taken and is to be brought into its series."""

    def __len__(self) -> int:
        return len(self._known)

    def fold(self, now_ms: int) -> bool:
        """Bring what is new into the series of the next names; return whether there are more."""
        if self.new and not self._waiting:
            self.broker.add(sum(self.new.values()), now_ms)
            self._waiting = dict(self.new)
            self.new.clear()
        for _ in range(min(NAMES_PER_FOLD, len(self._waiting))):
            self._add(*self._waiting.popitem(), now_ms)
        return bool(self._waiting)

    def find(self, name: Name, now_ms: int) -> Series | None:
        """Return what was counted under a name until now, None for nothing."""
        count = self.new.pop(name, 0)
        if count:
            self.broker.add(count, now_ms)
        count += self._waiting.pop(name, 0)
        if count:
            self._add(name, count, now_ms)
        return self._known.get(name)

    def _add(self, name: Name, count: int, now_ms: int) -> None:
        known = self._known
        series = known.pop(name, None)
        if series is None:
            if len(known) >= TRAFFIC_NAMES_MAX:
                known.popitem(last=False)
            series = Series(now_ms)
        known[name] = series
        series.add(count, now_ms)


class TrafficCounts:
    """Counts of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ms = clock.monotonic_ms()
        self._puts = Traffic[str](now_ms)
        self._gets = Traffic[tuple[str, str]](now_ms)
        self._backs = Traffic[tuple[str, str]](now_ms)
        self.puts = self._puts.new
        """Messages stored, by topic: sends add to it."""
        self.gets = self._gets.new
        """Messages handed out, by topic and group: pulls add to it."""
        self.backs = self._backs.new
        """Messages given back, by topic and group."""
        self.pulls = Pulls()
        """Looks of pulls into queues since the last `fold`: pulls add to it."""
        self.broker_puts = self._puts.broker
        self.broker_gets = self._gets.broker
        self.pulls_found = Series(now_ms)
        self.pulls_missed = Series(now_ms)
        self.put_days = Days()
        self.get_days = Days()
        self._day = self._today()

    def fold(self) -> bool:
        """Bring what is new into the windows; return whether there is more, for a later turn."""
        now_ms, today = self._clock.monotonic_ms(), self._today()
        if today != self._day:
            self._day = today
            for days, series in (
                (self.put_days, self.broker_puts),
                (self.get_days, self.broker_gets),
            ):
                days.yesterday_morning, days.today_morning = days.today_morning, series.total
        more = [one.fold(now_ms) for one in (self._puts, self._gets, self._backs)]
        pulls = self.pulls
        if pulls.found or pulls.missed:
            self.pulls_found.add(pulls.found, now_ms)
            self.pulls_missed.add(pulls.missed, now_ms)
            pulls.found = pulls.missed = 0
        return any(more)

    def of_topic(self, topic: str) -> Series | None:
        """Return what was stored in a topic, None if nothing was."""
        return self._puts.find(topic, self._clock.monotonic_ms())

    def of_group(self, topic: str, group: str) -> Series | None:
        """Return what a group was handed out of a topic, None if nothing was."""
        return self._gets.find((topic, group), self._clock.monotonic_ms())

    def of_back(self, topic: str, group: str) -> Series | None:
        """Return what a group gave back of a topic, None if nothing was."""
        return self._backs.find((topic, group), self._clock.monotonic_ms())

    def __len__(self) -> int:
        return max(len(self._puts), len(self._gets), len(self._backs))

    def _today(self) -> int:
        return self._clock.local(self._clock.wall_ms()).tm_yday
