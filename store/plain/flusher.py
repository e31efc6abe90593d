"""Syncs of a plain log: when one is due, and how far the log is durable.

It knows neither entries nor who waits.
Source: spec/disk.md 5.2; RocketMQ CommitLog.FlushRealTimeService, GroupCommitService.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from dledger.segments.row import Segments
from dledger.segments.sync import GroupSync, SyncWorker
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.plain.config import PlainLogConfig

PAGE_BITS: Final = 12


class Sync(NamedTuple):
    """One sync, and how far the log is durable once it has returned."""

    files: Mapping[int, File]
    position: int
    timestamp: int


class Flusher:
    """Syncs what was written."""

    def __init__(
        self,
        config: PlainLogConfig,
        clock: Clock,
        segments: Segments,
        position: int,
        last_stored_ms: Callable[[], int],
    ) -> None:
        """Take that everything up to ``position`` is synced.

        ``last_stored_ms`` returns when the last entry written was stored.
        """
        self._config = config
        self._clock = clock
        self._segments = segments
        self._last_stored_ms = last_stored_ms
        self._syncs: GroupSync[Sync] = GroupSync(
            take=self._take, sync=lambda sync: sync_files(segments, sync.files), end=self._end
        )
        self._last_look_ms = 0
        self._last_thorough_ms = 0
        self.written_position = position
        """Position behind the last entry written; whoever writes sets it."""
        self.synced_position = position
        """Entries that end here or before survive a loss of power."""
        self.synced_timestamp = last_stored_ms()
        """When the last of them was stored (ms), 0 if there is none."""

    def start(self, worker: SyncWorker, on_synced: Callable[[], None]) -> None:
        """Begin to work; ``on_synced`` is called in the loop when a sync has returned."""
        self._syncs.start(worker, partial(self._after_sync, on_synced))
        self._last_look_ms = self._last_thorough_ms = self._clock.monotonic_ms()

    def pass_time(self, now_ms: int) -> None:
        """Sync what was written, if it is enough or old enough (ASYNC_FLUSH)."""
        config = self._config
        if now_ms - self._last_look_ms < config.flush_interval_ms:
            return
        self._last_look_ms = now_ms
        pages = (self.written_position >> PAGE_BITS) - (self.synced_position >> PAGE_BITS)
        is_thorough = now_ms - self._last_thorough_ms >= config.flush_thorough_ms
        if is_thorough:
            self._last_thorough_ms = now_ms
        if is_thorough or pages >= config.flush_pages_min:
            self.begin()

    def begin(self) -> None:
        """Sync everything written, unless a sync is under way or there is nothing."""
        self._syncs.begin()

    def save_all(self) -> None:
        """Sync everything in the calling thread; the worker must be drained. Errors: `FatalError`.

        A sync that was under way then has returned, whether or not the loop has heard of it.
        """
        self._syncs.save_all()

    def _take(self) -> Sync | None:
        if self.written_position == self.synced_position:
            return None
        return Sync(self._segments.take_dirty(), self.written_position, self._last_stored_ms())

    def _end(self, sync: Sync) -> None:
        self.synced_position, self.synced_timestamp = sync.position, sync.timestamp

    def _after_sync(self, on_synced: Callable[[], None], end: Callable[[], None]) -> None:
        end()
        self._segments.make_room()
        on_synced()


def sync_files(segments: Segments, files: Mapping[int, File]) -> None:
    """Sync files, in a thread. Errors: `FatalError`: nothing is known of what is on disk."""
    try:
        segments.sync(files)
    except OSError as error:
        raise FatalError(f"the commit log cannot sync: {error}", EXIT_ENVIRONMENT) from error
