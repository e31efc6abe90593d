"""A23: halves of transactions are asked about in time, not too soon, and not too often.

One anomaly for a half that was asked about more often than run.json's ``check_back`` says; before
it was old enough, or twice within half an interval, in quiet times (unless the question before was
late by as much: the next one need not be); or that nobody decided and nobody asked about although
it was quiet: the time counts from the end of the unrest. Source: spec/proof.md A23.
"""

from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.history.domains import ASKED_WITHIN_NS, CHECK_BACK, EARLY_NS
from spark.checks.transactions import decisions
from spark.context import Context
from spark.evidence import message_name, tell, text
from spark.facts import sends_of, unchecked, with_unrest
from spark.result import CheckResult

MARGIN: Final = 3_000_000_000
_MS: Final = 1_000_000


def check_questions(context: Context) -> CheckResult:
    """Return A23."""
    if not sends_of(context, "txn", ok=True):
        return unchecked("A23", "there were no transactions")
    told = context.history.run.get("check_back")
    numbers = told if isinstance(told, dict) else {}
    if not all(isinstance(numbers.get(name), int) for name in CHECK_BACK):
        return unchecked("A23", "run.json does not say when producers are asked (check_back)")
    said = decisions(context, "A23")
    if isinstance(said, CheckResult):
        return said
    slack = 2 * context.history.tolerance
    after, interval, most = (int(numbers[name]) for name in CHECK_BACK)
    decided = said.select("msg_key", F.expr("commits + rollbacks > 0").alias("decided"))
    asked = context.table("txn").filter("step = 'checkback'").groupBy("msg_key")
    asked = asked.agg(F.sort_array(F.collect_list("t_inv")).alias("times"))
    halves = context.sends.filter("kind = 'txn' and outcome = 'ok' and t_cmp is not null")
    rows = (
        with_unrest(context, halves.select("msg_key", "t_inv", "t_cmp"))
        .join(asked, "msg_key", "left")
        .join(decided, "msg_key", "left")
        .withColumn("times", F.expr("coalesce(times, cast(array() as array<bigint>))"))
        .withColumn("last", F.expr("if(size(times) > 0, element_at(times, -1), t_cmp)"))
    )
    patience = (after + 2 * interval) * _MS + ASKED_WITHIN_NS + slack
    old_enough = f"t_inv + {after * _MS - EARLY_NS - slack}L"
    rows = rows.withColumn("calm", F.expr(_calm(patience, slack)))
    rows = rows.withColumn("lost", F.expr(_unrest_since(old_enough)))
    first = f"times[0] < {old_enough}"
    earlier = f"if(i > 1, times[i - 2], t_inv + {(after - interval) * _MS}L)"
    near = (
        f"times[i] - times[i - 1] < {interval * _MS // 2 - slack}L"
        f" and times[i] - {earlier} < {interval * _MS * 7 // 4 - slack}L"
    )
    # Questions amid unrest may be lost, one in each interval of each, whole or not, and count.
    left = f"({most} - size(times) - size(lost)) * {interval * _MS}L"
    asked_at_most = f"aggregate(lost, 0L, (sum, one) -> sum + one) < {left}"
    missed = (
        f"not coalesce(decided, false) and {asked_at_most}"
        f" and calm + {patience}L <= {_end(context)}L"
    )
    wrong = (
        f"size(times) > {most}"
        f" or (size(times) > 0 and {first} and {_quiet('t_inv', 'times[0]', slack)})"
        f" or (size(times) > 1 and exists(sequence(1, size(times) - 1), i -> {near}"
        f" and {_quiet('times[i - 1]', 'times[i]', slack)}))"
        f" or ({missed})"
    )
    rows = rows.filter(wrong).withColumn("key", F.col("msg_key"))
    explain = text("the half ", message_name(), " was asked about ", F.size("times"), " times")
    result = CheckResult(check="A23", summary="halves are asked about by the rules")
    return tell(context, result, rows, explain)


def _quiet(start: str, end: str, slack: int) -> str:
    """Return whether no broker was at fault between two times, nor soon before."""
    near = f"u.begun <= {end} + {slack}L and {start} <= u.over + {MARGIN + slack}L"
    return f"not exists(unrest, u -> {near})"


def _calm(patience: int, slack: int) -> str:
    """Return since when there was no unrest for so long: the end of the last, if there was any."""
    over = f"u.over + {MARGIN + slack}L"
    meets = f"u.begun <= seen + {patience + slack}L and seen <= {over}"
    return f"aggregate(array_sort(unrest), last, (seen, u) -> if({meets}, {over}, seen))"


def _unrest_since(due: str) -> str:
    """Return how long unrest was since questions were due, each, until it was calm."""
    lengths = f"transform(unrest, u -> least(u.over, calm) - greatest(u.begun, {due}))"
    return f"filter({lengths}, length -> length > 0)"


def _end(context: Context) -> int:
    """Return the last time at which anybody sent or said anything."""
    sends = context.sends.select(F.coalesce("t_cmp", "t_inv").alias("t"))
    last = sends.union(context.table("txn").select("t_inv")).agg(F.max("t").alias("t")).first()
    return 0 if last is None or last.t is None else int(last.t)
