"""Retention in a running broker: looks at disk and log every few seconds, and when it is asked.

What goes is decided by `broker.retention_policy`; here are the clock, the lock and the log lines:
one for each change of the disk's level, one for each round that dropped something, and one for each
new reason why nothing may go. A disk above the highest level makes the broker refuse messages, not
reads, nor its own records: offsets are small, and the consumers who make room commit them. Every
replica of a group does this for itself. Source: spec/disk.md 5.8; RocketMQ
DefaultMessageStore.CleanCommitLogService.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from broker.retention_policy import (
    MANUAL_ROUNDS,
    ClockWatch,
    Level,
    RetentionConfig,
    Situation,
    expired_before,
    is_due,
    next_level,
)
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.disk import NO_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.retention.retained_log import RetainedLog
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk, Space

_log = logging.getLogger(__name__)

SETTLE_S: Final = 5.0
_NOTHING_EXPIRED: Final = "no closed segment is old enough"


class DiskUse:
    """The room on the fullest of the partitions that a store lies on."""

    def __init__(self, disk: Disk, paths: Sequence[str]) -> None:
        self._disk = disk
        self._paths = paths
        self._failed = False

    def ratio(self) -> float | None:
        """Return its used part, 0..1; None when the system does not tell."""
        space = self.fullest()
        return None if space is None else 1.0 - space.free_ratio

    def fullest(self) -> Space | None:
        """Return the room on that partition, None when the system does not tell.

        One log line when that begins.
        """
        try:
            spaces = [self._disk.space(path) for path in self._paths]
        except OSError as error:
            if not self._failed:
                _log.warning("event=disk_use_unknown error=%s", error)
            self._failed = True
            return None
        self._failed = False
        return min(spaces, key=lambda space: space.free_ratio)


class Retention:
    """Keeps one broker's log within its age and its disk.

    Args:
        config: what may go when.
        log: from which it goes.
        disk_used: the used part of the disk, None when unknown.
        clock: wall and monotonic time.
        refuse: told whether messages are to be refused, when that changes.
    """

    def __init__(
        self,
        config: RetentionConfig,
        log: RetainedLog,
        *,
        disk_used: Callable[[], float | None],
        clock: Clock,
        refuse: Callable[[bool], None],
    ) -> None:
        self._config = config
        self._retained = log
        self._disk_used = disk_used
        self._clock = clock
        self._refuse = refuse
        self._watch = ClockWatch()
        self._clock_is_sound = True
        self._lock = asyncio.Lock()
        self._used = 0.0
        self._level = Level.OK
        self._rounds_asked = 0
        self._dropped_bytes = 0
        self._reason = ""

    async def run(self) -> None:
        """Do a round every `RetentionConfig.interval_ms`, until cancelled.

        One that may open no more files is left to the next one.
        """
        while True:
            await asyncio.sleep(self._config.interval_ms / 1000)
            try:
                await self.whole_round()
            except OSError as error:
                if error.errno not in NO_FILES:
                    raise
                _log.warning("event=nothing_expires level=%s reason='%s'", self._level.name, error)

    async def whole_round(self) -> dict[str, Any]:
        """Do a `round` that goes on when the caller is cancelled; `settle` waits for it."""
        return await asyncio.shield(asyncio.ensure_future(self.round()))

    async def settle(self) -> None:
        """Wait for a round under way, for so long as is fit when a process ends."""
        if not self._lock.locked():
            return
        try:
            async with timeout(SETTLE_S), self._lock:
                return
        except TimeoutError:
            _log.warning("event=retention_unfinished waited_s=%d", SETTLE_S)

    def ask(self) -> None:
        """Let the next rounds look for expired segments at any hour."""
        self._rounds_asked = MANUAL_ROUNDS

    async def round(self) -> dict[str, Any]:
        """Look at the disk and drop what may go; return what went, and what forbade more."""
        async with self._lock:
            situation = self._look()
            position, reason, dropped = None, "nothing is due", 0
            if is_due(situation, self._config):
                segments = self._retained.segments()
                end = segments[-1].end if segments else 0
                position = expired_before(segments, end, situation, self._config)
                reason = _NOTHING_EXPIRED
            if position is not None:
                dropped, reason = await self._retained.drop_before(position)
            self._note(position, dropped, reason)
            return {"dropped_bytes": dropped, "reason": reason, **self.status()}

    def status(self) -> dict[str, Any]:
        """Return what an administrator asks, in JSON types."""
        return {
            "disk_used": round(self._used, 4),
            "disk_level": self._level.name,
            "refuses_messages": self._level is Level.FULL,
            "rounds_asked": self._rounds_asked,
            "dropped_bytes_total": self._dropped_bytes,
        }

    def _look(self) -> Situation:
        used = self._disk_used()
        if used is not None:
            self._used = used
            self._set_level(next_level(self._level, used, self._config))
        now_ms = self._clock.wall_ms()
        stamps = [one.closed_ms for one in self._retained.segments() if one.closed_ms is not None]
        newest_ms = max(stamps, default=None)
        is_sound = self._watch.is_sound(now_ms, self._clock.monotonic_ms(), newest_ms)
        if is_sound != self._clock_is_sound:
            self._clock_is_sound = is_sound
            _log.warning(
                "event=clock_jumped_ahead retention_by_age=%s", "on" if is_sound else "waits"
            )
        asked = self._rounds_asked > 0
        self._rounds_asked -= asked
        return Situation(now_ms, self._clock.local(now_ms).tm_hour, self._level, asked, is_sound)

    def _set_level(self, level: Level) -> None:
        before, self._level = self._level, level
        if level is before:
            return
        _log.log(
            logging.WARNING if level > before else logging.INFO,
            "event=disk_level level=%s was=%s used=%.3f refuses_messages=%s",
            level.name, before.name, self._used, level is Level.FULL,
        )  # fmt: skip
        if Level.FULL in (level, before):
            self._refuse(level is Level.FULL)

    def _note(self, position: int | None, dropped: int, reason: str) -> None:
        """Write down what a round did: what went, or why nothing goes although something should."""
        self._dropped_bytes += dropped
        if dropped:
            _log.info("event=expired bytes=%d level=%s", dropped, self._level.name)
        is_held = not dropped and (position is not None or self._level >= Level.HIGH)
        held_by = reason if is_held else ""
        if held_by not in {"", self._reason}:
            _log.warning("event=nothing_expires level=%s reason=%s", self._level.name, held_by)
        self._reason = held_by
