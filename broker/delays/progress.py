"""How far each level is delivered: part of what the log says, so that every replica knows it.

A delivered copy is the record of its delivery (`store.origins`): applying it moves the level on.
What could not be delivered at all is passed over by a record of the same kind without a copy.
RocketMQ copies such offsets to its slaves every few seconds, and delivers again what came between.
Source: spec/disk.md 5.6; RocketMQ DelayOffsetSerializeWrapper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from broker.state.kinds import StateKind
from broker.state.table import ReplicatedTable
from broker.table_text import text_in_steps
from ledgermq.remoting.protocol.bodies import decode_file
from ledgermq.remoting.protocol.limits import Int32, Int64  # noqa: TC001 - read at run time
from store.origins import QUEUES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from broker.state.table import Gauge


_QueueId = Annotated[int, msgspec.Meta(ge=0, lt=QUEUES_MAX)]
_Delivered = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _Saved(msgspec.Struct, rename="camel"):
    offset_table: dict[Int32, Int64]
    """By level, the offset of the first message that is not delivered."""


class DelayProgress(ReplicatedTable):
    """By queue of the schedule topic, the offset up to which all is delivered."""

    file = "delayOffset.json"
    is_told_by_log = True
    """Ahead of the log it would pass over messages that wait: rather one comes twice."""

    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}

    def delivered_before(self, queue_id: int) -> int:
        """Return the offset of the first message that is not delivered."""
        return self._offsets.get(queue_id, 0)

    def offsets(self) -> list[tuple[int, int]]:
        """Return queue ids and their offsets, in the order of the queues."""
        return sorted(self._offsets.items())

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`."""
        return {StateKind.DELIVERED: self.apply}

    def apply(self, payload: bytes) -> None:
        """Take that a message was delivered, or passed over for good."""
        queue_id, offset = msgspec.json.decode(payload, type=tuple[_QueueId, _Delivered])
        self._offsets[queue_id] = offset + 1

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`; there are no more rows than levels."""
        return ()

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the text of ``delayOffset.json``: levels count from 1, as in RocketMQ's."""
        rows = [(queue_id + 1, offset) for queue_id, offset in self.offsets()]
        return text_in_steps(lambda part: _Saved(dict(part)), rows)

    def restore(self, data: bytes) -> None:
        """See `ReplicatedTable`."""
        table = decode_file(data, _Saved).offset_table
        self._offsets = {level - 1: offset for level, offset in table.items()}
