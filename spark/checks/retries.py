"""A26, A28, A29, A57: what listeners refuse comes again, so often, and then is a dead letter.

A26: what says that it comes for the n-th time again was refused n times, and of these refusals n
are over; no more of them than the group allows, nor more copies than refusals made. A28: a dead
letter was refused for the last time. A29: no more dead letters of a message than such refusals,
unless one was amid unrest: its answer may be lost, and the message given back twice. A57: whatever
was refused for the last time, and did not come again, is one. Source: spec/proof.md A26, A28, A29,
A57.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.history.domains import ANSWERED_NS, COPY, EARLY_NS, LETTERS_MORE, PLACE, RECEPTION
from spark.context import Context, case_of
from spark.evidence import message_name, tell, tell_of_drained, text
from spark.facts import (
    acks_of,
    came_at,
    counted_of_run,
    lacking,
    of_run,
    read_out,
    reconsume_max_of,
    to_groups,
    unchecked,
    unknown,
    unnamed_refusals,
    with_unrest,
)
from spark.lines import before, by_time
from spark.result import CheckResult

WHO = ["grp", "msg_key"]
MARGIN: Final = 3_000_000_000


def check_ladder(context: Context) -> CheckResult:
    """Return A26."""
    result = CheckResult(check="A26", summary="retries come by the rules")
    counted = counted_of_run(context)
    if not sum(row.n_again for row in counted):
        return result
    if not context.ack_stats:
        return unknown("A26", "needs acks: messages came again, and nobody recorded refusals")
    if missing := unnamed_refusals(context):
        return unknown("A26", missing)
    again = context.deliveries.filter(to_groups() & of_run(context))
    again = again.filter("coalesce(reconsume, 0) > 0 and msg_key is not null")
    nacks = _nacks(context).join(again.select(*WHO).distinct(), WHO, "left_semi")
    if any(row.no_delay_ms or row.no_t_inv for row in acks_of(context, "nack")):
        empty = nacks.agg(
            F.max(F.col("t_inv").isNull().cast("int")).alias("no_t_inv"),
            F.max(F.col("delay_ms").isNull().cast("int")).alias("no_delay_ms"),
        )
        if missing := lacking("acks", empty.collect(), ("t_inv", "delay_ms")):
            return unknown("A26", f"needs {missing} of what was refused and came again")
    due = context.due("t_inv")
    most = case_of(F.col("grp"), reconsume_max_of(context), None).cast("int")
    again = _with_receptions(context, again)
    points = again.unionByName(
        nacks.select(*WHO, due.alias("at"), F.lit(1).alias("refused")), allowMissingColumns=True
    )
    # A refusal that is over at the same moment counts.
    line = by_time(WHO, "at", F.desc("refused"), F.asc("t_recv"))
    rows = (
        before(points.filter("at is not null"), line, "waited", "sum", F.col("refused"))
        .filter("refused = 0")
        .withColumn("beyond", F.coalesce(F.col("received") > most, F.lit(col=False)))
        .filter("reconsume > waited or beyond")
    )
    explain = text(
        message_name(), " came to ", F.col("grp"), " for the ", F.col("reconsume"),
        ". time again; ", F.col("waited"), " refusals of it were over",
    )  # fmt: skip
    rows = rows.select(*WHO, explain.alias("words")).localCheckpoint(eager=True)
    more = _too_many_copies(context, again, nacks).join(rows, WHO, "left_anti")
    words = text(
        message_name(), " came to ", F.col("grp"), " from more copies than refusals of it made"
    )
    rows = rows.unionByName(more.select(*WHO, words.alias("words")))
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), F.col("words"))


def _with_receptions(context: Context, again: DataFrame) -> DataFrame:
    """Return what came again with when it counts as given, and as which repeat it was received.

    A consumer keeps what no broker takes back, and goes on counting: that was received only once.
    """
    # Of all deliveries: of what was sent to topics that nobody knows, the repeats alone are ours.
    to_members = ~F.coalesce("auditor", F.lit(col=False)) & ~F.coalesce("is_dlq", F.lit(col=False))
    rows = context.deliveries.filter(to_members)
    rows = rows.join(again.select(*WHO).distinct(), WHO, "left_semi")
    number = F.coalesce("reconsume", F.lit(0))
    kept = number > F.min(number).over(Window.partitionBy(*RECEPTION))
    is_ours = F.coalesce((number > 0) & to_groups() & of_run(context), F.lit(col=False))
    received = F.min(F.when(is_ours, number)).over(Window.partitionBy(*COPY))
    tried = F.greatest("t_recv", F.coalesce("t_proc_begin", "t_recv"))
    rows = rows.withColumns({
        "received": received,
        "at": F.when(kept, tried).otherwise(F.col("t_recv")) + EARLY_NS,
        "refused": F.lit(0),
    })  # fmt: skip
    return rows.filter(is_ours)


def _too_many_copies(context: Context, again: DataFrame, nacks: DataFrame) -> DataFrame:
    """Return what came again from more copies than refusals made, whatever number each says.

    Where the answer to a refusal may be lost, amid unrest or soon after, there are more of one.
    """
    copies = again.groupBy(*PLACE).agg(
        F.min("reconsume").alias("number"), F.min("t_recv").alias("t")
    )
    copies = copies.groupBy(*WHO, "number")
    copies = copies.agg(F.count(F.lit(1)).alias("copies"), F.max("t").alias("t"))
    made = nacks.filter("reconsume is not null")
    made = made.groupBy(*WHO, (F.col("reconsume") + 1).alias("number")).agg(
        F.count(F.lit(1)).alias("refusals"), F.max("delay_ms").alias("delay_ms")
    )
    rows = copies.join(made, [*WHO, "number"]).filter("copies > refusals")
    rows = with_unrest(context, rows.withColumn("stored", F.expr("t - delay_ms * 1000000L")))
    near = MARGIN + 2 * context.history.tolerance
    amid = f"u.begun <= stored + {near}L and stored - {ANSWERED_NS}L <= u.over + {near}L"
    return rows.filter(f"not exists(unrest, u -> {amid})").select(*WHO).distinct()


def check_false_letters(context: Context) -> CheckResult:
    """Return A28."""
    if (why := _silent(context, "A28")) is not None:
        return why
    result = CheckResult(check="A28", summary="dead letters were refused for the last time")
    if not _has_letters(context):
        return result
    rows = _letters(context).join(_last(context), WHO, "left_anti")
    explain = text(message_name(), " is a dead letter of ", F.col("grp"), " without a last refusal")
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)


def check_letters_twice(context: Context) -> CheckResult:
    """Return A29."""
    if (why := _silent(context, "A29")) is not None:
        return why
    result = CheckResult(check="A29", summary="dead letters are there once")
    if not _has_letters(context):
        return result
    rows = _letters(context).join(_last(context), WHO).filter("letters > refusals")
    rows = rows.join(_in_doubt(context), WHO, "left")
    rows = rows.filter(f"letters > refusals + {LETTERS_MORE} * coalesce(doubts, 0)")
    explain = text(
        message_name(), " is ", F.col("letters"), " dead letters of ", F.col("grp"), ", refused ",
        F.col("refusals"), " times at last",
    )  # fmt: skip
    result = tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)
    if result.count:
        result.details["bound_exceeded"] = f"A29: {result.summary}"
    return result


def check_missing_letters(context: Context) -> CheckResult:
    """Return A57."""
    if (why := _silent(context, "A57")) is not None:
        return why
    result = CheckResult(check="A57", summary="what was refused for good is a dead letter")
    if not any(row.kind == "nack" for row in context.ack_stats):
        return result
    last = _last(context)
    given = (
        context.deliveries.filter(to_groups() & of_run(context))
        .join(last.select(*WHO), WHO, "left_semi")
        .groupBy(*WHO)
        .agg(F.max(came_at()).alias("given"))
    )
    rows = (
        last.join(_letters(context), WHO, "left_anti")
        .join(given, WHO, "left")
        .filter("coalesce(given, -1) <= t")
    )
    explain = text(
        message_name(), " was refused by ", F.col("grp"), " for the last time and is no dead letter"
    )
    rows = rows.withColumns({"key": F.col("msg_key"), "gname": F.col("grp")})
    return tell_of_drained(context, result, rows, explain, read_out(context))


def _silent(context: Context, check: str) -> CheckResult | None:
    """Return why dead letters cannot be judged, None if they can."""
    most = reconsume_max_of(context)
    counted = counted_of_run(context)
    unnamed = {row.grp for row in counted if row.n_dlq} - most.keys()
    if unnamed:
        return unknown(check, f"needs reconsume_max of {', '.join(sorted(unnamed))} in run.json")
    if not most:
        return unchecked(check, "run.json names no limit of retries (reconsume_max)")
    if missing := unnamed_refusals(context, most):
        return unknown(check, missing)
    nacks = [row for row in acks_of(context, "nack") if row.grp in most]
    if missing := lacking("acks", nacks, ("reconsume", "t_inv")):
        return unknown(check, f"needs {missing} of the groups that reconsume_max names")
    return None


def _has_letters(context: Context) -> bool:
    return any(row.n_dlq for row in context.delivery_stats)


def _nacks(context: Context) -> DataFrame:
    return context.table("acks").filter("kind = 'nack' and msg_key is not null")


def _last(context: Context) -> DataFrame:
    """Return how often each message was refused at last, and when."""
    most = case_of(F.col("grp"), reconsume_max_of(context), None).cast("int")
    rows = _nacks(context).filter(F.col("reconsume") >= most)
    return rows.groupBy(*WHO).agg(F.count(F.lit(1)).alias("refusals"), F.max("t_inv").alias("t"))


def _in_doubt(context: Context) -> DataFrame:
    """Return how often what was refused for the last time amid unrest: answers may be lost."""
    most = case_of(F.col("grp"), reconsume_max_of(context), None).cast("int")
    rows = with_unrest(context, _nacks(context).filter(F.col("reconsume") >= most))
    margin = MARGIN + 2 * context.history.tolerance
    near = f"u.begun <= t_inv + {margin}L and t_inv <= u.over + {margin}L"
    rows = rows.filter(f"exists(unrest, u -> {near})")
    return rows.groupBy(*WHO).agg(F.count(F.lit(1)).alias("doubts"))


def _letters(context: Context) -> DataFrame:
    """Return how many dead letters there are of each message."""
    rows = context.deliveries.filter("own and is_dlq and msg_key is not null")
    rows = rows.filter(of_run(context)).select(*WHO, "queue_id", "queue_offset").distinct()
    return rows.groupBy(*WHO).agg(F.count(F.lit(1)).alias("letters"))
