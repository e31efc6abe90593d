"""Did the run prove anything: A41 (time without service), A45, A47, A48.

Source: spec/proof.md 3.7.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import compress, pairwise

from chaos.catalogue.checks import INFO
from chaos.catalogue.faults import ANY
from chaos.checker.model import (
    FAILED,
    IDLE,
    NOT_LIFTED,
    UNKNOWN,
    VALID,
    History,
    Result,
    is_half_applied,
    undecided,
)
from chaos.history.columns import Row

SENDS_PER_PHASE_MIN = 10
NEVER = 1 << 62


def check_failover(history: History) -> Result:
    """A41, simple: for how long nothing was acknowledged around each kill.

    The node died at some time of t_on0..t_on1, and not before its last acknowledgement. So the
    longest gap between acknowledgements that touches this span, counted from t_on0 at the
    earliest, bounds the time without service from above. Where another fault kept the others from
    electing, ``since_heal_ms`` counts from when that was lifted.
    """
    acks = sorted(int(s["t_cmp"]) for s in history.ok_sends if s["t_cmp"] is not None)
    rows = [
        _failover_row(history, fault, acks)
        for fault in history.faults
        if fault["kind"] == "kill" and fault["t_on1"] is not None
    ]
    times = [r["since_heal_ms"] or r["ms"] for r in rows if r["ms"] is not None]
    summary = ", ".join(f"{r['fault_id']} {_words(r)}" for r in rows) or "no node was killed"
    return Result(
        check="A41",
        verdict=VALID,
        severity=INFO,
        count=sum(r["ms"] is None for r in rows),
        summary=summary,
        evidence=rows,
        details={"worst_ms": max(times, default=None)},
    )


def service_gap(acks: Sequence[float], t_on0: float, t_on1: float) -> tuple[float, float] | None:
    """Return for how long nothing was acknowledged around ``t_on0..t_on1``, and when it ended.

    ``acks`` are the times of acknowledgements, sorted. None: nothing was acknowledged later. This
    is what a terminal and a report both mean by the gap around a fault.
    """
    if not len(acks) or acks[-1] < t_on1:
        return None
    first, last = bisect_left(acks, t_on0), min(bisect_right(acks, t_on1), len(acks) - 1)
    around = [acks[first - 1] if first else 0, *acks[first : last + 1]]
    return max((after - max(before, t_on0), after) for before, after in pairwise(around))


def _words(row: Row) -> str:
    if row["ms"] is None:
        return "never served again"
    heal = row["since_heal_ms"]
    return f"{row['ms']:.0f} ms" + (f" ({heal:.0f} ms after the heal)" if heal is not None else "")


def _failover_row(history: History, fault: Row, acks: list[int]) -> Row:
    t_on1 = fault["t_on1"]
    t_on0 = t_on1 if fault["t_on0"] is None else min(fault["t_on0"], t_on1)
    gap, first = service_gap(acks, t_on0, t_on1) or (None, None)
    healed = [t for t in _lifted(history, fault) if first is not None and t <= first]
    since_heal = first - max(healed) if first is not None and healed else None
    return {
        "fault_id": fault["fault_id"],
        "targets": list(fault["targets"] or ()),
        "ms": None if gap is None else gap / 1e6,
        "since_heal_ms": None if since_heal is None else since_heal / 1e6,
    }


def _lifted(history: History, fault: Row) -> list[int]:
    """Return when the faults were lifted that were on as this one began."""
    return [
        f["t_off1"]
        for f in history.faults
        if f is not fault
        and f["t_on0"] is not None
        and f["t_off1"] is not None
        and f["t_on0"] <= fault["t_on1"] <= f["t_off1"]
    ]


def check_minimum_evidence(history: History) -> Result:
    """A45: of each kind of sends some succeed in each phase; no gap is in the record, one clock.

    And each key is of one message: of those that were sent to several topics nobody knows which.
    """
    complaints = [f"no {name}" for name in ("sends", "deliveries") if not getattr(history, name)]
    complaints += [line for line in (find_gap(history), find_jump(history)) if line]
    if shared := count_shared(history):
        complaints.append(f"{shared} keys are of messages of several topics")
    seen: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for send in history.sends:
        seen[send.get("kind") or "plain", send.get("phase") or "all"][send["outcome"]] += 1
    if seen and not any(outcomes["ok"] for outcomes in seen.values()):
        complaints.append("no send was acknowledged")
    for (kind, phase), outcomes in sorted(seen.items()):
        number = outcomes.total()
        if number >= SENDS_PER_PHASE_MIN and not outcomes["ok"]:
            complaints.append(f"none of {number} {kind} sends in phase {phase} was acknowledged")
    if complaints:
        return undecided("A45", "; ".join(complaints))
    summary = "every phase and kind of send has a success"
    return Result(check="A45", verdict=VALID, severity=INFO, summary=summary)


def count_shared(history: History) -> int:
    """Return how many keys were sent to several topics: what came of one hides what did not."""
    again = (sends for sends in history.by_key.values() if len(sends) > 1)
    return sum(len({send["topic"] for send in sends}) > 1 for sends in again)


def find_gap(history: History) -> str:
    """Return what is missing from the events by their numbers; empty if nothing or no events."""
    if not history.events:
        return ""
    low, high, number = NEVER, -1, 0
    for event in history.events:
        idx = event.get("idx")
        if idx is not None:
            low, high, number = min(low, idx), max(high, idx), number + 1
    if number and (low != 0 or number != high + 1):
        return f"events has a gap: {number} rows, numbered {low} to {high}"
    return ""


def find_jump(history: History) -> str:
    """Return how the one clock of the record went backwards; empty if it did not.

    Its times must be those of one monotonic clock: events are numbered in their order, no
    operation ends before it begins, no message is received before its first send begins.
    """
    events = [e for e in history.events if e.get("idx") is not None]
    events.sort(key=lambda event: int(event["idx"]))
    may_differ = history.clock_tolerance_ns
    back = sum(b["t_mono_ns"] < a["t_mono_ns"] - may_differ for a, b in pairwise(events))
    ended = sum(s["t_cmp"] is not None and s["t_cmp"] < s["t_inv"] for s in history.sends)
    number, begun = history.by_key.number, array("q", [NEVER]) * len(history.sends)
    for send in history.sends:
        at = number[send["msg_key"]]
        begun[at] = min(begun[at], send["t_inv"])
    known = ((d["t_recv"], number.get(d["msg_key"])) for d in history.own)
    early = sum(at is not None and t < begun[at] for t, at in known)
    found = [
        f"{number} {what}"
        for number, what in (
            (back, "events are earlier than the one before"),
            (ended, "sends end before they begin"),
            (early, "deliveries are earlier than their send"),
        )
        if number
    ]
    return f"the clock jumped: {', '.join(found)}" if found else ""


def check_coverage(history: History) -> Result:
    """A47: enough faults of each kind, or of `ANY`, took effect while sends were in flight."""
    effective: Counter[str] = Counter()
    in_flight = _count_in_flight(history)
    rows = []
    for fault in history.faults:
        witness = fault.get("witness") or {}
        flying = in_flight(fault)
        counts = bool(witness.get("effective")) and flying > 0
        effective[fault["kind"]] += counts
        rows.append({"fault_id": fault["fault_id"], "in_flight": flying, "counts": counts})
    wanted = history.coverage
    if wanted is None:
        wanted = {str(fault["kind"]): 1 for fault in history.faults}
    took = {kind: effective.total() if kind == ANY else effective[kind] for kind in wanted}
    short = [
        f"{kind}: {took[kind]} of {least}"
        for kind, least in sorted(wanted.items())
        if took[kind] < least
    ]
    if short:
        return undecided("A47", "too few effective faults: " + ", ".join(short), faults=rows)
    words = ", ".join(f"{n} {kind}" for kind, n in sorted(effective.items())) or "none planned"
    return Result(
        check="A47", verdict=VALID, severity=INFO, summary=words, details={"faults": rows}
    )


def _count_in_flight(history: History) -> Callable[[Row], int]:
    """Return what counts the sends that overlapped the time in which a fault was on."""
    begins = array("q", (int(s["t_inv"]) for s in history.sends))
    ends = array("q", (NEVER if s["t_cmp"] is None else int(s["t_cmp"]) for s in history.sends))
    odd = [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin > end]
    sound = [begin <= end for begin, end in zip(begins, ends, strict=True)]
    begun, ended = (array("q", sorted(compress(times, sound))) for times in (begins, ends))

    def count(fault: Row) -> int:
        t0, t1 = fault["t_on1"], fault["t_off0"]
        if t0 is None or t1 is None:
            return 0
        if t0 > t1:
            spans = zip(begins, ends, strict=True)
            return sum(begin <= t1 and end >= t0 for begin, end in spans)
        number = bisect_right(begun, t1) - bisect_left(ended, t0)
        return number + len([1 for begin, end in odd if begin <= t1 and end >= t0])

    return count


def check_harness(history: History) -> Result:
    """A48: no worker died, nothing is missing from the record, every fault was lifted."""
    problems = list(history.problems)
    problems += [line for fault in history.faults if (line := _not_lifted(fault))]
    return Result(
        check="A48",
        verdict=UNKNOWN if problems else VALID,
        severity=INFO,
        count=len(problems),
        summary="; ".join(problems) or "no gaps, no deaths",
    )


def _not_lifted(fault: Row) -> str:
    """Return how a fault was not lifted, or that nobody knows when it was; empty if it was."""
    name, status = f"fault {fault['fault_id']}", fault["status"]
    begun, ended = (
        any(fault.get(f"t_{when}{end}") is not None for end in (0, 1)) for when in ("on", "off")
    )
    acted = status is not None or bool((fault.get("witness") or {}).get("effective"))
    if status == NOT_LIFTED:
        return f"{name} could not be lifted"
    if is_half_applied(fault):
        return f"{name} failed half applied, and nobody knows what it did"
    if status in IDLE or status == FAILED:
        return ""
    if status == "active":
        return f"{name} was never lifted"
    if not begun:
        return f"{name} was in force, and nobody says when" if acted else ""
    return "" if ended else f"{name}: nobody says when it was lifted"
