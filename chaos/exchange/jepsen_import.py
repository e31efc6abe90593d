"""Makes a run directory of a Jepsen history: an operation a form, read one by one.

What is no operation is named by its line and refuses the whole, or is counted; what is no EDN
refuses it always, since nobody knows where the next form begins. Source: docs/import.md.
"""

from pathlib import Path
from typing import Any, Final

from chaos.exchange.cells import CellError
from chaos.exchange.edn import EdnError, read_forms
from chaos.exchange.importer import ROWS_PER_LINE, BadRows, Imported, Progress
from chaos.exchange.jepsen import JepsenRows, Operation, OperationError, operations
from chaos.exchange.mapping import HistoryMapping
from chaos.exchange.quoting import LINE_CHARS_MAX, cut
from chaos.exchange.sources import SourceError, find_files, lines_of
from chaos.exchange.tables import RunWriter
from chaos.history.domains import TOLERANCE

CONTRACT: Final[dict[str, Any]] = {"durability": "quorum", "redelivery_ratio_max": 1}
"""What Jepsen asks: nothing may be lost, and anything may come again."""
MADE: Final = ("sends", "deliveries")
"""The tables of which an operation may be a part: which, nobody knows of one that is none."""


def import_jepsen(
    source: Path, mapping: HistoryMapping, out: Path, *, skip_bad: bool, progress: Progress
) -> Imported:
    """Make the run directory ``out`` of ``source``, a history or a directory that has one.

    Errors: SourceError, BadRowsError, FullError, FileExistsError, OSError; then there is no
    ``out``.
    """
    files = find_files(source, "jepsen-edn", "*history.edn")
    if len(files) > 1:
        raise SourceError(f"{source}: {len(files)} histories; name one, such as {files[0]}")
    bad = BadRows(skip=skip_bad)
    with RunWriter(out, mapping.run_id) as run:
        rows = JepsenRows(run)
        _read(files[0], rows, bad, progress)
        bad.refuse()
        if rows.ignored:
            split = ", ".join(f"{n} {cut(f)}" for f, n in sorted(rows.ignored.items()))
            progress(f"{files[0]}: not looked at: {cut(split, LINE_CHARS_MAX)}")
        if not run.rows().keys() & {"sends", "deliveries"}:
            raise SourceError(
                f"{files[0]}: no operation found that sends or receives a message: send, poll, "
                "txn, enqueue, dequeue or drain"
            )
        if mapping.drained:
            groups = None if mapping.drained is True else list(mapping.drained)
            for row in run.queues.drained(groups):
                run.add("drain", row)
        else:
            rows.finish()
        contract = CONTRACT | rows.about.pop("contract", {})
        said: dict[str, Any] = {"contract": contract, "subscriptions": rows.subscriptions}
        about = said | rows.about | dict(mapping.run)
        if tolerance := mapping.tolerance_ns or rows.tolerance_ns:
            about[TOLERANCE] = tolerance
        told = bad.about()
        problems = (*told["problems"], *rows.problems)
        run.finish(about | told | {"problems": list(problems)})
        return Imported(rows=run.rows(), skipped=bad.by_file.total(), problems=problems)


def _read(file: Path, rows: JepsenRows, bad: BadRows, progress: Progress) -> None:
    number = 0
    try:
        with file.open(encoding="utf-8") as text:
            for line, op in operations(read_forms(lines_of(file, text))):
                number += 1
                if number % ROWS_PER_LINE == 0:
                    progress(f"{file}: {number:,} operations")
                try:
                    if not isinstance(op, Operation):
                        bad.note(file, line, op, MADE)
                    else:
                        rows.add(op)
                except (OperationError, CellError) as error:
                    bad.note(file, line, str(error), MADE)
    except EdnError as error:
        raise SourceError(f"{file}: no EDN: {error}") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{file}: not UTF-8: {error}") from error
    progress(f"{file}: {number:,} operations")
