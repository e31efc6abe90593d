"""The rounds of retention: what is told, how often, and what stays as it is."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from broker.retention.retained_log import ALL_DUE, Dropped, SegmentAges
from broker.retention.service import DiskUse, Retention
from broker.retention_policy import HOUR_MS, MANUAL_ROUNDS, RetentionConfig, Segment
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.message import MessageExt, encode_record
from ledgermq.runtime.disk import RealDisk, Space

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

NOW = 1_000_000 * HOUR_MS
OLD = NOW - 100 * HOUR_MS


def finish(work: Coroutine[None, None, dict[str, Any]]) -> dict[str, Any]:
    """Run what never waits; no loop is needed."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    report: dict[str, Any] = end.value.value
    return report


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW

    def wall_ms(self) -> int:
        return self.now_ms

    def local(self, wall_ms: int) -> time.struct_time:
        return time.gmtime(wall_ms / 1000)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000


class Log:
    """Segments of 100 bytes, all old but the last; ``held`` bytes of the first may not go."""

    def __init__(self, count: int) -> None:
        self.parts = [Segment(n * 100, n * 100 + 100, OLD) for n in range(count - 1)]
        self.parts.append(Segment(count * 100 - 100, count * 100, NOW))
        self.held_from = 1 << 60

    def segments(self) -> list[Segment]:
        return self.parts

    async def drop_before(self, position: int) -> Dropped:
        begin = min(position, self.held_from)
        gone = [part for part in self.parts if part.end <= begin]
        self.parts = self.parts[len(gone) :]
        reason = ALL_DUE if begin == position else "the queues on disk cover no more"
        return Dropped(100 * len(gone), reason)


class World:
    def __init__(self, segments: int = 3, **settings: Any) -> None:
        self.used: float | None = 0.5
        self.refused: list[bool] = []
        self.log = Log(segments)
        self.clock = Clock()
        self.retention = Retention(
            RetentionConfig(**{"hours": (), **settings}),
            self.log,
            disk_used=lambda: self.used,
            clock=self.clock,
            refuse=self.refused.append,
        )

    def round(self) -> dict[str, Any]:
        self.clock.now_ms += 10_000
        return finish(self.retention.round())


def test_nothing_is_due_on_an_empty_disk_in_another_hour() -> None:
    report = World().round()
    assert (report["dropped_bytes"], report["reason"]) == (0, "nothing is due")


def test_a_request_holds_for_twenty_rounds() -> None:
    world = World(segments=31, files_per_round=1)
    world.retention.ask()
    dropped = [world.round()["dropped_bytes"] for _ in range(MANUAL_ROUNDS + 2)]
    assert dropped == [100] * MANUAL_ROUNDS + [0, 0]
    assert world.retention.status()["dropped_bytes_total"] == 100 * MANUAL_ROUNDS


def test_a_round_that_may_open_no_more_files_is_left_to_the_next() -> None:
    world = World(interval_ms=1, hours=tuple(range(24)))
    segments, failures = world.log.segments, [errno.EMFILE, errno.ENFILE, errno.EIO]

    def look() -> list[Segment]:
        if failures:
            raise OSError(failures.pop(0), "Too many open files")
        return segments()

    world.log.segments = look  # type: ignore[method-assign]
    with pytest.raises(OSError, match="open files"):
        asyncio.run(asyncio.wait_for(world.retention.run(), 60))
    assert not failures, "two were left to the next round, and a bad disk to nobody"


def test_levels_and_reasons_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.log.held_from = 0
    with caplog.at_level(logging.INFO):
        for used in (0.8, 0.8, 0.95, 0.95, 0.88, 0.5, 0.5):
            world.used = used
            world.round()
    told = [record.getMessage().split(" used=")[0] for record in caplog.records]
    assert told == [
        "event=disk_level level=HIGH was=OK",
        "event=nothing_expires level=HIGH reason=the queues on disk cover no more",
        "event=disk_level level=FULL was=HIGH",
        "event=disk_level level=OK was=FULL",
    ]
    assert world.refused == [True, False]


def test_a_disk_that_does_not_tell_keeps_its_level() -> None:
    world = World()
    world.used = 0.95
    world.round()
    world.used = None
    assert world.round()["disk_level"] == "FULL"
    assert world.refused == [True]


def test_a_clock_that_jumps_ahead_is_told_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    class Jumping(Clock):
        ahead_ms = 0

        def wall_ms(self) -> int:
            return self.now_ms + self.ahead_ms

    world = World(segments=3, hours=tuple(range(24)))
    clock, dropped = Jumping(), []
    world.retention._clock = clock
    world.log.parts = [part._replace(closed_ms=NOW) for part in world.log.parts]
    with caplog.at_level(logging.INFO):
        for minutes in (0, 1, 2, 50, 9):
            clock.now_ms += minutes * 60_000
            clock.ahead_ms = 200 * HOUR_MS if minutes else 0
            dropped.append(finish(world.retention.round())["dropped_bytes"])
    assert dropped == [0, 0, 0, 0, 200], "an hour later the clock is believed"
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "event=clock_jumped_ahead retention_by_age=waits",
        "event=clock_jumped_ahead retention_by_age=on",
        "event=expired bytes=200 level=OK",
    ]


def test_the_fullest_partition_counts_and_trouble_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class TwoDisks(RealDisk):
        def space(self, path: str) -> Space:
            if path == "gone":
                raise OSError(2, "no such file or directory", path)
            return Space({"a": 5, "b": 2}[path], 10)

    assert DiskUse(TwoDisks(), ("a", "b")).ratio() == pytest.approx(0.8)
    assert DiskUse(TwoDisks(), ("a", "b")).fullest() == Space(2, 10)
    use = DiskUse(TwoDisks(), ("a", "gone"))
    assert [use.ratio(), use.fullest()] == [None, None]
    assert caplog.text.count("event=disk_use_unknown") == 1


class Bodies:
    """A log whose first messages of segments are known by their position."""

    committed_position = 1_000

    def __init__(self, stamps: dict[int, int | None]) -> None:
        self.stamps = stamps
        self.reads = 0

    def walk(self, first: int, end: int, limit: int) -> Iterator[tuple[int, memoryview, int, int]]:
        assert (end, limit) == (self.committed_position, 1)
        self.reads += 1
        stamp = self.stamps[first]
        if stamp is None:
            raise DamagedEntry(first, "damaged")
        host = bytes(8)
        record = encode_record(
            MessageExt("t", 0, 0, 0, 0, first, 1, host, stamp, host, 0, 0, b"b", b"")
        )
        yield first, memoryview(bytes(7) + record), 7, len(record)


def test_a_segment_is_as_old_as_the_message_behind_it() -> None:
    log = Bodies({0: 10, 100: 20, 200: None, 300: 40})
    ages = SegmentAges(log)
    heads = list(log.stamps)
    assert ages.segments(heads, 350) == [
        Segment(0, 100, 20),
        Segment(100, 200, 40),  # what is damaged says nothing: the next one is younger
        Segment(200, 300, 40),
        Segment(300, 350, None),
    ]
    log.stamps[200] = 30
    assert ages.segments(heads[1:], 360)[0] == Segment(100, 200, 30)
    assert log.reads == 5, "each is read once"
    assert ages.segments([], 0) == []
