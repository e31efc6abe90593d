"""What the client library says of its sends: does it fit its own attempts, and time? A11 A49.

The recorder writes down the library's word and beside it how each attempt ended. A library that
reports success without an answer, or failure after an attempt that may have stored the message, or
another queue than was asked for, is caught here, whether or not a message was lost by it.

Source: spec/proof.md A11, 1 (an unknown attempt makes the operation unknown).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from chaos.checker.compact import Place
from chaos.checker.model import History, Result, is_copy, result
from chaos.history.columns import Row

WAITS = ("delay", "txn")
"""Kinds of messages that are acknowledged before they lie in their queue."""


def check_word(history: History) -> Result:
    """A49: the outcome of a send contradicts its attempts, or its place what was asked for."""
    told = [send for send in history.sends if send.get("tries") is not None]
    # Where no send has an id the system gives none, or nobody wrote them down.
    has_ids = any(send.get("msg_id") is not None for send in history.sends)
    found = []
    for send in told:
        wrong = contradiction(send, has_ids=has_ids)
        if wrong:
            explain = f"send {send['msg_key']} (op {send['op_id']}): {wrong}"
            found.append({"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain})
    return result("A49", found, f"{len(told)} sends with attempts, {len(found)} contradict them")


def contradiction(send: Row, *, has_ids: bool = True) -> str:
    """Return what is wrong with a client's word about a send; empty if nothing is.

    ``has_ids``: whether the history has ids of messages at all.
    """
    tries = list(send["tries"])
    words = ", ".join(tries) or "none"
    if send["outcome"] == "fail" and {"ok", "info"} & set(tries):
        return f"reported as failed, but its attempts ended {words}"
    if send["outcome"] != "ok":
        return ""
    if tries[-1:] != ["ok"]:
        return f"reported as stored, but its attempts ended {words}"
    # What waits has no place yet, by which anybody else could find it.
    places = () if send.get("kind") in WAITS else ("queue_id", "queue_offset")
    ids = ("msg_id",) if has_ids else ()
    missing = [n for n in (*places, *ids) if send.get(n) is None]
    if missing:
        return f"reported as stored without {', '.join(missing)}"
    if send.get("asked_queue") not in {None, send["queue_id"]}:
        return f"sent to queue {send['asked_queue']}, reported as stored in {send['queue_id']}"
    return ""


def check_order(history: History) -> Result:
    """A11: a send that began after another had been acknowledged lies behind it in their queue.

    By the queue that was told, not the one that was asked for; one of unknown outcome lies where it
    was delivered from. Per queue a sweep over time: the highest offset acknowledged so far is a
    lower bound for what begins now.
    """
    queues: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for send in history.ok_sends:
        place = history.place(send)
        if place is not None and send["t_cmp"] is not None:
            queues[place[:3]].append(send)
    unknown: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for place, send in _found_unknown(history):
        unknown[place[:3]].append(send)
    found = []
    for queue in {**queues, **unknown}:
        highest: Row | None = None
        for _, ended, _, send in _points(queues.get(queue, ()), unknown.get(queue, ())):
            if ended:
                if highest is None or send["queue_offset"] > highest["queue_offset"]:
                    highest = send
            elif highest is not None and send["queue_offset"] <= highest["queue_offset"]:
                found.append(_overtaken(send, highest))
    return result("A11", found, f"{len(found)} sends lie before what was acknowledged earlier")


def _points(sends: Sequence[Row], unknown: Sequence[Row]) -> list[tuple[int, int, int, Row]]:
    """Return when the sends to a queue began and ended, in order; of unknown ones, the begin.

    At one instant nothing is known to be earlier: beginnings go first.
    """
    points = [(send["t_inv"], 0, number, send) for number, send in enumerate(sends)]
    points += [(send["t_cmp"], 1, number, send) for number, send in enumerate(sends)]
    points += [(send["t_inv"], 0, number, send) for number, send in enumerate(unknown, len(sends))]
    return sorted(points, key=lambda point: point[:3])


def _found_unknown(history: History) -> Iterator[tuple[Place, Row]]:
    """Yield each place of each message that was delivered, though none of its sends has an outcome.

    With a row as of a send, which began when the first of them did.
    """
    places: dict[int, set[Place]] = defaultdict(set)
    for delivery in history.own:
        place, sends = history.place(delivery), history.by_key.get(delivery["msg_key"], ())
        if place is not None and not is_copy(delivery) and _is_unknown(sends):
            places[delivery["msg_key"]].add(place)
    for key in sorted(places):
        first = min(history.by_key[key], key=lambda send: (send["t_inv"], send["op_id"]))
        for place in sorted(places[key]):
            topic, _, queue_id, offset = place
            found = {"topic": topic, "queue_id": queue_id, "queue_offset": offset}
            yield place, {**first, **found}


def _is_unknown(sends: Sequence[Row]) -> bool:
    return bool(sends) and all(send["outcome"] == "info" for send in sends)


def _overtaken(send: Row, earlier: Row) -> Row:
    explain = (
        f"message {send['msg_key']} lies at {send['topic']}/{send['queue_id']}@"
        f"{send['queue_offset']}, but was sent after {earlier['msg_key']} had been acknowledged at "
        f"@{earlier['queue_offset']}"
    )
    return {"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain}
