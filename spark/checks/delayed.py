"""A25 and A56: delayed messages that come too late, or too early.

The invocation of a send is the earliest time at which it can have been stored, its completion the
latest. Lateness is measured where no fault was in force between send and delivery, nor had just
been lifted, and judged where the contract bounds it (``late_ms_max``; ``late_ms_half_max`` where
half of them are later than that).
Source: spec/proof.md A25, A56.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.history.domains import EARLY_NS, HALF_OF
from spark.context import Context
from spark.evidence import message_name, tell, text
from spark.facts import lacking, of_run, sends_of, to_groups, unknown
from spark.history import few_rows
from spark.result import CheckResult

MARGIN: Final = 3_000_000_000
_MS: Final = 1_000_000


def check_early(context: Context) -> CheckResult:
    """Return A56."""
    result = CheckResult(check="A56", summary="nothing came before its time")
    counted = sends_of(context, "delay")
    if missing := lacking("sends", counted, ("delay_ms",)):
        return unknown("A56", f"needs {missing} of delayed messages")
    if not counted:
        return result
    first = _first(context, F.col("own"))
    sends = context.sends.filter("kind = 'delay'")
    sends = sends.withColumn("due", context.due("t_inv"))
    rows = sends.join(first, "msg_key").filter(F.col("came") < F.col("due") - EARLY_NS)
    explain = text(
        message_name(), " was to wait for ", F.col("delay_ms"), " ms and came ",
        F.round((F.col("due") - F.col("came")) / _MS), " ms before its time",
    )  # fmt: skip
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)


def check_late(context: Context) -> CheckResult:
    """Return A25."""
    result = CheckResult(check="A25", summary="nothing to measure")
    counted = sends_of(context, "delay", ok=True)
    if missing := lacking("sends", counted, ("delay_ms",)):
        return unknown("A25", f"needs {missing} of delayed messages")
    if not counted:
        return result
    sends = context.sends.filter("kind = 'delay' and outcome = 'ok' and t_cmp is not null")
    due = F.col("t_cmp") + F.col("delay_ms") * _MS
    rows = sends.join(_first(context, to_groups()), "msg_key")
    rows = rows.withColumn("late", (F.col("came") - due) / _MS)
    if context.faults:
        spans = [(f.start, f.end) for f in context.faults]
        table = F.broadcast(few_rows(context.session, spans, "begun long, lifted long"))
        ended = F.coalesce(F.col("lifted") + MARGIN, F.lit(1 << 62))
        rows = rows.join(
            table, (F.col("begun") <= F.col("came")) & (ended >= F.col("t_inv")), "left_anti"
        )
    contract = context.history.run.get("contract", {})
    half = contract.get("late_ms_half_max")
    over = F.lit(0) if half is None else F.count_if(F.col("late") > half)
    worst = rows.agg(
        F.max("late").alias("worst"), F.count("late").alias("n"), over.alias("over")
    ).first()
    if worst is None or worst.worst is None:
        return result
    result.summary = f"at worst {worst.worst:.0f} ms overdue"
    result.details = {"overdue_ms": worst.worst}
    halved = worst.n >= HALF_OF and 2 * worst.over > worst.n
    bound = contract.get("late_ms_max", half if halved else None)
    bound = min(half, bound) if halved else bound
    if bound is None or worst.worst <= bound:
        return result
    explain = text(message_name(), " came ", F.round("late"), " ms after its time")
    rows = rows.filter(F.col("late") > bound).withColumn("key", F.col("msg_key"))
    return tell(context, result, rows, explain)


def _first(context: Context, whose: Column) -> DataFrame:
    """Return when each message came first to those whose deliveries count."""
    rows = context.deliveries.filter(whose & of_run(context))
    rows = rows.filter("not copied and msg_key is not null")
    return rows.groupBy("msg_key").agg(F.min("t_recv").alias("came"))
