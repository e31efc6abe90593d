"""What a Parquet file becomes when it is read, asked before it is read.

A kilobyte of it may be a million rows that all name one text of a megabyte: reading them as texts
takes the machine's memory. So texts are looked at as the file has them, a dictionary and numbers,
and what they would become is added up first. Knows no table of ours.
"""

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


def check_inflated(file: Path, total_bytes_max: int | None = None) -> None:
    """Refuse a file that becomes too much; ``total_bytes_max``: of all its texts together.

    Errors: `pa.ArrowInvalid` says what is too large; `OSError` and `pa.ArrowException` pass.
    """
    with pq.ParquetFile(file) as parquet:
        names = [one.name for one in parquet.schema_arrow if _is_text(one.type)]
        groups = [parquet.metadata.row_group(at) for at in range(parquet.num_row_groups)]
    if any(group.total_byte_size > GROUP_BYTES_MAX for group in groups):
        raise pa.ArrowInvalid(f"a row group takes more than {GROUP_BYTES_MAX} bytes")
    total_bytes = 0
    with pq.ParquetFile(file, read_dictionary=names, page_checksum_verification=True) as parquet:
        for name in names:
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=[name]):
                size_bytes = _expanded_bytes(batch.column(0))
                total_bytes += size_bytes
                if size_bytes > BATCH_BYTES_MAX:
                    raise pa.ArrowInvalid(
                        f"column {name} becomes more than {BATCH_BYTES_MAX} bytes"
                    )
                if total_bytes_max is not None and total_bytes > total_bytes_max:
                    raise pa.ArrowInvalid(f"the texts become more than {total_bytes_max} bytes")


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _expanded_bytes(values: pa.Array) -> int:
    """Return how many bytes the texts of a column take, each counted as often as it is named."""
    if not pa.types.is_dictionary(values.type):
        return int(values.nbytes)
    sizes = pc.cast(pc.binary_length(values.dictionary), pa.int64())
    return pc.sum(pc.take(sizes, values.indices)).as_py() or 0
