"""A2, A4: did groups commit past what they had not got, and how far behind were they?

A2: a commit lies behind an acknowledged message that its group had not got by then, and got later,
or never while its queue was not drained (else A1 names it). Not judged are offsets before the first
that the group got of the queue, queues that were reset, topics made anew. A4: how many offsets a
group was behind, at the worst full second. Source: spec/proof.md A2, A4.
"""

from dataclasses import replace
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.buckets import BUCKET, lie, touch
from spark.checks.loss import absent_messages
from spark.context import Context
from spark.evidence import message_name, queue_place, tell, text
from spark.facts import (
    acks_of,
    lacking,
    made_anew,
    of_run,
    on_topics,
    resets,
    sends_of,
    small,
    to_groups,
    unchecked,
    unknown,
    without_outcome,
)
from spark.history import few_rows
from spark.lines import OFFSET_BITS, Line, before
from spark.message_outcomes import MessageOutcomes
from spark.result import CheckResult

QUEUE: Final = ["grp", "topic", "queue_id"]
SECOND: Final = 1_000_000_000


def check_passed(context: Context, outcomes: MessageOutcomes) -> CheckResult:
    """Return A2."""
    if missing := without_outcome(context, "commit"):
        return unknown("A2", f"needs {missing} of commits")
    counted = acks_of(context, "commit", "ok")
    if not counted:
        return unchecked("A2", "nobody recorded what groups committed")
    if context.history.tolerance:
        return unchecked("A2", "clocks that may differ do not order commits and deliveries")
    if missing := lacking("acks", counted, ("topic", "queue_id", "value_offset", "t_inv")):
        return unknown("A2", f"needs {missing} of commits")
    steps = _steps(context).persist()
    result = CheckResult(check="A2", summary="commits pass nothing")
    parts = [_late(context, steps), _never(context, outcomes, steps)]
    found = [part for part in parts if part is not None]
    if not found:
        return result
    rows = reduce(DataFrame.unionByName, found)
    rows = rows.dropDuplicates(["grp", "msg_key"]).withColumn("key", F.col("msg_key"))
    explain = text(
        F.col("grp"), " committed behind ", message_name(), " at ", queue_place(),
        " before it had got it",
    )  # fmt: skip
    return tell(context, result, rows, explain)


def _steps(context: Context) -> DataFrame:
    """Return stretches of offsets (``low`` to before ``high``) and when a commit passed them."""
    acks = context.table("acks")
    reset = resets(acks).select(*QUEUE).distinct()
    commits = (
        acks.filter("kind = 'commit' and outcome = 'ok'")
        .filter(_of_one_epoch(context))
        .join(reset, QUEUE, "left_anti")
        .groupBy(*QUEUE, F.col("value_offset").alias("high"))
        .agg(F.min("t_inv").alias("t"))
    )
    line = Line(keys=QUEUE, at=F.col("high"), bits=OFFSET_BITS)
    commits = before(commits, line, "before", "max", F.col("high"))
    # The earliest commit that passed an offset counts, also one of a higher offset.
    line = replace(line, back=True)
    commits = before(commits, line, "earliest", "min", F.col("t"), ties=True)
    begins = (
        _taken(context)
        .groupBy(*QUEUE)
        .agg(F.min("queue_offset").alias("begin"), F.max("queue_offset").alias("top"))
    )
    own = commits.select(*QUEUE).distinct().join(begins, QUEUE)
    own = own.withColumn("floor", F.col("begin"))
    if context.history.rows("drain"):
        drain = context.table("drain")
        mine = drain.groupBy(*QUEUE).agg(F.max("min_off").alias("mine"))
        lowest = drain.groupBy("topic", "queue_id").agg(F.min("min_off").alias("lowest"))
        own = own.join(mine, QUEUE, "left").join(lowest, ["topic", "queue_id"], "left")
        own = own.withColumn("floor", F.greatest("begin", "mine", "lowest"))
    return (
        commits.withColumn("t", F.col("earliest"))
        .join(own.select(*QUEUE, "floor", "top"), QUEUE)
        .withColumn("low", F.greatest(F.coalesce("before", F.lit(0)), "floor"))
        .filter("low < high")
        .select(*QUEUE, "low", "high", "t", "top")
    )


