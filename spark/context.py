"""What every check needs to know before it starts: the tables and a few small facts about them.

Facts are collected once (topics, groups, nodes, faults, leaderships); they are small whatever the
size of the history. Source: spec/proof.md 3.0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.faults import Span, moves_clock, took_nothing, unsettles
from chaos.history.domains import ANY_TAG
from spark.bodies import tag_of_run
from spark.commit_log import find_replicas
from spark.history import BrokenHistoryError, History, has_dumps, read_table
from spark.timeline import Timeline, timeline

GROUPS_PER_MASK: Final = 62  # a consumer group is one bit of a long
AUDITOR: Final = " (auditor)"
POLLED: Final = ("consumer", "generation", "t_fetch_inv")
"""What says of a delivery who polled it, and when."""
CALLED: Final = ("consumer", "op_id", "t_proc_begin", "t_proc_end")
"""What says of a delivery in which call a listener had it."""
HALF_APPLIED: Final = "failed"
"""The status of a fault that began and failed: some of it may have been in force."""
FAR: Final = 1 << 62  # in the place of the end of a fault that was never lifted
IN_MEMORY_ROWS: Final = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that was sent to: its epochs and how many sends were acknowledged."""

    name: str
    epoch_min: int
    epoch_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that was switched on, with the window in which it was in force (ns)."""

    fault_id: str
    kind: str
    targets: tuple[str, ...]
    start: int
    end: int | None
    effective: bool
    status: str
    on: int | None = None
    """When it was switched on for certain."""
    lifting: int | None = None
    """When lifting it began, far away where it never was; None: nobody knows."""
    only_there: int | None = None
    """Messages that only this node had when the fault took its disk, if somebody counted them."""

    def overlaps(self, start: int, end: int) -> bool:
        """Whether the fault was in force at any time of the interval."""
        return self.start <= end and (self.end is None or self.end >= start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """A term's leader as the probe saw it: the first and last sight (ns)."""

    group: int
    term: int
    node: str
    first_seen: int
    last_seen: int


