"""The mapping file: which of a stranger's columns is which of ours, in which words and units.

A TOML text becomes a checked `Mapping`; every mistake is named with its line and what to write
instead. Knows the declared tables, no file of data. Source: docs/import.md.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.history.domains import TOLERANCE_MAX_NS, WORDS
from chaos.history.tables import TABLES, Column
from chaos.validate import complaints_about

UNITS: Final[Mapping[str, int]] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units of time in nanoseconds; ``iso8601`` is the other way to write one."""
ISO: Final = "iso8601"
IMPORTED: Final = (
    "sends", "deliveries", "acks", "txn", "events", "drain", "faults", "raft_probe", "raft_event",
    "replica_log", "answers", "masters", "queue_index", "node_log",
)  # fmt: skip
"""The tables that a history may bring."""
NAMED: Final = (
    "msg_key", "queue_id", "txn_id", "body_hash", "op_id", "pid", "process", "generation",
)  # fmt: skip
"""Numbers that others may write as words: message keys, queues, producers, bodies."""
RUN_MEMBERS: Final = (
    "contract", "modes", "reconsume_max", "subscriptions", "coverage", "nodes", "quorum", "topic",
    "group", "exits", "scenario",
)  # fmt: skip
EFFECTIVE: Final = "effective"
"""Of a fault: whether somebody saw that it took effect (``witness.effective``)."""
_TOP: Final = ("run_id", "clock_tolerance_ms", "time", "words", "drained", "run", "table")
_ABOUT: Final = ("run_id", "clock_tolerance_ms", "drained", "run")
_TABLE: Final = ("name", "files", "only", "time", "columns", "words")
_CELL: Final = ("column", "value", "unit", "default")


