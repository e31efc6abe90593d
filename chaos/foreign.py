"""Tables of a history that somebody else may have written, read into rows of the declared types.

Several files a table, columns in any order, narrower or textual numbers, absent optional columns
and unknown ones are all right. A file that cannot be read, or a column that cannot be understood,
takes its whole table with it and is named: half a table would look like loss.

Source: spec/proof.md 4.3; what may be absent: docs/checking.md.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from chaos.history.arrow import arrow_type
from chaos.history.columns import Row
from chaos.history.domains import THERE
from chaos.history.tables import TABLES, Column
from chaos.inflated import check_inflated
from chaos.stored import stored_rows
from chaos.validate import complaints_of, doubled, order_complaints, uneven

BY_COLUMN: Final = frozenset(
    {
        "acks",
        "deliveries",
        "events",
        "queue_index",
        "raft_event",
        "raft_probe",
        "replica_log",
        "sends",
    }
)
"""Tables that grow with the number of messages; a row of any other is a dict."""
OFTEN: Final = frozenset({"grp", "kind", "outcome", "queue_id", "topic"})
"""Columns of these that most checks ask for."""
TEXTS_BYTES_MAX: Final = 4 * 1024**3
"""Of a file that is read as a whole: what is more is for Spark."""


class TableReader:
    """Reads the tables of one run; notes in ``problems`` what is wrong with them.

    ``refused`` are the tables that were left out for it.
    """

    def __init__(self, run: Path, problems: list[str]) -> None:
        self._run = run
        self._problems = problems
        self.refused: set[str] = set()

    def read(self, name: str) -> list[Row]:
        """Return a table's rows with every declared column; [] if it is absent or damaged."""
        parts: list[dict[str, pa.ChunkedArray]] = []
        whole = True
        for file in table_files(self._run, name):
            if not file.is_file():  # nobody may ever write into a pipe
                self._problems.append(f"{file}: not a regular file")
                whole = False
                continue
            try:
                check_inflated(file, TEXTS_BYTES_MAX)
                # Page by page: other columns' structs may be of any shape.
                found = pq.read_table(file, page_checksum_verification=True)
            except (OSError, pa.ArrowException) as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                self._problems.append(f"{file}: not a readable Parquet file: {lines[0]}")
                whole = False
                continue
            complaints: list[str] = []
            parts.append(_declared(found, name, complaints))
            del found
            self._problems += [f"{file}: {line}" for line in complaints]
            whole = whole and not complaints
        rows = _rows_of(name, parts) if whole else []
        if whole and (odd := doubled(name, rows) or uneven(name, rows)):
            self._problems.append(f"{self._run / 'tables' / name}: {odd}")
            whole = False
        pa.default_memory_pool().release_unused()
        if not whole:
            self.refused.add(name)
        return rows if whole else []


def table_files(run: Path, name: str) -> list[Path]:
    """Return the Parquet files of a table, in each place where they may lie.

    What is called so and is no file is among them, for whoever opens it to refuse.
    """
    single = run / "tables" / f"{name}.parquet"
    found = [single] if single.exists() or single.is_symlink() else []
    for folder in table_folders(run, name):
        found += sorted(folder.rglob("*.parquet"))
    return [file for file in found if _is_meant(file)]


def table_folders(run: Path, name: str) -> list[Path]:
    """Return the folders where files of a table may lie."""
    return [folder for folder in (run / "tables" / name, run / name) if folder.is_dir()]


def misplaced(run: Path) -> Iterator[tuple[str, str]]:
    """Yield what nobody reads, a table or a part of one: its name, and a line that says why.

    Nobody knows its name, or it is no Parquet.
    """
    root = run / "tables"
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        is_parquet = path.suffix == ".parquet" or (path.is_dir() and any(path.rglob("*.parquet")))
        name = path.stem if is_parquet else path.name.partition(".")[0]
        if path.name.startswith((".", "_")):
            continue
        if name not in TABLES and is_parquet:
            yield name, f"{path}: no table is called {name}, and nobody reads it"
        elif name in TABLES and not is_parquet and not path.is_dir():
            yield name, f"{path}: it is no Parquet file of the table {name}, and nobody reads it"
    for table in TABLES:
        for folder in table_folders(run, table):
            files = [file for file in sorted(folder.rglob("*")) if _is_meant(file)]
            if odd := [file for file in files if file.suffix != ".parquet"]:
                yield table, f"{odd[0]}: it is no Parquet file of the table {table}"
            elif not files and folder.parent == root:
                yield table, f"{folder}: there is no Parquet file of the table {table} in it"


