"""A1: acknowledged sends that a consumer group never got, and where in the system they got lost.

For every group that consumes the topic: acknowledged, not delivered to the group, not removed by
retention, topic not recreated, and the queue *drained* for the group. A queue that was not drained
makes the answer unknown, never lost. ``kind``: hole (a higher offset of the queue was delivered) or
suffix. ``where``: vanished (on no replica's disk), stranded (on fewer than a majority), index-side
(on a majority, but the auditor could not read it either), delivery-side. Source: spec/proof.md A1.
"""

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import AUDITOR, GROUPS_PER_MASK, Context, group_of
from spark.evidence import anomaly_rows, evidence_of, faults_between, message_name, pointer, text
from spark.facts import modes_of, sends_of, small
from spark.history import few_rows
from spark.log_entries import LogEntries
from spark.message_outcomes import MessageOutcomes
from spark.result import EVIDENCE_MAX, UNKNOWN, VALID, CheckResult
from spark.skipped import OWED, SKIPPED, with_skips

WHERE_NOT_CHECKED = "not checked"
DRAINED = 60_000_000_000
"""For so long after the last that was received queues may be read to their ends."""


def check_loss(
    context: Context, outcomes: MessageOutcomes, entries: LogEntries | None, *, gaps: bool
) -> CheckResult:
    """Return A1; ``gaps``: the history lost records, so a missing delivery proves nothing."""
    result = CheckResult(check="A1")
    if not context.delivered_rows:
        result.verdict, result.summary = UNKNOWN, "no delivery was recorded"
        return result
    if not context.checked_groups:
        result.verdict, result.summary = UNKNOWN, "no group consumed anything"
        return result
    _judge(context, outcomes, entries, result, gaps=gaps)
    known = {row.grp for row in context.delivery_stats} | context.groups.keys()
    silent = ", ".join(sorted(modes_of(context).keys() - known))
    if silent and not result.count and result.verdict == VALID:
        result.verdict = UNKNOWN
        result.summary = f"nothing tells what {silent} consumed, which run.json names in modes"
    return result


def _judge(
    context: Context,
    outcomes: MessageOutcomes,
    entries: LogEntries | None,
    result: CheckResult,
    *,
    gaps: bool,
) -> None:
    """Say what the groups of which something is known did not get."""
    absent = absent_messages(context, outcomes)
    if absent is None:
        result.summary = (
            f"all {outcomes.totals['acknowledged']} acknowledged messages were delivered"
        )
        return
    counts = {
        (r.state, r.kind): r["count"] for r in absent.groupBy("state", "kind").count().collect()
    }
    result.count = sum(n for (state, _), n in counts.items() if state == "lost")
    undrained = sum(n for (state, _), n in counts.items() if state == "undrained")
    removed = sum(n for (state, _), n in counts.items() if state == "removed")
    late = sum(n for (state, _), n in counts.items() if state == "late")
    skipped = sum(n for (state, _), n in counts.items() if state == "skipped")
    result.details = {
        "most_of_a_group": _most_of_a_group(absent) if result.count else 0,
        "undrained": undrained,
        "removed_by_retention": removed,
        "not_owed_by_a_late_group": late,
        "skipped_by_a_reset": skipped,
    }
    if result.count:
        _explain(context, entries, absent.filter("state = 'lost'"), result)
        if gaps:
            result.verdict = UNKNOWN
            result.summary += "; but the history has gaps: deliveries may not have been recorded"
    elif undrained:
        result.verdict = UNKNOWN
        result.summary = (
            f"{undrained} undelivered messages lie in queues that were not drained, or were not due"
        )
    else:
        result.summary = (
            f"none ({removed} were removed by retention before the audit, {late} are not owed by "
            f"a group that began later, {skipped} were skipped by a reset)"
        )


def _most_of_a_group(absent: DataFrame) -> int:
    """Return how many messages the group lost that lost most."""
    lost = absent.filter("state = 'lost'").groupBy("gname").count()
    return int(lost.agg(F.max("count")).collect()[0][0])


def absent_messages(context: Context, outcomes: MessageOutcomes) -> DataFrame | None:
    """Return a row per (message, group) that the group did not get, made once; None: none."""
    judged = context.delivered_rows and context.checked_groups
    if not judged or not outcomes.totals["lost"]:
        return None
    if context.absent is None:
        absent = _absent(context, outcomes.suspects)
        context.absent = absent.persist(StorageLevel.MEMORY_AND_DISK)
    return context.absent


