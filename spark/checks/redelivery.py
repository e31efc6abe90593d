"""A9: repeated deliveries to one group, each with what explains it; what nothing explains is a bug.

Each delivery of a message to a group after the first is looked at with the one before it and gets
the first of these causes: another copy in the log (A8); a nack, failed ack or retry; a change of
the members around the earlier delivery, if the queue could change hands; a fault of a broker, a
change of leader or a commit that failed, around it; a reset of its queue's offset before it. One
consumer within one generation gets nothing twice because others come and go, and who had given a
queue up must not fetch it.

Causes are rows of small tables that are joined by slots of time: no number of leader changes makes
the plan longer.
Source: spec/proof.md A9; the windows are those of the intervals in docs/checking.md.
"""

import json
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.history.domains import QUEUES_MAX
from spark.context import Context
from spark.evidence import anomaly_rows, attach, message_name, pointer, queue_place, text
from spark.facts import acks_of, of_run, resets, to_groups
from spark.history import few_rows
from spark.lines import before, by_time
from spark.message_outcomes import MessageOutcomes
from spark.result import INVALID, UNKNOWN, VALID, CheckResult

CAUSES: Final = (
    "copy in the log",
    "nack",
    "consumer crash",
    "rebalance",
    "broker fault",
    "leader change",
    "commit failed",
    "offset reset",
)
_CRASH, _BROKER, _LEADER = map(CAUSES.index, ("consumer crash", "broker fault", "leader change"))
UNEXPLAINED: Final = "unexplained"
NEAR_MEMBERS: Final = 6_000_000_000
NEAR_BROKERS: Final = 3_000_000_000
GIVEN_UP: Final = 2_000_000_000
FOREVER: Final = 1 << 62
_DEATHS: Final = ("crash", "kill")
_LIFE: Final = ("start", "stop", "restart", "shutdown", *_DEATHS)
_CAUSE_COLUMNS: Final = (
    "cause int, members boolean, grp string, member string, c0 long, c1 long, margin long"
)


def check_redelivery(context: Context, outcomes: MessageOutcomes) -> CheckResult:
    """Return A9; ``count`` is the unexplained redeliveries, ``details`` has them by cause."""
    result = CheckResult(check="A9", summary="nothing was delivered twice")
    total = outcomes.totals["redelivered"]
    if not total:
        return result
    members = _member_events(context)
    again = _caused(context, _again(context, outcomes), members).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    causes = {r.cause: r["count"] for r in again.groupBy("cause").count().collect()}
    result.count = causes.get(UNEXPLAINED, 0)
    result.details = {"by_cause": causes, "redelivered": total}
    rewound = again.agg(F.percentile_approx("rewind", 0.99).alias("p99")).first()
    if rewound is not None and rewound.p99 is not None:
        result.details["rewind_p99"] = rewound.p99
    split = ", ".join(f"{causes[c]} {c}" for c in (*CAUSES, UNEXPLAINED) if c in causes)
    result.summary = f"{total} redeliveries: {split}"
    if result.count:
        _explain(context, again, result)
    allowed = float(context.history.run.get("contract", {}).get("redelivery_ratio_max") or 0)
    if result.count > allowed * (outcomes.totals["delivered"] + total):
        result.verdict = INVALID if members else UNKNOWN
        if not members:
            result.summary += "; no consumer events were recorded, which would say why"
    else:
        result.severity = "INFO"  # within what the contract allows
        result.verdict = VALID
    return result


def _explain(context: Context, again: DataFrame, result: CheckResult) -> None:
    rows = again.filter(F.col("cause") == UNEXPLAINED).withColumn("key", F.col("msg_key"))
    explain = text(
        message_name(), " at ", queue_place(), " was delivered again to ", F.col("gname"),
        " by ", F.col("consumer"), ", ", (F.col("t_recv") - F.col("t_before")) / 1e6,
        " ms after ", F.col("consumer_before"), "; no cause lies between",
    )  # fmt: skip
    evidence = [
        pointer("deliveries", "op_before", "t_before"),
        pointer("deliveries", "op_id", "t_recv"),
    ]
    attach(
        result,
        anomaly_rows(context, "A9", rows, explain=explain, evidence=evidence, time="t_recv"),
    )


