"""A12, A16, A18, A19: the order within batches, queues without holes, and offsets of groups.

A12: messages of a batch lie in its order where readers found them. A16: the auditor found a message
at each offset from a queue's first to its end. A18: a group is not told less than what it committed
last, unless a reset, a commit of unknown outcome, or somebody who had been told less lies between;
a commit answered amid a fault or a change of the leader, or soon before, may be gone.
A19: no group committed beyond the end that its queue had when all was over.
Source: spec/proof.md A12, A16, A18, A19.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.window import Window

from chaos.catalogue.contracts import QUORUM
from spark.context import AUDITOR, Context
from spark.evidence import message_name, queue_place, tell, text
from spark.facts import (
    NO_BOUND,
    acks_of,
    lacking,
    made_anew,
    on_topics,
    sends_of,
    unchecked,
    unknown,
    unrest,
    without_outcome,
)
from spark.history import few_rows
from spark.lines import before, by_offset
from spark.result import CheckResult

SETTLED: Final = 12_000_000_000
SPREAD: Final = 3_000_000_000
ON_ITS_WAY: Final = 3_000_000_000


def check_batches(context: Context) -> CheckResult:
    """Return A12."""
    result = CheckResult(check="A12", summary="batches lie in their order")
    counted = sends_of(context, "batch", ok=True)
    if missing := lacking("sends", counted, ("seq",)):
        return unknown("A12", f"needs {missing} of batches")
    if not counted:
        return result
    place = ["msg_key", "topic", "queue_id"]
    seen = (
        context.deliveries.filter("not copied and msg_key is not null")
        .filter(on_topics(context))
        .groupBy(*place)
        .agg(F.min("queue_offset").alias("seen"))
    )
    batches = context.sends.filter("outcome = 'ok' and kind = 'batch'")
    batches = batches.filter("queue_id is not null and queue_offset is not null")
    rows = batches.select(*place, "op_id", "seq", "queue_offset").join(seen, place, "left")
    rows = rows.withColumn("queue_offset", F.coalesce("seen", "queue_offset"))
    earlier = Window.partitionBy("op_id", "topic", "queue_id").orderBy("seq", "queue_offset")
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.withColumn("known", F.max("queue_offset").over(earlier))
    explain = text(
        message_name(), " lies at ", queue_place(), ", an earlier one of its batch (op ",
        F.col("op_id"), ") at @", F.col("known"),
    )  # fmt: skip
    rows = rows.filter("queue_offset <= known").withColumn("key", F.col("msg_key"))
    return tell(context, result, rows, explain)


def check_holes(context: Context) -> CheckResult:
    """Return A16."""
    names = {
        r.gname.removesuffix(AUDITOR) for r in context.delivery_stats if r.audited and not r.copied
    }
    counted = [row for row in context.drain_stats if row.grp in names]
    if not counted:
        return unchecked("A16", "nobody read the queues from their first message to their end")
    if missing := lacking("drain", counted, ("min_off", "end_off")):
        return unknown("A16", f"needs {missing} of the auditor")
    queue = ["grp", "topic", "queue_id"]
    facts = (
        context.table("drain").filter(F.col("grp").isin(sorted(names))).filter(on_topics(context))
    )
    is_open = F.max(~F.coalesce("drained", F.lit(col=False))).alias("is_open")
    ends = F.min("min_off").alias("low"), F.max("end_off").alias("end")
    facts = facts.groupBy(*queue).agg(*ends, is_open).filter("not is_open").drop("is_open")
    # What is found in a queue that was read whole is proved, whatever became of the others.
    sound = CheckResult(check="A16", summary="every offset holds a message")
    if any(row.undrained for row in counted):
        sound = unknown("A16", "the auditor did not come to the end of every queue")
    audited = (
        context.deliveries.filter("auditor and not copied")
        .select(*queue, "queue_offset")
        .join(F.broadcast(facts), queue)
        .filter("queue_offset >= low and queue_offset < end")
    )
    broken = _with_holes(audited, facts, queue).persist()
    if not broken.head(1):
        return sound
    seen = audited.join(F.broadcast(broken), queue, "left_semi").distinct()
    ends = facts.join(broken, queue, "left_semi")
    ends = ends.select(*queue, "low", "end", F.col("end").alias("queue_offset"))
    rows = before(seen.unionByName(ends), by_offset(queue), "before", "max", F.col("queue_offset"))
    rows = rows.withColumn("hole", F.expr("coalesce(before + 1, low)"))
    rows = rows.filter("hole < queue_offset")
    where = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("hole"))
    explain = text(F.col("grp"), " found nothing at ", where, " to @", F.col("queue_offset") - 1)
    result = CheckResult(check="A16", summary="every offset holds a message")
    return tell(context, result, rows.withColumn("key", where), explain)


def _with_holes(audited: DataFrame, facts: DataFrame, queue: list[str]) -> DataFrame:
    """Return the queues of which not every offset was found; offsets are counted as bits."""
    bit = F.expr("shiftleft(1L, cast(queue_offset & 63 as int))")
    words = audited.groupBy(*queue, F.shiftright("queue_offset", 6).alias("word"))
    found = words.agg(F.bit_or(bit).alias("bits")).groupBy(*queue)
    counted = found.agg(F.sum(F.bit_count("bits")).alias("found"))
    rows = facts.join(F.broadcast(counted), queue, "left")
    return rows.filter("coalesce(found, 0) < end - low").select(*queue)


def _is_lead_decided(context: Context) -> bool:
    """Tell whether a majority decides who leads, and somebody saw who does."""
    contract = context.history.run.get("contract", {})
    return contract.get("durability") == QUORUM and bool(context.leaderships)


def check_falls(context: Context) -> CheckResult:
    """Return A18."""
    if missing := without_outcome(context, "fetch"):
        return unknown("A18", f"needs {missing} of fetches")
    fetches = acks_of(context, "fetch", "ok")
    if not fetches:
        return unchecked("A18", "nobody recorded which offsets groups were told")
    if context.history.tolerance:
        return unchecked("A18", "clocks that may differ do not order fetches and commits")
    if missing := lacking("acks", fetches, ("topic", "queue_id", "value_offset", "t_inv")):
        return unknown("A18", f"needs {missing} of fetches")
    commit = F.expr("kind = 'commit' and outcome = 'ok'")
    rows = (
        context.table("acks")
        .withColumn("at", F.when(commit, F.col("t_cmp")).otherwise(F.col("t_inv")))
        .filter("queue_id is not null and at is not null")
        .filter(_lasts(context))
        .filter("kind = 'reset' or value_offset is not null")
        .filter("kind != 'reset' or not (outcome <=> 'fail')")
        .withColumn("later", F.expr("kind != 'fetch'"))
    )
    queue = Window.partitionBy("grp", "topic", "queue_id")
    order = queue.orderBy("at", "later", "value_offset")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    told_ms = context.history.run.get("contract", {}).get("offsets_settle_ms")
    settle = int(float(told_ms or 0) * 1_000_000)
    spans = unrest(context, settle, until_gone=_is_lead_decided(context))
    spread = max(SPREAD, settle)
    gone = F.exists(
        "unrest",
        lambda one: (one["begun"] <= F.col("t_cmp") + spread) & (F.col("t_inv") <= one["over"]),
    )
    if spans:
        table = few_rows(context.session, spans, "begun long, over long")
        table = table.agg(F.collect_list(F.struct("begun", "over")).alias("unrest"))
        rows = rows.crossJoin(F.broadcast(table)).withColumn("sure", commit & ~gone)
    else:
        rows = rows.withColumn("sure", commit)
    sure = F.coalesce("sure", F.lit(col=False))
    rows = rows.withColumn("sure", sure)
    last = F.when(F.col("sure"), F.col("value_offset")).when(F.col("kind") == "reset", F.lit(-1))
    told = F.expr("kind = 'fetch' and outcome = 'ok'")
    rows = (
        rows.withColumn("floor", F.coalesce(F.last(last, ignorenulls=True).over(before), F.lit(-1)))
        .withColumn("recent", _least_that_may_arrive(told))
        .filter(told)
        .filter("value_offset < least(floor, recent)")
    )
    where = text(F.col("topic"), "/", F.col("queue_id"))
    explain = text(
        F.col("grp"), " was told ", F.col("value_offset"), " of ", where, ", and committed ",
        F.col("floor"),
    )  # fmt: skip
    result = CheckResult(check="A18", summary="groups are told what they committed")
    return tell(context, result, rows.withColumn("key", where), explain)


def _lasts(context: Context) -> Column:
    """Return whether the offsets of a row's queue did not begin again, with its topic."""
    return ~F.coalesce(F.col("topic").isin(made_anew(context)), F.lit(col=False))


