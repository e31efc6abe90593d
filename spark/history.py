"""A run directory as DataFrames: finds the tables, names what is broken, fills what is missing.

Accepts histories of others: several files per table, absent tables, absent or null columns, other
column order, narrower integers. Before Spark sees a file its footer is read, so a damaged file is
named and the number of rows is known in advance. Source: spec/proof.md 4.3.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all Spark code uses
from pyspark.sql.types import ArrayType, StructField, StructType

from chaos.catalogue.checks import (
    BARE,
    EMPTY,
    LEFT_OUT,
    MISSING,
    ODD,
    PARTIAL,
    REFUSED,
    REPLICAS,
    RUN_JSON,
    UNREAD,
    without,
)
from chaos.history.arrow import arrow_schema
from chaos.history.domains import (
    FILLED,
    MEMBERS,
    SPANS,
    THERE,
    TOLERANCE,
    TOLERANCE_MAX_NS,
    WITHOUT_RAFT,
)
from chaos.history.tables import TABLES
from spark.doubled import find_doubled, find_uneven
from spark.schema import struct_type
from spark.validation import (
    Seen,
    Span,
    is_unlike,
    look_through,
    not_for_spark,
    odd_members,
    strange_bounds,
    try_to_read,
    unlike_clocks,
    usable_members,
)

INPUT_TABLES: Final = (
    "sends",
    "deliveries",
    "acks",
    "txn",
    "events",
    "raft_probe",
    "raft_event",
    "replica_log",
    "queue_index",
    "drain",
    "faults",
    "answers",
    "masters",
    "node_log",
)
ROWS_PER_PARTITION: Final = 400_000
PARTITIONS_MIN: Final = 2
PARTITIONS_MAX: Final = 4096


class BrokenHistoryError(Exception):
    """A file of the run cannot be used; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """The Parquet files of one table, and what their footers say."""

    name: str
    files: tuple[Path, ...]
    schemas: tuple[pa.Schema, ...]
    rows: int
    spans: dict[str, Span] = field(default_factory=dict)
    """The earliest and the latest time in each column of the run's one clock."""
    silent: tuple[str, ...] = ()
    """Columns that have to say something and that some rows leave empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some sends of a history, and what became of them.

    Those that began ``after`` a time, or had ended ``before`` one, with what was read by then.
    """

    after: int | None = None
    before: int | None = None
    anew: tuple[str, ...] = ()
    """Topics that were made anew: which of them a commit means nobody knows."""