def _again(context: Context, outcomes: MessageOutcomes) -> DataFrame:
    """Return every delivery after the first of its (group, message), with the one before it.

    With the last one from the same place, if there is any.
    """
    suspects = outcomes.suspects.filter("redelivered").select("msg_key")
    rows = context.deliveries.filter(to_groups() & of_run(context))
    rows = rows.join(suspects, "msg_key", "left_semi")
    rows = rows.withColumn("t_fetch", F.coalesce("t_fetch_inv", "t_recv"))
    order = ("t_recv", "op_id", "pos")
    told = ("consumer", "topic", "queue_id", "queue_offset", "generation", "t_fetch", "reconsume")
    queues = by_time(("gname", "topic", "queue_id"), "t_recv")
    rows = before(rows, queues, "highest", "max", F.col("queue_offset"), ties=True)
    then = [F.col(name) for name in (*order[1:], *told)]
    # Another copy in the log, or a retry, explains the first delivery from it, and no more.
    place = ("gname", "msg_key", "topic", "queue_id", "queue_offset")
    rows = before(rows, by_time(place, "t_recv", *then), "same", "max", F.struct(*order, *told))
    rows = rows.localCheckpoint(eager=True)
    messages = by_time(("gname", "msg_key"), "t_recv", *then)
    rows = before(rows, messages, "last", "max", F.struct(*order, *told)).filter("last is not null")
    rows = rows.withColumn("last", F.coalesce("same", "last"))
    found = {
        "t_before": F.col("last.t_recv"),
        "fetch_before": F.col("last.t_fetch"),
        "op_before": F.col("last.op_id"),
        "consumer_before": F.col("last.consumer"),
        "topic_before": F.col("last.topic"),
        "queue_before": F.col("last.queue_id"),
        "place_before": F.struct("last.topic", "last.queue_id", "last.queue_offset"),
        "generation_before": F.col("last.generation"),
        "number_before": F.coalesce("last.reconsume", F.lit(0)),
        "rewind": F.col("highest") - F.col("queue_offset"),
    }
    again = rows.withColumns(found).drop("last", "same", "highest")
    return again.withColumn("line", F.monotonically_increasing_id()).localCheckpoint(eager=True)


def _caused(context: Context, again: DataFrame, members: list[dict[str, Any]]) -> DataFrame:
    """Add the column ``cause``."""
    acks = context.table("acks")
    nacks = acks.filter(
        "kind = 'nack' or (kind = 'ack' and (outcome <> 'ok' or outcome is null))"
    ).filter("msg_key is not null")
    held = _held(context, members)
    rows = (
        again.join(_refused(again, nacks, _slack(context)), "line", "left")
        .join(_explained(context, again, members), "line", "left")
        .join(_stray(again, held, "consumer", "topic", "queue_id", "t_fetch"), "line", "left")
        .join(
            _stray(again, held, "consumer_before", "topic_before", "queue_before", "fetch_before")
            .withColumnRenamed("stray", "stray_before"),
            "line", "left",
        )
    )  # fmt: skip
    nacked = F.coalesce("nacked", F.lit(col=False))
    here = F.struct("topic", "queue_id", "queue_offset")
    elsewhere = ~F.col("copied") & (F.col("place_before") != here)
    number = F.coalesce("reconsume", F.lit(0))
    # Not once more, from one place and under a number that it had.
    had = (F.col("place_before") == here) & (number > 0) & (F.col("number_before") >= number)
    retried = ~had & (F.coalesce("is_retry", F.lit(col=False)) | (number > 0))
    names = F.array(*(F.lit(name) for name in CAUSES))
    cause = (
        F.when(elsewhere, CAUSES[0])
        .when(retried | nacked, CAUSES[1])
        # What comes from a retry queue does not say which that is.
        .when(~F.col("copied") & F.coalesce("stray", "stray_before", F.lit(col=False)), UNEXPLAINED)
        .when(F.col("cause_no").isNotNull(), F.element_at(names, F.col("cause_no") + 1))
    )
    if not members:
        cause = cause.when(_differ(), CAUSES[3])
    return rows.withColumn("cause", cause.otherwise(UNEXPLAINED))


def _refused(again: DataFrame, nacks: DataFrame, slack: int) -> DataFrame:
    """Return, per line, whether its message was refused between the two deliveries."""
    message = ("gname", "msg_key")
    points = again.select(*message, "line", "t_before", (F.col("t_recv") + slack).alias("t"))
    refused = F.coalesce("t_inv", "t_cmp")
    nacks = nacks.select(
        F.col("grp").alias("gname"), "msg_key", refused.alias("t"), refused.alias("refused")
    ).filter("t is not null")
    # A refusal at the same moment lies before.
    order = by_time(message, "t", F.desc("refused"), F.asc("line"))
    both = points.unionByName(nacks, allowMissingColumns=True)
    rows = before(both, order, "last", "max", F.col("refused")).filter("line is not null")
    return rows.select("line", (F.col("last") >= F.col("t_before") - slack).alias("nacked"))


