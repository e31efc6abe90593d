"""What replicas noted and said of themselves, against the rules of Raft: A30 to A33, A35 (iii).

Events (``raft_event``) are ordered by node and ``seq``, which goes on over restarts. Statuses
(``raft_probe``) are compared only where one had ended before the next began. A node whose disk a
witnessed fault wiped or restored has lost its memory by contract: its terms are not compared.

Source: spec/proof.md 3.6; Raft paper 5.2 (one vote a term), Figure 3 (Election Safety).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from chaos.catalogue.checks import CHECKS
from chaos.catalogue.faults import forgets
from chaos.checker.model import IDLE, NOT_CHECKED, History, Result, Row, result

"""Parts of the kinds of faults that take a node's memory."""


def check_leaders(history: History) -> Result:
    """A30: a term has one leader, by what nodes noted and by what they answered."""
    if not (history.raft_events or history.probes):
        return _not_checked("A30")
    leaders: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for row in history.raft_events:
        if row["kind"] == "become_leader":
            leaders[row.get("group") or 0, row["term"]][row["node"]] = None
    for row in _answers(history):
        if (row.get("role") or "").lower() == "leader" and row.get("term") is not None:
            leaders[row.get("group") or 0, row["term"]][row["node"]] = None
    found = [
        {
            "group": group,
            "term": term,
            "explain": f"term {term} has {len(nodes)} leaders: {', '.join(sorted(nodes))}",
        }
        for (group, term), nodes in sorted(leaders.items())
        if len(nodes) > 1
    ]
    return result("A30", found, f"{len(leaders)} terms had a leader")


def check_votes(history: History) -> Result:
    """A31: a node votes for one candidate a term, itself included, over all its lives."""
    if not history.raft_events:
        return _not_checked("A31")
    votes: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    for row in history.raft_events:
        if row["kind"] == "vote_granted" and row["peer"] is not None:
            votes[row["node"], row["term"]][row["peer"]] = None
        elif row["kind"] == "become_candidate":
            votes[row["node"], row["term"]][row["node"]] = None
    wiped = set(_wiped(history))
    found = [
        {
            "node": node,
            "term": term,
            "explain": f"{node} voted in term {term} for {', '.join(sorted(candidates))}",
        }
        for (node, term), candidates in sorted(votes.items())
        if len(candidates) > 1 and node not in wiped
    ]
    return result("A31", found, f"{len(votes)} votes, each the only one of its node and term")


def check_terms(history: History) -> Result:
    """A32: the term of a node never falls, not even over a restart."""
    if not (history.raft_events or history.probes):
        return _not_checked("A32")
    wiped = set(_wiped(history))
    kept = [
        row
        for row in history.raft_events
        if row["kind"] != "append" and row["node"] not in wiped and row["term"] is not None
    ]
    found = [
        _fall(row["node"], "term", before["term"], row["term"], f"event {row['seq']}")
        for before, row in _steps(kept, by=lambda row: (row["node"],))
        if row["term"] < before["term"]
    ]
    answers = [
        row for row in _answers(history)
        if row["node"] not in wiped and row.get("term") is not None
    ]  # fmt: skip
    found += [
        _fall(row["node"], "term", before["term"], row["term"], f"answer at {row['t0']}")
        for before, row in _sequential(answers, by=lambda row: (row["node"],))
        if row["term"] < before["term"]
    ]
    return result("A32", found, "terms rise")


def check_commits(history: History) -> Result:
    """A33: inside one life of a node its commit index and its applied index never fall."""
    if not (history.raft_events or history.probes):
        return _not_checked("A33")
    commits = [row for row in history.raft_events if row["kind"] == "commit"]
    found = [
        _fall(row["node"], "commit index", before["index"], row["index"], f"event {row['seq']}")
        for before, row in _steps(commits, by=_life)
        if row["index"] < before["index"]
    ]
    for name in ("commit", "applied"):
        told = [row for row in _answers(history) if row.get(name) is not None]
        found += [
            _fall(row["node"], f"{name} index", before[name], row[name], f"answer at {row['t0']}")
            for before, row in _sequential(told, by=_life)
            if row[name] < before[name]
        ]
    return result("A33", found, "commit and applied index rise")


def find_cut_commits(history: History) -> list[Row]:
    """Return where a node lost what it had called committed: A35 (iii).

    It cut its log there, or it began again with a log that ends before. A kill takes nothing that
    was written; a fault of the node's disk, or a loss of power, excuses the latter.
    """
    highest: dict[str, int] = {}
    found: list[Row] = []
    spoiled = history.damaged_nodes | set(_wiped(history))
    for row in sorted(history.raft_events, key=_in_order):
        node, index, kind = row["node"], row["index"], row["kind"]
        if index is None:
            continue
        committed = highest.get(node, -1)
        if kind == "commit":
            highest[node] = max(committed, index)
            continue
        if kind == "truncate" and index <= committed:
            what = f"cut its log at {index}"
        elif kind == "boot" and index < committed and node not in spoiled:
            what = f"began again with a log that ends at {index}"
        else:
            continue
        explain = (
            f"{node} {what} (event {row['seq']}) and had called everything up to {committed}"
            " committed"
        )
        found.append({"node": node, "index": index, "explain": explain})
    return found


def _answers(history: History) -> Iterator[Row]:
    for row in history.probes:
        if row.get("ok"):
            yield row


def _in_order(row: Row) -> tuple[str, int]:
    return row["node"], row["seq"]


def _life(row: Row) -> tuple[str, str | None]:
    return row["node"], row.get("boot_id")


def _steps(
    rows: Iterable[Row], *, by: Callable[[Row], tuple[str | None, ...]]
) -> Iterator[tuple[Row, Row]]:
    """Yield each row with the one before it in the same group, in the order of events."""
    last: dict[tuple[str | None, ...], Row] = {}
    for row in sorted(rows, key=_in_order):
        if by(row) in last:
            yield last[by(row)], row
        last[by(row)] = row


def _sequential(
    rows: Iterable[Row], *, by: Callable[[Row], tuple[str | None, ...]]
) -> Iterator[tuple[Row, Row]]:
    """Yield each answer with the one before it, where that had ended before this was asked for."""
    last: dict[tuple[str | None, ...], Row] = {}
    for row in sorted(rows, key=lambda row: (row["node"], row["t0"])):
        before = last.get(by(row))
        if before is not None and before.get("t1") is not None and before["t1"] < row["t0"]:
            yield before, row
        last[by(row)] = row


def _wiped(history: History) -> Iterator[str]:
    for fault in history.faults:
        if fault["status"] not in IDLE and forgets(fault["kind"]):
            yield from fault["targets"] or ()


def _fall(node: str, what: str, before: int, after: int, where: str) -> Row:
    return {"node": node, "explain": f"{node}: {what} fell from {before} to {after} ({where})"}


def _not_checked(check: str) -> Result:
    return Result(
        check=check,
        verdict=NOT_CHECKED,
        severity=CHECKS[check].severity,
        summary="the run has neither events nor statuses of its replicas",
    )
