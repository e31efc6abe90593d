"""The replicas' disks as a DataFrame: every data segment of every node, decoded in parallel.

One Spark partition per segment (`mapInArrow` over `spark.segments`), so it scales with segments,
not with nodes: the nodes' copies of a segment are read side by side, and a stretch that is the same
bytes on several is decoded once. Layout: ``RUN/replicas/<node>/meta.json`` and
``RUN/replicas/<node>/data/<20 digits>``; workers must see the same path. Source: spec/disk.md 6.1.
"""

import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from chaos.history.arrow import arrow_schema
from chaos.history.domains import DLEDGER, PLAIN
from spark.history import BrokenHistoryError, no_rows
from spark.plain_segments import decode_plain, span_plain, walk_plain
from spark.segments import (
    ROWS_PER_BATCH,
    Columns,
    Walk,
    decode_entries,
    same_entries,
    span,
    unreadable,
    walk,
)

NODES_MAX: Final = 62  # a node is one bit of a long in the checks
SEGMENT_NAME_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the files of a log are read."""

    walk: Callable[[memoryview, int, int | None], Walk]
    """Finds the entries of a file: its bytes, its position, the last index if that is known."""
    decode: Callable[[memoryview, int, list[int]], Columns]
    size_at: Callable[[memoryview, int], int]


FORMS: Final = {
    DLEDGER: Form(
        walk=lambda data, _, end_index: walk(data, end_index), decode=decode_entries, size_at=span
    ),
    PLAIN: Form(walk=walk_plain, decode=decode_plain, size_at=span_plain),
}
"""By what ``meta.json`` calls the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What ``meta.json`` says of one node's dump. Indexes are -1 when nothing is there."""

    node: str
    number: int
    group: int
    boot_id: str | None
    first_index: int
    end_index: int | None
    commit_index: int
    segments: tuple[str, ...]
    group_name: str = ""
    form: str = DLEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """The copies of one segment, which begins at ``base`` on every node that has it."""

    run_id: str
    base: int
    copies: tuple[tuple[Replica, str], ...]


@dataclass(frozen=True, slots=True)
class _Copy:
    replica: Replica
    path: str
    data: memoryview
    found: Walk


def find_replicas(run: Path) -> list[Replica]:
    """Return the dumps in a run directory, ordered by node name; none if it has no replicas.

    Errors: BrokenHistoryError names a ``meta.json`` that is missing or not understood.
    """
    root = run / "replicas"
    if not root.is_dir():
        return []
    nodes = sorted(d for d in root.iterdir() if d.is_dir())
    if len(nodes) > NODES_MAX:
        raise BrokenHistoryError(f"{root}: {len(nodes)} nodes, more than {NODES_MAX}")
    metas = [_read_meta(node / "meta.json") for node in nodes]
    groups = sorted({str(meta.get("group", 0)) for meta in metas})
    replicas = []
    for number, (node, meta) in enumerate(zip(nodes, metas, strict=True)):
        names = [f for f in (node / "data").glob("*") if len(f.name) == SEGMENT_NAME_DIGITS]
        end = meta.get("end_index")
        replicas.append(
            Replica(
                node=str(meta.get("node") or node.name),
                number=number,
                group=groups.index(str(meta.get("group", 0))),
                group_name=str(meta.get("group", 0)),
                form=str(meta.get("format") or DLEDGER),
                boot_id=None if meta.get("boot_id") is None else str(meta["boot_id"]),
                first_index=int(meta.get("first_index") or 0),
                end_index=None if end is None else int(end),
                commit_index=int(meta["commit_index"]),
                segments=tuple(str(f) for f in sorted(names) if f.name.isdigit()),
            )
        )
    return replicas


