"""Units of a queue that were corrupted on disk are made again from the log while the store runs.

A block that does not have its CRC is refused from then on (`DamagedUnits`). Its messages are still
in the log: the repairer walks it from the last unit before the block, a bounded number of entries
in one tick, and writes the block anew. It changes nothing else.
"""

import logging
from typing import TYPE_CHECKING, Final

from dledger.errors import DamagedEntry
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import (
    FLAG_NOT_INDEXED,
    GAP_UNIT,
    SKIPPED_BYTES,
    UNIT,
    UNIT_BYTES,
    CorruptRecord,
    delivery_code,
    tags_code,
    whole_record,
)

if TYPE_CHECKING:
    from store.config import StoreConfig
    from store.ports import LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

Block = tuple["ConsumeQueue", int]
"""A queue, and the number that a block has in it now."""
STEP_ENTRIES: Final = 2048
"""Entries looked at in one tick; a few milliseconds."""

_log = logging.getLogger(__name__)


class Repairer:
    """Makes damaged blocks anew, one after the other."""

    def __init__(self, config: "StoreConfig", queues: "ConsumeQueues", log: "LogReader") -> None:
        self._damaged = queues.files.damaged
        self._log = log
        self._delays_ms = config.delay_levels_ms
        self._is_replicated = config.is_replicated
        self._block: Block | None = None
        """What is being repaired."""
        self._start = 0
        """Where it begins: numbers of blocks are others once files of the queue are dropped."""
        self._next = 0
        """Where in the log to look on."""
        self._found: dict[int, bytes] = {}
        """Units by queue offset."""
        self._holes = 0
        """Entries without a message that were walked over: they may be why offsets are missing."""
        self._behind = 0
        """Where the first message of the queue behind the block lies; 0: not found yet."""
        self._hopeless: set[tuple[ConsumeQueue, int]] = set()
        """Where blocks begin of which the log does not have all messages."""
        self._has_space = True

    @property
    def is_at_work(self) -> bool:
        """Whether something is damaged that may still be repaired from the log as it is."""
        return self._has_space and self._maybe_one() is not None

    def step(self, applied: int) -> None:
        """Go on with what is damaged, if anything is; the log is dispatched up to ``applied``.

        With the disk full, nothing happens. Errors: `FatalError`.
        """
        if not self._damaged:
            return
        try:
            self._step(applied)
            self._has_space = True
        except OSError as error:
            if error.errno not in NO_SPACE:
                message = f"a consume queue cannot be repaired: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            self._has_space = False

    def _step(self, applied: int) -> None:
        queue, block = self._block or (None, 0)
        is_same = queue is not None and queue.block_range(block)[0] == self._start
        if not is_same or self._block not in self._damaged:
            self._block = self._maybe_one()
            if self._block is None:
                return
            self._begin(*self._block)
        queue, block = self._block
        try:
            is_at_end = self._walk(queue, block, applied)
        except DamagedEntry:
            if not self._is_replicated:  # nobody has another copy
                self._give_up(queue, block)
            return  # the log may be repaired; it is tried again
        self._maybe_finish(queue, block, is_at_end=is_at_end)

    def _maybe_one(self) -> "Block | None":
        """Return a block to repair, None if there is none."""
        for queue, block in self._damaged:
            if (queue, queue.block_range(block)[0]) not in self._hopeless:
                return queue, block
        return None

    def _begin(self, queue: "ConsumeQueue", block: int) -> None:
        self._start = queue.block_range(block)[0]
        self._found = {}
        self._holes = 0
        self._behind = 0
        self._next = self._log.first_position
        before = self._start // UNIT_BYTES - 1
        if block > 0 and before >= queue.min_offset:
            try:
                physical = UNIT.unpack(queue.read(before, 1))[0]
            except DamagedEntry:
                return
            size = self._log.maybe_size(physical)
            if size is not None:
                self._next = physical + size

    def _walk(self, queue: "ConsumeQueue", block: int, applied: int) -> bool:
        """Look at some entries; returns whether no more of the block's messages can come."""
        start, end = (position // UNIT_BYTES for position in queue.block_range(block))
        count = 0
        self._next = max(self._next, self._log.first_position)  # its beginning may have gone
        if self._next >= applied:
            return True
        for physical, chunk, at, size in self._log.walk(self._next, applied, STEP_ENTRIES):
            count += 1
            self._next = physical + size
            try:
                record = whole_record(chunk, at, size, physical)
            except CorruptRecord:
                self._holes += 1
                continue
            _, queue_id, offset, flags, stored, _, properties = record
            if flags & FLAG_NOT_INDEXED or queue_id != queue.queue_id:
                continue
            if record[5] != queue.topic_field[1:]:
                continue
            if offset >= end:
                self._behind = physical
                return True
            if start <= offset:
                if queue.is_schedule:
                    tags = delivery_code(properties, stored, self._delays_ms)
                else:
                    tags = tags_code(properties)
                self._found[offset] = UNIT.pack(physical, size, tags)
                if offset == end - 1:
                    return True
        return count < STEP_ENTRIES

    def _maybe_finish(self, queue: "ConsumeQueue", block: int, *, is_at_end: bool) -> None:
        start, end = (position // UNIT_BYTES for position in queue.block_range(block))
        if is_at_end and self._holes:
            self._skip(max(start, queue.min_offset), end)
        lacks = any(n not in self._found for n in range(max(start, queue.min_offset), end))
        if lacks:
            if is_at_end:
                self._give_up(queue, block)
            return
        units = b"".join(self._found.get(offset, GAP_UNIT) for offset in range(start, end))
        queue.replace_block(block, units)
        self._block = None
        _log.warning(
            "event=queue_repaired topic=%s queue=%d units_from=%d units=%d",
            queue.topic, queue.queue_id, start, end - start,
        )  # fmt: skip

    def _give_up(self, queue: "ConsumeQueue", block: int) -> None:
        """Leave a block as it is, and go on with the others."""
        self._hopeless.add((queue, queue.block_range(block)[0]))
        self._block = None
        _log.error(
            "event=queue_not_repaired topic=%s queue=%d units_from=%d",
            queue.topic, queue.queue_id, queue.block_range(block)[0] // UNIT_BYTES,
        )  # fmt: skip

    def _skip(self, start: int, end: int) -> None:
        """Skip offsets that no message has, where entries without a message explain it."""
        following = self._behind
        for offset in range(end - 1, start - 1, -1):
            unit = self._found.get(offset)
            if unit is not None:
                following = UNIT.unpack(unit)[0]
            elif following and self._holes:
                self._found[offset] = UNIT.pack(following, SKIPPED_BYTES, 0)
                self._holes -= 1