@dataclass(slots=True, kw_only=True)
class History:
    """A run directory that was looked at but not yet read."""

    path: Path
    run: dict[str, Any]
    tables: dict[str, TableFiles] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)
    """Tables that were refused or lost, and members of run.json that nobody can use: why."""
    part: Part | None = None
    """What of it is judged; None: all."""
    named: str = ""
    """The one run id that all sends name, where run.json has none."""

    @property
    def run_id(self) -> str:
        """Return the run's id: run.json's, else what the sends name, else the directory's name."""
        return str(self.run.get("run_id") or self.named or self.path.resolve().name)

    def lacks(self, check: str) -> str:
        """Return what a check rests on and cannot have, in words; empty if it has all."""
        return without(check, self.unusable)

    @property
    def tolerance(self) -> int:
        """By how much the clocks of several hosts may differ (ns), as run.json declares it."""
        told = self.run.get(TOLERANCE, 0)
        return told if isinstance(told, int) and 0 < told <= TOLERANCE_MAX_NS else 0

    def rows(self, table: str) -> int:
        """Return the number of rows of a table, 0 if it is absent."""
        found = self.tables.get(table)
        return found.rows if found else 0

    def partitions(self, log_rows: int) -> int:
        """Return how many shuffle partitions suit this history and ``log_rows`` log entries."""
        total = self.rows("sends") + self.rows("deliveries") + max(log_rows, 0)
        return max(PARTITIONS_MIN, min(PARTITIONS_MAX, -(-total // ROWS_PER_PARTITION)))


def open_history(path: Path) -> History:
    """Look at every file of a run; what cannot be read is listed in ``problems``.

    Errors: FileNotFoundError if ``path`` is not a directory, or nothing in it is of a run.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"no run directory at {path}")
    if not (path / "run.json").exists() and not any(_files_of(path, t) for t in INPUT_TABLES):
        raise FileNotFoundError(f"{path} is no recorded run: it has neither run.json nor tables")
    history = History(path=path, run={})
    _open_run_json(history, path / RUN_JSON)
    for name in INPUT_TABLES:
        files = _files_of(path, name)
        if files and not (name == "replica_log" and has_dumps(path)):
            _open_table(history, name, files)
    for name, line in _misplaced(path):
        history.problems.append(line)
        if name in INPUT_TABLES:
            history.unusable[name] = REFUSED
            history.tables.pop(name, None)
    spans = {name: table.spans for name, table in history.tables.items()}
    for name, line in unlike_clocks(spans).items():
        history.problems.append(f"{path / 'tables'}: {line}")
        history.unusable[name] = REFUSED
        del history.tables[name]
    _note_absent(history)
    _note_empty(history)
    if not history.run.get("run_id"):
        history.named = _find_run_id(history)
    return history


def _open_run_json(history: History, file: Path) -> None:
    """Read run.json, and note what of it nobody can use."""
    known = len(history.problems)
    if file.exists() and not file.is_file():  # nobody may ever write into a pipe
        history.problems.append(f"{file}: not a JSON object: not a file")
    elif file.exists():
        try:
            history.run = dict(json.loads(file.read_text()))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            history.problems.append(f"{file}: not a JSON object: {error}")
    if len(history.problems) > known:
        history.unusable |= dict.fromkeys((RUN_JSON, *MEMBERS), UNREAD)
    odd = odd_members(history.run)
    for line in odd:
        name = line.split()[0].partition(".")[0]
        if name in MEMBERS:
            history.unusable[name] = ODD
    odd += strange_bounds(history.run.get("contract"))
    history.problems += [f"{file}: {line}" for line in odd]
    history.run = usable_members(history.run)
    history.unusable |= dict.fromkeys(map(str, history.run.get(LEFT_OUT) or ()), PARTIAL)
    # What the harness says went wrong with itself (A48) leaves nothing proved.
    told = history.run.get("problems")
    history.problems += [f"{file}: {p}" for p in told] if isinstance(told, list) else []


def _note_absent(history: History) -> None:
    """Note each table that run.json names and that is not there."""
    recorded, path = history.run.get("tables"), history.path
    for name in map(str, recorded if isinstance(recorded, list) else ()):
        if not _files_of(path, name):
            history.problems.append(f"the table {name} is missing, and {path / RUN_JSON} names it")
            history.unusable[name] = MISSING


def _note_empty(history: History) -> None:
    """Note each table that somebody recorded, by run.json's word, and that has no rows."""
    recorded, contract = history.run.get("tables"), history.run.get("contract")
    durability = contract.get("durability") if isinstance(contract, dict) else None
    named = recorded if isinstance(recorded, list) else []
    for name, table in history.tables.items():
        noted_by_none = name == "raft_event" and durability in WITHOUT_RAFT
        is_lost = name in named and name in FILLED and not noted_by_none
        if not table.rows and (is_lost or name == "events"):
            history.problems.append(f"{history.path / 'tables' / name}: the table {name} is empty")
            history.unusable |= {name: EMPTY} if is_lost else {}
    if has_dumps(history.path):
        return
    logs = history.tables.get("replica_log")
    if "replica_log" in history.unusable:
        history.unusable[REPLICAS] = history.unusable["replica_log"]
    elif logs is not None and logs.silent:
        columns = ", ".join(f"replica_log.{name}" for name in logs.silent)
        history.unusable[REPLICAS] = f"{BARE} {columns}"


def has_dumps(path: Path) -> bool:
    """Tell whether disks of nodes were copied: then nobody reads ``replica_log``."""
    root = path / "replicas"
    return root.is_dir() and any(one.is_dir() for one in root.iterdir())


def _misplaced(path: Path) -> list[tuple[str, str]]:
    """Return what this job does not read, by table, and a line for each: tables and parts of them.

    Half of a table would be taken for all of it.
    """
    root = path / "tables"
    beside = [one for one in (root.iterdir() if root.is_dir() else ()) if one.name[0] not in "._"]
    lines = []
    for one in sorted(beside):
        is_file, is_parquet = not one.is_dir(), one.suffix == ".parquet"
        table = one.name.removesuffix(".parquet") if is_parquet or not is_file else one.name
        if table not in TABLES and (is_parquet if is_file else any(one.rglob("*.parquet"))):
            lines.append((table, f"{one}: {table} is no table of a history, and was not read"))
        elif is_file and not is_parquet and (table := table.partition(".")[0]) in TABLES:
            lines.append((table, f"{one}: only Parquet is read of the table {table}"))
    return lines + [
        (table, line)
        for table in TABLES
        for folder in _folders_of(path, table)
        if (line := _strange_in(folder, table, is_usual=folder.parent == root))
    ]


def _strange_in(folder: Path, table: str, *, is_usual: bool) -> str:
    """Return what is in a table's folder and is none of its files, in words; or that none is."""
    found = sorted(one for one in folder.rglob("*") if _is_meant(one))
    odd = [one for one in found if one.suffix != ".parquet"]
    if odd:
        return f"{odd[0]}: only Parquet is read of the table {table}"
    return "" if found or not is_usual else f"{folder}: no Parquet file is in it"


def _find_run_id(history: History) -> str:
    """Return the run id that all sends name; empty if there is none, or several."""
    found: set[Any] = set()
    sends = history.tables.get("sends")
    for file, schema in zip(sends.files, sends.schemas, strict=True) if sends else ():
        for name in (name for name in schema.names if name.lower() == "run_id"):
            found |= set(pc.unique(pq.read_table(file, columns=[name])[name]).to_pylist())
    found -= {None, ""}
    return str(found.pop()) if len(found) == 1 else ""


def _files_of(path: Path, name: str) -> list[Path]:
    """Return the files of a table: one beside the others' folders, or any number in its own."""
    single = path / "tables" / f"{name}.parquet"
    files = [file for folder in _folders_of(path, name) for file in folder.rglob("*.parquet")]
    files += [single] if single.exists() or single.is_symlink() else []
    return sorted(file for file in files if _is_meant(file))


def _folders_of(path: Path, name: str) -> list[Path]:
    return [folder for folder in (path / "tables" / name, path / name) if folder.is_dir()]


def _is_meant(file: Path) -> bool:
    """Whether a file is one of a table; it may be a pipe all the same, see `_open_file`."""
    return not file.name.startswith((".", "_")) and not file.is_dir()


def _open_table(history: History, name: str, files: list[Path]) -> None:
    schemas, rows, seen, whole = [], 0, Seen(), True
    for file in files:
        opened = _open_file(name, file)
        if isinstance(opened, str):
            history.problems.append(f"{file}: {opened}")
            whole = False
            continue
        schema, number = opened
        complaints = _misread(file, name, schema)
        found = Seen(complaints=complaints) if complaints else _impossible(file, name, schema)
        history.problems += [f"{file}: {line}" for line in found.complaints]
        whole = whole and not found.complaints
        seen.join(found)
        schemas.append(schema)
        rows += number
    if whole and (twice := _doubled(name, files)):
        history.problems.append(f"{history.path / 'tables' / name}: {twice}")
        whole = False
    if not whole:
        history.unusable[name] = REFUSED
        return
    history.tables[name] = TableFiles(
        name=name, files=tuple(files), schemas=tuple(schemas), rows=rows, spans=seen.spans,
        silent=tuple(sorted(seen.silent)),
    )  # fmt: skip


def _doubled(name: str, files: list[Path]) -> str:
    """Return what is wrong with all files together, or that they cannot be read; empty if not."""
    try:
        return find_doubled(name, files) or find_uneven(name, files)
    except (OSError, pa.ArrowException) as error:
        return f"its data cannot be read: {_first_line(error)}"


def _open_file(name: str, file: Path) -> tuple[pa.Schema, int] | str:
    """Return the columns of a file and its number of rows, or why it is of no use."""
    if not file.is_file():  # nobody may ever write into a pipe
        return "not a regular file"
    try:
        with pq.ParquetFile(file) as parquet:
            schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        return f"not a readable Parquet file: {_first_line(error)}"
    required = [c.name for c in TABLES[name] if not c.nullable and c.name != "run_id"]
    given = {field.name.lower() for field in schema if not (rows and pa.types.is_null(field.type))}
    missing = [one for one in (*required, *THERE.get(name, ())) if one not in given]
    if missing:
        return f"required columns are missing; add {', '.join(missing)}"
    return schema, rows


def _impossible(file: Path, name: str, schema: pa.Schema) -> Seen:
    """Return what no history can say, and what else was seen; so may be a broken page."""
    try:
        return look_through(file, name, schema)
    except (OSError, pa.ArrowException) as error:
        return Seen(complaints=[f"its data cannot be read: {_first_line(error)}"])


def _misread(file: Path, name: str, schema: pa.Schema) -> list[str]:
    """Return what in the columns of other types than declared cannot be understood.

    Spark would make nulls of it, and a null outcome or key looks like an outcome of a message.
    """
    found: list[str] = []
    declared = {f.name: f.type for f in arrow_schema(name)}
    for given in schema:
        wanted = declared.get(given.name.lower())
        if wanted is None or wanted == given.type:
            continue
        if is_unlike(given.type, wanted):
            found.append(f"column {given.name} is {given.type}, and has to be {wanted}")
            continue
        try:
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(columns=[given.name]):
                    try_to_read(batch.column(0), wanted)
                    if why := not_for_spark(batch.column(0), wanted):
                        raise pa.ArrowInvalid(why)
        except (OSError, pa.ArrowException) as error:
            found.append(
                f"column {given.name} is {given.type} and cannot be read as {wanted}: "
                f"{_first_line(error)}"
            )
    return found


def read_table(session: SparkSession, history: History, name: str) -> DataFrame:
    """Return a table with exactly the declared columns; an absent table is empty."""
    target = struct_type(name)
    found = history.tables.get(name)
    if found is None:
        return no_rows(session, target)
    groups: dict[bool, list[Path]] = {}
    for file, schema in zip(found.files, found.schemas, strict=True):
        groups.setdefault(_as_declared(name, schema), []).append(file)
    parts = []
    if True in groups:
        paths = [str(file) for file in groups[True]]
        parts.append(session.read.schema(target).parquet(*paths))
    for file in groups.get(False, []):
        raw = session.read.parquet(str(file))
        present = {column.name.lower(): column for column in raw.schema.fields}
        parts.append(raw.select(*(_column(present.get(f.name), f) for f in target.fields)))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    rows = _widened(whole, name, history.tolerance)
    return rows if history.part is None else _part_of(session, history, name, rows)


def _column(given: StructField | None, wanted: StructField) -> Column:
    """Return a column of a file as it is declared; null where the file has none.

    Spark takes the members of a struct by their order, and a column without values for a number.
    """
    is_nested = isinstance(wanted.dataType, ArrayType | StructType)
    if given is None or (is_nested and not isinstance(given.dataType, ArrayType | StructType)):
        return F.lit(None).cast(wanted.dataType).alias(wanted.name)
    column = F.col(f"`{given.name}`")
    if not isinstance(wanted.dataType, StructType) or not isinstance(given.dataType, StructType):
        return column.cast(wanted.dataType).alias(wanted.name)
    names = given.dataType.names
    members = [
        (column.getField(one.name) if one.name in names else F.lit(None)).cast(one.dataType)
        for one in wanted.dataType.fields
    ]
    named = zip(members, wanted.dataType.names, strict=True)
    whole = F.struct(*(member.alias(name) for member, name in named))
    return F.when(column.isNotNull(), whole).alias(wanted.name)


def _part_of(session: SparkSession, history: History, name: str, rows: DataFrame) -> DataFrame:
    """Return the rows of a table that speak of the sends in a part of the history."""
    part = history.part
    assert part is not None, "asked only of a part"
    if name == "sends":
        return rows.filter(
            f"t_inv > {part.after}" if part.before is None else f"t_cmp < {part.before}"
        )
    if name not in {"deliveries", "acks", "txn"}:
        return rows
    if part.before is not None and name == "deliveries":
        rows = rows.filter(f"t_recv < {part.before}")
    keys = read_table(session, history, "sends").select("msg_key").distinct()
    about = rows.join(keys, "msg_key", "left_semi").select(*rows.columns)
    if name != "acks":
        return about
    timed = f"t_cmp < {part.before}" if part.before is not None else f"t_inv > {part.after}"
    timed += " and t_inv is not null and t_cmp is not null"
    is_anew = F.coalesce(F.col("topic").isin(list(part.anew)), F.lit(col=False))
    commits = F.expr(f"kind = 'commit' and {timed}") & ~is_anew
    # Where an offset was set anew it was so all the time.
    offsets = rows.filter(F.expr("kind = 'reset'") | commits)
    return about.filter("kind not in ('commit', 'reset')").unionByName(offsets)


def _widened(table: DataFrame, name: str, tolerance: int) -> DataFrame:
    """Return operations that begin so much earlier and end so much later: by any host's clock."""
    begins, ends = SPANS.get(name, ((), ()))
    if not tolerance:
        return table
    moved = {column: F.col(column) - tolerance for column in begins}
    return table.withColumns(moved | {column: F.col(column) + tolerance for column in ends})


def no_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty table that plans know to be empty; one made of a list starts Python."""
    columns = (F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields)
    return session.range(1).select(*columns).filter(F.lit(col=False))


def few_rows(session: SparkSession, rows: Sequence[Sequence[Any]], ddl: str) -> DataFrame:
    """Return a table of a few rows as part of the plan: no Python process has to bring them."""
    return session.range(1).select(F.inline(array_of(rows, ddl)))


def array_of(rows: Sequence[Sequence[Any]], ddl: str) -> Column:
    """Return a few rows as an array of structs: one literal, however many they are."""
    names = [column.split()[0] for column in ddl.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return F.from_json(F.lit(text), f"array<struct<{ddl.replace(' ', ':')}>>".replace(",:", ", "))


def _as_declared(name: str, schema: pa.Schema) -> bool:
    """Whether every column in the file has the declared type (absent ones read as null)."""
    declared = {f.name: f.type for f in arrow_schema(name)}
    return all(declared.get(f.name.lower(), f.type) == f.type for f in schema)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
