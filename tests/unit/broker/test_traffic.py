"""Counts of traffic: windows, totals of days, and names that make room."""

from __future__ import annotations

import pytest

from broker.stats import counts
from broker.stats.counts import NAMES_PER_FOLD, Series, TrafficCounts
from mutants.patches import BY_TESTS
from mutants.planting import planted
from tests.unit.broker.fakes import FakeClock, smaller

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def sums(series: Series, clock: FakeClock) -> list[int]:
    return [rate.sum for rate in series.rates(clock.monotonic_ms())]


def test_a_message_leaves_the_minute_the_hour_and_the_day() -> None:
    clock = FakeClock(0)
    series = Series(0)
    series.add(3, 0)
    assert sums(series, clock) == [3, 3, 3]
    clock.now_ms = 2 * MINUTE_MS
    assert sums(series, clock) == [0, 3, 3]
    series.add(1, clock.now_ms)
    assert sums(series, clock) == [1, 4, 4]
    clock.now_ms = 2 * HOUR_MS
    assert sums(series, clock) == [0, 0, 4]
    clock.now_ms = 2 * DAY_MS
    assert sums(series, clock) == [0, 0, 0]
    assert series.total == 4


def test_a_rate_is_of_the_time_that_was_counted() -> None:
    series = Series(0)
    series.add(100, 10_000)
    assert series.rates(20_000)[0].per_second == pytest.approx(5)
    assert series.rates(1)[0].per_second == pytest.approx(100), "a second, at least"
    assert series.recent(59_000) == pytest.approx((0, 100 / 59, 100 / 59))


def test_what_is_new_is_counted_once() -> None:
    clock = FakeClock()
    traffic = TrafficCounts(clock)
    traffic.puts["T"] += 2
    traffic.gets["T", "g"] += 1
    for _ in range(2):
        series = traffic.of_topic("T")
        assert series is not None
        assert sums(series, clock) == [2, 2, 2]
    assert traffic.of_group("T", "g") is not None
    assert traffic.of_group("g", "T") is None
    assert traffic.of_topic("U") is None
    assert (traffic.broker_puts.total, traffic.broker_gets.total) == (2, 1)
    with planted(BY_TESTS["traffic-counted-again"]):
        traffic.puts["T"] += 1
        traffic.fold()
        traffic.fold()
        assert traffic.broker_puts.total > 3


def test_midnight_is_remembered_for_two_days() -> None:
    clock = FakeClock()
    traffic = TrafficCounts(clock)
    for _ in range(3):
        traffic.puts["T"] += 10
        traffic.fold()
        clock.now_ms += DAY_MS
    traffic.fold()
    assert (traffic.put_days.yesterday_morning, traffic.put_days.today_morning) == (20, 30)


def test_the_name_of_longest_silence_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "TRAFFIC_NAMES_MAX", smaller(counts.TRAFFIC_NAMES_MAX, 2))
    traffic = TrafficCounts(FakeClock())
    for topic in ("A", "B", "A", "C"):
        traffic.puts[topic] += 1
        traffic.fold()
    assert traffic.of_topic("B") is None
    assert traffic.of_topic("A") is not None
    assert len(traffic) == 2
    assert traffic.broker_puts.total == 4


def many_names(count: int) -> TrafficCounts:
    traffic = TrafficCounts(FakeClock())
    for number in range(count):
        traffic.puts[f"T{number}"] += 2
    return traffic


def test_many_names_are_counted_in_many_turns() -> None:
    traffic = many_names(3 * NAMES_PER_FOLD)
    assert traffic.fold()
    assert len(traffic) == NAMES_PER_FOLD
    traffic.puts["new"] += 1
    assert [traffic.fold() for _ in range(3)] == [True, False, False]
    assert len(traffic) == 3 * NAMES_PER_FOLD + 1
    assert traffic.broker_puts.total == 6 * NAMES_PER_FOLD + 1


def test_the_planted_bug_counts_all_of_them_at_once() -> None:
    traffic = many_names(3 * NAMES_PER_FOLD)
    with planted(BY_TESTS["all-names-in-one-turn"]):
        assert not traffic.fold()


def test_who_asks_for_a_name_waits_for_no_other() -> None:
    traffic, clock = many_names(3 * NAMES_PER_FOLD), FakeClock()
    assert traffic.fold()
    for number in range(3 * NAMES_PER_FOLD):
        traffic.puts[f"T{number}"] += 1
        series = traffic.of_topic(f"T{number}")
        assert series is not None
        assert sums(series, clock) == [3, 3, 3]
    assert not traffic.fold(), "nothing is left"
    assert traffic.broker_puts.total == 9 * NAMES_PER_FOLD
