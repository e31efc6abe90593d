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
from spark.result import UNKNOWN, CheckResult

SENDS_PER_PHASE_MIN: Final = 10
EVENTS_PER_STRETCH: Final = 65_536
"""So many events are ordered at once; what is brought here is a row for each such stretch."""


def check_minimum_evidence(context: Context) -> CheckResult:
    """Return A45; ``details['gap']`` says what is missing from the events, if anything is."""
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
    jump = find_jump(context)
    if jump:
        complaints.append(jump)
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
        return "the table events is empty"
    expected = row.last + 1
    if row.first != 0 or row.n != expected:
        return f"events has a gap: {row.n} rows, numbered {row.first} to {row.last}"
    return ""


def find_jump(context: Context) -> str:
    """Return how the one clock of the record went backwards; empty if it did not.

    Events are numbered in the order of their times, no operation ends before it begins, and no
    message is received before its first send begins.
    """
    numbered = context.table("events").filter("idx is not null")
    back = _count_falls(numbered, context.history.tolerance)
    ended = context.sends.filter("t_cmp < t_inv").count()
    begun = context.sends.groupBy("msg_key").agg(F.min("t_inv").alias("begun"))
    got = context.deliveries.filter("own and msg_key is not null").select("msg_key", "t_recv")
    early = got.join(begun, "msg_key").filter("t_recv < begun").count()
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


def _count_falls(numbered: DataFrame, tolerance: int) -> int:
    """Return how many events are earlier than the one before, by their numbers."""
    stretch = F.floor(F.col("idx") / EVENTS_PER_STRETCH)
    before = F.lag("t_mono_ns").over(Window.partitionBy("stretch").orderBy("idx"))
    place = F.struct("idx", "t_mono_ns")
    stretches = (
        numbered.select("idx", "t_mono_ns", stretch.alias("stretch"))
        .withColumn("falls", (F.col("t_mono_ns") < before - tolerance).cast("int"))
        .groupBy("stretch")
        .agg(F.sum("falls").alias("falls"), F.min(place).alias("low"), F.max(place).alias("high"))
        .collect()
    )
    stretches.sort(key=lambda row: int(row.stretch))
    between: int = sum(
        b.low.t_mono_ns < a.high.t_mono_ns - tolerance for a, b in pairwise(stretches)
    )
    within: int = sum(row.falls or 0 for row in stretches)
    return within + between
