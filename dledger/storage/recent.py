"""The entries written last, still in memory: whoever reads the log as it grows needs no disk.

They were checked when they came, and they are what was written; so what follows the log closely
(dispatch on a follower) is spared a second check and the faults of pages that were never mapped.
Their hints (`Span.hint`), tens of bytes an entry in place of kilobytes, are kept for longer: who
has fallen behind can still do without the entries. Bounded by bytes; the oldest go first.
"""

from bisect import bisect_left
from collections import deque
from typing import Final, NamedTuple

from dledger.codec.index import UNIT
from dledger.core.model import LogIndex, Span, Term

BYTES_MAX: Final = 2 * 1024 * 1024
HINTED_BYTES_MAX: Final = 4 * 1024 * 1024


class HintedSpan(NamedTuple):
    """What remains of a span: its hint, and where its entries lie."""

    first_index: LogIndex
    last_index: LogIndex
    term: Term
    units: bytes
    hint: bytes

    @property
    def start(self) -> int:
        """Where its first entry starts."""
        position: int = UNIT.unpack_from(self.units)[1]
        return position

    @property
    def end(self) -> int:
        """Where its last entry ends."""
        last = UNIT.unpack_from(self.units, len(self.units) - UNIT.size)
        end: int = last[1] + last[2]
        return end

    @property
    def sample(self) -> tuple[int, int, int]:
        """Which entry to compare with the hint, another in each span; where it starts and ends."""
        number = self.first_index % (self.last_index + 1 - self.first_index)
        unit = UNIT.unpack_from(self.units, number * UNIT.size)
        return number, unit[1], unit[1] + unit[2]

    def index_at(self, position: int) -> LogIndex:
        """Return the entry that starts at ``position``, or is the first one behind it."""
        units, size = self.units, UNIT.size
        numbers = range(len(units) // size)
        return self.first_index + bisect_left(
            numbers, position, key=lambda number: int(UNIT.unpack_from(units, number * size)[1])
        )

    @property
    def size_bytes(self) -> int:
        """Bytes in all."""
        return len(self.units) + len(self.hint)


class RecentSpans:
    """Spans that follow each other, the last of which ends the log; hints of theirs and before."""

    def __init__(self, bytes_max: int | None = None, hint_bytes_max: int | None = None) -> None:
        self._bytes_max = BYTES_MAX if bytes_max is None else bytes_max
        self._hint_bytes_max = HINTED_BYTES_MAX if hint_bytes_max is None else hint_bytes_max
        self._spans: deque[Span] = deque()
        self._hinted: deque[HintedSpan] = deque()
        self._bytes = 0
        self._hint_bytes = 0

    def add(self, span: Span) -> None:
        """Take a span that was written behind the others."""
        self._spans.append(span)
        self._bytes += len(span.data)
        while self._bytes > self._bytes_max:
            self._drop_first()
        if span.hint:
            hinted = HintedSpan(span.first_index, span.last_index, span.term, span.units, span.hint)
            self._hinted.append(hinted)
            self._hint_bytes += hinted.size_bytes
            while self._hint_bytes > self._hint_bytes_max:
                self._drop_first_hinted()

    def maybe_find(self, index: LogIndex) -> Span | None:
        """Return the span that holds ``index``; those before it are forgotten.

        The caller walks the log forward and does not come back to them.
        """
        spans = self._spans
        while spans and spans[0].last_index < index:
            self._drop_first()
        return spans[0] if spans and spans[0].first_index <= index else None

    def maybe_hinted(self, index: LogIndex) -> HintedSpan | None:
        """Return the first hint about ``index`` or what follows; those before it are forgotten."""
        hinted = self._hinted
        while hinted and hinted[0].last_index < index:
            self._drop_first_hinted()
        return hinted[0] if hinted else None

    def first_index(self) -> LogIndex | None:
        """Return the first entry held, None for none."""
        return self._spans[0].first_index if self._spans else None

    def forget_below(self, index: LogIndex) -> None:
        """Forget the spans, and hints, all of whose entries lie before ``index``."""
        spans, hinted = self._spans, self._hinted
        while spans and spans[0].last_index < index:
            self._bytes -= len(spans.popleft().data)
        if hinted:
            self.maybe_hinted(index)

    def forget_from(self, index: LogIndex) -> None:
        """Take that entries from ``index`` on were cut off."""
        spans, hinted = self._spans, self._hinted
        while hinted and hinted[-1].last_index >= index:
            self._hint_bytes -= hinted.pop().size_bytes
        while spans and spans[-1].last_index >= index:
            span = spans.pop()
            self._bytes -= len(span.data)
            if span.first_index < index:
                self.add(span.before_index(index))

    def _drop_first(self) -> None:
        self._bytes -= len(self._spans.popleft().data)

    def _drop_first_hinted(self) -> None:
        self._hint_bytes -= self._hinted.popleft().size_bytes
