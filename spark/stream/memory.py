"""What is kept of a run that goes on, and what can be said of it: alarms, and what is only suspect.

A message, a place of a queue and a call of an orderly listener are one row each, however often
they are seen; all that is kept of them are least and greatest values, so that a row of the past and
rows of now make a row. What nobody spoke of for `KEPT_NS` is forgotten, by the run's own time. A
key that was forgotten is told from one that never was by its producer's number (``floors``): it is
not judged.

An alarm is irrevocable: nothing that comes later can take it back. What is not delivered yet is
suspect, and the verdict of the whole run says what became of it.
Source: spec/proof.md 3 (IR, RV); docs/chaos.md, "While it runs".
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.window import Window

from chaos.history.domains import EARLY_NS
from spark.evidence import message_name, text

KEPT_NS: Final = 120_000_000_000
"""So long after it was last spoken of a message is forgotten."""
SUSPECT_NS: Final = 10_000_000_000
"""After so long an acknowledged message that nobody got is suspect."""
MESSAGES: Final = (
    "msg_key long, sent int, s_min long, s_max long, d_min long, d_max long, refused int,"
    " acked long, due long, came long, came_plain long, seen string, commits int, rolled int,"
    " begun long, decides int, told string, t_last long"
)
PLACES: Final = (
    "topic string, queue_id int, queue_offset long, h_min long, h_max long, k_min long,"
    " k_max long, acked long, sent_last struct<at:long,key:long>,"
    " told string, t_last long"
)
CALLS: Final = (
    "topic string, queue_id int, grp string, node string, op_id long, began long, ended long,"
    " told string, t_last long"
)
FLOORS: Final = "pid long, seq long"
_SEQUENCE_BITS: Final = 40
_LEAST: Final = {
    "s_min", "d_min", "acked", "due", "came", "came_plain", "seen", "begun", "k_min", "h_min",
    "began",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """How far the stream is. ``complete``: all that happened before is known (ns)."""

    complete: int = 0
    latest: int = 0
    clocks_move: bool = False


def fold_messages(known: DataFrame, facts: DataFrame) -> DataFrame:
    """Return what is known of each message with ``facts`` added."""
    what, t = F.col("what"), F.col("t")
    got, plain = what == "delivery", ~F.coalesce(F.col("copied"), F.lit(col=False))
    place = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))
    order = F.lpad(t.cast("string"), 20, "0")
    seen = F.concat(order, text(F.col("grp"), " from ", place, " by ", F.col("node")))
    commits = what.eqNullSafe("txn") & F.col("word").eqNullSafe("commit")
    rolled = what.eqNullSafe("txn") & F.col("word").eqNullSafe("rollback")
    rows = facts.filter(
        "what in ('send', 'end', 'delivery', 'txn') and msg_key is not null"
    ).select(
        "msg_key",
        (what == "send").cast("int").alias("sent"),
        F.when(what == "send", F.col("hash")).alias("s_min"),
        F.when(what == "send", F.col("hash")).alias("s_max"),
        F.when(got, F.col("hash")).alias("d_min"),
        F.when(got, F.col("hash")).alias("d_max"),
        F.col("outcome").eqNullSafe("refused").cast("int").alias("refused"),
        F.when(F.col("outcome") == "ok", t).alias("acked"),
        F.when(what == "send", F.col("due")).alias("due"),
        F.when(got, t).alias("came"),
        F.when(got & plain, t).alias("came_plain"),
        F.when(got, seen).alias("seen"),
        commits.cast("int").alias("commits"),
        rolled.cast("int").alias("rolled"),
        F.when(commits, t).alias("begun"),
        (what == "txn").cast("int").alias("decides"),
        F.lit("").alias("told"),
        t.alias("t_last"),
    )
    return _fold(known, rows, ("msg_key",))


def fold_places(known: DataFrame, facts: DataFrame) -> DataFrame:
    """Return what is known of each place of a queue with ``facts`` added."""
    ok = (F.col("what") == "end") & (F.col("outcome") == "ok")
    got = (F.col("what") == "delivery") & ~F.col("copied")
    rows = facts.filter((ok | got) & F.col("queue_offset").isNotNull()).select(
        "topic", "queue_id", "queue_offset",
        F.col("hash").alias("h_min"), F.col("hash").alias("h_max"),
        F.col("msg_key").alias("k_min"), F.col("msg_key").alias("k_max"),
        F.when(ok, F.col("t")).alias("acked"),
        F.when(ok, F.struct(F.col("begun").alias("at"), F.col("msg_key").alias("key")))
        .alias("sent_last"),
        F.lit("").alias("told"), F.col("t").alias("t_last"),
    )  # fmt: skip
    return _fold(known, rows, ("topic", "queue_id", "queue_offset"))


def fold_calls(known: DataFrame, facts: DataFrame) -> DataFrame:
    """Return what is known of each call of an orderly listener with ``facts`` added.

    A call of which only a part was read is shorter than it was: it overlaps no other by that.
    """
    rows = facts.filter("what = 'call'").select(
        "topic", "queue_id", "grp", "node", "op_id", F.col("begun").alias("began"), "ended",
        F.lit("").alias("told"), F.col("t").alias("t_last"),
    )  # fmt: skip
    return _fold(known, rows, ("topic", "queue_id", "grp", "node", "op_id"))


def _fold(known: DataFrame, rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    columns = [name for name in known.columns if name not in key]
    merged = ((F.min(name) if name in _LEAST else F.max(name)).alias(name) for name in columns)
    return known.unionByName(rows.select(known.columns)).groupBy(*key).agg(*merged)


def message_alarms(messages: DataFrame, floors: DataFrame, marks: Marks) -> DataFrame:
    """Return the alarms of messages that were not told yet: A5, A6, A7, A53, A54, A56."""
    name, seen = message_name(), F.substring("seen", 21, 10_000)
    differs = "sent > 0 and (not d_min in (s_min, s_max) or not d_max in (s_min, s_max))"
    early = f"came_plain < due - {EARLY_NS}" if not marks.clocks_move else "false"
    pid = F.shiftright("msg_key", _SEQUENCE_BITS)
    number = F.col("msg_key").bitwiseAND(F.lit((1 << _SEQUENCE_BITS) - 1))
    lowest = F.broadcast(floors.select(F.col("pid").alias("p"), F.col("seq").alias("floor")))
    rows = messages.filter("came is not null").join(lowest, pid == F.col("p"), "left")
    rows = rows.withColumn("forgotten", F.coalesce(number <= F.col("floor"), F.lit(col=False)))
    known = f"came <= {marks.complete}"
    undecided = "(commits = 0 and rolled = 0 or came < begun)"
    rules: list[tuple[str, str, Column]] = [
        ("A5", f"sent = 0 and {known} and not forgotten",
         text(name, " was delivered to ", seen, ", and nobody sent it")),
        ("A6", differs, text(name, " was delivered to ", seen, " with another body")),
        ("A7", "sent > 0 and refused > 0 and acked is null",
         text(name, " was refused, yet ", seen, " got it")),
        ("A53", "rolled > 0 and commits = 0", text(name, " was rolled back, and delivered")),
        ("A54", f"decides > 0 and rolled = 0 and {known} and {undecided} and not forgotten",
         text(name, " was delivered before its transaction was committed")),
        ("A56", early, text(name, " came before its time to ", seen)),
    ]  # fmt: skip
    return _alarms(rows, rules, F.col("msg_key").cast("string"), F.col("came"))


def place_alarms(places: DataFrame) -> DataFrame:
    """Return the alarms of places that were not told yet: A15."""
    where = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))
    words = text(where, " holds message ", F.col("k_min"), " and message ", F.col("k_max"))
    rules = [("A15", "h_min <> h_max or k_min <> k_max", words)]
    return _alarms(places, rules, where, F.col("t_last"))


def order_alarms(places: DataFrame) -> DataFrame:
    """Return the alarms of sends that lie before what was acknowledged when they began: A11."""
    behind = Window.partitionBy("topic", "queue_id").orderBy(F.desc("queue_offset"))
    behind = behind.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    first = F.min(F.struct(F.col("acked").alias("at"), F.col("queue_offset").alias("offset")))
    rows = places.filter("acked is not null").withColumn("first", first.over(behind))
    place = text(F.col("topic"), "/", F.col("queue_id"), "@", F.col("queue_offset"))
    words = text(
        "message ", F.col("sent_last.key"), " lies at ", place, ", but was sent after @",
        F.col("first.offset"), " was acknowledged",
    )  # fmt: skip
    key = F.col("sent_last.key").cast("string")
    return _alarms(rows, [("A11", "first.at < sent_last.at", words)], key, F.col("sent_last.at"))


def call_alarms(calls: DataFrame) -> DataFrame:
    """Return the alarms of queues with two calls at a time that were not told yet: A17."""
    queue = ("grp", "topic", "queue_id")
    earlier = Window.partitionBy(*queue).orderBy("began", "ended", "node", "op_id")
    earlier = earlier.rowsBetween(Window.unboundedPreceding, -1)
    rows = calls.withColumn("busy", F.max("ended").over(earlier)).filter("began < busy")
    # One alarm a queue, the first: what was told of any of its calls was told of it.
    first = F.min(F.struct("began", "busy", "node")).alias("first")
    rows = rows.groupBy(*queue).agg(first, F.max("told").alias("told"))
    where = text(F.col("topic"), "/", F.col("queue_id"))
    words = text(
        F.col("first.node"), " began with ", where, " of ", F.col("grp"), " at ",
        F.col("first.began"), ", and the call before it ended at ", F.col("first.busy"),
    )  # fmt: skip
    return _alarms(rows, [("A17", "true", words)], where, F.col("first.began"))


def _alarms(
    rows: DataFrame, rules: list[tuple[str, str, Column]], key: Column, t: Column
) -> DataFrame:
    parts = [
        F.when(
            F.expr(rule) & ~F.array_contains(F.split("told", ","), check),
            F.struct(F.lit(check).alias("check"), key.alias("key"), t.alias("t"),
                     explain.alias("explain")),
        )
        for check, rule, explain in rules
    ]  # fmt: skip
    return rows.select(F.explode(F.array_compact(F.array(*parts))).alias("a")).select("a.*")


def told(rows: DataFrame, alarms: DataFrame, key: Column) -> DataFrame:
    """Return rows that remember which alarms were told of them."""
    lists = alarms.groupBy(F.col("key").alias("alarm_key")).agg(
        F.concat_ws(",", F.sort_array(F.collect_set("check"))).alias("now")
    )
    joined = rows.join(F.broadcast(lists), key == F.col("alarm_key"), "left")
    both = F.concat_ws(",", F.when(F.col("told") != "", F.col("told")), F.col("now"))
    return joined.withColumn("told", both).select(rows.columns)


def forget(rows: DataFrame, marks: Marks) -> DataFrame:
    """Return the rows of which something was heard in the last `KEPT_NS`."""
    return rows.filter(F.col("t_last") >= marks.latest - KEPT_NS)


def forgotten(messages: DataFrame, marks: Marks) -> DataFrame:
    """Return, by producer (``pid``), the highest number (``seq``) that is forgotten now."""
    gone = messages.filter(F.col("t_last") < marks.latest - KEPT_NS).select(
        F.shiftright("msg_key", _SEQUENCE_BITS).alias("pid"),
        F.col("msg_key").bitwiseAND(F.lit((1 << _SEQUENCE_BITS) - 1)).alias("seq"),
    )
    return gone.groupBy("pid").agg(F.max("seq").alias("seq"))


def suspects(messages: DataFrame, marks: Marks) -> DataFrame:
    """Return one row: how many acknowledged messages nobody got yet, and how many for long.

    ``oldest``: when anything was last heard of the message that is forgotten next (ns).
    """
    owed = F.col("acked").isNotNull() & F.col("came").isNull() & (F.col("decides") == 0)
    owed = owed & (F.coalesce("due", "acked") < marks.latest)
    late = owed & (F.coalesce("due", "acked") < marks.latest - SUSPECT_NS)
    return messages.agg(
        F.coalesce(F.sum(owed.cast("long")), F.lit(0)).alias("unseen"),
        F.coalesce(F.sum(late.cast("long")), F.lit(0)).alias("suspects"),
        F.coalesce(F.min("t_last"), F.lit(marks.latest)).alias("oldest"),
    )
