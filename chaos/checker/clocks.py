"""Times of several hosts, whose clocks agree within a tolerance that run.json declares.

An operation that one host timed is made longer at both ends, by all that another clock may differ;
checks that compare it with a time of another host are then right without knowing of it. Two times
that are none of an operation (two deliveries, two events) are compared by whoever asks.

Pure. The Spark job has code of its own. Source: docs/checking.md, clocks of several hosts.
"""

from collections.abc import Mapping, Sequence

from chaos.checker.model import Row
from chaos.history.domains import SPANS, TOLERANCE, TOLERANCE_MAX_NS


def tolerance_of(about: Mapping[str, object]) -> int:
    """Return by how much clocks may differ (ns), 0 if run.json says nothing usable."""
    told = about.get(TOLERANCE)
    usable = type(told) is int and 0 <= told <= TOLERANCE_MAX_NS
    return told if usable and isinstance(told, int) else 0


def widen(table: str, rows: Sequence[Row], tolerance_ns: int) -> None:
    """Move the times of operations apart, in place: each ends later and begins earlier."""
    begins, ends = SPANS.get(table, ((), ()))
    moves = [(name, -tolerance_ns) for name in begins] + [(name, tolerance_ns) for name in ends]
    if not tolerance_ns:
        return
    for row in rows:
        for name, by in moves:
            if row[name] is not None:
                row[name] += by
