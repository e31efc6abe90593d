"""The replicas' disks as a DataFrame: every data segment of every node, decoded in parallel.

One Spark partition per segment (`mapInArrow` over `spark.segments`), so it scales with
segments, not with nodes. Layout: ``RUN/replicas/<node>/meta.json`` and
``RUN/replicas/<node>/data/<20 digits>``; workers must see the same path. Source: spec/disk.md 6.1.
"""

import json
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from chaos.history.arrow import arrow_schema
from spark.history import BrokenHistoryError, no_rows
from spark.segments import Columns, decode

NODES_MAX: Final = 62  # a node is one bit of a long in the checks
SEGMENT_NAME_DIGITS: Final = 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    run_id: str
    replica: Replica
    path: str


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
    tasks = [_Task(run_id=run_id, replica=r, path=p) for r in replicas for p in r.segments]
    schema = pa.schema(f for f in arrow_schema("replica_log") if not columns or f.name in columns)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _decode_file(tasks[number], schema)

    if not tasks:
        return no_rows(session, from_arrow_schema(schema))
    numbers = session.range(0, len(tasks), 1, numPartitions=len(tasks))
    return numbers.mapInArrow(read, from_arrow_schema(schema))


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = dict(json.loads(path.read_text()))
        int(meta["commit_index"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BrokenHistoryError(
            f"{path}: needs a JSON object with at least commit_index: "
            f"{type(error).__name__}: {error}"
        ) from error
    return meta


def _decode_file(task: _Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    path = Path(task.path)
    try:
        size = path.stat().st_size
        if size == 0:
            return
        with path.open("rb") as file:
            # Never closed by hand: rows in flight hold views, the last one frees the mapping.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for columns in decode(memoryview(data), int(path.name), task.replica.end_index):
            yield _to_batch(columns, task, schema)
    except OSError as error:
        raise BrokenHistoryError(f"segment {task.path}: {error}") from error


def _to_batch(columns: Columns, task: _Task, schema: pa.Schema) -> pa.RecordBatch:
    count = len(columns["index"])
    replica = task.replica
    constant = {
        "run_id": task.run_id,
        "node": replica.node,
        "boot_id": replica.boot_id,
        "dump_id": replica.node,
        "group": replica.group,
        "file": task.path,
    }
    columns["committed"] = [0 <= i <= replica.commit_index for i in columns["index"]]
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(constant[f.name], f.type), count)
            if f.name in constant
            else pa.array(columns[f.name], f.type)
            for f in schema
        ],
        schema=schema,
    )