@dataclass(slots=True, kw_only=True)
class Context:
    """Tables and facts of one run."""

    session: SparkSession
    history: History
    sends: DataFrame
    deliveries: DataFrame
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, set[str]] = field(default_factory=dict)
    classes: dict[tuple[str, str], int] = field(default_factory=dict)
    """Numbers of what is owed alike: topic, and tag where a group subscribes by it, else ''."""
    send_stats: list[Any] = field(default_factory=list)
    delivery_stats: list[Any] = field(default_factory=list)
    ack_stats: list[Any] = field(default_factory=list)
    drain_stats: list[Any] = field(default_factory=list)
    polls: DataFrame | None = None
    """The first deliveries of places to groups, once a check has asked for them."""
    poll_order: Any = None
    """What the runs of polls say of their order (`spark.checks.reading`), once it was asked."""
    absent: DataFrame | None = None
    """What groups did not get of what was acknowledged, once a check has asked for it."""
    delivered_rows: int = 0
    unkeyed_rows: int = 0
    foreign_rows: int = 0
    noted_faults: list[Fault] = field(default_factory=list)
    """All that were switched on, for evidence; what excuses anything is in `faults`."""
    telling_nodes: frozenset[str] = frozenset()
    """Where there were faults, or run.json names no nodes: those that said or noted anything."""
    nodes: frozenset[str] = frozenset()
    """Where there were faults: all brokers whose names somebody said, run.json and logs too."""
    leaderships: list[Leadership] = field(default_factory=list)

    @property
    def faults(self) -> list[Fault]:
        """Faults that a witness saw take effect: no other excuses anything.

        And those that failed half applied, of which nobody knows: A48 says so.
        """
        return [fault for fault in self.noted_faults if fault.effective]

    @property
    def begun(self) -> list[Fault]:
        """Faults that were on at some time, seen or not: they excuse nothing, but leave a doubt."""
        return self.noted_faults

    def ours(self, targets: Sequence[str]) -> list[str]:
        """Return the nodes of this system among a fault's targets; all where nobody named any."""
        return [node for node in targets if not self.nodes or node in self.nodes]

    @property
    def taking(self) -> list[Fault]:
        """Faults that may have taken something from nodes of this system: those are the targets."""
        spans = [Span(one.kind, one.targets, one.start, one.end) for one in self.faults]
        return [
            replace(one, targets=tuple(self.ours(one.targets)))
            for one, span in zip(self.faults, spans, strict=True)
            if not took_nothing(span, spans, one.only_there)
            and (not one.targets or self.ours(one.targets))
        ]

    @property
    def unsettling(self) -> list[Fault]:
        """Faults that may be why brokers did something late, or once more."""
        return [one for one in self.faults if unsettles(one.kind, one.targets, self.nodes)]

    def due(self, since: str) -> Column:
        """Return when a row's ``delay_ms`` is over: at once, when a wall clock was moved."""
        moved = [
            one.start
            for one in self.faults
            if moves_clock(one.kind) and (not one.targets or self.ours(one.targets))
        ]
        whole = F.col(since) + F.col("delay_ms") * 1_000_000
        return F.least(whole, F.greatest(since, F.lit(min(moved)))) if moved else whole

    @property
    def timeline(self) -> Timeline:
        """The slots of the run's time, from the first send to the end of the last."""
        known = [t for row in self.send_stats for t in (row.t_min, row.t_max) if t is not None]
        return timeline(known)

    @property
    def end(self) -> int:
        """When a message was last sent or received."""
        known = [*(row.t_max for row in self.send_stats), *(r.t_last for r in self.delivery_stats)]
        return max((t for t in known if t is not None), default=0)

    @property
    def consumer_groups(self) -> list[str]:
        """The groups that are not the auditor, in order."""
        return [name for name in self.groups if not name.endswith(AUDITOR)]

    def table(self, name: str) -> DataFrame:
        """Return a table of the run."""
        return read_table(self.session, self.history, name)

    def group_mask(self, chunk: int) -> Column:
        """Return the bit of a row's group in mask number ``chunk``, 0 if it is in another."""
        names = list(self.groups)[chunk * GROUPS_PER_MASK : (chunk + 1) * GROUPS_PER_MASK]
        return case_of(F.col("gname"), {n: 1 << i for i, n in enumerate(names)}, 0).cast("long")

    @property
    def checked_groups(self) -> list[str]:
        """The groups that are owed messages: consumers, or the auditors where none consumed.

        Who got copies alone, from retry queues, says nothing of what else it is owed.
        """
        owed = [name for name, topics in self.groups.items() if topics]
        return [name for name in self.consumer_groups if name in owed] or owed

    @property
    def mask_count(self) -> int:
        """How many longs it takes to hold one bit per group."""
        return max(1, -(-len(self.groups) // GROUPS_PER_MASK))

    def tags_of(self, group: str, topic: str) -> list[str] | None:
        """Return the tags by which a group subscribed to a topic; None for all of it."""
        told = self.history.run.get("subscriptions")
        told = told.get(group) if isinstance(told, dict) else None
        tags = told.get(topic) if isinstance(told, dict) else None
        if not isinstance(tags, list) or ANY_TAG in tags:
            return None
        return [str(tag) for tag in tags]

    def class_key(self) -> Column:
        """Return what of a send says to which class it belongs: its topic, and tag if it counts."""
        counts = F.coalesce(F.col("tag").isin(self._known_tags()), F.lit(col=False))
        tag = F.when(counts, F.col("tag")).otherwise("")
        return F.concat(F.length("topic"), F.lit(":"), "topic", tag)

    def class_number(self) -> Column:
        """Return the number of a send's class; -1 for none (it cannot happen)."""
        numbers = {f"{len(one)}:{one}{tag}": n for (one, tag), n in self.classes.items()}
        return case_of(self.class_key(), numbers, -1).cast("int")

    def owes(self, group: str, topic: str, tag: str) -> bool:
        """Whether a group that consumes the topic is owed what has this tag."""
        tags = self.tags_of(group, topic)
        return topic in self.groups[group] and (tags is None or tag in tags)

    def _known_tags(self) -> list[str]:
        told = self.history.run.get("subscriptions")
        groups = told.values() if isinstance(told, dict) else ()
        lists = [tags for group in groups if isinstance(group, dict) for tags in group.values()]
        return sorted({str(tag) for tags in lists if isinstance(tags, list) for tag in tags})

    def epoch(self, topic: Column, epoch: Column) -> Column:
        """Return a row's epoch; null if the topic had several and the row does not say which."""
        single = {t.name: t.epoch_max for t in self.topics.values() if t.epoch_min == t.epoch_max}
        several = [t.name for t in self.topics.values() if t.epoch_min != t.epoch_max]
        fallback = case_of(topic, {n: e for n, e in single.items() if e}, 0)
        if several:
            fallback = F.when(topic.isin(several), F.lit(None)).otherwise(fallback)
        return F.coalesce(epoch, fallback.cast("int"))


def group_of(gname: str) -> Column:
    """Return the name of a group, an auditor's as it has it in the tables."""
    return F.regexp_replace(gname, f"{re.escape(AUDITOR)}$", "")


def case_of(column: Column, values: dict[Any, Any], default: object) -> Column:
    """Return a CASE expression that maps ``column`` by ``values``; long maps become a lookup."""
    if not values:
        return F.lit(default)
    if len(values) > GROUPS_PER_MASK:
        pairs = [F.lit(x) for pair in values.items() for x in pair]
        return F.coalesce(F.create_map(*pairs)[column], F.lit(default))
    (first, value), *others = values.items()
    expression = F.when(column == F.lit(first), F.lit(value))
    for key, value in others:
        expression = expression.when(column == F.lit(key), F.lit(value))
    return expression.otherwise(F.lit(default))


def load_context(session: SparkSession, history: History) -> Context:
    """Read the small facts of a run. Errors: those of Spark if a table cannot be read."""
    own = [history.run_id, tag_of_run(history.run_id)]
    sends = read_table(session, history, "sends")
    deliveries = read_table(session, history, "deliveries").select(
        "*",
        F.when(F.col("auditor"), F.concat("grp", F.lit(AUDITOR)))
        .otherwise(F.col("grp"))
        .alias("gname"),
        F.coalesce(F.col("payload_run_id").isin(own), F.lit(col=True)).alias("own"),
        # What comes again, and nobody says whether from a retry queue, may have come from one.
        F.expr("coalesce(is_retry, coalesce(reconsume, 0) > 0) or coalesce(is_dlq, false)").alias(
            "copied"
        ),
    )
    context = Context(session=session, history=history, sends=sends, deliveries=deliveries)
    _read_send_facts(context)
    _read_statements(context)
    _read_delivery_facts(context)
    _read_faults(context)
    _read_nodes(context)
    _read_leaderships(context)
    return context


def _read_send_facts(context: Context) -> None:
    context.send_stats = (
        context.sends.withColumn("class_", context.class_key())
        .groupBy("topic", "kind", "phase", "outcome", "class_")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.min(F.coalesce("epoch", F.lit(0))).alias("epoch_min"),
            F.max(F.coalesce("epoch", F.lit(0))).alias("epoch_max"),
            F.count("raft_index").alias("with_index"),
            F.count(F.expr("if(outcome = 'ok' and node is not null, raft_term, null)")).alias(
                "with_term"
            ),
            F.count("tries").alias("with_tries"),
            F.count(F.when(F.col("t_cmp") < F.col("t_inv"), 1)).alias("ended"),
            F.min("t_inv").alias("t_min"),
            F.max(F.greatest("t_inv", "t_cmp")).alias("t_max"),
            F.min(F.when(F.col("t_cmp").isNull(), F.col("t_inv"))).alias("t_open"),
            *_empty("seq", "shard_key", "delay_ms", "t_cmp"),
        )
        .collect()
    )
    for row in context.send_stats:
        known = context.topics.get(row.topic)
        context.topics[row.topic] = Topic(
            name=row.topic,
            epoch_min=min(row.epoch_min, known.epoch_min if known else row.epoch_min),
            epoch_max=max(row.epoch_max, known.epoch_max if known else row.epoch_max),
        )
    pairs = sorted({_class_of(row.class_) for row in context.send_stats})
    context.classes = {pair: number for number, pair in enumerate(pairs)}


def _class_of(key: str) -> tuple[str, str]:
    """Return topic and tag of a `Context.class_key`: either may have any letters."""
    length, _, names = key.partition(":")
    return names[: int(length)], names[int(length) :]


def _empty(*columns: str) -> list[Column]:
    """Return how many rows leave each of the columns empty."""
    return [F.count(F.when(F.col(name).isNull(), 1)).alias(f"no_{name}") for name in columns]


def _read_delivery_facts(context: Context) -> None:
    polled = reduce(Column.__and__, (F.col(name).isNotNull() for name in POLLED))
    again = F.expr("reconsume > 0 and msg_key is not null and not coalesce(auditor, false)")
    letter = F.expr("is_dlq and msg_key is not null")
    stats = (
        context.deliveries.groupBy("gname", "grp", "topic", "own", "copied")
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.sum(F.col("msg_key").isNull().cast("int")).alias("unkeyed"),
            F.count(F.when(polled, 1)).alias("polled"),
            F.count(F.when(again, 1)).alias("n_again"),
            F.count(F.when(letter, 1)).alias("n_dlq"),
            F.count(F.expr("if(auditor and not coalesce(is_dlq, false), 1, null)")).alias(
                "audited"
            ),
            F.count(F.when(F.col("pos") > 0, 1)).alias("behind"),
            F.max("t_recv").alias("t_last"),
            *_empty(*dict.fromkeys((*POLLED, *CALLED))),
        )
        .collect()
    )
    context.delivery_stats = stats
    pairs = [(row.gname, row.topic) for row in stats if not row.copied]
    # Whose dead letters an auditor read is none.
    audited = {row.grp for row in stats if row.audited}
    told = [*_subscribed(context), *_committing(context)]
    if context.history.rows("drain"):
        drained = context.table("drain").select("grp", "topic").distinct().collect()
        told += [(row.grp, row.topic) for row in drained]
    pairs += [pair for pair in told if pair[0] not in audited]
    for name, topic in sorted(pairs):
        context.groups.setdefault(name, set()).add(topic)
    for row in stats:
        context.groups.setdefault(row.gname, set())
        context.delivered_rows += row.n
        if row.copied or row.topic in context.topics:
            context.unkeyed_rows += row.unkeyed if row.own else 0
            context.foreign_rows += 0 if row.own else row.n


