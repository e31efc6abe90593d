"""One row per message key: what became of a message, from sends, deliveries and committed logs.

One shuffle answers A1, A5, A6, A7, A8 and A9: rows of the three tables are laid over each other
and folded by ``msg_key`` with fixed-width aggregates only (Spark then hashes instead of sorting);
consumer groups are bits of a long. Only suspects are kept; totals are observed on the way. Where
all observers of each message saw it at one place, with one body and at one index, A15, A35 and A45
need no shuffle of their own: the totals say so.
Source: spec/proof.md 3.1-3.3.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.history.outcome import CODES
from spark.context import AUDITOR, GROUPS_PER_MASK, Context, case_of
from spark.log_entries import LogEntries


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOutcomes:
    """``suspects``: messages with at least one flag (a column each: lost, phantom, ...)."""

    suspects: DataFrame
    totals: dict[str, int]
    """Beside the counts of sends and deliveries: messages that were ``unlike`` for two observers
    of places, ``unlogged`` though they were seen at a place, ``astray`` from the index that was
    told, ``early``, delivered before their send, and ``shared``, sent to several topics."""


FLAGS = (
    "lost", "phantom", "corrupt", "aborted", "duplicate", "redelivered", "under_replicated",
    "dirty",
)  # fmt: skip


_AGREEMENT = {
    "unlike": "sight_min <> sight_max",
    "unlogged": "n_log = 0 and sight_min is not null",
    "astray": "step_min <> step_max or (n_log = 0 and step_min is not null)",
    "early": "got < begun",
    "shared": "home_min <> home_max",
}
_COUNTED = ("n_send", "n_ok", "n_fail", "n_any", "n_del", "n_log", "n_apart", "attempts")


def load_outcomes(context: Context, entries: LogEntries | None) -> MessageOutcomes:
    """Fold the tables and return the suspects and the totals."""
    parts = [_send_rows(context), _delivery_rows(context)]
    if entries is None:
        parts[0] = parts[0].withColumns(
            {"n_log": F.lit(0), "n_apart": F.lit(0), "held": F.lit(0).cast("long")}
        )
    else:
        parts.append(_log_rows(context, entries.entries))
        if not entries.whole:
            parts += _trimmed_rows(context, entries)
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part, allowMissingColumns=True)
    outcomes = _flag(context, _fold(context, rows), _are_too_few(entries))
    observation = Observation("outcomes")
    is_open = (F.col("n_send") > F.col("n_fail")) & (F.col("n_ok") == 0)
    took_effect = F.col("n_any") + F.col("n_log") > 0
    observed = outcomes.observe(
        observation,
        F.sum("n_send").alias("sent"),
        F.sum(F.col("is_ok").cast("int")).alias("acknowledged"),
        F.sum((F.col("n_send") - F.col("n_ok") - F.col("n_fail")).cast("long")).alias("unknown"),
        F.sum("n_fail").alias("failed"),
        F.sum(F.col("groups_seen").cast("long")).alias("delivered"),
        F.sum("extra").alias("extra"),
        F.sum((is_open & took_effect).cast("long")).alias("recovered"),
        F.sum((is_open & ~took_effect).cast("long")).alias("vanished"),
        *(F.count(F.when(F.expr(what), 1)).alias(name) for name, what in _AGREEMENT.items()),
        *(F.sum(F.col(flag).cast("int")).alias(flag) for flag in FLAGS),
    )
    # A checkpoint, not a cache: only an action of its own hands the observed totals over.
    suspects = observed.filter(" or ".join(FLAGS)).localCheckpoint(eager=True)
    totals = {name: int(n or 0) for name, n in observation.get.items()}
    # Deliveries beyond the first, not the messages that had some.
    totals["redelivered"] = totals.pop("extra")
    return MessageOutcomes(suspects=suspects, totals=totals)


def _are_too_few(entries: LogEntries | None) -> Column:
    """Return whether a message lies on fewer logs than promised; no, where logs cannot tell."""
    if entries is None:
        return F.lit(col=False)
    if not entries.entries.filter("msg_key is not null").head(1):
        return F.lit(col=False)
    too_few = ~entries.are_enough(F.col("held"))
    # Where logs have lost their beginnings, only of what one holds, or at an index that was told.
    return too_few if entries.whole else too_few & F.expr("not coalesce(is_cut, true)")


def place(topic: Column, queue_id: Column, queue_offset: Column) -> Column:
    """Return a 64-bit hash of a place in a queue, null if queue or offset is not known."""
    is_known = queue_id.isNotNull() & queue_offset.isNotNull()
    return F.when(is_known, F.xxhash64(F.xxhash64(topic), queue_id, queue_offset))


def _send_rows(context: Context) -> DataFrame:
    ok = F.col("outcome") == "ok"
    return context.sends.select(
        "msg_key",
        F.lit(1).alias("n_send"),
        F.coalesce(ok.cast("int"), F.lit(0)).alias("n_ok"),
        F.coalesce(refused().cast("int"), F.lit(0)).alias("n_fail"),
        attempts().alias("attempts"),
        F.col("body_hash").alias("s_hash"),
        # A transaction's message is owed if it was committed: A55 asks.
        F.when(
            ok & ~F.coalesce(F.col("kind") == "txn", F.lit(col=False)), context.class_number()
        ).alias("owed"),
        F.when(ok, F.coalesce("epoch", F.lit(0))).alias("ok_epoch"),
        F.when(ok, _sight(place(F.col("topic"), F.col("queue_id"), F.col("queue_offset")))).alias(
            "sight"
        ),
        F.when(
            ok & F.col("raft_index").isNotNull(),
            F.xxhash64(F.coalesce("raft_group", F.lit(0)), "raft_index"),
        ).alias("step"),
        F.col("t_inv").alias("begun"),
        F.xxhash64("topic").alias("home"),
    )


def attempts() -> Column:
    """Return how many attempts of a send may have stored its message: none that was refused."""
    said = F.greatest(F.coalesce("attempts", F.lit(1)), F.lit(1))
    return F.when(F.coalesce(refused(), F.lit(col=False)), 0).otherwise(said)


def _sight(at: Column) -> Column:
    """Return a 64-bit hash of what an observer saw: a place, and the body there."""
    return F.when(at.isNotNull(), F.xxhash64(at, "body_hash"))


def refused() -> Column:
    """Return whether it was said that a send did nothing.

    Where its attempts are on record that is the client's own word; elsewhere whoever wrote the
    history read a code, and today's table must agree.
    """
    doubtful = [code for code, row in CODES.items() if not row.definite]
    listed = F.coalesce(F.col("err_code").isin(doubtful), F.lit(col=False))
    return (F.col("outcome") == "fail") & (F.col("tries").isNotNull() | ~listed)


def _delivery_rows(context: Context) -> DataFrame:
    plain = ~F.coalesce("auditor", F.lit(col=False)) & ~F.coalesce("is_dlq", F.lit(col=False))
    checked = context.deliveries.filter(
        F.col("own") & F.col("msg_key").isNotNull() & F.col("topic").isin(list(context.topics))
        | F.col("own") & F.col("msg_key").isNotNull() & F.col("copied")
    )
    numbers = range(context.mask_count)
    masks = [context.group_mask(i).alias(f"seen_{i}") for i in numbers]
    # A dead letter is no delivery of the message itself.
    masks += [F.when(plain, context.group_mask(i)).alias(f"given_{i}") for i in numbers]
    where = F.when(
        ~F.col("copied"), place(F.col("topic"), F.col("queue_id"), F.col("queue_offset"))
    )
    return checked.select(
        "msg_key",
        F.lit(1).alias("n_any"),
        plain.cast("int").alias("n_del"),
        F.col("body_hash").alias("d_hash"),
        where.alias("place"),
        _sight(where).alias("sight"),
        F.col("t_recv").alias("got"),
        *masks,
    )


def _log_rows(context: Context, entries: DataFrame) -> DataFrame:
    ours = F.col("topic_h").isin([F.xxhash64(F.lit(name)) for name in context.topics])
    known = F.coalesce(ours, F.lit(col=False))
    where = F.when(
        known & F.col("queue_offset").isNotNull(),
        F.xxhash64("topic_h", "queue_id", "queue_offset"),
    )
    # Where replicas differ at an index nobody knows its place: A34, A35.
    agreed = F.when(F.expr("cid_min = cid_max"), where)
    return entries.filter(F.col("msg_key").isNotNull()).select(
        "msg_key",
        known.cast("int").alias("n_log"),
        # Under another topic: what waits is stored there until it is due.
        (~known).cast("int").alias("n_apart"),
        F.when(known, F.col("keepers")).alias("held"),
        agreed.alias("place"),
        _sight(where).alias("sight"),
        F.when(known, F.xxhash64("group", "index")).alias("step"),
    )


def _trimmed_rows(context: Context, entries: LogEntries) -> list[DataFrame]:
    """Return which messages lie, or were acknowledged, where logs have lost their beginnings.

    And who holds what is not committed. Of a message without such a row nobody knows.
    """
    held = entries.contents.filter("msg_key is not null and type <> 'unreadable'")
    rows = held.select("msg_key", F.col("holders").alias("held"), _cut(entries, "group", "index"))
    waits = F.coalesce(F.col("kind").isin("delay", "txn"), F.lit(col=False))
    told = context.sends.filter((F.col("outcome") == "ok") & F.col("raft_index").isNotNull())
    told = told.filter(~waits).select("msg_key", _cut(entries, "raft_group", "raft_index"))
    return [rows, told.join(rows.select("msg_key"), "msg_key", "left_anti")]


def _cut(entries: LogEntries, group: str, index: str) -> Column:
    return entries.is_trimmed(group, index).alias("is_cut")


def _fold(context: Context, rows: DataFrame) -> DataFrame:
    def total(name: str) -> Column:
        return F.coalesce(F.sum(name), F.lit(0)).cast("long").alias(name)

    masks = (
        F.coalesce(F.bit_or(f"{name}_{i}"), F.lit(0).cast("long")).alias(f"{name}_{i}")
        for i in range(context.mask_count)
        for name in ("seen", "given")
    )
    return rows.groupBy("msg_key").agg(
        *(total(name) for name in _COUNTED),
        F.min("s_hash").alias("s_min"),
        F.max("s_hash").alias("s_max"),
        F.min("d_hash").alias("d_min"),
        F.max("d_hash").alias("d_max"),
        F.min("place").alias("place_min"),
        F.max("place").alias("place_max"),
        F.min("sight").alias("sight_min"),
        F.max("sight").alias("sight_max"),
        F.min("step").alias("step_min"),
        F.max("step").alias("step_max"),
        F.min("begun").alias("begun"),
        F.min("home").alias("home_min"),
        F.max("home").alias("home_max"),
        F.min("got").alias("got"),
        F.coalesce(F.bit_or("held"), F.lit(0).cast("long")).alias("held"),
        *([F.max("is_cut").alias("is_cut")] if "is_cut" in rows.columns else []),
        F.max("owed").alias("topic_no"),
        F.max("ok_epoch").alias("ok_epoch"),
        *masks,
    )


def _flag(context: Context, folded: DataFrame, too_few: Column) -> DataFrame:
    missing, seen_count = F.lit(col=False), F.lit(0)
    for chunk in range(context.mask_count):
        seen = F.col(f"seen_{chunk}")
        owed = case_of(F.col("topic_no"), _owed_masks(context, chunk), 0).cast("long")
        missing = missing | (seen.bitwiseAND(owed) != owed)
        given = F.col(f"given_{chunk}").bitwiseAND(F.lit(_plain_mask(context, chunk)))
        seen_count = seen_count + F.bit_count(given)
    current = {
        number: context.topics[name].epoch_max
        for (name, _), number in context.classes.items()
        if context.topics[name].epoch_min != context.topics[name].epoch_max
    }
    alive = F.col("ok_epoch") >= case_of(F.col("topic_no"), current, 0)
    ok = F.col("n_ok") > 0
    differs = ~F.col("d_min").isin(F.col("s_min"), F.col("s_max")) | ~F.col("d_max").isin(
        F.col("s_min"), F.col("s_max")
    )
    flags = {
        "is_ok": ok,
        "groups_seen": seen_count,
        "extra": F.greatest(F.col("n_del") - seen_count, F.lit(0)),
        "lost": ok & alive & missing,
        "phantom": (F.col("n_send") == 0) & (F.col("n_any") > 0),
        "corrupt": (F.col("n_send") > 0) & differs,
        "aborted": (F.col("n_fail") == F.col("n_send"))
        & (F.col("n_send") > 0)
        & (F.col("n_any") + F.col("n_log") + F.col("n_apart") > 0),
        "under_replicated": ok & alive & (F.col("n_any") > 0) & too_few,
        # Read though nobody knows its outcome: whether it is committed counts where a majority is.
        "dirty": (F.col("n_send") > F.col("n_fail")) & ~ok & (F.col("n_any") > 0) & too_few,
        "duplicate": (F.col("n_send") > 0) & (F.col("place_min") != F.col("place_max")),
        "redelivered": F.col("n_del") > seen_count,
    }
    return folded.withColumns(
        {
            name: F.coalesce(value, F.lit(col=False)) if name in FLAGS else value
            for name, value in flags.items()
        }
    )


def _owed_masks(context: Context, chunk: int) -> dict[int, int]:
    """Return, by class of sends, the bits of the groups that are owed it."""
    names = list(context.groups)[chunk * GROUPS_PER_MASK : (chunk + 1) * GROUPS_PER_MASK]
    checked = context.checked_groups
    return {
        number: sum(
            1 << bit
            for bit, name in enumerate(names)
            if name in checked and context.owes(name, topic, tag)
        )
        for (topic, tag), number in context.classes.items()
    }


def _plain_mask(context: Context, chunk: int) -> int:
    names = list(context.groups)[chunk * GROUPS_PER_MASK : (chunk + 1) * GROUPS_PER_MASK]
    return sum(1 << bit for bit, name in enumerate(names) if not name.endswith(AUDITOR))
