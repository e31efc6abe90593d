"""``ledgermq demo``: three brokers under faults, then the verdict of two checkers.

Exit codes: 0 valid, 1 invalid, 2 unknown, 3 valid but the contract was exceeded, 130 interrupted
(143 by SIGTERM), 254 usage, 255 harness failure. Source: spec/proof.md 4.2,
README.md#two-commands.
"""

import argparse
import asyncio
import contextlib
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from chaos.backends.base import ClusterFailed
from chaos.catalogue.console import PlainConsole
from chaos.catalogue.contracts import CONTROLLER, MODES, RAFT, SYNC_MASTER
from chaos.checker.compose import EXIT_HARNESS, EXIT_USAGE
from chaos.convert import read_table
from chaos.hints import has_target, program
from chaos.pair_scenarios import ROUND_S as PAIR_ROUND_S
from chaos.pair_scenarios import pair_demo
from chaos.parts import RunOptions
from chaos.record import DamagedRecording
from chaos.run import convert_interrupted, run_scenario
from chaos.scenario import ROUND_S, WORKLOADS, Scenario, demo, flush_of
from chaos.show import show_verdict
from chaos.switch_scenarios import ROUND_S as SWITCH_ROUND_S
from chaos.switch_scenarios import switch_demo
from chaos.verdict import (
    CombinedVerdict,
    SparkOutcome,
    check_in_process,
    check_with_spark,
    combine,
    make_report,
    spark_limit_s,
    with_watch,
    write_verdict,
)
from chaos.view import View
from chaos.watch import GRAVE, differences
from ledgermq.runtime.clock import SystemClock

RATE_MAX = 5_000.0
SECONDS_MAX = 3_600.0
SPARK_LIMIT_MAX_S = 86_400.0
EXIT_INTERRUPTED = 130
"""As shells say it of a command that Ctrl-C ended."""
EXIT_TERMINATED = 143
PLANTED = {
    RAFT: "ack-before-quorum",
    SYNC_MASTER: "ha-acknowledged-before-the-slave",
    CONTROLLER: "switch-acknowledged-alone",
}
"""A bug that shows in the demo of a mode. What an asynchronous master may lose hides most."""