def _subscribed(context: Context) -> list[tuple[str, str]]:
    """Return which groups subscribed to which topics that were sent to, as run.json says."""
    told = context.history.run.get("subscriptions")
    groups = told.items() if isinstance(told, dict) else ()
    return [
        (str(group), str(topic))
        for group, topics in groups
        if isinstance(topics, dict)
        for topic, tags in topics.items()
        if isinstance(tags, list) and topic in context.topics
    ]


def _committing(context: Context) -> list[tuple[str, str]]:
    """Return which groups committed offsets of which topics that were sent to."""
    commits = (row for row in context.ack_stats if row.kind == "commit" and row.outcome == "ok")
    return [(row.grp, row.topic) for row in commits if row.topic in context.topics]


def _read_statements(context: Context) -> None:
    """Count what consumers stated, and how far queues were read."""
    if context.history.rows("acks"):
        columns = ("topic", "queue_id", "value_offset", "t_inv", "delay_ms", "reconsume")
        # Of a refusal of nobody knows what only that counts.
        unnamed = F.expr("kind = 'nack' and msg_key is null")
        told = [
            F.count(F.when(F.col(name).isNull() & ~unnamed, 1)).alias(f"no_{name}")
            for name in columns
        ]
        context.ack_stats = (
            context.table("acks")
            .groupBy("grp", "kind", "outcome", "topic")
            .agg(*told, F.count(F.when(unnamed, 1)).alias("no_msg_key"))
            .collect()
        )
    if context.history.rows("drain"):
        undrained = F.count(F.when(~F.coalesce("drained", F.lit(col=False)), 1))
        context.drain_stats = (
            context.table("drain")
            .groupBy("grp")
            .agg(undrained.alias("undrained"), *_empty("min_off", "end_off"))
            .collect()
        )


