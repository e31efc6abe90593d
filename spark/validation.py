"""Refuses histories that cannot be true before anything of them is judged.

Spark reads a null where a column is declared full, an upper-case ``OK`` as no acknowledgement and
seconds as nanoseconds, and goes on; whatever follows is a verdict about nothing. So the files are
looked through first, column by column and in batches, here in the driver: footers where they tell
enough, values where they do not. The in-process checker has code of its own for the same rules.

Source: spec/proof.md 4.3; the rules are data in `chaos.history.domains`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.catalogue.checks import LEFT_OUT
from chaos.history.arrow import arrow_type
from chaos.history.domains import (
    BEGIN_NS,
    CHECK_BACK,
    CLOCKS,
    CONTRACT_WORDS,
    LEAST,
    LONG_RUNNING_NS,
    MODES,
    ORDERED,
    SHARES,
    TELLING,
    TIMES,
    TOLERANCE,
    TOLERANCE_MAX_NS,
    TRIES,
    UNITS_APART,
    WORDS,
)
from chaos.history.tables import TABLES, Column

Span = tuple[int, int]
"""The earliest and the latest of some times (ns), where any is known."""
_SHAPES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "nodes": ((list, dict, int), "a list of names"),
    "problems": ((list,), "a list of lines"),
    "tables": ((list,), "a list of names of tables"),
    LEFT_OUT: ((list,), "a list of names of tables"),
    "coverage": ((dict,), "an object of numbers"),
    "contract": ((dict,), "an object"),
    "quorum": ((int, dict), "a number, or numbers by group"),
    "subscriptions": ((dict,), "an object: lists of tags by topic, by group"),
    "exits": ((list,), "a list of processes that ended by themselves"),
    "modes": ((dict,), "an object: how each group consumes"),
    "reconsume_max": ((dict,), "an object: how often messages come again, by group"),
    TOLERANCE: ((int,), "nanoseconds"),
    "check_back": ((dict,), "an object: when producers are asked how a transaction ended"),
    "run_id": ((str,), "a name"),
    "topic": ((str,), "the name of a topic"),
    "group": ((str,), "the name of a group"),
}


class ColumnLook:
    """What was seen of one column over the batches of a file."""

    def __init__(self, table: str, column: Column) -> None:
        self.column = column
        self.words = WORDS.get((table, column.name))
        self.least = LEAST.get((table, column.name))
        self.is_tries = (table, column.name) == ("sends", "tries")
        self.is_list = column.type.startswith("array<")
        self.is_clock = column.name in CLOCKS.get(table, ())
        self.is_telling = column.name in TELLING.get(table, ())
        self.silent = 0
        """Rows that leave it empty."""
        self.span: Span | None = None
        self._rows = 0
        self._bad: dict[str, tuple[int, object, int]] = {}
        """By rule: the first row, its value, and how many rows break it."""

    @property
    def is_ruled(self) -> bool:
        """Whether there is anything to look for."""
        special = self.is_list or self.is_clock or self.is_telling
        return (
            not self.column.nullable or special or self.words is not None or self.least is not None
        )

    def see(self, given: pa.Array) -> None:
        """Take the next batch. Errors: pa.ArrowException if it is of no declared type."""
        if pa.types.is_dictionary(given.type):
            given = given.dictionary_decode()
        wanted = arrow_type(self.column.type)
        values = given if pa.types.is_nested(given.type) else pc.cast(given, wanted)
        if not self.column.nullable and values.null_count:
            self._note("null", pc.is_null(values), values)
        if self.words is not None:
            known = pc.or_(pc.is_null(values), pc.is_in(values, pa.array(self.words)))
            self._note("word", pc.invert(known), values)
        if self.least is not None:
            self._note("small", pc.less(values, self.least), values)
        if self.is_list and not self.is_tries:
            self._note_gap(values)
        if self.is_tries:
            for word in pc.unique(values.flatten()).to_pylist():
                if word not in TRIES:
                    self._bad.setdefault("try", (self._rows, word, 1))
        if self.is_clock:
            self._see_times(values)
        self.silent += values.null_count
        self._rows += len(values)

    def _see_times(self, values: pa.Array) -> None:
        # 0 and 1 are the first moment of a clock in whatever unit.
        known = pc.min_max(pc.filter(values, pc.greater(values, 1))).as_py()
        if known["max"] is not None:
            self.span = joined(self.span, (known["min"], known["max"]))

    def complaints(self) -> Iterator[str]:
        """Yield a line for each rule that is broken."""
        name = self.column.name
        for rule, (row, value, number) in self._bad.items():
            remedies = {
                "null": "a required column: give it a value or leave the row out",
                "word": f"use one of {', '.join(dict.fromkeys(self.words or ()))}",
                "small": f"use {self.least} or more, or null where it is not known",
                "try": f"use {', '.join(TRIES)}",
                "gap": "leave out of a list what is null",
            }
            more = f" (and {number - 1} more rows)" if number > 1 else ""
            yield f"row {row}{more}: {name} is {value!r}: {remedies[rule]}"

    def _note_gap(self, values: pa.Array) -> None:
        """Note the first list with a null in it."""
        if not values.flatten().null_count:
            return
        lists = values.to_pylist()
        at = next(n for n, one in enumerate(lists) if one is not None and None in one)
        self._bad.setdefault("gap", (self._rows + at, lists[at], 1))

    def _note(self, rule: str, broken: pa.Array, values: pa.Array) -> None:
        broken = pc.fill_null(broken, fill_value=False)
        number = pc.sum(broken).as_py() or 0
        if not number:
            return
        at = pc.index(broken, True).as_py()
        row, value, before = self._bad.get(rule, (self._rows + at, values[at].as_py(), 0))
        self._bad[rule] = (row, value, before + number)


def is_unlike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether nothing of a declared type can be made of what is given.

    Spark makes seconds of a moment and 0 or 1 of yes and no, and takes a list for a struct for an
    error of the job.
    """
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_temporal(given) or pa.types.is_boolean(given))
    if not pa.types.is_nested(wanted) or pa.types.is_null(given):
        return False
    if pa.types.is_list(wanted):
        return not (
            pa.types.is_list(given)
            or pa.types.is_large_list(given)
            or pa.types.is_fixed_size_list(given)
        )
    return pa.types.is_struct(wanted) and not pa.types.is_struct(given)