class MappingError(Exception):
    """A mapping file is wrong; the message has a line for each mistake, with file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Where the value of one of our columns comes from: a column of theirs, or a constant."""

    target: Column
    sources: tuple[str, ...] = ()
    """Several are joined by a slash: a broker and its queue are one name."""
    constant: object = None
    default: object = None
    """What an empty cell means; None: unknown."""
    unit: str = ""
    """Of times: ns, us, ms, s or iso8601."""
    is_named: bool = False
    """Whether the value is a word that gets a number."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Their words to ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapping:
    """How rows of some files become rows of one table."""

    name: str
    files: str
    only: Mapping[str, Sequence[str]]
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMapping:
    """All that a mapping file says."""

    tables: Sequence[TableMapping]
    run_id: str = ""
    tolerance_ns: int = 0
    drained: bool | Sequence[str] = False
    """Whether all groups, or which of them, read every queue to its end."""
    run: Mapping[str, Any] = field(default_factory=dict)


def parse_mapping(text: str, name: str, *, has_tables: bool = True) -> HistoryMapping:
    """Return what the text of a mapping file says; ``name`` is for its errors.

    ``has_tables``: whether it has to say which columns are which; operations need no such thing.
    Errors: MappingError with a line for each mistake.
    """
    try:
        told = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise MappingError(f"{name}: not TOML: {error}") from error
    reader = _Reader(text, name)
    made = reader.read(told, has_tables=has_tables)
    if reader.mistakes:
        raise MappingError("\n".join(reader.mistakes))
    return made


class _Reader:
    """Reads one mapping and collects what is wrong with it."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.splitlines()
        self._name = name
        self.mistakes: list[str] = []

    def wrong(self, what: str, word: str = "", table: int = -1) -> None:
        """Note a mistake, at the line on which ``word`` first stands in table number ``table``."""
        self.mistakes.append(f"{self._name}:{self._line_of(word, table)}: {what}")

    def _line_of(self, word: str, table: int) -> int:
        starts = [n for n, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*table\b", line)]
        begin = starts[table] if 0 <= table < len(starts) else 0
        end = len(self._lines)
        if 0 <= table < len(starts) - 1:
            end = starts[table + 1]
        pattern = re.compile(rf"(?<![\w-])[\"']?{re.escape(word)}[\"']?(?![\w-])")
        for number in range(begin, end) if word else ():
            if pattern.search(self._lines[number].split("#")[0]):
                return number + 1
        return begin + 1

    def unknown(self, given: Mapping[str, object], known: Sequence[str], table: int = -1) -> None:
        for word in given:
            if word not in known:
                self.wrong(f"{word} is not known here; there are {', '.join(known)}", word, table)

    def read(self, told: Mapping[str, Any], *, has_tables: bool) -> HistoryMapping:
        self.unknown(told, _TOP if has_tables else _ABOUT)
        self._unit(told.get("time", "ns"), "time")
        tables = told.get("table")
        if not has_tables:
            tables = []
        elif not isinstance(tables, list) or not tables:
            self.wrong("no table: write [[table]] with name and columns", "table")
            tables = []
        made = [self._table(told, one, number) for number, one in enumerate(tables)]
        found = {one.name for one in made if one is not None}
        if tables and not self.mistakes and not {"sends", "deliveries"} <= found:
            self.wrong("a history needs sends and deliveries: write a [[table]] for each")
        return HistoryMapping(
            tables=[one for one in made if one is not None],
            run_id=self._text(told, "run_id"),
            tolerance_ns=self._tolerance(told.get("clock_tolerance_ms", 0)),
            drained=self._drained(told.get("drained", False)),
            run=self._run(told.get("run", {})),
        )

    def _text(self, told: Mapping[str, Any], name: str) -> str:
        value = told.get(name, "")
        if not isinstance(value, str):
            self.wrong(f"{name} is {value!r}; write a text", name)
            return ""
        return value

    def _unit(self, told: object, word: str, table: int = -1) -> None:
        if not isinstance(told, str) or told not in {ISO, *UNITS}:
            self.wrong(
                f"{word} is in {told!r}; write one of {', '.join(UNITS)}, {ISO}", word, table
            )

    def _tolerance(self, told: object) -> int:
        most = TOLERANCE_MAX_NS // UNITS["ms"]
        if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told <= most:
            said = f"clock_tolerance_ms is {told!r}; write milliseconds, 0 to {most}"
            self.wrong(said, "clock_tolerance_ms")
            return 0
        return round(told * UNITS["ms"])

    def _drained(self, told: object) -> bool | Sequence[str]:
        groups = isinstance(told, list) and all(isinstance(one, str) for one in told)
        if isinstance(told, bool) or (groups and isinstance(told, list)):
            return told
        self.wrong(f"drained is {told!r}; write true, false or a list of groups", "drained")
        return False

    def _run(self, told: object) -> Mapping[str, Any]:
        if not isinstance(told, dict):
            self.wrong(f"run is {told!r}; write a table of members of run.json", "run")
            return {}
        self.unknown(told, RUN_MEMBERS)
        try:
            json.dumps(told)
        except (TypeError, ValueError) as error:
            self.wrong(f"run cannot be written to run.json: {error}", "run")
            return {}
        for line in complaints_about(told):
            self.wrong(f"run.{line}", line.split()[0].split(".")[-1])
        return told

    def _table(self, told: Mapping[str, Any], one: object, number: int) -> TableMapping | None:
        if not isinstance(one, dict):
            self.wrong("table is no table: write [[table]]", "table")
            return None
        self.unknown(one, _TABLE, number)
        self._unit(one.get("time", "ns"), "time", number)
        name, columns = one.get("name"), one.get("columns")
        if name not in IMPORTED:
            said = f"name is {name!r}; write one of {', '.join(IMPORTED)}"
            self.wrong(said, "name", number)
            return None
        if not isinstance(columns, dict) or not columns:
            self.wrong(f"{name} has no columns: write [table.columns]", "columns", number)
            return None
        files, only = one.get("files", "*"), one.get("only", {})
        if not isinstance(files, str):
            self.wrong(f"files is {files!r}; write a name or a pattern", "files", number)
            files = "*"
        cells = [*self._cells(told, one, number)]
        self._required(name, {cell.target.name for cell in cells}, number)
        return TableMapping(name=name, files=files, only=self._only(only, number), cells=cells)

    def _only(self, told: object, number: int) -> Mapping[str, Sequence[str]]:
        if not isinstance(told, dict):
            self.wrong("only is no table: write only = { COLUMN = VALUE }", "only", number)
            return {}
        lists = {
            name: value if isinstance(value, list) else [value] for name, value in told.items()
        }
        return {name: [word_of(one) for one in values] for name, values in lists.items()}

    def _required(self, name: str, given: set[str], number: int) -> None:
        made = {"run_id", "op_id", "idx"}
        absent = [c.name for c in TABLES[name] if not c.nullable and c.name not in given | made]
        if name == "deliveries" and "msg_key" not in given:
            absent.append("msg_key")
        if absent:
            said = f"{name} needs {', '.join(absent)}: say which column has it"
            self.wrong(said, "columns", number)

    def _cells(
        self, told: Mapping[str, Any], one: Mapping[str, Any], number: int
    ) -> Iterator[Cell]:
        name, declared = str(one["name"]), {c.name: c for c in TABLES[str(one["name"])]}
        if name == "faults":
            declared[EFFECTIVE] = Column(EFFECTIVE, "boolean")
        time = one.get("time", told.get("time", "ns"))
        named = told.get("words", [])
        if not isinstance(named, list) or not set(map(str, named)) <= set(NAMED):
            self.wrong(f"words is {named!r}; write a list of {', '.join(NAMED)}", "words")
            named = []
        translations = one.get("words", {})
        if not isinstance(translations, dict):
            self.wrong("words of a table is no table: write [table.words.COLUMN]", "words", number)
            translations = {}
        self.unknown(translations, tuple(declared), number)
        for target, given in one["columns"].items():
            if target not in declared:
                said = f"{name} has no column {target}; it has {', '.join(declared)}"
                self.wrong(said, target, number)
                continue
            column = declared[target]
            words = self._words(name, target, translations.get(target, {}), number)
            cell = self._cell(column, given, str(time), number)
            if cell is not None:
                yield Cell(
                    target=column, sources=cell[0], constant=cell[1], default=cell[2], unit=cell[3],
                    is_named=target in named, words=words,
                )  # fmt: skip

    def _cell(
        self, column: Column, given: object, time: str, number: int
    ) -> tuple[tuple[str, ...], object, object, str] | None:
        told = {"column": given} if isinstance(given, str | list) else given
        if not isinstance(told, dict) or ("column" in told) == ("value" in told):
            said = f'{column.name} is {given!r}; write "COLUMN", or {{ column = "..." }}, or'
            self.wrong(f"{said} {{ value = ... }} for all rows", column.name, number)
            return None
        self.unknown(told, _CELL, number)
        unit = str(told.get("unit", time)) if is_time(column) else ""
        if "unit" in told:
            self._unit(told["unit"], column.name, number)
        source = told.get("column", [])
        sources = tuple(map(str, source if isinstance(source, list) else [source]))
        return sources, told.get("value"), told.get("default"), unit

    def _words(self, table: str, column: str, told: object, number: int) -> Mapping[str, str]:
        if not isinstance(told, dict):
            self.wrong(f"words.{column} is no table: write OURS = [THEIRS, ...]", column, number)
            return {}
        known = WORDS.get((table, column))
        found: dict[str, str] = {}
        for ours, theirs in told.items():
            if known is not None and ours not in known:
                said = f"{column} cannot be {ours}; it is one of {', '.join(known)}"
                self.wrong(said, ours, number)
            for word in theirs if isinstance(theirs, list) else [theirs]:
                if found.setdefault(word_of(word), ours) != ours:
                    self.wrong(f"{word!r} is both {found[word_of(word)]} and {ours}", ours, number)
        return found


def is_time(column: Column) -> bool:
    """Return whether a column is a time of the run's clock, or of a node's."""
    return column.type == "long" and (column.name.startswith("t_") or column.name in _TIMES)


_TIMES: Final = frozenset({"t", "t0", "t1", "node_mono_ns"})


def word_of(value: object) -> str:
    """Return a cell, or what a mapping says of one, as the words of mappings have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
