"""Who was master in which epoch, by controllers, brokers and acknowledgements: A63.

Controllers name one master for each epoch, and each names epochs that rise; nobody else says that
it is the master of that epoch, and nobody else acknowledges in it. Answers of different controllers
are compared by epochs, never by time: one that does not know yet that it leads no more may say what
was. Source: spec/proof.md A63; docs/adr/0020.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from chaos.checker.model import History, Result, lacking, result, unchecked, undecided
from chaos.history.columns import Row
from chaos.history.domains import LEADING

Claim = tuple[str, int]
"""A node and an epoch."""


def check_masters(history: History) -> Result:
    """A63: an epoch has one master, whom the controllers named, and epochs rise."""
    told = history.masters
    if not told:
        return unchecked("A63", "no controller said who is master")
    if missing := lacking("masters", told, "epoch"):
        return undecided("A63", f"needs {missing}")
    named: dict[tuple[str, int], set[str]] = defaultdict(set)
    anywhere: dict[int, set[str]] = defaultdict(set)
    for row in told:
        if row.get("node") is not None:
            named[row.get("grp") or "", row["epoch"]].add(row["node"])
            anywhere[row["epoch"]].add(row["node"])
    acknowledged = {(one, term) for (_, term), nodes in _ackers(history).items() for one in nodes}
    found: list[Row] = [
        {"epoch": epoch, "explain": f"controllers named {_names(nodes)} as masters of {epoch}"}
        for (_, epoch), nodes in sorted(named.items())
        if len(nodes) > 1
    ]
    found += _falls(told)
    for what, claims in (("says that it leads", _led(history)), ("acknowledged", acknowledged)):
        for node, epoch in sorted(claims):
            masters = anywhere.get(epoch)
            if masters and node not in masters:
                words = f"{node} {what} in epoch {epoch}, whose master is {_names(masters)}"
                found.append({"node": node, "epoch": epoch, "explain": words})
    found += [
        {"epoch": epoch, "explain": f"{_names(nodes)} acknowledged in epoch {epoch}"}
        for (_, epoch), nodes in sorted(_ackers(history).items())
        if len(nodes) > 1
    ]
    summary = f"{len(named)} epochs had a master, as controllers say"
    return result("A63", found, summary, epochs=len(named))


def _falls(told: Sequence[Row]) -> list[Row]:
    """Return where a controller named an earlier epoch than before."""
    by_controller: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in told:
        by_controller[row["controller"], row.get("grp") or ""].append(row)
    found: list[Row] = []
    for (controller, _), rows in sorted(by_controller.items()):
        rows.sort(key=lambda row: (row["t0"], row["t1"]))
        for before, row in pairwise(rows):
            if before["t1"] < row["t0"] and row["epoch"] < before["epoch"]:
                words = f"{controller} named epoch {row['epoch']} after {before['epoch']}"
                found.append({"epoch": row["epoch"], "explain": words})
    return found


def _led(history: History) -> set[Claim]:
    """Return who said that it leads, and in which term: a master's is its epoch."""
    return {
        (row["node"], row["term"])
        for row in history.probes
        if row.get("ok") and (row.get("role") or "").lower() in LEADING and row["term"] is not None
    }


def _ackers(history: History) -> dict[tuple[int, int], set[str]]:
    """Return by group and term who acknowledged, as far as that is proved.

    Groups count their epochs each for itself.
    """
    found: dict[tuple[int, int], set[str]] = defaultdict(set)
    for send in history.ok_sends:
        if send.get("raft_term") is not None and send.get("node") is not None:
            found[send.get("raft_group") or 0, send["raft_term"]].add(send["node"])
    return found


def _names(nodes: set[str]) -> str:
    return ", ".join(sorted(nodes))
