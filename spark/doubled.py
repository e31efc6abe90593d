"""Which rows stand in a table twice: files that were written, or copied in, once more.

A row that is there twice counts twice, as an attempt that was never made or as a refusal. Keys are
folded into numbers, which are put in order; whatever seems to be there twice is looked at again by
all of its key. In the driver, 8 bytes for each row. The in-process checker has code of its own.

Source: docs/checking.md; the keys are data in `chaos.history.domains`.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.history.arrow import arrow_type
from chaos.history.domains import EVEN, KEYS
from chaos.history.tables import TABLES
from spark.validation import in_lower_case

FOLDED_MAX: Final = 3
"""So many numbers of a key are folded, and one word; the rest is compared where they agree."""
WHOLE: Final = ("int", "long")
SUSPECTS_MAX: Final = 100_000
"""So many that seem to be there twice are looked at, in their order."""
_ODD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


def find_doubled(table: str, files: Sequence[Path]) -> str:
    """Return which row stands in a table twice, in words; empty if none does.

    Errors: OSError, pa.ArrowException if a file cannot be read.
    """
    names = KEYS.get(table, ())
    if not names:
        return ""
    types = {one.name: one.type for one in TABLES[table]}
    few = [name for name in names if types[name] in WHOLE][:FOLDED_MAX]
    few += [name for name in names if types[name] == "string"][:1]
    folded = [_fold(rows, few) for rows in _keys(table, files, (names[0], *few))]
    numbers = np.sort(np.concatenate([np.zeros(0, np.uint64), *folded]))
    suspects = np.unique(numbers[1:][numbers[1:] == numbers[:-1]])[:SUSPECTS_MAX]
    if not len(suspects):
        return ""
    seen: set[tuple[Any, ...]] = set()
    twice: list[tuple[Any, ...]] = []
    for rows in _keys(table, files, names):
        mine = rows.filter(pa.array(np.isin(_fold(rows, few), suspects)))
        for key in zip(*(column.to_pylist() for column in mine.columns), strict=True):
            twice += [key] if key in seen else []
            seen.add(key)
    if not twice:
        return ""
    words = ", ".join(f"{n} {v}" for n, v in zip(names[:2], twice[0], strict=False))
    more = f" (and {len(twice) - 1} more)" if len(twice) > 1 else ""
    return f"a row is there twice: {words}{more}; keep one of them"


def find_uneven(table: str, files: Sequence[Path]) -> str:
    """Return which column some rows of one kind fill and others do not; empty if there is none.

    Errors: OSError, pa.ArrowException if a file cannot be read.
    """
    if table not in EVEN:
        return ""
    name, kind = EVEN[table]
    filled: set[str] = set()
    empty: set[str] = set()
    for file in files:
        with pq.ParquetFile(file) as parquet:
            given, theirs = _given(parquet, (kind, name))
            for rows in parquet.iter_batches(columns=theirs) if given else ():
                batch, none = in_lower_case(rows), pa.nulls(rows.num_rows)
                kinds, values = (
                    _plain(batch.column(one)) if one in given else none for one in (kind, name)
                )
                there = pc.is_valid(values)
                filled |= {*map(str, pc.unique(kinds.filter(there)).to_pylist())}
                empty |= {*map(str, pc.unique(kinds.filter(pc.invert(there))).to_pylist())}
    if not (odd := sorted(filled & empty)):
        return ""
    return f"{name} is null in some rows of {kind} {odd[0]}: fill it in all of them or in none"


def _keys(table: str, files: Sequence[Path], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the rows that say the first of them; of others nothing is known."""
    names = list(dict.fromkeys(names))
    types = {one.name: arrow_type(one.type) for one in TABLES[table]}
    for file in files:
        with pq.ParquetFile(file) as parquet:
            given, theirs = _given(parquet, names)
            if names[0] not in given:
                continue
            for found in parquet.iter_batches(columns=theirs):
                batch, empty = in_lower_case(found), pa.nulls(found.num_rows)
                columns = [
                    pc.cast(_plain(batch.column(name)) if name in given else empty, types[name])
                    for name in names
                ]
                rows = pa.RecordBatch.from_arrays(columns, names=names)
                first = rows.column(0)
                yield rows.filter(pc.is_valid(first)) if first.null_count else rows


def _given(parquet: pq.ParquetFile, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which of these columns a file has, and how it writes their names."""
    known = {name.lower(): name for name in parquet.schema_arrow.names}
    given = [name for name in names if name in known]
    return given, [known[name] for name in given]


def _fold(rows: pa.RecordBatch, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return a number for each row, by these columns; the values of words are few."""
    found = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        column = rows.column(name)
        if pa.types.is_string(column.type):
            coded = column.dictionary_encode()
            sums = [zlib.crc32(str(word).encode()) for word in coded.dictionary.to_pylist()]
            column = pc.take(pa.array(sums, pa.int64()), coded.indices)
        column = pc.cast(column, pa.int64())
        column = pc.fill_null(column, -1) if column.null_count else column
        found = (found ^ column.to_numpy(zero_copy_only=False).view(np.uint64)) * _ODD
        found ^= found >> _SHIFT
    return found


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
