"""Asking how transactions ended, as the history of their producers shows it: A23.

A half that was acknowledged and that nobody decides is asked about, not before it is old enough,
not again at once, and not more often than is set. Where a broker was at fault, or the lead changed,
nothing is promised of the time, which counts anew when that is over; how often is counted in the
log, and holds all the same.
Source: spec/proof.md A23.
"""

from collections import defaultdict
from itertools import pairwise

from chaos.checker.model import History, Result, result, unchecked
from chaos.checker.recovery import merged
from chaos.checker.redelivery import BROKER_NS, unsettled
from chaos.checker.transactions import decisions
from chaos.history.columns import Row
from chaos.history.domains import ASKED_WITHIN_NS, CHECK_BACK, EARLY_NS

_MS = 1_000_000


def check_questions(history: History) -> Result:
    """A23: halves that were asked about too soon, too often, or never; one anomaly for a half."""
    halves = [s for s in history.ok_sends if s.get("kind") == "txn"]
    if not halves:
        return unchecked("A23", "there were no transactions")
    if not all(name in history.check_back for name in CHECK_BACK):
        return unchecked("A23", "run.json does not say when producers are asked (check_back)")
    said = decisions(history, "A23")
    if isinstance(said, Result):
        return said
    judge = _Judge(history)
    found = []
    known = [send for send in halves if send["t_cmp"] is not None]
    for half in sorted(known, key=lambda send: send["msg_key"]):
        words = said.get(half["msg_key"], {})
        complaint = judge.complaint(half, is_decided=any(words.values()))
        if complaint:
            explain = f"the half {half['msg_key']} {complaint}"
            found.append({"msg_key": half["msg_key"], "explain": explain})
    return result("A23", found, f"{len(halves)} halves, {len(found)} not asked about by the rules")


class _Judge:
    """What may be said of the questions in one history."""

    def __init__(self, history: History) -> None:
        self._after_ns, interval, self._most = (history.check_back[name] for name in CHECK_BACK)
        self._after_ns *= _MS
        self._interval_ns = interval * _MS
        self._slack = 2 * history.clock_tolerance_ns
        self._unrest = merged((one.start, one.end) for one in unsettled(history))
        times = [row["t_cmp"] or row["t_inv"] for row in history.sends]
        self._end = max([*times, *(row["t_inv"] for row in history.txn)])
        self._asked: dict[int, list[Row]] = defaultdict(list)
        for row in history.txn:
            if row["step"] == "checkback":
                self._asked[row["msg_key"]].append(row)

    def complaint(self, half: Row, *, is_decided: bool) -> str:
        """Return what is wrong with the questions about a half, empty if nothing is."""
        times = sorted(row["t_inv"] for row in self._asked[half["msg_key"]])
        if len(times) > self._most:
            return f"was asked about {len(times)} times, {self._most} are allowed"
        if times and self._is_early(half["t_inv"], times[0]):
            return f"was asked about after {(times[0] - half['t_inv']) / 1e6:.0f} ms"
        earlier = half["t_inv"] + self._after_ns - self._interval_ns
        for before, after in pairwise(times):
            is_near = after - before < self._interval_ns // 2 - self._slack
            # A question that was late is soon followed by the next, which need not be late.
            is_near &= after - earlier < self._interval_ns * 7 // 4 - self._slack
            earlier = before
            if is_near and self._is_quiet(before, after):
                return f"was asked about twice within {(after - before) / 1e6:.0f} ms"
        patience = self._after_ns + 2 * self._interval_ns + ASKED_WITHIN_NS + self._slack
        since = self._calm_from(times[-1] if times else half["t_cmp"], patience)
        lost_ns = self._unrest_since(half["t_inv"] + self._after_ns, since)
        # Each interval of each unrest, whole or not, may have swallowed a question.
        left = (self._most - len(times) - len(lost_ns)) * self._interval_ns
        if not is_decided and sum(lost_ns) < left and since + patience <= self._end:
            return f"was open, and not asked about for {patience / 1e6:.0f} quiet ms"
        return ""

    def _calm_from(self, since: int, length: int) -> int:
        """Return from when on there was no unrest for so long: from the end of the last, if any."""
        for begin, end in self._unrest:
            over = end + BROKER_NS + self._slack
            if begin <= since + length + self._slack and since <= over:
                since = over
        return since

    def _unrest_since(self, due: int, until: int) -> list[int]:
        """Return how long unrest was while questions were due, each: those amid it may be lost."""
        due -= EARLY_NS + self._slack
        lengths = (min(end, until) - max(begin, due) for begin, end in self._unrest)
        return [length for length in lengths if length > 0]

    def _is_early(self, sent: int, asked: int) -> bool:
        due = sent + self._after_ns - EARLY_NS - self._slack
        return asked < due and self._is_quiet(sent, asked)

    def _is_quiet(self, start: int, end: int) -> bool:
        """Tell whether no broker was at fault between two times, nor soon before."""
        margin = BROKER_NS + self._slack
        return not any(a <= end + self._slack and start <= b + margin for a, b in self._unrest)
