"""``ledgermq import | export``: histories of others in, ours out.

Knows the options and how to say what went wrong; `chaos.exchange` does the work. Exit codes: 0
done, 2 wrong usage or input, or nothing could be written, 143 ended by SIGTERM.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from chaos.hints import program
from chaos.needs import require
from cli.say import say

PANEL = "Faults and proof"
EXIT_INPUT = 2
EXIT_TERMINATED = 143
MAPPING_BYTES_MAX = 1 << 20


class Source(StrEnum):
    """In which form a history of others is."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    JEPSEN_EDN = "jepsen-edn"


class Form(StrEnum):
    """In which form a run is written for others."""

    JEPSEN_EDN = "jepsen-edn"
    ELLE = "elle"


FILES = {Form.JEPSEN_EDN: "history.edn", Form.ELLE: "elle.edn"}
"""In which file of its run an export is, if nobody says where."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command("import", rich_help_panel=PANEL)(import_)
    app.command(rich_help_panel=PANEL)(export)


def import_(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A file, or a directory of files.")
    ],
    form: Annotated[Source, typer.Option("--from", help="What SOURCE is made of.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run directory to make.")],
    mapping: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Which of its columns is which of ours (TOML)."),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Leave bad rows out; the verdict is then UNKNOWN at the best."
        ),
    ] = False,
) -> None:
    """Make a run of the history of any system, for both checkers to judge.

    The mapping says which columns hold the keys, queues, offsets and times, in which units and
    words; docs/import.md has all of it.

    Example: ledgermq import --from csv examples/histories/kafka
    --mapping examples/histories/kafka/mapping.toml --out runs/kafka
    """
    require("chaos")
    from chaos.exchange.importer import BadRowsError, import_history
    from chaos.exchange.jepsen_import import import_jepsen
    from chaos.exchange.mapping import HistoryMapping, MappingError, parse_mapping
    from chaos.exchange.sources import SourceError
    from chaos.exchange.tables import FullError

    of_jepsen = form is Source.JEPSEN_EDN
    if mapping is None and not of_jepsen:
        raise typer.BadParameter(
            "is needed: a file that says which columns are which (docs/import.md)",
            param_hint="--mapping FILE",
        )
    try:
        told = HistoryMapping(tables=())
        if mapping is not None:
            told = parse_mapping(_read(mapping), str(mapping), has_tables=not of_jepsen)
        with _ended_by_sigterm():
            if of_jepsen:
                made = import_jepsen(source, told, out, skip_bad=skip_bad, progress=_progress)
            else:
                made = import_history(
                    source, form.value, told, out, skip_bad=skip_bad, progress=_progress
                )
    except (MappingError, SourceError, FullError, FileExistsError) as error:
        _refuse(str(error))
    except BadRowsError as error:
        _refuse(f"{error}\nnothing was imported: mend these rows, or leave them out: --skip-bad")
    except OSError as error:
        _refuse(_told(error, error.filename or f"{source} into {out}"))
    for name, rows in sorted(made.rows.items()):
        say(f"{name:<12} {rows:>12,}")
    for line in made.problems:
        say(line)
    say(f"made {out}; judge it: {program()} chaos check {out}")


def export(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run, e.g. runs/latest.")
    ],
    form: Annotated[Form, typer.Option("--format", help="For whom it is written.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to (default RUN/history.edn or RUN/elle.edn)."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over FILE if it is there already.")
    ] = False,
) -> None:
    """Write a run as Jepsen would: for its Kafka checker, or for Elle as lists and appends.

    Example: ledgermq export runs/latest --format jepsen-edn
    """
    require("chaos")
    from chaos.exchange.export import export_history, refuse_target
    from chaos.load import load_history
    from chaos.record import DamagedRecording
    from chaos.run import convert_interrupted

    if not run.is_dir():
        raise typer.BadParameter(f"{run} is not a directory", param_hint="RUN")
    target = run / FILES[form] if out is None else out
    try:
        refuse_target(target, force=force)
    except OSError as error:
        _refuse(_told(error, target))
    try:
        convert_interrupted(run)
    except DamagedRecording as error:
        _refuse(f"the recording cannot be read: {error}")
    except OSError as error:
        _refuse(_told(error, error.filename or run))
    history = load_history(run)
    if not history.sends:
        _refuse("\n".join([*history.problems, f"{run} has no sends that can be read"]))
    try:
        with _ended_by_sigterm():
            made = export_history(history, form.value, target, force=force)
    except OSError as error:
        _refuse(_told(error, target))
    for line in history.problems:
        say(line, err=True)
    say(f"wrote {target}: {made.operations:,} lines")
    if made.left_out:
        say(f"{made.left_out:,} rows have no place in it: copies, or messages without one")


def _read(mapping: Path) -> str:
    try:
        with mapping.open("rb") as file:
            text = file.read(MAPPING_BYTES_MAX + 1)
        if len(text) > MAPPING_BYTES_MAX:
            _refuse(f"{mapping}: more than {MAPPING_BYTES_MAX} bytes, no mapping")
        return text.decode()
    except OSError as error:
        _refuse(_told(error, mapping))
    except UnicodeDecodeError as error:
        _refuse(f"{mapping}: not UTF-8: {error}")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that what is half made is taken away as after Ctrl-C."""

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _told(error: OSError, where: Path | str) -> str:
    """Return an error of the system with the place that it is about; ours say it themselves."""
    return f"{where}: {error.strerror}" if error.strerror else str(error)


def _progress(line: str) -> None:
    say(line, err=True)


def _refuse(lines: str) -> NoReturn:
    say(lines, err=True)
    raise typer.Exit(EXIT_INPUT)
