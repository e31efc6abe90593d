"""Finishes halves: the copy and the op message go into the log, each once and in this order.

The table says what the log has; what this leader has put and the log has not applied yet is known
here. So a half has one end in a term, and one in all terms: who leads next has applied everything
that may ever commit. The op message is put behind the copy in the same call; where only the copy
got into the log, the next pass of the check-back puts it (`broker.transactions.service`).
Source: spec/wire.md 7.6; RocketMQ EndTransactionProcessor; docs/transactions.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.transactions.halves import COPIED
from broker.transactions.records import op_of
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.transactions.halves import Half
    from broker.transactions.table import HalfTable
    from store.results import PutMessage
    from store.write.writer import Writer

    Done = Callable[[PutStatus], object]


class Endings:
    """The halves that this leader is finishing.

    Args:
        host: packed address of this broker.
        now_ms: the time that a message would be stamped with.
    """

    def __init__(
        self, table: HalfTable, writer: Writer, host: bytes, now_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._writer = writer
        self._host = host
        self._now_ms = now_ms
        self._under_way: dict[int, int] = {}
        """By offset in the half topic, how many messages of its end were put and are not answered.
        One with 0 is answered, but dispatch has not come to it."""

    def begin(self) -> None:
        """Forget what was under way in another term: the table says what became of it."""
        self._under_way = {}

    def is_under_way(self, half: Half) -> bool:
        """Tell whether a half has an end in the log that is not applied yet."""
        return half.offset in self._under_way

    def tidy(self) -> None:
        """Forget what was answered before it was applied, and is applied now."""
        for offset in [offset for offset, count in self._under_way.items() if not count]:
            if self._is_applied(offset):
                del self._under_way[offset]

    def finish(self, half: Half, copy: PutMessage | None, done: Done) -> None:
        """Put the copy of an open half, if it gets one, and its op message.

        ``done`` hears once how the copy ended, or the op message where there is no copy.
        """
        under_way = self._under_way
        assert half.offset not in under_way, half
        assert half.asked != COPIED or copy is None, half
        under_way[half.offset] = 1
        if copy is not None:
            self._writer.put(copy, partial(self._on_end, under_way, half.offset, done))
            if half.offset not in under_way:
                return  # it is refused
            under_way[half.offset] += 1
            done = _ignore
        op = op_of(half.offset, self._host, self._now_ms())
        self._writer.put(op, partial(self._on_end, under_way, half.offset, done))

    def _on_end(
        self, under_way: dict[int, int], offset: int, done: Done, status: PutStatus, *_: int
    ) -> None:
        """Hear how a copy or an op message ended; of an earlier term as well."""
        under_way[offset] -= 1
        if not under_way[offset] and (status is not PutStatus.OK or self._is_applied(offset)):
            del under_way[offset]
        done(status)

    def _is_applied(self, offset: int) -> bool:
        half = self._table.rows.at_offset(offset)
        return half is None or half.asked == COPIED


def _ignore(_status: PutStatus) -> None:
    """Nobody waits for an op message behind a copy."""
