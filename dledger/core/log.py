"""The log as the core sees it: what is on disk, plus a tail that is on its way there.

```
  first_index ...                      last_index
  |------------------ view -----------|           entries on disk
                          |--- tail --------------|
                          ^ handed to the driver  ^ not yet
```

Terms are kept as *runs* (each term with the first index that has it): a log of any length has few,
so looking up a term or finding a conflict never touches an entry.

While a `Ready` is in flight its spans stay in the tail: reads are served from there, never from a
disk that may not have them yet or still has what is to be cut off.

Invariants: ``commit_index <= last_index``; ``persisted_index <= last_index``; runs rise strictly in
index and in term; the tail is contiguous and ends at ``last_index``.
Source: Raft paper 5.3; etcd raft, log.go and log_unstable.go.
"""

from bisect import bisect_right

from dledger.core.model import NO_INDEX, NO_TERM, LogIndex, LogView, SnapshotId, Span, Term


class RaftLog:
    """Entries, their terms, and how far they are handed out, persisted and committed."""

    __slots__ = (
        "_in_flight_last", "_run_indexes", "_run_terms", "_tail", "_view", "commit_index",
        "handed_index", "last_index", "last_term", "persisted_index", "truncate_from",
    )  # fmt: skip

    def __init__(self, view: LogView, commit_index: LogIndex) -> None:
        self._view = view
        self.last_index = view.last_index
        runs = view.term_runs()
        self._run_indexes = [index for index, _ in runs]
        self._run_terms = [term for _, term in runs]
        self.last_term = self._run_terms[-1] if runs else view.base_term
        self._tail: list[Span] = []
        self.truncate_from: LogIndex | None = None
        """Where the driver will be asked to cut, None for nowhere."""
        self._in_flight_last: LogIndex | None = None
        self.handed_index = self.last_index
        """Last entry given to the driver, now or earlier."""
        self.persisted_index = self.last_index
        """Last entry held as the flush mode asks."""
        self.commit_index = commit_index
        assert commit_index <= self.last_index, (commit_index, self.last_index)

    @property
    def first_index(self) -> LogIndex:
        """First entry retained."""
        return self._view.first_index

    @property
    def snapshot(self) -> SnapshotId | None:
        """What stands for the entries before the first one, None for nothing."""
        return self._view.snapshot

    def read_snapshot(self, offset: int, size: int) -> bytes:
        """Return bytes of that snapshot."""
        return self._view.read_snapshot(offset, size)

    def restart(self) -> None:
        """Begin anew with what the view has: a snapshot took the place of the log on disk."""
        view = self._view
        self.__init__(view, view.first_index - 1)  # type: ignore[misc]  # every field anew

    @property
    def end_position(self) -> int:
        """Position behind the last entry."""
        if self._tail:
            return self._tail[-1].end_position
        return self._view.position_after(self.last_index)

    def term_at(self, index: LogIndex) -> Term | None:
        """Return the term of entry ``index``, None when there is no such entry."""
        if index == self.last_index:
            return self.last_term
        first_index = self._view.first_index
        if index > self.last_index or index < first_index:
            if index == first_index - 1:
                return self._view.base_term
            return NO_TERM if index == NO_INDEX else None
        return self._run_terms[bisect_right(self._run_indexes, index) - 1]

    def last_runs(self) -> list[tuple[LogIndex, Term]]:
        """Return where the last two terms of the log begin, as it is remembered."""
        return list(zip(self._run_indexes[-2:], self._run_terms[-2:], strict=True))

    def committed_term_at(self, index: LogIndex) -> Term | None:
        """Return the term of entry ``index``, None unless it is committed."""
        return self.term_at(index) if index <= self.commit_index else None

    def is_up_to_date(self, last_index: LogIndex, last_term: Term) -> bool:
        """Tell whether a log that ends so is at least as up to date as this one (5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def find_conflict(self, span: Span) -> LogIndex | None:
        """Return the first entry of ``span`` that is missing here or has another term here.

        None when all are here already: then nothing may be cut, whatever follows them (5.3).
        """
        index, last = span.first_index, min(span.last_index, self.last_index)
        while index <= last:
            run = bisect_right(self._run_indexes, index) - 1
            if self._run_terms[run] != span.term:
                return index
            index = last + 1 if run + 1 == len(self._run_indexes) else self._run_indexes[run + 1]
        return None if span.last_index <= self.last_index else self.last_index + 1

    def find_at_most(self, index: LogIndex, term: Term) -> LogIndex:
        """Return the last index up to ``index`` whose term is at most ``term``.

        It is what both sides of a rejected append search: an entry of a higher term than the other
        side has at this place cannot be shared. -1 when there is none.
        """
        index = min(index, self.last_index)
        while index >= self.first_index:
            run = bisect_right(self._run_indexes, index) - 1
            if self._run_terms[run] <= term:
                return index
            index = self._run_indexes[run] - 1
        if index == self.first_index - 1 and self._view.base_term > term:
            return index - 1
        return index

    def append(self, span: Span) -> None:
        """Add entries behind the last one."""
        assert span.first_index == self.last_index + 1, (span.first_index, self.last_index)
        assert span.term >= self.last_term, (span.term, self.last_term)
        if span.term != self.last_term or not self._run_indexes:
            self._run_indexes.append(span.first_index)
            self._run_terms.append(span.term)
            self.last_term = span.term
        self._tail.append(span)
        self.last_index = span.last_index

    def truncate(self, index: LogIndex) -> None:
        """Cut off entry ``index`` and what follows, because the leader has another one there."""
        assert index > self.commit_index, (index, self.commit_index)
        assert index <= self.last_index, (index, self.last_index)
        self._cut(index)

    def _cut(self, index: LogIndex) -> None:
        """Forget entry ``index`` and what follows."""
        tail = self._tail
        while tail and tail[-1].last_index >= index:
            span = tail.pop()
            if span.first_index < index:
                tail.append(span.before_index(index))
        while self._run_indexes and self._run_indexes[-1] >= index:
            self._run_indexes.pop()
            self._run_terms.pop()
        self.last_index = index - 1
        self.last_term = self._run_terms[-1] if self._run_terms else self._view.base_term
        self.persisted_index = min(self.persisted_index, self.last_index)
        if index <= self.handed_index:
            self.handed_index = index - 1
            pending = self.truncate_from
            self.truncate_from = index if pending is None else min(pending, index)

    def read(self, first_index: LogIndex, bytes_max: int) -> Span | None:
        """Return entries of one term from ``first_index`` on, at least one.

        None when the first one is damaged on this disk, and not repaired yet.
        """
        tail = self._tail
        if tail and tail[-1].first_index == first_index:
            return tail[-1]  # as nearly always: what was appended last
        assert self.first_index <= first_index <= self.last_index, (first_index, self.last_index)
        if not tail or first_index < tail[0].first_index:
            last = tail[0].first_index - 1 if tail else self.last_index
            return self._view.read(first_index, last, bytes_max)
        for span in reversed(tail):
            if span.first_index <= first_index:
                return span.from_index(first_index)
        raise AssertionError((first_index, self.last_index))

    def hand_out(self) -> tuple[LogIndex | None, tuple[Span, ...]]:
        """Return where to cut and what to write; they stay in the tail until `settle`."""
        assert self._in_flight_last is None, self._in_flight_last
        truncate_from, self.truncate_from = self.truncate_from, None
        handed = self.handed_index
        if handed == self.last_index:
            spans: tuple[Span, ...] = ()
        elif len(self._tail) == 1:
            spans = tuple(self._tail)
        else:
            spans = tuple(span for span in self._tail if span.first_index > handed)
        self.handed_index = self.last_index
        self._in_flight_last = self.last_index
        return truncate_from, spans

    def has_work(self) -> bool:
        """Tell whether `hand_out` would return anything."""
        return self.truncate_from is not None or self.handed_index != self.last_index

    def settle(self) -> None:
        """Note that what was handed out is on disk: the view has it."""
        assert self._in_flight_last is not None
        stable = self._in_flight_last
        if self.truncate_from is not None:
            stable = min(stable, self.truncate_from - 1)
        self._in_flight_last = None
        tail = self._tail
        while tail and tail[0].last_index <= stable:
            del tail[0]

    def abort(self, first_index: LogIndex) -> None:
        """Forget entry ``first_index`` and what follows: they could not be written.

        They are neither on disk nor known to anyone, so what they had committed here goes, too.
        """
        assert self._in_flight_last is not None
        self._in_flight_last = None
        self.commit_index = min(self.commit_index, first_index - 1)
        pending = self.truncate_from
        if first_index <= self.last_index:
            self._cut(first_index)
        # The failed entries are not on disk: only an older pending cut may remain.
        below = pending is not None and pending < first_index
        self.truncate_from = pending if below else None

    def describe(self) -> str:
        """Render terms as ``first..last/term`` runs, for logs and golden files."""
        if self.last_index < self.first_index:
            return "(empty)"
        ends = [*(i - 1 for i in self._run_indexes[1:]), self.last_index]
        return " ".join(
            f"{first}..{last}/{term}"
            for first, last, term in zip(self._run_indexes, ends, self._run_terms, strict=True)
        )
