"""Where queues begin: offsets at a place in the log, trimming behind it, and a start from there.

When the beginning of the log goes, so do the units of its messages; a queue whose every message is
gone keeps counting all the same. So the next offset of each queue at the place where the log begins
belongs to what stands for that beginning (`QueueStart`), and a queue never falls below it.
It does not know the log; positions are bytes in it.
Source: RocketMQ ConsumeQueue.correctMinOffset (which forgets a queue that has become empty).
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Iterable
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


async def look_up(queues: "ConsumeQueues", position: int) -> None:
    """Find the offset of each queue at ``position`` for `bases_at` and `advance_to`, in slices.

    What is found stays true while the loop goes on: ``position`` is dispatched, so that what comes
    to a queue lies behind it. A damaged queue is left to them.
    """
    known: dict[ConsumeQueue, int] = {}
    for number, queue in enumerate(list(queues.by_key.values()), start=1):
        with suppress(DamagedUnits):
            known[queue] = offset_at(queue, position)
        if number % SLICE_QUEUES == 0:
            await asyncio.sleep(0)
    queues.known_at = (position, known)


def bases_at(queues: "ConsumeQueues", position: int) -> list[QueueStart]:
    """Return the offset of each queue at ``position``; a queue that begins with 0 is left out.

    Errors: `DamagedUnits`.
    """
    found = [
        (queue.topic, queue.queue_id, _known_offset(queues, queue, position))
        for queue in queues.by_key.values()
    ]
    return sorted(base for base in found if base[2])


def _known_offset(queues: "ConsumeQueues", queue: "ConsumeQueue", position: int) -> int:
    known_position, known = queues.known_at
    found = known.get(queue) if known_position == position else None
    return offset_at(queue, position) if found is None else found


def advance_to(queues: "ConsumeQueues", position: int) -> None:
    """Let every queue begin at ``position``; its files go later, see `ConsumeQueue.drop_files`.

    A queue whose units are damaged begins where it did until they are repaired.
    """
    for queue in queues.by_key.values():
        with suppress(DamagedUnits):
            queue.min_offset = _known_offset(queues, queue, position)
    queues.forget_known()


def install(queues: "ConsumeQueues", bases: Iterable[QueueStart]) -> None:
    """Forget all queues, and let those of ``bases`` begin, empty, where they say."""
    for queue in queues.by_key.values():
        queue.remove_files()
    queues.clear()
    settle(queues, bases)


def settle(queues: "ConsumeQueues", bases: Iterable[QueueStart]) -> None:
    """Bring queues that fall below their base up to it; nothing before it is in the log."""
    for topic, queue_id, offset in bases:
        queue = queues.maybe_make(topic.encode(), queue_id)
        if queue is None:
            _log.error("event=queue_base_of_no_queue topic=%r queue=%d", topic, queue_id)
        elif queue.max_offset < offset:
            queue.remove_files()
            queues.begin(queue, offset)
        else:
            queue.min_offset = max(queue.min_offset, offset)
