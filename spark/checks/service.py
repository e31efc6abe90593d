"""A27, A46, A50, A51: was everybody served as they asked, and did the system stay up?

A27: a message that a listener refused comes again. A46: a group gets nothing whose tag it did not
subscribe to. A50: what was asked at the end was answered as the rest of the record demands, and no
queue was said to end before what was acknowledged in it. A51: run.json's ``exits``, processes that
ended though no fault ended them. Source: spec/proof.md A27, 3.0, 4.1.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context, case_of
from spark.evidence import message_name, tell, tell_of_drained, text
from spark.facts import (
    came_at,
    of_run,
    read_out,
    reconsume_max_of,
    to_groups,
    unknown,
    unnamed_refusals,
)
from spark.history import few_rows
from spark.result import CheckResult


def check_refused(context: Context) -> CheckResult:
    """Return A27.

    A refusal of what the group has accepted before is not owed: a listener ended more often than it
    refused. The member that had the queue then may have committed beyond it.
    """
    result = CheckResult(check="A27", summary="what was refused came again")
    if not any(row.kind == "nack" for row in context.ack_stats):
        return result
    if missing := unnamed_refusals(context):
        return unknown("A27", missing)
    most = case_of(F.col("grp"), reconsume_max_of(context), None).cast("int")
    owed = most.isNull() | (F.col("reconsume") < most)  # the others are for A57
    refused = (
        context.table("acks")
        .filter("kind = 'nack' and msg_key is not null")
        .groupBy(F.col("grp").alias("gname"), "msg_key")
        .agg(F.max(F.when(owed, F.col("t_inv"))).alias("t"), F.count("*").alias("refusals"))
        .filter("t is not null")
    )
    checked = context.deliveries.filter(to_groups() & of_run(context))
    last = (
        checked.join(refused.select("gname", "msg_key"), ["gname", "msg_key"], "left_semi")
        .groupBy("gname", "msg_key")
        .agg(
            F.max(came_at()).alias("last"),
            F.count("t_proc_end").alias("ended"),
        )
    )
    rows = refused.join(last, ["gname", "msg_key"], "left").filter(
        "coalesce(last, -1) <= t and coalesce(ended, 0) <= refusals"
    )
    if any(row.n_dlq for row in context.delivery_stats):
        letters = context.deliveries.filter("own and is_dlq and msg_key is not null")
        letters = letters.select(F.col("grp").alias("gname"), "msg_key")
        rows = rows.join(letters, ["gname", "msg_key"], "left_anti")
    explain = text(message_name(), " was refused by ", F.col("gname"), " and never came again")
    rows = rows.withColumn("key", F.col("msg_key"))
    # Also a run that was interrupted before it drained.
    return tell_of_drained(context, result, rows, explain, read_out(context))


def check_selection(context: Context) -> CheckResult:
    """Return A46."""
    result = CheckResult(check="A46", summary="every group got what it subscribed to")
    chosen = [
        (group, topic, tags)
        for group in context.consumer_groups
        for topic in context.topics
        if (tags := context.tags_of(group, topic)) is not None
    ]
    if not chosen:
        return result
    wishes = few_rows(context.session, chosen, "gname string, topic string, tags array<string>")
    checked = context.deliveries.filter(to_groups() & of_run(context))
    got = checked.filter("msg_key is not null").select("gname", "msg_key").distinct()
    sent = context.sends.select("msg_key", "topic", "tag")
    wanted = F.coalesce(F.array_contains("tags", F.col("tag")), F.lit(col=False))
    rows = (
        got.join(F.broadcast(wishes.select("gname").distinct()), "gname", "left_semi")
        .join(sent, "msg_key")
        .join(F.broadcast(wishes), ["gname", "topic"], "left")
        .withColumn("fits", F.col("tags").isNull() | wanted)
        .groupBy("gname", "msg_key")
        .agg(F.max("fits").alias("fits"), F.max("tag").alias("tag"))
        .filter("not fits")
    )
    explain = text(message_name(), " with tag ", F.col("tag"), " was delivered to ", F.col("gname"))
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)


def check_answers(context: Context) -> CheckResult:
    """Return A50."""
    result = CheckResult(check="A50", summary="every answer is right")
    parts: list[DataFrame] = []
    if context.history.rows("answers"):
        asked = context.table("answers").filter("not (told <=> expected)")
        said = F.coalesce(F.concat(F.lit("told "), F.col("told")), F.lit("nobody answered"))
        words = text(F.col("kind"), " of ", F.col("subject"), ": ", said, ", not ",
                     F.col("expected"))  # fmt: skip
        parts.append(asked.select(F.col("subject").alias("key"), words.alias("words")))
    if context.history.rows("drain"):
        parts.append(_short_ends(context))
    if not parts:
        return result
    rows = reduce(DataFrame.unionByName, parts)
    return tell(context, result, rows, F.col("words"))


def _short_ends(context: Context) -> DataFrame:
    """Return the queues that were said to end before what was acknowledged in them."""
    latest = {t.name: t.epoch_max for t in context.topics.values() if t.epoch_max}
    current = F.coalesce("epoch", F.lit(0)) >= case_of(F.col("topic"), latest, 0)
    highest = (
        context.sends.filter("outcome = 'ok' and queue_offset is not null")
        .filter(current)
        .groupBy("topic", "queue_id")
        .agg(F.max("queue_offset").alias("highest"))
    )
    ends = context.table("drain").groupBy("topic", "queue_id").agg(F.min("end_off").alias("end"))
    where = text(F.col("topic"), "/", F.col("queue_id"))
    words = text("the end of ", where, " was told as ", F.col("end"), ", but @", F.col("highest"),
                 " was acknowledged")  # fmt: skip
    rows = ends.join(highest, ["topic", "queue_id"]).filter("end <= highest")
    return rows.select(where.alias("key"), words.alias("words"))


def check_exits(context: Context) -> CheckResult:
    """Return A51."""
    result = CheckResult(check="A51", summary="every process ran until it was ended")
    told = context.history.run.get("exits")
    rows = [row for row in told if isinstance(row, dict)] if isinstance(told, list) else []
    result.count = len(rows)
    if rows:
        names = ", ".join(str(row.get("process")) for row in rows)
        result.summary = f"ended by themselves: {names}"
        for row in rows:
            told = row.get("log") or []
            log = " | ".join(map(str, told if isinstance(told, list) else [told]))
            explain = f"{row.get('process')} ended by itself ({row.get('exit')}); its log: {log}"
            result.evidence.append({"key": str(row.get("process")), "explain": explain})
    return result
