"""How fast a consumer pulls and consumes, by topic, over the last minute and hour.

Pure: whoever counts brings the time. Source: RocketMQ ConsumerStatsManager, StatsItem.
"""

from collections import deque
from typing import NamedTuple

SLOTS = 6
MINUTE_SLOT_MS = 10_000
HOUR_SLOT_MS = 600_000


class Sums(NamedTuple):
    """What was added over a while."""

    total: float
    times: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Return the total by time."""
        return self.total / self.seconds

    @property
    def mean(self) -> float:
        """Return the total by how often something was added."""
        return self.total / self.times if self.times else 0.0


class Window:
    """Sums over the last `SLOTS` slots of time."""

    __slots__ = ("_ended", "_slot", "_slot_ms", "_times", "_total")

    def __init__(self, slot_ms: int) -> None:
        self._slot_ms = slot_ms
        self._ended: deque[tuple[int, float, int]] = deque(maxlen=SLOTS - 1)
        self._slot = 0
        self._total = 0.0
        self._times = 0

    def add(self, now_ms: int, total: float) -> None:
        """Count ``total`` more."""
        slot = now_ms // self._slot_ms
        if slot != self._slot:
            if self._times:
                self._ended.append((self._slot, self._total, self._times))
            self._slot, self._total, self._times = slot, 0.0, 0
        self._total += total
        self._times += 1

    def sums(self, now_ms: int) -> Sums:
        """Return what was added lately; the time begins with the oldest slot, a second at least."""
        oldest = now_ms // self._slot_ms - SLOTS
        kept = [one for one in self._ended if one[0] > oldest]
        if self._times and self._slot > oldest:
            kept.append((self._slot, self._total, self._times))
        if not kept:
            return Sums(0.0, 0, 1.0)
        elapsed_ms = now_ms - kept[0][0] * self._slot_ms
        total, times = sum(one[1] for one in kept), sum(one[2] for one in kept)
        return Sums(total, times, max(elapsed_ms / 1000, 1.0))


class TopicFigures:
    """Of one topic; times are milliseconds, of a pull or of a call of the listener."""

    __slots__ = ("consume_ms", "failed", "failed_hour", "ok", "pull_ms", "pulled")

    def __init__(self) -> None:
        self.pull_ms = Window(MINUTE_SLOT_MS)
        self.pulled = Window(MINUTE_SLOT_MS)
        self.consume_ms = Window(MINUTE_SLOT_MS)
        self.ok = Window(MINUTE_SLOT_MS)
        self.failed = Window(MINUTE_SLOT_MS)
        self.failed_hour = Window(HOUR_SLOT_MS)


class Figures:
    """Of one consumer; there are as many topics as it subscribes to."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicFigures] = {}

    def of(self, topic: str) -> TopicFigures:
        """Return the figures of a topic."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicFigures()
        return found

    def on_pulled(self, topic: str, count: int, t_start_ns: int, t_end_ns: int) -> None:
        """Count the messages of a pull."""
        one, now_ms = self.of(topic), t_end_ns // 1_000_000
        one.pull_ms.add(now_ms, (t_end_ns - t_start_ns) / 1_000_000)
        one.pulled.add(now_ms, count)

    def on_consumed(
        self, topic: str, count: int, t_start_ns: int, t_end_ns: int, *, ok: bool
    ) -> None:
        """Count the messages of a call of the listener."""
        one, now_ms = self.of(topic), t_end_ns // 1_000_000
        one.consume_ms.add(now_ms, (t_end_ns - t_start_ns) / 1_000_000)
        if ok:
            one.ok.add(now_ms, count)
        else:
            one.failed.add(now_ms, count)
            one.failed_hour.add(now_ms, count)
