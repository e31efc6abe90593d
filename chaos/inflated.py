"""What a Parquet file becomes when it is read, asked before it is read.

A kilobyte of it may be a million rows that all name one text of a megabyte: reading them as texts
takes the machine's memory. So texts are looked at as the file has them, a dictionary and numbers,
and what they would become is added up first. Knows no table of ours.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BATCH_ROWS: Final = 10_000
BATCH_BYTES_MAX: Final = 512 * 1024**2
"""Of one column, in so many rows: a cell has 50 KiB then."""
GROUP_BYTES_MAX: Final = 4 * 1024**3
"""Of a row group that is decompressed, as its metadata says."""
VALUE_BYTES: Final = 8
"""At least, of a value that was read: a run of equal ones takes some bytes of a file."""


def check_inflated(file: Path, total_bytes_max: int | None = None) -> None:
    """Refuse a file that becomes too much; ``total_bytes_max``: of all its texts together.

    Errors: `pa.ArrowInvalid` says what is too large; `OSError` and `pa.ArrowException` pass.
    """
    with pq.ParquetFile(file) as parquet:
        leaves = [parquet.schema.column(at) for at in range(len(parquet.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        names = [one for one in parquet.schema_arrow.names if _is_above(one, texts)]
        _check_groups(parquet.metadata)
    total_bytes = 0
    with pq.ParquetFile(file, read_dictionary=texts, page_checksum_verification=True) as parquet:
        for name in dict.fromkeys(names):
            for batch in _batches(parquet, name):
                size_bytes = sum(map(_expanded_bytes, batch.columns))
                total_bytes += size_bytes
                if size_bytes > BATCH_BYTES_MAX:
                    raise pa.ArrowInvalid(
                        f"column {name} becomes more than {BATCH_BYTES_MAX} bytes"
                    )
                if total_bytes_max is not None and total_bytes > total_bytes_max:
                    raise pa.ArrowInvalid(f"the texts become more than {total_bytes_max} bytes")


def _batches(parquet: pq.ParquetFile, name: str) -> Iterator[pa.RecordBatch]:
    """Return a column in pieces of one row group each: two dictionaries in one list are refused."""
    for group in range(parquet.num_row_groups):
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=[name])


def _is_above(name: str, texts: Sequence[str]) -> bool:
    """Tell whether a column is a text, or has texts in it: lists, maps and structs may."""
    return any(path == name or path.startswith(f"{name}.") for path in texts)


def _check_groups(about: pq.FileMetaData) -> None:
    """Refuse row groups that are large, or have more values than the bytes say: lists may."""
    for group in map(about.row_group, range(about.num_row_groups)):
        if group.total_byte_size > GROUP_BYTES_MAX:
            raise pa.ArrowInvalid(f"a row group takes more than {GROUP_BYTES_MAX} bytes")
        columns = map(group.column, range(group.num_columns))
        if any(column.num_values * VALUE_BYTES > GROUP_BYTES_MAX for column in columns):
            raise pa.ArrowInvalid(
                f"a column of a row group takes more than {GROUP_BYTES_MAX} bytes"
            )


def _expanded_bytes(values: pa.Array) -> int:
    """Return how many bytes the texts of a column take, each counted as often as it is named."""
    if pa.types.is_map(values.type):
        return _expanded_bytes(values.keys) + _expanded_bytes(values.items)
    if pa.types.is_nested(values.type):
        parts = values.flatten()
        return sum(map(_expanded_bytes, parts if isinstance(parts, list) else [parts]))
    if not pa.types.is_dictionary(values.type) or not _is_text(values.type.value_type):
        return int(values.nbytes)
    sizes = pc.cast(pc.binary_length(values.dictionary), pa.int64())
    return pc.sum(pc.take(sizes, values.indices)).as_py() or 0


def _is_text(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string)
    return any(is_one(type_) for is_one in (*kinds, pa.types.is_large_binary))
