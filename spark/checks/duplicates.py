"""A8 and A9: copies of one message in the log, and repeated deliveries to one group.

Both are legal under at-least-once delivery; they are counted and their causes are found. A8: a
message lies at more places than its sender made attempts. A9: each delivery of a message to a group
after the first is looked at with the one before it, and gets the first cause that lies between:
another copy in the log (A8), a negative acknowledgement or retry, a crash of the consumer, a change
of consumer or generation, a change of leader, no commit beyond its offset yet. The rest is
unexplained. Source: chaos.md A8, A9.
"""

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.window import Window

from spark.context import Context
from spark.evidence import anomaly_rows, attach, message_name, pointer, queue_place, text
from spark.log_entries import LogEntries
from spark.message_fates import MessageFates
from spark.result import CRIT, INVALID, CheckResult

CAUSES = (
    "copy in the log",
    "nack",
    "consumer crash",
    "generation change",
    "leader change",
    "commit interval",
)
UNEXPLAINED = "unexplained"
_CRASHES = frozenset({"kill", "crash", "stop", "restart", "start", "shutdown"})


def check_duplicates(
    context: Context, fates: MessageFates, entries: LogEntries | None
) -> CheckResult:
    """Return A8. CRIT if the contract promises idempotent sends, else MINOR."""
    result = CheckResult(check="A8", summary="no message lies at more places than it was sent to")
    promised = str(context.history.run.get("contract", {}).get("duplicates", ""))
    if promised in {"exactly-once", "idempotent"}:
        result.severity = CRIT
    if not fates.totals["duplicate"]:
        return result
    suspects = fates.suspects.filter("duplicate").select("msg_key", "attempts")
    columns = ("msg_key", "topic", "queue_id", "queue_offset")
    places = context.deliveries.filter("own and not copied").select(*columns)
    if entries is not None:
        stored = entries.rows.filter("committed and type = 'message'")
        places = places.union(
            stored.filter(F.col("topic").isin(list(context.topics))).select(*columns)
        )
    copies = (
        places.join(suspects, "msg_key")
        .groupBy("msg_key", "attempts")
        .agg(F.sort_array(F.collect_set(queue_place())).alias("places"))
        .withColumn("copies", F.size("places"))
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    beyond = copies.filter("copies > attempts")
    result.count = beyond.count()
    result.details = {"resent_copies_within_attempts": copies.count() - result.count}
    if not result.count:
        result.summary = f"{copies.count()} messages have copies, none more than attempts"
        return result
    explain = text(
        message_name(), " lies at ", F.col("copies"), " places (",
        F.concat_ws(", ", "places"), ") after ", F.col("attempts"), " attempts",
    )  # fmt: skip
    rows = beyond.withColumn("key", F.col("msg_key"))
    attach(result, anomaly_rows(context, "A8", rows, explain=explain, evidence=[]))
    result.summary = f"{result.count} messages have more copies than attempts"
    if result.severity == CRIT:
        result.verdict = INVALID
    else:
        result.details["bound_exceeded"] = f"A8: {result.summary}"
    return result


def check_redelivery(context: Context, fates: MessageFates) -> CheckResult:
    """Return A9; ``count`` is the unexplained redeliveries, ``details`` has them by cause."""
    result = CheckResult(check="A9", summary="nothing was delivered twice")
    total = fates.totals["redelivered"]
    if not total:
        return result
    again = _caused(context, _again(context, fates)).persist(StorageLevel.MEMORY_AND_DISK)
    causes = {r.cause: r["count"] for r in again.groupBy("cause").count().collect()}
    result.count = causes.get(UNEXPLAINED, 0)
    result.details = {"by_cause": causes, "redelivered": total}
    rewound = again.agg(F.percentile_approx("rewind", 0.99).alias("p99")).first()
    if rewound is not None and rewound.p99 is not None:
        result.details["rewind_p99"] = rewound.p99
    split = ", ".join(f"{causes[c]} {c}" for c in (*CAUSES, UNEXPLAINED) if c in causes)
    result.summary = f"{total} redeliveries: {split}"
    ratio = result.count / max(1, context.delivered_rows)
    bound = context.history.run.get("contract", {}).get("redelivery_ratio_max")
    if bound is not None and ratio > float(bound):
        result.details["bound_exceeded"] = (
            f"unexplained redeliveries are {ratio:.3%} of deliveries, the contract says {bound:.3%}"
        )
    if result.count:
        rows = again.filter(F.col("cause") == UNEXPLAINED).withColumn("key", F.col("msg_key"))
        explain = text(
            message_name(), " at ", queue_place(), " was delivered again to ", F.col("gname"),
            " by ", F.col("consumer"), ", ", (F.col("t_recv") - F.col("t_before")) / 1e6,
            " ms after ", F.col("consumer_before"), "; no cause lies between",
        )  # fmt: skip
        evidence = [
            pointer("deliveries", "op_before", "t_before"),
            pointer("deliveries", "op_id", "t_recv"),
        ]
        attach(
            result,
            anomaly_rows(context, "A9", rows, explain=explain, evidence=evidence, time="t_recv"),
        )
    return result


def _again(context: Context, fates: MessageFates) -> DataFrame:
    """Return every delivery after the first of its (group, message), with the one before."""
    suspects = fates.suspects.filter("redelivered").select("msg_key")
    order = Window.partitionBy("gname", "msg_key").orderBy("t_recv", "op_id", "pos")
    queue = Window.partitionBy("gname", "topic", "queue_id").orderBy("t_recv")
    excepted = F.coalesce("auditor", F.lit(col=False)) | F.coalesce("is_dlq", F.lit(col=False))
    rows = context.deliveries.filter("own").filter(~excepted).join(suspects, "msg_key", "left_semi")
    before = {
        "t_before": F.lag("t_recv").over(order),
        "op_before": F.lag("op_id").over(order),
        "consumer_before": F.lag("consumer").over(order),
        "place_before": F.lag(F.struct("topic", "queue_id", "queue_offset")).over(order),
        "generation_before": F.lag("generation").over(order),
        "rewind": F.max("queue_offset").over(queue) - F.col("queue_offset"),
    }
    return rows.withColumns(before).filter("t_before is not null")


def _caused(context: Context, again: DataFrame) -> DataFrame:
    """Add the column ``cause``."""
    acks = context.table("acks")
    nacks = (
        acks.filter("kind = 'nack' or (kind = 'ack' and outcome <> 'ok')")
        .filter("msg_key is not null")
        .groupBy(F.col("grp").alias("gname"), "msg_key")
        .agg(F.sort_array(F.collect_set(F.coalesce("t_inv", "t_cmp"))).alias("nacks"))
    )
    again = again.withColumn("line", F.monotonically_increasing_id())
    rows = again.join(nacks, ["gname", "msg_key"], "left").join(
        _uncommitted(again, acks), "line", "left"
    )
    nacked = F.exists(
        F.coalesce("nacks", F.array().cast("array<bigint>")),
        lambda t: (t >= F.col("t_before")) & (t <= F.col("t_recv")),
    )
    changed = (F.col("generation") != F.col("generation_before")) | (
        F.col("consumer") != F.col("consumer_before")
    )
    here = F.struct("topic", "queue_id", "queue_offset")
    elsewhere = ~F.col("copied") & (F.col("place_before") != here)
    retried = F.coalesce("is_retry", F.lit(col=False)) | (F.coalesce("reconsume", F.lit(0)) > 0)
    cause = (
        F.when(elsewhere, CAUSES[0])
        .when(retried | nacked, CAUSES[1])
        .when(_crashed(context), CAUSES[2])
        .when(changed, CAUSES[3])
        .when(_leader_changed(context), CAUSES[4])
        .when(F.col("uncommitted"), CAUSES[5])
        .otherwise(UNEXPLAINED)
    )
    return rows.withColumn("cause", cause)


def _uncommitted(again: DataFrame, acks: DataFrame) -> DataFrame:
    """Return, per line, whether no commit beyond its offset had succeeded when it was fetched.

    Commits and deliveries of a queue are laid in one line by time; a running maximum of the
    committed offset replaces a self-join. Without any commit in the history nothing is said.
    """
    commits = acks.filter("kind = 'commit' and outcome = 'ok' and topic is not null").select(
        F.col("grp").alias("gname"),
        "topic",
        "queue_id",
        F.coalesce("t_cmp", "t_inv").alias("t"),
        F.col("value_offset").alias("committed"),
    )
    asked = again.select(
        "gname",
        "topic",
        "queue_id",
        F.coalesce("t_fetch_inv", "t_recv").alias("t"),
        "queue_offset",
        "line",
    )
    groups = F.broadcast(commits.select("gname").distinct())
    line = Window.partitionBy("gname", "topic", "queue_id").orderBy("t")
    upto = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        commits.unionByName(asked.join(groups, "gname"), allowMissingColumns=True)
        .withColumn("progress", F.max("committed").over(upto))
        .filter("line is not null")
        .select(
            "line", (F.coalesce("progress", F.lit(0)) <= F.col("queue_offset")).alias("uncommitted")
        )
    )