def _absent(context: Context, suspects: DataFrame) -> DataFrame:
    """Return one row per (message, group) that the group did not get, with its state."""
    missing = F.array(*(_missing_from(context, i) for i in range(len(context.groups))))
    keys = suspects.filter("lost").select(
        "msg_key", *(f"seen_{i}" for i in range(context.mask_count))
    )
    sends = context.sends.filter("outcome = 'ok'").join(keys, "msg_key")
    absent = sends.withColumn("gname", F.explode(F.array_compact(missing)))
    if sends_of(context, "delay", ok=True):
        absent = _with_places(context, absent, keys)
    facts = context.table("drain")
    begins = facts.groupBy("topic", "queue_id").agg(F.min("min_off").alias("begins"))
    # Of what is told twice: what excuses, or proves, less.
    facts = facts.withColumn("drained", F.coalesce("drained", F.lit(col=False)))
    told = facts.groupBy(F.col("grp").alias("gname"), "topic", "queue_id")
    drain = told.agg(F.min("min_off").alias("min_off"), F.min("drained").alias("drained"))
    drain = F.broadcast(drain)
    highest = (
        context.deliveries.filter(~F.col("copied"))
        .groupBy(group_of("gname").alias("gname"), "topic", "queue_id")
        .agg(F.max("queue_offset").alias("highest"))
    )
    on_queue = ["gname", "topic", "queue_id"]
    removed = F.col("queue_offset") < F.col("begins")
    late = F.col("queue_offset") < F.col("min_off")
    whole = facts.groupBy(F.col("grp").alias("gname"), "topic").agg(F.min("drained").alias("whole"))
    # Of a message whose queue nobody knows, all queues of its topic have to be drained.
    known = F.when(F.col("queue_id").isNotNull(), F.col("drained")).otherwise(F.col("whole"))
    drained = F.coalesce(known, F.lit(col=False)) & ~_is_to_come(context)
    absent = with_skips(context, absent.withColumn("gname", group_of("gname")))
    return (
        absent.join(drain, on_queue, "left")
        .join(highest, on_queue, "left")
        .join(F.broadcast(begins), ["topic", "queue_id"], "left")
        .join(F.broadcast(whole), ["gname", "topic"], "left")
        .withColumn("kind_", F.col("kind"))
        .withColumn("kind", F.expr("if(queue_offset < highest, 'hole', 'suffix')"))
        .withColumn(
            "state",
            F.when(removed, "removed")
            .when(late, "late")
            .when(F.col("skip") == SKIPPED, "skipped")
            .when(drained & (F.col("skip") == OWED), "lost")
            .otherwise("undrained"),
        )
    )


def _is_to_come(context: Context) -> Column:
    """Return whether a delayed message was not due when the record, and its drain, had ended."""
    due = F.coalesce("t_cmp", "t_inv") + F.col("delay_ms") * 1_000_000
    return F.coalesce((F.col("kind_") == "delay") & (due > context.end + DRAINED), F.lit(col=False))


def _with_places(context: Context, absent: DataFrame, keys: DataFrame) -> DataFrame:
    """Return the sends with the places of those that waited: where the first to see them was."""
    seen = (
        context.deliveries.filter("not copied")
        .join(keys.select("msg_key"), "msg_key", "left_semi")
        .groupBy("msg_key", "topic")
        .agg(F.min(F.struct("t_recv", "queue_id", "queue_offset")).alias("seen"))
    )
    waited = F.expr("kind = 'delay' and queue_id is null")
    placed = absent.join(seen, ["msg_key", "topic"], "left")
    for name in ("queue_id", "queue_offset"):
        found = F.when(waited, F.col(f"seen.{name}")).otherwise(F.col(name))
        placed = placed.withColumn(f"{name}_", found)
    return placed.drop("seen", "queue_id", "queue_offset").withColumnsRenamed(
        {"queue_id_": "queue_id", "queue_offset_": "queue_offset"}
    )


def _missing_from(context: Context, number: int) -> Column:
    """Return the group's name if it owes the row's topic and its bit is not set, else null."""
    name = list(context.groups)[number]
    if name not in context.checked_groups:
        return F.lit(None).cast("string")
    chunk, bit = divmod(number, GROUPS_PER_MASK)
    unseen = F.col(f"seen_{chunk}").bitwiseAND(F.lit(1 << bit)) == 0
    tags = {topic: context.tags_of(name, topic) for topic in sorted(context.groups[name])}
    owed = F.col("topic").isin([topic for topic, chosen in tags.items() if chosen is None])
    for topic, chosen in tags.items():
        if chosen is not None:
            fits = F.coalesce(F.col("tag").isin(chosen), F.lit(col=False))
            owed = owed | (F.col("topic") == topic) & fits
    return F.when(owed & unseen, F.lit(name))


