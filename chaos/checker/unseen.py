"""Did groups commit past what they had not got, and how far behind were they: A2 A4.

A2 is what at-least-once forbids, seen the moment it happens: whoever takes the queue next begins
behind the message. What a group never got of a queue that it read to its end is for A1 to name.

Source: spec/proof.md A2, A4.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from chaos.catalogue.checks import CHECKS
from chaos.checker.compact import Firsts
from chaos.checker.messages import drains_of, where_found
from chaos.checker.model import (
    VALID,
    History,
    Result,
    lacking,
    result,
    unchecked,
    undecided,
)
from chaos.history.columns import Row

Queue = tuple[str, str, int]
"""Group, topic, queue."""
SECOND_NS = 1_000_000_000


def check_passed(history: History) -> Result:
    """A2: a group committed an offset behind an acknowledged message that it had not got by then.

    It got it later by luck, or never and its queue was not drained. Not judged are offsets before
    the first that the group got of the queue, queues that were reset, and topics made anew.
    """
    told = [a for a in history.acks if a["kind"] == "commit"]
    if missing := lacking("acks", told, "outcome"):
        return undecided("A2", f"needs {missing} of commits")
    commits = [a for a in told if a["outcome"] == "ok"]
    if not commits:
        return unchecked("A2", "nobody recorded what groups committed")
    if history.clock_tolerance_ns:
        return unchecked("A2", "clocks that may differ do not order commits and deliveries")
    if missing := lacking("acks", commits, "topic", "queue_id", "value_offset", "t_inv"):
        return undecided("A2", f"needs {missing} of commits")
    passes, floors = _passes(history, commits), _floors(history)
    found: dict[tuple[str, int], Row] = {}
    for queue, send in (*_late(history, passes), *_never(history, passes)):
        if send["queue_offset"] >= floors.get(queue, send["queue_offset"] + 1):
            explain = (
                f"{queue[0]} committed behind message {send['msg_key']} at "
                f"{queue[1]}/{queue[2]}@{send['queue_offset']} before it had got it"
            )
            row = {"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain}
            found[queue[0], send["msg_key"]] = row
    rows = [found[who] for who in sorted(found)]
    return result("A2", rows, f"{len(commits)} commits, {len(rows)} messages passed over by them")


def _late(history: History, passes: "dict[Queue, _Passes]") -> Iterator[tuple[Queue, Row]]:
    """Yield what came to its group for the first time when a commit had passed it."""
    first = Firsts(history.by_key)
    for row in history.to_groups:
        first.put(row["grp"], row["msg_key"], row["t_recv"])
    waited = {(s["msg_key"], s["topic"]): s for s in history.ok_sends if _has_no_place(s)}
    for row in _taken(history):
        queue = (row["grp"], row["topic"], row["queue_id"])
        send = history.ok_places.get(history.place(row) or ("", 0, 0, 0))
        if send is None or send["msg_key"] != row["msg_key"]:
            found = waited.get((row["msg_key"], row["topic"]))
            send = found and found | {name: row[name] for name in ("queue_id", "queue_offset")}
        if queue not in passes or send is None:
            continue
        at = passes[queue].passed(row["queue_offset"])
        if at is not None and first.of(row["grp"], row["msg_key"]) > at and send["kind"] != "txn":
            yield queue, send


def _has_no_place(send: Row) -> bool:
    """Tell whether a message waited: it lies where it is found."""
    return send.get("kind") == "delay" and send["queue_offset"] is None


def _never(history: History, passes: "dict[Queue, _Passes]") -> Iterator[tuple[Queue, Row]]:
    """Yield what never came to its group, was passed, and lies in a queue that was not drained."""
    drained = {queue for queue, facts in drains_of(history).items() if facts["drained"]}
    for group, known in _owed(history):
        if (group, known["msg_key"]) not in history.got and history.is_subscribed(group, known):
            send = where_found(history, known)
            queue = (group, send["topic"], send["queue_id"])
            if send["queue_offset"] is None or queue not in passes or queue in drained:
                continue
            if passes[queue].passed(send["queue_offset"]) is not None:
                yield queue, send


class _Passes:
    """When the offsets of a queue were passed by a commit."""

    def __init__(self, commits: list[tuple[int, int]]) -> None:
        commits.sort()
        self._values = [value for value, _ in commits]
        # The earliest commit of this value or a greater one.
        self._times = list(accumulate((t for _, t in reversed(commits)), min))[::-1]

    def passed(self, offset: int) -> int | None:
        """Return when an offset was first passed, None if it never was."""
        at = bisect_right(self._values, offset)
        return self._times[at] if at < len(self._times) else None


def _passes(history: History, commits: list[Row]) -> dict[Queue, _Passes]:
    """Return when queues were passed, of those that were neither reset nor made anew."""
    reset = history.reset_queues
    told: dict[Queue, list[tuple[int, int]]] = defaultdict(list)
    for row in commits:
        queue = (row["grp"], row["topic"], row["queue_id"])
        if queue not in reset and _has_one_epoch(history, row["topic"]):
            told[queue].append((row["value_offset"], row["t_inv"]))
    return {queue: _Passes(values) for queue, values in told.items()}


def _has_one_epoch(history: History, topic: str) -> bool:
    low, high = history.epochs.get(topic, (0, 1))
    return low == high


def _floors(history: History) -> dict[Queue, int]:
    """Return by queue from which offset on a group was owed it, of what it got anything of."""
    floors: dict[Queue, int] = {}
    for row in _taken(history):
        queue = (row["grp"], row["topic"], row["queue_id"])
        floors[queue] = min(floors.get(queue, row["queue_offset"]), row["queue_offset"])
    own: dict[Queue, int] = {}
    lowest: dict[tuple[str, int], int] = {}
    for row in history.drain:
        if row["min_off"] is not None:
            at, place = row["min_off"], (row["topic"], row["queue_id"])
            own[row["grp"], *place] = max(at, own.get((row["grp"], *place), 0))
            lowest[place] = min(at, lowest.get(place, at))
    return {
        queue: max(floor, own.get(queue, 0), lowest.get(queue[1:], 0))
        for queue, floor in floors.items()
    }


def _taken(history: History) -> Iterator[Row]:
    """Yield what groups got from where producers had put it."""
    for row in history.placed:
        mine = row.get("payload_run_id") in {None, *history.run_ids}
        if mine and not row.get("auditor") and row["queue_offset"] is not None:
            yield row


def _owed(history: History) -> Iterator[tuple[str, Row]]:
    for group, topics in sorted(history.groups.items()):
        for send in history.ok_sends:
            if send["topic"] in topics and send.get("kind") != "txn" and history.is_current(send):
                yield group, send


def check_lag(history: History) -> Result:
    """A4: how many offsets a group was behind what was acknowledged, at the worst full second.

    Told, not judged. Groups that subscribe to tags, and topics made anew, are left out.
    """
    begin = min((send["t_inv"] for send in history.sends), default=0)
    acked: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for send in history.ok_sends:
        if send["queue_offset"] is not None and send["queue_id"] is not None:
            ended = send["t_inv"] if send["t_cmp"] is None else send["t_cmp"]
            tops = acked[send["topic"], send["queue_id"]]
            second = (ended - begin) // SECOND_NS
            tops[second] = max(tops.get(second, -1), send["queue_offset"])
    got: dict[Queue, dict[int, int]] = defaultdict(dict)
    first: dict[Queue, int] = {}
    for row in _taken(history):
        queue, at = (row["grp"], row["topic"], row["queue_id"]), row["queue_offset"]
        chosen = history.tags_of(queue[0], queue[1])
        if chosen is None and _has_one_epoch(history, queue[1]):
            second = (row["t_recv"] - begin) // SECOND_NS
            got[queue][second] = max(got[queue].get(second, -1), at)
            first[queue] = min(first.get(queue, at), at)
    if not got:
        return unchecked("A4", "no group took anything from a queue")
    worst = max(_lag(acked[queue[1:]], got[queue], first[queue]) for queue in got)
    return Result(
        check="A4",
        verdict=VALID,
        severity=CHECKS["A4"].severity,
        summary=f"at worst {worst} offsets behind",
        details={"lag_max": worst, "queues": len(got)},
    )


def _lag(acked: dict[int, int], got: dict[int, int], first: int) -> int:
    """Return the greatest lag of a queue at the end of any second."""
    worst, top, reached = 0, first - 1, first - 1
    for second in sorted(acked.keys() | got.keys()):
        top, reached = max(top, acked.get(second, -1)), max(reached, got.get(second, -1))
        worst = max(worst, top - reached)
    return worst
