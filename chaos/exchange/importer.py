"""Makes a run directory of files of others, by a mapping: what both checkers then judge.

Streams: a row at a time in, pieces of tables out. A row that cannot be understood is named with
file and line and refuses the whole, or is counted, and then nothing is proved any more.
Source: docs/import.md.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from chaos.catalogue.checks import LEFT_OUT
from chaos.exchange.cells import CellError, cell_at, look_up, value_of
from chaos.exchange.mapping import EFFECTIVE, HistoryMapping, TableMapping, word_of
from chaos.exchange.quoting import LINE_CHARS_MAX, cut
from chaos.exchange.sources import SourceRow, find_files, rows_of
from chaos.exchange.tables import Row, RunWriter
from chaos.history.domains import TOLERANCE

BAD_ROWS_SHOWN: Final = 20
ROWS_PER_LINE: Final = 500_000
"""After so many rows somebody is told how far it is."""
Progress = Callable[[str], None]


class BadRowsError(Exception):
    """Rows cannot be understood; the message names the first of them, a line each."""


@dataclass(slots=True)
class BadRows:
    """What could not be understood: the first few, and how many in which file."""

    skip: bool
    shown: list[str] = field(default_factory=list)
    by_file: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)

    def note(self, file: Path, line: int, why: str, tables: Collection[str]) -> None:
        """Take one more, of these tables.

        Errors: BadRowsError, if none may be left out and enough were seen.
        """
        self.tables |= set(tables)
        said = f"{file}:{line}: {cut(why, LINE_CHARS_MAX)}"
        self.by_file[str(file)] += 1
        self.first.setdefault(str(file), said)
        if len(self.shown) < BAD_ROWS_SHOWN:
            self.shown.append(said)
        elif not self.skip:
            self.refuse()

    def refuse(self) -> None:
        """Refuse the history if a row was bad and none may be left out. Errors: BadRowsError."""
        if self.shown and not self.skip:
            raise BadRowsError("\n".join(self.shown))

    def problems(self) -> Iterator[str]:
        """Yield what run.json has to say of what is missing."""
        for file, number in self.by_file.items():
            yield f"import: {number} rows of {file} were left out, the first: {self.first[file]}"

    def about(self) -> dict[str, list[str]]:
        """Return what run.json has to say of it: half a record would look like loss, or a lie."""
        problems = list(self.problems())
        return {"problems": problems} | ({LEFT_OUT: sorted(self.tables)} if problems else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import has made."""

    rows: dict[str, int]
    skipped: int
    problems: tuple[str, ...]


def import_history(
    source: Path, kind: str, mapping: HistoryMapping, out: Path, *, skip_bad: bool,
    progress: Progress,
) -> Imported:  # fmt: skip
    """Make the run directory ``out``.

    Errors: SourceError, BadRowsError, FullError, FileExistsError, OSError; then there is no
    ``out``.
    """
    bad = BadRows(skip=skip_bad)
    with RunWriter(out, mapping.run_id) as run:
        # All are looked up before anything is written: RUN may lie below SOURCE.
        found = [(table, find_files(source, kind, table.files)) for table in mapping.tables]
        for table, files in found:
            for file in files:
                _import_file(run, table, file, kind, bad, progress)
        bad.refuse()
        if mapping.drained:
            groups = None if mapping.drained is True else list(mapping.drained)
            for row in run.queues.drained(groups):
                run.add("drain", row)
        about = dict(mapping.run)
        if mapping.tolerance_ns:
            about[TOLERANCE] = mapping.tolerance_ns
        run.finish(about | bad.about())
        skipped = bad.by_file.total()
        return Imported(rows=run.rows(), skipped=skipped, problems=tuple(bad.problems()))


def _import_file(
    run: RunWriter, table: TableMapping, file: Path, kind: str, bad: BadRows, progress: Progress
) -> None:
    taken = number = 0
    checked = False
    unseen = _named(table)
    for row in rows_of(file, kind):
        number += 1
        if number % ROWS_PER_LINE == 0:
            progress(f"{file}: {number:,} rows read, {taken:,} of them {table.name}")
        if row.wrong:
            bad.note(file, row.line, row.wrong, {table.name})
            continue
        if not checked and kind != "jsonl":
            absent = _absent(table, row)
            if absent:
                columns = ", ".join(row.cells)
                raise BadRowsError(f"{file}: no column {absent}; there are {columns}")
            checked = True
        unseen = unseen and {name for name in unseen if cell_at(row.cells, name) is None}
        if not _is_wanted(table, row):
            continue
        try:
            made, name = _made(run, table, row)
        except CellError as error:
            bad.note(file, row.line, str(error), {table.name})
            continue
        if name is not None and table.name == "sends":
            run.name_key(made["msg_key"], name)
        run.add(table.name, made)
        taken += 1
    progress(f"{file}: {taken:,} {table.name}")
    if number and unseen and kind == "jsonl":  # no header says it; each may be left out
        progress(f"{file}: no row has {', '.join(sorted(unseen))}, which the mapping names")


def _named(table: TableMapping) -> set[str]:
    """Return the names of a stranger's columns that the mapping of a table knows."""
    return {*(source for cell in table.cells for source in cell.sources), *table.only}


def _absent(table: TableMapping, row: SourceRow) -> str:
    """Return which columns of a file the mapping names and nobody finds."""
    return ", ".join(sorted(name for name in _named(table) if name.split(".")[0] not in row.cells
                            and name not in row.cells))  # fmt: skip


def _is_wanted(table: TableMapping, row: SourceRow) -> bool:
    for name, words in table.only.items():
        value = cell_at(row.cells, name)
        text = "" if value is None else word_of(value)
        if text not in words:
            return False
    return True


def _made(run: RunWriter, table: TableMapping, row: SourceRow) -> tuple[Row, str | None]:
    """Return a row of ours, and what its message was called if that was a name.

    Errors: CellError.
    """
    made: dict[str, Any] = {}
    name = None
    # The topic first: queues are numbered within it.
    for cell in sorted(table.cells, key=lambda cell: cell.target.name != "topic"):
        topic = str(made.get("topic") or "")
        made[cell.target.name] = value_of(table.name, cell, row.cells, run.names, topic)
        if cell.target.name == "msg_key" and cell.is_named and made["msg_key"] is not None:
            name = str(look_up(row.cells, cell))
    if EFFECTIVE in made:
        made["witness"] = {"effective": made.pop(EFFECTIVE)}
    return made, name
