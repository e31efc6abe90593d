"""A62 over DataFrames: did a process log what it should not?

What each kind of line means, and which faults explain it, is in `chaos.history.domains` and in the
catalogue of faults; how it is judged is written here anew. Source: spec/proof.md A62.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import explains
from chaos.history.domains import (
    HARMLESS,
    LOG_KINDS,
    LOGGED_EARLY_NS,
    LOGGED_LATE_NS,
    PASSING,
    SHARED,
)
from spark.context import Context
from spark.evidence import tell, text
from spark.facts import NO_BOUND, unchecked
from spark.history import array_of
from spark.result import CheckResult

NOTHING: Final = "no logs of processes were recorded"
_SPAN: Final = "kind string, node string, begun long, over long"
"""Without a node: of any."""


def check_process_logs(context: Context) -> CheckResult:
    """Return A62."""
    if "node_log" not in context.history.tables:
        return unchecked("A62", NOTHING)
    result = CheckResult(check="A62", summary="no process logged what it should not")
    if not context.history.rows("node_log"):
        return result
    rows = context.table("node_log").filter(F.col("kind") != HARMLESS).filter(~_explained(context))
    name = F.coalesce("exception", "event", "kind")
    explain = text(
        F.col("node"), " logged (", F.col("kind"), ", ", F.col("count"), " times): ", F.col("line")
    )
    return tell(context, result, rows.withColumn("key", text(F.col("node"), " ", name)), explain)


def _explained(context: Context) -> Column:
    """Return whether a fault on the node brings about what a line says."""
    spans = [
        (
            kind,
            node,
            fault.start - LOGGED_EARLY_NS,
            NO_BOUND if fault.end is None or kind != PASSING else fault.end + LOGGED_LATE_NS,
        )
        for fault in context.faults
        for kind in LOG_KINDS
        if explains(fault.kind, kind)
        for node in ((None,) if kind == SHARED else fault.targets or (None,))
    ]
    if not spans:
        return F.lit(col=False)
    first, last = F.col("t"), F.coalesce("t_last", "t")
    known = array_of(spans, _SPAN)
    return F.exists(known, lambda span: _explains(span, first)) & F.exists(
        known, lambda span: _explains(span, last)
    )


def _explains(span: Column, t: Column) -> Column:
    """Return whether a fault on the node brings about a line of that time."""
    return (
        (span["kind"] == F.col("kind"))
        & (span["node"].isNull() | (span["node"] == F.col("node")))
        & (t.isNull() | ((t >= span["begun"]) & (t <= span["over"])))
    )
