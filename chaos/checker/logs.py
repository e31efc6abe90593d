"""The replicas' logs against each other and against what was acknowledged: A34 A35.

Source: spec/proof.md 3.6; Raft paper 5.3 (log matching), 5.4 (committed entries stay).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from chaos.catalogue.checks import CHECKS
from chaos.catalogue.contracts import QUORUM
from chaos.catalogue.faults import forgets
from chaos.checker.events import find_cut_commits
from chaos.checker.messages import refused
from chaos.checker.model import (
    NEVER,
    NOT_CHECKED,
    History,
    Holder,
    Replica,
    Result,
    Row,
    result,
)
from chaos.checker.sends import WAITS

Content = tuple[int, int]
"""Term and CRC of an entry."""
Index = tuple[str, int]
"""Raft group and index."""
Entry = tuple[str, int, int]
"""Raft group, index, term."""
BEHIND = "it lies behind an entry of a later term"
NAMED_MAX = 1_000
"""So many committed indexes that no log has are named; the others are counted."""


def check_log_matching(history: History) -> Result:
    """A34: entries of equal index and term have equal content, committed or not, and are whole.

    And terms rise along each log. Damage beyond what is committed is a torn tail; damage by a fault
    of the node's disk is excused.
    """
    if not history.replicas:
        return _not_checked("A34")
    contents, damaged = _contents(history)
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
    found += _falling_terms(history, contents)
    sizes = {replica.node: len(replica.rows) for replica in history.replicas}
    summary = f"{len(contents)} (index, term) pairs compared"
    if found:
        summary += f", {len(found)} differ or are damaged"
    return result("A34", found, summary, entries=sizes)


def _falling_terms(history: History, contents: Mapping[Entry, Collection[int]]) -> list[Row]:
    """Return the terms of which a log has an entry behind one of a later term, one row for each.

    Of what logs agree on: where they differ that is said already. Where a disk was wiped terms may
    begin once more; a plain log has none.
    """
    if any(forgets(fault["kind"]) for fault in history.taking):
        return []
    views = Counter[Index]()
    for (group, index, _), crcs in contents.items():
        views[group, index] += len(crcs)
    found: dict[tuple[int, int], int] = {}
    for replica in history.replicas:
        spans: dict[int, tuple[int, int]] = {}
        is_asked = not replica.is_plain and replica.node not in history.damaged_nodes
        for row in replica.rows if is_asked else ():
            index, term = row.entry_index, row.term
            if row.crc_ok and index >= 0 and views[replica.group, index] == 1:
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
    history: History,
) -> tuple[dict[Entry, dict[int, list[str]]], dict[Entry, list[str]]]:
    """Return who holds which content of each entry, and who has it committed and damaged."""
    contents: dict[Entry, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    damaged: dict[Entry, list[str]] = defaultdict(list)
    for replica in history.replicas:
        excused = replica.node in history.damaged_nodes
        for row in replica.rows:
            entry = (replica.group, row.entry_index, row.term)
            if row.crc_ok:
                contents[entry][row.entry_crc].append(replica.node)
            elif 0 <= row.entry_index <= replica.commit_index and not excused:
                damaged[entry].append(replica.node)
    return contents, damaged


def check_committed(history: History) -> Result:
    """A35: what two replicas both call committed is the same entry, and is there.

    Also: an acknowledged message at whose index, as its producer was told, something else was
    committed, or that a replica holds there and that nobody committed anywhere; one that was read
    and lies on fewer than a majority now. And: no node cuts what it had called committed.
    """
    if not history.replicas and not history.raft_events:
        return _not_checked("A35")
    views: dict[Index, dict[str, Content]] = defaultdict(dict)
    committed_keys: set[int] = set()
    for replica in history.replicas:
        for row in replica.committed():
            if not row.crc_ok and replica.node in history.damaged_nodes:
                continue
            content = (row.term, row.entry_crc)
            held, name = views[replica.group, row.entry_index], replica.node
            if held.setdefault(name, content) != content:  # two dumps of one node
                held[f"{name} once more"] = content
            if row.msg_key is not None:
                committed_keys.add(row.msg_key)
    found = [
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
    absent, absences = _nowhere(history, views)
    replaced = _told_elsewhere(history)
    known = {row["msg_key"] for row in replaced}
    others = _replaced(history, views, committed_keys)
    replaced += [row for row in others if row["msg_key"] not in known]
    under_replicated = _under_replicated(history, {row["msg_key"] for row in replaced})
    commits = {replica.node: replica.commit_index for replica in history.replicas}
    summary = f"{len(views)} committed entries compared, {divergent} differ"
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
    committed = [(r.group, row) for r in history.replicas for row in r.committed()]
    views = {(group, row.entry_index) for group, row in committed}
    replaced = _told_elsewhere(history)
    replaced += _replaced(
        history, views, {key for _, row in committed if (key := row.msg_key) is not None}
    )
    told = {row["msg_key"] for row in replaced}
    found = {row["msg_key"]: row for row in [*replaced, *_under_replicated(history, told)]}
    return result("A35", list(found.values()), f"{len(found)} messages are not where they were")


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


def _nowhere(history: History, views: Collection[Index]) -> tuple[list[Row], int]:
    """Return the indexes that a replica calls committed and of which no log has anything.

    And how many there are: a commit index may be any number, so not each gets a row.
    """
    held: dict[str, list[int]] = defaultdict(list)
    for group, index in sorted(views):
        held[group].append(index)
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
            for low, high in _gaps(held[group], max(first, reached), stop):
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


def _replaced(history: History, views: Collection[Index], committed: set[int]) -> list[Row]:
    acknowledged = {s["msg_key"]: s for s in history.ok_sends}
    found: dict[int, Row] = {}
    for replica in history.replicas:
        for row in replica.rows:
            key = row.msg_key
            if key is None or key in committed or row.entry_index <= replica.commit_index:
                continue
            if key in acknowledged and (replica.group, row.entry_index) in views:
                explain = (
                    f"message {key} was acknowledged (op {acknowledged[key]['op_id']}); "
                    f"{replica.node} holds it at index {row.entry_index}, where others committed "
                    "something else"
                )
                found[key] = {"msg_key": key, "index": row.entry_index, "explain": explain}
    return list(found.values())


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
    begins: dict[str, int] = defaultdict(int)
    for replica in history.replicas:
        begins[replica.group] = max(begins[replica.group], replica.first_index)
    held: dict[object, set[tuple[Holder, int]]] = defaultdict(set)
    has_keys = False
    for replica in history.replicas:
        one = (replica.group, replica.node)
        for row in replica.rows:
            if row.msg_key is not None:
                held[row.msg_key].add((one, row.entry_index))
                has_keys = True
            elif row.type == "message":
                held[row.topic, row.queue_id, row.queue_offset].add((one, row.entry_index))
    read = {row["msg_key"] for row in history.own}
    found: dict[int, Row] = {}
    for send in _promised_sends(history) if has_keys else ():
        key = send["msg_key"]
        place = (send["topic"], send["queue_id"], send["queue_offset"])
        there = held.get(key, set()) | held.get(place, set())
        holders = {one for one, _ in there}
        is_owed = key in read and key not in told and history.is_current(send)
        is_cut = any(index < begins[group] for (group, _), index in there) or (
            key not in held and _may_be_cut(history, begins, send)
        )
        if is_owed and not history.is_held(holders) and not is_cut:
            nodes = ", ".join(sorted(node for _, node in holders)) or "no replica"
            how = "was acknowledged" if send["outcome"] == "ok" else "may have been stored"
            explain = (
                f"message {key} {how} (op {send['op_id']}) and was delivered, but lies on "
                f"{nodes}: on fewer than {_promised(history, holders)}"
            )
            found[key] = {"msg_key": key, "op_id": send["op_id"], "explain": explain}
    return list(found.values())


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