def _late(context: Context, steps: DataFrame) -> DataFrame | None:
    """Return the messages that came to their groups for the first time behind a commit.

    A commit may name any offset: behind the last one that the group took there is nothing to find.
    None if nothing came after a commit had passed any offset near it.
    """
    steps = steps.filter("low <= top")
    steps = touch(steps, F.col("low"), F.least(F.col("high") - 1, F.col("top")))
    taken = lie(_taken(context), F.col("queue_offset"), steps)
    doubtful = _doubtful(taken, steps).persist()
    doubts = doubtful.count()
    if not doubts:
        return None
    suspects = (
        taken.join(small(doubtful, doubts), [*QUEUE, *BUCKET], "left_semi")
        .join(steps, [*QUEUE, *BUCKET])
        .filter("queue_offset >= low and queue_offset < high and t_recv > t")
        .select(*QUEUE, "queue_offset", "msg_key", "t")
        .dropDuplicates(["grp", "msg_key", "topic", "queue_id", "queue_offset"])
        .persist()
    )
    number = suspects.count()
    who = ["grp", "msg_key"]
    first = (
        context.deliveries.filter(to_groups() & of_run(context))
        .join(small(suspects.select(*who).distinct(), number), who, "left_semi")
        .groupBy(*who)
        .agg(F.min("t_recv").alias("first"))
    )
    place = ["msg_key", "topic", "queue_id", "queue_offset"]
    sends = context.sends.filter("outcome = 'ok'")
    sent = sends.filter("kind <=> 'txn' = false").select(*place)
    rows = small(suspects.join(first, who).filter("first > t"), number)
    found = rows.join(sent, place)
    if sends_of(context, "delay", ok=True):
        # What waited lies where it is found.
        waited = sends.filter("kind = 'delay' and queue_offset is null").select(*place[:2])
        found = found.unionByName(rows.join(waited, place[:2]))
    return found.select(*QUEUE, "queue_offset", "msg_key")


def _doubtful(taken: DataFrame, steps: DataFrame) -> DataFrame:
    """Return the buckets in which something came after the first commit that passed any of it."""
    latest = taken.groupBy(*QUEUE, *BUCKET).agg(F.max("t_recv").alias("latest"))
    first = steps.groupBy(*QUEUE, *BUCKET).agg(F.min("t").alias("passed"))
    rows = latest.join(first, [*QUEUE, *BUCKET]).filter("latest > passed")
    return rows.select(*QUEUE, *BUCKET)


def _never(context: Context, outcomes: MessageOutcomes, steps: DataFrame) -> DataFrame | None:
    """Return the messages that never came to groups, whose queues were not drained."""
    absent = absent_messages(context, outcomes)
    if absent is None:
        return None
    spans = steps.groupBy(*QUEUE).agg(F.min("low").alias("low"), F.max("high").alias("high"))
    return (
        absent.filter("state = 'undrained'")
        .withColumn("grp", F.col("gname"))
        .join(spans, QUEUE)
        .filter("queue_offset >= low and queue_offset < high")
        .select(*QUEUE, "queue_offset", "msg_key")
    )


def _taken(context: Context) -> DataFrame:
    """Return what groups got from where producers had put it."""
    rows = context.deliveries.filter(to_groups() & _of_one_epoch(context))
    rows = rows.filter("not copied and queue_offset is not null")
    return rows.select(*QUEUE, "queue_offset", "msg_key", "t_recv")


def _of_one_epoch(context: Context) -> Column:
    """Return whether a row is of a topic that was sent to and not made anew."""
    return on_topics(context) & ~F.col("topic").isin(made_anew(context))


def check_lag(context: Context) -> CheckResult:
    """Return A4."""
    chosen = [
        (group, topic)
        for group in context.consumer_groups
        for topic in sorted(context.topics)
        if context.tags_of(group, topic) is not None
    ]
    begin = min((row.t_min for row in context.send_stats), default=0)

    def second(t: Column) -> Column:
        return F.floor((t - F.lit(begin)) / SECOND).alias("second")

    place = ["topic", "queue_id"]
    acked = (
        context.sends.filter("outcome = 'ok' and queue_offset is not null and queue_id is not null")
        .groupBy(*place, second(F.coalesce("t_cmp", "t_inv")))
        .agg(F.max("queue_offset").alias("top"))
    )
    taken = _taken(context)
    if chosen:
        wishes = F.broadcast(few_rows(context.session, chosen, "grp string, topic string"))
        taken = taken.join(wishes, ["grp", "topic"], "left_anti")
    got = (
        taken.groupBy(*QUEUE, second(F.col("t_recv")))
        .agg(F.max("queue_offset").alias("reached"), F.min("queue_offset").alias("begin"))
        .persist()
    )
    queues = got.groupBy(*QUEUE).agg((F.min("begin") - 1).alias("begin"))
    # A row for each second of a queue, not for each message.
    series = acked.join(queues.select(*QUEUE), place).withColumn("reached", F.lit(None))
    series = series.select(*QUEUE, "second", "top", F.col("reached").cast("long")).unionByName(
        got.select(*QUEUE, "second", F.lit(None).cast("long").alias("top"), "reached")
    )
    until = Window.partitionBy(*QUEUE).orderBy("second")
    until = until.rangeBetween(Window.unboundedPreceding, 0)
    behind = F.max("top").over(until) - F.greatest(F.max("reached").over(until), "begin")
    lags = series.join(queues, QUEUE).withColumn("lag", behind)
    row = lags.agg(F.max("lag").alias("lag")).collect()[0]
    number = queues.count()
    if not number:
        return unchecked("A4", "no group took anything from a queue")
    result = CheckResult(check="A4")
    result.details = {"lag_max": max(0, row.lag or 0), "queues": number}
    result.summary = f"at worst {result.details['lag_max']} offsets behind"
    return result