def try_to_read(values: pa.Array, wanted: pa.DataType) -> None:
    """Make of values what is declared. Errors: pa.ArrowException if that cannot be done."""
    if not pa.types.is_struct(wanted) or not pa.types.is_struct(values.type):
        pc.cast(values, wanted)
        return
    names = {field.name for field in values.type}
    for member in wanted:
        if member.name in names:
            pc.cast(pc.struct_field(values, member.name), member.type)


class OrderLook:
    """How many rows of a file end before they begin, by one pair of columns."""

    def __init__(self, begin: str, end: str) -> None:
        self.names = (begin, end)
        self._seen = 0
        self._bad = 0
        self._first: tuple[int, int] | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        """Take the next batch. Errors: pa.ArrowException if they are no times."""
        begin, end = (pc.cast(batch.column(name), pa.int64()) for name in self.names)
        odd = pc.fill_null(pc.less(end, begin), fill_value=False)
        if number := pc.sum(odd).as_py() or 0:
            at = pc.index(odd, True).as_py()
            self._first = self._first or (self._seen + at, end[at].as_py())
            self._bad += number
        self._seen += batch.num_rows

    def complaints(self) -> Iterator[str]:
        """Yield what is wrong, if anything is."""
        if self._first is not None:
            row, value = self._first
            more = f" (and {self._bad - 1} more rows)" if self._bad > 1 else ""
            begin, end = self.names
            yield (
                f"row {row}{more}: {end} is {value}, before {begin}: both are nanoseconds of one "
                "monotonic clock"
            )


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was seen of a file, or of all files of a table."""

    complaints: list[str] = field(default_factory=list)
    spans: dict[str, Span] = field(default_factory=dict)
    """The earliest and the latest of each time of the run's clock."""
    silent: set[str] = field(default_factory=set)
    """Columns that have to say something and that some rows leave empty."""

    def join(self, other: "Seen") -> None:
        """Take in what was seen of the next file."""
        self.complaints += other.complaints
        self.silent |= other.silent
        for name, (first, last) in other.spans.items():
            self.spans[name] = joined(self.spans.get(name), (first, last))