def _slack(context: Context) -> int:
    """Return how far a cause may seem off: its host's clock, and as an operation it is widened."""
    return 2 * context.history.tolerance


def _differ() -> Column:
    """Whether another consumer, or another generation, got the message than before."""
    same = F.col("generation").eqNullSafe(F.col("generation_before"))
    return ~(same & F.col("consumer").eqNullSafe(F.col("consumer_before")))


def _explained(context: Context, again: DataFrame, members: list[dict[str, Any]]) -> DataFrame:
    """Return, per line, the number of the first cause whose time fits."""
    may_move = F.col("consumer_before").isNull() | F.col("generation_before").isNull() | _differ()
    columns = ("line", "gname", "topic", "queue_id", "consumer", "t_before", "t_recv")
    asked = again.select(*columns, may_move.alias("may_move"))
    times = [*_of_members(members), *_of_faults(context), *_of_leaders(context)]
    slack = _slack(context)
    slots = context.timeline
    causes = few_rows(context.session, times, _CAUSE_COLUMNS)
    causes = causes.withColumn("margin", F.col("margin") + slack)
    begin, end = F.col("c0") - F.col("margin"), F.col("c1") + F.col("margin")
    causes = causes.withColumn("slot", F.explode(slots.slots(begin, end)))
    near = F.col("t_before").between(
        F.col("c0") - F.col("margin"), F.col("c1") + F.col("margin")
    ) & (F.col("c0") <= F.col("t_recv") + slack)
    theirs = F.col("grp").isNull() | (F.col("grp") == F.col("gname"))
    its = F.coalesce(F.col("member") == F.col("consumer"), F.lit(col=False))
    itself = its & (F.col("c1") >= F.col("t_before") - slack)
    fits = near & theirs & (~F.col("members") | F.col("may_move") | itself)
    timed = asked.withColumn("slot", slots.slot(F.col("t_before")))
    told = timed.join(F.broadcast(causes), "slot").filter(fits).select("line", "cause")
    t = F.coalesce("t_inv", "t_cmp")
    failed = (
        context.table("acks")
        .filter("kind = 'commit' and (outcome <> 'ok' or outcome is null) and queue_id is not null")
        .select(F.col("grp").alias("gname"), "topic", "queue_id", t.alias("c0"))
        .withColumn("c1", F.col("c0"))
        .withColumn("margin", F.lit(NEAR_MEMBERS + slack))
    )
    commits = asked.join(failed, ["gname", "topic", "queue_id"]).filter(near)
    told = told.union(commits.select("line", F.lit(CAUSES.index("commit failed"))))
    if acks_of(context, "reset"):
        lines = _reset(context, again)
        told = told.union(lines.select("line", F.lit(CAUSES.index("offset reset"))))
    return told.groupBy("line").agg(F.min("cause").alias("cause_no"))


def _reset(context: Context, again: DataFrame) -> DataFrame:
    """Return the lines whose queue was set back, to the message or before it, between the two.

    What a member had polled before that may come to it afterwards.
    """
    slack = _slack(context)
    told = resets(context.table("acks")).select(
        F.col("grp").alias("gname"), "topic", "queue_id",
        F.least("t_inv", "t_cmp").alias("begin"), F.greatest("t_inv", "t_cmp").alias("end"),
        F.coalesce("value_offset", F.lit(0)).alias("low"),
    )  # fmt: skip
    rows = again.filter("not copied").join(told, ["gname", "topic", "queue_id"])
    between = (F.col("begin") <= F.col("t_recv") + slack) & (
        F.col("fetch_before") <= F.col("end") + slack
    )
    return rows.filter(between & (F.col("queue_offset") >= F.col("low")))


def _stray(again: DataFrame, held: DataFrame | None, *names: str) -> DataFrame:
    """Return the lines whose consumer had given the queue up well before it fetched.

    ``names``: the columns of consumer, topic, queue and time of fetch. Of a consumer that never
    said what it held, nothing is known.
    """
    consumer, topic, queue_id, t = names
    if held is None:
        return again.select("line", F.lit(col=False).alias("stray")).limit(0)
    asked = again.select(
        "line", "gname", F.col(consumer).alias("member"), F.col(topic).alias("of"),
        F.col(queue_id).alias("queue"), F.col(t).alias("t"),
    )  # fmt: skip
    known = asked.join(F.broadcast(held), ["member", "of"]).filter("first <= t")
    # What was said of no group stands for those of which nothing was said by name.
    known = known.filter("grp = gname or grp is null and not array_contains(named, gname)")
    mine = F.array_contains("queues", F.col("queue")) & F.col("t").between(
        F.col("h0") - NEAR_MEMBERS, F.col("h1") + GIVEN_UP
    )
    return known.groupBy("line").agg((~F.max(mine)).alias("stray"))


