"""From Arrow to rows that are held by column, without an object for each value on the way.

Knows no table's name. Source: the Arrow columnar format (buffers of arrays).
"""

from array import array
from collections.abc import Collection, Iterator
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from chaos.history.columns import (
    CODES_MAX,
    Coded,
    Column,
    Constant,
    Nullable,
    Row,
    Texts,
    column_of,
    narrowest,
    rows_of,
)

LOOKED_AT: Final = 1 << 14
"""By so many texts it is told whether they recur."""
PART: Final = 1 << 12
"""So many texts are Python's at a time."""
_INTEGERS: Final = {
    "b": pa.int8(),
    "h": pa.int16(),
    "i": pa.int32(),
    "I": pa.uint32(),
    "q": pa.int64(),
}
_Formats = Literal["b", "h", "i", "I", "q"]


def stored_rows(
    columns: dict[str, pa.ChunkedArray], number: int, often: Collection[str] = ()
) -> list[Row]:
    """Return the rows of a table with these columns, each as long as the table.

    The columns are taken out of ``columns`` one by one, so that none is held twice for long. Those
    that are asked for ``often`` take eight bytes where one would do, and are read sooner.
    """
    names = list(columns)
    return rows_of(
        {name: stored_column(columns.pop(name), is_hot=name in often) for name in names}, number
    )


def stored_column(values: pa.ChunkedArray, *, is_hot: bool = False) -> Column:
    """Return a column that holds these values.

    Errors: ValueError for texts that are no UTF-8.
    """
    if values.null_count == len(values):
        return Constant(None)
    if pa.types.is_integer(values.type) and (low_high := _narrowed(values)):
        return low_high
    if pa.types.is_integer(values.type) or pa.types.is_string(values.type):
        return _coded(values, is_hot=is_hot)
    return column_of(values.to_pylist())


def _narrowed(values: pa.ChunkedArray) -> Column | None:
    """Return numbers as an array; None where some are empty, or all are equal."""
    ends = pc.min_max(values).as_py()
    if values.null_count or ends["min"] == ends["max"]:
        return None
    return _array_of(values, narrowest(ends["min"], ends["max"]))


def _coded(values: pa.ChunkedArray, *, is_hot: bool) -> Column:
    """Return a column each of whose values is held once, if they recur."""
    is_text = pa.types.is_string(values.type)
    if is_text and len(values) > LOOKED_AT:
        first = pc.count_distinct(values[:LOOKED_AT], mode="all").as_py()
        if first > LOOKED_AT * 3 // 4:
            return Texts(_texts(values))
    coded = pc.dictionary_encode(_whole(values), null_encoding="encode")
    known, codes = coded.dictionary, coded.indices
    if len(known) > CODES_MAX:
        if not is_text:
            return _nullable(values)
        return Coded(_array_of(codes, "i"), Texts(_texts(pa.chunked_array([known]))))
    words = known.to_pylist()
    if len(words) < 2:
        return Constant(words[0])
    told = _array_of(codes, narrowest(0, len(words)))
    return [words[code] for code in told] if is_hot else Coded(told, words)


def _nullable(values: pa.ChunkedArray) -> Column:
    ends = pc.min_max(values).as_py()
    null = ends["min"] - 1
    try:
        code = narrowest(null, ends["max"])
    except OverflowError:
        return column_of(values.to_pylist())
    return Nullable(_array_of(pc.fill_null(pc.cast(values, _INTEGERS["q"]), null), code), null)


def _texts(values: pa.ChunkedArray) -> Iterator[str | None]:
    """Yield texts, a few of them at a time made Python's."""
    for begin in range(0, len(values), PART):
        yield from values[begin : begin + PART].to_pylist()


def _array_of(values: pa.Array | pa.ChunkedArray, code: _Formats) -> "array[int]":
    """Return whole numbers, none of them empty, as an array of numbers of that width."""
    made = array(code)
    narrow = pc.cast(values, _INTEGERS[code])
    for chunk in narrow.chunks if isinstance(narrow, pa.ChunkedArray) else (narrow,):
        if len(chunk):
            numbers = memoryview(chunk.buffers()[1]).cast("B").cast(code)
            made.extend(array(code, numbers[chunk.offset : chunk.offset + len(chunk)]))
    return made


def _whole(values: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array: of texts, one that may be larger than 2 GiB."""
    if values.num_chunks == 1:
        return values.chunk(0)
    wide = pc.cast(values, pa.large_string()) if pa.types.is_string(values.type) else values
    return pa.concat_arrays(wide.chunks)