def _explain(
    context: Context, entries: LogEntries | None, lost: DataFrame, result: CheckResult
) -> None:
    keys = small(lost.select("msg_key").distinct(), result.count)
    audited = context.deliveries.filter("auditor").join(keys, "msg_key").select("msg_key")
    lost = lost.join(
        audited.distinct().withColumn("was_audited", F.lit(col=True)), "msg_key", "left"
    )
    if entries is None:
        lost = lost.withColumn("where", F.lit(WHERE_NOT_CHECKED)).withColumn("held", F.lit(None))
    else:
        bit = F.expr("shiftleft(1L, node_no)")
        held = entries.rows.join(keys, "msg_key").groupBy("msg_key")
        lost = lost.join(held.agg(F.bit_or(bit).alias("held")), "msg_key", "left")
        lost = lost.withColumn("where", _where(context, entries))
    lost = lost.persist(StorageLevel.MEMORY_AND_DISK)
    split = {
        (r["where"], r.kind): r["count"] for r in lost.groupBy("where", "kind").count().collect()
    }
    for (where, kind), number in sorted(split.items()):
        result.details[f"{where}/{kind}"] = number
    result.summary = ", ".join(
        f"{n} {where} ({kind})" for (where, kind), n in sorted(split.items())
    )
    rows = lost.withColumn("key", F.col("msg_key"))
    explain = text(
        message_name(),
        " was acknowledged at ",
        F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"),
        " by ", F.col("node"), " and never delivered to ", F.col("gname"),
        ": ", F.col("kind"), ", ", F.col("where"),
    )  # fmt: skip
    result.anomalies = anomaly_rows(
        context, "A1", rows, explain=explain,
        evidence=[pointer("sends", "op_id", "t_cmp")], time="t_cmp",
    )  # fmt: skip
    shown = rows.orderBy("t_inv").limit(EVIDENCE_MAX)
    sample = shown.collect()
    anomalies = anomaly_rows(
        context, "A1", context.session.createDataFrame(sample, shown.schema), explain=explain,
        evidence=[pointer("sends", "op_id", "t_cmp")], time="t_cmp",
    )  # fmt: skip
    around = _neighbours(context, sample)
    presence = _presence(entries, sample) if entries is not None else {}
    for row, anomaly in zip(sample, anomalies.collect(), strict=True):
        item = evidence_of(anomaly)
        item |= {"group": row.gname, "kind": row.kind, "where": row["where"]}
        item["around"] = around.get((row.gname, row.msg_key), {})
        item["presence"] = presence.get(row.msg_key, {})
        item["faults"] = faults_between(context, row.t_inv, row.t_cmp or row.t_inv)
        result.evidence.append(item)


def _where(context: Context, entries: LogEntries) -> Column:
    held = F.coalesce("held", F.lit(0).cast("long"))
    has_auditor = any(name.endswith(AUDITOR) for name in context.groups)
    unread = F.lit(has_auditor) & F.col("was_audited").isNull()
    return (
        F.when(held == 0, "vanished")
        .when(~entries.are_enough(held), "stranded")
        .when(unread, "index-side")
        .otherwise("delivery-side")
    )


def _neighbours(context: Context, sample: list[Row]) -> dict[tuple[str, int], dict[str, object]]:
    """Return the nearest delivered offsets below and above each sampled message."""
    wanted = few_rows(
        context.session,
        [(r.gname, r.topic, r.queue_id, r.queue_offset, r.msg_key) for r in sample],
        "gname string, topic string, queue_id int, lost_offset long, lost_key long",
    )
    spot = F.struct("queue_offset", "op_id", "msg_key", "t_recv")
    rows = (
        context.deliveries.filter(~F.col("copied"))
        .join(F.broadcast(wanted), ["gname", "topic", "queue_id"])
        .groupBy("gname", "lost_key")
        .agg(
            F.max(F.when(F.col("queue_offset") < F.col("lost_offset"), spot)).alias("below"),
            F.min(F.when(F.col("queue_offset") > F.col("lost_offset"), spot)).alias("above"),
            F.min(F.when(F.col("queue_offset") == F.col("lost_offset"), spot)).alias("instead"),
        )
    )
    return {
        (r.gname, r.lost_key): {
            side: r[side].asDict() for side in ("below", "instead", "above") if r[side] is not None
        }
        for r in rows.collect()
    }


def _presence(entries: LogEntries, sample: list[Row]) -> dict[int, dict[str, str]]:
    """Return, per sampled message, what each replica's log holds of it."""
    keys = [row.msg_key for row in sample]
    names = {n.number: n.node for n in entries.nodes}
    presence: dict[int, dict[str, str]] = {k: dict.fromkeys(names.values(), "-") for k in keys}
    for row in entries.rows.filter(F.col("msg_key").isin(keys)).collect():
        state = "committed" if row.committed else "not committed"
        presence[row.msg_key][names[row.node_no]] = (
            f"index {row['index']} term {row.term} {state} {row.file}:{row.pos}"
        )
    return presence
