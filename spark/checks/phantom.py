"""A5 and A7: deliveries that must never happen, of messages nobody sent or that were refused.

A5: a delivered message of this run, on a topic of this run, whose key no send has. Messages with
another run's tag are foreign: counted, not flagged. A7: every send of the key ended ``fail``, whose
code proves that nothing was appended, and yet it was delivered, or lies committed in a log.
Source: spec/proof.md A5, A7.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.checks.corrupt import unkeyed_deliveries
from spark.context import Context
from spark.evidence import anomaly_rows, attach, message_name, pointer, queue_place, text
from spark.facts import small
from spark.log_entries import LogEntries
from spark.message_outcomes import MessageOutcomes
from spark.result import UNKNOWN, CheckResult


def check_phantom(context: Context, outcomes: MessageOutcomes, *, gaps: bool) -> CheckResult:
    """Return A5; ``gaps``: the history lost records, so a missing send proves nothing."""
    result = CheckResult(check="A5", count=outcomes.totals["phantom"])
    parts = []
    if result.count:
        parts.append(deliveries_of(context, outcomes.suspects.filter("phantom")))
    if context.unkeyed_rows:
        nameless = unkeyed_deliveries(context).filter("sent_key is null")
        nameless = nameless.dropDuplicates(["topic", "queue_id", "queue_offset"])
        number = nameless.count()
        result.count += number
        if number:
            parts.append(nameless.select(parts[0].columns if parts else nameless.columns))
    result.details = {"foreign_deliveries": context.foreign_rows}
    result.summary = "every delivered message was sent"
    if not result.count:
        return result
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    rows = rows.withColumn("key", F.coalesce(F.col("msg_key").cast("string"), queue_place()))
    explain = text(
        message_name(), " was delivered to ", F.col("gname"), " from ", queue_place(),
        " by ", F.col("node"), ", but no send of it is in the history",
    )  # fmt: skip
    anomalies = anomaly_rows(
        context, "A5", rows, explain=explain,
        evidence=[pointer("deliveries", "op_id", "t_recv")], time="t_recv",
    )  # fmt: skip
    attach(result, anomalies)
    result.summary = f"{result.count} delivered messages were never sent"
    if gaps:
        result.verdict = UNKNOWN
        result.summary += ", but the history has gaps: the sends may not have been recorded"
    return result


def check_aborted(
    context: Context, outcomes: MessageOutcomes, entries: LogEntries | None
) -> CheckResult:
    """Return A7."""
    result = CheckResult(check="A7", count=outcomes.totals["aborted"])
    result.summary = "no refused send took effect"
    if not result.count:
        return result
    suspects = outcomes.suspects.filter("aborted")
    keys = suspects.select("msg_key")
    seen = keys.join(deliveries_of(context, suspects), "msg_key", "left")
    if entries is None:
        seen = seen.withColumn("index", F.lit(None).cast("long"))
    else:
        stored = entries.entries.select("msg_key", "index").dropDuplicates(["msg_key"])
        mine = stored.join(small(keys, result.count), "msg_key", "left_semi")
        seen = seen.join(mine, "msg_key", "left")
    sends = context.sends.select(
        "msg_key", F.col("op_id").alias("send_op"), "err_code", F.col("t_cmp").alias("t_failed")
    )
    rows = seen.join(sends, "msg_key").dropDuplicates(["msg_key"])
    explain = text(
        message_name(), " was refused with code ", F.col("err_code"), " (op ", F.col("send_op"),
        "), yet ",
        F.when(F.col("gname").isNotNull(), text(F.col("gname"), " got it from ", queue_place()))
        .otherwise(text("replicas committed it at index ", F.col("index"))),
    )  # fmt: skip
    anomalies = anomaly_rows(
        context, "A7", rows.withColumn("key", F.col("msg_key")), explain=explain,
        evidence=[
            pointer("sends", "send_op", "t_failed"), pointer("deliveries", "op_id", "t_recv")
        ],
        time="t_failed",
    )  # fmt: skip
    attach(result, anomalies)
    codes = {str(r.err_code): r["count"] for r in rows.groupBy("err_code").count().collect()}
    result.details = {"by_code": codes}
    result.summary = f"{result.count} refused sends took effect; by code: {codes}"
    return result


def deliveries_of(context: Context, suspects: DataFrame) -> DataFrame:
    """Return the first delivery of each suspect."""
    columns = ("msg_key", "gname", "topic", "queue_id", "queue_offset", "op_id", "t_recv", "node")
    first = F.min(F.struct("t_recv", *(c for c in columns if c != "t_recv"))).alias("first")
    return (
        context.deliveries.filter("own")
        .join(suspects.select("msg_key"), "msg_key", "left_semi")
        .groupBy(F.col("msg_key").alias("k"))
        .agg(first)
        .select("first.*")
        .select(*columns)
    )
