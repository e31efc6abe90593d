"""What replicas noted and said of themselves, against the rules of Raft: A30 to A33, A35 (iii).

Events (``raft_event``) are ordered by node and ``seq``, which goes on over restarts. A status
(``raft_probe``) is compared with those that had ended before it was asked for. A node may be of
several groups, which have terms, votes and logs of their own. One whose disk a witnessed fault
wiped or restored has lost its memory by contract: its terms are compared within each life, and over
lives between which no such fault lay.

Source: spec/proof.md 3.6; Raft paper 5.2 (one vote a term), Figure 3 (Election Safety).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from chaos.catalogue.checks import CHECKS
from chaos.catalogue.faults import forgets
from chaos.checker.model import (
    NOT_CHECKED,
    History,
    Result,
    lacking,
    result,
    span_of,
    undecided,
)
from chaos.history.columns import Row
from chaos.history.domains import LEADING

T = TypeVar("T")
Line = tuple[str | int | None, ...]
"""What tells apart rows that are not compared: node and group, and the life of the node."""


def check_leaders(history: History) -> Result:
    """A30: a term has one leader, by what nodes noted and answered, and by who acknowledged."""
    noted = [row for row in history.raft_events if row["kind"] == "become_leader"]
    acknowledged = _acknowledged(history)
    if not (history.raft_events or history.probes or acknowledged):
        return _not_checked("A30")
    if missing := lacking("raft_event", noted, "term"):
        return undecided("A30", f"needs {missing} of leaders")
    leaders: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for row in noted:
        leaders[row.get("group") or 0, row["term"]][row["node"]] = None
    for row in _answers(history):
        if _leads(row) and row.get("term") is not None:
            leaders[row.get("group") or 0, row["term"]][row["node"]] = None
    for send in acknowledged:
        leaders[send.get("raft_group") or 0, send["raft_term"]][send["node"]] = None
    found = [
        {
            "key": f"{group}:{term}",
            "group": group,
            "term": term,
            "explain": f"term {term} has {len(nodes)} leaders: {', '.join(sorted(nodes))}",
        }
        for (group, term), nodes in sorted(leaders.items())
        if len(nodes) > 1
    ]
    return result("A30", found, f"{len(leaders)} terms had a leader")


def _leads(answer: Row) -> bool:
    return (answer.get("role") or "").lower() in LEADING


def _acknowledged(history: History) -> list[Row]:
    """Return the sends of which is known which node acknowledged them in which term.

    Producers may call nodes otherwise than nodes do themselves: then nothing is known.
    """
    names = {row["node"] for row in (*history.raft_events, *history.probes)}
    return [
        send
        for send in history.ok_sends
        if send.get("raft_term") is not None
        and send.get("node") is not None
        and (not names or send["node"] in names)
    ]


def check_votes(history: History) -> Result:
    """A31: a node votes for one candidate a term, itself included, over all its lives.

    By what it noted, and by what it answered: each by itself, for names may differ; of nodes that
    are called the same in both, by both together.
    """
    memory = _Memory(history)
    cast = [
        row
        for row in memory.kept(history.raft_events)
        if row["kind"] == "become_candidate"
        or (row["kind"] == "vote_granted" and row["peer"] is not None)
    ]
    answers = memory.kept(_answers(history))
    told = [row for row in answers if row.get("voted_for") and row.get("term") is not None]
    if not history.raft_events and not told:
        return _not_checked("A31")
    if missing := lacking("raft_event", cast, "term"):
        return undecided("A31", f"needs {missing} of votes")
    noted: dict[tuple[int, Line], set[str]] = defaultdict(set)
    answered: dict[tuple[int, Line], set[str]] = defaultdict(set)
    for row in cast:
        candidate = row["peer"] if row["kind"] == "vote_granted" else row["node"]
        noted[row["term"], memory.line(row)].add(candidate)
    for row in told:
        answered[row["term"], memory.line(row)].add(row["voted_for"])
    both: dict[tuple[int, Line], set[str]] = defaultdict(set)
    names = {row["node"] for row in history.raft_events} & {row["node"] for row in history.probes}
    for votes in (noted, answered):
        for line, voted in votes.items():
            both[line] |= voted & names
    twice: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for votes in (noted, answered, both):
        for (term, (node, group, *_)), voted in votes.items():
            if len(voted) > 1:
                twice[node, group, term] |= voted
    found = [
        {
            "key": f"{node}:{term}",
            "node": node,
            "term": term,
            "explain": f"{node} voted in term {term} for {', '.join(sorted(names))}",
        }
        for (node, _, term), names in sorted(twice.items())
    ]
    number = len(noted.keys() | answered.keys())
    return result("A31", found, f"{number} votes, each the only one of its node and term")


def check_terms(history: History) -> Result:
    """A32: the term of a node never falls, not even over a restart."""
    if not (history.raft_events or history.probes):
        return _not_checked("A32")
    memory = _Memory(history)
    kept = [
        row
        for row in memory.kept(history.raft_events)
        if row["kind"] != "append" and row["term"] is not None
    ]
    if missing := lacking("raft_event", kept, "seq"):
        return undecided("A32", f"needs {missing}")
    found = [
        _fall(row["node"], "term", before["term"], row["term"], f"event {row['seq']}")
        for before, row in _steps(kept, by=memory.line)
        if row["term"] < before["term"]
    ]
    answers = [row for row in memory.kept(_answers(history)) if row.get("term") is not None]
    found += _falls_of_answers(answers, "term", "term", by=memory.line)
    return result("A32", found, "terms rise")


def check_commits(history: History) -> Result:
    """A33: inside one life of a node its commit index and its applied index never fall."""
    if not (history.raft_events or history.probes):
        return _not_checked("A33")
    commits = [row for row in history.raft_events if row["kind"] == "commit"]
    if missing := lacking("raft_event", commits, "seq", "index"):
        return undecided("A33", f"needs {missing} of commits")
    answers = list(_answers(history))
    found = _commit_falls(filter(_has_life, commits), filter(_has_life, answers))
    # Over a restart it may fall; where nobody says in which life that was, nobody knows.
    in_doubt = _commit_falls(
        (row for row in commits if not _has_life(row)),
        (row for row in answers if not _has_life(row)),
    )
    if in_doubt and not found:
        why = f"{len(in_doubt)} falls may lie between two lives of a node"
        return undecided("A33", f"needs boot_id of raft_event and raft_probe: {why}")
    return result("A33", found, "commit and applied index rise")


def _commit_falls(commits: Iterable[Row], answers: Iterable[Row]) -> list[Row]:
    found = [
        _fall(row["node"], "commit index", before["index"], row["index"], f"event {row['seq']}")
        for before, row in _steps(commits, by=_life)
        if row["index"] < before["index"]
    ]
    told = list(answers)
    for name in ("commit", "applied"):
        known = [row for row in told if row.get(name) is not None]
        found += _falls_of_answers(known, name, f"{name} index", by=_life)
    return found


def _has_life(row: Row) -> bool:
    return bool(row.get("boot_id"))


def find_cut_commits(history: History) -> list[Row]:
    """Return where a node lost what it had called committed: A35 (iii).

    It cut its log there, or it began again with a log that ends before. A kill takes nothing that
    was written; a fault of the node's disk, or a loss of power, excuses the latter.
    """
    highest: dict[Line, int] = {}
    found: list[Row] = []
    spoiled = history.damaged_nodes | set(_wiped(history))
    known = [row for row in history.raft_events if row["seq"] is not None]
    for row in sorted(known, key=_in_order):
        node, index, kind = row["node"], row["index"], row["kind"]
        if index is None:
            continue
        committed = highest.get(_member(row), -1)
        if kind == "commit":
            highest[_member(row)] = max(committed, index)
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
        key = f"{node}:{index}"
        found.append({"key": key, "node": node, "index": index, "explain": explain})
    return found


def _answers(history: History) -> Iterator[Row]:
    for row in history.probes:
        if row.get("ok"):
            yield row


def _in_order(row: Row) -> tuple[str, int]:
    return row["node"], row["seq"]


def _member(row: Row) -> Line:
    return row["node"], row.get("group") or 0


def _life(row: Row) -> Line:
    return row["node"], row.get("group") or 0, row.get("boot_id")


def _steps(rows: Iterable[Row], *, by: Callable[[Row], Line]) -> Iterator[tuple[Row, Row]]:
    """Yield each row with the one before it on the same line, in the order of events."""
    last: dict[Line, Row] = {}
    for row in sorted(rows, key=_in_order):
        if by(row) in last:
            yield last[by(row)], row
        last[by(row)] = row


def _falls_of_answers(
    rows: Iterable[Row], column: str, what: str, *, by: Callable[[Row], Line]
) -> list[Row]:
    """Return where an answer is less than what had been told before it was asked for.

    Of those that follow upon a fall and are no less than the one before, none is one more. Where
    the last that had ended overlaps with a higher one, that one counts all the same.
    """
    lines: dict[Line, list[Row]] = defaultdict(list)
    for row in rows:
        lines[by(row)].append(row)
    found = []
    for answers in lines.values():
        ended = sorted((r["t1"], r[column]) for r in answers if r.get("t1") is not None)
        highest = list(accumulate((told for _, told in ended), max))
        asked = sorted(answers, key=lambda row: int(row["t0"]))
        most = [_last_of(ended, highest, row["t0"]) for row in asked]
        is_low = [m is not None and row[column] < m for row, m in zip(asked, most, strict=True)]
        known = [(r["t1"], r[column], low) for r, low in zip(asked, is_low, strict=True)]
        last = sorted(row for row in known if row[0] is not None)
        for row, high, low in zip(asked, most, is_low, strict=True):
            before = _last_of(last, last, row["t0"])
            if before is not None and low and (not before[2] or before[1] > row[column]):
                where = f"answer at {row['t0']}"
                found.append(_fall(row["node"], what, high or 0, row[column], where))
    return found


def _last_of(ended: Sequence[tuple[int, ...]], told: Sequence[T], t: int) -> T | None:
    """Return what is told of the last of those, in order, that had ended before a time."""
    at = bisect_left(ended, (t,)) - 1
    return None if at < 0 else told[at]


class _Memory:
    """Who remembers what: a node over all its lives, one that a fault wiped in each by itself.

    A disk goes between two lives: what a wiped node said twice in one life it had not forgotten,
    nor what it said in two between which its answers leave no such fault any room.
    """

    def __init__(self, history: History) -> None:
        self._wiped = set(_wiped(history))
        self._disks = _disks(history, self._wiped)

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows without those of wiped nodes of which nobody says in which life."""
        return [row for row in rows if row["node"] not in self._wiped or row.get("boot_id")]

    def line(self, row: Row) -> Line:
        """Return what tells apart rows that are not compared."""
        if row["node"] not in self._wiped:
            return _member(row)
        life = row.get("boot_id") or ""
        return (*_member(row), self._disks.get((row["node"], life), life))