def _least_that_may_arrive(told: Column) -> Column:
    """Return the least offset that others may have committed since they were told it.

    Whoever was told one carries no less in its pulls once it has committed by itself, and a commit
    that was answered is over once the next one of its member is.
    """
    queue = Window.partitionBy("grp", "topic", "queue_id")
    recent = queue.orderBy("at").rangeBetween(-SETTLED, -1)
    member = Window.partitionBy("grp", "topic", "queue_id", "consumer")
    later = member.orderBy("at").rangeBetween(1, Window.unboundedFollowing)
    is_own = F.expr("kind = 'commit' and outcome = 'ok' and consumer is not null")
    own = F.when(is_own, F.col("at"))
    following = F.coalesce(F.min(own).over(later), F.lit(NO_BOUND))
    over = (
        F.when(told, following + ON_ITS_WAY)
        .when(F.expr("outcome = 'ok'"), following)
        .otherwise(F.lit(NO_BOUND))
    )
    doubtful = F.expr("kind = 'commit' and not (outcome <=> 'fail') and not sure")
    other = F.when(told | doubtful, F.struct("value_offset", over.alias("over")))
    others = F.collect_list(other).over(recent)
    arriving = F.filter(others, lambda one: one["over"] >= F.col("at"))
    least = F.array_min(F.transform(arriving, lambda one: one["value_offset"]))
    return F.coalesce(least, F.lit(NO_BOUND))


