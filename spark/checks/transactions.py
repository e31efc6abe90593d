"""A53, A54, A55: what was rolled back is not seen, what was committed is, and not before.

A transaction is decided by its producer's word, or by its answer to a check-back; where both
decisions were said the system may take either. Source: spec/proof.md A53 to A55.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context, case_of, group_of
from spark.evidence import message_name, tell, tell_of_drained, text
from spark.facts import lacking, of_run, read_out, sends_of, unchecked, unknown
from spark.history import few_rows
from spark.result import CheckResult
from spark.skipped import OWED, with_skips


def check_rolled_back(context: Context) -> CheckResult:
    """Return A53."""
    said = decisions(context, "A53")
    if isinstance(said, CheckResult):
        return said
    rows = said.filter("rollbacks > 0 and commits = 0").join(_seen(context), "msg_key")
    explain = text(message_name(), " was rolled back, and delivered")
    result = CheckResult(check="A53", summary="what was rolled back stays unseen")
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)


def check_undecided(context: Context) -> CheckResult:
    """Return A54: also of what was sent in a transaction of which ``txn`` has no step."""
    said = decisions(context, "A54")
    if isinstance(said, CheckResult):
        return said
    sent = context.sends.filter("kind = 'txn'").select("msg_key").distinct()
    known = said.join(sent, "msg_key", "full_outer").na.fill(0, ["commits", "rollbacks"])
    rows = known.join(_seen(context), "msg_key").filter(
        "commits = 0 and rollbacks = 0 or came < begun"
    )
    explain = text(message_name(), " was delivered before its transaction was committed")
    result = CheckResult(check="A54", summary="nothing is seen before it is decided")
    return tell(context, result, rows.withColumn("key", F.col("msg_key")), explain)


def check_committed_missing(context: Context) -> CheckResult:
    """Return A55."""
    said = decisions(context, "A55")
    if isinstance(said, CheckResult):
        return said
    rows = missed_commits(context, said).withColumn("key", F.col("msg_key"))
    explain = text(message_name(), " was committed, and never delivered to ", F.col("gname"))
    result = CheckResult(check="A55", summary="what was committed is delivered")
    return tell_of_drained(context, result, rows, explain, read_out(context))


def missed_commits(context: Context, said: DataFrame) -> DataFrame:
    """Return a row for each group that did not get what was committed, with send and place.

    ``said``: what was decided of each transaction's message (`decisions`).
    """
    wishes = [
        (group, topic, context.tags_of(group, topic))
        for group in context.checked_groups
        for topic in sorted(context.groups[group])
    ]
    table = few_rows(context.session, wishes, "gname string, topic string, tags array<string>")
    names = ("msg_key", "topic", "tag", "epoch", "t_inv", "t_cmp")
    sends = context.sends.select(*names).dropDuplicates(["msg_key"])
    wanted = F.col("tags").isNull() | F.coalesce(
        F.array_contains("tags", F.col("tag")), F.lit(col=False)
    )
    latest = {one.name: one.epoch_max for one in context.topics.values() if one.epoch_max}
    begins = context.table("drain").groupBy(F.col("grp").alias("gname"), "topic", "queue_id")
    begins = begins.agg(F.min("min_off").alias("min_off"))
    # A dead letter was delivered, too; where only auditors read, they are who is owed.
    got = context.deliveries.filter(F.col("own") & of_run(context)).select("gname", "msg_key")
    missed = (
        said.filter("sure > 0 and rollbacks = 0")
        .join(sends, "msg_key")
        .join(F.broadcast(table), "topic")
        .filter(wanted)
        .filter(F.coalesce("epoch", F.lit(0)) >= case_of(F.col("topic"), latest, 0))
        .join(got, ["gname", "msg_key"], "left_anti")
        .withColumn("gname", group_of("gname"))
        .join(_places(context), ["msg_key", "topic"], "left")
        .join(begins, ["gname", "topic", "queue_id"], "left")
        # Whoever began behind its place is not owed it.
        .filter("not coalesce(queue_offset < min_off, false)")
    )
    return with_skips(context, missed).filter(F.col("skip") == OWED)


def _places(context: Context) -> DataFrame:
    """Return where the messages of transactions were seen first."""
    seen = F.min(F.struct("t_recv", "queue_id", "queue_offset")).alias("seen")
    keys = context.table("txn").select("msg_key").distinct()
    rows = context.deliveries.filter("not copied").join(keys, "msg_key", "left_semi")
    rows = rows.groupBy("msg_key", "topic").agg(seen)
    return rows.select("msg_key", "topic", "seen.queue_id", "seen.queue_offset")


def decisions(context: Context, check: str) -> DataFrame | CheckResult:
    """Return what was said of each transaction's message, or why nobody can tell.

    What failed for certain decided nothing.
    """
    if not context.history.rows("txn"):
        if sends_of(context, "txn"):
            why = "needs txn: what was decided of the transactions is not there"
            return unknown(check, why)
        return unchecked(check, "there were no transactions")
    said = context.table("txn")
    empty = said.agg(
        F.max(F.expr("if(step = 'checkback' and answer is null, 1, 0)")).alias("no_answer"),
        F.max(F.expr("if(outcome is null, 1, 0)")).alias("no_outcome"),
    ).collect()
    if missing := lacking("txn", empty, ("answer", "outcome")):
        return unknown(check, f"needs {missing}")
    word = F.expr("if(step = 'checkback', answer, step)")
    may_stand = F.col("outcome") != "fail"
    commit, rollback = ((word == name) & may_stand for name in ("commit", "rollback"))
    return said.groupBy("msg_key").agg(
        F.sum(commit.cast("int")).alias("commits"),
        F.sum(rollback.cast("int")).alias("rollbacks"),
        F.sum((commit & (F.col("outcome") == "ok")).cast("int")).alias("sure"),
        F.min(F.when(commit, F.col("t_inv"))).alias("begun"),
    )


def _seen(context: Context) -> DataFrame:
    """Return when each message was seen first."""
    rows = context.deliveries.filter(F.col("own") & of_run(context))
    rows = rows.filter("msg_key is not null")
    return rows.groupBy("msg_key").agg(F.min("t_recv").alias("came"))
