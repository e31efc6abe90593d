"""A11 and A49: what the client says of its sends against time, and against its own attempts.

A11: of two sends to one queue, by the queue that was told, the one that began after the other had
been acknowledged lies behind it. One without an outcome lies where it was delivered from. From the
end of a queue to its beginning, a running minimum of the times of acknowledgement replaces a
self-join. A49: a send reported as stored whose last attempt did not say so, or without a place, or
in another queue than was asked for; one reported as failed although an attempt may have stored it.
Source: spec/proof.md A11, 3.0 (prefix maximum), 1.
"""

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.evidence import anomaly_rows, attach, message_name, pointer, text
from spark.facts import small
from spark.lines import before, by_offset
from spark.result import CheckResult
from spark.runs import find_runs

NEVER: Final = 2**63 - 1
"""When what has no outcome was acknowledged."""


def check_order(context: Context) -> CheckResult:
    """Return A11."""
    result = CheckResult(check="A11", summary="what was sent later lies behind")
    sends = context.sends.filter(
        "outcome = 'ok' and queue_id is not null and queue_offset is not null and t_cmp is not null"
    ).withColumn("epoch_", context.epoch(F.col("topic"), F.col("epoch")))
    columns = ("topic", "epoch_", "queue_id", "queue_offset", "msg_key", "op_id", "t_cmp", "t_inv")
    sends = sends.filter("epoch_ is not null").select(*columns).withColumn("ended", F.col("t_cmp"))
    sends = sends.unionByName(_found_unknown(context))
    if _in_order(sends):
        return result
    queue = by_offset(("topic", "epoch_", "queue_id"), back=True)
    # The first that was acknowledged of what lies there or behind.
    first = F.struct("ended", "queue_offset")
    rows = before(sends, queue, "first", "min", first, ties=True).filter("first.ended < t_inv")
    rows = rows.withColumn("known", F.col("first.queue_offset")).drop("first")
    explain = text(
        message_name(), " lies at ", F.col("topic"), "/", F.col("queue_id"), "@",
        F.col("queue_offset"), ", but was sent after @", F.col("known"), " was acknowledged",
    )  # fmt: skip
    return _told(context, result, rows, explain)


def _found_unknown(context: Context) -> DataFrame:
    """Return each place of each message that was delivered though none of its sends has an outcome.

    It began when the first of them did, and never ended.
    """
    keyed = context.sends.filter("msg_key is not null")
    first = F.min(F.struct("t_inv", "op_id"))
    open_ones = keyed.filter("outcome = 'info'").groupBy("msg_key").agg(first.alias("first"))
    open_ones = open_ones.persist(StorageLevel.MEMORY_AND_DISK)
    few = small(open_ones, open_ones.count())
    decided = keyed.filter("outcome <> 'info'").join(few, "msg_key", "left_semi")
    places = (
        context.deliveries.filter("own and not copied and queue_offset is not null")
        .withColumn("epoch_", context.epoch(F.col("topic"), F.col("epoch")))
        .filter("epoch_ is not null and queue_id is not null")
        .join(few, "msg_key")
        .join(decided.select("msg_key"), "msg_key", "left_anti")
        .select("topic", "epoch_", "queue_id", "queue_offset", "msg_key", "first")
        .distinct()
    )
    return places.select(
        "*", F.col("first.op_id").alias("op_id"), F.col("first.t_inv").alias("t_cmp"),
        F.col("first.t_inv").alias("t_inv"), F.lit(NEVER).alias("ended"),
    ).drop("first")  # fmt: skip


def _in_order(sends: DataFrame) -> bool:
    """Tell whether the runs of the queues show that all lies in order."""
    queue = F.xxhash64("topic", "epoch_", "queue_id")
    runs = find_runs(
        sends, line=queue, parent=queue, at=F.col("queue_offset"), early=F.col("ended"),
        late=F.col("t_inv"),
    )  # fmt: skip
    return runs is not None and not (runs.overlapping() | runs.disordered()).any()


def check_word(context: Context) -> CheckResult:
    """Return A49."""
    result = CheckResult(check="A49", summary="every outcome fits its attempts")
    if not any(row.with_tries for row in context.send_stats):
        return result
    ok, last = F.col("outcome") == "ok", F.element_at("tries", -1)
    doubtful = F.array_contains("tries", "ok") | F.array_contains("tries", "info")
    unsaid = F.coalesce(last, F.lit("none")) != "ok"
    # What waits has no place yet, by which anybody else could find it.
    waits = F.coalesce(F.col("kind").isin("delay", "txn"), F.lit(col=False))
    nowhere = F.col("queue_id").isNull() | F.col("queue_offset").isNull()
    # Where no send has an id the system gives none, or nobody wrote them down.
    has_ids = context.sends.select("msg_id").filter("msg_id is not null").first() is not None
    placeless = (nowhere & ~waits) | (F.lit(has_ids) & F.col("msg_id").isNull())
    elsewhere = F.coalesce(F.col("asked_queue") != F.col("queue_id"), F.lit(col=False))
    what = (
        F.when((F.col("outcome") == "fail") & doubtful, "reported as failed")
        .when(ok & unsaid, "reported as stored")
        .when(ok & placeless, "reported as stored without a place or an id")
        .when(ok & elsewhere, "stored in another queue than was asked for")
    )
    rows = context.sends.filter("tries is not null").withColumn("what", what)
    explain = text(
        message_name(), " (op ", F.col("op_id"), ") ", F.col("what"), "; its attempts ended ",
        F.concat_ws(", ", "tries"),
    )  # fmt: skip
    return _told(context, result, rows.filter("what is not null"), explain)


def _told(context: Context, result: CheckResult, rows: DataFrame, explain: Column) -> CheckResult:
    found = anomaly_rows(
        context, result.check, rows.withColumn("key", F.col("msg_key")), explain=explain,
        evidence=[pointer("sends", "op_id", "t_cmp")], time="t_cmp",
    ).persist()  # fmt: skip
    result.count = found.count()
    if result.count:
        result.summary = f"not so for {result.count}: {result.summary}"
        attach(result, found)
    return result
