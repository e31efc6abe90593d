"""The log as the core of a replica remembers it: terms by entry, and what is still to be written.

The judges of steps (`sim.oracles.steps`) ask that log for terms, so it is kept twice, one term for
each entry. What is dropped at the beginning, and what lies on the disk, others compare
(`sim.oracles.remembered`, `sim.oracles.log`).

Source: Raft paper 5.3, 5.4.1; `dledger.core.ready` (order of duty).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dledger.core.log import RaftLog
from sim.oracles.twice import ANY

if TYPE_CHECKING:
    from dledger.core.model import Span


class LogModel:
    """The log of one replica."""

    METHODS = (
        "append", "truncate", "find_conflict", "find_at_most", "is_up_to_date", "abort", "hand_out",
        "settle",
    )  # fmt: skip

    def __init__(self, log: RaftLog) -> None:
        self._log = log
        self._terms: dict[int, int] = {}
        self._last = log.last_index
        runs = [*log._view.term_runs(), (self._last + 1, 0)]
        for (first, term), (end, _) in pairwise(runs):
            for index in range(first, end):
                self._terms[index] = term
        self._handed = self._last
        """Up to here everything was given to be written."""
        self._asked = self._last
        """Of this entry the term is compared next, of one after the other."""
        self._cut: int | None = None
        """From here on the disk has what is gone."""

    # What there is

    def term_at(self, index: int) -> int | None:
        """An entry that is there has a term; so has the one before the first."""
        view = self._log._view
        if index == view.first_index - 1:
            return view.base_term
        if view.first_index <= index <= self._last:
            return self._terms.get(index)
        return 0 if index == -1 else None

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """The later term at the end, and then the longer log."""
        own = self._last_term()
        return last_term > own or (last_term == own and last_index >= self._last)

    def find_conflict(self, span: Span) -> int | None:
        """The first that is not there, or is another one."""
        for index in range(span.first_index, span.last_index + 1):
            if index > self._last or self._terms.get(index) != span.term:
                return index
        return None

    def find_at_most(self, index: int, term: int) -> int:
        """The last one up to there whose term is no later."""
        index, first = min(index, self._last), self._log._view.first_index
        while index >= first and self._terms[index] > term:
            index -= 1
        if index == first - 1 and self._log._view.base_term > term:
            index -= 1
        return index

    # What changes it

    def append(self, span: Span) -> None:
        """It comes behind the last one."""
        for index in range(span.first_index, span.last_index + 1):
            self._terms[index] = span.term
        self._last = span.last_index

    def truncate(self, index: int) -> None:
        """It is gone, and what follows; the disk is to be told if it may have that."""
        for gone in range(index, self._last + 1):
            del self._terms[gone]
        self._last = index - 1
        if index <= self._handed:
            self._handed = index - 1
            self._cut = index if self._cut is None else min(self._cut, index)

    def hand_out(self) -> tuple[int | None, object]:
        """What is new since the last time is to be written."""
        self._cut, self._handed = None, self._last
        return ANY  # type: ignore[return-value]  # `sim.oracles.steps_sending` judges that

    def settle(self) -> None:
        """It is written: what is not is kept."""

    def abort(self, first_index: int) -> None:
        """What was to be written is not, and is on no disk: only a cut before it is left."""
        cut = self._cut
        if first_index <= self._last:
            self.truncate(first_index)
        self._cut = cut if cut is not None and cut < first_index else None

    def _last_term(self) -> int:
        view = self._log._view
        return self._terms[self._last] if self._last >= view.first_index else view.base_term

    def differs(self, one: RaftLog) -> str | None:
        """Say how."""
        now = (one.last_index, one.last_term, one.handed_index, one.truncate_from)
        want = (self._last, self._last_term(), self._handed, self._cut)
        if now != want:
            return f"its end, the term of that, what was written, and the cut are {now}, not {want}"
        if one.persisted_index > self._last or one.commit_index > self._last:
            return f"it holds {one.persisted_index}, committed {one.commit_index} of {self._last}"
        asked = self._asked
        if RaftLog.term_at(one, asked) != self.term_at(asked):
            return (
                f"entry {asked} has term {RaftLog.term_at(one, asked)}, not {self.term_at(asked)}"
            )
        self._asked = asked + 1 if asked <= self._last else one.first_index - 1
        tail = one._tail
        if tail and (tail[-1].last_index != self._last or tail[0].first_index > self._first_open()):
            return f"it keeps {tail[0].first_index} to {tail[-1].last_index} of {self._last}"
        if not tail and self._first_open() <= self._last:
            return f"it keeps nothing, and {self._first_open()} is to be written"
        return None

    def _first_open(self) -> int:
        """Return the first entry that may be on no disk yet."""
        return self._handed + 1
