"""Group commit: one sync is under way at a time, and covers everything written before it began.

It runs in a worker thread. The log that owns the syncs knows what one of them covers, and what
follows when it has returned. Source: RocketMQ GroupCommitService.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

Work = TypeVar("Work")


class SyncWorker(Protocol):
    """Runs pieces of work one after the other; see `dledger.disk.worker.Worker`."""

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Run ``work`` in a thread, and ``then`` in the loop if it succeeded."""
        ...


class GroupSync(Generic[Work]):
    """The syncs of one log."""

    def __init__(
        self,
        *,
        take: Callable[[], Work | None],
        sync: Callable[[Work], None],
        end: Callable[[Work], None],
    ) -> None:
        """Make one.

        Args:
            take: returns what was written and not synced, None for nothing.
            sync: makes it durable; in any thread.
            end: takes that it is durable; in the loop.
        """
        self._take: Final = take
        self._sync: Final = sync
        self._end: Final = end
        self._under_way: Work | None = None

    def start(self, worker: SyncWorker, on_synced: Callable[[Callable[[], None]], None]) -> None:
        """Begin to work.

        Args:
            worker: where syncs run.
            on_synced: called in the loop when a sync has returned, with what is to be done then.
        """
        self._worker = worker
        self._on_synced = on_synced

    def begin(self) -> bool:
        """Sync what was written, unless a sync is under way; False if there was nothing to sync."""
        if self._under_way is not None:
            return True
        work = self._take()
        if work is None:
            return False
        self._under_way = work
        self._worker.submit(partial(self._sync, work), partial(self._on_synced, self._take_end))
        return True

    def save_all(self) -> None:
        """Sync everything in the calling thread; the worker must be drained."""
        if self._under_way is not None:  # whatever became of it
            self._finish()
        self._under_way = self._take()
        if self._under_way is not None:
            self._finish()

    def _finish(self) -> None:
        assert self._under_way is not None
        self._sync(self._under_way)
        self._take_end()

    def _take_end(self) -> None:
        work, self._under_way = self._under_way, None
        assert work is not None
        self._end(work)
