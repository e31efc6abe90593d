"""Retention: which segments of the log may go, and what a full disk forbids. Pure policy.

Whole segments go, the oldest first, never the last one, and never one that reaches beyond what the
caller says is covered (by tables, queues and snapshot on disk). They go by age in the hours of
``deleteWhen``, by age at once when the disk is fuller than ``diskMaxUsedSpaceRatio``, whatever
their age above ``diskSpaceCleanForciblyRatio``, and by age at once when somebody asked.

Age is counted from when a segment was *closed*: the store timestamp of the first message behind it.
RocketMQ takes the file's time of last change, which is the same moment (it ends a file when the
next message does not fit) until somebody copies the file. A stamp that lies in the future is not
old. It knows neither files nor clocks; times are milliseconds, positions bytes of the log.
Source: spec/disk.md 5.8; RocketMQ DefaultMessageStore.CleanCommitLogService, MappedFileQueue.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ledgermq.runtime.errors import FatalError

HOUR_MS: Final = 3_600_000
HOURS_OF_A_DAY: Final = 24
DISK_RATIO_MIN: Final = 0.3
MANUAL_ROUNDS: Final = 20
"""Rounds that look for expired segments at any hour after a request."""
JUMP_MS: Final = HOUR_MS
"""A wall clock that moved so far ahead of the monotonic one has jumped."""
START_AHEAD_MS: Final = 24 * HOUR_MS
"""A clock that is so far ahead of the log at a start may be wrong, or the log was silent."""
DISTRUST_MS: Final = HOUR_MS
"""For so long after a jump nothing goes by age: whoever set the clock may set it back."""
_RATIO: Final = re.compile(r"[0-9]{1,2}(\.[0-9]+)?\Z", re.ASCII)


class Level(IntEnum):
    """How full the disk is; each level includes what the lower ones do."""

    OK = 0
    HIGH = 1
    """Expired segments go now, at any hour."""
    FORCED = 2
    """Segments go whatever their age, if ``cleanFileForciblyEnable`` says so."""
    FULL = 3
    """Messages are refused, reads are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """Settings of retention; ratios are used parts of a disk, 0..1."""

    interval_ms: int = 10_000
    """``cleanResourceInterval``: how often to look; 0: never."""
    reserved_ms: int = 72 * HOUR_MS
    """``fileReservedTime``: how long a closed segment is kept."""
    hours: tuple[int, ...] = (4,)
    """``deleteWhen``: local hours in which expired segments go."""
    high_ratio: float = 0.75
    """``diskMaxUsedSpaceRatio``."""
    forced_ratio: float = 0.85
    """``diskSpaceCleanForciblyRatio``."""
    full_ratio: float = 0.90
    """``diskSpaceWarningLevelRatio``."""
    cleans_forcibly: bool = True
    """``cleanFileForciblyEnable``."""
    files_per_round: int = 10
    """``deleteFileBatchMax``."""

    def __post_init__(self) -> None:
        """Check the relations between the fields; raises `ValueError`."""
        checks = (
            (self.reserved_ms > 0, "reserved_ms must be positive"),
            (self.files_per_round > 0, "files_per_round must be positive"),
            (all(0 <= hour < 24 for hour in self.hours), "hours are 0..23"),
            (0 < self.high_ratio <= 1, "high_ratio must be within 0..1"),
            (
                0 < self.forced_ratio <= self.full_ratio <= 1,
                "forced_ratio must not be above full_ratio, both within 0..1",
            ),
        )
        for holds, problem in checks:
            if not holds:
                raise ValueError(problem)


class Segment(NamedTuple):
    """A piece of the log that can only go as a whole."""

    start: int
    end: int
    closed_ms: int | None
    """Store timestamp of the first message behind it; None: nothing is known there yet."""


class Situation(NamedTuple):
    """What a round finds."""

    now_ms: int
    """Wall clock."""
    hour: int
    """The same as the hour of a local day."""
    level: Level
    asked: bool = False
    """Whether somebody asked for this round."""
    clock_is_sound: bool = True
    """Whether the wall clock may be believed, see `ClockWatch`."""


