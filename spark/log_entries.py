"""One row per log index from the rows of all replicas: who holds it, and whether they agree.

The one pass over the replicas' logs; the checks of Raft and of messages read its result. What the
decoder found to be the same bytes on several nodes comes as one row, with the nodes as bits; where
each index has one row it is that row, and only where contents differ, or logs are cut differently,
are rows brought together by index. An entry's identity is a 64-bit hash of its CRC, size and body
hash (of every column when a foreign table has no CRC). Source: spec/proof.md A34, A35.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses

from chaos.catalogue.contracts import NONE, QUORUM, copies
from chaos.catalogue.faults import spoils_log
from chaos.history.domains import PLAIN
from spark.commit_log import NODES_MAX, SEGMENT_NAME_DIGITS, find_replicas, read_contents
from spark.context import Context, case_of
from spark.copies import Replica
from spark.evidence import text
from spark.history import BrokenHistoryError

_AS_READ: Final = (
    "base",
    "file",
    "holders",
    "committers",
    "index",
    "term",
    "type",
    "topic",
    "queue_id",
    "queue_offset",
    "msg_key",
    "body_hash",
    "size",
    "pos",
)
DIVERGENT: Final = "(cid_min <> cid_max or cterm_min <> cterm_max)"
"""Whether replicas committed different entries at an index."""


Log = tuple[int, str]
"""Group and node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLog:
    """One replica: the range it calls committed, and how much of it was found."""

    node: str
    number: int
    group: int
    first_index: int
    commit_index: int
    rows: int
    committed_rows: int
    unreadable: tuple[str, ...] = ()
    disk_fault: bool = False
    is_plain: bool = False
    """Whether its entries are named by their last bytes, so that what it lacks is bytes."""

    @property
    def holes(self) -> int:
        """How many entries, or bytes of them, of its committed range are not in its log."""
        return max(0, self.commit_index - self.first_index + 1 - self.committed_rows)


@dataclass(slots=True, kw_only=True)
class LogEntries:
    """``contents``: what lies at each index and on which nodes; ``entries``: a row per index.

    Counts of indexes: ``disputed`` replicas differ at all, ``divergent`` in what they call
    committed, ``missing`` on a node that committed them, ``wrong`` for either reason, ``spoiled``
    committed with a wrong CRC, ``nowhere`` committed by a node and in no log at all.
    """

    contents: DataFrame
    entries: DataFrame
    nodes: list[NodeLog]
    directories: dict[int, str]
    """Where the files of each node are, by its number."""
    promised: dict[int, int]
    """By group, on how many logs lies what it acknowledged."""
    disputed: int = 0
    divergent: int = 0
    missing: int = 0
    wrong: int = 0
    spoiled: int = 0
    nowhere: int = 0

    @property
    def rows(self) -> DataFrame:
        """Every entry of every node: its ``node_no``, whether ``committed`` there, its ``file``."""
        return by_node(self.contents, self.directories)

    @property
    def promised_words(self) -> str:
        """On how many logs a message must lie, in words."""
        return " or ".join(map(str, sorted(set(self.promised.values()))))

    def are_enough(self, held: Column) -> Column:
        """Return whether the nodes in a mask are as many of one group as it promises."""
        enough = F.lit(col=False)
        for group, number in sorted(self.promised.items()):
            mask = sum(1 << node.number for node in self.nodes if node.group == group)
            enough = enough | (F.bit_count(held.bitwiseAND(F.lit(mask))) >= number)
        return enough

    def is_trimmed(self, group: str, index: str) -> Column:
        """Return whether a log of a row's group may have lost its index to retention."""
        begins: dict[int, int] = {}
        for node in self.nodes:
            begins[node.group] = max(node.first_index, begins.get(node.group, 0))
        return F.col(index) < case_of(F.coalesce(group, F.lit(0)), begins, 0)

    @property
    def unsettled(self) -> bool:
        """Whether there are entries, and no node calls any of them committed."""
        return any(n.rows for n in self.nodes) and all(n.commit_index < 0 for n in self.nodes)

    @property
    def whole(self) -> bool:
        """Whether no log has lost its beginning: what is not there never was, or is lost."""
        return all(node.first_index <= 0 for node in self.nodes)


