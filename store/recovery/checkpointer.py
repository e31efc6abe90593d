"""When and how a checkpoint is written: sync the queue files in a thread, then replace the file.

The loop thread takes the picture, a bounded number of queues in one tick; what the files hold of it
never changes, so that the thread needs no lock. One checkpoint is under way at a time. The more
queues wait to be written, the longer it takes: a start after a crash dispatches what came since.
Source: spec/disk.md 5.5; docs/raft.md#when-the-disk-fails (a failed sync is fatal, a full disk is
not).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.errors import DamagedEntry
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import UNIT_BYTES, stored_or_zero
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CLEAN_FILE,
    MARKS_MAX,
    ROCKETMQ_FILE,
    CheckpointHead,
    QueueMark,
    StoreTimes,
    checkpoint_id,
    encode_queues,
    encode_times,
    join_checkpoint,
)

if TYPE_CHECKING:
    from dledger.mark import LogMark
    from ledgermq.runtime.disk import Disk
    from store.config import StoreConfig
    from store.ports import LogParts, LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues
    from store.queues.files import Unsynced

_log = logging.getLogger(__name__)
PICTURE_QUEUES: Final = 1000
"""Queues of which a picture is taken in one tick; about a millisecond."""

Applied = tuple[int, int]
"""Where the last entry dispatched starts and ends; see `Log.mark`."""


class Picture:
    """What the queue files hold, as far as it has been noted."""

    def __init__(self, applied: Applied, queues: "ConsumeQueues") -> None:
        self.applied = applied
        """Everything up to this entry is written, perhaps more."""
        self.changes = queues.files.changes
        """Of the files, when it was begun."""
        self.parts: list[bytes] = []
        self._left: list[ConsumeQueue] = list(queues.by_key.values())
        self._left.reverse()

    def note(self, limit: int) -> bool:
        """Note some queues more; returns whether all are."""
        marks = []
        left = self._left
        while left and limit > 0:
            queue = left.pop()
            limit -= 1
            # What has only begun says nothing: its first message is dispatched again.
            if queue.first_file < queue.written >= queue.min_offset * UNIT_BYTES:
                marks.append(
                    QueueMark(
                        queue.topic, queue.queue_id, queue.min_offset,
                        queue.written // UNIT_BYTES, queue.first_file, queue.crcs, queue.crc,
                    )
                )  # fmt: skip
        if marks:
            self.parts.append(encode_queues(marks))
        return not left


Times = Callable[[int, int], StoreTimes]
"""``(end of an entry, store timestamp)``: what ``checkpoint`` may promise when queues are synced
so far."""


def _all_synced(_end: int, stored: int) -> StoreTimes:
    return StoreTimes(stored, stored, 0)


class _Work(NamedTuple):
    """What the thread that syncs is given."""

    unsynced: "Unsynced"
    head: CheckpointHead
    parts: list[bytes]
    changes: int
    is_last: bool
    """Nothing is written behind it."""
    times: StoreTimes
    end: int
    """Everything before it in the log is in the queues."""


class Checkpointer:
    """Writes checkpoints of ``queues``."""

    def __init__(
        self,
        config: "StoreConfig",
        disk: "Disk",
        queues: "ConsumeQueues",
        parts: "LogParts",
        *,
        on_fatal: "Callable[[FatalError], None]",
        times: "Times | None" = None,
    ) -> None:
        """Make one.

        ``times`` tells, of an entry and the store timestamp of its record, what RocketMQ's
        ``checkpoint`` may promise once the queues are synced up to there; by default that log and
        queues are.
        """
        self._on_fatal = on_fatal
        self._times = times or _all_synced
        self._directory = config.directory
        self._period_ms = config.checkpoint_ms
        self._disk = disk
        self._queues = queues
        self._log: LogReader = parts.entries
        self._log_marks = parts.marks
        self._due_ms: int | None = None
        self._planned: tuple[Applied, int] | None = None
        self._syncing: asyncio.Future[bool] | None = None
        self._picture: Picture | None = None
        self._generation = 0
        self._exact: int | None = None
        """Changes of the files when the last checkpoint was taken, if it tells all of them."""
        self.covered: int | None = None
        """How far in the log the newest checkpoint has come; None: there is none."""
        self._marks: tuple[LogMark, ...] = ()
        """Entries that the last checkpoints end with, newest first."""
        self._promised: tuple[int, StoreTimes] | None = None
        """When the record was stored with which the newest ends, and the times written with it."""

    def begin(self, marks: "tuple[LogMark, ...]") -> None:
        """Go on behind checkpoints of this log, the newest first."""
        self._marks = marks
        self.covered = self._log_marks.maybe_end(marks[0]) if marks else None

    def tick(self, now_ms: int, applied: Applied) -> None:
        """Begin a checkpoint when one is due and what it shall hold is written.

        When it falls due, the entry dispatched last and the queues that wait to be written are
        noted; once these are written, by the store's ticks, everything up to that entry is.
        """
        if self._due_ms is None:
            self._due_ms = now_ms + self._period_ms
        if self._planned is None:
            if now_ms < self._due_ms or not self._is_due(applied):
                return
            queues = self._queues
            self._planned = (applied, queues.flushed_count + len(queues.unwritten))
        if self._picture is None:
            planned, flushed_count = self._planned
            if self._queues.flushed_count < flushed_count:
                return
            if not self._is_due(planned):
                self._planned = None
                self._due_ms = now_ms + self._period_ms
                return
            self._picture = Picture(planned, self._queues)
        if self._picture.note(PICTURE_QUEUES):
            picture, self._picture, self._planned = self._picture, None, None
            self._due_ms = now_ms + self._period_ms
            self._begin(picture)

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written: no queue file may be removed meanwhile."""
        return self._syncing is not None or self._picture is not None

    def forget(self) -> None:
        """The queues are others now: what was written, or is being written, says nothing."""
        self._generation += 1
        self._planned = self._picture = self._exact = self.covered = self._promised = None
        self._marks = ()

    async def finish(self, applied: Applied, *, is_last: bool = False) -> None:
        """Wait for a checkpoint under way, then write one more if there is anything to tell.

        The last one of a clean stop says so, unless the disk is full. Whoever waits here may be
        cancelled, and others may wait, too: what is being written goes on, before the next begins.
        """
        while (syncing := self._syncing) is not None:
            await asyncio.wait((syncing,))
            syncing.result()
        self._planned = self._picture = None
        has_all = self._exact == self._queues.files.changes and not self._queues.unwritten
        if self._is_behind(applied) or (is_last and not has_all and not self._is_ahead(applied)):
            if self._queues.flush():
                await asyncio.shield(self._begin(self._picture_now(applied), is_last=is_last))
        elif is_last and has_all and not self._is_ahead(applied):
            self._note_clean()

    def write_now(self, applied: Applied) -> bool:
        """Write a checkpoint in the calling thread.

        Returns False if the disk is full or another checkpoint is under way.
        """
        if self.is_busy or not self._queues.flush():
            return False
        work = self._work(self._picture_now(applied), is_last=False)
        if self._sync(work):
            self._take(work)
            return True
        self._take_back(work)
        return False

    def _picture_now(self, applied: Applied) -> Picture:
        picture = Picture(applied, self._queues)
        while not picture.note(PICTURE_QUEUES):
            pass
        return picture

    def _is_ahead(self, applied: Applied) -> bool:
        """Whether the last checkpoint says more: a rebuild has not caught up with it."""
        return self.covered is not None and self.covered > applied[1]

    def _is_behind(self, applied: Applied) -> bool:
        """Whether to write one: never a step back, as long as a rebuild has not caught up."""
        is_behind = self.covered is None or applied[1] > self.covered
        return self._syncing is None and is_behind

    def _is_due(self, applied: Applied) -> bool:
        """Whether to write one, also if nothing came, but more of the log is synced since."""
        if self._promised is None or applied[1] != self.covered or self._syncing is not None:
            return self._is_behind(applied)
        stored, times = self._promised
        return self._times(applied[1], stored) != times

    def _work(self, picture: Picture, *, is_last: bool) -> _Work:
        """Return what is to be synced and written for a picture that was just finished."""
        log = self._log
        start, end = picture.applied
        mark, stored = self._log_marks.mark(start, end), 0
        if mark.position >= 0:
            physical = start + log.header_bytes
            with suppress(DamagedEntry, LookupError):
                stored = stored_or_zero(log.body_at(physical, end - physical))
        files = self._queues.files
        earlier = self._marks[1:] if self._marks[:1] == (mark,) else self._marks
        head = CheckpointHead(
            file_bytes=files.file_bytes,
            block_bytes=files.block_bytes,
            store_timestamp=stored,
            marks=(mark, *earlier[: MARKS_MAX - 1]),
        )
        times = self._times(end, stored)
        unsynced = files.take_unsynced()
        return _Work(unsynced, head, picture.parts, picture.changes, is_last, times, end)

    def _begin(self, picture: Picture, *, is_last: bool = False) -> "asyncio.Future[bool]":
        work = self._work(picture, is_last=is_last)
        loop = asyncio.get_running_loop()
        syncing = loop.run_in_executor(None, self._sync, work)
        self._syncing = syncing
        generation = self._generation
        syncing.add_done_callback(lambda done: self._end(done, work, generation))
        return syncing

    def _end(self, syncing: "asyncio.Future[bool]", work: _Work, generation: int) -> None:
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
            self._take(work)
        else:
            self._take_back(work)

    def _take(self, work: _Work) -> None:
        """The checkpoint is written."""
        self._marks, self.covered = work.head.marks, work.end
        self._promised = work.head.store_timestamp, work.times
        self._exact = work.changes

    def _take_back(self, work: _Work) -> None:
        """The disk was full, or no more files could be opened."""
        self._queues.files.mark_unsynced(work.unsynced.paths, has_new=work.unsynced.has_new)

    def _sync(self, work: _Work) -> bool:
        """Sync queue files, then replace the checkpoint; in a thread.

        False: the disk is full, or no more files may be opened.
        """
        if not self._queues.files.sync(work.unsynced):
            return False
        content = join_checkpoint(work.head, work.parts)
        files = [
            # First: of an older one of ours it promises no more than is true, see `known_synced`.
            (ROCKETMQ_FILE, encode_times(work.times)),
            (CHECKPOINT_FILE, content),
        ]
        if work.is_last:
            files.append((CLEAN_FILE, checkpoint_id(content)))
        return self._replace(files)

    def _note_clean(self) -> None:
        content = self._disk.read(f"{self._directory}/{CHECKPOINT_FILE}")
        if content is not None:
            self._replace([(CLEAN_FILE, checkpoint_id(content))])

    def _replace(self, files: list[tuple[str, bytes]]) -> bool:
        try:
            for name, data in files:
                self._disk.replace(f"{self._directory}/{name}", data)
        except OSError as error:
            if error.errno in NO_SPACE:
                return False
            message = f"cannot write a checkpoint in {self._directory}: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return True
