"""``python -m spark.check_history RUN``: the verdict over a run's history, on Spark.

Exit codes: 0 valid, 1 invalid, 2 unknown, 3 valid but the contract was exceeded, 254 usage,
255 the job itself failed. Source: spec/proof.md 4.2.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from pyspark import SparkContext
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.catalogue.checks import CHECKS as ENTRIES
from chaos.catalogue.console import PlainConsole
from spark.cluster import ClusterError, Worker, is_remote, look_at_workers, seen_files
from spark.commit_log import find_replicas
from spark.history import BrokenHistoryError, History, open_history
from spark.job import CHECKS, Report, describe_error, run_checks, write_report
from spark.result import EXIT_HARNESS, EXIT_USAGE, VALID
from spark.session import JvmNotFoundError, open_session

ENTRY_BYTES_GUESS = 1200
QUICK_ROWS_MAX = 600_000
QUICK_MEMORY, MEMORY = "1g", "2g"
"""Nothing large is kept on the heap: what does not fit there is spilled."""
_STYLES = {"valid": "green", "invalid": "bold red", "unknown": "yellow", "not checked": "dim"}
_COUNT_WORDS = {"inconsistent_offsets": "inconsistent offsets", "log_entries": "log entries"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return its exit code."""
    options = _parse(arguments)
    progress = PlainConsole(stderr=True, soft_wrap=True)
    output = PlainConsole()
    try:
        history = open_history(options.run)
    except FileNotFoundError as error:
        progress.print(f"spark.check_history: {error}", markup=False)
        return EXIT_USAGE
    except Exception as error:  # noqa: BLE001 - exit code 255 says that the job failed
        progress.print(f"spark.check_history: {describe_error(error)}", markup=False)
        return EXIT_HARNESS
    history.path = history.path.resolve()  # workers have another current directory
    out = (options.out or history.path / "verdict").resolve()
    begin = time.perf_counter()
    try:
        report = _check(history, options, out, progress)
    except (ClusterError, JvmNotFoundError) as error:
        progress.print(f"spark.check_history: {error}", markup=False)
        return EXIT_HARNESS
    except Exception as error:  # noqa: BLE001 - exit code 255 says that the job failed
        progress.print(f"spark.check_history: {describe_error(error)}", markup=False)
        return EXIT_HARNESS
    if options.json:
        output.print_json(json.dumps(report.as_json(), default=str))
    else:
        show(report, history, output)
        output.print(
            f"results in {out / 'results.json'} ({time.perf_counter() - begin:.1f} s)",
            markup=False,
            soft_wrap=True,
        )
    return report.verdict.exit_code


def show(report: Report, history: History, console: Console) -> None:
    """Print the table of checks, the first pieces of evidence, the counts and the verdict."""
    table = Table(title=f"run {history.run_id}", title_justify="left", expand=False)
    for name, style in (("check", "bold"), ("", ""), ("verdict", ""), ("found", "")):
        table.add_column(name, style=style, justify="right" if name == "found" else "left")
    table.add_column("")
    for result in report.results:
        table.add_row(
            result.check,
            ENTRIES[result.check].title,
            Text(result.verdict, style=_STYLES[result.verdict]),
            str(result.count),
            result.summary,
        )
    console.print(table)
    for result in report.results:
        for item in result.evidence[:3] if result.verdict != VALID else ():
            console.print(f"  {result.check}: {item['explain']}", markup=False, soft_wrap=True)
    told = [(w, n) for w, n in report.counts.items() if n is not None]
    counts = ", ".join(f"{n} {_COUNT_WORDS.get(w, w)}" for w, n in told)
    console.print(counts, markup=False, soft_wrap=True)
    verdict = report.verdict
    word = "VALID, BUT THE CONTRACT WAS EXCEEDED" if verdict.exit_code == 3 else verdict.verdict
    console.print(Text(f"verdict: {word.upper()}", style=_STYLES[verdict.verdict]))
    for reason in verdict.reasons:
        console.print(f"  {reason}", markup=False, soft_wrap=True)