def next_level(level: Level, used: float, config: RetentionConfig) -> Level:
    """Return the level of a disk of which the part ``used`` is used, after ``level``.

    A full disk stays one until it is below the forced level: or messages would come and go with
    each file.
    """
    if used > config.full_ratio or (level is Level.FULL and used > config.forced_ratio):
        return Level.FULL
    if used > config.forced_ratio:
        return Level.FORCED
    return Level.HIGH if used > config.high_ratio else Level.OK


def is_due(situation: Situation, config: RetentionConfig) -> bool:
    """Return whether this round may delete anything."""
    return (
        situation.hour in config.hours or situation.level >= Level.HIGH or situation.asked
    ) and (situation.clock_is_sound or situation.asked or _is_forced(situation, config))


def expired_before(
    segments: Sequence[Segment], covered: int, situation: Situation, config: RetentionConfig
) -> int | None:
    """Return where the log should begin after this round; None if it stays as it is.

    Args:
        segments: all of them, in order and without a gap.
        covered: position before which everything may go as far as the rest of the store goes.
        situation: time, hour and disk.
        config: the settings.
    """
    if not is_due(situation, config):
        return None
    forced = _is_forced(situation, config)
    oldest_kept_ms = situation.now_ms - config.reserved_ms
    begin = None
    closed = _closing_times(segments, situation.now_ms)
    for segment, closed_ms in zip(segments[:-1][: config.files_per_round], closed, strict=False):
        is_expired = forced or (closed_ms is not None and closed_ms <= oldest_kept_ms)
        if not is_expired or segment.end > covered:
            break
        begin = segment.end
    return begin


def _closing_times(segments: Sequence[Segment], now_ms: int) -> list[int | None]:
    """Return when each was closed.

    What was closed in the future was closed by a wrong clock: before the next one whose time can be
    true. As long as there is none, it is not old.
    """
    found: list[int | None] = []
    behind_ms: int | None = None
    for segment in reversed(segments):
        closed_ms = segment.closed_ms
        if closed_ms is not None:
            if closed_ms <= now_ms or behind_ms is None:
                behind_ms = closed_ms
            closed_ms = behind_ms
        found.append(closed_ms)
    return found[::-1]


def last_start(starts: Iterable[int], covered: int) -> int | None:
    """Return the last of ``starts``, in order, up to which everything is covered."""
    return max((start for start in starts if start <= covered), default=None)


def _is_forced(situation: Situation, config: RetentionConfig) -> bool:
    return config.cleans_forcibly and situation.level >= Level.FORCED


class ClockWatch:
    """Compares the wall clock with the monotonic one: a clock that jumps ahead ages everything.

    A jump back makes nothing older, and needs no care.
    """

    def __init__(self) -> None:
        self._ahead_ms: int | None = None
        self._sound_at_ms: int | None = None

    def is_sound(self, wall_ms: int, monotonic_ms: int, newest_ms: int | None = None) -> bool:
        """Return whether the wall clock may be believed; to be asked in every round.

        ``newest_ms``: the newest stamp of a closed segment, None for none. There is nothing else
        to hold the clock of a process against that has just begun.
        """
        ahead_ms = wall_ms - monotonic_ms
        if self._ahead_ms is None:
            has_leapt = newest_ms is not None and wall_ms - newest_ms > START_AHEAD_MS
        else:
            has_leapt = ahead_ms - self._ahead_ms >= JUMP_MS
        if has_leapt:
            self._sound_at_ms = monotonic_ms + DISTRUST_MS
        self._ahead_ms = ahead_ms
        return self._sound_at_ms is None or monotonic_ms >= self._sound_at_ms


def hours_of(name: str, text: str) -> tuple[int, ...]:
    """Return the hours of ``04;16``; an empty text means no hours.

    Errors: `FatalError`.
    """
    hours = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        if not (part.isascii() and part.isdigit() and int(part) < HOURS_OF_A_DAY):
            raise FatalError(f"{name}={text}: hours 00 to 23, separated by ; are expected")
        hours.append(int(part))
    return tuple(hours)


def disk_ratio(name: str, text: str) -> float:
    """Return a part of a disk: RocketMQ 4.9 takes 0.85 (a system property), 5.x takes 85.

    Errors: `FatalError`.
    """
    if _RATIO.match(text):
        number = float(text)
        ratio = number if number <= 1 else number / 100
        if DISK_RATIO_MIN <= ratio < 1:
            return ratio
    raise FatalError(
        f"{name}={text}: a part from 0.30 to 0.99 or percent from 30 to 99 is expected"
    )
