"""Where queues begin: offsets at a place in the log, trimming behind it, and a start from there.

When the beginning of the log goes, so do the units of its messages; a queue whose every message is
gone keeps counting all the same. So the next offset of each queue at the place where the log begins
belongs to what stands for that beginning (`QueueStart`), and a queue never falls below it.
It does not read the log; positions are bytes in it.
Source: RocketMQ ConsumeQueue.correctMinOffset (which forgets a queue that has become empty).
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from store.layout import UNIT_BYTES
from store.queues.consume_queue import DamagedUnits

if TYPE_CHECKING:
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

PIECE_UNITS: Final = 512
"""Units read at once."""
SLICE_QUEUES: Final = 256
"""Queues looked at before the loop gets its turn; each may cost a read or two."""

_log = logging.getLogger(__name__)

QueueStart = tuple[str, int, int]
"""``(topic, queue id, offset)``: the queue's next offset where the log begins."""


def offset_at(queue: "ConsumeQueue", position: int) -> int:
    """Return the offset of the first message of a queue at or behind ``position``.

    Units are read a piece at a time: there may be many thousands of queues to ask, most of them
    short or untouched. Errors: `DamagedUnits`.
    """
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        piece = queue.read(low, min(PIECE_UNITS, high - low))
        count = len(piece) // UNIT_BYTES
        if _physical(piece, count - 1) >= position:
            return low + bisect_left(
                range(count), position, key=lambda number: _physical(piece, number)
            )
        low += count
        middle = (low + high) // 2
        while middle - low > PIECE_UNITS:
            if _physical(queue.read(middle, 1), 0) < position:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
    return low


def _physical(units: bytes, number: int) -> int:
    at = number * UNIT_BYTES
    return int.from_bytes(units[at : at + 8], "big", signed=True)


class LogStart:
    """Where the log of one store begins, as far as queues and index are concerned.

    Args:
        is_syncing: tells whether queue files are being synced, so that none may be removed.
    """

    def __init__(
        self,
        queues: "ConsumeQueues",
        is_syncing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queues = queues
        self._is_syncing = is_syncing
        self.drop_keys_before: Callable[[int], None] = lambda _position: None
        """Drops what the key index has of messages before a position, if there is one."""
        self._drops_files = False
        """Whether files wait to be removed."""
        self._forget_resolved()

    def _forget_resolved(self) -> None:
        self._resolved: tuple[int, dict[ConsumeQueue, int]] = (-1, {})
        """A position of the log, and the offsets that queues have there."""

    async def resolve(self, position: int) -> None:
        """Find the offset of each queue at ``position``, in slices, before it is needed.

        What is found stays true while the loop goes on: ``position`` is dispatched, so that what
        comes to a queue lies behind it. Who needs it asks a damaged queue again.
        """
        known: dict[ConsumeQueue, int] = {}
        for number, queue in enumerate(list(self._queues.by_key.values()), start=1):
            with suppress(DamagedUnits):
                known[queue] = offset_at(queue, position)
            if number % SLICE_QUEUES == 0:
                await asyncio.sleep(0)
        self._resolved = (position, known)

    def queue_starts_at(self, position: int) -> list[QueueStart]:
        """Return the offset of each queue at ``position``; a queue that begins with 0 is left out.

        Errors: `DamagedUnits`.
        """
        found = [
            (queue.topic, queue.queue_id, self._offset_at(queue, position))
            for queue in self._queues.by_key.values()
        ]
        return sorted(start for start in found if start[2])

    def _offset_at(self, queue: "ConsumeQueue", position: int) -> int:
        resolved_position, resolved = self._resolved
        found = resolved.get(queue) if resolved_position == position else None
        return offset_at(queue, position) if found is None else found

    def advance_to(self, position: int) -> None:
        """Let queues and index begin at ``position``; the files of queues go a little later.

        A queue whose units are damaged begins where it did until they are repaired.
        """
        for queue in self._queues.by_key.values():
            with suppress(DamagedUnits):
                queue.min_offset = self._offset_at(queue, position)
        self._forget_resolved()
        self._drops_files = True
        self.drop_keys_before(position)

    def install(self, starts: Iterable[QueueStart]) -> None:
        """Forget all queues, and let those of ``starts`` begin, empty, where they say."""
        for queue in self._queues.by_key.values():
            queue.remove_files()
        self._queues.clear()
        self._forget_resolved()
        self._raise_to(starts)

    def settle(self, starts: Iterable[QueueStart]) -> None:
        """Let the queues that were loaded begin where the log does; nothing before it is in it."""
        self._raise_to(starts)
        self._drops_files = True

    def _raise_to(self, starts: Iterable[QueueStart]) -> None:
        queues = self._queues
        for topic, queue_id, offset in starts:
            queue = queues.maybe_make(topic.encode(), queue_id)
            if queue is None:
                _log.error("event=queue_base_of_no_queue topic=%r queue=%d", topic, queue_id)
            elif queue.max_offset < offset:
                queue.remove_files()
                queues.begin(queue, offset)
            else:
                queue.min_offset = max(queue.min_offset, offset)

    def drop_queue_files(self) -> int:
        """Remove queue files before the beginning of the log, return how many.

        While files are being synced, they wait for a later call of `drop_what_waits`.
        """
        self._drops_files = self._is_syncing()
        if self._drops_files:
            return 0
        queues = self._queues.by_key.values()
        before = sum(queue.file_count for queue in queues)
        for queue in queues:
            queue.drop_files()
        return before - sum(queue.file_count for queue in queues)

    def drop_what_waits(self) -> None:
        """Remove the queue files that wait to be removed, if any do; at every tick."""
        if self._drops_files:
            self.drop_queue_files()
