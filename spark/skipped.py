"""What a group passed over on purpose, since its queue was set forth: A1 and A55 do not owe it.

A reset skips what lies between how far the group had come and where it was put. What lies behind an
offset to which a later one put the group back is owed to it again. Source: spec/proof.md A1.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.facts import acks_of, on_topics, resets

OWED: Final = 0
SKIPPED: Final = 1
IN_DOUBT: Final = 2
"""What becomes of a message: the group is owed it, is not, or nobody knows."""
_QUEUE: Final = ["gname", "topic", "queue_id"]
_SAYS: Final = f"""
case when one.reached < queue_offset and (one.to is null or queue_offset < one.to)
     then if(one.is_sure and one.to is not null, {SKIPPED}, {IN_DOUBT})
     when one.is_sure and one.to <= queue_offset then {OWED} end
"""


def with_skips(context: Context, rows: DataFrame) -> DataFrame:
    """Return rows (``gname``, a place) with ``skip``: what the last reset makes of each."""
    if not acks_of(context, "reset"):
        return rows.withColumn("skip", F.lit(OWED))
    told = f"transform(jumps, one -> named_struct('at', one.at, 'says', {_SAYS}))"
    last = f"array_max(filter({told}, one -> one.says is not null)).says"
    return (
        rows.join(F.broadcast(_jumps(context)), _QUEUE, "left")
        .withColumn("skip", F.coalesce(F.expr(last), F.lit(OWED)))
        .drop("jumps")
    )


def _jumps(context: Context) -> DataFrame:
    """Return of each queue that was reset when, where to, and how far its group had come."""
    begun = F.coalesce(F.least("t_inv", "t_cmp"), F.lit(-1))
    acks = context.table("acks").withColumns({"gname": F.col("grp"), "at": begun})
    told = resets(acks).select(
        *_QUEUE, "at", F.col("value_offset").alias("to"),
        F.coalesce(F.col("outcome") == "ok", F.lit(col=False)).alias("is_sure"),
        F.monotonically_increasing_id().alias("number"),
    ).localCheckpoint(eager=True)  # fmt: skip
    given = context.deliveries.filter("not copied and not coalesce(auditor, false)")
    given = given.filter(on_topics(context)).select(
        *_QUEUE, F.col("t_recv").alias("t"), F.col("queue_offset").alias("offset")
    )
    commits = acks.filter("kind = 'commit' and outcome = 'ok' and value_offset is not null")
    commits = commits.select(
        *_QUEUE, F.col("at").alias("t"), (F.col("value_offset") - 1).alias("offset")
    )
    seen = given.unionByName(commits).join(F.broadcast(told), _QUEUE).filter("t < at")
    reached = seen.groupBy("number").agg(F.max("offset").alias("reached"))
    jumps = told.join(reached, "number", "left").na.fill(-1, ["reached"])
    one = F.struct("at", "to", "reached", "is_sure")
    return jumps.groupBy(*_QUEUE).agg(F.collect_list(one).alias("jumps"))