def load_log_entries(context: Context) -> LogEntries | None:
    """Decode and fold the logs; None if the run has neither replicas nor ``replica_log``.

    Errors: BrokenHistoryError names a dump that cannot be used.
    """
    history = context.history
    replicas = find_replicas(history.path)
    if replicas:
        numbers = {(r.group, r.node): r.number for r in replicas}
        raw = read_contents(context.session, replicas)
        raw = raw.withColumn("file", F.lit(None).cast("string"))
    elif history.rows("replica_log"):
        table = context.table("replica_log")
        numbers = _number_logs(table)
        raw = _of_table(table, numbers)
    else:
        return None
    contents = raw.select(
        F.coalesce("group", F.lit(0)).alias("group"),
        F.coalesce("crc_ok", F.lit(col=True)).alias("crc_ok"),
        _identity().alias("id"),
        *_AS_READ,
    ).persist(StorageLevel.MEMORY_AND_DISK)
    directories = dict.fromkeys(numbers.values(), "")
    directories |= {r.number: str(Path(r.segments[0]).parent) for r in replicas if r.segments}
    metas = {r.number: r for r in replicas}
    faulty = {t for f in context.taking if spoils_log(f.kind) for t in f.targets}
    firsts = {r.number: r.first_index for r in replicas}
    plain = [r.number for r in replicas if r.form == PLAIN]
    stats = _node_stats(contents, directories, firsts, plain)
    nodes = [
        _node_log(name, number, stats, metas.get(number), disk_fault=name in faulty)
        for (_, name), number in numbers.items()
    ]
    single = bool(replicas) and not plain and _is_single(contents)
    folded = _fold(contents, nodes, single=single)
    entries = LogEntries(
        contents=contents,
        entries=folded if single else folded.persist(StorageLevel.MEMORY_AND_DISK),
        nodes=nodes,
        directories=directories,
        promised=promised_copies(
            context.history.run, nodes, _group_names(replicas, nodes), len(context.telling_nodes)
        ),
    )
    _count(entries)
    return entries


def by_node(contents: DataFrame, directories: dict[int, str]) -> DataFrame:
    """Return a row for each node that holds a content; ``directories``: of its files, by number."""
    held = (F.when(_has("holders", number), number) for number in directories)
    name = F.lpad(F.col("base").cast("string"), SEGMENT_NAME_DIGITS, "0")
    there = F.concat(case_of(F.col("node_no"), directories, ""), F.lit("/"), name)
    mine = F.col("committers").bitwiseAND(F.expr("shiftleft(1L, node_no)"))
    return (
        contents.withColumn("node_no", F.explode(F.array(*held)))
        .filter("node_no is not null")
        .withColumn("committed", mine != 0)
        .withColumn("file", F.coalesce("file", there))
    )


def _has(mask: str, number: int) -> Column:
    return F.col(mask).bitwiseAND(F.lit(1 << number)) != 0


def _of_table(table: DataFrame, numbers: dict[Log, int]) -> DataFrame:
    """Return the rows of ``replica_log`` as contents of one node each."""
    bits = {f"{group}:{name}": 1 << number for (group, name), number in numbers.items()}
    bit = case_of(text(F.coalesce("group", F.lit(0)), ":", F.col("node")), bits, 0)
    known = F.coalesce("committed", F.lit(col=False))
    return (
        table.withColumn("holders", bit.cast("long"))
        .withColumn("committers", F.when(known, F.col("holders")).otherwise(0).cast("long"))
        .withColumn("base", F.lit(None).cast("long"))
    )


