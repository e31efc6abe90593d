"""The entries written last, still in memory: whoever reads the log as it grows needs no disk.

They were checked when they came, and they are what was written; so what follows the log closely
(dispatch on a follower) is spared a second check and the faults of pages that were never mapped.
Bounded by bytes; the oldest go first.
"""

from collections import deque
from typing import Final

from dledger.core.model import LogIndex, Span

BYTES_MAX: Final = 2 * 1024 * 1024


class RecentSpans:
    """Spans that follow each other, the last of which ends the log."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._spans: deque[Span] = deque()
        self._bytes = 0

    def add(self, span: Span) -> None:
        """Take a span that was written behind the others."""
        self._spans.append(span)
        self._bytes += len(span.data)
        while self._bytes > self._bytes_max:
            self._drop_first()

    def maybe_find(self, index: LogIndex) -> Span | None:
        """Return the span that holds ``index``; those before it are forgotten.

        Whoever asks walks the log forward, and comes not back to them.
        """
        spans = self._spans
        while spans and spans[0].last_index < index:
            self._drop_first()
        return spans[0] if spans and spans[0].first_index <= index else None

    def first_index(self) -> LogIndex | None:
        """Return the first entry held, None for none."""
        return self._spans[0].first_index if self._spans else None

    def forget_from(self, index: LogIndex) -> None:
        """Take that entries from ``index`` on were cut off."""
        spans = self._spans
        while spans and spans[-1].last_index >= index:
            span = spans.pop()
            self._bytes -= len(span.data)
            if span.first_index < index:
                self.add(span.before_index(index))

    def _drop_first(self) -> None:
        self._bytes -= len(self._spans.popleft().data)
