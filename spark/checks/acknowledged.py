"""A52: what a group durably acknowledged does not come to it again.

A commit, or the acknowledgement of one message, that says that it is durable, against what was
fetched afterwards. Queues that were reset and topics that were made anew are left out.
Source: spec/proof.md A52.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.evidence import message_name, queue_place, tell, text
from spark.facts import lacking, made_anew, of_run, resets, to_groups, unchecked, unknown
from spark.lines import before, by_time
from spark.result import CheckResult

QUEUE = ["grp", "topic", "queue_id"]
COMMITTED = ("topic", "queue_id", "value_offset")
"""What a commit says, or nobody knows of what it is one."""


def check_durable(context: Context) -> CheckResult:
    """Return A52."""
    if not context.ack_stats:
        return unchecked("A52", "no acknowledgement says that it is durable")
    told = context.table("acks").filter("durable and kind in ('ack', 'commit')")
    if not told.filter("outcome is null").isEmpty():
        return unknown("A52", "needs acks.outcome of durable acknowledgements")
    durable = told.filter("outcome = 'ok'")
    counted = durable.agg(
        F.count(F.lit(1)).alias("n"),
        F.max(F.col("t_cmp").isNull().cast("int")).alias("no_t_cmp"),
        F.max(F.expr("if(kind = 'ack' and msg_key is null, 1, 0)")).alias("no_msg_key"),
        *(
            F.max(F.expr(f"if(kind = 'commit' and {name} is null, 1, 0)")).alias(f"no_{name}")
            for name in COMMITTED
        ),
    ).collect()
    if not counted[0].n:
        return unchecked("A52", "no acknowledgement says that it is durable")
    if missing := lacking("acks", counted, ("t_cmp", "msg_key", *COMMITTED)):
        return unknown("A52", f"needs {missing} of durable acknowledgements")
    acked = durable.filter("kind = 'ack' and msg_key is not null").groupBy("grp", "msg_key")
    rows = _deliveries(context).join(
        acked.agg(F.min("t_cmp").alias("acked")), ["grp", "msg_key"], "left"
    )
    commits = durable.filter("kind = 'commit' and value_offset is not null")
    rows = _with_floor(rows, commits).filter("acked < t or queue_offset < committed")
    explain = text(
        message_name(), " at ", queue_place(), " came to ", F.col("grp"),
        ", which had acknowledged it durably",
    )  # fmt: skip
    result = CheckResult(check="A52", summary="what was acknowledged durably does not come again")
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)


def _deliveries(context: Context) -> DataFrame:
    """Return what came to groups, and when it was fetched."""
    reset = resets(context.table("acks")).select(*QUEUE).distinct()
    rows = context.deliveries.filter(to_groups() & of_run(context)).filter("not copied")
    return (
        rows.filter(~F.col("topic").isin(made_anew(context)))
        .join(reset, QUEUE, "left_anti")
        .withColumn("t", F.coalesce("t_fetch_inv", "t_recv"))
        .select(*QUEUE, "msg_key", "queue_offset", "t")
    )


def _with_floor(rows: DataFrame, commits: DataFrame) -> DataFrame:
    """Return deliveries with the highest offset that was committed before each was fetched."""
    told = commits.select(*QUEUE, F.col("t_cmp").alias("t"), "value_offset")
    both = rows.withColumn("later", F.lit(0)).unionByName(
        told.withColumn("later", F.lit(1)), allowMissingColumns=True
    )
    # At one instant nothing is known to be earlier: deliveries go first.
    line = by_time(QUEUE, "t", F.col("later"))
    found = before(both, line, "committed", "max", F.col("value_offset"))
    return found.filter("later = 0")
