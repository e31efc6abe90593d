"""What leaders may do: A36 A37 A38.

A new leader has all that earlier terms committed; it commits nothing before an entry of its own
term; and once a term has acknowledged a message, no earlier term acknowledges one that was sent
later. All three compare terms and indexes, never clocks of different nodes.

Source: spec/proof.md A36 to A38; Raft paper 5.4.1 (leader completeness), 5.4.2 (commit of an
earlier term's entries), 8 (a leader that was replaced and does not know).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import pairwise

from chaos.checker.alone import acknowledged_alone, lonely_spans
from chaos.checker.model import History, Result, lacking, result, unchecked, undecided
from chaos.history.columns import Row

Lead = tuple[int, int, str]
"""Group, term and node of one that leads."""
FREQUENT = frozenset({"append", "commit"})
"""Kinds of events that have files of their own, which are the first to be written over."""
NO_EVENTS = "no replica noted that it leads"


def check_completeness(history: History) -> Result:
    """A36: the log of a new leader reaches as far as anything was committed in earlier terms.

    How far its log reached stands in the votes for it. What earlier terms committed is what any
    node noted, or was told to a producer (``raft_index``). A leader that nobody else voted for is
    not judged.
    """
    leaders = _leaders(history)
    if not leaders:
        return unchecked("A36", NO_EVENTS)
    noted = [
        row
        for row in history.raft_events
        if row["kind"] == "commit"
        or (row["kind"] == "vote_granted" and _office(row, row["peer"]) in leaders)
    ]
    if missing := lacking("raft_event", noted, "term", "index"):
        return undecided("A36", f"needs {missing} of votes and commits")
    reached: dict[tuple[int, int, str], int] = {}
    committed: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    for row in noted:
        group, term, index = row.get("group") or 0, row["term"], row["index"]
        if row["kind"] == "commit":
            committed[group, term] = max(committed[group, term], index)
        else:
            office = (group, term, row["peer"])
            reached[office] = max(reached.get(office, -1), index)
    for send in history.ok_sends:
        if send.get("raft_term") is not None and send.get("raft_index") is not None:
            at = (send.get("raft_group") or 0, send["raft_term"])
            committed[at] = max(committed[at], send["raft_index"])
    found = []
    for (group, term, node), last in sorted(reached.items()):
        earlier = [i for (g, t), i in committed.items() if g == group and t < term]
        before = max(earlier, default=-1)
        if before > last:
            explain = (
                f"{node} leads term {term} with a log that ended at {last}, and up to {before} "
                "was committed before"
            )
            key = f"{node}:{term}"
            found.append({"key": key, "node": node, "term": term, "explain": explain})
    summary = f"{len(reached)} leaders, {len(found)} lacked what was committed"
    return result("A36", found, summary, leaders=len(reached))


def check_old_terms(history: History) -> Result:
    """A37: a leader's commit index passes no entry of earlier terms before one of its own term.

    Its own entries are those that it notes to append in its term. Of a leader whose appends may
    have been written over in its event files nothing is said.
    """
    leaders = _leaders(history)
    if not leaders:
        return unchecked("A37", NO_EVENTS)
    kinds = FREQUENT | {"become_leader"}
    noted = [row for row in history.raft_events if row["kind"] in kinds]
    if missing := lacking("raft_event", noted, "seq", "term"):
        return undecided("A37", f"needs {missing} of leaders, appends and commits")
    frequent = [row for row in noted if row["kind"] in FREQUENT]
    if missing := lacking("raft_event", frequent, "index", "prev_index"):
        return undecided("A37", f"needs {missing} of appends and commits")
    since = _leads(history)
    own: dict[Lead, int] = {}
    for row in frequent:
        office = _office(row, row["node"])
        if row["kind"] == "append" and office in since:
            own[office] = min(own.get(office, row["prev_index"]), row["prev_index"])
    found = []
    for row in sorted(frequent, key=lambda row: (row["node"], row["seq"])):
        office = _office(row, row["node"])
        if row["kind"] != "commit" or row["seq"] < since.get(office, row["seq"] + 1):
            continue
        before = own.get(office)
        if before is None or row["index"] <= before:
            said = "has none" if before is None else f"begin at {before + 1}"
            explain = (
                f"{row['node']} leads term {row['term']} and committed up to {row['index']} "
                f"(event {row['seq']}); its entries of that term {said}"
            )
            key = f"{row['node']}:{row['term']}"
            found.append({"key": key, "node": row["node"], "term": row["term"], "explain": explain})
    summary = f"{len(since)} leaders, {len(found)} commits before an entry of their own"
    return result("A37", found, summary, leaders=len(since))


def check_stale(history: History) -> Result:
    """A38: a message sent after a later term had acknowledged one is not taken in an earlier term.

    Whoever led the earlier term was replaced by then and had no majority any more. Nor is one
    acknowledged while too few brokers ran to hold it.
    """
    told = [send for send in history.ok_sends if send.get("raft_term") is not None]
    alone = list(acknowledged_alone(history))
    if not told and not lonely_spans(history):
        return unchecked("A38", "no send says in which term it was acknowledged (raft_term)")
    if missing := lacking("sends", told, "t_cmp"):
        return undecided("A38", f"needs {missing} of sends with a raft_term")
    first: dict[int, dict[int, int]] = defaultdict(dict)
    for send in told:
        terms, term = first[send.get("raft_group") or 0], send["raft_term"]
        terms[term] = min(terms.get(term, send["t_cmp"]), send["t_cmp"])
    over: dict[tuple[int, int], tuple[int, int]] = {}
    for group, terms in first.items():
        earliest: tuple[int, int] | None = None
        for later, term in pairwise(sorted(terms, reverse=True)):
            here = (terms[later], later)
            earliest = here if earliest is None else min(earliest, here)
            over[group, term] = earliest
    found, known = list(alone), {(row["op_id"], row["msg_key"]) for row in alone}
    for send in told:
        at = (send.get("raft_group") or 0, send["raft_term"])
        if at in over and send["t_inv"] > over[at][0] and not _is_among(send, known):
            explain = (
                f"message {send['msg_key']} (op {send['op_id']}) was acknowledged in term "
                f"{at[1]}, and was sent after term {over[at][1]} had acknowledged others"
            )
            found.append({"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain})
    terms_seen = sum(map(len, first.values()))
    summary = (
        f"{len(told)} acknowledgements of {terms_seen} terms, {len(found) - len(alone)} too late; "
        f"{len(alone)} by too few"
    )
    return result("A38", found, summary, acknowledged=len(told))


def _is_among(send: Row, known: Collection[tuple[int, int]]) -> bool:
    return (send["op_id"], send["msg_key"]) in known


def _leaders(history: History) -> set[Lead]:
    """Return group, term and node of all that noted that they lead."""
    return {
        _office(row, row["node"])
        for row in history.raft_events
        if row["kind"] == "become_leader" and row["term"] is not None
    }


def _office(row: Row, node: str) -> Lead:
    return row.get("group") or 0, row["term"], node


def _leads(history: History) -> dict[Lead, int]:
    """Return with which event each leader began whose appends and commits are all there since."""
    since: dict[Lead, int] = {}
    for row in history.raft_events:
        if row["kind"] == "become_leader":
            office = _office(row, row["node"])
            since[office] = min(since.get(office, row["seq"]), row["seq"])
    known = _known_since(history.raft_events)
    return {office: seq for office, seq in since.items() if seq >= known.get(office[2], 0)}


def _known_since(events: Iterable[Row]) -> dict[str, int]:
    """Return from which event on the appends and commits of a node are all there.

    Nodes of which no event at all is missing are left out.
    """
    numbers: dict[str, set[int]] = defaultdict(set)
    first: dict[str, int] = {}
    for row in events:
        if row["seq"] is not None:
            numbers[row["node"]].add(row["seq"])
            if row["kind"] in FREQUENT:
                first[row["node"]] = min(first.get(row["node"], row["seq"]), row["seq"])
    return {
        node: first.get(node, 1 << 62)
        for node, seen in numbers.items()
        if len(seen) != max(seen) - min(seen) + 1
    }