def _read_faults(context: Context) -> None:
    if not context.history.rows("faults"):
        return
    for row in context.table("faults").collect():
        start = row.t_on0 if row.t_on0 is not None else row.t_on1
        if start is None or row.status in {"planned", "skipped"}:
            continue
        witness = row.witness
        seen = witness is not None and witness.effective
        over = row.t_off1 if row.t_off1 is not None else row.t_off0
        context.noted_faults.append(
            Fault(
                fault_id=row.fault_id,
                kind=row.kind,
                targets=tuple(row.targets or ()),
                start=start,
                end=None if row.status == "heal_failed" else over,
                effective=bool(seen or row.status == HALF_APPLIED),
                status=row.status or "",
                on=row.t_on1,
                lifting=_lifting(row),
                only_there=row.only_there,
            )
        )


def _lifting(row: Row) -> int | None:
    """Return when lifting a fault began."""
    is_on = row.t_off0 is None and row.t_off1 is None and row.status == "active"
    return FAR if is_on else row.t_off0


def _read_nodes(context: Context) -> None:
    told = context.history.run.get("nodes")
    # How many copies were promised hangs on how many there are, if nobody says their names.
    if context.noted_faults or not told:
        context.telling_nodes = frozenset(_names(context, ("raft_probe", "raft_event")))
    if not context.noted_faults:
        return
    named = map(str, told if isinstance(told, list | dict) else ())
    logs = set() if has_dumps(context.history.path) else _names(context, ("replica_log",))
    try:
        logs |= {replica.node for replica in find_replicas(context.history.path)}
    except BrokenHistoryError:
        logs = set()  # the history says so itself
    context.nodes = frozenset({*named, *logs, *context.telling_nodes})


def _names(context: Context, tables: Sequence[str]) -> set[str]:
    """Return the nodes that rows of some tables name."""
    known = [context.table(name).select("node") for name in tables if context.history.rows(name)]
    return {row.node for names in known for row in names.distinct().collect()}


def _read_leaderships(context: Context) -> None:
    if not context.history.rows("raft_probe"):
        return
    rows = (
        context.table("raft_probe")
        .filter("ok and lower(role) = 'leader'")
        .groupBy(F.coalesce("group", F.lit(0)).alias("grp"), "term", "node")
        .agg(F.min("t0").alias("first"), F.max(F.coalesce("t1", "t0")).alias("last"))
        .orderBy("grp", "first")
        .collect()
    )
    context.leaderships = [
        Leadership(group=r.grp, term=r.term or 0, node=r.node, first_seen=r.first, last_seen=r.last)
        for r in rows
    ]
