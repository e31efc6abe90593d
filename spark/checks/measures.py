"""A3, A58, A59: what is told of a run and never judged.

A3: messages that nobody knows to be stored, counted where the tables are laid over each other. A58:
terms in which nodes stood for election, and how many in a row brought no leader. A59: messages,
bytes and time of what A1 calls lost. Source: spec/proof.md A3, A58, A59.
"""

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.checks.loss import absent_messages
from spark.context import Context
from spark.facts import unchecked
from spark.message_outcomes import MessageOutcomes
from spark.result import CheckResult


def check_unknown(outcomes: MessageOutcomes) -> CheckResult:
    """Return A3."""
    recovered, vanished = (outcomes.totals[name] for name in ("recovered", "vanished"))
    words = f"{recovered + vanished} unknown: {recovered} took effect, {vanished} did not"
    details = {"recovered": recovered, "vanished": vanished}
    return CheckResult(check="A3", summary=words, details=details)


def check_storm(context: Context) -> CheckResult:
    """Return A58."""
    if not context.history.rows("raft_event"):
        return unchecked("A58", "the run has no events of its replicas")
    led = F.col("kind") == "become_leader"
    terms = (
        context.table("raft_event")
        .filter("kind in ('become_candidate', 'become_leader') and term is not null")
        .groupBy(F.coalesce("group", F.lit(0)).alias("group"), "term")
        .agg(F.sum((~led).cast("int")).alias("stood"), F.max(led).alias("led"))
    )
    order = Window.partitionBy("group").orderBy("term")
    stretch = F.sum(F.col("led").cast("int")).over(order)
    stretches = terms.withColumn("stretch", stretch).groupBy("group", "stretch")
    row = (
        stretches.agg(
            F.sum("stood").alias("stood"),
            F.count(F.lit(1)).alias("terms"),
            F.sum((~F.col("led")).cast("int")).alias("failed"),
        )
        .agg(
            F.sum("stood").alias("elections"), F.sum("terms").alias("terms"),
            F.sum("failed").alias("failed"), F.max("failed").alias("longest"),
        )
        .first()
    )  # fmt: skip
    numbers = {} if row is None else row.asDict()
    told = {
        name: int(numbers.get(name) or 0) for name in ("elections", "terms", "failed", "longest")
    }
    words = f"{told['elections']} candidacies in {told['terms']} terms"
    words += f", {told['failed']} of which had no leader"
    return CheckResult(check="A58", summary=words, details=told)


def check_span(context: Context, outcomes: MessageOutcomes) -> CheckResult:
    """Return A59."""
    told = {"messages": 0, "bytes": 0, "span_ms": 0.0}
    result = CheckResult(check="A59", summary="nothing is known to be lost", details=told)
    absent = absent_messages(context, outcomes)
    if absent is None:
        return result
    lost = absent.filter("state = 'lost'").dropDuplicates(["op_id", "msg_key"])
    at = F.coalesce("t_cmp", "t_inv")
    row = lost.agg(
        F.countDistinct("msg_key").alias("messages"), F.sum("body_len").alias("bytes"),
        ((F.max(at) - F.min(at)) / 1e6).alias("span_ms"),
    ).first()  # fmt: skip
    if row is not None and row.messages:
        told |= {"messages": row.messages, "bytes": row.bytes or 0, "span_ms": row.span_ms}
        result.details = told
        result.summary = (
            f"{row.messages} messages of {told['bytes']} bytes, acknowledged within "
            f"{row.span_ms:.0f} ms"
        )
    return result
