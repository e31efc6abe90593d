"""A8: copies of one message in the log.

Legal under at-least-once delivery as long as a message lies at no more places than its sender made
attempts that may have stored it. Source: spec/proof.md A8.
"""

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.checks import CRIT
from spark.context import Context
from spark.evidence import anomaly_rows, attach, message_name, queue_place, text
from spark.facts import on_topics, small
from spark.log_entries import LogEntries
from spark.message_outcomes import MessageOutcomes
from spark.result import EVIDENCE_MAX, INVALID, CheckResult

SHARES: Final = 64
"""The places of one message are ordered in so many parts."""


def check_duplicates(
    context: Context, outcomes: MessageOutcomes, entries: LogEntries | None
) -> CheckResult:
    """Return A8. CRIT if the contract promises idempotent sends, else MINOR."""
    result = CheckResult(check="A8", summary="no message lies at more places than it was sent to")
    promised = str(context.history.run.get("contract", {}).get("duplicates", ""))
    if promised in {"exactly-once", "idempotent"}:
        result.severity = CRIT
    if not outcomes.totals["duplicate"]:
        return result
    suspects = outcomes.suspects.filter("duplicate").select("msg_key", "attempts")
    places = _places(context, entries)
    # One message may lie at a million places: the first ones are named, found share by share.
    share = Window.partitionBy("msg_key", "share").orderBy("place")
    order = Window.partitionBy("msg_key").orderBy("place")
    each = (
        places.join(suspects, "msg_key")
        .select("msg_key", "attempts", queue_place().alias("place"))
        .distinct()
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    named = (
        each.withColumn("share", F.pmod(F.xxhash64("place"), F.lit(SHARES)))
        .withColumn("number", F.row_number().over(share))
        .filter(F.col("number") <= EVIDENCE_MAX)
        .withColumn("number", F.row_number().over(order))
        .filter(F.col("number") <= EVIDENCE_MAX)
        .groupBy("msg_key")
        .agg(F.sort_array(F.collect_list("place")).alias("places"))
    )
    copies = (
        each.groupBy("msg_key", "attempts")
        .agg(F.count(F.lit(1)).alias("copies"))
        .join(named, "msg_key")
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


def _places(context: Context, entries: LogEntries | None) -> DataFrame:
    """Return where messages were delivered from, and lie by logs that do not differ there."""
    columns = ("msg_key", "topic", "queue_id", "queue_offset")
    places = context.deliveries.filter(on_topics(context) & F.expr("own and not copied"))
    places = places.select(*columns)
    if entries is None:
        return places
    stored = entries.rows.filter("committed and type = 'message'")
    if entries.divergent:
        disputed = entries.entries.filter("cid_min <> cid_max").select("group", "index")
        stored = stored.join(small(disputed, entries.divergent), ["group", "index"], "left_anti")
    stored = stored.filter(F.col("topic").isin(list(context.topics)))
    return places.union(stored.select(*columns))
