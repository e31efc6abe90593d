"""``ledgermq store``: look at a store folder that lies there, ours or RocketMQ's.

Options and exit codes; `store.offline` reads, `cli.store_output` prints. Nothing is written unless
an option says so.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.say import say
from cli.times import TIME_FORMS, moment_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.offline.folder import StoreFolder
    from store.offline.log import Progress
    from store.offline.messages import Dump

EXIT_DAMAGED: Final = 1
EXITS: Final = "Exit code: 0 healthy or harmless, 1 damaged, 2 PATH is no store, or wrong usage."
Place = Annotated[
    str, typer.Argument(metavar="PATH", help="A storePathRootDir, or a dledger-ID folder in one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DIGITS: Final = re.compile(r"-?\d{1,18}")

app = typer.Typer(
    name="store",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help=(
        "Look at a store on disk, ours or RocketMQ's: check it, print it, count it, make its "
        "queues anew.\n\nExample: ledgermq store verify store/n0"
    ),
)


@app.command(epilog=EXITS)
def verify(path: Place, as_json: AsJson = False) -> None:
    """Check every record of the log, and queues, key index and small files against it.

    Writes nothing. What the next start puts right by itself, as after a crash, is *harmless*; bytes
    that are not what was written are *damage*, with file and offset.

    Example: ledgermq store verify store/n0

    Example: ledgermq store verify /data/rocketmq/store --json
    """
    from cli import store_output
    from store.offline.findings import Health
    from store.offline.verify import verify as check

    folder = _open(path)
    with _progress("verify", folder) as progress:
        report = check(folder, progress)
    if as_json:
        say(json.dumps(report.as_row(), indent=2))
    else:
        store_output.print_report(report)
    raise typer.Exit(EXIT_DAMAGED if report.findings.health is Health.DAMAGED else 0)


@app.command(epilog="Exit code: 0 done, 1 something could not be read, 2 PATH is no store.")
def dump(
    path: Place,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
    queue: Annotated[
        int | None, typer.Option("-q", "--queue", min=0, help="Only queues of this number.")
    ] = None,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="Only queue offsets from this one on.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=0, help="Only queue offsets up to this one.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Only stored then or later ({TIME_FORMS}).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Only stored before then ({TIME_FORMS}).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many messages.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: queues, then messages.")
    ] = False,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Parquet file; prints nothing.")
    ] = None,
) -> None:
    """Print messages in the order of the log, as a consumer would get them.

    Damaged places are passed over and named on stderr. Messages of a log of a Raft group that are
    not known to be committed are printed, too.

    Example: ledgermq store dump store/n0 -t orders --limit 10

    Example: ledgermq store dump store/n0 --json > messages.jsonl

    Example: ledgermq store dump store/n0 --since 2026-11-21T08:00 --parquet messages.parquet
    """
    from cli import store_output
    from store.offline.messages import Dump, Selection

    if as_json and parquet is not None:
        raise typer.BadParameter("asks for something else", param_hint="--parquet with --json")
    selection = Selection(
        topic=topic, queue_id=queue, first=first, last=last, limit=limit,
        since_ms=_time_ms(since, "--since"), until_ms=_time_ms(until, "--until"),
    )  # fmt: skip
    folder = _open(path)
    with _progress("dump", folder, quiet=parquet is None) as progress:
        messages = Dump(folder, selection, progress)
        if parquet is not None:
            store_output.write_parquet(messages, parquet)
        else:
            _print_messages(messages, as_json=as_json)
    raise typer.Exit(_tell_damage(messages))


@app.command(epilog=EXITS)
def stat(path: Place, as_json: AsJson = False) -> None:
    """Count messages, bytes and files: per queue, of the log, of the key index.

    Walks the whole log; writes nothing.

    Example: ledgermq store stat store/n0
    """
    from cli import store_output
    from store.offline.statistics import collect

    folder = _open(path)
    with _progress("stat", folder) as progress:
        found = collect(folder, progress)
    if as_json:
        say(json.dumps(found.as_row(), indent=2))
    else:
        store_output.print_statistics(found)
    raise typer.Exit(EXIT_DAMAGED if found.damaged else 0)


@app.command(epilog="Exit code: 0 done, 2 PATH is no store, is in use, or its log is damaged.")
def rebuild(
    path: Place,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without this, only say what it would do.")
    ] = False,
    queue_file_bytes: Annotated[
        int | None,
        typer.Option(
            min=20,
            metavar="BYTES",
            help="Size of queue files (mappedFileSizeConsumeQueue); default: as they are.",
        ),
    ] = None,
) -> None:
    """Make consume queues and key index anew from the log.

    The old ones stay beside the new ones, as consumequeue.replaced and index.replaced. The log is
    not touched. A rebuild that was interrupted can be run again.

    Example: ledgermq store rebuild store/n0

    Example: ledgermq store rebuild store/n0 --yes
    """
    from ledgermq.runtime.clock import SystemClock
    from ledgermq.runtime.disk import RealDisk
    from store.offline.rebuild import Rebuild

    folder = _open(path)
    with _progress("rebuild", folder, passes=2 if yes else 1) as progress:
        work = Rebuild(
            folder, RealDisk(), SystemClock(), progress, queue_file_bytes=queue_file_bytes
        )
        plan = work.survey()
        if yes:
            work.run(plan)
    parts = "consumequeue and index" if work.has_index else "consumequeue"
    counts = (
        f"{plan.messages} messages in {len(plan.queues)} queues"
        f" with files of {work.queue_file_bytes} bytes"
        + (f", {plan.keyed} of them with keys" if work.has_index else "")
        + (f"; {len(plan.kept)} queues without messages kept" if plan.kept else "")
    )
    if yes:
        say(f"made {parts} anew: {counts}; the old ones: *.replaced")
    else:
        say(f"would make {parts} anew: {counts}; nothing was written, --yes does it")


def _open(path: str) -> StoreFolder:
    from ledgermq.runtime.errors import EXIT_BAD_INPUT, FatalError
    from store.offline.folder import UnusableError, open_folder

    try:
        folder = open_folder(path)
    except UnusableError as error:
        raise FatalError(str(error), EXIT_BAD_INPUT) from error
    holder = folder.locked_by()
    if holder is not None:
        who = f"process {holder}" if holder else "another process"
        say(f"ledgermq: in use by {who}: this is what is there now", err=True)
    return folder


@contextmanager
def _progress(
    what: str, folder: StoreFolder, *, quiet: bool = False, passes: int = 1
) -> Iterator[Progress | None]:
    """Show on stderr how far a walk over the log has come, if that is a terminal."""
    if not sys.stderr.isatty() or (quiet and sys.stdout.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    total = passes * sum(log.segments.apparent for log in folder.logs)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


def _print_messages(messages: Dump, *, as_json: bool) -> None:
    """Print rows until all are out, or nobody reads any more."""
    from cli.store_output import message_line
    from ledgermq.runtime.printable import json_line

    try:
        if as_json:
            for row in messages.queue_rows():
                sys.stdout.write(json_line(row) + "\n")
        for row in messages.message_rows():
            line = json_line(row) if as_json else message_line(row)
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has had enough; the interpreter would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell_damage(messages: Dump) -> int:
    from ledgermq.runtime.printable import shown

    for path, offset, reason in messages.damages:
        say(f"ledgermq: damaged: {shown(path)} offset {offset}: {reason}", err=True)
    if messages.tail is not None:
        path, offset, reason = messages.tail
        say(f"ledgermq: the log ends at {shown(path)} offset {offset}: {reason}", err=True)
    return EXIT_DAMAGED if messages.damages else 0


def _time_ms(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    if _DIGITS.fullmatch(text):
        return int(text)
    if (found := moment_ms(text)) is None:
        said = f"{text!r} is no time: milliseconds, or as 2025-01-31T12:00, are expected"
        raise typer.BadParameter(said, param_hint=option)
    return found
