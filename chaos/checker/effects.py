"""Did the run prove anything: A41 (time without service), A45, A47, A48. Source: chaos.md 3.7."""

from collections import Counter, defaultdict
from itertools import pairwise

from chaos.checker.model import (
    INFO,
    UNKNOWN,
    VALID,
    History,
    Result,
    Row,
    undecided,
)

SENDS_PER_PHASE_MIN = 10


def check_failover(history: History) -> Result:
    """A41, simple: for how long nothing was acknowledged around each kill.

    The node died at some time of t_on0..t_on1, and not before its last acknowledgement. So the
    longest gap between acknowledgements that touches this span, counted from t_on0 at the
    earliest, bounds the time without service from above. Where another fault kept the others from
    electing, ``since_heal_ms`` counts from when that was lifted.
    """
    acks = sorted(int(s["t_cmp"]) for s in history.ok_sends)
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


def _words(row: Row) -> str:
    if row["ms"] is None:
        return "never served again"
    heal = row["since_heal_ms"]
    return f"{row['ms']:.0f} ms" + (f" ({heal:.0f} ms after the heal)" if heal is not None else "")


def _failover_row(history: History, fault: Row, acks: list[int]) -> Row:
    t_on0, t_on1 = fault["t_on0"], fault["t_on1"]
    gaps = [
        (after - max(before, t_on0), after)
        for before, after in pairwise([0, *acks])
        if before <= t_on1 and after >= t_on0
    ]
    served = bool(acks) and acks[-1] >= t_on1
    gap, first = max(gaps) if served else (None, None)
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


def check_floor(history: History) -> Result:
    """A45: each phase with sends has acknowledged ones, and there are sends and deliveries."""
    complaints = [f"no {name}" for name in ("sends", "deliveries") if not getattr(history, name)]
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for send in history.sends:
        seen[str(send.get("phase"))][send["outcome"]] += 1
    for phase, outcomes in sorted(seen.items()):
        if outcomes.total() >= SENDS_PER_PHASE_MIN and not outcomes["ok"]:
            complaints.append(f"none of {outcomes.total()} sends in {phase} was acknowledged")
    if complaints:
        return undecided("A45", "; ".join(complaints))
    return Result(check="A45", verdict=VALID, severity=INFO, summary=f"{len(seen)} phases")


def check_coverage(history: History) -> Result:
    """A47: of each planned kind enough faults took effect while sends were in flight."""
    effective: Counter[str] = Counter()
    rows = []
    for fault in history.faults:
        witness = fault.get("witness") or {}
        flying = in_flight(history, fault)
        counts = bool(witness.get("effective")) and flying > 0
        effective[fault["kind"]] += counts
        rows.append({"fault_id": fault["fault_id"], "in_flight": flying, "counts": counts})
    short = [
        f"{kind}: {effective[kind]} of {least}"
        for kind, least in sorted(history.coverage.items())
        if effective[kind] < least
    ]
    if short:
        return undecided("A47", "too few effective faults: " + ", ".join(short), faults=rows)
    words = ", ".join(f"{n} {kind}" for kind, n in sorted(effective.items())) or "none planned"
    return Result(
        check="A47", verdict=VALID, severity=INFO, summary=words, details={"faults": rows}
    )


def in_flight(history: History, fault: Row) -> int:
    """Return how many sends overlapped the time in which a fault was on."""
    t0, t1 = fault["t_on1"], fault["t_off0"]
    if t0 is None or t1 is None:
        return 0
    return sum(s["t_inv"] <= t1 and (s["t_cmp"] is None or s["t_cmp"] >= t0) for s in history.sends)


def check_harness(history: History) -> Result:
    """A48: no worker died, nothing is missing from the record, every fault was lifted."""
    problems = list(history.problems)
    problems += [
        f"fault {f['fault_id']} could not be lifted"
        for f in history.faults
        if f["status"] == "heal_failed"
    ]
    return Result(
        check="A48",
        verdict=UNKNOWN if problems else VALID,
        severity=INFO,
        count=len(problems),
        summary="; ".join(problems) or "no gaps, no deaths",
    )
