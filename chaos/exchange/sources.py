"""Rows of files of others, one at a time, each with the line on which it stands.

CSV with a header, JSON lines, Parquet. What is no row is told with its line, not skipped here.
Nothing is held but the row at hand (of Parquet: a batch). Knows no table of ours.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.inflated import BATCH_ROWS, check_inflated

LINE_CHARS_MAX: Final = 16 << 20
"""The longest line, or cell, that is read: bodies belong into files as their hashes."""
SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "csv": (".csv", ".tsv"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet",),
    "jepsen-edn": (".edn",),
}


class SourceError(Exception):
    """A file cannot be read at all; the message names it and says what to do."""


class Nanoseconds(int):
    """A time whose type says its unit: a timestamp of Parquet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One row: where it stands, and its cells, or why it is none."""

    line: int
    cells: Mapping[str, Any]
    wrong: str = ""


def find_files(source: Path, kind: str, pattern: str) -> list[Path]:
    """Return the files of a kind whose names match: ``source`` itself, or those below it.

    Errors: SourceError if there is none.
    """
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise SourceError(f"{source}: no such file or directory")
    named = (
        file
        for file in sorted(source.rglob("*"))
        if file.suffix in SUFFIXES[kind] and file.is_file()
    )
    found = [file for file in named if fnmatch(str(file.relative_to(source)), pattern)]
    if not found:
        endings = " or ".join(SUFFIXES[kind])
        raise SourceError(f"{source}: no file {pattern} that ends in {endings}")
    return found


def rows_of(file: Path, kind: str) -> Iterator[SourceRow]:
    """Yield the rows of a file. Errors: SourceError if it cannot be opened or has no header."""
    readers = {"csv": _csv_rows, "jsonl": _json_rows, "parquet": _parquet_rows}
    try:
        yield from readers[kind](file)
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SourceError(f"{file}: cannot be read as {kind}: {first}") from error


def lines_of(file: Path, text: TextIO) -> Iterator[str]:
    """Yield the lines of ``text``, one at a time; ``file`` is for the error.

    Errors: SourceError if one is longer than `LINE_CHARS_MAX`, and then it is not read to its end.
    """
    number = 0
    while line := text.readline(LINE_CHARS_MAX):
        number += 1
        if len(line) == LINE_CHARS_MAX and not line.endswith(("\n", "\r")):
            raise SourceError(
                f"{file}:{number}: the line is longer than {LINE_CHARS_MAX} characters"
            )
        yield line


def _csv_rows(file: Path) -> Iterator[SourceRow]:
    csv.field_size_limit(min(LINE_CHARS_MAX, sys.maxsize))
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        delimiter = "\t" if file.suffix == ".tsv" else ","
        reader = csv.reader(lines_of(file, lines), delimiter=delimiter, strict=True)
        try:
            header = next(reader, None)
        except csv.Error as error:
            raise SourceError(f"{file}:1: not CSV: {error}") from error
        if not header or len(set(header)) != len(header):
            raise SourceError(f"{file}:1: write a header: a name for each column, none twice")
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield SourceRow(line=line, cells={}, wrong=f"not CSV: {error}")
                continue
            if not cells:
                continue
            if len(cells) != len(header):
                wrong = f"{len(cells)} cells under {len(header)} columns"
                yield SourceRow(line=line, cells={}, wrong=wrong)
                continue
            yield _decoded(line, dict(zip(header, cells, strict=True)))


def _json_rows(file: Path) -> Iterator[SourceRow]:
    with file.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, text in enumerate(lines_of(file, lines), start=1):
            if not text.strip():
                continue
            try:
                cells = json.loads(text, parse_float=Decimal)
            except (ValueError, RecursionError) as error:
                yield SourceRow(line=number, cells={}, wrong=f"not JSON: {error}")
                continue
            if not isinstance(cells, dict):
                yield SourceRow(line=number, cells={}, wrong="not a JSON object")
                continue
            yield _decoded(number, cells)


def _parquet_rows(file: Path) -> Iterator[SourceRow]:
    number = 0
    check_inflated(file)
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        names = parquet.schema_arrow.names
        if len(set(names)) != len(names):
            raise SourceError(f"{file}: a column is there twice: {', '.join(names)}")
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS):
            columns = [_plain(column) for column in batch.columns]
            for cells in zip(*columns, strict=True):
                number += 1
                yield SourceRow(line=number, cells=dict(zip(names, cells, strict=True)))


def _plain(values: pa.Array) -> list[Any]:
    """Return the cells of a column as Python has them; timestamps in nanoseconds."""
    if not pa.types.is_timestamp(values.type):
        return list(values.to_pylist())
    exact = pc.cast(pc.cast(values, pa.timestamp("ns", tz=values.type.tz)), pa.int64())
    return [None if value is None else Nanoseconds(value) for value in exact.to_pylist()]


def _decoded(line: int, cells: Mapping[str, Any]) -> SourceRow:
    for name, value in cells.items():
        if isinstance(value, str) and is_broken(value):
            return SourceRow(line=line, cells={}, wrong=f"{name} is not UTF-8")
    return SourceRow(line=line, cells=cells)


def is_broken(value: str) -> bool:
    """Tell whether a text has halves of surrogate pairs: it was no UTF-8, and cannot be written."""
    return not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)