def _is_single(contents: DataFrame) -> bool:
    """Whether each index has one row: segments have one for each of their indexes, and no other.

    Indexes are counted as bits of a word. What is brought here is a row for each segment.
    """
    bit = F.expr("shiftleft(1L, cast(index & 63 as int))")
    spans = (
        contents.filter("type <> 'unreadable'")
        .groupBy("group", "base", F.shiftright("index", 6).alias("word"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.min("index").alias("low"),
            F.max("index").alias("high"),
            F.bit_or(bit).alias("bits"),
        )
        .groupBy("group", "base")
        .agg(
            F.min("low").alias("low"),
            F.max("high").alias("high"),
            F.sum("rows").alias("rows"),
            F.sum(F.bit_count("bits")).alias("indexes"),
        )
        .orderBy("group", "low")
        .collect()
    )
    return all(one.rows == one.indexes == one.high - one.low + 1 for one in spans) and all(
        one.group != other.group or one.high < other.low for one, other in pairwise(spans)
    )


def _count(entries: LogEntries) -> None:
    def number(condition: str) -> Column:
        return F.count(F.when(F.expr(condition), 1))

    row = entries.entries.agg(
        number("id_min <> id_max").alias("disputed"),
        number(DIVERGENT).alias("divergent"),
        number("missing <> 0").alias("missing"),
        number(f"{DIVERGENT} or missing <> 0").alias("wrong"),
        number("bad = 1").alias("spoiled"),
    ).first()
    assert row is not None, "an aggregate without keys has one row"
    entries.disputed, entries.divergent = row.disputed, row.divergent
    entries.missing, entries.spoiled, entries.wrong = row.missing, row.spoiled, row.wrong
    groups = {node.group for node in entries.nodes}
    entries.nowhere = sum(_count_nowhere(entries, group) for group in groups)


def _count_nowhere(entries: LogEntries, group: int) -> int:
    """Return how many indexes of a group are called committed and are in no log.

    Of plain logs: 1 if there are bytes that no entry covers.
    """
    nodes = [n for n in entries.nodes if n.group == group and not n.disk_fault]
    nodes = [n for n in nodes if n.commit_index >= n.first_index and n.holes]
    if not nodes:
        return 0
    low, high = min(n.first_index for n in nodes), max(n.commit_index for n in nodes)
    within = F.col("index").between(low, high) & (F.col("group") == group)
    held = entries.entries.filter(within)
    if not nodes[0].is_plain:
        return int(high - low + 1 - held.count())
    covered = held.agg(F.sum("size")).collect()[0][0] or 0
    return int(covered < high - low + 1)


def _number_logs(raw: DataFrame) -> dict[Log, int]:
    """Return a number for each log: a node has one in each of its groups."""
    rows = raw.select(F.coalesce("group", F.lit(0)).alias("group"), "node").distinct().collect()
    logs = sorted((row.group, row.node) for row in rows)
    if len(logs) > NODES_MAX:
        raise BrokenHistoryError(f"replica_log: {len(logs)} nodes, more than {NODES_MAX}")
    return {log: number for number, log in enumerate(logs)}


def _identity() -> Column:
    exact = F.xxhash64("entry_crc", "size", "body_hash", "type")
    columns = ("type", "topic", "queue_id", "queue_offset", "msg_key", "body_hash")
    return F.when(F.col("entry_crc").isNotNull(), exact).otherwise(F.xxhash64(*columns))


@dataclass(slots=True)
class _NodeStats:
    """What is counted of one node's log."""

    group: int
    rows: int = 0
    first: int | None = None
    commit: int | None = None
    committed_rows: int = 0
    unreadable: tuple[str, ...] = ()


def _node_stats(
    contents: DataFrame, directories: dict[int, str], firsts: dict[int, int], plain: list[int]
) -> dict[int, _NodeStats]:
    """Count by node what it holds; what the same nodes hold is counted once.

    What is brought here is a row for each set of nodes that has something to itself.
    """
    readable = F.col("type") != "unreadable"
    reached = F.lit(0).cast("long")
    for number, first in firsts.items():
        reached = reached + F.when(F.col("index") >= first, F.lit(1 << number)).otherwise(0)
    rows = contents.withColumn("reached", reached if firsts else F.col("holders"))
    counted = (
        rows.groupBy("group", "holders", "committers", "reached")
        .agg(
            F.count(F.when(readable, 1)).alias("rows"),
            F.min(F.when(readable, F.col("index"))).alias("first"),
            F.max(F.when(readable, F.col("index"))).alias("last"),
            F.sum(F.when(readable, F.col("size").cast("long"))).alias("size"),
            F.count(F.when(~readable, 1)).alias("unreadable"),
        )
        .collect()
    )
    stats: dict[int, _NodeStats] = {}
    for row in counted:
        for number in directories:
            if not row.holders >> number & 1:
                continue
            node = stats.setdefault(number, _NodeStats(group=row.group))
            if not row.rows:
                continue
            node.rows += row.rows
            node.first = row.first if node.first is None else min(node.first, row.first)
            if row.committers >> number & 1:
                node.commit = row.last if node.commit is None else max(node.commit, row.last)
                if row.reached >> number & 1:
                    node.committed_rows += (row.size or 0) if number in plain else row.rows
    if any(row.unreadable for row in counted):
        _name_unreadable(by_node(contents.filter(~readable), directories), stats)
    return stats


def _name_unreadable(rows: DataFrame, stats: dict[int, _NodeStats]) -> None:
    """Say of each node where its files cannot be followed."""
    where = F.concat(F.coalesce("file", F.lit("?")), F.lit(" at "), "pos")
    found = rows.groupBy("node_no").agg(F.collect_set(where).alias("places")).collect()
    for row in found:
        stats[row.node_no].unreadable = tuple(sorted(row.places))


def _node_log(
    name: str,
    number: int,
    stats: dict[int, _NodeStats],
    meta: Replica | None,
    *,
    disk_fault: bool,
) -> NodeLog:
    found = stats.get(number)
    commit = meta.commit_index if meta else (found.commit if found else None)
    first = meta.first_index if meta else (found.first if found else None)
    return NodeLog(
        node=name,
        number=number,
        group=meta.group if meta else (found.group if found else 0),
        first_index=first or 0,
        commit_index=-1 if commit is None else commit,
        rows=found.rows if found else 0,
        committed_rows=found.committed_rows if found else 0,
        unreadable=found.unreadable if found else (),
        disk_fault=disk_fault,
        is_plain=meta is not None and meta.form == PLAIN,
    )


def _fold(contents: DataFrame, nodes: list[NodeLog], *, single: bool) -> DataFrame:
    """Return one row per (group, index); identities skip rows a known disk fault spoiled.

    ``single``: there is one row per index already.
    """
    excused = sum(1 << n.number for n in nodes if n.disk_fault)
    holders, committers = F.col("holders"), F.col("committers")
    to_blame = committers.bitwiseAND(F.lit(~excused))
    sound = F.when(F.col("crc_ok"), holders).otherwise(to_blame)
    settled = committers.bitwiseAND(sound) != 0
    message = settled & (F.col("type") == "message")
    identity, term = F.when(sound != 0, F.col("id")), F.when(sound != 0, F.col("term"))
    parts = {
        "holders": (F.bit_or, holders),
        "size": (F.max, F.col("size")),
        "committers": (F.bit_or, committers),
        "id_min": (F.min, identity),
        "id_max": (F.max, identity),
        "cid_min": (F.min, F.when(settled, F.col("id"))),
        "cid_max": (F.max, F.when(settled, F.col("id"))),
        "cterm_min": (F.min, F.when(settled, term)),
        "cterm_max": (F.max, F.when(settled, term)),
        "bad": (F.max, (~F.col("crc_ok") & (to_blame != 0)).cast("int")),
        # Who has something else at the index of a message does not hold it.
        "keepers": (F.bit_or, F.when(message, holders)),
    }
    for name in ("topic_h", "queue_id", "queue_offset", "msg_key", "body_hash"):
        parts[name] = (F.max, F.when(message, F.col(name)))
    rows = contents.filter("type <> 'unreadable'").withColumn("topic_h", F.xxhash64("topic"))
    if single:
        rows = rows.select("group", "index", *(c.alias(name) for name, (_, c) in parts.items()))
    else:
        folded = (fold(column).alias(name) for name, (fold, column) in parts.items())
        rows = rows.groupBy("group", "index").agg(*folded)
    return rows.withColumn("missing", _expected(nodes).bitwiseAND(F.bitwise_not("holders")))


def _expected(nodes: list[NodeLog]) -> Column:
    """Return the bits of the nodes that call the row's index committed and must hold it."""
    mask = F.lit(0).cast("long")
    for node in nodes:
        if not node.disk_fault and node.commit_index >= 0:
            within = F.col("index").between(node.first_index, node.commit_index)
            within = within & (F.col("group") == node.group)
            mask = mask + F.when(within, F.lit(1 << node.number)).otherwise(0).cast("long")
    return mask


def missing_nodes(context: Context, entries: LogEntries | None) -> str:
    """Return a line if there is no log of a node that run.json names; else nothing."""
    nodes = context.history.run.get("nodes")
    named = [str(node) for node in nodes] if isinstance(nodes, list | dict) else []
    held = {node.node for node in entries.nodes} if entries else set()
    absent = [name for name in named if name not in held]
    if not absent:
        return ""
    return f"the logs of {', '.join(absent)} are missing: run.json names {len(named)} nodes"


def _group_names(replicas: list[Replica], nodes: list[NodeLog]) -> dict[int, str]:
    """Return the groups' names by their numbers: of a foreign table, the numbers themselves."""
    return {r.group: r.group_name for r in replicas} or {n.group: str(n.group) for n in nodes}


def promised_copies(
    run: dict[str, Any], nodes: list[NodeLog], names: dict[int, str], told_of: int = 0
) -> dict[int, int]:
    """Return by group on how many logs lies what it acknowledged.

    That is what run.json's ``quorum`` says, a number or numbers by group; else it follows from the
    contract and from how many nodes the group has. A node without a log counts where there is one
    group, or where run.json's ``nodes`` names its group. Without any log: of one group.
    ``told_of``: so many nodes said something of themselves. 0: nobody knows of how many a majority
    is.
    """
    contract = run.get("contract")
    durability = str((contract if isinstance(contract, dict) else {}).get("durability", QUORUM))
    told, named = run.get("quorum"), run.get("nodes")
    found = {}
    for group in sorted({node.group for node in nodes}) or [0]:
        size = sum(node.group == group for node in nodes)
        if len(names) <= 1:
            number = named if isinstance(named, int) else len(named or ())
            size = max(size, number, told_of)
        elif isinstance(named, dict):
            size = max(size, sum(str(one) == names.get(group) for one in named.values()))
        said = told.get(names.get(group)) if isinstance(told, dict) else told
        usual = copies(QUORUM if durability == NONE else durability, size)
        found[group] = said if isinstance(said, int) and said > 0 else usual
    return found
