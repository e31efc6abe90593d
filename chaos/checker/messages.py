"""What became of messages: lost, phantom, corrupt, aborted (A1 A5 A6 A7).

Source: chaos.md 3.1, 3.2.
"""

from collections import Counter, defaultdict

from chaos.checker.model import History, Result, Row, result, undecided
from chaos.history.payload import split_key


def check_loss(history: History) -> Result:
    """A1: an acknowledged message that the group never got although its queue was drained.

    ``where`` names the guilty layer: vanished (on no replica), stranded (on fewer than a quorum),
    index-side (on a quorum, yet the auditor could not read it), delivery-side (only the group
    missed it). ``kind``: hole (a later message of the queue was delivered) or suffix.
    """
    got = {d["msg_key"] for d in history.to_group}
    absent = [s for s in history.ok_sends if s["msg_key"] not in got]
    if not absent:
        return result("A1", [], f"all {len(history.ok_sends)} acknowledged messages were delivered")
    drain = {d["queue_id"]: d for d in history.drain if d["grp"] == history.group}
    highest: dict[int, int] = defaultdict(lambda: -1)
    for row in history.to_group:
        highest[row["queue_id"]] = max(highest[row["queue_id"]], row["queue_offset"])
    copies = _copies(history)
    lost: list[Row] = []
    undrained = removed = 0
    for send in absent:
        facts = drain.get(send["queue_id"])
        if facts is None or not facts["drained"]:
            undrained += 1
        elif send["queue_offset"] < facts["min_off"]:
            removed += 1
        else:
            lost.append(_lost_row(history, send, copies, highest[send["queue_id"]]))
    details = {"undrained": undrained, "removed_by_retention": removed}
    if not lost and undrained:
        return undecided("A1", f"{undrained} undelivered messages in undrained queues", **details)
    split = Counter(f"{row['where']} ({row['kind']})" for row in lost)
    summary = ", ".join(f"{n} {what}" for what, n in sorted(split.items())) or "none"
    return result("A1", lost, summary, **details)


def _copies(history: History) -> dict[int, set[str]]:
    """Return the replicas that hold each message."""
    copies: dict[int, set[str]] = defaultdict(set)
    for replica in history.replicas:
        for row in replica.rows:
            if row.msg_key is not None:
                copies[row.msg_key].add(replica.node)
    return copies


def _lost_row(history: History, send: Row, copies: dict[int, set[str]], highest: int) -> Row:
    key = send["msg_key"]
    holders = sorted(copies.get(key, ()))
    if not holders:
        where = "vanished"
    elif len(holders) < history.quorum:
        where = "stranded"
    else:
        where = "delivery-side" if key in history.audited else "index-side"
    kind = "hole" if send["queue_offset"] < highest else "suffix"
    pid, seq = split_key(key)
    place = f"{send['topic']}/{send['queue_id']}@{send['queue_offset']}"
    return {
        "msg_key": key,
        "op_id": send["op_id"],
        "place": place,
        "node": send.get("node"),
        "where": where,
        "kind": kind,
        "held_by": holders,
        "t_cmp": send["t_cmp"],
        "faults": faults_between(history, send["t_inv"], send["t_cmp"] or send["t_inv"]),
        "explain": f"message {pid}.{seq} was acknowledged at {place} and never delivered: {where}",
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
    found = []
    for row in history.own:
        key = row["msg_key"]
        if key is None and _sent_at(history, row) is not None:
            continue  # an unreadable body where something was sent: A6
        if key is None or key not in history.by_key:
            found.append(_seen(row, "was delivered but no send of it is recorded"))
    # Each message once; each place once where there is no key.
    unique = {row["msg_key"] or row["place"]: row for row in found}
    foreign = len(history.deliveries) - len(history.own)
    return result(
        "A5", list(unique.values()), f"{len(unique)} never sent", foreign_deliveries=foreign
    )


def check_corrupt(history: History) -> Result:
    """A6: a delivered body that differs from what was sent."""
    found: dict[object, Row] = {}
    for row in history.own:
        key = row["msg_key"]
        send = history.by_key.get(key) if key is not None else _sent_at(history, row)
        if send is not None and row["body_hash"] != send["body_hash"]:
            seen = _seen(row, f"has another body than was sent (op {send['op_id']})")
            found.setdefault(send["msg_key"], seen)
    return result("A6", list(found.values()), f"{len(found)} bodies differ")


def check_aborted(history: History) -> Result:
    """A7: a message whose send definitely failed was delivered."""
    found: dict[int, Row] = {}
    for row in history.own:
        send = history.by_key.get(row["msg_key"])
        if send is not None and send["outcome"] == "fail":
            seen = _seen(row, f"was refused with code {send['err_code']}, yet delivered")
            found.setdefault(send["msg_key"], seen)
    return result("A7", list(found.values()), f"{len(found)} refused sends were delivered")


def _sent_at(history: History, row: Row) -> Row | None:
    """Return the acknowledged send whose place a delivery without key came from."""
    for send in history.ok_sends:
        if (send["queue_id"], send["queue_offset"]) == (row["queue_id"], row["queue_offset"]):
            return send
    return None


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
