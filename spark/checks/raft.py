"""A34 and A35: the replicas' logs must match, and what was committed must stay.

A34 log matching: one (index, term) with two contents on any two replicas, committed or not; also a
committed entry whose checksums are wrong. A35 (i): two replicas that both call an index committed
hold different entries there, or one lacks it. A35 (ii): an acknowledged send whose entry is not
what the replicas committed at its index. A35 (iii) is in `raft_events`, (iv) in `under_replicated`.
Rows spoiled by a witnessed disk fault of their own node, torn uncommitted tails, and indexes before
a node's first are not faults.
Source: spec/proof.md A34, A35.
"""

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.checks.falling import falling_terms
from spark.checks.raft_events import cut_commits
from spark.checks.under_replicated import find_under_replicated
from spark.context import Context
from spark.evidence import anomaly_rows, attach, evidence_of, message_name, pointer, text
from spark.facts import small
from spark.log_entries import DIVERGENT, LogEntries, NodeLog
from spark.message_outcomes import MessageOutcomes, load_outcomes
from spark.result import EVIDENCE_MAX, NOT_CHECKED, VALID, CheckResult

NO_LOGS = "the run has neither replicas nor the table replica_log"


def check_log_matching(context: Context, entries: LogEntries | None) -> CheckResult:
    """Return A34."""
    result = CheckResult(check="A34")
    if entries is None:
        result.verdict, result.summary = NOT_CHECKED, NO_LOGS
        return result
    result.summary = "equal (index, term) means equal content on all replicas"
    result.details = {
        "replicas": {n.node: n.rows for n in entries.nodes},
        "unreadable": {n.node: list(n.unreadable) for n in entries.nodes if n.unreadable},
    }
    differing = _differing(context, entries)
    if differing is not None:
        result.count = differing.count()
        result.summary = f"{result.count} (index, term) pairs have different or damaged contents"
    falling = falling_terms(context, entries)
    if falling is not None:
        falls = falling.count()
        result.count += falls
        result.summary += f"; of {falls} terms an entry lies behind one of a later term"
    parts = [part for part in (differing, falling) if part is not None]
    if parts:
        found = reduce(DataFrame.unionByName, parts)
        at = F.col("evidence")[0]["op_id"]
        attach(result, found, shown=found.orderBy(at, "key").limit(EVIDENCE_MAX))
    return result


def _differing(context: Context, entries: LogEntries) -> DataFrame | None:
    """Return the pairs of index and term with different or damaged contents; None if none."""
    if not entries.disputed and not entries.spoiled:
        return None
    disputed = small(
        entries.entries.filter("id_min <> id_max or bad = 1").select("group", "index"),
        entries.disputed + entries.spoiled,
    )
    rows = entries.rows.join(disputed, ["group", "index"])
    sound = F.col("crc_ok") | F.col("committed") & ~_excused(entries)
    contents = (
        rows.filter(sound)
        .groupBy("group", "index", "term")
        .agg(
            F.countDistinct("id").alias("contents"),
            F.max((~F.col("crc_ok")).cast("int")).alias("bad"),
            F.sort_array(F.collect_set(_holder(entries))).alias("holders"),
            F.min("pos").alias("pos"),
        )
        .filter("contents > 1 or bad = 1")
        .persist()
    )
    if not contents.count():
        return None
    explain = text(
        "index ", F.col("index"), " term ", F.col("term"), " has ", F.col("contents"),
        " contents: ", F.concat_ws("; ", "holders"),
    )  # fmt: skip
    keyed = contents.withColumn("key", text(F.col("group"), ":", F.col("index")))
    pointers = [pointer("replica_log", "index", "pos")]
    return anomaly_rows(context, "A34", keyed, explain=explain, evidence=pointers)


