"""What became of messages: lost, phantom, corrupt, aborted (A1 A5 A6 A7).

Source: spec/proof.md 3.1, 3.2.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chaos.checker.effects import find_gap
from chaos.checker.model import UNKNOWN, VALID, History, Holder, Result, result, undecided
from chaos.checker.sends import WAITS
from chaos.checker.skipped import IN_DOUBT, SKIPPED, Skips
from chaos.history.columns import Row
from chaos.history.outcome import CODES
from chaos.history.payload import split_key

Queue = tuple[str, str, int | None]
"""Group, topic, queue."""
DRAINED_NS: Final = 60_000_000_000
"""For so long after the last that happened queues may be read to their ends."""


def check_loss(history: History) -> Result:
    """A1: an acknowledged message that a group never got although its queue was drained.

    ``where`` names the guilty layer: vanished (on no replica), stranded (on fewer than a quorum),
    index-side (on a quorum, yet the auditor could not read it), delivery-side (only the group
    missed it). ``kind``: hole (a later message of the queue was delivered) or suffix.
    """
    if not history.deliveries:
        return undecided("A1", "no delivery was recorded")
    return find_lost(history)


def find_lost(history: History) -> Result:
    """Return A1 where it is known that deliveries are recorded, though there may be none."""
    if not history.groups:
        return undecided("A1", "no group consumed anything")
    found = _sorted_loss(history)
    silent = silent_groups(history)
    if found.verdict == VALID and silent:
        names = ", ".join(sorted(silent))
        return undecided(
            "A1", f"nothing tells what {names} consumed, which run.json names in modes"
        )
    return found


def silent_groups(history: History) -> set[str]:
    """Return the groups that run.json names in modes and of which nothing tells what they got."""
    return history.modes.keys() - history.groups.keys() - {d["grp"] for d in history.deliveries}


def _sorted_loss(history: History) -> Result:
    """Return A1 of the groups of which something is known."""
    if not _absent(history):
        return result("A1", [], f"all {len(history.ok_sends)} acknowledged messages were delivered")
    absent = sort_absent(history)
    highest: dict[Queue, int] = defaultdict(lambda: -1)
    for row in history.deliveries:
        queue = (row["grp"], row["topic"], row["queue_id"])
        highest[queue] = max(highest[queue], row["queue_offset"])
    copies = _copies(history, {send["msg_key"] for _, send in absent.lost})
    lost = []
    for group, send in absent.lost:
        queue = (group, send["topic"], send["queue_id"])
        lost.append(_lost_row(history, send, copies, (group, highest[queue])))
    removed, late, skipped = absent.removed, absent.late, absent.skipped
    details = {
        "most_of_a_group": max(Counter(row["grp"] for row in lost).values(), default=0),
        "undrained": absent.undrained,
        "removed_by_retention": removed,
        "not_owed_by_a_late_group": late,
        "skipped_by_a_reset": skipped,
    }
    if not lost and absent.undrained:
        why = f"{absent.undrained} undelivered messages in undrained queues, or not due by far"
        return undecided("A1", why, **details)
    split = Counter(f"{row['where']} ({row['kind']})" for row in lost)
    summary = ", ".join(f"{n} {what}" for what, n in sorted(split.items())) or (
        f"none lost; {removed} removed by retention, {late} not owed by a group that began later, "
        f"{skipped} skipped by a reset"
    )
    return _unless_gaps(history, result("A1", lost, summary, **details))


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """What became of acknowledged messages that a group did not get."""

    lost: list[tuple[str, Row]]
    """Group and send, with its place."""
    undrained: int
    removed: int
    late: int
    skipped: int


def sort_absent(history: History) -> Absent:
    """Return what is lost of what groups did not get, and how much of it is not, and why."""
    drain = drains_of(history)
    lost: list[tuple[str, Row]] = []
    begins, skips = _log_begins(history), Skips(history)
    undrained = removed = late = skipped = 0
    for group, absent_send in _absent(history):
        send = where_found(history, absent_send)
        queue = (group, send["topic"], send["queue_id"])
        facts = drain.get(queue)
        if lies_before(send, begins.get(queue[1:])):
            removed += 1
        elif facts is not None and lies_before(send, facts["min_off"]):
            late += 1
        elif (said := skips.of(group, send)) == SKIPPED:
            skipped += 1
        elif said == IN_DOUBT or _is_open(history, queue, facts, send):
            undrained += 1
        else:
            lost.append((group, send))
    return Absent(lost=lost, undrained=undrained, removed=removed, late=late, skipped=skipped)


def drains_of(history: History) -> dict[Queue, Row]:
    """Return how far groups read their queues; of what is told twice what excuses, or proves, less.

    It was drained if all say so, and the group is owed what lies behind the lowest ``min_off``.
    """
    found: dict[Queue, Row] = {}
    for row in history.drain:
        queue = (row["grp"], row["topic"], row["queue_id"])
        known = found.get(queue, row)
        lows = [low for low in (known["min_off"], row["min_off"]) if low is not None]
        is_drained = known["drained"] and row["drained"]
        found[queue] = row | {"min_off": min(lows, default=None), "drained": is_drained}
    return found


def _absent(history: History) -> list[tuple[str, Row]]:
    """Return (group, acknowledged send) for all that a group is owed and did not get."""
    return [
        (group, send)
        for group, topics in sorted(history.groups.items())
        for send in history.ok_sends
        if send["topic"] in topics
        and send.get("kind") != "txn"  # committed, or not: A55
        and history.is_subscribed(group, send)
        and (group, send["msg_key"]) not in history.got
        and history.is_current(send)
    ]


def where_found(history: History, send: Row) -> Row:
    """Return a send with its place: of one that waited, where the first to see it found it."""
    if send["queue_id"] is not None or send.get("kind") not in WAITS:
        return send
    seen = history.first_found.get((send["msg_key"], send["topic"]))
    if seen is None:
        return send
    _, queue_id, offset = seen
    return send | {"queue_id": queue_id, "queue_offset": offset}


def _is_open(history: History, queue: Queue, facts: Row | None, send: Row) -> bool:
    """Tell whether a group may get a message yet."""
    return not _is_drained(history, queue, facts) or _is_to_come(history, send)


def _is_drained(history: History, queue: Queue, facts: Row | None) -> bool:
    """Tell whether a group read a queue to its end; of a message without one, all of its topic."""
    if queue[2] is not None:
        return facts is not None and bool(facts["drained"])
    mine = [d for d in history.drain if (d["grp"], d["topic"]) == queue[:2]]
    return bool(mine) and all(d["drained"] for d in mine)


def _is_to_come(history: History, send: Row) -> bool:
    """Tell whether a delayed message was not due, by far, when the record ended."""
    if send.get("kind") != "delay" or send.get("delay_ms") is None:
        return False
    sent = send["t_inv"] if send["t_cmp"] is None else send["t_cmp"]
    return bool(sent + send["delay_ms"] * 1_000_000 > history.end + DRAINED_NS)


def _log_begins(history: History) -> dict[tuple[str, int | None], int | None]:
    """Return where each queue began at the end, by whoever was told the lowest offset of it.

    What lies before is gone for all; a group that began later is owed less than the queue holds.
    """
    found: dict[tuple[str, int | None], int | None] = {}
    for row in history.drain:
        queue = (row["topic"], row["queue_id"])
        told = [low for low in (found.get(queue), row["min_off"]) if low is not None]
        found[queue] = min(told, default=None)
    return found


def lies_before(send: Row, low: int | None) -> bool:
    """Tell whether a message lies before an offset, as far as both are known."""
    offset = send["queue_offset"]
    return offset is not None and low is not None and bool(offset < low)


def _unless_gaps(history: History, found: Result) -> Result:
    """Return the result, unknown if the record has gaps: what is missing may be missing there."""
    gap = find_gap(history)
    if not gap or not found.count:
        return found
    return replace(found, verdict=UNKNOWN, summary=f"{found.summary}; but {gap}")


def _copies(history: History, keys: Collection[int]) -> dict[int, set[Holder]]:
    """Return the replicas that hold each of these messages."""
    copies: dict[int, set[Holder]] = defaultdict(set)
    for replica in history.replicas if keys else ():
        for row in replica.rows:
            if row.msg_key is not None and row.msg_key in keys:
                copies[row.msg_key].add((replica.group, replica.node))
    return copies


def _lost_row(
    history: History, send: Row, copies: dict[int, set[Holder]], missed: tuple[str, int]
) -> Row:
    key = send["msg_key"]
    group, highest = missed
    holders = copies.get(key, set())
    if not history.replicas:
        where = "no logs to say where"
    elif not holders:
        where = "vanished"
    elif not history.is_held(holders):
        where = "stranded"
    else:
        where = "delivery-side" if key in history.audited else "index-side"
    offset = send["queue_offset"]
    kind = "hole" if offset is not None and offset < highest else "suffix"
    pid, seq = split_key(key)
    place = f"{send['topic']}/{send['queue_id']}@{offset}"
    return {
        "msg_key": key,
        "op_id": send["op_id"],
        "place": place,
        "grp": group,
        "node": send.get("node"),
        "where": where,
        "kind": kind,
        "held_by": sorted(node for _, node in holders),
        "t_cmp": send["t_cmp"],
        "faults": faults_between(history, send["t_inv"], send["t_cmp"] or send["t_inv"]),
        "explain": f"message {pid}.{seq} was acknowledged at {place} and never delivered to "
        f"{group}: {where}",
    }


def faults_between(history: History, t0: int, t1: int) -> list[str]:
    """Return the faults in force at any time of t0..t1."""
    return [
        f["fault_id"]
        for f in history.faults
        if f["t_on0"] is not None and f["t_on0"] <= t1 and (f["t_off1"] or t1) >= t0
    ]


def check_phantom(history: History) -> Result:
    """A5: a delivered message that nobody sent (of this run, or not one of ours at all)."""
    if not history.sends and history.deliveries:
        return undecided("A5", "no send was recorded")
    found = []
    for row in history.own:
        key = row["msg_key"]
        if key is None and history.place(row) in history.ok_places:
            continue  # an unreadable body where something was sent: A6
        if key is None or key not in history.by_key:
            found.append(_seen(row, "was delivered but no send of it is recorded"))
    # Each message once; each place once where there is no key.
    unique = {row["place"] if row["msg_key"] is None else row["msg_key"]: row for row in found}
    foreign = len(history.deliveries) - len(history.own)
    summary = f"{len(unique)} never sent"
    phantoms = result("A5", list(unique.values()), summary, foreign_deliveries=foreign)
    return _unless_gaps(history, phantoms)


def check_corrupt(history: History) -> Result:
    """A6: a delivered body that differs from what was sent."""
    found: dict[object, Row] = {}
    for row in history.own:
        key = row["msg_key"]
        if key is None:
            place = history.place(row)
            there = None if place is None else history.ok_places.get(place)
            sends: Sequence[Row] = [] if there is None else [there]
        else:
            sends = history.by_key.get(key, [])
        if not sends or (key is not None and row["body_hash"] is None):
            continue
        known = {send["body_hash"] for send in sends} - {None}
        if key is None or (known and row["body_hash"] not in known):
            seen = _seen(row, f"has another body than was sent (op {sends[0]['op_id']})")
            found.setdefault(sends[0]["msg_key"], seen | {"key": str(sends[0]["msg_key"])})
    return result("A6", list(found.values()), f"{len(found)} bodies differ")


def refused(send: Row) -> bool:
    """Return whether it was said that a send did nothing.

    Where its attempts are on record the outcome is the client's own word, and it stands; where they
    are not, whoever wrote the history classified a code, and today's table must agree.
    """
    meaning = CODES.get(send.get("err_code") or 0)
    said = send.get("tries") is not None or meaning is None or meaning.definite
    return send["outcome"] == "fail" and said


def check_aborted(history: History) -> Result:
    """A7: a message whose every send certainly failed was delivered, or lies committed in a log."""
    never = {
        key: sends[0] for key, sends in history.by_key.items() if all(refused(s) for s in sends)
    }
    found: dict[int, Row] = {}
    for row in history.own:
        send = never.get(row["msg_key"])
        if send is not None:
            seen = _seen(row, f"was refused with code {send['err_code']}, yet delivered")
            found.setdefault(send["msg_key"], seen)
    for replica in history.replicas if never else ():
        for entry in replica.committed():
            send = None if entry.msg_key is None else never.get(entry.msg_key)
            if send is not None and entry.type == "message":
                explain = (
                    f"message {entry.msg_key} was refused with code {send['err_code']}, yet "
                    f"{replica.node} committed it at index {entry.entry_index}"
                )
                about = {"msg_key": entry.msg_key, "op_id": send["op_id"], "explain": explain}
                found.setdefault(send["msg_key"], about)
    return result("A7", list(found.values()), f"{len(found)} refused sends took effect")


def _seen(row: Row, what: str) -> Row:
    place = f"{row['topic']}/{row['queue_id']}@{row['queue_offset']}"
    return {
        "msg_key": row["msg_key"],
        "op_id": row["op_id"],
        "place": place,
        "grp": row["grp"],
        "t_recv": row["t_recv"],
        "explain": f"message {row['msg_key']} at {place} {what}",
    }
