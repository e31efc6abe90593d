"""In which term a leader acknowledged a send, as far as its own statuses prove it.

A node that says that it leads a term, and says so again later in the same life, led that term all
the while: terms only rise, and a term has one leader. So a send that this node acknowledged between
the two answers was acknowledged in that term. Where another answer lies between, or the node died,
nothing is claimed. Pure. Source: Raft paper 5.1, 5.2; spec/proof.md A38.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

Row = Mapping[str, Any]
LEADER: Final = "leader"
_Reign = tuple[int, int, int]
"""When an answer that the node leads had come, when a later one was asked for, and the term."""


class Reigns:
    """Who led which term when, from the rows of ``raft_probe``; times are ns of the one clock."""

    def __init__(self, probes: Iterable[Row]) -> None:
        answers: dict[str, list[Row]] = defaultdict(list)
        for row in probes:
            if row.get("ok") and row.get("term") is not None and row.get("t1") is not None:
                answers[row["node"]].append(row)
        self._reigns = {node: _reigns(rows) for node, rows in answers.items()}

    def term_at(self, node: str | None, begin: int, end: int) -> int | None:
        """Return the term that a node led from ``begin`` to ``end``; None if nothing proves it."""
        reigns = self._reigns.get(node or "", [])
        at = bisect_right(reigns, begin, key=lambda reign: reign[0]) - 1
        if at < 0 or end > reigns[at][1]:
            return None
        return reigns[at][2]


def _reigns(rows: list[Row]) -> list[_Reign]:
    """Return the stretches in which every answer of a node was that it leads one term."""
    found: list[_Reign] = []
    current: tuple[Any, Any] | None = None
    for row in sorted(rows, key=lambda row: int(row["t0"])):
        who = (row.get("boot_id"), row["term"]) if row.get("role") == LEADER else None
        if who is not None and who == current:
            begin, _, term = found[-1]
            found[-1] = (begin, int(row["t0"]), term)
        elif who is not None:
            found.append((int(row["t1"]), int(row["t1"]) - 1, int(row["term"])))
        current = who
    return found
