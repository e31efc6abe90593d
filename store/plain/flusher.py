"""Syncs of a plain log: when one is due, and how far the log is durable.

One sync is under way at a time, in a worker thread, and covers everything written before it began
(group commit). It knows neither entries nor who waits.
Source: spec/disk.md 5.2; RocketMQ CommitLog.FlushRealTimeService, GroupCommitService.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

from dledger.segments.row import Segments
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.plain.config import PlainLogConfig

PAGE_BITS: Final = 12


class SyncWorker(Protocol):
    """Runs pieces of work one after the other; see `dledger.worker.Worker`."""

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Run ``work`` in a thread, and ``then`` in the loop if it succeeded."""
        ...


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
        self._under_way: tuple[int, int] | None = None
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
        self._worker = worker
        self._on_synced = on_synced
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
        if self._under_way is not None or self.written_position == self.synced_position:
            return
        self._under_way = self.written_position, self._last_stored_ms()
        files = self._segments.take_dirty()
        self._worker.submit(partial(sync_files, self._segments, files), self._end)

    def _end(self) -> None:
        assert self._under_way is not None
        self.synced_position, self.synced_timestamp = self._under_way
        self._under_way = None
        self._segments.make_room()
        self._on_synced()

    def save_all(self) -> None:
        """Sync everything in the calling thread; the worker must be drained. Errors: `FatalError`.

        A sync that was under way then has returned, whether or not the loop has heard of it.
        """
        self._under_way = None
        try:
            self._segments.sync_from(self.synced_position)
        except OSError as error:
            raise _failed(error) from error
        self.synced_position, self.synced_timestamp = self.written_position, self._last_stored_ms()


def sync_files(segments: Segments, files: Mapping[int, File]) -> None:
    """Sync files, in a thread. Errors: `FatalError`: nothing is known of what is on disk."""
    try:
        segments.sync(files)
    except OSError as error:
        raise _failed(error) from error


def _failed(error: OSError) -> FatalError:
    return FatalError(f"the commit log cannot sync: {error}", EXIT_ENVIRONMENT)
