"""A35 (iv): acknowledged messages that somebody read and that are on too few of the logs now.

Where a majority holds whatever anybody can read, so are those of which nobody knows the outcome.
What nobody read is for A1 to name. Nothing is said where a log has lost its beginning to retention,
or where the logs hold no keys of ours; a message whose key cannot be read from the log (it is
compressed) is looked for at the place where it was acknowledged. Source: spec/proof.md A35.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.contracts import QUORUM
from spark.context import Context
from spark.evidence import anomaly_rows, message_name, pointer, text
from spark.facts import made_anew, small
from spark.log_entries import LogEntries
from spark.message_outcomes import MessageOutcomes

_PLACE = ("topic", "queue_id", "queue_offset")


def find_under_replicated(
    context: Context, entries: LogEntries, outcomes: MessageOutcomes, told: DataFrame | None
) -> DataFrame | None:
    """Return the anomalies, None if there are none; ``told``: anomalies with keys already named."""
    names = [name for name in ("under_replicated", "dirty") if outcomes.totals.get(name)]
    names = names if _is_by_majority(context) else [name for name in names if name != "dirty"]
    if not names:
        return None
    suspects = outcomes.suspects.filter(" or ".join(names)).select("msg_key", "dirty")
    keys = small(suspects, sum(outcomes.totals[name] for name in names))
    sends = context.sends.join(keys, "msg_key")
    told_of = sends.filter("outcome = 'ok' and not dirty").dropDuplicates(["msg_key"])
    sends = told_of.unionByName(_found(context, sends.filter("dirty")))
    keys = keys.select("msg_key")
    bit = F.bit_or(F.expr("shiftleft(1L, node_no)"))
    cut = F.max(entries.is_trimmed("group", "index")).alias("is_cut")
    by_key = entries.rows.join(keys, "msg_key", "left_semi").groupBy("msg_key")
    nameless = entries.rows.filter("type = 'message' and msg_key is null").groupBy(*_PLACE)
    held = F.coalesce("by_key", F.lit(0)).bitwiseOR(F.coalesce("by_place", F.lit(0)))
    rows = (
        sends.join(by_key.agg(bit.alias("by_key")), "msg_key", "left")
        .join(nameless.agg(bit.alias("by_place"), cut), list(_PLACE), "left")
        .filter("not coalesce(is_cut, false)")
        .withColumn("held", held)
        .filter(~entries.are_enough(F.col("held")))
        .withColumn("key", F.col("msg_key").cast("string"))
    )
    if told is not None:
        rows = rows.join(told.select("key"), "key", "left_anti")
    names = F.array_compact(
        F.array(
            *(
                F.when(F.col("held").bitwiseAND(F.lit(1 << n.number)) != 0, F.lit(n.node))
                for n in entries.nodes
            )
        )
    )
    where = F.when(F.size(names) > 0, F.concat_ws(", ", names)).otherwise("no replica")
    how = F.when(F.col("dirty"), " may have been stored").otherwise(" was acknowledged")
    explain = text(
        message_name(), how, " (op ", F.col("op_id"), ") and was delivered, but lies on ",
        where, f": fewer than {entries.promised_words}",
    )  # fmt: skip
    found = anomaly_rows(
        context, "A35", rows, explain=explain,
        evidence=[pointer("sends", "op_id", "t_cmp")], time="t_cmp",
    ).persist()  # fmt: skip
    return found if found.count() else None


def _is_by_majority(context: Context) -> bool:
    """Tell whether a majority holds whatever anybody can read."""
    contract = context.history.run.get("contract")
    return isinstance(contract, dict) and contract.get("durability") == QUORUM


def _found(context: Context, sends: DataFrame) -> DataFrame:
    """Return of each message a send with the place where it was found first, if it was."""
    rows = context.deliveries.filter("not copied and queue_offset is not null")
    rows = rows.join(sends.select("msg_key", "topic").distinct(), ["msg_key", "topic"])
    seen = F.min(F.struct("t_recv", "queue_id", "queue_offset")).alias("seen")
    places = rows.groupBy("msg_key", "topic").agg(seen)
    found = sends.filter(~F.col("topic").isin(made_anew(context))).dropDuplicates(["msg_key"])
    found = found.join(places, ["msg_key", "topic"])
    for name in ("queue_id", "queue_offset"):
        found = found.withColumn(name, F.col(f"seen.{name}"))
    return found.drop("seen").select(sends.columns)
