"""Syncs of entries in the background, and the checkpoint that notes how far they have come.

It knows neither roles nor messages: what a sync means is the driver's business.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from dledger.config import DLedgerConfig
from dledger.driver import Driver, Sync
from dledger.segments.sync import GroupSync, SyncWorker
from dledger.storage.log_store import LogStore
from dledger.storage.state_files import CheckpointFile
from ledgermq.runtime.clock import Clock


class Flusher:
    """Syncs what one driver has written."""

    def __init__(
        self,
        config: DLedgerConfig,
        clock: Clock,
        driver: Driver,
        store: LogStore,
        checkpoint_file: CheckpointFile,
    ) -> None:
        self._flush_interval_ms: Final = config.flush_interval_ms
        self._checkpoint_interval_ms: Final = config.checkpoint_interval_ms
        self._clock = clock
        self._driver = driver
        self._checkpoint_file = checkpoint_file
        self._syncs: GroupSync[Sync] = GroupSync(
            take=driver.begin_sync, sync=lambda sync: store.sync(sync.dirty), end=driver.end_sync
        )
        self._last_flush_ms = 0
        self._last_checkpoint_ms = 0

    def start(self, worker: SyncWorker, on_synced: Callable[[Callable[[], None]], None]) -> None:
        """Begin to work.

        Args:
            worker: where syncs run.
            on_synced: called in the loop when a sync has returned, with what is to be done then.
        """
        self._worker = worker
        self._syncs.start(worker, lambda end: on_synced(partial(self._end_sync, end)))
        self._last_flush_ms = self._last_checkpoint_ms = self._clock.monotonic_ms()

    def pass_time(self, now_ms: int) -> None:
        """Sync what was written when the interval is over."""
        if now_ms - self._last_flush_ms >= self._flush_interval_ms:
            self._last_flush_ms = now_ms
            self.start_sync()

    def start_sync(self) -> None:
        """Sync what was written and note it, unless a sync is under way."""
        if not self._syncs.begin():
            self._save_checkpoint()

    def save_all(self) -> None:
        """Sync and note everything in the calling thread; the worker must be drained."""
        self._syncs.save_all()
        self._checkpoint_file.save(self._driver.checkpoint(), self._checkpoint_file.cuts)

    def _end_sync(self, end: Callable[[], None]) -> None:
        end()
        self._save_checkpoint()

    def _save_checkpoint(self) -> None:
        """Note how far the log is synced and committed, from time to time."""
        now = self._clock.monotonic_ms()
        if now - self._last_checkpoint_ms >= self._checkpoint_interval_ms:
            self._last_checkpoint_ms = now
            file = self._checkpoint_file
            self._worker.submit(partial(file.save, self._driver.checkpoint(), file.cuts), _nothing)


def _nothing() -> None:
    """Do nothing more."""
