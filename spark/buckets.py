"""In which stretches of offsets a place lies, found by equality and not by comparing all with all.

A stretch is named by the buckets that it touches, of the smallest size of which it touches few; a
place by its bucket of each size in use. So a stretch costs a bounded number of rows, however long
it is: offsets of other systems may lie 2^60 apart.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

FEW: Final = 64
"""So many buckets of one size, and one more, name a stretch."""
SIZES_BITS: Final = range(5, 63, 6)
"""Sizes of buckets: 32 offsets and more, each 64 times the one before."""
BUCKET: Final = ("bits", "bucket")
"""The columns by which places and stretches meet."""


def touch(stretches: DataFrame, low: Column, high: Column) -> DataFrame:
    """Return ``stretches`` a row for each bucket that ``low`` to ``high``, included, touches."""
    bits = F.lit(SIZES_BITS[-1])
    for size in reversed(SIZES_BITS[:-1]):
        fits = F.shiftright(high, size) - F.shiftright(low, size) <= FEW
        bits = F.when(fits, size).otherwise(bits)
    ends = stretches.withColumns({"bits": bits, "_low": low, "_high": high})
    buckets = F.expr("explode(sequence(shiftright(_low, bits), shiftright(_high, bits)))")
    return ends.withColumn("bucket", buckets).drop("_low", "_high")


def lie(places: DataFrame, at: Column, touched: DataFrame) -> DataFrame:
    """Return ``places`` with their buckets, a row for each size that ``touched`` has."""
    sizes = sorted(row.bits for row in touched.select("bits").distinct().collect())
    in_use = F.array(*[F.lit(size) for size in sizes]).cast("array<int>")
    rows = places.withColumn("_at", at).withColumn("bits", F.explode(in_use))
    return rows.withColumn("bucket", F.expr("shiftright(_at, bits)")).drop("_at")
