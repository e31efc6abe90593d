"""More than once, and at which place: A8 A9 A15. Source: chaos.md 3.3, 3.4."""

from collections import defaultdict

from chaos.checker.model import History, Result, Row, result

Place = tuple[int, int]
SETTLE_NS = 6_000_000_000
"""An offset is committed every second; a leader change may cost several intervals."""
_UNSETTLING = frozenset({"rebalance", "start", "stop", "crash"})


def check_duplicates(history: History) -> Result:
    """A8: a message at more places of the log than attempts were made to send it.

    Fewer or as many is legal under at-least-once: the client sends again after a lost reply.
    """
    places: dict[int, set[Place]] = defaultdict(set)
    for row in history.own:
        if row.get("auditor") and row["msg_key"] is not None:
            places[row["msg_key"]].add((row["queue_id"], row["queue_offset"]))
    for key, place, _ in _committed_messages(history):
        if key is not None:
            places[key].add(place)
    twice = {key: held for key, held in places.items() if len(held) > 1}
    found = [
        {
            "msg_key": key,
            "places": sorted(held),
            "attempts": history.by_key[key]["attempts"],
            "explain": f"message {key} lies at {sorted(held)}",
        }
        for key, held in sorted(twice.items())
        if key in history.by_key and len(held) > (history.by_key[key]["attempts"] or 1)
    ]
    summary = f"{len(twice)} messages lie at several places, {len(found)} at more than attempts"
    return result("A8", found, summary, at_several_places=len(twice))


def check_redelivery(history: History) -> Result:
    """A9: deliveries of one message beyond the first; those without a cause are listed.

    A cause is a change of the group's members, or a fault, between the two deliveries or shortly
    before the later one.
    """
    deliveries: dict[int, list[Row]] = defaultdict(list)
    for row in history.to_group:
        if row["msg_key"] is not None:
            deliveries[row["msg_key"]].append(row)
    causes = sorted(_causes(history))
    extra, found = 0, []
    for key, rows in deliveries.items():
        places = {(row["queue_id"], row["queue_offset"]) for row in rows}
        extra += len(rows) - 1
        if len(rows) == len(places):
            continue  # copies in the log, each delivered once: A8
        rows.sort(key=lambda row: int(row["t_recv"]))
        first, last = rows[0]["t_recv"], rows[-1]["t_recv"]
        if not any(first - SETTLE_NS <= t <= last for t in causes):
            found.append({"msg_key": key, "explain": f"message {key} came {len(rows)} times"})
    ratio = extra / max(1, len(deliveries))
    summary = f"{extra} redeliveries ({ratio:.2%}), {len(found)} without a cause"
    return result("A9", found, summary, redelivered=extra, distinct=len(deliveries))


def _causes(history: History) -> list[int]:
    times = [
        e["t_mono_ns"] for e in history.events if e["role"] == "consumer" and e["f"] in _UNSETTLING
    ]
    for fault in history.faults:
        times += [t for t in (fault["t_on0"], fault["t_off1"]) if t is not None]
    return times


def check_offsets(history: History) -> Result:
    """A15: one offset of a queue is different messages to different observers.

    Observers: acknowledged sends, every delivery, what replicas committed.
    """
    seen: dict[Place, dict[int, str]] = defaultdict(dict)
    for send in history.ok_sends:
        place = (send["queue_id"], send["queue_offset"])
        seen[place].setdefault(send["body_hash"], f"send {send['msg_key']} (op {send['op_id']})")
    for row in history.own:
        place = (row["queue_id"], row["queue_offset"])
        words = f"delivery of {row['msg_key']} to {row['grp']}"
        seen[place].setdefault(row["body_hash"], words)
    for key, place, (digest, node, index) in _committed_messages(history):
        if digest is not None:
            seen[place].setdefault(digest, f"{node} index {index} holds {key}")
    found = [
        {
            "place": f"{history.topic}/{queue}@{offset}",
            "observers": list(views.values()),
            "explain": f"{history.topic}/{queue}@{offset}: " + "; ".join(views.values()),
        }
        for (queue, offset), views in sorted(seen.items())
        if len(views) > 1
    ]
    return result("A15", found, f"{len(found)} of {len(seen)} places are in dispute")


def _committed_messages(
    history: History,
) -> list[tuple[int | None, Place, tuple[int | None, str, int]]]:
    """Return (key, place, (hash, node, index)) of the topic's messages that replicas committed."""
    return [
        (
            row.msg_key,
            (row.queue_id, row.queue_offset),
            (row.body_hash, replica.node, row.entry_index),
        )
        for replica in history.replicas
        for row in replica.committed()
        if row.type == "message"
        and row.topic == history.topic
        and row.queue_id is not None
        and row.queue_offset is not None
    ]