def _member_events(context: Context) -> list[dict[str, Any]]:
    """Return what consumers told of their lives and assignments, in order."""
    if not context.history.rows("events"):
        return []
    rows = context.table("events").filter("role = 'consumer'")
    rows = rows.filter(F.col("f").isin("rebalance", *_LIFE)).select(
        "f", "t_mono_ns", "node", "value"
    )
    found = []
    for row in sorted(rows.collect(), key=lambda row: int(row.t_mono_ns)):
        try:
            value = json.loads(row.value or "{}")
        except (ValueError, RecursionError):
            value = {}
        told = _understood(value) if isinstance(value, dict) else {}
        found.append({**told, "f": row.f, "t": row.t_mono_ns, "node": row.node})
    return found


def _understood(value: dict[str, Any]) -> dict[str, Any]:
    """Return what of an event's value is of its type; an odd list of queues assigns nothing."""
    told = {n: value[n] for n in ("consumer", "grp", "topic") if isinstance(value.get(n), str)}
    queues = value.get("queues") or []
    is_list = isinstance(queues, list)
    if not is_list or not all(type(q) is int and 0 <= q < QUEUES_MAX for q in queues):
        return {name: word for name, word in told.items() if name != "topic"}
    return {**told, "queues": queues}


def _held(context: Context, members: list[dict[str, Any]]) -> DataFrame | None:
    """Return what each consumer said to hold, with from when to when; None if none said.

    For each of its groups (``grp``), as those of two may be called the same: what it said of that
    group, and without naming one.
    """
    said: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in members:
        if event["f"] == "rebalance" and event.get("topic") and event.get("consumer"):
            said.setdefault((event["consumer"], event["topic"]), []).append(event)
    rows: list[tuple[Any, ...]] = []
    for (member, topic), events in said.items():
        named = sorted({event["grp"] for event in events if event.get("grp")})
        for grp in (*named, None):
            told = [event for event in events if event.get("grp") in {None, grp}]
            ends = [*(event["t"] for event in told[1:]), FOREVER]
            rows += [
                (
                    member,
                    topic,
                    grp,
                    named,
                    event.get("queues") or [],
                    event["t"],
                    end,
                    told[0]["t"],
                )
                for event, end in zip(told, ends, strict=bool(told))
            ]
    columns = "member string, of string, grp string, named array<string>, queues array<int>"
    columns += ", h0 long, h1 long, first long"
    return few_rows(context.session, rows, columns) if rows else None


def deaths_of(context: Context) -> DataFrame | None:
    """Return who died or was at fault, and when (``dead``, ``t_dead``); None if nobody did.

    ``dead_of``: of which group it was, null for any.
    """
    events = [event for event in _member_events(context) if event["f"] in _DEATHS]
    told = [row[2:5] for row in (*_of_members(events), *_of_faults(context))]
    rows = [row for row in told if row[1] is not None]
    return (
        few_rows(context.session, rows, "dead_of string, dead string, t_dead long")
        if rows
        else None
    )


def _of_members(members: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    rows = []
    for event in members:
        moved = event["f"] == "rebalance"
        member = None if moved else event.get("consumer") or event["node"]
        cause = CAUSES.index("rebalance" if moved else "consumer crash")
        rows.append((cause, True, event.get("grp"), member, event["t"], event["t"], NEAR_MEMBERS))
    return rows


def _of_faults(context: Context) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    unsettling = set(context.unsettling)
    for fault in context.faults:
        end = FOREVER if fault.end is None else fault.end
        consumers = [target for target in fault.targets if target.startswith("consumer")]
        for target in consumers:
            name = target.removeprefix("consumer:")
            rows.append((_CRASH, True, None, name, fault.start, end, NEAR_MEMBERS))
        if not consumers and fault in unsettling:
            rows.append((_BROKER, False, None, None, fault.start, end, NEAR_BROKERS))
    return rows


def _of_leaders(context: Context) -> list[tuple[Any, ...]]:
    """Return the times between the last sight of one leader and the first of the next."""
    rows: list[tuple[Any, ...]] = []
    previous: dict[int, int] = {}
    for leader in context.leaderships:
        last = previous.get(leader.group)
        if last is not None:
            start = min(last, leader.first_seen)
            rows.append((_LEADER, False, None, None, start, leader.first_seen, NEAR_BROKERS))
        previous[leader.group] = leader.last_seen
    return rows
