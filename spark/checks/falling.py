"""A34: terms rise along each log.

A leader appends behind whatever it has, in a term that is no earlier. Where a disk was wiped terms
may begin once more; a plain log has none. Source: spec/proof.md A34; Raft paper 5.3.
"""

from collections import defaultdict
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import forgets
from spark.context import Context
from spark.evidence import anomaly_rows, pointer, text
from spark.history import few_rows
from spark.log_entries import LogEntries

NEVER: Final = 1 << 62


def falling_terms(context: Context, entries: LogEntries) -> DataFrame | None:
    """Return the terms of which a log has an entry behind one of a later term; None if none."""
    if any(forgets(fault.kind) for fault in context.taking):
        return None
    sound = entries.contents.filter("crc_ok and index >= 0")
    if not _falls(entries, sound):
        return None
    # Of what logs agree on: where they differ that is said already.
    ends = (end(name).alias(f"{name}_{end.__name__}") for name in ("term", "id")
            for end in (F.min, F.max))  # fmt: skip
    differing = sound.groupBy("group", "index").agg(*ends)
    differing = differing.filter("term_min <> term_max or id_min <> id_max")
    found = _falls(entries, sound.join(differing, ["group", "index"], "left_anti"))
    if not found:
        return None
    rows = [(group, term, index) for (group, term), index in sorted(found.items())]
    keyed = few_rows(context.session, rows, "group int, term long, index long")
    keyed = keyed.withColumn("key", text(F.col("group"), ":", F.col("index")))
    words = text(
        "index ", F.col("index"), " term ", F.col("term"),
        ": it lies behind an entry of a later term",
    )  # fmt: skip
    keyed = keyed.withColumn("pos", F.lit(None).cast("long"))
    return anomaly_rows(
        context, "A34", keyed, explain=words, evidence=[pointer("replica_log", "index", "pos")]
    )


def _falls(entries: LogEntries, rows: DataFrame) -> dict[tuple[int, int], int]:
    """Return of groups and terms the last index, where that lies behind one of a later term."""
    # A row for each term, and each set of nodes that share it.
    spans = rows.groupBy("group", "holders", "term")
    told = spans.agg(F.min("index").alias("low"), F.max("index").alias("high")).collect()
    found: dict[tuple[int, int], int] = {}
    for node in entries.nodes:
        terms: dict[int, tuple[int, int]] = defaultdict(lambda: (NEVER, -1))
        for row in told:
            if row.holders >> node.number & 1 and row.group == node.group:
                low, high = terms[row.term]
                terms[row.term] = (min(low, row.low), max(high, row.high))
        later = NEVER
        for term in () if node.is_plain or node.disk_fault else sorted(terms, reverse=True):
            low, high = terms[term]
            if high > later:
                at = (node.group, term)
                found[at] = max(high, found.get(at, high))
            later = min(low, later)
    return found
