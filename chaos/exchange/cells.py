"""One cell of theirs becomes one of ours: numbers, times, words, names. Or it is refused, and why.

Pure but for the numbers that names of queues have got so far. Source: docs/import.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any, Final

from chaos.exchange.mapping import ISO, UNITS, Cell
from chaos.exchange.quoting import quoted
from chaos.exchange.sources import Nanoseconds, is_broken
from chaos.history.domains import LEAST, TRIES, WORDS

QUEUES_MAX: Final = 100_000
"""So many names of queues get numbers; more are keys of messages in the wrong column."""
KEY_BITS: Final = 63
MOST: Final = 1 << 62
"""Counts, offsets and times are less, so that one more is a number, too."""
_BITS: Final = {"int": 31, "long": 63}
_TRUE: Final = frozenset({"true", "1", "yes", "t"})
_FALSE: Final = frozenset({"false", "0", "no", "f"})
_FRACTION: Final = re.compile(r"[.,](\d+)")


class CellError(Exception):
    """A cell cannot be understood; the message says which and what to do."""


def key_of(name: str) -> int:
    """Return the number of a name: 63 bits of its BLAKE2b hash.

    Two of ten million names share a number once in 180,000 histories.
    """
    digest = blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - KEY_BITS)


@dataclass(slots=True)
class Names:
    """What names have got numbers, where a number by hash would be too wide for its column."""

    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    """By topic the names of its queues, numbered in the order in which they came."""
    others: dict[str, dict[str, int]] = field(default_factory=dict)
    """The same by column."""

    def number(self, column: str, topic: str, name: str) -> int:
        """Return the number of a name. Errors: CellError if there are too many."""
        known = self.queues if column == "queue_id" else self.others
        numbers = known.setdefault(topic if column == "queue_id" else column, {})
        found = numbers.get(name)
        if found is None:
            if len(numbers) >= QUEUES_MAX:
                raise CellError(f"{column} has more than {QUEUES_MAX} names; map another column")
            found = numbers[name] = len(numbers)
        return found


def value_of(table: str, cell: Cell, cells: Mapping[str, Any], names: Names, topic: str) -> object:
    """Return the value of one of our columns in a row of theirs; None if it is empty.

    Errors: CellError says what is wrong with it.
    """
    raw = cell.constant if cell.constant is not None else look_up(cells, cell)
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        raw = cell.words.get("", cell.default)
    if raw is None:
        if not cell.target.nullable:
            raise CellError(f"{_name(cell)} is empty, and {cell.target.name} is required")
        return None
    if cell.words and not isinstance(raw, list):
        raw = cell.words.get(_as_text(raw), raw)
    value = _of_type(cell, raw, names, topic)
    _check_domain(table, cell, value)
    return value


def look_up(cells: Mapping[str, Any], cell: Cell) -> object:
    """Return the cell of theirs, or several as one name; None if there is none, or one is empty."""
    found = [cell_at(cells, source) for source in cell.sources]
    if len(found) == 1:
        return found[0]
    return None if None in found or "" in found else "/".join(map(_as_text, found))


def cell_at(cells: Mapping[str, Any], source: str) -> object:
    """Return the cell of a name, which may look into objects; None if there is none."""
    if source in cells:
        return cells[source]
    found: object = cells
    for part in source.split("."):
        if not isinstance(found, Mapping) or part not in found:
            # A JSON object may leave out what it does not know; a CSV cannot.
            return None
        found = found[part]
    return found


def _of_type(cell: Cell, raw: object, names: Names, topic: str) -> object:
    wanted = cell.target.type
    if cell.unit:
        return _time(cell, raw)
    if cell.is_named and wanted in _BITS:
        text = _as_text(raw)
        return key_of(text) if wanted == "long" else names.number(cell.target.name, topic, text)
    if wanted in _BITS:
        return _whole(cell, raw)
    if wanted == "boolean":
        return _boolean(cell, raw)
    if wanted == "array<string>":
        parts = raw if isinstance(raw, list) else _as_text(raw).split("|")
        return [cell.words.get(_as_text(one), _as_text(one)) for one in parts]
    if wanted == "double":
        return float(_number(cell, raw))
    if wanted == "string":
        return _as_text(raw)
    raise CellError(f"{cell.target.name} cannot be imported")


def _whole(cell: Cell, raw: object) -> int:
    number = _number(cell, raw)
    value = int(number)
    if value != number:
        raise CellError(f"{_name(cell)} is {quoted(raw)}; write a whole number")
    bits = _BITS[cell.target.type]
    if not -(1 << bits) <= value < 1 << bits:
        raise CellError(f"{_name(cell)} is {quoted(raw)}: more than {bits + 1} bits")
    return value


def _number(cell: Cell, raw: object) -> Decimal:
    if isinstance(raw, bool):
        raise CellError(f"{_name(cell)} is {quoted(raw)}; write a number")
    try:
        number = Decimal(raw.strip() if isinstance(raw, str) else str(raw))
    except InvalidOperation as error:
        hint = f', or name {cell.target.name} in "words" of the mapping' if not cell.unit else ""
        raise CellError(f"{_name(cell)} is {quoted(raw)}; write a number{hint}") from error
    if not number.is_finite() or number.adjusted() > _BITS["long"]:
        raise CellError(f"{_name(cell)} is {quoted(raw)}; write a number")
    return number


def _time(cell: Cell, raw: object) -> int:
    """Return a time in nanoseconds, without a float on the way."""
    if isinstance(raw, Nanoseconds):
        return int(raw)
    if cell.unit != ISO:
        value = int(_number(cell, raw) * UNITS[cell.unit])
    else:
        value = _iso(cell, _as_text(raw).strip())
    if not -(1 << 62) <= value < 1 << 62:
        raise CellError(f"{_name(cell)} is {quoted(raw)}: not a time in {cell.unit}")
    return value


def _iso(cell: Cell, text: str) -> int:
    fraction = _FRACTION.search(text)
    whole = text[: fraction.start()] + text[fraction.end() :] if fraction else text
    try:
        at = datetime.fromisoformat(whole)
    except ValueError as error:
        raise CellError(
            f"{_name(cell)} is {quoted(text)}; write 2026-03-01T12:00:00.123Z"
        ) from error
    if at.tzinfo is None:
        raise CellError(f"{_name(cell)} is {quoted(text)}: write its zone too, Z or +08:00")
    digits = (fraction.group(1) if fraction else "")[:9].ljust(9, "0")
    return int(at.timestamp()) * UNITS["s"] + int(digits)


def _boolean(cell: Cell, raw: object) -> bool:
    text = _as_text(raw).strip().lower()
    if text not in _TRUE | _FALSE:
        raise CellError(f"{_name(cell)} is {quoted(raw)}; write true or false")
    return text in _TRUE


def _check_domain(table: str, cell: Cell, value: object) -> None:
    column = cell.target.name
    words = WORDS.get((table, column))
    if words is not None and value not in words:
        ours = ", ".join(dict.fromkeys(words))
        raise CellError(
            f"{_name(cell)} is {quoted(value)}: say in [table.words.{column}] which of {ours} it is"
        )
    tries = value if column == "tries" and isinstance(value, list) else ()
    if odd := [one for one in tries if one not in TRIES]:
        raise CellError(f"{_name(cell)} has {quoted(odd[0])}; write {', '.join(TRIES)}")
    least = LEAST.get((table, column))
    if least is not None and isinstance(value, int) and not least <= value < MOST:
        bound = f"{least} at the least" if value < least else f"less than {MOST}"
        raise CellError(f"{_name(cell)} is {quoted(value)}; it is {bound}, or empty")


def _as_text(raw: object) -> str:
    if isinstance(raw, bytes):  # Parquet has keys so that nobody called texts
        raw = raw.decode(errors="surrogateescape")
    text = str(raw).lower() if isinstance(raw, bool) else str(raw)
    if is_broken(text):
        raise CellError(f"{quoted(text)} is not UTF-8")
    return text


def _name(cell: Cell) -> str:
    return "/".join(cell.sources) or cell.target.name
