"""Small facts of a history that say which checks have anything to judge, and what they lack.

Counted in the passes that are made anyway, so that a history without delayed messages, dead letters
or transactions pays nothing for their checks. Source: spec/proof.md 3.0.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import ends_process
from spark.context import Context, Fault
from spark.history import few_rows
from spark.result import NOT_CHECKED, UNKNOWN, CheckResult

BROADCAST_ROWS_MAX: Final = 100_000
NO_BOUND: Final = 1 << 62
"""In the place of the end of what has none."""


def small(rows: DataFrame, number: int) -> DataFrame:
    """Return rows that are brought to every worker, if they are few: anomalies may be many."""
    return F.broadcast(rows) if number <= BROADCAST_ROWS_MAX else rows


def unknown(check: str, why: str) -> CheckResult:
    """Return the result of a check that cannot be decided."""
    return CheckResult(check=check, verdict=UNKNOWN, summary=why)


def unchecked(check: str, why: str) -> CheckResult:
    """Return the result of a check that the history has nothing for."""
    return CheckResult(check=check, verdict=NOT_CHECKED, summary=why)


def lacking(table: str, rows: Iterable[Any], columns: Sequence[str]) -> str:
    """Return the columns that some counted rows leave empty; ``rows`` have ``no_COLUMN``."""
    counted = list(rows)
    return ", ".join(
        f"{table}.{name}" for name in columns if any(row[f"no_{name}"] for row in counted)
    )


def sends_of(context: Context, kind: str, *, ok: bool = False) -> list[Any]:
    """Return what was counted of sends of a kind, of the acknowledged ones only if ``ok``."""
    return [
        row for row in context.send_stats if row.kind == kind and (row.outcome == "ok" or not ok)
    ]


def acks_of(context: Context, kind: str, outcome: str = "") -> list[Any]:
    """Return what was counted of acks of a kind, and of one outcome if it is named."""
    return [
        row
        for row in context.ack_stats
        if row.kind == kind and (not outcome or row.outcome == outcome)
    ]


def without_outcome(context: Context, kind: str) -> str:
    """Return what is missing where some statements of a kind do not say how they ended."""
    return "acks.outcome" if any(row.outcome is None for row in acks_of(context, kind)) else ""


def unnamed_refusals(context: Context, groups: Iterable[str] | None = None) -> str:
    """Return what is not known of refusals, of some groups or all, in words: of which messages."""
    known = None if groups is None else set(groups)
    nacks = [row for row in acks_of(context, "nack") if known is None or row.grp in known]
    missing = lacking("acks", nacks, ("msg_key",))
    return f"needs {missing} of what was refused" if missing else ""


def resets(acks: DataFrame) -> DataFrame:
    """Return where an offset was, or may have been, set anew; one that failed did nothing."""
    return acks.filter("kind = 'reset' and not (outcome <=> 'fail')")


def modes_of(context: Context) -> dict[str, str]:
    """Return how groups consume, as far as run.json says."""
    told = context.history.run.get("modes")
    return {str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {}


def reconsume_max_of(context: Context) -> dict[str, int]:
    """Return how often groups get a message again, as far as run.json says."""
    told = context.history.run.get("reconsume_max")
    if not isinstance(told, dict):
        return {}
    return {str(k): v for k, v in told.items() if isinstance(v, int)}


def came_at() -> Column:
    """Return when a delivery was one that may follow a refusal: not while it is refused itself."""
    return F.greatest("t_recv", F.coalesce("t_proc_begin", "t_proc_end", "t_recv"))


def read_out(context: Context) -> list[str]:
    """Return the groups that read all their queues to the end, if all auditors did so, too."""
    undrained = {row.grp for row in context.drain_stats if row.undrained}
    if undrained & {row.grp for row in context.delivery_stats if row.audited}:
        return []
    return sorted({row.grp for row in context.drain_stats} - undrained)


def to_groups() -> Column:
    """Return whether a delivery was one of this run to a consumer group."""
    plain = ~F.coalesce("auditor", F.lit(col=False)) & ~F.coalesce("is_dlq", F.lit(col=False))
    return F.col("own") & plain


def of_run(context: Context) -> Column:
    """Return whether a delivery is of a topic that was sent to, or a copy from another queue."""
    return on_topics(context) | F.col("copied")


def counted_of_run(context: Context) -> list[Any]:
    """Return what was counted of this run's own deliveries."""
    return [
        row
        for row in context.delivery_stats
        if row.own and (row.copied or row.topic in context.topics)
    ]


def on_topics(context: Context) -> Column:
    """Return whether a row is of a topic that was sent to."""
    return F.col("topic").isin(list(context.topics))


def made_anew(context: Context) -> list[str]:
    """Return the topics that were deleted and made anew: offsets of their queues began again."""
    return sorted(one.name for one in context.topics.values() if one.epoch_min != one.epoch_max)


def unrest(context: Context, settle: int = 0, *, until_gone: bool = False) -> list[tuple[int, int]]:
    """Return when brokers were at fault, or the lead changed, each with the time to settle.

    What overlaps is one stretch. ``until_gone``: a fault that ends a broker lasts until that is
    gone; only the change of the lead that may follow counts besides.
    """
    spans = [
        (fault.start, _end_of(fault, until_gone=until_gone))
        for fault in context.unsettling
        if not any(target.startswith("consumer") for target in fault.targets)
    ]
    for before, after in pairwise(context.leaderships):
        if before.group == after.group:
            spans.append((min(before.last_seen, after.first_seen), after.first_seen))
    merged: list[tuple[int, int]] = []
    for begun, end in sorted(spans):
        over = end if end == NO_BOUND else end + settle
        if merged and begun <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], over))
        else:
            merged.append((begun, over))
    return merged


def _end_of(fault: Fault, *, until_gone: bool) -> int:
    is_gone = until_gone and fault.on is not None and ends_process(fault.kind)
    end = fault.on if is_gone else fault.end
    return NO_BOUND if end is None else end


def with_unrest(context: Context, rows: DataFrame) -> DataFrame:
    """Return rows with a column ``unrest``, the same in all: an array of ``begun``, ``over``."""
    spans = unrest(context)
    if not spans:
        shape = "array<struct<begun:bigint,over:bigint>>"
        return rows.withColumn("unrest", F.array().cast(shape))
    table = few_rows(context.session, spans, "begun long, over long")
    table = table.agg(F.collect_list(F.struct("begun", "over")).alias("unrest"))
    return rows.crossJoin(F.broadcast(table))
