"""A6: delivered bodies that differ from what was sent.

By key: the hash of a delivery is none of the hashes sent under the key. By place: a body of this
run's topics from which no key can be read, delivered from a place where an acknowledged send lies.
Source: spec/proof.md A6.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.evidence import anomaly_rows, attach, message_name, pointer, queue_place, text
from spark.facts import of_run
from spark.message_outcomes import MessageOutcomes
from spark.result import CheckResult


def check_corrupt(context: Context, outcomes: MessageOutcomes) -> CheckResult:
    """Return A6."""
    result = CheckResult(check="A6", count=outcomes.totals["corrupt"])
    result.summary = "every delivered body is what was sent"
    parts = []
    if result.count:
        parts.append(_differing(context, outcomes.suspects.filter("corrupt")))
    if context.unkeyed_rows:
        unreadable = unkeyed_deliveries(context).filter("sent_key is not null")
        unreadable = unreadable.dropDuplicates(["sent_key"])
        if parts:  # each message once
            known = parts[0].select(F.col("msg_key").alias("sent_key"))
            unreadable = unreadable.join(known, "sent_key", "left_anti")
        number = unreadable.count()
        result.count += number
        if number:
            parts.append(
                unreadable.select(
                    F.col("sent_key").alias("msg_key"), *_COLUMNS, "sent_hash", "send_op"
                )
            )
    if not parts:
        return result
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    explain = text(
        message_name(), " was sent with body hash ", F.col("sent_hash"), " (op ",
        F.col("send_op"), ") and delivered to ", F.col("gname"), " from ", queue_place(),
        " by ", F.col("node"), " with body hash ", F.col("body_hash"),
    )  # fmt: skip
    anomalies = anomaly_rows(
        context, "A6", rows.withColumn("key", F.col("msg_key")), explain=explain,
        evidence=[pointer("sends", "send_op", None), pointer("deliveries", "op_id", "t_recv")],
        time="t_recv",
    )  # fmt: skip
    attach(result, anomalies)
    result.summary = f"{result.count} messages were delivered with another body"
    return result


_COLUMNS = ("gname", "topic", "queue_id", "queue_offset", "op_id", "t_recv", "node", "body_hash")


def unkeyed_deliveries(context: Context) -> DataFrame:
    """Return deliveries of this run without a key, with the acknowledged send at their place."""
    place = ("topic", "epoch_", "queue_id", "queue_offset")
    nameless = context.deliveries.filter(
        F.col("msg_key").isNull() & F.col("own") & of_run(context)
    ).withColumn("epoch_", context.epoch(F.col("topic"), F.col("epoch")))
    sent = context.sends.filter("outcome = 'ok'").select(
        "topic",
        context.epoch(F.col("topic"), F.col("epoch")).alias("epoch_"),
        "queue_id",
        "queue_offset",
        F.col("msg_key").alias("sent_key"),
        F.col("body_hash").alias("sent_hash"),
        F.col("op_id").alias("send_op"),
    )
    return nameless.join(sent, list(place), "left").select(
        "msg_key", *_COLUMNS, "sent_key", "sent_hash", "send_op"
    )


def _differing(context: Context, suspects: DataFrame) -> DataFrame:
    sent = context.sends.join(suspects.select("msg_key"), "msg_key", "left_semi").select(
        "msg_key", F.col("body_hash").alias("sent_hash"), F.col("op_id").alias("send_op")
    )
    got = context.deliveries.filter("own").select("msg_key", *_COLUMNS)
    return (
        got.join(sent, "msg_key")
        .filter("sent_hash <> body_hash")
        .dropDuplicates(["msg_key"])
        .select("msg_key", *_COLUMNS, "sent_hash", "send_op")
    )
