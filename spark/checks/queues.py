"""A39: the queues of a replica are what its log says, by the rows of ``queue_index``.

Each row stands for the committed entry that it names, by index or else by place; each committed
message has a row. Judged are topics that were sent to and not made anew, on nodes whose disks no
fault damaged, with a log of one group: no row says of which group its queue is. What lies before
the beginning of a log, or of a queue, is not asked.
Source: spec/proof.md A39.
"""

from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context, case_of
from spark.evidence import tell, text
from spark.facts import unchecked, unknown
from spark.log_entries import LogEntries
from spark.result import CheckResult

SPOT = ["node", "topic", "queue_id", "queue_offset"]
QUEUE = ["node", "topic", "queue_id"]


def check_queues(context: Context, entries: LogEntries | None) -> CheckResult:
    """Return A39."""
    if not context.history.rows("queue_index"):
        return unchecked("A39", "nobody read the queues of nodes (queue_index)")
    if entries is None:
        return unchecked("A39", "the run has no replicas' logs")
    result = CheckResult(check="A39", summary="queues are what logs say")
    topics = [t.name for t in context.topics.values() if t.epoch_min == t.epoch_max]
    told = context.table("queue_index").filter(F.col("topic").isin(topics))
    logs = Counter(node.node for node in entries.nodes)
    nodes = [node for node in entries.nodes if logs[node.node] == 1 and not node.disk_fault]
    judged = {node.number: node.node for node in nodes}
    told = told.filter(F.col("node").isin(sorted(judged.values())))
    told = told.select(*SPOT, F.col("index").alias("at"), F.col("msg_key").alias("named"))
    logged = (
        entries.rows.filter("committed and crc_ok and type = 'message'")
        .filter("topic is not null and queue_id is not null and queue_offset is not null")
        .withColumn("node", case_of(F.col("node_no"), judged, None))
        .filter("node is not null")
        .select(*SPOT, "index", "msg_key")
    )
    logged = logged.join(F.broadcast(told.select("node").distinct()), "node", "left_semi").persist()
    rows = _misnamed(entries, told, logged).unionByName(
        _left_out(told, logged.filter(F.col("topic").isin(topics)))
    )
    rows = rows.dropDuplicates(["key"])
    result = tell(context, result, rows, text(F.col("key"), " ", F.col("words")))
    plain = sorted(node.node for node in nodes if node.is_plain)
    silent = told.filter("at is null").filter(~F.col("node").isin(plain))
    if not result.count and not silent.isEmpty():
        why = "needs queue_index.index: which entries the places of queues name"
        return unknown("A39", why)
    return result


def _misnamed(entries: LogEntries, told: DataFrame, logged: DataFrame) -> DataFrame:
    """Return the rows that name another entry than theirs, or none that is committed."""
    numbers = {node.node: node for node in entries.nodes}
    trimmed = {name for name, node in numbers.items() if node.first_index > 0}
    plain = sorted(name for name, node in numbers.items() if node.is_plain)
    begins = logged.groupBy(*QUEUE).agg(F.min("queue_offset").alias("begin"))
    # Where a log lost its beginning, so may what queues name.
    gone = F.col("node").isin(sorted(trimmed)) & (
        F.col("begin").isNull() | (F.col("queue_offset") < F.col("begin"))
    )
    told = told.join(begins, QUEUE, "left").filter(~gone).drop("begin")
    by_place = F.col("at").isNull() | F.col("node").isin(plain)
    there = logged.select(
        "node", *(F.col(name).alias(f"{name}_") for name in (*SPOT[1:], "index", "msg_key"))
    )
    same = [F.col(f"{name}_") == F.col(name) for name in SPOT[1:]]
    is_there = same[0] & same[1] & same[2]
    placed = told.filter(by_place).alias("told").join(
        there.alias("there"),
        (F.col("told.node") == F.col("there.node")) & is_there, "left",
    ).select("told.*", "topic_", "queue_id_", "queue_offset_", "msg_key_")  # fmt: skip
    indexed = told.filter(~by_place).alias("told").join(
        there.alias("there"),
        (F.col("told.node") == F.col("there.node")) & (F.col("told.at") == F.col("there.index_")),
        "left",
    ).select("told.*", "topic_", "queue_id_", "queue_offset_", "msg_key_")  # fmt: skip
    words = (
        F.when(F.col("topic_").isNull(), "is in a queue, and no committed message lies there")
        .when(~is_there, "names an entry that lies elsewhere")
        .when(F.col("named") != F.col("msg_key_"), "names another message than lies there")
    )
    rows = placed.unionByName(indexed).withColumn("words", words).filter("words is not null")
    return rows.select(_key().alias("key"), "words")


def _left_out(told: DataFrame, logged: DataFrame) -> DataFrame:
    """Return committed messages that are in no queue, behind the begin of theirs."""
    lowest = told.groupBy(*QUEUE).agg(F.min("queue_offset").alias("lowest"))
    rows = logged.join(told.select(*SPOT), SPOT, "left_anti").join(lowest, QUEUE, "left")
    rows = rows.filter("queue_offset >= coalesce(lowest, 0)")
    words = text("is index ", F.col("index"), " of its log, and in no queue").alias("words")
    return rows.select(_key().alias("key"), words)


def _key() -> Column:
    return text(
        F.col("node"), ":", F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset")
    )
