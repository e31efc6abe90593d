"""The replicas' logs against each other and against what was acknowledged: A34 A35.

Source: spec/proof.md 3.6; Raft paper 5.3 (log matching), 5.4 (committed entries stay).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chaos.catalogue.checks import CHECKS
from chaos.catalogue.contracts import QUORUM
from chaos.catalogue.faults import forgets
from chaos.checker.agreement import Committed, Compared, Index
from chaos.checker.events import find_cut_commits
from chaos.checker.messages import refused
from chaos.checker.model import (
    NEVER,
    NOT_CHECKED,
    History,
    Holder,
    Replica,
    Result,
    result,
)
from chaos.checker.sends import WAITS
from chaos.history.columns import Row

Content = tuple[int, int]
"""Term and CRC of an entry."""
Entry = tuple[str, int, int]
"""Raft group, index, term."""
BEHIND = "it lies behind an entry of a later term"
HELD, CUT = 1, 2
"""Of a message and a log: it lies there, it lies where others have lost their beginning."""
NAMED_MAX = 1_000
"""So many committed indexes that no log has are named; the others are counted."""


def check_log_matching(history: History) -> Result:
    """A34: entries of equal index and term have equal content, committed or not, and are whole.

    And terms rise along each log. Damage beyond what is committed is a torn tail; damage by a fault
    of the node's disk is excused.
    """
    if not history.replicas:
        return _not_checked("A34")
    logs = Compared(history)
    contents, damaged = _contents(history, logs.several)
    found: list[Row] = []
    for entry in sorted(contents.keys() | damaged.keys()):
        views = contents.get(entry, {})
        if len(views) < 2 and entry not in damaged:
            continue
        words = [f"{crc:08x} on {', '.join(nodes)}" for crc, nodes in views.items()]
        if entry in damaged:
            words.append(f"committed and damaged on {', '.join(damaged[entry])}")
        group, index, term = entry
        explain = f"index {index} term {term}: {'; '.join(words)}"
        key = _key_of(history, group, index)
        found.append({"key": key, "index": index, "term": term, "explain": explain})
    found += _falling_terms(history, logs.several)
    sizes = {replica.node: len(replica.rows) for replica in history.replicas}
    pairs = logs.number + sum(entry[:2] in logs.several for entry in contents) - len(logs.several)
    summary = f"{pairs} (index, term) pairs compared"
    if found:
        summary += f", {len(found)} differ or are damaged"
    return result("A34", found, summary, entries=sizes)


def _falling_terms(history: History, several: Collection[Index]) -> list[Row]:
    """Return the terms of which a log has an entry behind one of a later term, one row for each.

    Of what logs agree on: at the indexes of ``several`` they differ, which is said already. Where a
    disk was wiped terms may begin once more; a plain log has none.
    """
    if any(forgets(fault["kind"]) for fault in history.taking):
        return []
    found: dict[tuple[int, int], int] = {}
    for replica in history.replicas:
        spans: dict[int, tuple[int, int]] = {}
        is_asked = not replica.is_plain and replica.node not in history.damaged_nodes
        for row in replica.rows if is_asked else ():
            index, term = row.entry_index, row.term
            if row.crc_ok and index >= 0 and (replica.group, index) not in several:
                low, high = spans.get(term, (index, index))
                spans[term] = (min(low, index), max(high, index))
        for term, high in _behind_later(spans):
            at = (replica.number, term)
            found[at] = max(high, found.get(at, high))
    return [
        {"key": f"{number}:{index}", "explain": f"index {index} term {term}: {BEHIND}"}
        for (number, term), index in sorted(found.items())
    ]


def _behind_later(spans: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the terms, each with its last index, that reach behind the begin of a later term."""
    later = NEVER
    for term in sorted(spans, reverse=True):
        low, high = spans[term]
        if high > later:
            yield term, high
        later = min(low, later)


def _key_of(history: History, group: str, index: int) -> str:
    """Return by what both checkers name an index: its group's number, as sends have it, and it."""
    number = next(replica.number for replica in history.replicas if replica.group == group)
    return f"{number}:{index}"


