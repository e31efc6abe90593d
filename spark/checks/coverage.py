"""A47: did the planned faults take effect while sends were in flight?

A fault counts if its witness saw an effect and a send overlapped it. How many of a kind must count
says run.json's ``coverage``; where it says nothing, one of each kind that was planned. Too few make
the verdict unknown: such a run proves nothing about these faults. Source: spec/proof.md A47.
"""

from collections import Counter

from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.result import UNKNOWN, CheckResult


def check_coverage(context: Context) -> CheckResult:
    """Return A47."""
    rows = context.table("faults").collect() if context.history.rows("faults") else []
    seen = [row for row in rows if row.witness is not None and row.witness.effective]
    flying = _in_flight(context, [(r.t_on1, r.t_off0) for r in seen])
    effective = Counter(row.kind for row, number in zip(seen, flying, strict=True) if number)
    wanted = context.history.run.get("coverage")
    if not isinstance(wanted, dict):
        wanted = {row.kind: 1 for row in rows}
    complaints = [
        f"too few effective faults: {kind}: {effective[kind]} of {least}"
        for kind, least in sorted(wanted.items())
        if effective[kind] < int(least)
    ]
    result = CheckResult(check="A47")
    result.summary = ", ".join(f"{n} {kind}" for kind, n in sorted(effective.items())) or "none"
    if complaints:
        result.verdict, result.count = UNKNOWN, len(complaints)
        result.summary = "; ".join(complaints)
    return result


def _in_flight(context: Context, spans: list[tuple[int | None, int | None]]) -> list[int]:
    """Return how many sends overlapped each span of time."""
    if not spans:
        return []
    ended = F.coalesce("t_cmp", F.lit(2**62))
    counted = [
        F.count(F.when((F.col("t_inv") <= end) & (ended >= start), 1)).alias(f"span_{number}")
        for number, (start, end) in enumerate(spans)
        if start is not None and end is not None
    ]
    if not counted:
        return [0] * len(spans)
    row = context.sends.agg(*counted).first()
    assert row is not None, "an aggregate without keys has one row"
    found = row.asDict()
    return [int(found.get(f"span_{number}", 0)) for number in range(len(spans))]
