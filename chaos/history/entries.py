"""The entries of a replica's log, held by column: some forty bytes each in place of a kilobyte.

Rows are made as they are asked for. Pure. Source: docs/checking.md, memory.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, overload

from chaos.history.columns import narrowest
from chaos.history.segment import EntryRow

BLOCK_ROWS: Final = 1 << 14
"""So many entries are held together, their numbers as narrow as theirs allow."""
_WORDS: Final = frozenset({"crc_ok", "type", "topic", "payload_run_id"})


class Entries(Sequence[EntryRow]):
    """Entries in the order in which they were added."""

    def __init__(self, rows: Iterable[EntryRow] = ()) -> None:
        self._blocks: list[_Block] = []
        self.add(rows)

    def add(self, rows: Iterable[EntryRow]) -> None:
        """Hold entries behind the others."""
        left = iter(rows)
        while block := list(islice(left, BLOCK_ROWS)):
            self._blocks.append(_block_of(block))

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(block.number for block in self._blocks)

    def __iter__(self) -> Iterator[EntryRow]:
        """Yield them in their order."""
        return chain.from_iterable(map(_rows_of, self._blocks))

    @overload
    def __getitem__(self, at: int) -> EntryRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[EntryRow]: ...
    def __getitem__(self, at: int | slice) -> EntryRow | Sequence[EntryRow]:
        """Return one, or some; it takes as long as going through all of them."""
        return list(self)[at]


@dataclass(frozen=True, slots=True)
class _Codes:
    """Words of a block: by row which of them."""

    codes: bytes | tuple[int, ...]
    words: tuple[object, ...]

    def values(self) -> Iterable[object]:
        return map(self.words.__getitem__, self.codes)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers of a block; ``null`` stands where there is none."""

    numbers: Sequence[int]
    null: int | None

    def values(self) -> Iterable[object]:
        if self.null is None:
            return self.numbers
        return [None if number == self.null else number for number in self.numbers]


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    columns: tuple[_Codes | _Numbers, ...]


def _rows_of(block: _Block) -> Iterator[EntryRow]:
    columns = (column.values() for column in block.columns)
    return map(EntryRow._make, zip(*columns, strict=True))


def _block_of(rows: Sequence[EntryRow]) -> _Block:
    columns = zip(EntryRow._fields, zip(*rows, strict=True), strict=True)
    held = tuple(
        _codes_of(values) if name in _WORDS else _numbers_of(values) for name, values in columns
    )
    return _Block(len(rows), held)


def _codes_of(values: Sequence[object]) -> _Codes:
    known: dict[object, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    few = len(known) <= 1 << 8
    return _Codes(bytes(codes) if few else tuple(codes), tuple(known))


def _numbers_of(values: Sequence[int | None]) -> _Numbers:
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return _Numbers(_narrow(known, min(known), max(known)), None)
    low, high = min(known, default=0), max(known, default=0)
    null = low - 1
    filled = [null if value is None else value for value in values]
    return _Numbers(_narrow(filled, null, high), null)


def _narrow(numbers: Sequence[int], low: int, high: int) -> Sequence[int]:
    try:
        return array(narrowest(low, high), numbers)
    except OverflowError:
        return tuple(numbers)
