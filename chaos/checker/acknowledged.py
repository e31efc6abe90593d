"""What a group durably acknowledged does not come to it again: A52.

A commit, or the acknowledgement of one message, that says of itself that it is durable, holds
whatever happens afterwards. Queues that were reset, and topics that were made anew, are left out:
there it is meant to come again. Source: spec/proof.md A52.
"""

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate

from chaos.checker.model import (
    History,
    Result,
    is_copy,
    lacking,
    result,
    unchecked,
    undecided,
)
from chaos.history.columns import Row

Queue = tuple[str, str | None, int | None]


def check_durable(history: History) -> Result:
    """A52: a delivery that was fetched after its group had durably acknowledged the message."""
    told = [a for a in history.acks if a.get("durable") and a["kind"] in {"ack", "commit"}]
    if missing := lacking("acks", told, "outcome"):
        return undecided("A52", f"needs {missing} of durable acknowledgements")
    durable = [ack for ack in told if ack["outcome"] == "ok"]
    if not durable:
        return unchecked("A52", "no acknowledgement says that it is durable")
    commits = [ack for ack in durable if ack["kind"] == "commit"]
    single = [ack for ack in durable if ack["kind"] == "ack"]
    empty = [lacking("acks", durable, "t_cmp"), lacking("acks", single, "msg_key")]
    empty.append(lacking("acks", commits, "topic", "queue_id", "value_offset"))
    if any(empty):
        words = ", ".join(filter(None, empty))
        return undecided("A52", f"needs {words} of durable acknowledgements")
    reset = history.reset_queues
    acknowledged = _Acknowledged(durable)
    found = []
    for row in history.to_groups:
        if is_copy(row) or _queue(row) in reset or row["topic"] in history.anew:
            continue
        fetched = row["t_recv"] if row.get("t_fetch_inv") is None else row["t_fetch_inv"]
        if acknowledged.before(row, fetched):
            explain = (
                f"message {row['msg_key']} at {row['topic']}/{row['queue_id']}@"
                f"{row['queue_offset']} came to {row['grp']}, which had acknowledged it durably"
            )
            found.append({"msg_key": row["msg_key"], "explain": explain})
    summary = f"{len(durable)} durable acknowledgements, {len(found)} deliveries behind them"
    return result("A52", found, summary)


class _Acknowledged:
    """How far groups had acknowledged, and when."""

    def __init__(self, durable: list[Row]) -> None:
        self._keys: dict[tuple[str, int], int] = {}
        commits: dict[Queue, list[tuple[int, int]]] = defaultdict(list)
        for ack in durable:
            if ack["kind"] == "commit":
                commits[_queue(ack)].append((ack["t_cmp"], ack["value_offset"]))
            else:
                who = (ack["grp"], ack["msg_key"])
                self._keys[who] = min(self._keys.get(who, ack["t_cmp"]), ack["t_cmp"])
        self._times: dict[Queue, list[int]] = {}
        self._floors: dict[Queue, list[int]] = {}
        for queue, told in commits.items():
            told.sort()
            self._times[queue] = [t for t, _ in told]
            self._floors[queue] = list(accumulate((offset for _, offset in told), max))

    def before(self, row: Row, t: int) -> bool:
        """Tell whether a delivery's message was acknowledged before a time."""
        if self._keys.get((row["grp"], row["msg_key"]), t) < t:
            return True
        count = bisect_left(self._times.get(_queue(row), []), t)
        return bool(count) and row["queue_offset"] < self._floors[_queue(row)][count - 1]


def _queue(row: Row) -> Queue:
    return row["grp"], row["topic"], row["queue_id"]
