"""Times of several hosts, whose clocks agree within a tolerance that run.json declares.

An operation that one host timed is made longer at both ends, by all that another clock may differ;
checks that compare it with a time of another host are then right without knowing of it. Two times
that are none of an operation (two deliveries, two events) are compared by whoever asks.

Pure. The Spark job has code of its own. Source: docs/checking.md, clocks of several hosts.
"""

from collections.abc import Mapping

from chaos.history.columns import Row, stored
from chaos.history.domains import SPANS, TOLERANCE, TOLERANCE_MAX_NS


def tolerance_of(about: Mapping[str, object]) -> int:
    """Return by how much clocks may differ (ns), 0 if run.json says nothing usable."""
    told = about.get(TOLERANCE)
    usable = type(told) is int and 0 <= told <= TOLERANCE_MAX_NS
    return told if usable and isinstance(told, int) else 0


def widened(table: str, rows: list[Row], tolerance_ns: int) -> list[Row]:
    """Return rows with the times of operations moved apart: each ends later and begins earlier."""
    begins, ends = SPANS.get(table, ((), ()))
    if not tolerance_ns or not rows or not (begins or ends):
        return rows
    moves = dict.fromkeys(begins, -tolerance_ns) | dict.fromkeys(ends, tolerance_ns)
    columns = {name: [row[name] for row in rows] for name in rows[0] | {}}
    for name, by in moves.items():
        columns[name] = [None if t is None else t + by for t in columns[name]]
    return stored(columns, len(rows))
