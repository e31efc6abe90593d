"""What retention lets go: by table, and for any log, disk and clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.retention_policy import (
    DISTRUST_MS,
    HOUR_MS,
    START_AHEAD_MS,
    ClockWatch,
    Level,
    RetentionConfig,
    Segment,
    Situation,
    expired_before,
    is_due,
    last_start,
    next_level,
)
from mutants.patches import BY_TESTS
from mutants.planting import planted

CONFIG = RetentionConfig()
NOW = 1_000 * HOUR_MS
OLD, YOUNG, FUTURE = NOW - 73 * HOUR_MS, NOW - 71 * HOUR_MS, NOW + 99 * HOUR_MS
EVERYTHING = 1 << 62
NIGHT, DAY = 4, 12


def log(*closed_ms: int | None) -> list[Segment]:
    """Segments of 100 bytes; the last one is open."""
    return [
        Segment(100 * number, 100 * number + 100, stamp)
        for number, stamp in enumerate((*closed_ms, None))
    ]


def at(hour: int = DAY, level: Level = Level.OK, *, asked: bool = False) -> Situation:
    return Situation(NOW, hour, level, asked)


@pytest.mark.parametrize(
    ("segments", "situation", "begin"),
    [
        (log(OLD, OLD, YOUNG), at(NIGHT), 200),
        (log(OLD, OLD, YOUNG), at(DAY), None),
        (log(OLD, OLD, YOUNG), at(DAY, Level.HIGH), 200),
        (log(OLD, OLD, YOUNG), at(DAY, asked=True), 200),
        (log(OLD, OLD, YOUNG), at(DAY, Level.FORCED), 300),
        (log(OLD, OLD, YOUNG), at(DAY, Level.FULL), 300),
        (log(YOUNG, YOUNG), at(NIGHT, Level.HIGH), None),
        (log(NOW - 72 * HOUR_MS), at(NIGHT), 100),
        (log(NOW - 72 * HOUR_MS + 1), at(NIGHT), None),
        (log(), at(NIGHT, Level.FULL, asked=True), None),
        ([], at(NIGHT, Level.FULL, asked=True), None),
        # Never in the middle: what stands in front of it keeps it.
        (log(YOUNG, OLD), at(NIGHT), None),
        (log(None, OLD), at(NIGHT), None),
        # A clock that was ahead for a while: its messages do not count as old by themselves, but
        # they were there before what a right clock has stamped.
        (log(FUTURE), at(NIGHT), None),
        (log(FUTURE, YOUNG), at(NIGHT), None),
        (log(FUTURE, OLD), at(NIGHT), 200),
        (log(OLD, FUTURE, FUTURE, YOUNG), at(NIGHT), 100),
        (log(FUTURE, OLD), at(DAY, Level.FORCED), 200),
        (log(*[OLD] * 30), at(NIGHT), 1_000),
    ],
)
def test_table(segments: list[Segment], situation: Situation, begin: int | None) -> None:
    assert expired_before(segments, EVERYTHING, situation, CONFIG) == begin


def test_nothing_goes_beyond_what_is_covered() -> None:
    segments = log(OLD, OLD, OLD)
    for covered, begin in ((0, None), (99, None), (100, 100), (299, 200), (300, 300)):
        assert expired_before(segments, covered, at(NIGHT), CONFIG) == begin
        assert expired_before(segments, covered, at(DAY, Level.FULL), CONFIG) == begin


def test_forced_cleaning_can_be_switched_off() -> None:
    config = RetentionConfig(cleans_forcibly=False)
    assert expired_before(log(YOUNG), EVERYTHING, at(DAY, Level.FULL), config) is None
    assert expired_before(log(OLD), EVERYTHING, at(DAY, Level.FULL), config) == 100


def test_a_clock_that_jumped_ahead_is_believed_later() -> None:
    watch = ClockWatch()
    assert watch.is_sound(NOW, 0)
    assert watch.is_sound(NOW + 10_000, 10_000)
    assert watch.is_sound(NOW - 50 * HOUR_MS, 20_000), "back: nothing gets older by it"
    assert not watch.is_sound(NOW, 30_000), "ahead"
    assert not watch.is_sound(NOW + DISTRUST_MS - 10_001, 30_000 + DISTRUST_MS - 1)
    assert watch.is_sound(NOW + DISTRUST_MS, 30_000 + DISTRUST_MS)


def test_a_clock_that_is_not_believed_lets_nothing_go_by_age() -> None:
    def begin(situation: Situation) -> int | None:
        distrusted = situation._replace(clock_is_sound=False)
        return expired_before(log(OLD, YOUNG), EVERYTHING, distrusted, CONFIG)

    assert begin(at(NIGHT)) is None
    assert begin(at(DAY, Level.HIGH)) is None
    assert begin(at(DAY, Level.FORCED)) == 200
    assert begin(at(DAY, asked=True)) == 100, "who asks has looked at the clock"


def test_levels_rise_at_once_and_a_full_disk_has_to_become_emptier() -> None:
    level, seen = Level.OK, []
    for used in (0.75, 0.76, 0.85, 0.86, 0.90, 0.91, 0.90, 0.86, 0.85, 0.5):
        level = next_level(level, used, CONFIG)
        seen.append(level.name)
    assert seen == [
        "OK", "HIGH", "HIGH", "FORCED", "FORCED", "FULL", "FULL", "FULL", "HIGH", "OK",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"reserved_ms": 0},
        {"files_per_round": 0},
        {"hours": (4, 24)},
        {"forced_ratio": 0.95},
        {"high_ratio": 0.0},
        {"full_ratio": 1.1},
    ],
)
def test_settings_that_contradict_themselves_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|hours"):
        RetentionConfig(**wrong)  # type: ignore[arg-type]  # the test is about wrong values


def test_the_last_covered_start_is_found() -> None:
    assert last_start([0, 100, 200], 199) == 100
    assert last_start([0, 100, 200], 200) == 200
    assert last_start([100], 99) is None


stamps = st.one_of(st.none(), st.integers(NOW - 200 * HOUR_MS, NOW + 10 * HOUR_MS))
logs = st.lists(stamps, max_size=40).map(lambda closed: log(*closed))
situations = st.builds(
    Situation,
    now_ms=st.integers(NOW - 100 * HOUR_MS, NOW + 100 * HOUR_MS),
    hour=st.integers(0, 23),
    level=st.sampled_from(Level),
    asked=st.booleans(),
    clock_is_sound=st.booleans(),
)
configs = st.builds(
    RetentionConfig,
    reserved_ms=st.integers(1, 100 * HOUR_MS),
    hours=st.lists(st.integers(0, 23), max_size=3).map(tuple),
    cleans_forcibly=st.booleans(),
    files_per_round=st.integers(1, 12),
)


@given(logs, st.integers(0, 4_200), situations, configs)
def test_what_goes_is_whole_covered_bounded_and_old_or_forced(
    segments: list[Segment], covered: int, situation: Situation, config: RetentionConfig
) -> None:
    begin = expired_before(segments, covered, situation, config)
    if begin is None:
        return
    gone = [segment for segment in segments if segment.start < begin]
    assert gone[-1].end == begin, "whole segments"
    assert begin <= covered
    assert segments[-1].start >= begin, "the last one stays"
    assert len(gone) <= config.files_per_round
    assert is_due(situation, config)
    forced = config.cleans_forcibly and situation.level >= Level.FORCED
    oldest_kept_ms = situation.now_ms - config.reserved_ms
    for number, segment in enumerate(gone):
        if forced:
            break
        assert segment.closed_ms is not None
        behind = [one.closed_ms for one in segments[number:] if one.closed_ms is not None]
        believed = [stamp for stamp in behind if stamp <= situation.now_ms]
        assert believed
        assert believed[0] <= oldest_kept_ms
        assert segment.closed_ms <= oldest_kept_ms or segment.closed_ms > situation.now_ms


def test_the_planted_bug_keeps_what_a_wrong_clock_has_closed() -> None:
    assert expired_before(log(FUTURE, OLD), EVERYTHING, at(NIGHT), CONFIG) == 200
    with planted(BY_TESTS["poisoned-segment-stays"]):
        assert expired_before(log(FUTURE, OLD), EVERYTHING, at(NIGHT), CONFIG) is None


@given(logs, situations, configs, st.integers(0, 4_200), st.integers(0, 4_200), st.integers(0, 9))
def test_more_coverage_time_or_use_never_lets_less_go(
    segments: list[Segment],
    situation: Situation,
    config: RetentionConfig,
    covered: int,
    more: int,
    hours: int,
) -> None:
    def begin(covered: int, situation: Situation) -> int:
        return expired_before(segments, covered, situation, config) or 0

    before = begin(covered, situation)
    assert begin(covered + more, situation) >= before
    assert begin(covered, situation._replace(now_ms=situation.now_ms + hours * HOUR_MS)) >= before
    fuller = situation._replace(level=Level(min(situation.level + 1, Level.FULL)))
    assert begin(covered, fuller) >= before
    assert begin(covered, situation._replace(asked=True)) >= before


@given(st.lists(st.floats(0, 1), max_size=30))
def test_levels_follow_the_disk(used: list[float]) -> None:
    level = Level.OK
    for part in used:
        before, level = level, next_level(level, part, CONFIG)
        assert (part > CONFIG.full_ratio) <= (level is Level.FULL)
        assert level is not Level.FULL or part > CONFIG.forced_ratio
        assert next_level(level, part, CONFIG) is level, "settled"
        assert part <= CONFIG.full_ratio or level >= before


def test_a_clock_that_is_ahead_of_the_log_at_a_start_is_not_believed_at_once():
    watch = ClockWatch()
    assert not watch.is_sound(NOW + START_AHEAD_MS + 1, 0, NOW)
    assert not watch.is_sound(NOW + START_AHEAD_MS + 1, DISTRUST_MS - 1, NOW)
    assert watch.is_sound(NOW + START_AHEAD_MS + 1 + DISTRUST_MS, DISTRUST_MS, NOW)
    assert ClockWatch().is_sound(NOW + START_AHEAD_MS, 0, NOW)
    assert ClockWatch().is_sound(NOW, 0, None)


def test_planted_trust_in_a_clock_at_a_start_is_found_here():
    with planted(BY_TESTS["a-clock-is-believed-at-a-start"]):
        assert ClockWatch().is_sound(NOW + START_AHEAD_MS + 1, 0, NOW)
