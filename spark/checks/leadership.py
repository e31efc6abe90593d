"""A36, A37, A38: what leaders may do.

A36: a new leader's log, as the votes for it say, reaches as far as anything was committed in
earlier terms, by what nodes noted and producers were told (``raft_index``). A37: its commit index
passes nothing before an entry that it appended in its own term. A38: once a term has acknowledged a
message, no earlier term acknowledges one that is sent later (``raft_term``). All three compare
terms and indexes, never clocks of different nodes. Source: spec/proof.md A36 to A38.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.alone import Stretch, lonely
from spark.context import Context
from spark.evidence import message_name, tell, text
from spark.facts import lacking, small, unchecked, unknown
from spark.history import few_rows
from spark.result import CheckResult

NO_EVENTS: Final = "no replica noted that it leads"
FREQUENT: Final = "kind in ('append', 'commit')"
"""Kinds of events that have files of their own, which are the first to be written over."""


def check_completeness(context: Context) -> CheckResult:
    """Return A36."""
    events = _events(context)
    leaders = _leaders(events)
    if leaders.isEmpty():
        return unchecked("A36", NO_EVENTS)
    office = ["group", "term", "node"]
    votes = events.filter("kind = 'vote_granted'").withColumn("node", F.col("peer"))
    votes = votes.join(F.broadcast(leaders), office, "left_semi")
    commits = events.filter("kind = 'commit'")
    if missing := _lacking(votes.unionByName(commits), "term", "index"):
        return unknown("A36", f"needs {missing} of votes and commits")
    told = context.sends.filter("outcome = 'ok'")
    told = told.filter("raft_term is not null and raft_index is not null")
    committed = commits.select("group", "term", "index").unionByName(
        told.select(
            F.coalesce("raft_group", F.lit(0)).alias("group"),
            F.col("raft_term").alias("term"),
            F.col("raft_index").alias("index"),
        )
    )  # fmt: skip
    terms = committed.groupBy("group", "term").agg(F.max("index").alias("committed"))
    elected = votes.groupBy(*office).agg(F.max("index").alias("reached")).persist()
    # A row for each term, not for each message: these windows are short.
    earlier = Window.partitionBy("group").orderBy("term")
    earlier = earlier.rangeBetween(Window.unboundedPreceding, -1)
    rows = (
        elected.join(terms, ["group", "term"], "full")
        .withColumn("before", F.max("committed").over(earlier))
        .filter("node is not null and before > reached")
        .withColumn("key", text(F.col("node"), ":", F.col("term")))
    )
    explain = text(
        F.col("node"), " leads term ", F.col("term"), " with a log that ended at ",
        F.col("reached"), ", and up to ", F.col("before"), " was committed before",
    )  # fmt: skip
    result = CheckResult(check="A36", summary="leaders have what was committed before them")
    result.details = {"leaders": elected.count()}
    return tell(context, result, rows, explain)


def check_old_terms(context: Context) -> CheckResult:
    """Return A37."""
    events = _events(context)
    if _leaders(events).isEmpty():
        return unchecked("A37", NO_EVENTS)
    frequent = events.filter(FREQUENT)
    led = events.filter("kind = 'become_leader'")
    if missing := _lacking(frequent.unionByName(led), "seq", "term"):
        return unknown("A37", f"needs {missing} of leaders, appends and commits")
    if missing := _lacking(frequent, "index", "prev_index"):
        return unknown("A37", f"needs {missing} of appends and commits")
    office = ["group", "node", "term"]
    # Of a node some of whose events are gone, what is left of the frequent ones is all there.
    known = events.filter("seq is not null").groupBy("node").agg(
        (F.countDistinct("seq") == F.max("seq") - F.min("seq") + 1).alias("whole"),
        F.min(F.expr(f"if({FREQUENT}, seq, null)")).alias("known"),
    )  # fmt: skip
    since = (
        led.groupBy(*office).agg(F.min("seq").alias("since"))
        .join(known, "node")
        .filter("whole or since >= known")
        .select(*office, "since")
    )  # fmt: skip
    own = frequent.filter("kind = 'append'").groupBy(*office).agg(F.min("prev_index").alias("own"))
    offices = since.join(own, office, "left").persist()
    rows = (
        frequent.filter("kind = 'commit'")
        .join(small(offices, offices.count()), office)
        .filter("seq >= since and (own is null or index <= own)")
        .withColumn("key", text(F.col("node"), ":", F.col("term")))
    )
    said = F.when(F.col("own").isNull(), F.lit("has none")).otherwise(
        F.concat(F.lit("begin at "), (F.col("own") + 1).cast("string"))
    )
    explain = text(
        F.col("node"), " leads term ", F.col("term"), " and committed up to ", F.col("index"),
        " (event ", F.col("seq"), "); its entries of that term ", said,
    )  # fmt: skip
    result = CheckResult(check="A37", summary="leaders commit from an entry of their own on")
    result.details = {"leaders": offices.count()}
    return tell(context, result, rows, explain)


def check_stale(context: Context) -> CheckResult:
    """Return A38."""
    told = context.sends.filter("outcome = 'ok' and raft_term is not null").withColumn(
        "group", F.coalesce("raft_group", F.lit(0))
    )
    term = ["group", "raft_term"]
    terms = (
        told.groupBy(*term)
        .agg(
            F.min("t_cmp").alias("first"),
            F.count(F.lit(1)).alias("n"),
            F.count(F.when(F.col("t_cmp").isNull(), 1)).alias("no_t_cmp"),
        )
        .persist()
    )
    row = terms.agg(F.count(F.lit(1)), F.sum("n"), F.sum("no_t_cmp")).collect()[0]
    spans = lonely(context)
    if not row[0] and not spans:
        return unchecked("A38", "no send says in which term it was acknowledged (raft_term)")
    if row[2]:
        return unknown("A38", "needs sends.t_cmp of sends with a raft_term")
    # A row for each term, not for each message.
    later = Window.partitionBy("group").orderBy("raft_term")
    later = later.rangeBetween(1, Window.unboundedFollowing)
    over = terms.withColumn("over", F.min(F.struct("first", "raft_term")).over(later))
    over = over.filter("over is not null").select(*term, "over")
    rows = (
        told.join(small(over, row[0]), term)
        .filter(F.col("t_inv") > F.col("over.first"))
        .withColumn("key", F.col("msg_key"))
    )
    explain = text(
        message_name(), " (op ", F.col("op_id"), ") was acknowledged in term ", F.col("raft_term"),
        ", and was sent after term ", F.col("over.raft_term"), " had acknowledged others",
    )  # fmt: skip
    rows = rows.select("op_id", "msg_key", "key", explain.alias("words"))
    if spans:
        alone = _acknowledged_alone(context, spans)
        rows = rows.join(alone.select("op_id", "msg_key"), ["op_id", "msg_key"], "left_anti")
        rows = rows.unionByName(alone)
    result = CheckResult(check="A38", summary="terms acknowledge one after the other")
    result.details = {"acknowledged": row[1] or 0}
    return tell(context, result, rows, F.col("words"))


def _acknowledged_alone(context: Context, spans: list[Stretch]) -> DataFrame:
    """Return what was sent and acknowledged while too few brokers ran to hold it."""
    sends = context.sends.filter("outcome = 'ok' and t_cmp is not null")
    groups = sends.agg(F.countDistinct(F.coalesce("raft_group", F.lit(0)))).collect()[0][0]
    if groups > 1:
        return _told_alone(sends.limit(0))
    table = F.broadcast(few_rows(context.session, spans, "begun long, over long"))
    within = (F.col("begun") <= F.col("t_inv")) & (F.col("t_cmp") <= F.col("over"))
    return _told_alone(sends.join(table, within, "left_semi"))


def _told_alone(rows: DataFrame) -> DataFrame:
    words = text(
        message_name(), " (op ", F.col("op_id"), ") was sent and acknowledged while fewer brokers"
        " got anything than have to hold it",
    )  # fmt: skip
    return rows.select("op_id", "msg_key", F.col("msg_key").alias("key"), words.alias("words"))


def _events(context: Context) -> DataFrame:
    group = F.coalesce("group", F.lit(0))
    return context.table("raft_event").withColumn("group", group)


def _leaders(events: DataFrame) -> DataFrame:
    """Return group, term and node of all that noted that they lead."""
    rows = events.filter("kind = 'become_leader' and term is not null")
    return rows.select("group", "term", "node").distinct()


def _lacking(events: DataFrame, *columns: str) -> str:
    """Return which columns some of the events leave empty."""
    empty = [F.max(F.col(name).isNull().cast("int")).alias(f"no_{name}") for name in columns]
    return lacking("raft_event", events.agg(*empty).collect(), columns)
