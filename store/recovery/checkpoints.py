"""What makes a start short: the checkpoints of the queues and those of the key index, together."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger.mark import LogMark
    from store.dispatch.dispatcher import Dispatcher
    from store.index import IndexKeeper
    from store.ports import LogMarks
    from store.recovery.checkpointer import Checkpointer


class Checkpoints:
    """Writes what was dispatched to disk, of queues and index."""

    def __init__(
        self,
        queues: "Checkpointer",
        index: "IndexKeeper | None",
        dispatcher: "Dispatcher",
        marks: "LogMarks",
    ) -> None:
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._marks = marks

    @property
    def covered(self) -> int:
        """How far in the log the units of queues are on disk for sure."""
        return self._queues.covered or 0

    @property
    def index_timestamp(self) -> int:
        """Store time (ms) up to which the key index on disk is whole, 0 for none."""
        return 0 if self._index is None else self._index.index.index_timestamp

    @property
    def is_busy(self) -> bool:
        """Whether queue files are being synced."""
        return self._queues.is_busy

    def tick_index(self, now_ms: int) -> None:
        """Write what the index holds back, or begin a checkpoint of it, when that is due."""
        if self._index is not None:
            self._index.tick(now_ms, self._maybe_mark)

    def tick_queues(self, now_ms: int) -> None:
        """Begin a checkpoint of the queues when it is due."""
        self._queues.tick(now_ms, self._dispatcher.applied)

    async def write(self) -> None:
        """Write and sync queues and checkpoint; with the disk full, nothing happens."""
        await self._queues.finish(self._dispatcher.applied)
        if self._index is not None:
            await self._index.finish(self._maybe_mark(), is_last=False)

    def write_now(self) -> bool:
        """Write and sync queues and checkpoint before returning; False if the disk is full."""
        if self._index is not None and not self._index.write_now(self._maybe_mark()):
            return False
        return self._queues.write_now(self._dispatcher.applied)

    async def finish(self) -> None:
        """Write the last ones, and close the index."""
        if self._index is not None:
            await self._index.finish(self._maybe_mark(), is_last=True)
            self._index.close()
        await self._queues.finish(self._dispatcher.applied, is_last=True)

    def forget(self) -> None:
        """Take that a snapshot took the log's place: queues and index are others now."""
        self._queues.forget()
        if self._index is not None:
            self._index.index.reset()

    def _maybe_mark(self) -> "LogMark | None":
        """Return the entry up to which everything was dispatched, None if it is not known."""
        start, end = self._dispatcher.applied
        mark = self._marks.mark(start, end) if start >= 0 else None
        return mark if mark is not None and mark.position >= 0 else None