def look_through(file: Path, table: str, schema: pa.Schema) -> Seen:
    """Return what is wrong with the values in a file, and the spans of its times.

    Errors: OSError, pa.ArrowException if the file cannot be read.
    """
    given = {name.lower(): name for name in schema.names}
    looks = [ColumnLook(table, column) for column in TABLES[table] if column.name in given]
    looks = [look for look in looks if look.is_ruled]
    pairs = [OrderLook(*pair) for pair in ORDERED.get(table, ()) if given.keys() >= set(pair)]
    seen = Seen()
    if looks:
        names = [given[look.column.name] for look in looks]
        with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            for rows in parquet.iter_batches(columns=names):
                batch = in_lower_case(rows)
                for look in looks:
                    look.see(batch.column(look.column.name))
                for pair in pairs:
                    pair.see(batch)
            if parquet.metadata.num_rows:
                seen.silent = set(TELLING.get(table, ())) - given.keys()
    seen.complaints = [line for look in looks for line in look.complaints()]
    seen.complaints += [line for pair in pairs for line in pair.complaints()]
    seen.spans = {look.column.name: look.span for look in looks if look.span is not None}
    seen.silent |= {look.column.name for look in looks if look.is_telling and look.silent}
    return seen


def in_lower_case(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the names of columns as they are declared: others may write them large."""
    return rows.rename_columns([name.lower() for name in rows.schema.names])


def not_for_spark(values: pa.Array, wanted: pa.DataType) -> str:
    """Return why Spark reads otherwise what Arrow understands; empty if it does not."""
    if not pa.types.is_integer(wanted):
        return ""
    words = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    if pa.types.is_string(words.type) or pa.types.is_large_string(words.type):
        odd = pc.filter(words, pc.match_substring(words, "x", ignore_case=True))
        return f"{odd[0].as_py()!r} is no decimal number" if len(odd) else ""
    return ""


def joined(one: Span | None, other: Span) -> Span:
    """Return the span from the begin of the earlier to the end of the later."""
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def unlike_clocks(spans: dict[str, dict[str, Span]]) -> dict[str, str]:
    """Return a line for each table with times of another unit than those of ``sends``.

    One that begins about where sends do, and ends early, is of their unit; unless the clock ran
    for long before: then each time alone tells its unit. ``spans``: by table and column.
    """
    known = spans.get("sends", {}).get("t_inv")
    if known is None:
        return {}
    first, last = max(known[0], BEGIN_NS), known[1]
    found: dict[str, str] = {}
    for table, columns in sorted(spans.items()):
        for column, (begin, end) in columns.items():
            factors = [max(a, b) / min(a, b) for a, b in ((first, begin), (last, end))]
            far = begin * UNITS_APART < first or end > last * UNITS_APART
            if min(factors) > UNITS_APART or (first > LONG_RUNNING_NS and far):
                found.setdefault(
                    table,
                    f"{table}.{column} goes from {begin} to {end}, sends.t_inv up to {last}: two "
                    "units or two clocks; all times are nanoseconds of one monotonic clock",
                )
    return found


def odd_members(run: dict[str, Any]) -> list[str]:
    """Return what is wrong with the members of run.json."""
    found = []
    for name, (types, words) in _SHAPES.items():
        value = run.get(name)
        if not _has_shape(value, types):
            found.append(f"{name} must be {words}, not {value!r}")
    contract, coverage = run.get("contract"), run.get("coverage")
    if isinstance(run.get(TOLERANCE), int) and not 0 <= run[TOLERANCE] <= TOLERANCE_MAX_NS:
        found.append(f"{TOLERANCE} must be 0 to {TOLERANCE_MAX_NS}, not {run[TOLERANCE]}")
    quorum = run.get("quorum")
    numbers = quorum.values() if isinstance(quorum, dict) else [quorum]
    found += [
        f"quorum must be 1 or more, not {number!r}"
        for number in numbers
        if _has_shape(quorum, (int, dict)) and not _is_count(number or 0, least=1)
        if quorum is not None
    ]
    if isinstance(coverage, dict):
        found += [
            f"coverage.{kind} must be a number of faults, not {least!r}"
            for kind, least in coverage.items()
            if not _is_count(least)
        ]
    if isinstance(contract, dict):
        found += [
            f"contract.{name} must be one of {', '.join(words)}, not {contract[name]!r}"
            for name, words in CONTRACT_WORDS.items()
            if name in contract and contract[name] not in words
        ]
        for name in SHARES:
            ratio = contract.get(name, 0)
            if not _is_measure(ratio) or ratio > 1:
                found.append(f"contract.{name} must be 0 to 1, not {ratio!r}")
        for name in TIMES:
            time = contract.get(name, 0)
            if not _is_measure(time):
                found.append(f"contract.{name} must be milliseconds, not {time!r}")
    return [*found, *_odd_groups(run), *_odd_tags(run.get("subscriptions")), *_odd_exits(run)]


def _has_shape(value: object, types: tuple[type, ...]) -> bool:
    """Whether a member of run.json can be used; true and false are no numbers."""
    return value is None or (isinstance(value, types) and not isinstance(value, bool))


def _is_count(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_measure(value: object) -> bool:
    """Whether a value is a number of at least 0 (JSON of Python's may say NaN, or Infinity)."""
    if isinstance(value, float):
        return math.isfinite(value) and value >= 0
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _odd_tags(told: object) -> Iterator[str]:
    """Yield the subscriptions that nobody could follow: without one a group gets everything."""
    groups = told if isinstance(told, dict) else {}
    for group, topics in groups.items():
        lists = topics.items() if isinstance(topics, dict) else [("", topics)]
        for topic, tags in lists:
            words = isinstance(topics, dict) and isinstance(tags, list)
            if not words or any(not isinstance(tag, str) for tag in tags):
                where = ".".join(filter(None, ("subscriptions", group, topic)))
                yield f"{where} must be tags by topic, in a list each, not {tags!r}"


def _odd_exits(run: dict[str, Any]) -> Iterator[str]:
    exits = run.get("exits")
    for row in exits if isinstance(exits, list) else ():
        if not isinstance(row, dict):
            yield f"exits must be objects with process, exit and log, not {row!r}"


def _odd_groups(run: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the members of run.json that speak of groups."""
    modes, most = run.get("modes"), run.get("reconsume_max")
    if isinstance(modes, dict):
        for group, mode in modes.items():
            if mode not in MODES:
                yield f"modes.{group} must be one of {', '.join(MODES)}, not {mode!r}"
    if isinstance(most, dict):
        for group, times in most.items():
            if not isinstance(times, int) or isinstance(times, bool) or times < 0:
                yield f"reconsume_max.{group} must be a number of times, not {times!r}"
    asked = run.get("check_back")
    numbers = {name: asked.get(name) for name in CHECK_BACK} if isinstance(asked, dict) else {}
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            yield f"check_back.{name} must be a number that is not negative, not {number!r}"


def strange_bounds(contract: object) -> list[str]:
    """Return what a contract says and no check reads: a bound under a wrong name bounds nothing."""
    known = sorted({*CONTRACT_WORDS, *SHARES, *TIMES})
    names = [name for name in contract if name not in known] if isinstance(contract, dict) else []
    return [f"contract.{name} is read by no check, which know {', '.join(known)}" for name in names]


def usable_members(run: dict[str, Any]) -> dict[str, Any]:
    """Return run.json without the members, and bounds of the contract, that nobody can use.

    Nor those that are null, which say nothing.
    """
    usable = {
        name: value
        for name, value in run.items()
        if value is not None and (name not in _SHAPES or _has_shape(value, _SHAPES[name][0]))
    }
    contract = usable.get("contract")
    if isinstance(contract, dict):
        bounds = {*TIMES, *SHARES}
        usable["contract"] = {
            name: value
            for name, value in contract.items()
            if name not in bounds or _is_measure(value)
        }
    limits = usable.get("reconsume_max")
    if isinstance(limits, dict):
        usable["reconsume_max"] = {g: times for g, times in limits.items() if _is_count(times)}
    return usable
