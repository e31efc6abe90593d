"""A13, A14, A17: in which order groups read.

A13: what a consumer polled later of a queue, within one generation, lies behind what it had polled.
A14: it passes over nothing that its group gets only later, from another. Both look at the first
delivery of each place to a group; what comes again is A9's, and look only at queues whose runs do
not show that all is in order. A17: an orderly group has one call of a
queue at a time, and gets each shard in the order of its sends. Source: spec/proof.md A13, A14, A17.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.window import Window

from spark.buckets import BUCKET, SIZES_BITS, lie, touch
from spark.checks.redelivery import deaths_of
from spark.context import CALLED, POLLED, Context, case_of
from spark.evidence import queue_place, tell, text
from spark.facts import (
    acks_of,
    counted_of_run,
    lacking,
    made_anew,
    modes_of,
    of_run,
    on_topics,
    reconsume_max_of,
    resets,
    sends_of,
    to_groups,
    unchecked,
    unknown,
)
from spark.lines import TIME_BITS, before, by_offset, by_time, whole
from spark.result import CheckResult
from spark.runs import find_runs

QUEUES_MAX: Final = 1_000
"""So many queues are named when only their polls are looked at."""
NEVER: Final = (1 << 62) - 1
"""The time of what did not come."""
QUEUE: Final = ("gname", "topic", "epoch_", "queue_id")
STRETCH: Final = (*QUEUE, "consumer", "generation")


def check_backwards(context: Context) -> CheckResult:
    """Return A13."""
    result = CheckResult(check="A13", summary="polls go forwards")
    if (why := _untold(context, "A13")) is not None:
        return why
    parts = [part for part in (_turned_back(context), _turned_calls(context)) if part is not None]
    if not parts:
        return result
    return tell(context, result, reduce(DataFrame.unionByName, parts), F.col("words"))


def _turned_back(context: Context) -> DataFrame | None:
    """Return what lies before what its member had polled earlier; None if runs show nothing."""
    known = _order(context)
    if known.disordered is not None and not known.disordered:
        return None
    polls = _polls(context, known)
    # Each place is there once: the first that was polled of what lies behind.
    first = F.struct("t_fetch_inv", "queue_offset")
    rows = before(polls, by_offset(STRETCH, back=True), "known", "min", first)
    words = text(
        F.col("consumer"), " polled ", queue_place(), " after @", F.col("known.queue_offset")
    )
    rows = rows.filter("known.t_fetch_inv < t_fetch_inv")
    return rows.select(queue_place().alias("key"), words.alias("words"))


def _turned_calls(context: Context) -> DataFrame | None:
    """Return what stands in a call behind a message of its queue that lies behind it.

    None if no call has several messages. Where all of a call lie in a row they lie in order.
    """
    if not any(row.behind for row in context.delivery_stats):
        return None
    call = (*STRETCH, "t_fetch_inv", "op_id")
    rows = _firsts(context).filter("pos is not null and op_id is not null")
    rows = rows.filter(" and ".join(f"{name} is not null" for name in POLLED))
    begin = F.col("queue_offset") - F.col("pos")
    doubtful = rows.groupBy(*call).agg(F.min(begin).alias("low"), F.max(begin).alias("high"))
    doubtful = doubtful.filter("low < high").drop("low", "high")
    order = Window.partitionBy(*call).orderBy("pos", "queue_offset")
    order = order.rowsBetween(Window.unboundedPreceding, -1)
    rows = rows.join(doubtful, list(call), "left_semi")
    rows = rows.withColumn("known", F.max("queue_offset").over(order))
    words = text(
        F.col("consumer"), " had ", queue_place(), " behind @", F.col("known"), " in call ",
        F.col("op_id"),
    )  # fmt: skip
    rows = rows.filter("queue_offset < known")
    return rows.select(queue_place().alias("key"), words.alias("words"))


def check_skips(context: Context) -> CheckResult:
    """Return A14."""
    result = CheckResult(check="A14", summary="polls skip nothing")
    if (why := _untold(context, "A14")) is not None:
        return why
    known = _order(context)
    if known.skipping is not None and not known.skipping:
        return result
    polls = _polls(context, known)
    kept = polls.filter("t_fetch_inv < last")
    gaps = before(kept, by_offset(STRETCH), "before", "max", F.col("queue_offset"))
    gaps = gaps.filter("queue_offset > before + 1").select(
        *QUEUE,
        F.col("consumer").alias("who"),
        F.col("generation").alias("stretch"),
        "before",
        F.col("queue_offset").alias("after"),
        F.col("t_recv").alias("t_after"),
    )
    gaps = touch(gaps, F.col("before") + 1, F.col("after") - 1).persist()
    if not gaps.head(1):
        return result
    later = F.col("t_recv") > F.col("t_after") + context.history.tolerance
    others = (F.col("who") != F.col("consumer")) | (F.col("stretch") != F.col("generation"))
    rows = (
        lie(polls, F.col("queue_offset"), gaps)
        .join(gaps, [*QUEUE, *BUCKET])
        .filter("queue_offset > before and queue_offset < after")
        .filter(later & others)
    )
    if (deaths := deaths_of(context)) is not None:
        # What a consumer had at hand that died before another one got it is not on its record.
        between = F.col("t_dead").between(
            F.col("t_after") - context.history.tolerance, F.col("t_recv")
        )
        its = F.col("dead_of").isNull() | (F.col("dead_of") == F.col("gname"))
        is_cut = its & (F.col("dead") == F.col("who")) & between
        rows = rows.join(F.broadcast(deaths), is_cut, "left_anti")
    rows = rows.dropDuplicates([*QUEUE, "queue_offset"]).withColumn("key", queue_place())
    explain = text(
        F.col("who"), " polled @", F.col("after"), " and not ", queue_place(), ", which ",
        F.col("gname"), " got later from ", F.col("consumer"),
    )  # fmt: skip
    return tell(context, result, rows, explain)


@dataclass(frozen=True, slots=True)
class _Order:
    """The queues of groups, by the hash of `QUEUE`, whose polls have to be looked at one by one.

    None in the place of hashes: all. What is ``disordered`` is in ``skipping``, too.
    """

    disordered: frozenset[int] | None = None
    skipping: frozenset[int] | None = None


def _untold(context: Context, check: str) -> CheckResult | None:
    """Return why nobody can tell who polled what, None if deliveries say so."""
    counted = [r for r in context.delivery_stats if not r.copied and r.topic in context.topics]
    counted = [r for r in counted if r.gname in context.consumer_groups]
    modes = modes_of(context)
    if missing := lacking("deliveries", [r for r in counted if r.gname in modes], POLLED):
        return unknown(check, f"needs {missing} of the groups that run.json names in modes")
    if counted and not any(row.polled for row in counted):
        return unchecked(check, f"no delivery says its {', '.join(POLLED)}")
    return None


def _firsts(context: Context) -> DataFrame:
    """Return the deliveries that may be the first of their places to groups."""
    return (
        context.deliveries.filter("not copied and not coalesce(auditor, false)")
        .filter("coalesce(reconsume, 0) = 0 and queue_offset is not null")
        .filter(on_topics(context))
        .withColumn("epoch_", context.epoch(F.col("topic"), F.col("epoch")))
        .filter("epoch_ is not null")
    )


def _not_reset(context: Context, rows: DataFrame) -> DataFrame:
    """Return deliveries without those of queues whose offsets were set anew."""
    if not acks_of(context, "reset"):
        return rows
    queues = resets(context.table("acks")).select(F.col("grp").alias("gname"), "topic", "queue_id")
    return rows.join(F.broadcast(queues.distinct()), ["gname", "topic", "queue_id"], "left_anti")


def _order(context: Context) -> _Order:
    """Return what the runs of polls say, a line for each member in each generation.

    Where one place came to a group twice the first has to be found before anything is said.
    """
    known: _Order | None = context.poll_order
    if known is None:
        known = context.poll_order = _look(context)
    return known


def _look(context: Context) -> _Order:
    counted = [r for r in context.delivery_stats if r.gname in context.consumer_groups]
    if lacking("deliveries", counted, POLLED):
        return _Order()
    polled = F.col("t_fetch_inv")
    queue, line = F.xxhash64(*QUEUE), F.xxhash64(*STRETCH)
    runs = find_runs(
        _not_reset(context, _firsts(context)), line=line, parent=queue,
        at=F.col("queue_offset"), early=polled, late=polled,
    )  # fmt: skip
    if runs is None:
        return _Order()
    wrong = runs.parent[runs.disordered() | runs.overlapping()]
    disordered = frozenset([*wrong.tolist(), *runs.shared().tolist()])
    skipping = disordered.union(runs.parent[runs.gaps()].tolist())
    if len(skipping) > QUEUES_MAX:
        return _Order(disordered=None if disordered else frozenset())
    return _Order(disordered=disordered, skipping=skipping)


def _polls(context: Context, known: _Order) -> DataFrame:
    """Return the first deliveries of places to groups, of the queues that are to be looked at.

    ``last``: when their member polled last in that generation.
    """
    if context.polls is None:
        rows = _not_reset(context, _firsts(context))
        if known.skipping is not None:
            rows = rows.filter(F.xxhash64(*QUEUE).isin(sorted(known.skipping)))
        poll = F.min(F.struct("t_recv", *POLLED)).alias("poll")
        firsts = (
            rows.groupBy(*QUEUE, "queue_offset")
            .agg(poll)
            .select(*QUEUE, "queue_offset", "poll.*")
            .filter(" and ".join(f"{name} is not null" for name in POLLED))
        )
        context.polls = whole(firsts, by_offset(STRETCH), "last", F.col("t_fetch_inv")).persist()
    return context.polls


def check_shards(context: Context) -> CheckResult:
    """Return A17."""
    orderly = [group for group, mode in modes_of(context).items() if mode == "orderly"]
    counted = counted_of_run(context)
    counted = [r for r in counted if r.gname in orderly and r.n > r.n_dlq]
    if not counted:
        return unchecked("A17", "run.json names no orderly group that got anything")
    sends = sends_of(context, "orderly", ok=True)
    missing = [
        lacking("deliveries", counted, CALLED),
        lacking("sends", sends, ("shard_key", "t_cmp")),
    ]
    if any(missing):
        return unknown("A17", f"needs {', '.join(filter(None, missing))}")
    rows = context.deliveries.filter(to_groups() & of_run(context))
    rows = rows.filter(F.col("gname").isin(orderly))
    found = _overlapping(rows, context.history.tolerance)
    found = found.unionByName(_overtaking(context, _not_reset(context, rows)))
    if any(row.grp in orderly for row in acks_of(context, "nack")):
        found = found.unionByName(_given_past(context, rows, orderly))
    result = CheckResult(check="A17", summary="orderly groups are served in order")
    return tell(context, result, found, F.col("words"))


def _overlapping(rows: DataFrame, tolerance: int) -> DataFrame:
    """Return the calls that began before an earlier one of their queue had ended."""
    queue = ("gname", "topic", "queue_id")
    line = by_time(queue, "begin", F.col("end"), F.col("consumer"), F.col("op_id"))
    where = text(F.col("topic"), "/", F.col("queue_id"))
    words = text(
        F.col("consumer"), " began with ", where, " of ", F.col("gname"), " at ", F.col("begin"),
        ", and the call before it ended at ", F.col("busy"),
    )  # fmt: skip
    calls = rows.groupBy(*queue, "consumer", "op_id").agg(
        F.min("t_proc_begin").alias("begin"), F.max("t_proc_end").alias("end")
    )
    calls = before(calls, line, "busy", "max", F.col("end"))
    calls = calls.filter(F.col("begin") < F.col("busy") - tolerance)
    return calls.select(where.alias("key"), words.alias("words"))


def _overtaking(context: Context, rows: DataFrame) -> DataFrame:
    """Return the messages that were acknowledged before another was sent, and given after it."""
    firsts = rows.groupBy("gname", "msg_key").agg(
        F.min(F.struct("t_proc_begin", F.coalesce("pos", F.lit(0)).alias("pos"))).alias("at")
    )
    sends = context.sends.filter("outcome = 'ok' and kind = 'orderly'")
    # What was sent again is one message, as it was sent first.
    sends = sends.groupBy("msg_key", "topic", "shard_key").agg(
        F.min("t_inv").alias("t_inv"), F.min("t_cmp").alias("t_cmp")
    )
    given = firsts.join(sends, "msg_key")
    given = given.withColumn("begun", F.col("at.t_proc_begin"))
    shard = ("gname", "topic", "shard_key")
    if tolerance := context.history.tolerance:
        earlier = Window.partitionBy(*shard).orderBy("begun")
        earlier = earlier.rangeBetween(Window.unboundedPreceding, -tolerance - 1)
        given = given.withColumn("latest", F.max("t_inv").over(earlier))
    else:
        line = by_time(shard, "begun", F.col("at.pos"), F.col("msg_key"))
        given = before(given, line, "latest", "max", F.col("t_inv"))
    late = given.filter("t_cmp < latest")
    words = text(
        "message ", F.col("msg_key"), " of shard ", F.col("shard_key"), " came to ",
        F.col("gname"), " after later ones",
    )  # fmt: skip
    return late.select(F.col("msg_key").cast("string").alias("key"), words.alias("words"))


def _given_past(context: Context, rows: DataFrame, orderly: list[str]) -> DataFrame:
    """Return what was refused and came again only after what lies behind it in its queue, or never.

    Where nobody says how often a group may refuse, only what it refused first is owed to it.
    """
    who, queue = ["grp", "msg_key"], ["grp", "topic", "queue_id"]
    acks = context.table("acks")
    most = case_of(F.col("grp"), reconsume_max_of(context), None).cast("int")
    refused = (
        acks.filter("kind = 'nack'")
        .filter(F.col("grp").isin(orderly) & (most.isNull() | (F.col("reconsume") < most)))
        .filter(~F.col("topic").isin(made_anew(context)))
        .join(resets(acks).select(*queue).distinct(), queue, "left_anti")
        .select(
            *who,
            *queue[1:],
            F.col("queue_offset").alias("at"),
            F.col("t_inv").alias("t"),
            (most.isNotNull() | F.col("reconsume").eqNullSafe(0)).alias("is_owed"),
        )
        .dropna()
        .distinct()
    )
    came = rows.select(*who, F.col("t_proc_begin").alias("again"))
    waits = refused.join(came, who, "left").groupBy(*refused.columns)
    waits = waits.agg(F.min(F.when(F.col("again") > F.col("t"), F.col("again"))).alias("again"))
    waits = waits.filter("is_owed or again is not null")
    then = F.when(F.col("again").isNull(), " and it never came again")
    waits = waits.withColumn("then", then.otherwise(" before it came again"))
    waits = waits.withColumn("again", F.coalesce("again", F.lit(NEVER)))
    waits = waits.withColumn("since", F.col("t") + 2 * context.history.tolerance)
    waits = waits.filter("since < again")
    waits = touch(waits, _moment(F.col("since")), _moment(F.col("again"))).persist()
    calls = rows.filter("not copied")
    calls = calls.select(*queue, F.col("queue_offset").alias("given"), "t_proc_begin")
    past = (
        lie(calls, _moment(F.col("t_proc_begin")), waits)
        .join(waits, [*queue, *BUCKET])
        .filter("t_proc_begin > since and t_proc_begin < again and given > at")
        .groupBy(*refused.columns, "then")
        .agg(F.max("given").alias("given"))
    )
    words = text(
        F.col("grp"), " refused message ", F.col("msg_key"), " at ", F.col("topic"), "/",
        F.col("queue_id"), "@", F.col("at"), ", and was given @", F.col("given"), F.col("then"),
    )  # fmt: skip
    return past.select(F.col("msg_key").cast("string").alias("key"), words.alias("words"))


def _moment(t: Column) -> Column:
    """Return a time in parts of a second, of which the smallest bucket holds about one."""
    return F.shiftright(t, TIME_BITS - SIZES_BITS[0])