def _is_meant(file: Path) -> bool:
    """Tell whether a file counts; the folders that are called so are gone through, too."""
    return not file.name.startswith((".", "_")) and not file.is_dir()


def _rows_of(name: str, parts: Sequence[dict[str, pa.ChunkedArray]]) -> list[Row]:
    """Return the rows of a table, as they lie in its files."""
    whole = {}
    for column in TABLES[name]:
        chunks = [chunk for part in parts for chunk in part.pop(column.name).chunks]
        kind = None if chunks else arrow_type(column.type)  # each part has the declared one
        whole[column.name] = pa.chunked_array(chunks, type=kind)
    number = len(whole[TABLES[name][0].name])
    if name in BY_COLUMN:
        return stored_rows(whole, number, OFTEN)
    columns = [values.to_pylist() for values in whole.values()]
    return [dict(zip(whole, row, strict=True)) for row in zip(*columns, strict=True)]


def _declared(found: pa.Table, name: str, complaints: list[str]) -> dict[str, pa.ChunkedArray]:
    """Return the declared columns, as far as they can be understood; {} if there are complaints."""
    present = {
        given.name.lower(): number
        for number, given in enumerate(found.schema)
        if not (found.num_rows and pa.types.is_null(given.type))
    }
    data: dict[str, pa.ChunkedArray] = {}
    times: dict[str, pa.ChunkedArray] = {}
    for column in TABLES[name]:
        number = present.get(column.name)
        if number is None:
            is_needed = not column.nullable or column.name in THERE.get(name, ())
            if is_needed and column.name != "run_id":
                complaints.append(
                    f"the required column {column.name} is missing: add it ({column.type})"
                )
            continue
        known = len(complaints)
        values = _cast(found.column(number), column, complaints)
        if len(complaints) == known:
            complaints += complaints_of(name, column, values)
            times[column.name] = values
        data[column.name] = values
    complaints += order_complaints(name, times)
    if complaints:
        return {}
    empty = {
        column.name: pa.chunked_array([pa.nulls(found.num_rows, arrow_type(column.type))])
        for column in TABLES[name]
        if column.name not in data
    }
    return data | empty


def _cast(values: pa.ChunkedArray, column: Column, complaints: list[str]) -> pa.ChunkedArray:
    given, wanted = values.type, arrow_type(column.type)
    if given == wanted:
        return values
    if _is_another_kind(given, wanted):
        complaints.append(f"column {column.name} is {given}: write it as {column.type}")
        return values
    if pa.types.is_integer(wanted) and (odd := _no_decimal(values)):
        complaints.append(f"column {column.name} has {odd!r}: write numbers as decimal digits")
        return values
    try:
        is_struct = pa.types.is_struct(wanted) and pa.types.is_struct(given)
        return _with_members(values, wanted) if is_struct else pc.cast(values, wanted)
    except pa.ArrowException as error:
        first = (str(error).strip().splitlines() or ["?"])[0]
        complaints.append(
            f"column {column.name} is {values.type} and cannot be read as {column.type}: {first}"
        )
        return values


def _is_another_kind(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a column is of a kind of which no value of the declared one can be made.

    A moment has a unit of its own and an origin, which a number of it does not tell.
    """
    if pa.types.is_null(given):
        return False
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_temporal(given) or pa.types.is_boolean(given))
    if pa.types.is_list(wanted):
        kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        return not any(is_kind(given) for is_kind in kinds)
    return bool(pa.types.is_struct(wanted) and not pa.types.is_struct(given))


def _no_decimal(values: pa.ChunkedArray) -> str:
    """Return the first text that Arrow reads as a number though it is no decimal one; else none.

    Spark would make null of 0x1F.
    """
    given = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not (pa.types.is_string(given) or pa.types.is_large_string(given)):
        return ""
    words = pc.cast(values, given)
    odd = words.filter(pc.match_substring(words, "x", ignore_case=True))
    return str(odd[0]) if len(odd) else ""


def _with_members(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return structs with the declared members, by their names; one that is absent is null.

    Errors: pa.ArrowException for a member that cannot be understood.
    """
    given = {values.type.field(at).name for at in range(values.type.num_fields)}
    fields = [wanted.field(at) for at in range(wanted.num_fields)]
    chunks = []
    for chunk in values.chunks:
        members = [
            pc.cast(pc.struct_field(chunk, one.name), one.type)
            if one.name in given
            else pa.nulls(len(chunk), one.type)
            for one in fields
        ]
        chunks.append(pa.StructArray.from_arrays(members, fields=fields, mask=pc.is_null(chunk)))
    return pa.chunked_array(chunks, type=wanted)
