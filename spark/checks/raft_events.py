"""A30 to A33 and A35 (iii): what replicas noted and said of themselves, against the rules of Raft.

A30: a term has one leader, by the events ``become_leader`` and by the statuses of nodes. A31: a
node votes for one candidate a term, itself included, over all its lives. A32: the term of a node
never falls. A33: inside one life its commit index (and the applied index it tells) never falls.
A35 (iii): a node does not lose what it had called committed, by a cut or by a restart.

Events are ordered by node and ``seq``, which goes on over restarts; statuses are compared only
where one had ended before the next began. A node that a fault wiped or restored lost its memory by
contract: its votes and terms are not compared. Source: spec/proof.md 3.6.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import forgets, spoils_log
from spark.context import Context
from spark.evidence import anomaly_rows, attach, pointer, text
from spark.result import NOT_CHECKED, CheckResult

NO_EVENTS: Final = "the run has neither events nor statuses of its replicas"


def check_leaders(context: Context) -> CheckResult:
    """Return A30."""
    if not (_has_events(context) or _has_answers(context)):
        return _not_checked("A30")
    group = F.coalesce("group", F.lit(0)).alias("group")
    noted = context.table("raft_event").filter("kind = 'become_leader'")
    told = context.table("raft_probe").filter("ok and lower(role) = 'leader' and term is not null")
    rows = noted.select(group, "term", "node").unionByName(told.select(group, "term", "node"))
    found = (
        rows.groupBy("group", "term")
        .agg(F.sort_array(F.collect_set("node")).alias("nodes"))
        .filter("size(nodes) > 1")
        .withColumn("key", text(F.col("group"), ":", F.col("term")))
    )
    explain = text(
        "term ", F.col("term"), " has ", F.size("nodes"), " leaders: ",
        F.concat_ws(", ", "nodes"),
    )  # fmt: skip
    return _check(context, "A30", found, explain, "a term has one leader")


def check_votes(context: Context) -> CheckResult:
    """Return A31."""
    if not _has_events(context):
        return _not_checked("A31")
    found = (
        _kept(context, context.table("raft_event"))
        .filter("kind = 'become_candidate' or kind = 'vote_granted' and peer is not null")
        .withColumn("candidate", F.expr("if(kind = 'vote_granted', peer, node)"))
        .groupBy("node", "term")
        .agg(F.sort_array(F.collect_set("candidate")).alias("candidates"))
        .filter("size(candidates) > 1")
        .withColumn("key", text(F.col("node"), ":", F.col("term")))
    )
    explain = text(
        F.col("node"), " voted in term ", F.col("term"), " for ",
        F.concat_ws(", ", "candidates"),
    )  # fmt: skip
    return _check(context, "A31", found, explain, "one vote of a node in a term")


def check_terms(context: Context) -> CheckResult:
    """Return A32."""
    if not (_has_events(context) or _has_answers(context)):
        return _not_checked("A32")
    events = context.table("raft_event").filter("kind <> 'append' and term is not null")
    answers = context.table("raft_probe").filter("ok and term is not null")
    falls = [
        _falls_of_events(_kept(context, events), "term", "term", ("node",)),
        _falls_of_answers(_kept(context, answers), "term", "term", ("node",)),
    ]
    return _check_falls(context, "A32", falls, "terms rise")


def check_commits(context: Context) -> CheckResult:
    """Return A33."""
    if not (_has_events(context) or _has_answers(context)):
        return _not_checked("A33")
    life = ("node", "boot_id")
    commits = context.table("raft_event").filter("kind = 'commit'")
    answers = context.table("raft_probe").filter("ok")
    falls = [
        _falls_of_events(commits, "index", "commit index", life),
        _falls_of_answers(answers.filter("commit is not null"), "commit", "commit index", life),
        _falls_of_answers(answers.filter("applied is not null"), "applied", "applied index", life),
    ]
    return _check_falls(context, "A33", falls, "commit and applied index rise")


def cut_commits(context: Context) -> DataFrame | None:
    """Return the anomalies of A35 (iii), None where there are none or no events.

    A kill takes nothing that was written: a node begins again with all that it called committed,
    unless a fault of its disk, or a loss of power, excuses it.
    """
    if not _has_events(context):
        return None
    before = Window.partitionBy("node").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    committed = F.max(F.expr("if(kind = 'commit', index, null)")).over(before)
    lost = "kind = 'truncate' and index <= committed or kind = 'boot' and index < committed"
    found = (
        context.table("raft_event")
        .filter("kind in ('commit', 'truncate', 'boot') and index is not null")
        .withColumn("committed", committed)
        .filter(lost)
        .filter((F.col("kind") != "boot") | ~F.col("node").isin(sorted(_spoiled(context))))
        .withColumn("key", text(F.col("node"), ":", F.col("index")))
    )
    what = F.when(F.col("kind") == "boot", " began again with a log that ends at ").otherwise(
        " cut its log at "
    )
    explain = text(
        F.col("node"), what, F.col("index"), " (event ", F.col("seq"),
        ") and had called everything up to ", F.col("committed"), " committed",
    )  # fmt: skip
    pointers = [pointer("raft_event", "seq", "node_mono_ns")]
    rows = anomaly_rows(context, "A35", found, explain=explain, evidence=pointers).persist()
    return rows if rows.count() else None


def _falls_of_events(events: DataFrame, column: str, what: str, life: Sequence[str]) -> DataFrame:
    order = Window.partitionBy(*life).orderBy("seq")
    return events.withColumn("before", F.lag(column).over(order)).filter(
        F.col(column) < F.col("before")
    ).select(
        "node", F.lit(what).alias("what"), "before", F.col(column).alias("after"),
        text("event ", F.col("seq")).alias("where"),
    )  # fmt: skip


def _falls_of_answers(answers: DataFrame, column: str, what: str, life: Sequence[str]) -> DataFrame:
    order = Window.partitionBy(*life).orderBy("t0")
    return (
        answers.withColumn("before", F.lag(column).over(order))
        .withColumn("ended", F.lag("t1").over(order))
        .filter((F.col(column) < F.col("before")) & (F.col("ended") < F.col("t0")))
        .select(
            "node", F.lit(what).alias("what"), "before", F.col(column).alias("after"),
            text("answer at ", F.col("t0")).alias("where"),
        )
    )  # fmt: skip


def _check_falls(
    context: Context, check: str, falls: Sequence[DataFrame], summary: str
) -> CheckResult:
    found = reduce(DataFrame.unionByName, falls).withColumn(
        "key", text(F.col("node"), ":", F.col("where"))
    )
    explain = text(
        F.col("node"), ": ", F.col("what"), " fell from ", F.col("before"), " to ", F.col("after"),
        " (", F.col("where"), ")",
    )  # fmt: skip
    return _check(context, check, found, explain, summary)


def _check(
    context: Context, check: str, found: DataFrame, explain: Column, summary: str
) -> CheckResult:
    result = CheckResult(check=check)
    result.summary = summary
    anomalies = anomaly_rows(context, check, found, explain=explain, evidence=[]).persist()
    result.count = anomalies.count()
    if result.count:
        result.summary = f"{result.count} times not so: {summary}"
        attach(result, anomalies)
    return result


def _kept(context: Context, rows: DataFrame) -> DataFrame:
    """Leave out the nodes that a fault wiped or restored."""
    wiped = {node for fault in context.faults if forgets(fault.kind) for node in fault.targets}
    return rows.filter(~F.col("node").isin(sorted(wiped))) if wiped else rows


def _spoiled(context: Context) -> set[str]:
    """Return the nodes whose disks, or whose memory of them, a fault took."""
    return {
        node
        for fault in context.faults
        if spoils_log(fault.kind) or forgets(fault.kind)
        for node in fault.targets
    }


def _has_events(context: Context) -> bool:
    return context.history.rows("raft_event") > 0


def _has_answers(context: Context) -> bool:
    return context.history.rows("raft_probe") > 0


def _not_checked(check: str) -> CheckResult:
    return CheckResult(check=check, verdict=NOT_CHECKED, summary=NO_EVENTS)
