"""A60, A61: is service back when faults are over, and there while there are none?

A60: after the end of a stretch of faults, nothing that was sent to a topic was acknowledged for all
of the contract's ``recovery_ms_max``, though it was quiet and sends began. A61: of the sends far
from any fault fewer were acknowledged than ``availability_min``. Without these bounds the times and
numbers are only told. Source: spec/proof.md A60, A61.
"""

from itertools import pairwise
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.evidence import tell
from spark.facts import NO_BOUND, unchecked
from spark.history import few_rows
from spark.result import CheckResult
from spark.spans import Span, fault_spans, with_last_begun

HORIZON: Final = 60_000_000_000
SETTLE: Final = 10_000_000_000


def check_recovery(context: Context) -> CheckResult:
    """Return A60."""
    spans = fault_spans(context, 0)
    bound = context.history.run.get("contract", {}).get("recovery_ms_max")
    limit = HORIZON if bound is None else int(float(bound) * 1_000_000)
    limit += 2 * context.history.tolerance
    heals = [(over, begin) for (_, over), (begin, _) in pairwise([*spans, (NO_BOUND, NO_BOUND)])]
    heals = [(heal, begin) for heal, begin in heals if heal != NO_BOUND]
    if not heals:
        return unchecked("A60", "no fault was lifted")
    served = _first_acks(context, [(heal, min(heal + limit, begin)) for heal, begin in heals])
    tried = _tried(context, [(heal, min(heal + limit // 2, begin)) for heal, begin in heals])
    last = max((r.t_max for r in context.send_stats if r.t_max is not None), default=0)
    whole = [heal + limit <= min(begin, last) for heal, begin in heals]
    missed = [
        (topic, heals[number][0])
        for number, topic in sorted(tried - served.keys())
        if bound is not None and whole[number]
    ]
    worst = max((at - heals[number][0] for (number, _), at in served.items()), default=None)
    result = CheckResult(check="A60")
    result.details = {"heals": len(heals), "worst_ms": None if worst is None else worst / 1e6}
    result.summary = f"{len(heals)} heals, and service was back"
    if not missed:
        return result
    rows = few_rows(context.session, missed, "key string, heal long")
    words = F.concat(
        F.lit("nothing sent to "), F.col("key"), F.lit(" was acknowledged within "),
        F.lit(f"{bound} ms of the heal at "), F.col("heal").cast("string"),
    )  # fmt: skip
    return tell(context, result, rows, words)


def _first_acks(context: Context, windows: list[Span]) -> dict[tuple[int, str], int]:
    """Return when each topic was first acknowledged in each window."""
    ok = context.sends.filter("outcome = 'ok'").withColumn("t", F.coalesce("t_cmp", "t_inv"))
    rows = with_last_begun(context, ok, F.col("t"), windows).filter("t <= span.over")
    found = rows.groupBy("span.number", "topic").agg(F.min("t").alias("t")).collect()
    return {(row.number, row.topic): row.t for row in found}


def _tried(context: Context, windows: list[Span]) -> set[tuple[int, str]]:
    """Return to which topics sends began in each window."""
    rows = with_last_begun(context, context.sends, F.col("t_inv"), windows)
    rows = rows.filter("t_inv <= span.over").select("span.number", "topic").distinct()
    return {(row.number, row.topic) for row in rows.collect()}


def check_availability(context: Context) -> CheckResult:
    """Return A61."""
    spans = fault_spans(context, SETTLE + 2 * context.history.tolerance)
    # What never ended may have run into whatever came later.
    ended = F.coalesce("t_cmp", F.lit(2**63 - 1))
    rows = with_last_begun(context, context.sends, ended, spans)
    counted = rows.filter("span is null or t_inv > span.over").agg(
        F.count(F.lit(1)).alias("quiet"), F.count(F.when(F.expr("outcome = 'ok'"), 1)).alias("ok")
    )
    row = counted.collect()[0]
    if not row.quiet:
        return unchecked("A61", "no send was far from all faults")
    result = CheckResult(check="A61")
    result.details = {"quiet": row.quiet, "acknowledged": row.ok}
    told = f"{row.ok} of {row.quiet} sends far from all faults were acknowledged"
    result.summary = told
    floor = context.history.run.get("contract", {}).get("availability_min")
    if floor is None or row.ok >= float(floor) * row.quiet:
        return result
    explain = F.lit(f"{told}, fewer than {floor} of them")
    rows = few_rows(context.session, [("availability",)], "key string")
    return tell(context, result, rows, explain)
