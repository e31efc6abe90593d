"""Turns suspects into rows of the table ``anomalies`` and into evidence a person can follow.

Source: spec/proof.md 4.3 (anomalies), 4.5 (evidence drill-down).
"""

from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.checks import CHECKS
from chaos.catalogue.live import IRREVOCABLE
from spark.context import Context
from spark.history import array_of
from spark.result import EVIDENCE_MAX, UNKNOWN, CheckResult

FAULT_MARGIN_NS: Final = 2_000_000_000
_EVIDENCE_TYPE: Final = "array<struct<table:string,op_id:bigint,t:bigint>>"
_SEQUENCE_BITS: Final = 40


def text(*parts: str | Column) -> Column:
    """Return the parts joined, null columns shown as ``?``; strings are literal text."""
    return F.concat(
        *(
            F.lit(part) if isinstance(part, str) else F.coalesce(part.cast("string"), F.lit("?"))
            for part in parts
        )
    )


def message_name(key: str = "msg_key") -> Column:
    """Return ``message KEY (producer P, number N)``."""
    column = F.col(key)
    low = column.bitwiseAND(F.lit((1 << _SEQUENCE_BITS) - 1))
    high = F.shiftright(column, _SEQUENCE_BITS)
    return text("message ", column, " (producer ", high, ", number ", low, ")")


def queue_place() -> Column:
    """Return ``TOPIC/QUEUE@OFFSET`` of a row that has these columns."""
    return text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))


def pointer(table: str, op_id: str | None, t: str | None) -> Column:
    """Return one pointer into a table, as the evidence arrays hold them."""
    return F.struct(
        F.lit(table).alias("table"),
        (F.col(op_id) if op_id else F.lit(None)).cast("long").alias("op_id"),
        (F.col(t) if t else F.lit(None)).cast("long").alias("t"),
    )


def anomaly_rows(
    context: Context,
    check: str,
    rows: DataFrame,
    *,
    explain: Column,
    evidence: list[Column],
    time: str | None = None,
) -> DataFrame:
    """Return ``rows`` (which have a column ``key``) as rows of the table ``anomalies``.

    ``time`` names the column by which faults then in force are looked up.
    """
    return rows.select(
        F.lit(context.history.run_id).alias("run_id"),
        F.lit(check).alias("anomaly"),
        F.lit(CHECKS[check].severity).alias("severity"),
        F.lit(check in IRREVOCABLE).alias("ir"),
        F.col("key").cast("string").alias("key"),
        (F.array(*evidence) if evidence else F.array()).cast(_EVIDENCE_TYPE).alias("evidence"),
        _faults_at(context, time).alias("fault_ids"),
        explain.alias("explain"),
    )


def tell(context: Context, result: CheckResult, rows: DataFrame, explain: Column) -> CheckResult:
    """Count anomalies (rows with a column ``key``) and attach them to their result."""
    found = anomaly_rows(context, result.check, rows, explain=explain, evidence=[]).persist()
    result.count = found.count()
    if result.count:
        result.summary = f"{result.count} times not so: {result.summary}"
        attach(result, found)
    return result


def tell_of_drained(
    context: Context, result: CheckResult, rows: DataFrame, explain: Column, groups: list[str]
) -> CheckResult:
    """Tell of the rows of ``groups``, which read all queues; of others nothing is proved."""
    result = tell(context, result, rows.filter(F.col("gname").isin(groups)), explain)
    if not result.count and rows.head(1):
        result.verdict = UNKNOWN
        result.summary = f"queues were not drained, and it may not be so: {result.summary}"
    return result


def attach(result: CheckResult, anomalies: DataFrame, *, shown: DataFrame | None = None) -> None:
    """Give a result its anomalies and the first of them as evidence."""
    result.anomalies = anomalies
    for row in (shown if shown is not None else anomalies).limit(EVIDENCE_MAX).collect():
        result.evidence.append(evidence_of(row))


def evidence_of(row: Row) -> dict[str, Any]:
    """Return one anomaly as a member of ``results.json``."""
    return {
        "key": row.key,
        "explain": row.explain,
        "faults": list(row.fault_ids or ()),
        "rows": [pointer.asDict() for pointer in row.evidence or ()],
    }


def faults_between(context: Context, start: int, end: int) -> list[str]:
    """Return ``id kind targets`` of the faults in force in an interval (ns)."""
    return [
        f"{f.fault_id} {f.kind} {','.join(f.targets)}"
        for f in context.noted_faults
        if f.overlaps(start - FAULT_MARGIN_NS, end + FAULT_MARGIN_NS)
    ]


def _faults_at(context: Context, time: str | None) -> Column:
    empty = F.array().cast("array<string>")
    if time is None or not context.noted_faults:
        return empty
    at = F.col(time)
    spans = [
        (f.fault_id, f.start - FAULT_MARGIN_NS, _end(f.end) + FAULT_MARGIN_NS)
        for f in context.noted_faults
    ]
    # One literal, however many faults there were.
    known = array_of(spans, "id string, begin long, end long")
    in_force = F.filter(known, lambda f: (at >= f["begin"]) & (at <= f["end"]))
    return F.coalesce(F.transform(in_force, lambda f: f["id"]), empty)


def _end(end: int | None) -> int:
    return 1 << 62 if end is None else end
