"""A15: two different messages at one place of a queue.

Acknowledged sends, deliveries and committed log entries are observers of places (topic, epoch,
queue, offset); all observers of a place must name the same message and the same body, and where
logs are whole, a message that they hold was seen at no place where they have nothing. Where they
are not, one that was acknowledged at a place came from there, if it came, or was sent again.
Offsets of unknown outcomes, retry copies, topics that nobody sent to, and log rows of recreated
topics are not observers.

Where the fold by message has found that all observers of each message saw it at one place, where
its log entry lies, and no two entries lie at one place, nothing can clash; else places are folded.
Source: spec/proof.md A15.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context, case_of
from spark.evidence import anomaly_rows, attach, message_name, pointer, text
from spark.facts import on_topics, small
from spark.history import few_rows
from spark.log_entries import LogEntries
from spark.message_outcomes import MessageOutcomes, attempts
from spark.result import EVIDENCE_MAX, CheckResult

_PLACE = ("topic_h", "epoch_", "queue_id", "queue_offset")


def check_offsets(
    context: Context, entries: LogEntries | None, outcomes: MessageOutcomes | None = None
) -> CheckResult:
    """Return A15; ``outcomes`` may spare it the fold by place."""
    result = CheckResult(check="A15", summary="every place holds one message for all observers")
    if entries is not None and outcomes is not None and _agree(context, entries, outcomes):
        return result
    observers = _observers(context, entries)
    clash = (F.col("hash_min") != F.col("hash_max")) | (F.col("key_min") != F.col("key_max"))
    unheld = ~F.col("in_log") & F.col("key_min").isNotNull()
    places = (
        observers.groupBy(*_PLACE)
        .agg(
            F.min("body_hash").alias("hash_min"),
            F.max("body_hash").alias("hash_max"),
            F.min("msg_key").alias("key_min"),
            F.max("msg_key").alias("key_max"),
            F.max("in_log").alias("in_log"),
        )
        .filter(clash | unheld)
        .persist()
    )
    conflicts = places.filter(clash)
    result.count = conflicts.count()
    if entries is not None and entries.whole:
        misplaced = _misplaced(context, entries, places.filter(unheld))
    else:
        misplaced = _elsewhere(context, outcomes)
    if result.count:
        _explain_conflicts(context, entries, result, conflicts)
    if misplaced is not None:
        number = misplaced.count()
        result.count += number
        found = f"{number} messages were seen where they do not lie"
        result.summary = f"{result.summary}; {found}" if result.count > number else found
        told = result.anomalies
        attach(result, misplaced)
        result.anomalies = misplaced if told is None else told.unionByName(misplaced)
    return result


def _agree(context: Context, entries: LogEntries, outcomes: MessageOutcomes) -> bool:
    """Tell whether each message has one place, that of its log entry, and no place has two.

    That each observer names a message, and that topics were not made anew, is asked first: the
    fold by message knows nothing of the others.
    """
    if any(topic.epoch_min != topic.epoch_max for topic in context.topics.values()):
        return False
    if context.unkeyed_rows or context.foreign_rows or entries.divergent or entries.spoiled:
        return False
    if outcomes.totals["unlike"] or outcomes.totals["unlogged"]:
        return False
    ours = F.col("topic_h").isin([F.xxhash64(F.lit(name)) for name in context.topics])
    bit = F.expr("shiftleft(1L, cast(queue_offset & 63 as int))")
    queue = ("topic_h", "queue_id")
    row = (
        entries.entries.filter(ours)
        .groupBy(*queue, F.shiftright("queue_offset", 6).alias("word"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count(F.when(F.expr("msg_key is null or queue_id is null"), 1)).alias("unnamed"),
            F.bit_or(bit).alias("bits"),
        )
        .agg(
            F.sum("rows").alias("rows"),
            F.sum("unnamed").alias("unnamed"),
            F.sum(F.bit_count("bits")).alias("places"),
        )
        .collect()[0]
    )
    # An offset that is null leaves no bit behind, so that its row is one too many.
    return bool(row.rows) and not row.unnamed and row.rows == row.places


def _elsewhere(context: Context, outcomes: MessageOutcomes | None) -> DataFrame | None:
    """Return messages that never came from where they were acknowledged, but from elsewhere.

    Only those which then would lie at more places than attempts were made; None if there are none.
    """
    if outcomes is not None and not outcomes.totals["unlike"]:
        return None
    epoch = context.epoch(F.col("topic"), F.col("epoch")).alias("epoch_")
    place = F.struct("topic", "epoch_", "queue_id", "queue_offset")
    known = F.col("epoch_").isNotNull() & F.col("queue_offset").isNotNull()
    ours = on_topics(context) & F.expr("own and not copied and msg_key is not null")
    columns = ("msg_key", "topic", epoch, "queue_id", "queue_offset")
    seen = context.deliveries.filter(ours).select(*columns).distinct()
    told = context.sends.filter("outcome = 'ok' and queue_offset is not null")
    told = told.filter("queue_id is not null").select(*columns)
    told = told.filter("epoch_ is not null").distinct()
    at = ["msg_key", "topic", "epoch_", "queue_id", "queue_offset"]
    there = seen.join(told, at, "left_semi").select("msg_key").distinct()
    tried = context.sends.groupBy("msg_key").agg(F.sum(attempts()).alias("attempts"))
    others = seen.groupBy("msg_key").agg(
        F.count(F.lit(1)).alias("places"), F.count(F.when(~known, 1)).alias("nowhere"),
        F.min(place).alias("other"),
    )  # fmt: skip
    rows = (
        told.groupBy("msg_key")
        .agg(F.count(F.lit(1)).alias("told"), F.min(place).alias("place"))
        .join(others, "msg_key")
        .join(there, "msg_key", "left_anti")
        .join(tried, "msg_key")
        .filter("nowhere = 0 and told + places > attempts")
    )
    where, other = (
        text(F.col(f"{name}.topic"), "/", F.col(f"{name}.queue_id"), "@",
             F.col(f"{name}.queue_offset"))
        for name in ("place", "other")
    )  # fmt: skip
    explain = text(message_name(), " was acknowledged at ", where, ", and came only from ", other)
    found = anomaly_rows(
        context, "A15", rows.withColumn("key", where), explain=explain, evidence=[]
    ).persist()
    return found if found.count() else None


def _misplaced(context: Context, entries: LogEntries, unheld: DataFrame) -> DataFrame | None:
    """Return messages seen at a place where no log has anything, while logs hold them elsewhere.

    None if there are none.
    """
    number = unheld.count()
    if not number:
        return None
    # Which epoch an entry is of its log does not say.
    known = [t.name for t in context.topics.values() if t.epoch_min == t.epoch_max]
    stored = entries.rows.filter("type = 'message' and queue_offset is not null")
    stored = stored.filter(F.col("topic").isin(known)).select(
        F.xxhash64("topic").alias("topic_h"), "topic", "queue_id", "queue_offset", "msg_key"
    )
    there = F.struct("topic", "queue_id", "queue_offset")
    held = (
        stored.join(small(unheld.select(F.col("key_min").alias("msg_key")), number), "msg_key")
        .groupBy("msg_key")
        .agg(F.min(there).alias("there"))
    )
    names = few_rows(context.session, [(t,) for t in known], "topic string")
    topics = F.broadcast(names.withColumn("topic_h", F.xxhash64("topic")))
    place = ["topic_h", "queue_id", "queue_offset"]
    rows = (
        unheld.withColumn("msg_key", F.col("key_min"))
        .join(stored.select(*place), place, "left_anti")
        .join(held, "msg_key")
        .join(topics, "topic_h")
    )
    where = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))
    explain = text(
        message_name(), " was acknowledged or delivered at ", where, ", where no log has anything;"
        " it lies at ", F.col("there.topic"), "/", F.col("there.queue_id"), "@",
        F.col("there.queue_offset"),
    )  # fmt: skip
    found = anomaly_rows(
        context, "A15", rows.withColumn("key", where), explain=explain, evidence=[]
    ).persist()
    return found if found.count() else None


def _explain_conflicts(
    context: Context, entries: LogEntries | None, result: CheckResult, conflicts: DataFrame
) -> None:
    result.summary = f"{result.count} places hold different messages for different observers"
    names = few_rows(context.session, [(t,) for t in context.topics], "topic string")
    topics = F.broadcast(names.withColumn("topic_h", F.xxhash64("topic")))
    named = conflicts.join(topics, "topic_h", "left")
    where = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))
    rows = named.withColumn("key", where)
    explain = text(
        where, " holds message ", F.col("key_min"), " (hash ", F.col("hash_min"),
        ") and message ", F.col("key_max"), " (hash ", F.col("hash_max"), ")",
    )  # fmt: skip
    result.anomalies = anomaly_rows(context, "A15", rows, explain=explain, evidence=[])
    attach(result, result.anomalies, shown=_witnesses(context, entries, conflicts, topics))


def _observers(context: Context, entries: LogEntries | None) -> DataFrame:
    place: tuple[Column, ...] = (
        F.xxhash64("topic").alias("topic_h"),
        context.epoch(F.col("topic"), F.col("epoch")).alias("epoch_"),
        F.col("queue_id"),
        F.col("queue_offset"),
    )
    known = F.col("queue_id").isNotNull() & F.col("queue_offset").isNotNull()
    sent = context.sends.filter((F.col("outcome") == "ok") & known)
    got = context.deliveries.filter("not copied").filter(known & on_topics(context))
    rows = sent.select(*place, "body_hash", "msg_key").unionByName(
        got.select(*place, "body_hash", "msg_key")
    )
    rows = rows.withColumn("in_log", F.lit(entries is None))
    if entries is not None:
        logged = _log_observers(context, entries).withColumn("in_log", F.lit(col=True))
        rows = rows.unionByName(logged)
    return rows.filter("epoch_ is not null")


def _log_observers(context: Context, entries: LogEntries) -> DataFrame:
    """Return committed entries of topics that were sent to; where replicas disagree, each once."""
    single = [t for t in context.topics.values() if t.epoch_min == t.epoch_max]
    epochs = F.lit(0)
    for topic in single:
        if topic.epoch_max:
            theirs = F.col("topic_h") == F.xxhash64(F.lit(topic.name))
            epochs = F.when(theirs, topic.epoch_max).otherwise(epochs)
    several = [t.name for t in context.topics.values() if t.epoch_min != t.epoch_max]
    columns = ("topic_h", "queue_id", "queue_offset", "body_hash", "msg_key")
    agreed = entries.entries.filter("cid_min = cid_max and bad = 0").select(*columns)
    if entries.divergent:
        disputed = entries.entries.filter("cid_min <> cid_max").select("group", "index")
        settled = entries.rows.filter("committed and crc_ok and type = 'message'")
        settled = settled.join(small(disputed, entries.divergent), ["group", "index"], "left_semi")
        agreed = agreed.union(settled.withColumn("topic_h", F.xxhash64("topic")).select(*columns))
    recreated = F.col("topic_h").isin([F.xxhash64(F.lit(name)) for name in several])
    identified = F.coalesce(F.col("msg_key"), F.col("body_hash")).isNotNull()
    ours = F.col("topic_h").isin([F.xxhash64(F.lit(name)) for name in context.topics])
    agreed = agreed.filter(ours & ~recreated & identified)
    return agreed.withColumn("epoch_", epochs.cast("int"))


def _witnesses(
    context: Context, entries: LogEntries | None, conflicts: DataFrame, topics: DataFrame
) -> DataFrame:
    """Return the first conflicts with every observer told in words."""
    first = F.broadcast(
        conflicts.orderBy("topic_h", "queue_id", "queue_offset")
        .limit(EVIDENCE_MAX)
        .join(topics, "topic_h")
        .select("topic", "queue_id", "queue_offset")
    )
    on_place = ["topic", "queue_id", "queue_offset"]
    told = [
        context.sends.filter("outcome = 'ok'").join(first, on_place).select(
            *on_place, pointer("sends", "op_id", "t_cmp").alias("row"),
            text("acknowledged as ", F.col("msg_key"), " (op ", F.col("op_id"), ")").alias("words"),
        ),
        context.deliveries.filter("not copied").join(first, on_place).select(
            *on_place, pointer("deliveries", "op_id", "t_recv").alias("row"),
            text("delivered as ", F.col("msg_key"), " to ", F.col("gname")).alias("words"),
        ),
    ]  # fmt: skip
    if entries is not None:
        name = case_of(F.col("node_no"), {n.number: n.node for n in entries.nodes}, "?")
        told.append(
            entries.rows.filter("committed").join(first, on_place).select(
                *on_place, pointer("replica_log", "index", "pos").alias("row"),
                text("on ", name, " index ", F.col("index"), " term ",
                     F.col("term"), " as ", F.col("msg_key")).alias("words"),
            )
        )  # fmt: skip
    union = told[0]
    for part in told[1:]:
        union = union.unionByName(part)
    gathered = union.groupBy(*on_place).agg(
        F.slice(F.collect_list("row"), 1, EVIDENCE_MAX).alias("evidence"),
        F.concat_ws("; ", F.sort_array(F.collect_set("words"))).alias("words"),
    )
    where = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))
    return gathered.select(
        where.alias("key"),
        text(where, ": ", F.col("words")).alias("explain"),
        F.array().cast("array<string>").alias("fault_ids"),
        "evidence",
    )
