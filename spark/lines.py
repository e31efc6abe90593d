"""What lies before a row along a line, without one sort that has all of the line.

A queue may hold every message of a run, and one message may come a million times: a window over
such a line is one task, whatever the cluster. Here a line is cut into stretches; each is folded by
itself, what the stretches before it amount to is carried into it as a single value, and a window
orders the rows of one stretch only. Knows no tables and no checks.

Source: spec/proof.md 3.0 (prefix maximum).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.window import Window

OFFSET_BITS: Final = 15
"""A stretch of a queue has so many bits of an offset: as many rows, where each is there once."""
TIME_BITS: Final = 30
"""A stretch of time has so many bits of nanoseconds: about a second."""
Fold = Callable[[Column], Column]
_FOLD: Final[dict[str, Fold]] = {"max": F.max, "min": F.min, "sum": F.sum}
_BEFORE: Final = (Window.unboundedPreceding, -1)
_HELPERS: Final = ("line_", "stretch_", "order_", "value_", "own_", "edge_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Rows that have the same ``keys`` lie on one line, by ``at``, a number, and by ``then``.

    ``bits``: so many of the low bits of ``at`` are looked at together. ``back``: from the highest
    to the lowest.
    """

    keys: Sequence[str]
    at: Column
    bits: int
    then: Sequence[Column] = ()
    back: bool = False


def by_offset(keys: Sequence[str], *, back: bool = False) -> Line:
    """Return the line of rows that have a ``queue_offset``, in a queue that ``keys`` name."""
    return Line(keys=keys, at=F.col("queue_offset"), bits=OFFSET_BITS, back=back)


def by_time(keys: Sequence[str], at: str, *then: Column) -> Line:
    """Return the line of rows that have a time ``at``; at one time they are ordered by ``then``."""
    return Line(keys=keys, at=F.col(at), bits=TIME_BITS, then=then)


def before(
    rows: DataFrame, line: Line, name: str, fold: str, value: Column, *, ties: bool = False
) -> DataFrame:
    """Return rows with a column ``name``: ``value`` folded over the rows before each on its line.

    ``fold``: ``max``, ``min`` or ``sum``; null, or 0 of a sum, where nothing lies before. ``ties``:
    all rows at the same place count, the row itself included; else only what lies before by ``at``
    and ``then``, which then should order all rows.
    """
    cut = _cut(rows, line, value)
    earlier = Window.partitionBy("line_").orderBy("stretch_").rowsBetween(*_BEFORE)
    edges = (
        cut.groupBy("line_", "stretch_")
        .agg(_FOLD[fold]("value_").alias("edge_"))
        .select("line_", "stretch_", _FOLD[fold]("edge_").over(earlier).alias("edge_"))
    )
    inside = Window.partitionBy("line_", "stretch_").orderBy("order_", *line.then)
    frame = (
        inside.rangeBetween(Window.unboundedPreceding, Window.currentRow)
        if ties
        else inside.rowsBetween(*_BEFORE)
    )
    own = cut.withColumn("own_", _FOLD[fold]("value_").over(frame))
    found = own.join(edges, ["line_", "stretch_"], "left")
    return found.withColumn(name, _merge(fold)).drop(*_HELPERS)


def whole(rows: DataFrame, line: Line, name: str, value: Column) -> DataFrame:
    """Return rows with a column ``name``: the maximum of ``value`` on the whole line of each."""
    cut = _cut(rows, line, value)
    edges = (
        cut.groupBy("line_", "stretch_")
        .agg(F.max("value_").alias("edge_"))
        .withColumn("edge_", F.max("edge_").over(Window.partitionBy("line_")))
    )
    found = cut.join(edges, ["line_", "stretch_"], "left")
    return found.withColumn(name, F.col("edge_")).drop(*_HELPERS)


def _cut(rows: DataFrame, line: Line, value: Column) -> DataFrame:
    at = -line.at if line.back else line.at
    return rows.withColumns(
        {
            # One long in the place of names: nulls are a line of their own, too.
            "line_": F.xxhash64(*line.keys),
            "stretch_": F.shiftright(at.cast("long"), line.bits),
            "order_": at,
            "value_": value,
        }
    )


def _merge(fold: str) -> Column:
    """Return what was carried into a stretch, with what lies before the row in it."""
    carried, own = F.col("edge_"), F.col("own_")
    if fold == "sum":
        return F.coalesce(carried, F.lit(0)) + F.coalesce(own, F.lit(0))
    return F.greatest(carried, own) if fold == "max" else F.least(carried, own)
