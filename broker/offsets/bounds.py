"""Takes groups back that are ahead of what a broker without a Raft group has left of its queues.

A table of offsets may be on the disk before the log that it counts: under ASYNC_FLUSH a loss of
power takes the end of the log, and leaves the offsets. Other messages come to those places then,
and whoever is ahead of them would never get them. A table that is not ahead of its log is left as
it is, and so is one that names no place in a log, as RocketMQ's: who commits says where it goes on.
Nor is a group taken back to a queue of which nothing is there.
Source: docs/replication.md; RocketMQ #4771, which leaves it so.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from broker.leader.service import LeaderService
from broker.state.consumer_offset import TRANSACTION_CHECK_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from typing import Any

    from broker.state.consumer_offset import ConsumerOffsetTable

_log = logging.getLogger(__name__)

ROWS_PER_TURN: Final = 500


class OffsetsWithinQueues(LeaderService):
    """Of a broker on its own, or a master.

    Args:
        max_offset: returns where a queue ends, by topic and queue id.
    """

    name: ClassVar = "offsets past the ends of queues"

    def __init__(self, offsets: ConsumerOffsetTable, max_offset: Callable[[str, int], int]) -> None:
        self._offsets = offsets
        self._max_offset = max_offset

    def start(self, term: int) -> Coroutine[Any, Any, None] | None:
        """Compare offsets with queues before anybody is told one; many of them in several turns."""
        del term
        if not self._offsets.is_ahead:
            return None
        rows = self._offsets.rows()
        return self._go_on(rows) if self._bound_some(rows) else None

    async def _go_on(self, rows: Iterator[tuple[str, dict[int, int]]]) -> None:
        while True:
            await asyncio.sleep(0)
            if not self._bound_some(rows):
                return

    def _bound_some(self, rows: Iterator[tuple[str, dict[int, int]]]) -> bool:
        """Look at the next rows; return whether there may be more."""
        some = list(islice(rows, ROWS_PER_TURN))
        for key, queues in some:
            topic, _, group = key.rpartition("@")
            if group == TRANSACTION_CHECK_GROUP:
                continue  # how far RocketMQ came, which nobody commits any more
            for queue_id, offset in queues.items():
                self._bound(group, topic, queue_id, offset)
        return len(some) == ROWS_PER_TURN

    def _bound(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        end = self._max_offset(topic, queue_id)
        if 0 < end < offset and self._offsets.commit(group, topic, queue_id, end):
            _log.warning(
                "event=offset_past_the_end group=%s topic=%s queue=%d offset=%d end=%d",
                group, topic, queue_id, offset, end,
            )  # fmt: skip
