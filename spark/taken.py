"""What no disk can have taken of what A1 and A55 find: what others have, and what came afterwards.

A message that somebody else read when the faults that took disks were over, or that all logs of a
group hold, was not taken; nor was one that was sent later, or that a group acknowledged whose disks
were whole. What is passed over since its queue ended earlier than before (it lies where the queue
had been already, or where another message was) is excused all the same.
Source: spec/proof.md 4.3 (Contract).
"""

from collections.abc import Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.contracts import SETTLED_NS
from spark.context import Context, Fault
from spark.facts import NO_BOUND, on_topics
from spark.lines import before, by_time
from spark.log_entries import LogEntries

_QUEUE: Final = ("topic", "epoch_", "queue_id")


def not_taken(
    context: Context, missed: DataFrame, entries: LogEntries | None, taking: Sequence[Fault],
    whole: Collection[str] = (),
) -> str:  # fmt: skip
    """Return in words what of ``missed`` no disk took; empty if there is none.

    ``missed``: a row for each group and message, with its send and its place, as far as known.
    ``taking``: the faults that took disks. ``whole``: nodes of groups that lost nothing by them.
    """
    begin = min(fault.start for fault in taking)
    end = max(NO_BOUND if fault.end is None else fault.end for fault in taking)
    over = max(fault.start + SETTLED_NS if fault.end is None else fault.end for fault in taking)
    missed = missed.select(
        "gname", "msg_key", *_QUEUE[:1], _epoch(context), "queue_id", "queue_offset", "t_inv",
        F.coalesce("t_cmp", F.lit(NO_BOUND)).alias("ended"),
        F.monotonically_increasing_id().alias("line"),
    ).localCheckpoint(eager=True)  # fmt: skip
    untouched = missed.limit(0)
    if whole:
        untouched = _of_nodes(context, missed, whole).localCheckpoint(eager=True)
        missed = missed.join(untouched.select("line"), "line", "left_anti")
    until = min(end + SETTLED_NS, NO_BOUND)
    amid = f"ended >= {begin}L and t_inv <= {until}L and coalesce(reached >= queue_offset, false)"
    rows = _with_ends(context, missed).filter(f"not ({amid})")
    rows = rows.withColumn("later", F.col("t_inv") > end)
    rows = rows.join(_read(context, missed, over), "line", "left")
    if entries is not None:
        rows = rows.join(_held(missed, entries), "line", "left")
    else:
        rows = rows.withColumn("is_held", F.lit(col=False))
    rows = rows.join(_displacing(context, missed, over, end), "line", "left")
    there = F.coalesce("is_read", F.lit(col=False)) | F.coalesce("is_held", F.lit(col=False))
    there = there & ~F.coalesce("is_displacing", F.lit(col=False))
    counted = rows.agg(
        F.count_if("later").alias("later"),
        F.count_if(~F.col("later") & there).alias("elsewhere"),
    ).collect()[0]
    words = [f"{counted.later} of what was sent after them"] if counted.later else []
    words += [f"{counted.elsewhere} that others have"] if counted.elsewhere else []
    if whole and (number := untouched.count()):
        words.append(f"{number} of groups whose disks were whole")
    return ", ".join(words)


def _of_nodes(context: Context, missed: DataFrame, nodes: Collection[str]) -> DataFrame:
    """Return the rows of messages that these nodes, and no others, acknowledged."""
    sends = context.sends.filter("outcome = 'ok'").groupBy("msg_key", "topic")
    is_theirs = F.coalesce(F.col("node").isin(sorted(nodes)), F.lit(col=False))
    theirs = sends.agg(F.bool_and(is_theirs).alias("is_theirs")).filter("is_theirs")
    return missed.join(theirs, ["msg_key", "topic"], "left_semi")


def _epoch(context: Context) -> Column:
    return context.epoch(F.col("topic"), F.col("epoch")).alias("epoch_")


def _with_ends(context: Context, missed: DataFrame) -> DataFrame:
    """Return the rows with how far their queues were seen to reach before they were sent."""
    known = _seen(context).drop("msg_key", "is_given")
    known = known.join(F.broadcast(missed.select("topic").distinct()), "topic", "left_semi")
    both = missed.withColumn("t", F.col("t_inv")).unionByName(known, allowMissingColumns=True)
    # What is seen at the same moment is not seen before.
    order = by_time(_QUEUE, "t", F.desc_nulls_last("line"))
    rows = before(both, order, "reached", "max", F.col("seen"))
    return rows.filter("line is not null").drop("t", "seen")


def _seen(context: Context) -> DataFrame:
    """Return the places of what was acknowledged, or given to somebody, and when."""
    sends = context.sends.filter("outcome = 'ok' and t_cmp is not null")
    given = context.deliveries.filter(on_topics(context) & ~F.col("copied"))
    seen = [
        rows.filter("queue_offset is not null and queue_id is not null").select(
            "topic", _epoch(context), "queue_id", "msg_key", F.col(t).alias("t"),
            F.col("queue_offset").alias("seen"), F.lit(rows is given).alias("is_given"),
        )
        for rows, t in ((sends, "t_cmp"), (given, "t_recv"))
    ]  # fmt: skip
    return seen[0].unionByName(seen[1])


def _displacing(context: Context, missed: DataFrame, over: int, end: int) -> DataFrame:
    """Return the lines of what had waited and was read since where others had been seen before."""
    waiting = context.sends.filter("kind in ('delay', 'txn')").select("msg_key").distinct()
    lines = missed.select("line", "msg_key").join(waiting, "msg_key", "left_semi")
    known = _seen(context).filter("msg_key is not null and epoch_ is not null")
    now = known.filter(F.col("is_given") & (F.col("t") > over)).join(lines, "msg_key")
    now = now.select("line", "msg_key", *_QUEUE, "seen").distinct()
    firsts = known.groupBy("msg_key", *_QUEUE, "seen").agg(F.min("t").alias("first"))
    mine = now.join(firsts, ["msg_key", *_QUEUE, "seen"]).withColumnRenamed("first", "mine")
    others = firsts.filter(F.col("first") <= end).withColumnRenamed("msg_key", "other")
    both = mine.join(others, [*_QUEUE, "seen"]).filter("other <> msg_key and first < mine")
    return both.select("line").distinct().withColumn("is_displacing", F.lit(col=True))


def _read(context: Context, missed: DataFrame, over: int) -> DataFrame:
    """Return the lines whose messages others read when the faults were over."""
    given = context.deliveries.filter(on_topics(context) & ~F.col("copied"))
    given = given.filter(F.col("t_recv") > over).select("msg_key", F.col("grp").alias("reader"))
    rows = missed.select("line", "gname", "msg_key").join(given, "msg_key")
    rows = rows.filter("reader <> gname")
    return rows.select("line").distinct().withColumn("is_read", F.lit(col=True))


def _held(missed: DataFrame, entries: LogEntries) -> DataFrame:
    """Return the lines, and whether all logs of a group hold their messages."""
    rows = entries.contents.filter("type <> 'unreadable'").groupBy("msg_key", "topic")
    held = rows.agg(F.bit_or("holders").alias("holders"))
    whole = F.lit(col=False)
    for group in sorted({node.group for node in entries.nodes}):
        mask = F.lit(sum(1 << node.number for node in entries.nodes if node.group == group))
        whole = whole | (F.col("holders").bitwiseAND(mask) == mask)
    rows = missed.select("line", "msg_key", "topic").join(held, ["msg_key", "topic"])
    return rows.select("line", whole.alias("is_held"))
