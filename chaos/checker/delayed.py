"""Messages that wait: delayed ones too early and too late: A25 A56.

The invocation of a send is the earliest time at which it can have been stored, its completion the
latest: what comes before the one plus its delay is early, what comes long after the other is late.
Source: spec/proof.md A25, A56.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chaos.checker.model import (
    History,
    Result,
    is_copy,
    lacking,
    result,
    span_of,
    undecided,
)
from chaos.history.columns import Row
from chaos.history.domains import EARLY_NS, HALF_OF

MARGIN_NS = 3_000_000_000
"""A fault that was lifted so long before a message was due may still have made it late."""


def delayed_sends(history: History) -> list[Row]:
    """Return the sends of messages that wait."""
    return [s for s in history.sends if s.get("kind") == "delay"]


def check_early(history: History) -> Result:
    """A56: a delayed message that anybody got before its time.

    Once a wall clock was moved that is the time of its send: brokers wait by that clock.
    """
    sends = delayed_sends(history)
    if missing := lacking("sends", sends, "delay_ms"):
        return undecided("A56", f"needs {missing} of delayed messages")
    keys = {send["msg_key"] for send in sends}
    first: dict[int, Row] = {}
    for row in history.own if keys else ():
        if row["msg_key"] in keys and not is_copy(row):
            known = first.setdefault(row["msg_key"], row)
            if row["t_recv"] < known["t_recv"]:
                first[row["msg_key"]] = row
    found = []
    for send in sends:
        came = first.get(send["msg_key"])
        due = history.waited_until(send["t_inv"], send["delay_ms"])
        if came is not None and came["t_recv"] < due - EARLY_NS:
            early = (due - came["t_recv"]) / 1e6
            explain = (
                f"message {send['msg_key']} was to wait for {send['delay_ms']} ms and came to "
                f"{came['grp']} {early:.0f} ms before its time"
            )
            found.append({"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain})
    return result("A56", found, f"{len(sends)} delayed messages, {len(found)} came too early")


def check_late(history: History) -> Result:
    """A25: for how long delayed messages were overdue; judged where the contract bounds it.

    Where a fault was in force, or had just been lifted, nothing is promised.
    """
    sends = [s for s in delayed_sends(history) if s["outcome"] == "ok" and s["t_cmp"] is not None]
    if missing := lacking("sends", sends, "delay_ms"):
        return undecided("A25", f"needs {missing} of delayed messages")
    keys = {send["msg_key"] for send in sends}
    first: dict[int, int] = {}
    for row in history.to_groups if keys else ():
        if row["msg_key"] in keys and not is_copy(row):
            first[row["msg_key"]] = min(first.get(row["msg_key"], row["t_recv"]), row["t_recv"])
    measured = []
    for send in sends:
        t, due = first.get(send["msg_key"]), send["t_cmp"] + send["delay_ms"] * 1_000_000
        if t is not None and not _disturbed(history, send["t_inv"], t):
            measured.append(((t - due) / 1e6, send))
    bound = _bound(history.contract, [late for late, _ in measured])
    worst, found = max((late for late, _ in measured), default=None), []
    for late, send in measured:
        if bound is not None and late > bound:
            explain = f"message {send['msg_key']} came {late:.0f} ms after its time"
            found.append({"msg_key": send["msg_key"], "op_id": send["op_id"], "explain": explain})
    words = "nothing to measure" if worst is None else f"at worst {worst:.0f} ms overdue"
    return result("A25", found, f"{len(sends)} delayed messages, {words}", overdue_ms=worst)


def _bound(contract: Mapping[str, Any], late_ms: Sequence[float]) -> float | None:
    """Return how late a message may be: less where half of them all are later than half may be."""
    half: float | None = contract.get("late_ms_half_max")
    most: float | None = contract.get("late_ms_max")
    if half is not None and len(late_ms) >= HALF_OF:
        later = sum(late > half for late in late_ms)
        if 2 * later > len(late_ms):
            return half if most is None else min(half, most)
    return most


def _disturbed(history: History, start: int, end: int) -> bool:
    """Tell whether a fault was in force between two times, or had just been lifted."""
    spans = [span_of(fault) for fault in history.witnessed]
    return any(
        one.begin <= end and (one.end is None or one.end + MARGIN_NS >= start) for one in spans
    )