def _disks(history: History, wiped: Collection[str]) -> dict[tuple[str, str], str]:
    """Return by node and life the first life that had the same disk.

    Of lives that answered: only answers have times of the run's clock.
    """
    lives: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for row in _answers(history):
        if row["node"] in wiped and row.get("boot_id"):
            last = row["t0"] if row.get("t1") is None else row["t1"]
            span = lives[row["node"]].setdefault(row["boot_id"], [row["t0"], last])
            span[:] = [min(span[0], row["t0"]), max(span[1], last)]
    found: dict[tuple[str, str], str] = {}
    for node, spans in lives.items():
        losses = [span for span in map(span_of, _forgetting(history)) if node in span.targets]
        disk, end = "", 0
        for life, (first, last) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
            low, high = min(end, first), max(end, first)
            is_lost = any(
                one.begin <= high and (one.end is None or one.end >= low) for one in losses
            )
            disk = disk if disk and not is_lost else life
            found[node, life], end = disk, max(end, last)
    return found


def _forgetting(history: History) -> list[Row]:
    """Return the faults by which nodes lost their memory."""
    return [fault for fault in history.taking if forgets(fault["kind"])]


def _wiped(history: History) -> Iterator[str]:
    for fault in _forgetting(history):
        yield from fault["targets"] or ()


def _fall(node: str, what: str, before: int, after: int, where: str) -> Row:
    explain = f"{node}: {what} fell from {before} to {after} ({where})"
    return {"key": f"{node}:{where}", "node": node, "explain": explain}


def _not_checked(check: str) -> Result:
    return Result(
        check=check,
        verdict=NOT_CHECKED,
        severity=CHECKS[check].severity,
        summary="the run has neither events nor statuses of its replicas",
    )