def _contents(
    history: History, several: Collection[Index]
) -> tuple[dict[Entry, dict[int, list[str]]], dict[Entry, list[str]]]:
    """Return who holds which content of the entries at these indexes.

    And who has which entry committed and damaged, with what others hold of it.
    """
    damaged: dict[Entry, list[str]] = defaultdict(list)
    for replica in history.replicas:
        if replica.node not in history.damaged_nodes:
            for row in replica.committed():
                if not row.crc_ok:
                    damaged[replica.group, row.entry_index, row.term].append(replica.node)
    contents: dict[Entry, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for replica in history.replicas if several or damaged else ():
        for row in replica.rows:
            entry = (replica.group, row.entry_index, row.term)
            if row.crc_ok and (entry[:2] in several or entry in damaged):
                contents[entry][row.entry_crc].append(replica.node)
    return contents, damaged


def check_committed(history: History) -> Result:
    """A35: what two replicas both call committed is the same entry, and is there.

    Also: an acknowledged message at whose index, as its producer was told, something else was
    committed, or that a replica holds there and that nobody committed anywhere; one that was read
    and lies on fewer than a majority now. And: no node cuts what it had called committed.
    """
    if not history.replicas and not history.raft_events:
        return _not_checked("A35")
    committed = Committed(history, without_damaged=True)
    views = _views_of(history, committed)
    found: list[Row] = [
        {
            "key": _key_of(history, *at),
            "index": at[1],
            "views": {n: list(v) for n, v in held.items()},
            "explain": words,
        }
        for at, held in sorted(views.items())
        if (words := _describe(history, at, held)) is not None
    ]
    divergent = sum(len(set(held.values())) > 1 for held in views.values())
    absent, absences = _nowhere(history, committed)
    replaced = _told_elsewhere(history)
    known = {row["msg_key"] for row in replaced}
    others = _replaced(history, committed)
    replaced += [row for row in others if row["msg_key"] not in known]
    under_replicated = _under_replicated(history, {row["msg_key"] for row in replaced})
    commits = {replica.node: replica.commit_index for replica in history.replicas}
    summary = f"{len(committed)} committed entries compared, {divergent} differ"
    if absent:
        summary += f", {absences} are in no log"
    if under_replicated:
        summary += f"; {len(under_replicated)} acknowledged, read, and on no majority any more"
    found += absent + replaced + under_replicated + find_cut_commits(history)
    made = result(
        "A35", found, summary, commit_index=commits, divergent=divergent, nowhere=absences
    )
    return replace(made, count=made.count + absences - len(absent))


def check_later(history: History) -> Result:
    """A35 of what was sent after all faults that took disks: the logs have it, at its index."""
    replaced = _told_elsewhere(history)
    replaced += _replaced(history, Committed(history, without_damaged=False))
    told = {row["msg_key"] for row in replaced}
    found = {row["msg_key"]: row for row in [*replaced, *_under_replicated(history, told)]}
    return result("A35", list(found.values()), f"{len(found)} messages are not where they were")


def _views_of(history: History, committed: Committed) -> dict[Index, dict[str, Content]]:
    """Return what nodes have at the indexes at which something may be wrong."""
    views: dict[Index, dict[str, Content]] = {at: {} for at in committed.odd}
    for replica in history.replicas if views else ():
        for row in committed.rows(replica):
            held = views.get((replica.group, row.entry_index))
            if held is not None:
                content, name = (row.term, row.entry_crc), replica.node
                if held.setdefault(name, content) != content:  # two dumps of one node
                    held[f"{name} once more"] = content
    return views


def _describe(history: History, at: Index, held: dict[str, Content]) -> str | None:
    """Return what is wrong at a committed index; None if nothing is."""
    group, index = at
    owing = [
        r.node
        for r in history.replicas
        if r.group == group
        and r.first_index <= index <= r.commit_index
        and r.node not in history.damaged_nodes
    ]
    missing = [node for node in owing if node not in held]
    if len(set(held.values())) > 1:
        return f"index {index}: " + "; ".join(
            f"{node} term {term} content {crc:08x}" for node, (term, crc) in held.items()
        )
    if missing:
        return f"index {index} is committed but not on {', '.join(missing)}"
    return None


def _nowhere(history: History, committed: Committed) -> tuple[list[Row], int]:
    """Return the indexes that a replica calls committed and of which no log has anything.

    And how many there are: a commit index may be any number, so not each gets a row.
    """
    held = committed.indexes()
    told: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for replica in history.replicas:
        if replica.node not in history.damaged_nodes and not replica.is_plain:
            span = (replica.first_index, replica.commit_index + 1, replica.node)
            told[replica.group].append(span)
    found: list[Row] = []
    number = 0
    for group, spans in sorted(told.items()):
        reached = 0
        for first, stop, node in sorted(spans):
            for low, high in _gaps(held.get(group, ()), max(first, reached), stop):
                number += high - low
                for index in range(low, min(high, low + NAMED_MAX - len(found))):
                    explain = f"index {index} is committed on {node} but in no log"
                    found.append({"index": index, "node": node, "explain": explain})
            reached = max(reached, stop)
    for group in sorted({replica.group for replica in history.replicas if replica.is_plain}):
        bytes_lacking = list(_uncovered(history, group))
        found += bytes_lacking
        number += len(bytes_lacking)
    return found, number


def _gaps(held: Sequence[int], low: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches of ``low..stop`` in which nothing is held; ``held``: in order."""
    for index in held[bisect_left(held, low) : bisect_left(held, stop)]:
        if index > low:
            yield low, index
        low = index + 1
    if low < stop:
        yield low, stop


def _uncovered(history: History, group: str) -> Iterator[Row]:
    """Yield one row if plain logs call bytes committed that no log's entries cover."""
    logs = [r for r in history.replicas if r.group == group and r.is_plain]
    owing = [r for r in logs if r.node not in history.damaged_nodes and _lacks_bytes(r)]
    if not owing:
        return
    low, high = min(r.first_index for r in owing), max(r.commit_index for r in owing)
    sizes = {row.entry_index: row.size for one in logs for row in one.rows}
    covered = sum(size for index, size in sizes.items() if low <= index <= high)
    lacking = high - low + 1 - covered
    if lacking > 0:
        explain = f"{lacking} bytes of {low}..{high} are committed but in no log"
        yield {"index": high, "node": owing[0].node, "explain": explain}


def _lacks_bytes(replica: Replica) -> bool:
    """Tell whether the committed entries of a plain log leave out some of its bytes."""
    first = replica.first_index
    held = sum(row.size for row in replica.committed() if row.entry_index >= first)
    return bool(held < replica.commit_index - first + 1)


def _replaced(history: History, committed: Committed) -> list[Row]:
    beyond: list[tuple[int, int, str]] = []
    for replica in history.replicas:
        for row in replica.rows:
            key, index = row.msg_key, row.entry_index
            if key is None or index <= replica.commit_index:
                continue
            if _acknowledged(history, key) and (replica.group, index) in committed:
                beyond.append((key, index, replica.node))
    keys = {key for key, _, _ in beyond}
    for replica in history.replicas if keys else ():
        keys -= {row.msg_key for row in committed.rows(replica) if row.msg_key in keys}
    found: dict[int, Row] = {}
    for key, index, node in beyond:
        if key in keys:
            explain = (
                f"message {key} was acknowledged (op {_acknowledged(history, key)[-1]['op_id']}); "
                f"{node} holds it at index {index}, where others committed something else"
            )
            found[key] = {"msg_key": key, "index": index, "explain": explain}
    return list(found.values())


def _acknowledged(history: History, key: int) -> list[Row]:
    """Return the acknowledged sends of a message."""
    return [send for send in history.by_key.get(key, ()) if send["outcome"] == "ok"]


def _told_elsewhere(history: History) -> list[Row]:
    """Return acknowledged messages at whose index (``raft_index``) something else was committed.

    A message without a key may be the one that was sent; what waits lies there in another form.
    """
    told = [s for s in history.ok_sends if s.get("raft_index") is not None]
    there: dict[tuple[int, int], list[tuple[str, int | None]]] = defaultdict(list)
    for replica in history.replicas if told else ():
        for row in replica.committed():
            if row.type != "unreadable" and (
                row.crc_ok or replica.node not in history.damaged_nodes
            ):
                there[replica.number, row.entry_index].append((row.type, row.msg_key))
    found: dict[int, Row] = {}
    for send in told:
        index, key = send["raft_index"], send["msg_key"]
        entries = there.get((send.get("raft_group") or 0, index), ())
        messages = [held for kind, held in entries if kind == "message"]
        keys = [held for held in messages if held is not None]
        differs = max(keys) != key if keys else not messages
        if entries and differs and send.get("kind") not in WAITS:
            explain = (
                f"message {key} was acknowledged (op {send['op_id']}) at index {index}, where "
                "replicas committed something else"
            )
            found.setdefault(key, {"msg_key": key, "index": index, "explain": explain})
    return list(found.values())


def _under_replicated(history: History, told: set[int]) -> list[Row]:
    """Return messages that somebody read and too few logs hold (`_promised_sends`).

    What nobody read is for A1 to name; ``told``: already named. Nothing is said of what lies where
    a log of its group has lost its beginning to retention, or where logs hold no keys of ours.
    """
    logs = _Holders(history)
    read = bytearray(history.by_key.size)
    for row in history.own if logs.has_keys else ():
        if (number := history.by_key.number.get(row["msg_key"])) is not None:
            read[number] = 1
    found: dict[int, Row] = {}
    for send in _promised_sends(history) if logs.has_keys else ():
        key = send["msg_key"]
        is_owed = read[history.by_key.number[key]] and key not in told and history.is_current(send)
        holders, is_cut = logs.of(send) if is_owed else (set(), True)
        if not history.is_held(holders) and not is_cut:
            nodes = ", ".join(sorted(node for _, node in holders)) or "no replica"
            how = "was acknowledged" if send["outcome"] == "ok" else "may have been stored"
            explain = (
                f"message {key} {how} (op {send['op_id']}) and was delivered, but lies on "
                f"{nodes}: on fewer than {_promised(history, holders)}"
            )
            found[key] = {"msg_key": key, "op_id": send["op_id"], "explain": explain}
    return list(found.values())


class _Holders:
    """Which logs hold which message, by its key, or by its place where it has none."""

    def __init__(self, history: History) -> None:
        self.has_keys = False
        self._history = history
        self._begins: dict[str, int] = defaultdict(int)
        """By group, where the last of its logs begins."""
        for replica in history.replicas:
            self._begins[replica.group] = max(self._begins[replica.group], replica.first_index)
        sends = history.by_key
        self._marks: dict[Holder, bytearray] = {}
        self._places: dict[tuple[Any, ...], set[tuple[Holder, int]]] = defaultdict(set)
        for replica in history.replicas:
            one = (replica.group, replica.node)
            begin = self._begins[replica.group]
            marks = self._marks.setdefault(one, bytearray(sends.size))
            for row in replica.rows:
                if row.msg_key is not None:
                    self.has_keys = True
                    if (number := sends.number.get(row.msg_key)) is not None:
                        marks[number] |= HELD | (CUT if row.entry_index < begin else 0)
                elif row.type == "message":
                    place = (row.topic, row.queue_id, row.queue_offset)
                    self._places[place].add((one, row.entry_index))

    def of(self, send: Row) -> tuple[set[Holder], bool]:
        """Return which logs hold a message, and whether some may have lost it to retention."""
        number = self._history.by_key.number[send["msg_key"]]
        marks = {one: held[number] for one, held in self._marks.items() if held[number]}
        is_cut = any(mark & CUT for mark in marks.values()) or (
            not marks and _may_be_cut(self._history, self._begins, send)
        )
        at = self._places.get((send["topic"], send["queue_id"], send["queue_offset"]), set())
        is_cut = is_cut or any(index < self._begins[group] for (group, _), index in at)
        return marks.keys() | {one for one, _ in at}, is_cut


def _promised_sends(history: History) -> Iterator[Row]:
    """Yield the sends whose messages have to lie on so many logs: what was acknowledged.

    And, where a majority holds whatever anybody can read, what was read though nobody knows the
    outcome of any of its sends: with the place where it was found.
    """
    yield from history.ok_sends
    if history.contract.get("durability") != QUORUM:
        return
    for key, sends in history.by_key.items():
        first = sends[0]
        is_open = not any(one["outcome"] == "ok" for one in sends) and not all(map(refused, sends))
        seen = history.first_found.get((key, first["topic"])) if is_open else None
        if seen is not None and first["topic"] not in history.anew:
            yield first | {"queue_id": seen[1], "queue_offset": seen[2], "raft_index": None}


def _may_be_cut(history: History, begins: Mapping[str, int], send: Row) -> bool:
    """Tell whether a message whose key no log has may lie where some have lost their beginning.

    ``begins``: by group, where the last of its logs begins.
    """
    if send.get("raft_index") is None or send.get("kind") in WAITS:
        return any(begin > 0 for begin in begins.values())
    mine = {r.group for r in history.replicas if r.number == (send.get("raft_group") or 0)}
    return any(send["raft_index"] < begins[group] for group in mine)


def _promised(history: History, held: Collection[Holder]) -> str:
    """Return on how many logs a message would have to lie, by the groups whose logs hold it."""
    groups = {group for group, _ in held} or {replica.group for replica in history.replicas}
    return " or ".join(map(str, sorted({history.promised_in(group) for group in groups})))


def _not_checked(check: str) -> Result:
    return Result(
        check=check,
        verdict=NOT_CHECKED,
        severity=CHECKS[check].severity,
        summary="the run has no replicas' logs",
    )
