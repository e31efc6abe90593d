"""Finishes halves: the copy and the op message go into the log, each once and in this order.

The table says what the log has; what this leader has put and the log has not applied yet is known
here. So a half has one end in a term, and one in all terms: who leads next has applied everything
that may ever commit. Op messages that come together are put together, each a record of its own. One
that follows a copy is put only while that copy is in the log or on its way into it: what cuts the
copy off later cuts the op message behind it off as well.
Where only the copy got into the log, the next pass of the check-back puts the op message
(`broker.transactions.service`).
Source: spec/wire.md 7.8; RocketMQ EndTransactionProcessor; docs/transactions.md.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from broker.transactions.halves import COPIED
from broker.transactions.records import ops_of
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.transactions.halves import Half
    from broker.transactions.table import HalfTable
    from store.results import PutMessage
    from store.write.writer import Writer

    Done = Callable[[PutStatus], object]

OPS_TOGETHER_MAX: Final = 64
"""Op messages put in one call, some 10 KB; so many that came together wait for no others."""
OPS_WAIT_MS: Final = 5
"""So long an op message behind a copy waits for others: then they are written and sent with what
ends next, and seldom alone. Nobody waits for it: the copy is what ends its half."""


class Timer(Protocol):
    """What is needed of `ledgermq.runtime.tasks.Alarm`."""

    def set(self, delay_ms: float) -> None:
        """Have it go off after so long, and not when it was to before."""

    def cancel(self) -> None:
        """Let it not go off."""


class Endings:
    """The halves that this leader is finishing.

    Args:
        host: packed address of this broker.
        now_ms: the time that a message would be stamped with.
        alarm: returns a timer that calls a function.
    """

    def __init__(
        self,
        table: HalfTable,
        writer: Writer,
        host: bytes,
        now_ms: Callable[[], int],
        alarm: Callable[[str, Callable[[], object]], Timer],
    ) -> None:
        self._table = table
        self._writer = writer
        self._host = host
        self._now_ms = now_ms
        self._under_way: dict[int, int] = {}
        """By offset in the half topic, how many messages of its end were put and are not answered.
        One with 0 is answered, but dispatch has not come to it."""
        self._copied: set[int] = set()
        """Of those, the ones whose copy is committed: they stay until dispatch has come to it."""
        self._ops: dict[int, Done] = {}
        """By offset in the half topic, op messages to be put, and who waits for each."""
        self._timer = alarm("ends of transactions", self.put_ops)

    def begin(self) -> None:
        """Forget what was under way in another term: the table says what became of it."""
        self._under_way, self._copied = {}, set()

    def is_under_way(self, half: Half) -> bool:
        """Tell whether a half has an end in the log that is not applied yet."""
        return half.offset in self._under_way

    def tidy(self) -> None:
        """Forget what was answered before it was applied, and is applied now."""
        for offset in [offset for offset, count in self._under_way.items() if not count]:
            if self._is_applied(offset):
                self._forget(offset)

    def finish(self, half: Half, copy: PutMessage | None, done: Done) -> None:
        """Put the copy of an open half, if it gets one, and then its op message.

        ``done`` hears once how the copy ended, or the op message where there is no copy.
        """
        under_way = self._under_way
        assert half.offset not in under_way, half
        assert half.asked != COPIED or copy is None, half
        under_way[half.offset] = 1
        if copy is not None:
            self._writer.put(copy, partial(self._on_copied, under_way, half.offset, done))
            if half.offset not in under_way:
                return  # it is refused
            under_way[half.offset] += 1
            done = _ignore
        if copy is None:
            self._timer.set(0)
        elif not self._ops:
            self._timer.set(OPS_WAIT_MS)
        self._ops[half.offset] = done
        if len(self._ops) >= OPS_TOGETHER_MAX:
            self.put_ops()

    def put_ops(self) -> None:
        """Put the op messages that have come together."""
        ops, self._ops = self._ops, {}
        if ops:
            ends = [partial(self._on_end, self._under_way, *op) for op in ops.items()]
            self._writer.put_each(ops_of([*ops], self._host, self._now_ms()), ends)

    def _on_copied(
        self, under_way: dict[int, int], offset: int, done: Done, status: PutStatus, *_: int
    ) -> None:
        """Hear how a copy ended; a half whose copy is not in the log gets no op message."""
        if under_way is self._under_way:
            is_cut_off = status is not PutStatus.OK
            if is_cut_off and self._ops.pop(offset, None) is not None:
                under_way[offset] -= 1
            elif not is_cut_off:
                self._copied.add(offset)
        self._on_end(under_way, offset, done, status)

    def _on_end(
        self, under_way: dict[int, int], offset: int, done: Done, status: PutStatus, *_: int
    ) -> None:
        """Hear how a copy or an op message ended; of an earlier term as well."""
        under_way[offset] -= 1
        if under_way is self._under_way and not under_way[offset]:
            has_failed = status is not PutStatus.OK and offset not in self._copied
            if has_failed or self._is_applied(offset):
                self._forget(offset)
        done(status)

    def _forget(self, offset: int) -> None:
        del self._under_way[offset]
        self._copied.discard(offset)

    def _is_applied(self, offset: int) -> bool:
        half = self._table.rows.at_offset(offset)
        return half is None or half.asked == COPIED


def _ignore(_status: PutStatus) -> None:
    """Nobody waits for an op message behind a copy."""
