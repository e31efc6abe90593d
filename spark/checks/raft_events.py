"""A30 to A33 and A35 (iii): what replicas noted and said of themselves, against the rules of Raft.

A30: a term has one leader, by the events ``become_leader``, by the statuses of nodes, and by who
acknowledged in it. A31: a node votes for one candidate a term, itself included, over all its lives,
by its events and by its statuses. A32: the term of a node never falls. A33: inside one life its
commit index (and the applied index it tells) never falls. A35 (iii): a node does not lose what it
had called committed, by a cut or by a restart.

Events are ordered by node and ``seq``, which goes on over restarts; a status is compared with
those that had ended before it was asked for. A node that is of several groups has terms, votes and
a log in each. One that a fault wiped or restored lost its memory by contract: its votes and terms
are compared within each of its lives, and over those between which no such fault lay.
Source: spec/proof.md 3.6.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import forgets, spoils_log
from chaos.history.domains import LEADING
from spark.context import Context, Fault
from spark.evidence import anomaly_rows, attach, pointer, text
from spark.facts import lacking, unknown
from spark.history import few_rows
from spark.result import NOT_CHECKED, CheckResult

NO_EVENTS: Final = "the run has neither events nor statuses of its replicas"


def check_leaders(context: Context) -> CheckResult:
    """Return A30."""
    acknowledged = _acknowledged(context)
    if not (_has_events(context) or _has_answers(context)) and acknowledged is None:
        return _not_checked("A30")
    noted = context.table("raft_event").filter("kind = 'become_leader'")
    if missing := _lacking(noted, "term"):
        return unknown("A30", f"needs {missing} of leaders")
    told = context.table("raft_probe").filter("ok and term is not null")
    told = told.filter(F.lower("role").isin(*LEADING))
    columns = (_group(), "term", "node")
    rows = noted.select(*columns).unionByName(told.select(*columns))
    if acknowledged is not None:
        rows = rows.unionByName(acknowledged)
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


def _acknowledged(context: Context) -> DataFrame | None:
    """Return who acknowledged in which term; None where nobody knows.

    Producers may call nodes otherwise than nodes do themselves: those say nothing.
    """
    if not any(row.with_term for row in context.send_stats):
        return None
    group = F.coalesce("raft_group", F.lit(0)).alias("group")
    sends = context.sends.filter("outcome = 'ok' and raft_term is not null and node is not null")
    rows = sends.select(group, F.col("raft_term").alias("term"), "node").distinct()
    if _has_events(context) or _has_answers(context):
        names = [context.table(name).select("node") for name in ("raft_event", "raft_probe")]
        rows = rows.join(reduce(DataFrame.union, names).distinct(), "node", "left_semi")
    return rows.select("group", "term", "node")


def check_votes(context: Context) -> CheckResult:
    """Return A31."""
    events = _kept(context, context.table("raft_event"))
    told = context.table("raft_probe").filter("ok and voted_for <> '' and term is not null")
    told = _kept(context, told)
    if not _has_events(context) and told.isEmpty():
        return _not_checked("A31")
    cast = events.filter("kind = 'become_candidate' or kind = 'vote_granted' and peer is not null")
    if missing := _lacking(cast, "term"):
        return unknown("A31", f"needs {missing} of votes")
    candidate = F.expr("if(kind = 'vote_granted', peer, node)").alias("candidate")
    # Each by itself: what nodes note and what they answer may name nodes differently. Those that
    # are called the same in both are also asked of both together.
    columns = ("node", _group(), "term", "life")
    votes = cast.select(*columns, candidate, F.lit("event").alias("by")).unionByName(
        told.select(*columns, F.col("voted_for").alias("candidate"), F.lit("answer").alias("by"))
    )
    nodes = [context.table(name).select("node") for name in ("raft_event", "raft_probe")]
    names = [row.node for row in nodes[0].intersect(nodes[1]).collect()]
    known = votes.filter(F.col("candidate").isin(names)).withColumn("by", F.lit("both"))
    votes = votes.unionByName(known)
    found = (
        votes.groupBy("node", "group", "term", "life", "by")
        .agg(F.collect_set("candidate").alias("candidates"))
        .filter("size(candidates) > 1")
        .groupBy("node", "group", "term")
        .agg(F.array_distinct(F.flatten(F.collect_list("candidates"))).alias("candidates"))
        .withColumn("key", text(F.col("node"), ":", F.col("term")))
    )
    explain = text(
        F.col("node"), " voted in term ", F.col("term"), " for ",
        F.concat_ws(", ", F.sort_array("candidates")),
    )  # fmt: skip
    return _check(context, "A31", found, explain, "one vote of a node in a term")


def check_terms(context: Context) -> CheckResult:
    """Return A32."""
    if not (_has_events(context) or _has_answers(context)):
        return _not_checked("A32")
    events = context.table("raft_event").filter("kind <> 'append' and term is not null")
    events = _kept(context, events)
    if missing := _lacking(events, "seq"):
        return unknown("A32", f"needs {missing}")
    answers = context.table("raft_probe").filter("ok and term is not null")
    falls = [
        _falls_of_events(events, "term", "term", (*_member(), F.col("life"))),
        _falls_of_answers(_kept(context, answers), "term", "term", (*_member(), F.col("life"))),
    ]
    return _check_falls(context, "A32", falls, "terms rise")


def check_commits(context: Context) -> CheckResult:
    """Return A33."""
    if not (_has_events(context) or _has_answers(context)):
        return _not_checked("A33")
    life = (*_member(), F.col("boot_id"))
    commits = context.table("raft_event").filter("kind = 'commit'")
    if missing := _lacking(commits, "seq", "index"):
        return unknown("A33", f"needs {missing} of commits")
    answers = context.table("raft_probe").filter("ok")
    has_life = F.coalesce("boot_id", F.lit("")) != ""
    falls = _commit_falls(commits.filter(has_life), answers.filter(has_life), life)
    result = _check_falls(context, "A33", falls, "commit and applied index rise")
    if result.count:
        return result
    # Over a restart it may fall; where nobody says in which life that was, nobody knows.
    in_doubt = _commit_falls(commits.filter(~has_life), answers.filter(~has_life), life)
    if not reduce(DataFrame.unionByName, in_doubt).isEmpty():
        why = "a fall may lie between two lives of a node"
        return unknown("A33", f"needs boot_id of raft_event and raft_probe: {why}")
    return result


def _commit_falls(
    commits: DataFrame, answers: DataFrame, life: Sequence[Column]
) -> list[DataFrame]:
    told, applied = (answers.filter(f"{name} is not null") for name in ("commit", "applied"))
    return [
        _falls_of_events(commits, "index", "commit index", life),
        _falls_of_answers(told, "commit", "commit index", life),
        _falls_of_answers(applied, "applied", "applied index", life),
    ]


def _group() -> Column:
    return F.coalesce("group", F.lit(0)).alias("group")


def _member() -> tuple[Column, ...]:
    """Return what has a term, a vote and a log: a node, in each of its groups."""
    return F.col("node"), _group()


def _lacking(events: DataFrame, *columns: str) -> str:
    """Return which columns some of the events leave empty."""
    empty = [F.count(F.when(F.col(name).isNull(), 1)).alias(f"no_{name}") for name in columns]
    return lacking("raft_event", events.agg(*empty).collect(), columns)


def cut_commits(context: Context) -> DataFrame | None:
    """Return the anomalies of A35 (iii), None where there are none or no events.

    A kill takes nothing that was written: a node begins again with all that it called committed,
    unless a fault of its disk, or a loss of power, excuses it.
    """
    if not _has_events(context):
        return None
    before = Window.partitionBy(*_member()).orderBy("seq")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    committed = F.max(F.expr("if(kind = 'commit', index, null)")).over(before)
    lost = "kind = 'truncate' and index <= committed or kind = 'boot' and index < committed"
    found = (
        context.table("raft_event")
        .filter("kind in ('commit', 'truncate', 'boot') and index is not null")
        .filter("seq is not null")
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


def _falls_of_events(
    events: DataFrame, column: str, what: str, line: Sequence[Column]
) -> DataFrame:
    order = Window.partitionBy(*line).orderBy("seq")
    return events.withColumn("before", F.lag(column).over(order)).filter(
        F.col(column) < F.col("before")
    ).select(
        "node", F.lit(what).alias("what"), "before", F.col(column).alias("after"),
        text("event ", F.col("seq")).alias("where"),
    )  # fmt: skip


def _falls_of_answers(
    answers: DataFrame, column: str, what: str, line: Sequence[Column]
) -> DataFrame:
    """Return where an answer is less than what had been told before it was asked for.

    What is low already, and no less than the last that had ended, is no fall of its own.
    """
    lines = [key.alias(f"line_{number}") for number, key in enumerate(line)]
    asked = answers.select(*lines, "node", "t0", "t1", F.col(column).alias("after"))
    rows = _with_ended(asked, len(lines), "before", F.max, F.col("after"))
    rows = rows.withColumn("is_low", F.coalesce(F.expr("after < before"), F.lit(col=False)))
    told = F.struct("after", "is_low")
    rows = _with_ended(rows, len(lines), "last", lambda c: F.last(c, ignorenulls=True), told)
    return rows.filter("is_low and (not last.is_low or last.after > after)").select(
        "node", F.lit(what).alias("what"), "before", "after",
        text("answer at ", F.col("t0")).alias("where"),
    )  # fmt: skip


def _with_ended(
    asked: DataFrame, lines: int, name: str, fold: Callable[[Column], Column], told: Column
) -> DataFrame:
    """Return answers with ``told`` of those on their line that had ended before, folded."""
    ended = asked.filter("t1 is not null")
    ended = ended.select(*(f"line_{n}" for n in range(lines)), F.col("t1").alias("at"),
                         told.alias("told"))  # fmt: skip
    # At one instant nothing has ended yet: questions go first.
    order = Window.partitionBy(*(f"line_{n}" for n in range(lines)))
    order = order.orderBy("at", F.col("told").isNotNull(), "told")
    order = order.rowsBetween(Window.unboundedPreceding, -1)
    rows = asked.withColumn("at", F.col("t0")).unionByName(ended, allowMissingColumns=True)
    rows = rows.withColumn(name, fold(F.col("told")).over(order))
    return rows.filter("t0 is not null").drop("at", "told")


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
    """Return rows with ``life``: of nodes that a fault wiped or restored, else empty.

    A disk goes between two lives: those between which none went are as one. Of a wiped node nothing
    is kept where nobody says in which life.
    """
    losses = [fault for fault in context.taking if forgets(fault.kind)]
    wiped = sorted({node for fault in losses for node in fault.targets})
    if not wiped:
        return rows.withColumn("life", F.lit(""))
    life = F.when(F.col("node").isin(wiped), F.col("boot_id")).otherwise("")
    is_known = ~F.col("node").isin(wiped) | (F.col("boot_id") != "")
    kept = rows.withColumn("life", life).filter(F.coalesce(is_known, F.lit(col=False)))
    if not (same := _same_disk(context, losses, wiped)):
        return kept
    disks = few_rows(context.session, same, "node string, life string, disk string")
    kept = kept.join(F.broadcast(disks), ["node", "life"], "left")
    return kept.withColumn("life", F.coalesce("disk", "life")).drop("disk")


def _same_disk(
    context: Context, losses: Sequence[Fault], wiped: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return the lives of wiped nodes that had the disk of an earlier one: node, life, the first.

    Only answers have times of the run's clock: of a life that gave none nothing is known.
    """
    told = context.table("raft_probe").filter("ok and boot_id <> ''")
    told = told.filter(F.col("node").isin(wiped)).groupBy("node", "boot_id")
    spans = told.agg(
        F.min("t0").alias("first"), F.max(F.coalesce("t1", "t0")).alias("last")
    ).collect()
    found: list[tuple[str, str, str]] = []
    for node in wiped:
        gone = [fault for fault in losses if node in fault.targets]
        lives = sorted((s.first, s.last, s.boot_id) for s in spans if s.node == node)
        disk, end = "", 0
        for first, last, life in lives:
            lost = any(fault.overlaps(min(end, first), max(end, first)) for fault in gone)
            disk = disk if disk and not lost else life
            found += [(node, life, disk)] if disk != life else []
            end = max(end, last)
    return found


def _spoiled(context: Context) -> set[str]:
    """Return the nodes whose disks, or whose memory of them, a fault took."""
    return {
        node
        for fault in context.taking
        if spoils_log(fault.kind) or forgets(fault.kind)
        for node in fault.targets
    }


def _has_events(context: Context) -> bool:
    return context.history.rows("raft_event") > 0


def _has_answers(context: Context) -> bool:
    return context.history.rows("raft_probe") > 0


def _not_checked(check: str) -> CheckResult:
    return CheckResult(check=check, verdict=NOT_CHECKED, summary=NO_EVENTS)
