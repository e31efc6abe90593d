"""Tables in memory, held by column: a row is a number that knows the columns of its table.

A run of 600,000 messages has two million deliveries. A dict for each takes a kilobyte; by column
one takes a tenth of that: numbers lie in arrays, words that recur are held once. Whoever reads a
row sees no difference: ``row["t_recv"]``, ``row.get("pos")``, ``row | {...}``.

Pure. Knows neither the tables' names nor files. Source: docs/checking.md, memory.
"""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, Final, Literal, Protocol, overload
from zlib import compress, decompress

Cells = dict[str, Any]
"""The values of a row, by the names of columns."""
Value = Any
"""What a column may hold: which type that is says the table."""
CODES_MAX: Final = 1 << 12
"""So many different values of a column are held once; of one that has more, each row holds its."""
TEXTS_TOGETHER: Final = 256
_WIDTHS: Final[tuple[tuple[Literal["b", "h", "i"], int], ...]] = (
    ("b", 1 << 7), ("h", 1 << 15), ("i", 1 << 31),
)  # fmt: skip
_LIMIT: Final = 1 << 63


class Column(Protocol):
    """The values of a column, by the numbers of rows."""

    def __getitem__(self, at: int, /) -> Value:
        """Return the value of a row."""
        ...


class Row(Protocol):
    """One row of a table, by the names of its columns; those that checks make up are dicts."""

    def __getitem__(self, name: str, /) -> Value:
        """Return a value. Errors: KeyError if the table has no such column."""
        ...

    @overload
    def get(self, name: str, /) -> Value: ...
    @overload
    def get(self, name: str, default: Value, /) -> Value: ...
    def get(self, name: str, default: Value = None, /) -> Value:
        """Return a value, or the default if the table has no such column."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of the columns."""
        ...

    def __contains__(self, name: object, /) -> bool:
        """Tell whether the table has such a column."""
        ...

    def __or__(self, other: dict[str, Any], /) -> dict[str, Any]:
        """Return the values of the row as a dict, with others beside or in place of them."""
        ...


def rows_of(columns: Mapping[str, Column], number: int) -> list[Row]:
    """Return the rows of a table with these columns.

    A row is its number, in a class of its table's own, which has the columns: numbers have room
    for nothing else, and take half of what an object with a member does.
    """

    class StoredRow(int):
        __slots__ = ()

        def __getitem__(self, name: str, /) -> Value:
            return columns[name][self]

        def get(self, name: str, default: Value = None, /) -> Value:
            column = columns.get(name)
            return default if column is None else column[self]

        def keys(self) -> Iterable[str]:
            return columns.keys()

        def __contains__(self, name: object, /) -> bool:
            return name in columns

        def __or__(self, other: Cells, /) -> Cells:  # type: ignore[override]  # a row, no bits
            return {name: column[self] for name, column in columns.items()} | other

        def __bool__(self) -> bool:
            return True  # a row, though its number be 0

        def __repr__(self) -> str:
            return repr(self | {})

    return list(map(StoredRow, range(number)))


def stored(columns: Mapping[str, Sequence[Any]], number: int) -> list[Row]:
    """Return the rows of a table whose columns have these values."""
    return rows_of({name: column_of(values) for name, values in columns.items()}, number)


def column_of(values: Sequence[Any]) -> Column:
    """Return a column that holds these values: of whichever form takes least."""
    known: dict[Any, Any] = {}
    for value in values:
        known.setdefault(_known_by(value), value)
        if len(known) > CODES_MAX:
            return _column_of_many(values)
    if len(known) < 2:
        return Constant(next(iter(known.values()), None))
    return [known[_known_by(value)] for value in values]


class Constant:
    """A column that has the same in every row."""

    __slots__ = ("_value",)

    def __init__(self, value: Value) -> None:
        self._value = value

    def __getitem__(self, at: int, /) -> Value:
        """Return the value of a row."""
        return self._value


class Nullable:
    """A column of numbers that some rows leave empty: there stands ``null``."""

    __slots__ = ("_null", "_numbers")

    def __init__(self, numbers: "array[int]", null: int) -> None:
        self._numbers = numbers
        self._null = null

    def __getitem__(self, at: int, /) -> int | None:
        """Return the number of a row, None if it has none."""
        number = self._numbers[at]
        return None if number == self._null else number


class Coded:
    """A column of values that recur: by row which of the others it is."""

    __slots__ = ("_codes", "_values")

    def __init__(self, codes: "array[int]", values: Column) -> None:
        self._codes = codes
        self._values = values

    def __getitem__(self, at: int, /) -> Value:
        """Return the value of a row."""
        return self._values[self._codes[at]]


class Texts:
    """A column of texts, compressed in blocks: one that is read in the order of its rows.

    Of those that were read last one block is kept as it is.
    """

    __slots__ = ("_at", "_blocks", "_open")

    def __init__(self, texts: Iterable[str | None]) -> None:
        left = iter(texts)
        self._blocks: list[bytes] = []
        while block := list(islice(left, TEXTS_TOGETHER)):
            self._blocks.append(compress(json.dumps(block).encode(), level=1))
        self._at, self._open = -1, list[str | None]()

    def __getitem__(self, at: int, /) -> str | None:
        """Return the text of a row, None if it has none."""
        number, place = divmod(at, TEXTS_TOGETHER)
        if number != self._at:
            self._at, self._open = number, json.loads(decompress(self._blocks[number]))
        return self._open[place]


def narrowest(low: int, high: int) -> Literal["b", "h", "i", "I", "q"]:
    """Return the code of the narrowest `array` that holds two numbers and all between them.

    Errors: OverflowError if none does.
    """
    for code, limit in _WIDTHS:
        if -limit <= low and high < limit:
            return code
    if low >= 0 and high < 1 << 32:
        return "I"
    if low >= -_LIMIT and high < _LIMIT:
        return "q"
    raise OverflowError(f"no array holds {low} to {high}")


def are_twice(values: Iterable[tuple[object, ...]]) -> set[int]:
    """Return the hashes that two of the values have, or more: only these may be equal.

    Of each value eight bytes are kept, and not the value.
    """
    hashes = sorted(array("q", map(hash, values)))
    return {one for one, other in pairwise(hashes) if one == other}


def _column_of_many(values: Sequence[Any]) -> Column:
    """Return a column of many values: numbers in an array, all else as it is."""
    known = [value for value in values if value is not None]
    if not all(type(value) is int for value in known):
        return list(values)
    try:
        if len(known) == len(values):
            return array(narrowest(min(known), max(known)), known)
        null = min(known) - 1
        code = narrowest(null, max(known))
    except OverflowError:
        return list(values)
    return Nullable(array(code, (null if value is None else value for value in values)), null)


def _known_by(value: Value) -> Value:
    """Return by what equal values are known: of what has members, the words for it."""
    return (type(value), value) if isinstance(value, str | int | float | None) else repr(value)
