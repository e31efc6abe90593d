"""A41 and A48: for how long nothing was acknowledged around each kill, and did the harness work?

The node died at some time of t_on0..t_on1. The longest gap between acknowledgements that touches
this span, counted from t_on0 at the earliest, bounds the time without service from above. Where
faults that were on already were lifted before service came back, it also counts from the last of
them. Source: spec/proof.md A41, A48.
"""

from collections.abc import Sequence

from pyspark.sql import Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.history import few_rows
from spark.result import UNKNOWN, CheckResult

KILL = "kill"


def check_failover(context: Context) -> CheckResult:
    """Return A41; it is never invalid."""
    rows = context.table("faults").collect() if context.history.rows("faults") else []
    kills = [row for row in rows if row.kind == KILL and row.t_on1 is not None]
    result = CheckResult(check="A41", summary="no node was killed")
    gaps = _gaps(context, kills)
    times, words = [], []
    for kill in kills:
        gap, end = gaps.get(kill.fault_id, (None, None))
        healed = [t for t in _lifted(kill, rows) if end is not None and t <= end]
        since = None if end is None or not healed else (end - max(healed)) / 1e6
        ms = None if gap is None else gap / 1e6
        result.count += ms is None
        times += [] if ms is None else [since or ms]
        words.append(f"{kill.fault_id} {_words(ms, since)}")
        about = {"fault_id": kill.fault_id, "ms": ms, "since_heal_ms": since}
        result.evidence.append({**about, "explain": words[-1]})
    result.summary = ", ".join(words) or result.summary
    result.details = {"worst_ms": max(times, default=None)}
    return result


def _gaps(context: Context, kills: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Return, by fault, the longest gap around it and when it ended; none if service never came.

    Acknowledgements near a kill are looked at one by one, those further off by slots of time.
    """
    if not kills:
        return {}
    slots, fault = context.timeline, ["fault_id", "on0", "on1"]
    spans = [
        (k.fault_id, k.t_on1 if k.t_on0 is None else min(k.t_on0, k.t_on1), k.t_on1) for k in kills
    ]
    table = few_rows(context.session, spans, "fault_id string, on0 long, on1 long")
    acks = context.sends.filter("outcome = 'ok' and t_cmp is not null").select(
        F.col("t_cmp").alias("t"), slots.slot(F.col("t_cmp")).alias("slot")
    )
    by_slot = acks.groupBy("slot").agg(F.min("t").alias("first"), F.max("t").alias("last"))
    near = table.withColumn("slot", F.explode(slots.slots(F.col("on0"), F.col("on1"))))
    ends = table.select(
        *fault, slots.slot(F.col("on0")).alias("low"), slots.slot(F.col("on1")).alias("high")
    )
    far = ends.crossJoin(F.broadcast(by_slot))
    before, after = (
        F.expr("max(if(slot < low, last, null))"),
        F.expr("min(if(slot > high, first, null))"),
    )
    edges = far.groupBy(*fault).agg(F.array(before, after).alias("both"))
    points = edges.select(*fault, F.explode("both").alias("t")).filter("t is not null")
    points = points.unionByName(acks.join(F.broadcast(near), "slot").select(*fault, "t"))
    order = Window.partitionBy("fault_id").orderBy("t")
    points = points.withColumn("before", F.lag("t", 1, 0).over(order))
    gap = F.struct((F.col("t") - F.greatest("before", "on0")).alias("ns"), F.col("t").alias("end"))
    touches = (F.col("t") >= F.col("on0")) & (F.col("before") <= F.col("on1"))
    found = (
        points.groupBy("fault_id", "on1")
        .agg(F.max(F.when(touches, gap)).alias("gap"), F.max("t").alias("last"))
        .filter("last >= on1")
        .collect()
    )
    return {row.fault_id: (row.gap.ns, row.gap.end) for row in found}


def _lifted(kill: Row, rows: Sequence[Row]) -> list[int]:
    """Return when the faults were lifted that were on as this one began."""
    others = [r for r in rows if r.fault_id != kill.fault_id and r.t_off1 is not None]
    return [r.t_off1 for r in others if r.t_on0 is not None and r.t_on0 <= kill.t_on1 <= r.t_off1]


def _words(ms: float | None, since: float | None) -> str:
    if ms is None:
        return "never served again"
    return f"{ms:.0f} ms" + (f" ({since:.0f} ms after the heal)" if since is not None else "")


def check_harness(context: Context, problems: Sequence[str]) -> CheckResult:
    """Return A48; ``problems``: what is wrong with the record, and what the harness says of it."""
    rows = context.table("faults").collect() if context.history.rows("faults") else []
    lines = [*problems, *(line for row in rows if (line := _stays(row)))]
    result = CheckResult(check="A48", count=len(lines))
    result.verdict = UNKNOWN if lines else result.verdict
    result.summary = "; ".join(lines) or "no gaps, no deaths"
    return result


def _stays(fault: Row) -> str:
    """Return that a fault is on for ever, or for as long as nobody knows; empty if it is not."""
    begun = fault.t_on0 is not None or fault.t_on1 is not None
    over = fault.t_off0 is not None or fault.t_off1 is not None
    effective = fault.witness is not None and bool(fault.witness.effective)
    if fault.status in {"planned", "skipped"}:
        return ""
    if fault.status == "failed":
        half = f"fault {fault.fault_id} failed half applied, and nobody knows what it did"
        return half if begun else ""
    if fault.status == "heal_failed":
        return f"fault {fault.fault_id} could not be lifted"
    if fault.status == "active":
        return f"fault {fault.fault_id} was never lifted"
    if begun:
        return "" if over else f"fault {fault.fault_id}: nobody says when it was lifted"
    if fault.status is None and not effective:
        return ""
    return f"fault {fault.fault_id} was in force, and nobody says when"