def _crashed(context: Context) -> Column:
    """Whether the consumer that had the message before died or stopped between the two."""
    nodes = {*_names(context.history.run.get("nodes"))}
    times: list[tuple[int, str]] = [
        (f.start, target)
        for f in context.faults
        if "kill" in f.kind or "crash" in f.kind or "pause" in f.kind
        for target in f.targets
        if target not in nodes
    ]
    if context.history.rows("events"):
        rows = context.table("events").filter("role = 'consumer'")
        rows = rows.filter(F.col("f").isin(sorted(_CRASHES)))
        times += [(r.t_mono_ns, r.node or "") for r in rows.collect()]
    happened = F.lit(col=False)
    for time, target in times:
        named = target.removeprefix("consumer:")
        theirs = F.lit(named == "") | (F.col("consumer_before") == named)
        theirs = theirs | (F.col("consumer") == named)
        happened = happened | (theirs & F.lit(time).between(F.col("t_before"), F.col("t_recv")))
    return F.coalesce(happened, F.lit(col=False))


def _leader_changed(context: Context) -> Column:
    changed = F.lit(col=False)
    previous: dict[int, int] = {}
    for leader in context.leaderships:
        last = previous.get(leader.group)
        if last is not None:
            changed = changed | (
                (F.col("t_before") <= leader.first_seen) & (F.col("t_recv") >= last)
            )
        previous[leader.group] = leader.last_seen
    return changed


def _names(nodes: object) -> list[str]:
    return [str(n) for n in nodes] if isinstance(nodes, list | dict) else []