def read_replicas(
    session: SparkSession, run_id: str, replicas: list[Replica], columns: Sequence[str] = ()
) -> DataFrame:
    """Return ``replica_log`` as decoded from the segments of ``replicas``.

    ``columns``: only these, in the table's order (each costs time per entry); default all.
    """
    tasks = _tasks(run_id, replicas)
    schema = pa.schema(f for f in arrow_schema("replica_log") if not columns or f.name in columns)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _decode_copies(tasks[number], schema)

    if not tasks:
        return no_rows(session, from_arrow_schema(schema))
    numbers = session.range(0, len(tasks), 1, numPartitions=len(tasks))
    return numbers.mapInArrow(read, from_arrow_schema(schema))


def _tasks(run_id: str, replicas: list[Replica]) -> list[_Task]:
    """Return a task for the copies of each segment that the nodes of a group have."""
    copies: dict[tuple[int, int], list[tuple[Replica, str]]] = {}
    for replica in replicas:
        for path in replica.segments:
            copies.setdefault((replica.group, int(Path(path).name)), []).append((replica, path))
    return [
        _Task(run_id=run_id, base=base, copies=tuple(found)) for (_, base), found in copies.items()
    ]


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = dict(json.loads(path.read_text()))
        int(meta["commit_index"])
        FORMS[meta.get("format") or DLEDGER]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BrokenHistoryError(
            f"{path}: needs a JSON object with at least commit_index: "
            f"{type(error).__name__}: {error}"
        ) from error
    return meta


def _open(task: _Task) -> list[_Copy]:
    """Map the copies and find their entries. Errors: BrokenHistoryError names a file."""
    copies = []
    for replica, name in task.copies:
        path = Path(name)
        try:
            if path.stat().st_size == 0:
                continue
            with path.open("rb") as file:
                # Never closed by hand: rows in flight hold views, the last one frees the mapping.
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise BrokenHistoryError(f"segment {name}: {error}") from error
        found = FORMS[replica.form].walk(data, task.base, replica.end_index)
        copies.append(_Copy(replica, name, data, found))
    return copies


def _form(task: _Task) -> Form:
    """Return how the copies of a file are read: they are of one group, so of one format."""
    return FORMS[task.copies[0][0].form]


def _decode_copies(task: _Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all copies of a segment; what is the same on them is decoded once."""
    copies, form = _open(task), _form(task)
    longest = max((len(copy.found.starts) for copy in copies), default=0)
    for first in range(0, longest, ROWS_PER_BATCH):
        stretches = [copy.found.starts[first : first + ROWS_PER_BATCH] for copy in copies]
        model, ours = copies[0], stretches[0]
        decoded = _arrays(form.decode(model.data, task.base, ours), schema) if ours else {}
        for copy, theirs in zip(copies, stretches, strict=True):
            same = same_entries(model.data, copy.data, ours, theirs, form.size_at)
            if same:
                shared = {name: column.slice(0, same) for name, column in decoded.items()}
                yield _to_batch(shared, copy, task, schema)
            if theirs[same:]:
                own = form.decode(copy.data, task.base, theirs[same:])
                yield _to_batch(_arrays(own, schema), copy, task, schema)
    for copy in copies:
        if copy.found.broken_at >= 0:
            row = unreadable(copy.data, task.base, copy.found.broken_at)
            yield _to_batch(_arrays(row, schema), copy, task, schema)


def _arrays(columns: Columns, schema: pa.Schema) -> dict[str, pa.Array]:
    return {
        field.name: pa.array(columns[field.name], field.type)
        for field in schema
        if field.name in columns
    } | {"index": pa.array(columns["index"], pa.int64())}


def _to_batch(
    columns: dict[str, pa.Array], copy: _Copy, task: _Task, schema: pa.Schema
) -> pa.RecordBatch:
    index, replica = columns["index"], copy.replica
    constant = {
        "run_id": task.run_id,
        "node": replica.node,
        "boot_id": replica.boot_id,
        "dump_id": replica.node,
        "group": replica.group,
        "file": copy.path,
    }
    known = pc.and_(pc.greater_equal(index, 0), pc.less_equal(index, replica.commit_index))
    columns = columns | {"committed": known}
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(constant[f.name], f.type), len(index))
            if f.name in constant
            else columns[f.name]
            for f in schema
        ],
        schema=schema,
    )
