"""A run directory under construction: tables written in pieces, and what is known of their rows.

Holds one piece of each table in memory, and a few numbers per queue. Whatever is made appears under
its name only when it is whole. Source: spec/proof.md 4.3 (files of a million rows).
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from chaos.checker.model import is_copy
from chaos.exchange.cells import Names
from chaos.history.arrow import arrow_schema
from chaos.history.tables import TABLES

Row = dict[str, Any]
ROWS_AT_ONCE: Final = 50_000
CHARS_AT_ONCE: Final = 32 << 20
"""Of the texts of a piece, if they are long."""
ROWS_PER_FILE: Final = 1_000_000
QUEUES_MAX: Final = 1_000_000
_KEYS: Final = pa.schema([("msg_key", pa.int64()), ("name", pa.string())])


class FullError(Exception):
    """A history has more queues or groups than can be told apart; the message says so."""


class TableWriter:
    """Writes the rows of one table, a file for each million."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory, self._schema = directory, schema
        self._rows: list[Row] = []
        self._chars = 0
        self._in_file = self._files = 0
        self._file: pq.ParquetWriter | None = None
        self.rows = 0
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Take a row; columns that it lacks are null. Errors: OSError."""
        self._rows.append(row)
        self.rows += 1
        self._chars += sum(_chars_of(value) for value in row.values())
        if len(self._rows) >= ROWS_AT_ONCE or self._chars >= CHARS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write what is left. Errors: OSError."""
        if self._rows or not self._files:
            self._flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _flush(self) -> None:
        columns = {name: [row.get(name) for row in self._rows] for name in self._schema.names}
        piece = pa.Table.from_pydict(columns, schema=self._schema)
        if self._file is None:
            path = self._directory / f"part-{self._files:04d}.parquet"
            self._file = pq.ParquetWriter(
                path, self._schema, compression="zstd", write_page_checksum=True
            )
            self._files, self._in_file = self._files + 1, 0
        self._file.write_table(piece)
        self._in_file += len(self._rows)
        self._rows, self._chars = [], 0
        if self._in_file >= ROWS_PER_FILE:
            self._file.close()
            self._file = None


def _chars_of(value: object) -> int:
    if isinstance(value, list):
        return sum(map(_chars_of, value))
    return len(value) if isinstance(value, str) else 0


@dataclass(slots=True, kw_only=True)
class Queues:
    """Of each queue its lowest and highest known offset, and who reads which topic."""

    bounds: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    readers: dict[str, set[str]] = field(default_factory=dict)

    def see(self, table: str, row: Mapping[str, Any]) -> None:
        """Note what a row tells. Errors: FullError."""
        topic, queue_id = row.get("topic"), row.get("queue_id")
        copied = table == "deliveries" and is_copy(row)
        if table == "deliveries" and not row.get("auditor") and (not copied or row.get("is_dlq")):
            self.readers.setdefault(str(row["grp"]), set()).add(str(topic))
        if topic is None or queue_id is None:
            return
        queue = (str(topic), int(queue_id))
        if table == "acks" and row.get("kind") == "commit" and row.get("value_offset") is not None:
            self.commits[queue] = max(self.commits.get(queue, 0), int(row["value_offset"]))
        if table in {"sends", "deliveries"} and not copied:
            offset = row.get("queue_offset")
            low_high = self.bounds.setdefault(queue, [])
            if offset is not None:
                known = [*low_high, int(offset)]
                low_high[:] = [min(known), max(known)]
        if max(len(self.bounds), len(self.commits), len(self.readers)) > QUEUES_MAX:
            raise FullError(f"more than {QUEUES_MAX} queues or groups: is a column mapped wrongly?")

    def drained(self, groups: Sequence[str] | None) -> Iterator[Row]:
        """Yield rows of ``drain`` that say: these groups (None: all) read all queues to the end."""
        for grp in sorted(self.readers if groups is None else groups):
            for topic, queue_id in sorted(self.bounds):
                if topic not in self.readers.get(grp, ()):
                    continue
                seen = self.bounds[topic, queue_id] or [0, -1]
                end = max(seen[1] + 1, self.commits.get((topic, queue_id), 0))
                yield {
                    "grp": grp, "topic": topic, "queue_id": queue_id, "min_off": seen[0],
                    "end_off": end, "read_to": end, "drained": True,
                }  # fmt: skip


class RunWriter:
    """Writes a run directory; as a context manager it takes everything away again on an error.

    Errors: FileExistsError if ``out`` is there and not empty.
    """

    def __init__(self, out: Path, run_id: str) -> None:
        is_taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
        if is_taken or out.name in {"", ".."}:  # nothing can be made beside ., .. and /
            raise FileExistsError(f"{out} is there already: name another directory, or remove it")
        self.run_id = run_id or out.resolve().name
        self.names, self.queues = Names(), Queues()
        self._out = out
        self._work = out.with_name(f"{out.name}.partial")
        self._tables: dict[str, TableWriter] = {}
        self._keys: TableWriter | None = None

    def __enter__(self) -> Self:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        shutil.rmtree(self._work, ignore_errors=True)

    def add(self, table: str, row: Row) -> None:
        """Take a row, and number it where nobody did. Errors: OSError, FullError."""
        writer = self._tables.get(table)
        if writer is None:
            schema = arrow_schema(table)
            writer = self._tables[table] = TableWriter(self._work / "tables" / table, schema)
        row["run_id"] = self.run_id
        counted = "idx" if table == "events" else "op_id"
        if row.get(counted) is None and any(c.name == counted for c in TABLES[table]):
            row[counted] = writer.rows
        self.queues.see(table, row)
        writer.add(row)

    def name_key(self, msg_key: int, name: str) -> None:
        """Note what a message was called by those who sent it. Errors: OSError."""
        if self._keys is None:
            self._keys = TableWriter(self._work / "names" / "msg_key", _KEYS)
        self._keys.add({"msg_key": msg_key, "name": name})

    def rows(self) -> dict[str, int]:
        """Return how many rows each table has so far."""
        return {name: writer.rows for name, writer in self._tables.items()}

    def finish(self, about: Mapping[str, Any]) -> None:
        """Write run.json and give the directory its name. Errors: OSError."""
        for writer in (*self._tables.values(), *([self._keys] if self._keys else ())):
            writer.close()
        if self.names.queues or self.names.others:
            named = {"queue_id": self.names.queues, **self.names.others}
            text = json.dumps(named, indent=1, ensure_ascii=False)
            (self._work / "names").mkdir(exist_ok=True)
            (self._work / "names" / "numbers.json").write_text(text + "\n")
        told = {"run_id": self.run_id, **about, "tables": sorted(self._tables)}
        (self._work / "run.json").write_text(json.dumps(told, indent=1) + "\n")
        if self._out.is_dir():
            self._out.rmdir()
        self._work.rename(self._out)
