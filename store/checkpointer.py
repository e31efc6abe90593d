"""When and how a checkpoint is written: sync the queue files in a thread, then replace the file.

The loop thread takes the picture; what the files hold of it never changes, so that the thread needs
no lock. One checkpoint is under way at a time.
Source: protocol.md 5.5; architecture.md 3 (a failed sync is fatal, a full disk is not).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from dledger.errors import RottenEntry
from runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.checkpoint import (
    CHECKPOINT_FILE,
    MARKS_MAX,
    ROCKETMQ_FILE,
    Checkpoint,
    LogMark,
    QueueMark,
    encode_checkpoint,
    encode_rocketmq,
)
from store.consume_queue import NO_SPACE
from store.layout import UNIT_BYTES, store_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime.disk import Disk
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueues
    from store.ports import LogNode

_log = logging.getLogger(__name__)
_NO_CHECKPOINT: Final = -2

Applied = tuple[int, int]
"""``(index, position)`` of the last entry dispatched."""


class Checkpointer:
    """Writes checkpoints of ``queues``."""

    def __init__(
        self,
        config: "StoreConfig",
        disk: "Disk",
        queues: "ConsumeQueues",
        node: "LogNode",
        *,
        on_fatal: "Callable[[FatalError], None]",
    ) -> None:
        self._on_fatal = on_fatal
        self._directory = config.directory
        self._period_ms = config.checkpoint_ms
        self._file_bytes = config.queue_file_bytes
        self._disk = disk
        self._queues = queues
        self._node = node
        self._due_ms: int | None = None
        self._planned: tuple[Applied, int] | None = None
        self._syncing: asyncio.Future[bool] | None = None
        self._generation = 0
        self.marks: tuple[LogMark, ...] = ()
        """Positions of the last checkpoints, newest first."""

    def tick(self, now_ms: int, applied: Applied) -> None:
        """Begin a checkpoint when one is due and what it shall hold is written.

        When it falls due, the entry dispatched last and the queues that wait to be written are
        noted; once these are written, by the store's ticks, everything up to that entry is.
        """
        if self._due_ms is None:
            self._due_ms = now_ms + self._period_ms
        if self._planned is None:
            if now_ms < self._due_ms or not self._is_behind(applied):
                return
            queues = self._queues
            self._planned = (applied, queues.flushed_count + len(queues.unwritten))
        planned, flushed_count = self._planned
        if self._queues.flushed_count >= flushed_count:
            self._planned = None
            self._due_ms = now_ms + self._period_ms
            if self._is_behind(planned):
                self._begin(planned)

    @property
    def is_busy(self) -> bool:
        """Whether queue files are being synced: none may be removed meanwhile."""
        return self._syncing is not None

    def forget(self) -> None:
        """The queues are others now: what was written, or is being written, says nothing."""
        self._generation += 1
        self._planned = None
        self.marks = ()

    async def finish(self, applied: Applied) -> None:
        """Wait for a checkpoint under way, then write the last one."""
        self._planned = None
        if self._syncing is not None:
            await self._syncing
        if self._is_behind(applied) and self._queues.flush():
            await self._begin(applied)

    def write_now(self, applied: Applied) -> bool:
        """Write a checkpoint in the calling thread.

        Returns False if the disk is full or another checkpoint is under way.
        """
        if self._syncing is not None or not self._queues.flush():
            return False
        paths = self._queues.files.take_unsynced()
        checkpoint = self._picture(applied)
        if self._sync(paths, checkpoint):
            self.marks = checkpoint.marks
            return True
        self._queues.files.mark_unsynced(paths)
        return False

    def _is_behind(self, applied: Applied) -> bool:
        """Whether to write one: never a step back, as long as a rebuild has not caught up."""
        last = self.marks[0].index if self.marks else _NO_CHECKPOINT
        return self._syncing is None and applied[0] > last

    def _picture(self, applied: Applied) -> Checkpoint:
        """Return what the files hold; everything up to that entry is written, perhaps more."""
        index, position = applied
        if index >= self._node.first_index and position >= 0:
            term = self._node.term_at(index)
            try:
                stored = store_timestamp(self._node.body_of(index, position))
            except RottenEntry:
                stored = 0
        else:
            position, term, stored = -1, 0, 0
        return Checkpoint(
            file_bytes=self._file_bytes,
            store_timestamp=stored,
            marks=(LogMark(index, term, position), *self.marks[: MARKS_MAX - 1]),
            queues=tuple(
                QueueMark(
                    queue.topic,
                    queue.queue_id,
                    queue.min_offset,
                    queue.written // UNIT_BYTES,
                    queue.first_file,
                    tuple(queue.crcs),
                )
                for queue in self._queues.by_key.values()
                if queue.written and queue.written >= queue.min_offset * UNIT_BYTES
            ),
        )

    def _begin(self, applied: Applied) -> "asyncio.Future[bool]":
        checkpoint = self._picture(applied)
        paths = self._queues.files.take_unsynced()
        loop = asyncio.get_running_loop()
        syncing = loop.run_in_executor(None, self._sync, paths, checkpoint)
        self._syncing = syncing
        generation = self._generation
        syncing.add_done_callback(lambda done: self._end(done, paths, checkpoint, generation))
        return syncing

    def _end(
        self,
        syncing: "asyncio.Future[bool]",
        paths: list[str],
        checkpoint: Checkpoint,
        generation: int,
    ) -> None:
        self._syncing = None
        if syncing.cancelled():
            return
        error = syncing.exception()
        if error is not None:
            if not isinstance(error, FatalError):
                _log.error("event=bug in=checkpoint", exc_info=error)
                error = FatalError("a bug in the checkpoint", EXIT_ENVIRONMENT)
            self._on_fatal(error)
        elif generation != self._generation:
            return
        elif syncing.result():
            self.marks = checkpoint.marks
        else:
            self._queues.files.mark_unsynced(paths)

    def _sync(self, paths: list[str], checkpoint: Checkpoint) -> bool:
        """Sync queue files, then replace the checkpoint; in a thread. False: the disk is full."""
        for path in paths:
            try:
                file = self._disk.open(path, size=self._file_bytes)
            except OSError as error:
                if error.errno in NO_SPACE:
                    return False  # it was never made: its units still wait
                message = f"cannot open {path}: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            try:
                file.fdatasync()
            except OSError as error:
                message = f"cannot sync {path}: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            finally:
                file.close()
        try:
            for name, data in (
                (CHECKPOINT_FILE, encode_checkpoint(checkpoint)),
                (ROCKETMQ_FILE, encode_rocketmq(checkpoint.store_timestamp)),
            ):
                self._disk.replace(f"{self._directory}/{name}", data)
        except OSError as error:
            if error.errno in NO_SPACE:
                return False
            message = f"cannot write a checkpoint in {self._directory}: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return True