def _check(history: History, options: argparse.Namespace, out: Path, progress: Console) -> Report:
    say = _quiet if options.json else progress.print
    say(f"checking {history.path}")
    entries = guess_entries(history)
    quick = history.rows("sends") + history.rows("deliveries") + entries < QUICK_ROWS_MAX
    with open_session(
        options.master,
        partitions=options.partitions or history.partitions(entries),
        driver_memory=options.driver_memory or (QUICK_MEMORY if quick else MEMORY),
        quick=quick,
        settings=dict(options.conf),
    ) as session:
        if is_remote(session.sparkContext.master):
            say(_describe(_look(session.sparkContext, history, out)))
        report = run_checks(session, history, only=options.only, progress=say)
        write_report(report, out)
        return report


def _look(context: SparkContext, history: History, out: Path) -> list[Worker]:
    """Ask the workers of a cluster what they have. Errors: ClusterError, OSError."""
    out.mkdir(parents=True, exist_ok=True)
    files = seen_files(history.path / "tables") | seen_files(history.path / "replicas")
    return look_at_workers(context, files, [out])


def _describe(workers: list[Worker]) -> str:
    hosts = ", ".join(sorted({worker.host for worker in workers}))
    return f"{len(workers)} executors on {hosts}: Python {workers[0].python}, they see the run"


def guess_entries(history: History) -> int:
    """Return about how many log entries the segments hold, from their allocated blocks."""
    try:
        replicas = find_replicas(history.path)
    except BrokenHistoryError:
        return 0
    used = sum(Path(s).stat().st_blocks * 512 for r in replicas for s in r.segments)
    return used // ENTRY_BYTES_GUESS


def _quiet(message: str) -> None:
    """Say nothing: with ``--json`` only JSON is printed."""


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m spark.check_history", description=__doc__)
    parser.add_argument(
        "run",
        type=directory,
        help="the run: RUN/tables/<table>/*.parquet; file:// it",
    )
    parser.add_argument("--master", help="any Spark master; default: this machine, all cores")
    parser.add_argument("--only", type=_names, default=CHECKS, help="checks, such as A1,A15")
    parser.add_argument("--json", action="store_true", help="print results.json and nothing else")
    parser.add_argument("--out", type=directory, help="where to write; default RUN/verdict")
    parser.add_argument("--partitions", type=_number, help="shuffle partitions; default by size")
    parser.add_argument("--driver-memory", type=_memory, help="heap of the driver, such as 4g")
    parser.add_argument(
        "--conf", type=_setting, action="append", default=[], help="Spark's own, NAME=VALUE"
    )
    return parser.parse_args(arguments)


def directory(text: str) -> Path:
    """Return the path that a word or a ``file://`` URL names.

    Errors: argparse.ArgumentTypeError for a URL of anything else.
    """
    if "://" not in text:
        return Path(text)
    url = urlsplit(text)
    if url.scheme != "file" or url.netloc not in {"", "localhost"}:
        raise argparse.ArgumentTypeError(
            f"{text} is in no file system: segments of logs are read by mapping their files; copy"
            " the run into a folder that driver and workers share, or mount the store there"
        )
    return Path(unquote(url.path))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting; write spark.NAME=VALUE")
    return name, value


def _number(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of partitions; write 1 or more")
    return int(text)


def _memory(text: str) -> str:
    if not re.fullmatch("[1-9][0-9]*[mgMG]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size of memory; write 2g or 512m")
    return text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().upper() for name in text.split(",") if name.strip())
    wrong = [name for name in names if name not in CHECKS]
    other = [
        f"{name} is asked of histories as {', '.join(ENTRIES[name].asked_as)}"
        for name in wrong
        if name in ENTRIES and ENTRIES[name].asked_as
    ]
    if other:
        raise argparse.ArgumentTypeError("; ".join(other))
    if wrong or not names:
        raise argparse.ArgumentTypeError(
            f"unknown check {', '.join(wrong) or '(none)'}; known: {', '.join(CHECKS)}"
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
