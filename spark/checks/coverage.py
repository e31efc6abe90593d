"""A47: did the planned faults take effect while sends were in flight?

A fault counts if its witness saw an effect and a send overlapped it. How many of a kind must count
says run.json's ``coverage``, and how many of ``any`` kind; where it says nothing, one of each kind
that was planned. Too few make the verdict unknown: such a run proves nothing about these faults.
Spans and sends meet in slots of time, so that a thousand faults cost no more plan than one.
Source: spec/proof.md A47.
"""

from collections import Counter

from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import ANY
from spark.context import Context
from spark.history import few_rows
from spark.result import UNKNOWN, CheckResult


def check_coverage(context: Context) -> CheckResult:
    """Return A47."""
    rows = context.table("faults").collect() if context.history.rows("faults") else []
    seen = [row for row in rows if row.witness is not None and row.witness.effective]
    flying = _in_flight(context, [(r.t_on1, r.t_off0) for r in seen])
    effective = Counter(row.kind for row, some in zip(seen, flying, strict=True) if some)
    wanted = context.history.run.get("coverage")
    if not isinstance(wanted, dict):
        wanted = {row.kind: 1 for row in rows}
    took = Counter({**effective, ANY: effective.total()})
    complaints = [
        f"too few effective faults: {kind}: {took[kind]} of {least}"
        for kind, least in sorted(wanted.items())
        if took[kind] < int(least)
    ]
    result = CheckResult(check="A47")
    result.summary = ", ".join(f"{n} {kind}" for kind, n in sorted(effective.items())) or "none"
    if complaints:
        result.verdict, result.count = UNKNOWN, len(complaints)
        result.summary = "; ".join(complaints)
    return result


def _in_flight(context: Context, spans: list[tuple[int | None, int | None]]) -> list[bool]:
    """Return whether any send overlapped each span of time."""
    known = [
        (number, start, end)
        for number, (start, end) in enumerate(spans)
        if start is not None and end is not None
    ]
    if not known:
        return [False] * len(spans)
    slots = context.timeline
    table = few_rows(context.session, known, "number int, begin long, over long")
    table = table.withColumn("slot", F.explode(slots.slots(F.col("begin"), F.col("over"))))
    sends = context.sends.filter("t_cmp is not null").select("t_inv", "t_cmp")
    overlaps = (F.col("t_inv") <= F.col("over")) & (F.col("t_cmp") >= F.col("begin"))
    seen = (
        sends.withColumn("slot", F.explode(slots.slots(F.col("t_inv"), F.col("t_cmp"))))
        .join(F.broadcast(table), "slot")
        .filter(overlaps)
        .select("number")
        .distinct()
        .collect()
    )
    found = {row.number for row in seen}
    # What nobody answered is in flight for ever.
    begun = min((r.t_open for r in context.send_stats if r.t_open is not None), default=1 << 62)
    found |= {number for number, _, end in known if begun <= end}
    return [number in found for number in range(len(spans))]