def check_committed(
    context: Context, entries: LogEntries | None, outcomes: MessageOutcomes
) -> CheckResult:
    """Return A35; ``details['divergent']`` counts the indexes that replicas dispute."""
    result = _compare_logs(context, entries, outcomes)
    if entries is None and context.history.rows("raft_event"):
        result.verdict, result.summary = VALID, "no replica noted that it lost a committed entry"
    cut = cut_commits(context)
    if cut is None:
        return result
    found = cut.count()
    result.count += found
    result.summary += f"; {found} times a replica lost what it had called committed"
    anomalies = result.anomalies
    result.anomalies = cut if anomalies is None else anomalies.unionByName(cut)
    result.evidence += [evidence_of(row) for row in cut.limit(EVIDENCE_MAX).collect()]
    return result


def _compare_logs(
    context: Context, entries: LogEntries | None, outcomes: MessageOutcomes
) -> CheckResult:
    """A35 (i), (ii) and (iv)."""
    result = CheckResult(check="A35")
    if entries is None:
        result.verdict, result.summary = NOT_CHECKED, NO_LOGS
        return result
    result.details = {
        "commit_index": {n.node: n.commit_index for n in entries.nodes},
        "entries": {n.node: n.rows for n in entries.nodes},
        "nowhere": entries.nowhere,
    }
    parts = [_divergent(context, entries)] if entries.wrong else []
    overwritten = _overwritten(context, entries, outcomes)
    under_replicated = find_under_replicated(context, entries, outcomes, overwritten)
    result.count = entries.wrong + entries.nowhere
    for found in (overwritten, under_replicated):
        if found is not None:
            result.count += found.count()
            parts.append(found)
    holes = [n for n in entries.nodes if n.holes and not n.disk_fault]
    if holes:
        result.details["holes"] = {n.node: n.holes for n in holes}
    if not result.count:
        commits = ", ".join(f"{n.node} {n.commit_index}" for n in entries.nodes)
        result.summary = f"replicas agree on all committed entries (commit: {commits})"
        return result
    result.summary = (
        f"{entries.divergent} committed indexes differ between replicas, "
        f"{entries.missing} are missing on a replica that committed them"
    )
    if entries.nowhere:
        result.summary += f", {entries.nowhere} are in no log"
        result.evidence += [_hole(node) for node in holes]
    if under_replicated is not None:
        result.summary += "; acknowledged messages were read and are on no majority any more"
    if parts:
        attach(result, reduce(DataFrame.unionByName, parts))
    return result


def check_later(context: Context, entries: LogEntries | None) -> CheckResult:
    """Return A35 of the sends of a part of the history alone: what of them the logs lack."""
    result = CheckResult(check="A35")
    if entries is not None:
        outcomes = load_outcomes(context, entries)
        overwritten = _overwritten(context, entries, outcomes)
        few = find_under_replicated(context, entries, outcomes, overwritten)
        result.count = sum(found.count() for found in (overwritten, few) if found is not None)
    return result


def _hole(node: NodeLog) -> dict[str, Any]:
    """Return what a node lacks that it calls committed, as a piece of evidence."""
    return {
        "key": node.node,
        "explain": f"{node.node} calls {node.first_index}..{node.commit_index} committed, "
        f"but {node.holes} of these entries are not in its log "
        f"(unreadable: {', '.join(node.unreadable) or 'none'})",
    }


def _divergent(context: Context, entries: LogEntries) -> DataFrame:
    """A35 (i): committed indexes in dispute, or missing where they should be."""
    wrong = entries.entries.filter(f"{DIVERGENT} or missing <> 0")
    named = small(wrong.select("group", "index", "missing"), entries.wrong)
    rows = entries.rows.join(named, ["group", "index"])
    folded = rows.groupBy("group", "index").agg(
        F.sort_array(F.collect_set(_holder(entries))).alias("holders"),
        F.max("missing").alias("missing"),
        F.min("pos").alias("pos"),
    )
    absent = F.array_compact(
        F.array(
            *(
                F.when(F.col("missing").bitwiseAND(F.lit(1 << n.number)) != 0, F.lit(n.node))
                for n in entries.nodes
            )
        )
    )
    explain = F.concat(
        text("index ", F.col("index"), ": ", F.concat_ws("; ", "holders")),
        F.when(
            F.size(absent) > 0, text("; committed but absent on ", F.concat_ws(", ", absent))
        ).otherwise(""),
    )
    return anomaly_rows(
        context, "A35", folded.withColumn("key", text(F.col("group"), ":", F.col("index"))),
        explain=explain, evidence=[pointer("replica_log", "index", "pos")],
    )  # fmt: skip


