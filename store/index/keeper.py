"""When the index is written: its entries each second, its checkpoints more rarely, in a thread.

What a store does with its index beside filling and asking it: start, ticks, stop, trims.
Source: docs/raft.md#when-the-disk-fails (a failed sync is fatal, a full disk
is not); RocketMQ IndexService.flush.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from dledger.mark import LogMark
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.index.key_index import IndexPlan, KeyIndex
from store.index.recovery import Loaded, agree_with_log, load_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from store.config import IndexConfig
    from store.ports import LogMarks, LogReader

_log = logging.getLogger(__name__)


class IndexKeeper:
    """Keeps the key index of one store."""

    def __init__(
        self,
        config: "IndexConfig",
        directory: str,
        disk: "Disk",
        clock: "Clock",
        *,
        on_fatal: "Callable[[FatalError], None]",
    ) -> None:
        self.index = KeyIndex(config, directory, disk, clock)
        self.config = config
        self._on_fatal = on_fatal
        self._loaded = Loaded()
        self._has_space = True
        self._due_ms: int | None = None
        self._flush_due_ms = 0
        self._marked: LogMark | None = None
        self._syncing: asyncio.Future[bool] | None = None

    def load(self, *, trusted_until: int | None = 0) -> None:
        """Take the files that can be trusted, see `load_index`. Errors: `FatalError`."""
        try:
            self._loaded = load_index(self.index, trusted_until=trusted_until)
        except OSError as error:
            raise self._unreadable(error) from error

    def agree(self, log: "LogReader", marks: "LogMarks", queues_mark: LogMark | None) -> int:
        """Return where dispatch has to begin, see `agree_with_log`. Errors: `FatalError`."""
        try:
            return agree_with_log(self.index, self._loaded, log, marks, queues_mark)
        except OSError as error:
            raise self._unreadable(error) from error

    def tick(self, now_ms: int, applied: "Callable[[], LogMark | None]") -> bool:
        """Write what waits, and begin a checkpoint when it is due; False if the disk is full.

        ``applied``: returns the entry up to which everything was put.
        """
        if self._due_ms is None:
            self._due_ms = now_ms + self.config.checkpoint_ms
        is_checkpoint_due = now_ms >= self._due_ms and self._syncing is None
        if not is_checkpoint_due and now_ms < self._flush_due_ms and self._has_space:
            return True
        self._flush_due_ms = now_ms + self.config.flush_ms
        has_space = self.index.flush()
        if has_space is not self._has_space:
            self._has_space = has_space
            _log.warning(
                "event=%s", "index_written_again" if has_space else "disk_full_index_waits"
            )
        if not has_space:
            return False
        if is_checkpoint_due:
            self._due_ms = now_ms + self.config.checkpoint_ms
            mark = applied()
            if mark is not None and mark != self._marked:
                self._begin(mark)
        return True

    def write_now(self, mark: LogMark | None) -> bool:
        """Write a checkpoint in the calling thread; False if the disk is full or one is on."""
        if self._syncing is not None or not self.index.flush():
            return False
        plan = self.index.plan(mark)
        is_written = plan.run()
        self.index.settle(plan, is_written=is_written)
        return is_written

    async def finish(self, mark: LogMark | None, *, is_last: bool) -> None:
        """Wait for a checkpoint under way, then write another; the last one has all slots.

        Whoever waits here may be cancelled: what is being written goes on.
        """
        while (syncing := self._syncing) is not None:
            # It may be done and `_end` still be due: awaiting that returns at once, for ever.
            await asyncio.wait((syncing,))
            syncing.result()
        if not self.index.flush():
            return
        if mark is not None and (mark != self._marked or (is_last and self.index.wants_slots)):
            await asyncio.shield(self._begin(mark, is_last=is_last))
            if is_last and self._marked == mark:
                await asyncio.shield(self._begin(mark, is_last=True))  # says that slots are written

    def close(self) -> None:
        """Close the files."""
        self.index.close()

    def _begin(self, mark: LogMark, *, is_last: bool = False) -> "asyncio.Future[bool]":
        plan = self.index.plan(mark, is_last=is_last)
        syncing = asyncio.get_running_loop().run_in_executor(None, plan.run)
        self._syncing = syncing
        syncing.add_done_callback(lambda done: self._end(done, plan, mark))
        return syncing

    def _end(self, syncing: "asyncio.Future[bool]", plan: IndexPlan, mark: LogMark) -> None:
        self._syncing = None
        if syncing.cancelled():
            return
        error = syncing.exception()
        if error is None:
            self.index.settle(plan, is_written=syncing.result())
            if syncing.result():
                self._marked = mark
            return
        if not isinstance(error, FatalError):
            _log.error("event=bug in=index", exc_info=error)
            error = FatalError("a bug in the index", EXIT_ENVIRONMENT)
        self._on_fatal(error)

    def _unreadable(self, error: OSError) -> FatalError:
        message = f"the index in {self.index.directory} cannot be used: {error}"
        return FatalError(message, EXIT_ENVIRONMENT)
