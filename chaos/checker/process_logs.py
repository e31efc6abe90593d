"""Did a process log what it should not? A62.

A traceback, a broken assertion, a panic and an error are anomalies, whatever was done to the node.
Damage is none where a fault damaged what lies on that node's disk, from then on; a disk or a limit
that refuses is none while a fault makes it refuse, and a moment afterwards. What was removed before
it was done is none after a fault trimmed the log of any member. That a machine is slow is no
anomaly at all. Source: spec/proof.md A62.
"""

from collections.abc import Sequence

from chaos.catalogue.faults import Span, explains
from chaos.checker.model import History, Result, result, span_of, unchecked
from chaos.history.columns import Row
from chaos.history.domains import (
    HARMLESS,
    LOGGED_EARLY_NS,
    LOGGED_LATE_NS,
    PASSING,
    SHARED,
)


def check_process_logs(history: History) -> Result:
    """A62: an error in the log of a process that no fault explains."""
    if history.node_log is None:
        return unchecked("A62", "no logs of processes were recorded")
    spans = [span_of(fault) for fault in history.witnessed]
    odd = [row for row in history.node_log if row["kind"] != HARMLESS]
    odd.sort(key=lambda row: (row["node"], row["kind"], row["line"]))
    found = [
        {
            "key": f"{row['node']} {_name_of(row)}",
            "explain": f"{row['node']} logged ({row['kind']}, {row['count']} times): {row['line']}",
        }
        for row in odd
        if not _is_explained(row, spans)
    ]
    slow, explained = len(history.node_log) - len(odd), len(odd) - len(found)
    summary = f"{len(found)} kinds of lines that no fault explains, {explained} that one does"
    return result("A62", found, summary, explained=explained, slow=slow)


def _name_of(row: Row) -> str:
    """Return by what a line is named, beside its process."""
    told = (row.get("exception"), row.get("event"), row["kind"])
    return str(next(word for word in told if word is not None))


def _is_explained(row: Row, spans: Sequence[Span]) -> bool:
    """Tell whether faults on this node bring about what it logs, the first time and the last."""
    fitting = [
        span
        for span in spans
        if explains(span.kind, row["kind"])
        and (row["kind"] == SHARED or not span.targets or row["node"] in span.targets)
    ]
    times = (row["t"], row["t"] if row.get("t_last") is None else row["t_last"])
    return all(any(_is_within(t, row["kind"], span) for span in fitting) for t in times)


def _is_within(t: int | None, kind: str, span: Span) -> bool:
    """Tell whether a line came once a fault was on; what passes with it comes no later."""
    if t is None:
        return True
    is_over = kind == PASSING and span.end is not None and t > span.end + LOGGED_LATE_NS
    return t + LOGGED_EARLY_NS >= span.begin and not is_over