def _overwritten(
    context: Context, entries: LogEntries, outcomes: MessageOutcomes
) -> DataFrame | None:
    """A35 (ii): acknowledged sends whose index was committed with other content.

    The index is what the reply said, or else where a replica holds the message uncommitted while
    another committed something else there, and no replica committed the message anywhere. Where
    the fold by message has found each at the index that was told, nothing else is there.
    """
    found: list[DataFrame] = []
    ok = context.sends.filter("outcome = 'ok'")
    fields = ("msg_key", "op_id", "t_cmp", "t_inv")
    if outcomes.totals["astray"] and sum(row.with_index for row in context.send_stats):
        # What waits lies there in another form.
        waits = F.coalesce(F.col("kind").isin("delay", "txn"), F.lit(col=False))
        told = ok.filter(F.col("raft_index").isNotNull() & ~waits).select(
            *fields, F.coalesce("raft_group", F.lit(0)).alias("group"),
            F.col("raft_index").alias("index"),
        )  # fmt: skip
        settled = entries.entries.filter("cid_min is not null").select(
            "group", "index", F.col("msg_key").alias("there"), F.col("topic_h").alias("is_message")
        )
        # A message without a key (compressed, or not ours) may be the one that was sent.
        differs = "there <> msg_key or (there is null and is_message is null)"
        other = told.join(settled, ["group", "index"]).filter(differs)
        found.append(other.select(*fields, "group", "index", "there"))
    if entries.disputed:
        lost = _disputed_messages(entries)
        other = ok.join(small(lost, entries.disputed), "msg_key")
        found.append(other.select(*fields, "group", "index", "there"))
    if not found:
        return None
    rows = found[0] if len(found) == 1 else found[0].unionByName(found[1])
    rows = rows.dropDuplicates(["msg_key"])
    explain = text(
        message_name(), " was acknowledged (op ", F.col("op_id"), ") at index ", F.col("index"),
        ", where replicas committed message ", F.col("there"),
    )  # fmt: skip
    anomalies = anomaly_rows(
        context, "A35", rows.withColumn("key", F.col("msg_key")), explain=explain,
        evidence=[pointer("sends", "op_id", "t_cmp"), pointer("replica_log", "index", None)],
        time="t_cmp",
    ).persist()  # fmt: skip
    return anomalies if anomalies.count() else None


def _disputed_messages(entries: LogEntries) -> DataFrame:
    disputed = entries.entries.filter("id_min <> id_max and committers <> 0").select(
        "group", "index", F.col("msg_key").alias("there")
    )
    rows = entries.rows.join(small(disputed, entries.disputed), ["group", "index"])
    held = rows.filter("not committed and msg_key is not null and not (msg_key <=> there)")
    committed = entries.entries.filter("committers <> 0 and msg_key is not null")
    return (
        held.select("msg_key", "group", "index", "there")
        .dropDuplicates(["msg_key"])
        .join(committed.select("msg_key"), "msg_key", "left_anti")
    )


def _holder(entries: LogEntries) -> Column:
    """Return ``NODE term T message K hash H (committed) FILE:POS`` of a row."""
    name = F.lit("?")
    for node in entries.nodes:
        name = F.when(F.col("node_no") == node.number, node.node).otherwise(name)
    state = F.when(F.col("committed"), " committed").otherwise(" not committed")
    damage = F.when(F.col("crc_ok"), "").otherwise(" bad CRC")
    return text(
        name, " term ", F.col("term"), " ", F.col("type"), " ", F.col("msg_key"), " content ",
        F.lower(F.hex("id")), state, damage, " ", F.col("file"), ":", F.col("pos"),
    )  # fmt: skip


def _excused(entries: LogEntries) -> Column:
    return F.col("node_no").isin([n.number for n in entries.nodes if n.disk_fault])
