"""Which halves are open: part of what the log says, so that every replica knows it.

A half that is applied opens a row. Its copy, committed or parked, makes sure that there is never
another one; the op message closes the row, with a copy before it or, after a rollback, without.
RocketMQ finds the same out by comparing the half topic with the op topic.
Source: spec/wire.md 7.8; RocketMQ TransactionalMessageServiceImpl; docs/transactions.md.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from broker.fair_share import FairShare
from broker.limits import OPEN_HALVES_MAX
from broker.state.kinds import StateKind
from broker.state.table import LargeTable
from broker.table_text import documents_of, text_in_steps
from broker.transactions.halves import COLUMNS, COPIED, Half, OpenHalves
from ledgermq.remoting.protocol.bodies import decode_file
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.limits import Int32, Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from typing import Any

    from broker.state.table import Exchange, Gauge, Text

_OPS_DIGITS_MAX: Final = 20
_Int16 = Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)]
_Place = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Opened = tuple[_Place, _Place, Int64, Int32, Int64, Int64]
"""What a column of the rows, or whoever reads their text, cannot take is refused before any of them
is touched."""
_COLUMNS_BEFORE: Final = (6, 5)
"""Of rows in texts of versions that knew no sources, and no groups either."""


class _Saved(msgspec.Struct, rename="camel"):
    end: Int64
    """Halves before this offset of their topic are known here: open below, or finished."""
    halves: list[str]
    """By row: offset, place in the log, when stored, immunity, how often asked, numbers of the
    producer group and of where it was sent from; earlier versions wrote neither."""


class HalfTable(LargeTable):
    """The open halves of a group, see `OpenHalves`."""

    file = "openHalves.json"
    is_told_by_log = True
    """A half that is missing here could never be finished."""

    def __init__(self) -> None:
        self.rows = OpenHalves()
        self.room = FairShare(OPEN_HALVES_MAX)
        """By producer group."""
        self.sources = FairShare(OPEN_HALVES_MAX)
        """By where they were sent from: whoever invents groups is one sender still."""
        self.end = 0
        """Halves before this offset of their topic were all seen: what is no row is finished."""
        self.closed: set[int] | None = None
        """While a take-over runs: the offsets that op messages closed since it began."""

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`."""
        return {
            StateKind.HALF: self.open,
            StateKind.COPIED: self.mark_copied,
            StateKind.OP: self.close,
            StateKind.ASKED: self.count,
        }

    def open(self, payload: bytes) -> None:
        """Take that a half was stored."""
        offset, physical, stored_ms, immunity_s, group, source = msgspec.json.decode(
            payload, type=_Opened
        )
        self.add(Half(offset, physical, stored_ms, immunity_s, 0, group, source))
        if offset == self.end:
            self.end += 1

    def add(self, half: Half) -> None:
        """Add a row, if it is not there."""
        if self.rows.add(half):
            self.room.take(half.group, 1)
            self.sources.take(half.source, 1)

    def fits(self, group: int, source: int) -> bool:
        """Tell whether one more half of a group, from there, may be open."""
        return self.room.fits(group) and self.sources.fits(source)

    def mark_copied(self, payload: bytes) -> None:
        """Take that a half has its copy; it stays until its op message is applied as well."""
        half = self.rows.find(int(payload))
        if half is not None:
            self.rows.set_asked(half.offset, COPIED)

    def close(self, payload: bytes) -> None:
        """Take what an op message says: an offset, or, of RocketMQ 5, several."""
        offsets = offsets_of_op(payload)
        for offset in offsets:
            half = self.rows.remove(offset)
            if half is not None:
                self.room.take(half.group, -1)
                self.sources.take(half.source, -1)
        if self.closed is not None:
            self.closed.update(offsets)

    def set_end(self, end: int) -> None:
        """Take that a take-over has seen all halves before this offset; it is saved."""
        self.end = max(self.end, end)
        self.changes += 1

    def count(self, payload: bytes) -> None:
        """Take that producers are asked for halves, and how often they were."""
        for offset, asked in msgspec.json.decode(payload, type=list[tuple[Int64, _Int16]]):
            half = self.rows.at_offset(offset)
            if half is not None and half.asked != COPIED:
                self.rows.set_asked(offset, asked)

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`."""
        yield OPEN_HALVES_MAX, lambda: len(self.rows)

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the text of ``openHalves.json``."""
        end = self.end
        return text_in_steps(
            lambda part: _Saved(end, [" ".join(map(str, half)) for half in part]), self.rows.copy()
        )

    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """See `ReplicatedTable`."""
        rows, end = OpenHalves(), 0
        room, sources = FairShare(OPEN_HALVES_MAX), FairShare(OPEN_HALVES_MAX)
        for number, document in enumerate(documents_of(data)):
            if number:
                yield
            saved = decode_file(document, _Saved)
            end = saved.end
            try:
                numbers = rows.extend(_numbers_of(saved.halves))
            except (ValueError, OverflowError) as error:
                raise RemoteProtocolError(f"no row of an open half: {error}") from error
            for share, holders in zip((room, sources), numbers, strict=True):
                for holder, count in Counter(holders).items():
                    share.take(holder, count)
        return partial(self._replace, rows, (room, sources), end)

    def _replace(
        self, rows: OpenHalves, shares: tuple[FairShare, FairShare], end: int
    ) -> dict[Any, Any]:
        self.rows, self.end = rows, end
        self.room, self.sources = shares
        return {}


def _numbers_of(halves: list[str]) -> list[int]:
    """Return the numbers of rows, seven of each. Errors: `ValueError`."""
    count = len(halves)
    numbers = list(map(int, " ".join(halves).split()))
    for before in _COLUMNS_BEFORE:
        if len(numbers) == before * count:
            columns = [numbers[column::before] for column in range(before)]
            columns += [[0] * count] * (COLUMNS - before)
            numbers = list(chain.from_iterable(zip(*columns, strict=True)))
    if len(numbers) != COLUMNS * count:
        raise ValueError("a row has not seven numbers")
    return numbers


def offsets_of_op(body: bytes) -> list[int]:
    """Return the offsets of halves that an op message says are finished; others are left out."""
    return [
        int(digits)
        for digits in body.split(b",")
        if digits.isdigit() and len(digits) <= _OPS_DIGITS_MAX
    ]
