"""``ledgermq demo``: three brokers under faults, then the verdict of two checkers.

Exit codes: 0 valid, 1 invalid, 2 unknown, 3 valid but the contract was exceeded, 254 usage, 255
harness failure. Source: spec/proof.md 4.2, README.md#two-commands.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from chaos.backends.base import ClusterFailed
from chaos.checker.compose import EXIT_HARNESS, EXIT_USAGE
from chaos.convert import read_table
from chaos.parts import RunOptions
from chaos.run import run_scenario
from chaos.scenario import Scenario, demo, flush_of
from chaos.show import show_judgement
from chaos.verdict import (
    Judgement,
    combine,
    judge_in_process,
    judge_with_spark,
    make_report,
)
from chaos.view import View
from ledgermq.runtime.clock import SystemClock

RATE_MAX = 5_000.0
SECONDS_MAX = 3_600.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    options = parser("ledgermq demo").parse_args(argv)
    scenario = demo(seconds=options.seconds, rate=options.rate)
    return run_and_judge(scenario, options)


def run_and_judge(scenario: Scenario, options: argparse.Namespace) -> int:
    """Run a scenario, judge it, print everything; return the exit code."""
    console = Console(highlight=False)
    try:
        return asyncio.run(_go(scenario, options, console))
    except (ClusterFailed, OSError) as error:
        console.print(Text(f"the run failed: {error}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted; everything that was started has been ended")
        return EXIT_HARNESS


async def _go(scenario: Scenario, options: argparse.Namespace, console: Console) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    run = options.out or new_run_directory(Path("runs"))
    if run.exists():
        console.print(Text(f"--out {run}: there is something already"), soft_wrap=True)
        return EXIT_USAGE
    seed = options.seed if options.seed is not None else SystemClock().wall_ms() % 1_000_000
    chosen = RunOptions(run=run, seed=seed, backend=options.backend, mutant=options.mutant)
    scenario = replace(scenario, flush=flush_of(seed, options.flush))
    planted = f", with a planted bug: {options.mutant}" if options.mutant else ""
    about = f"seed {seed}, {scenario.flush}{planted}"
    console.print(f"Scenario {scenario.name}, {about}; run directory {run}")
    with View(console, SystemClock()) as view:
        await run_scenario(scenario, chosen, view)
        view.phase("check", "in process: the history against the replicas' logs")
        local = judge_in_process(run)
        spark = None
        if options.spark:
            view.phase("spark", "the same questions again, as a Spark job")
            spark = await judge_with_spark(run)
            if spark is None:
                view.notice(f"the Spark job gave no result; its log: {run / 'logs' / 'spark.log'}")
        judgement = combine(local, spark, spark_wanted=options.spark)
        view.phase("report", "drawing")
        report = await make_report(run)
        if report is None:
            view.notice(f"no report was drawn; its log: {run / 'logs' / 'report.log'}")
    show_judgement(console, judgement, read_table(run, "faults"), run)
    say_next(console, judgement, options, (run, report))
    return judgement.exit_code


def say_next(
    console: Console,
    judgement: Judgement,
    options: argparse.Namespace,
    paths: tuple[Path, Path | None],
) -> None:
    """Print where the report is and what to try next; ``paths`` are the run and its report."""
    run, report = paths
    if report is not None:
        console.print(Text(f"Report: {report.resolve()}"), soft_wrap=True)
    console.print("What to try next:")
    if judgement.verdict != "invalid" and options.mutant is None:
        console.print("  make demo ARGS=--break=ack-before-quorum   a planted bug: must be INVALID")
    if options.backend == "local":
        console.print("  make docker-demo                           the same in containers")
    again = f"  ledgermq check {run} --only A1,A15"
    console.print(Text(f"{again:<43}  Spark's checks again, by name"), soft_wrap=True)


def new_run_directory(root: Path) -> Path:
    """Return a new name under ``root``, and let ``root/latest`` point at it."""
    root.mkdir(parents=True, exist_ok=True)
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    latest = root / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(name)
    return root / name


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the options that all runs share."""
    made = _Parser(prog=prog, description=(__doc__ or "").splitlines()[0])
    made.add_argument(
        "--seconds", type=_between(5, SECONDS_MAX), default=18.0, help="length of the fault phase"
    )
    made.add_argument("--rate", type=_between(1, RATE_MAX), default=300.0, help="sends a second")
    made.add_argument("--seed", type=int, help="of the workload and the choice of victims")
    made.add_argument("--break", dest="mutant", metavar="BUG", help="plant a bug in the brokers")
    made.add_argument(
        "--flush", choices=("sync", "async"), help="of the brokers; by default the seed says"
    )
    made.add_argument("--out", "--run-dir", type=Path, help="run directory (default runs/TIME)")
    made.add_argument("--backend", choices=("local", "docker"), default="local")
    made.add_argument(
        "--no-spark", dest="spark", action="store_false", help="only the in-process checker"
    )
    return made


def _between(low: float, high: float) -> "_Range":
    return _Range(low, high)


class _Range:
    """An argparse type: a number within limits."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not self._low <= number <= self._high:
            limits = f"{self._low:g}..{self._high:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {limits}")
        return number


if __name__ == "__main__":
    sys.exit(main())