class Parser(argparse.ArgumentParser):
    """A parser of a command that ends with a verdict: wrong usage has a code of its own."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    options = parser("ledgermq demo").parse_args(argv)
    return run_and_check(demo_of(options), options)


def demo_of(options: argparse.Namespace) -> Scenario:
    """Return the demo of the mode that is asked for."""
    about = {"rate": options.rate, "workload": workload_of(options)}
    if options.mode == CONTROLLER:
        return switch_demo(seconds=options.seconds or SWITCH_ROUND_S, **about)
    if options.mode != RAFT:
        return pair_demo(mode=options.mode, seconds=options.seconds or PAIR_ROUND_S, **about)
    return demo(seconds=options.seconds or ROUND_S, **about)


def workload_of(options: argparse.Namespace) -> str:
    """Return the workload that was asked for, or the usual one of the mode."""
    return str(options.workload or ("every" if options.mode == RAFT else "plain"))


def run_and_check(scenario: Scenario, options: argparse.Namespace) -> int:
    """Run a scenario, judge it, print everything; return the exit code."""
    console = PlainConsole()
    if options.out is not None and options.out.exists():
        console.print(Text(f"--out {options.out}: there is something already"), soft_wrap=True)
        return EXIT_USAGE
    run = options.out or new_run_directory(Path("runs"))
    try:
        return asyncio.run(_go(scenario, options, run, console))
    except (ClusterFailed, DamagedRecording, OSError) as error:
        console.print(Text(f"the run failed: {error}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS
    except KeyboardInterrupt:
        say_interrupted(console, run)
        return EXIT_INTERRUPTED
    except asyncio.CancelledError:
        say_interrupted(console, run)
        return EXIT_TERMINATED
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which says INVALID
        traceback.print_exc()
        told = f"{type(error).__name__}: {error}"
        console.print(Text(f"the run failed: {told}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS


def say_interrupted(console: Console, run: Path) -> None:
    """Make what was recorded of a run readable; print where it is and how to look at it."""
    console.print("interrupted; everything that was started has been ended")
    if not (run / "run.json").is_file():
        console.print(Text(f"nothing was recorded in {run}"), soft_wrap=True)
        return
    try:
        convert_interrupted(run)
    except (DamagedRecording, OSError) as error:
        console.print(Text(f"what was recorded is damaged: {error}"), soft_wrap=True)
    console.print(Text(f"Partial run: {run}"), soft_wrap=True)
    console.print(Text(f"  {program()} check {run}   what it shows so far"), soft_wrap=True)


async def _go(scenario: Scenario, options: argparse.Namespace, run: Path, console: Console) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seed = options.seed if options.seed is not None else SystemClock().wall_ms() % 1_000_000
    chosen = RunOptions(
        run=run,
        seed=seed,
        backend=options.backend,
        mutant=options.mutant,
        watched=options.watch or options.stop_on is not None,
        stop_on=options.stop_on,
    )
    scenario = replace(scenario, flush=flush_of(seed, options.flush))
    planted = f", with a planted bug: {options.mutant}" if options.mutant else ""
    about = f"seed {seed}, {scenario.flush}{planted}"
    console.print(f"Scenario {scenario.name}, {about}; run directory {run}")
    with View(console, SystemClock()) as view:
        await run_scenario(scenario, chosen, view)
        view.phase("check", "in process: the history against the replicas' logs")
        local = check_in_process(run)
        spark = await _ask_spark(run, options, view)
        combined = combine(local, spark.found, spark_wanted=options.spark, why=spark.why)
        combined = with_watch(combined, differences(run, spark.found or local))
        write_verdict(run, combined)
        report = None
        if options.report == "always" or combined.exit_code:
            view.phase("report", "drawing")
            report = await make_report(run)
            if report is None:
                view.notice(f"no report was drawn; its log: {run / 'logs' / 'report.log'}")
    show_verdict(console, combined, read_table(run, "faults"), run)
    say_next(console, combined, options, (run, report))
    return combined.exit_code


async def _ask_spark(run: Path, options: argparse.Namespace, view: View) -> SparkOutcome:
    if not options.spark:
        return SparkOutcome(found=None)
    limit_s = options.spark_limit or spark_limit_s(run)
    view.phase("spark", f"the same questions again, as a Spark job (at most {limit_s:.0f} s)")
    outcome = await check_with_spark(run, limit_s)
    if outcome.found is None:
        view.notice(f"the Spark job gave no result: {outcome.why}")
    return outcome


def say_next(
    console: Console,
    combined: CombinedVerdict,
    options: argparse.Namespace,
    paths: tuple[Path, Path | None],
) -> None:
    """Print where the report is and what to try next; ``paths`` are the run and its report."""
    run, report = paths
    if report is not None:
        console.print(Text(f"Report: {report.resolve()}"), soft_wrap=True)
    console.print("What to try next:")
    for command, what in next_steps(combined, options, run):
        console.print(Text(f"  {command:<41}  {what}"), soft_wrap=True)


def next_steps(
    combined: CombinedVerdict, options: argparse.Namespace, run: Path
) -> Iterator[tuple[str, str]]:
    """Yield commands to try after a run, as they work where we are, and what each does."""
    if combined.verdict != "invalid" and options.mutant is None and options.mode in PLANTED:
        bug = PLANTED[options.mode]
        make = f"make demo ARGS=--break={bug}"
        is_usual = has_target("demo") and options.mode == RAFT
        mode = "" if options.mode == RAFT else f" --mode {options.mode}"
        command = make if is_usual else f"{program()} demo{mode} --break {bug}"
        yield command, "a planted bug: must be INVALID"
    if options.backend == "local" and options.mode == RAFT and has_target("docker-demo"):
        yield "make docker-demo", "the same in containers"
    yield f"{program()} check {run} --only A1,A15", "Spark's checks again, by name"


def new_run_directory(root: Path) -> Path:
    """Return a new name under ``root``, and let ``root/latest`` point at it."""
    root.mkdir(parents=True, exist_ok=True)
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    latest = root / "latest"
    with contextlib.suppress(OSError):  # somebody's directory, or another run begins just now
        latest.unlink(missing_ok=True)
        latest.symlink_to(name)
    return root / name


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the options that all runs share."""
    made = Parser(prog=prog, description=(__doc__ or "").splitlines()[0])
    made.add_argument("--seconds", type=_between(5, SECONDS_MAX), help="length of the fault phase")
    made.add_argument(
        "--mode",
        choices=tuple(MODES),
        default=RAFT,
        help="how the brokers replicate: three in a Raft group, or a master and a slave",
    )
    made.add_argument("--workload", choices=tuple(WORKLOADS), help="which kinds of messages")
    made.add_argument("--rate", type=_between(1, RATE_MAX), default=300.0, help="sends a second")
    made.add_argument("--seed", type=int, help="of the workload and the choice of victims")
    made.add_argument("--break", dest="mutant", metavar="BUG", help="plant a bug in the brokers")
    made.add_argument(
        "--flush", choices=("sync", "async"), help="of the brokers; by default the seed says"
    )
    made.add_argument("--out", "--run-dir", type=Path, help="run directory (default runs/TIME)")
    made.add_argument("--backend", choices=("local", "docker"), default="local")
    made.add_argument(
        "--report",
        choices=("always", "found"),
        default="always",
        help="draw the report of every run, or only where something was found",
    )
    made.add_argument(
        "--watch", action="store_true", help="look for alarms while it runs, with Spark's streams"
    )
    made.add_argument(
        "--stop-on", choices=tuple(GRAVE), help="end the run at the first alarm so grave (watches)"
    )
    made.add_argument(
        "--no-spark", dest="spark", action="store_false", help="only the in-process checker"
    )
    made.add_argument(
        "--spark-limit",
        type=_between(1, SPARK_LIMIT_MAX_S),
        metavar="SECONDS",
        help="how long the Spark job may take; by default what the size of the history asks for",
    )
    return made


def _between(low: float, high: float) -> "Range":
    return Range(low, high)


class Range:
    """An argparse type: a number within limits."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> float:
        """Return the number. Errors: ArgumentTypeError."""
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not self._low <= number <= self._high:
            limits = f"{self._low:g}..{self._high:g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of {limits}")
        return number


class Count(Range):
    """An argparse type: a whole number within limits."""

    def __call__(self, text: str) -> int:
        """Return the number. Errors: ArgumentTypeError."""
        number = super().__call__(text)
        if number != int(number):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
        return int(number)


if __name__ == "__main__":
    sys.exit(main())
