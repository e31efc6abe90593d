"""Which of a few stretches of time a moment lies in, without comparing each row with each stretch.

A slot of the run's time has the stretches that begin in it and the one before; a moment is looked
for among those of its slot alone. Knows no tables. Source: spec/proof.md 3.0.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from spark.context import Context
from spark.facts import NO_BOUND
from spark.history import few_rows
from spark.timeline import SLOTS, Timeline

Span = tuple[int, int]
"""Begin and end; stretches do not overlap."""
_SPAN: Final = "array<struct<begun:bigint,over:bigint,number:int>>"


def fault_spans(context: Context, settle: int) -> list[Span]:
    """Return when faults were in force, each with the time to settle; overlapping ones are one."""
    merged: list[Span] = []
    for fault in sorted(context.faults, key=lambda fault: fault.start):
        over = NO_BOUND if fault.end is None else fault.end + settle
        if merged and fault.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], over))
        else:
            merged.append((fault.start, over))
    return merged


def with_last_begun(
    context: Context, rows: DataFrame, moment: Column, spans: Sequence[Span]
) -> DataFrame:
    """Return rows with ``span``, the last stretch that began by then; null if none had.

    It has ``begun``, ``over`` and ``number``, its place in ``spans``.
    """
    if not spans:
        return rows.withColumn("span", F.lit(None).cast(_SPAN[6:-1]))
    slots = context.timeline
    found = list(_by_slot(slots, sorted(spans)))
    table = few_rows(context.session, found, "slot int, begun long, over long, number int")
    shape = F.struct("begun", "over", "number")
    table = table.groupBy("slot").agg(F.sort_array(F.collect_list(shape)).alias("spans"))
    rows = rows.withColumn("moment", moment).withColumn("slot", slots.slot(F.col("moment")))
    rows = rows.join(F.broadcast(table), "slot", "left")
    begun = F.filter("spans", lambda one: one["begun"] <= F.col("moment"))
    last = F.try_element_at(begun, F.lit(-1))
    return rows.withColumn("span", last).drop("slot", "spans", "moment")


def _by_slot(slots: Timeline, spans: Sequence[Span]) -> list[tuple[int, int, int, int]]:
    """Return slot, begin, end and number: of each slot those that begin in it, and the one before.

    At most two rows a slot, and one a stretch.
    """
    begins = [max(0, min(SLOTS - 1, (begin - slots.start) // slots.width)) for begin, _ in spans]
    rows = []
    before = None
    for slot in range(SLOTS):
        here = [number for number, begin in enumerate(begins) if begin == slot]
        rows += [(slot, *spans[n], n) for n in ([] if before is None else [before]) + here]
        before = here[-1] if here else before
    return rows