def check_beyond(context: Context) -> CheckResult:
    """Return A19."""
    result = CheckResult(check="A19", summary="offsets lie within their queues")
    if not context.drain_stats:
        return unchecked("A19", "nobody recorded where queues end")
    if missing := lacking("drain", context.drain_stats, ("end_off",)):
        return unknown("A19", f"needs {missing}")
    if missing := without_outcome(context, "commit"):
        return unknown("A19", f"needs {missing} of commits")
    if not acks_of(context, "commit", "ok"):
        return result
    queue = ["topic", "queue_id"]
    ends = context.table("drain").groupBy(*queue).agg(F.max("end_off").alias("end"))
    commits = context.table("acks").filter("kind = 'commit' and outcome = 'ok'")
    commits = commits.filter("value_offset is not null")
    commits = commits.filter(_lasts(context))
    highest = commits.groupBy("grp", *queue).agg(F.max("value_offset").alias("value_offset"))
    rows = highest.join(F.broadcast(ends), queue).filter("value_offset > end")
    where = text(F.col("topic"), "/", F.col("queue_id"))
    explain = text(
        F.col("grp"), " committed ", F.col("value_offset"), " of ", where, ", which ends at ",
        F.col("end"),
    )  # fmt: skip
    result = tell(context, result, rows.withColumn("key", where), explain)
    endless = highest.join(F.broadcast(ends), queue, "left_anti")
    if not result.count and (told := endless.select(where.alias("at")).distinct().collect()):
        names = ", ".join(sorted(str(row.at) for row in told))
        return unknown("A19", f"needs drain of {names}, where groups committed")
    return result
