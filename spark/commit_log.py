"""The replicas' disks as a DataFrame: every data segment of every node, decoded in parallel.

One Spark partition per segment, or per part of a large one (`mapInArrow` over `spark.copies`), so
it scales with bytes, not with nodes or files. Layout: ``RUN/replicas/<node>/meta.json`` and
``RUN/replicas/<node>/data/<20 digits>``; workers must see the same path. Source: spec/disk.md 6.1.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from chaos.history.domains import DLEDGER, NUMBERS_MAX
from spark.copies import (
    CONTENTS,
    FORMS,
    PART_BYTES,
    Replica,
    Task,
    cut,
    decode_copies,
    find_cuts,
    segment_tasks,
    used_bytes,
)
from spark.history import BrokenHistoryError, no_rows

NODES_MAX: Final = 62  # a node is one bit of a long in the checks
SEGMENT_NAME_DIGITS: Final = 20
_CUTS: Final = pa.schema([(name, pa.int64()) for name in ("task", "copy", "part", "begin")])


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
    indexes = [_indexes(node / "meta.json", meta) for node, meta in zip(nodes, metas, strict=True)]
    groups = sorted({str(meta.get("group") or 0) for meta in metas})
    replicas = []
    for number, (node, meta, index) in enumerate(zip(nodes, metas, indexes, strict=True)):
        names = [f for f in (node / "data").glob("*") if len(f.name) == SEGMENT_NAME_DIGITS]
        for file in names:
            if not file.is_file():  # nobody may ever write into a pipe
                raise BrokenHistoryError(f"{file}: not a regular file")
        replicas.append(
            Replica(
                node=str(meta.get("node") or node.name),
                number=number,
                group=groups.index(str(meta.get("group") or 0)),
                group_name=str(meta.get("group") or 0),
                form=str(meta.get("format") or DLEDGER),
                boot_id=None if meta.get("boot_id") is None else str(meta["boot_id"]),
                first_index=index["first_index"] or 0,
                end_index=index["end_index"],
                commit_index=index["commit_index"] or 0,
                segments=tuple(str(f) for f in sorted(names) if f.name.isdigit()),
            )
        )
    return replicas


def read_contents(
    session: SparkSession, replicas: list[Replica], part_bytes: int = PART_BYTES
) -> DataFrame:
    """Return what is in the segments of ``replicas``, in the shape of `spark.copies.CONTENTS`.

    Segments of more than ``part_bytes`` are read in parts. Errors: BrokenHistoryError.
    """
    tasks = _split(session, segment_tasks(replicas), part_bytes)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from decode_copies(tasks[number])

    if not tasks:
        return no_rows(session, from_arrow_schema(CONTENTS))
    numbers = session.range(0, len(tasks), 1, numPartitions=len(tasks))
    return numbers.mapInArrow(read, from_arrow_schema(CONTENTS))


def _split(session: SparkSession, tasks: list[Task], part_bytes: int) -> list[Task]:
    """Return the tasks with large segments cut; workers follow their sizes, one task each."""
    large = [task for task in tasks if used_bytes(task) > part_bytes]
    if not large:
        return tasks

    def look(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = [(number, *cut) for cut in find_cuts(large[number], part_bytes)]
                columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
                if rows:
                    yield pa.RecordBatch.from_arrays(columns, schema=_CUTS)

    numbers = session.range(0, len(large), 1, numPartitions=len(large))
    found: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(len(large))}
    for row in numbers.mapInArrow(look, from_arrow_schema(_CUTS)).collect():
        found[row.task].append((row.copy, row.part, row.begin))
    parts = [part for number, task in enumerate(large) for part in cut(task, found[number])]
    return [task for task in tasks if task not in large] + parts


def _read_meta(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():  # nobody may ever write into a pipe
        raise BrokenHistoryError(f"{path}: not a regular file")
    try:
        meta = dict(json.loads(path.read_text()))
        FORMS[meta.get("format") or DLEDGER]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _broken(path, f"{type(error).__name__}: {error}") from error
    return meta


def _indexes(path: Path, meta: dict[str, Any]) -> dict[str, int | None]:
    """Return the indexes that a meta.json tells. Errors: BrokenHistoryError if one can be none."""
    if meta.get("commit_index") is None:
        raise _broken(path, "there is none")
    found: dict[str, int | None] = {}
    for name in ("commit_index", "first_index", "end_index"):
        told = meta.get(name)
        try:
            index = None if told is None else int(told)
        except (ValueError, TypeError, OverflowError) as error:
            raise _broken(path, f"{name}: {error}") from error
        is_cut = isinstance(told, float) and told != index
        if isinstance(told, bool) or is_cut or abs(index or 0) >= NUMBERS_MAX:
            raise _broken(path, f"{name} is {told!r}")
        found[name] = index
    return found


def _broken(path: Path, why: str) -> BrokenHistoryError:
    return BrokenHistoryError(f"{path}: needs a JSON object with at least commit_index: {why}")
