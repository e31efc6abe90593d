"""A45 and the gaps of A48: was enough recorded to judge at all?

Empty tables, a hole in the dense ``events.idx``, or a phase in which no send succeeded make the
verdict unknown, never valid. Source: spec/proof.md A45, A48.
"""

from collections import defaultdict
from itertools import pairwise
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.message_outcomes import MessageOutcomes
from spark.result import UNKNOWN, CheckResult
from spark.runs import fold_steps

SENDS_PER_PHASE_MIN: Final = 10
EVENTS_PER_STRETCH: Final = 65_536
"""So many events are ordered at once; what is brought here is a row for each such stretch."""


def check_minimum_evidence(
    context: Context, outcomes: MessageOutcomes | None = None
) -> CheckResult:
    """Return A45; ``details['gap']`` says what is missing from the events, if anything is.

    ``outcomes``: the messages' fold, which knows most that would have to be looked for.
    """
    result = CheckResult(check="A45", summary="every phase and kind of send has a success")
    complaints = [
        f"the table {table} is missing or empty"
        for table in ("sends", "deliveries")
        if not context.history.rows(table)
    ]
    gap = find_gap(context)
    if gap:
        result.details["gap"] = gap
        complaints.append(gap)
    jump = find_jump(context, outcomes)
    if jump:
        complaints.append(jump)
    if shared := _count_shared(context, outcomes):
        complaints.append(f"{shared} keys are of messages of several topics")
    seen: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in context.send_stats:
        slot = seen[row.kind or "plain", row.phase or "all"]
        slot[0] += row.n
        slot[1] += row.n if row.outcome == "ok" else 0
    if seen and not any(ok for _, ok in seen.values()):
        complaints.append("no send was acknowledged")
    for (kind, phase), (invoked, ok) in sorted(seen.items()):
        if invoked >= SENDS_PER_PHASE_MIN and not ok:
            complaints.append(f"none of {invoked} {kind} sends in phase {phase} was acknowledged")
    if complaints:
        result.verdict, result.count = UNKNOWN, len(complaints)
        result.summary = "; ".join(complaints)
    return result


def find_gap(context: Context) -> str:
    """Return what is wrong with the numbering of ``events``, empty if it is dense or absent."""
    if "events" not in context.history.tables:
        return ""
    row = (
        context.table("events")
        .agg(F.count("idx").alias("n"), F.min("idx").alias("first"), F.max("idx").alias("last"))
        .first()
    )
    if row is None or not row.n:
        return ""  # A48: the table has no rows
    expected = row.last + 1
    if row.first != 0 or row.n != expected:
        return f"events has a gap: {row.n} rows, numbered {row.first} to {row.last}"
    return ""


def find_jump(context: Context, outcomes: MessageOutcomes | None = None) -> str:
    """Return how the one clock of the record went backwards; empty if it did not.

    Events are numbered in the order of their times, no operation ends before it begins, and no
    message is received before its first send begins.
    """
    numbered = context.table("events").filter("idx is not null")
    back = _count_falls(numbered, context.history.tolerance)
    ended = sum(row.ended for row in context.send_stats)
    early = _count_early(context) if outcomes is None or _may_be_early(context, outcomes) else 0
    found = [
        f"{number} {what}"
        for number, what in (
            (back, "events are earlier than the one before"),
            (ended, "sends end before they begin"),
            (early, "deliveries are earlier than their send"),
        )
        if number
    ]
    return f"the clock jumped: {', '.join(found)}" if found else ""


def _count_shared(context: Context, outcomes: MessageOutcomes | None) -> int:
    """Return how many keys were sent to several topics: what came of one hides what did not."""
    if outcomes is not None:
        return outcomes.totals["shared"]
    if len(context.topics) < 2:
        return 0
    keys = context.sends.groupBy("msg_key").agg(
        F.min("topic").alias("a"), F.max("topic").alias("b")
    )
    return int(keys.filter("a <> b").count())


def _may_be_early(context: Context, outcomes: MessageOutcomes) -> bool:
    """Whether a delivery may lie before its send: by the fold, or on a topic it leaves out."""
    elsewhere = any(
        row.own and not row.copied and row.topic not in context.topics and row.n > row.unkeyed
        for row in context.delivery_stats
    )
    return elsewhere or bool(outcomes.totals["early"])


def _count_early(context: Context) -> int:
    """Return how many deliveries are earlier than the first send of their message."""
    begun = context.sends.groupBy("msg_key").agg(F.min("t_inv").alias("begun"))
    got = context.deliveries.filter("own and msg_key is not null").select("msg_key", "t_recv")
    return int(got.join(begun, "msg_key").filter("t_recv < begun").count())


def _count_falls(numbered: DataFrame, tolerance: int) -> int:
    """Return how many events are earlier than the one before, by their numbers."""
    stretch = F.floor(F.col("idx") / EVENTS_PER_STRETCH)
    before = F.lag("t").over(Window.partitionBy("stretch").orderBy("idx"))
    place = F.struct("idx", "t", "joined")
    fell = (~F.col("joined") & (F.col("t") < before - tolerance)).cast("long")
    stretches = (
        fold_steps(numbered.select("idx", F.col("t_mono_ns").alias("t")), tolerance)
        .withColumn("stretch", stretch)
        .withColumn("fell", F.coalesce(fell, F.lit(0)) + F.col("falls"))
        .groupBy("stretch")
        .agg(F.sum("fell").alias("falls"), F.min(place).alias("low"), F.max(place).alias("high"))
        .collect()
    )
    stretches.sort(key=lambda row: int(row.stretch))
    between: int = sum(
        not b.low.joined and b.low.t < a.high.t - tolerance for a, b in pairwise(stretches)
    )
    within: int = sum(row.falls or 0 for row in stretches)
    return within + between
