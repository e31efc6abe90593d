"""``ledgermq chaos campaign``: scenarios times seeds, for hours, resumed where it was.

Exit codes: the worst verdict of any run, as of one run (0 valid, 1 invalid, 2 unknown, 3 valid but
the contract was exceeded, 255 the harness failed); 130 interrupted (143 by SIGTERM), 254 usage.
"""

import argparse
import asyncio
import signal
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from chaos.campaign.directory import Directory, WrongDirectory, refuse_foreign
from chaos.campaign.junit import junit
from chaos.campaign.outcome import FAILED, Outcome, spent_s, worst_code
from chaos.campaign.overlap import make_all
from chaos.campaign.page import About, render
from chaos.campaign.plan import (
    RUNS_MAX,
    SCENARIOS_MAX,
    WITHOUT_SPARK,
    Bounds,
    Job,
    Seeds,
    Settings,
    next_job,
    parse_seeds,
    seconds_left,
    total,
)
from chaos.campaign.runner import LIMIT_S, CannotGoOn, Keep, Runner
from chaos.catalogue.console import PlainConsole
from chaos.checker.compose import EXIT_HARNESS, EXIT_USAGE
from chaos.checker.model import INVALID, UNKNOWN
from chaos.demo import EXIT_INTERRUPTED, EXIT_TERMINATED, RATE_MAX, Count, Parser, Range
from chaos.hints import program
from chaos.scenario import WORKLOADS
from chaos.scenarios.library import find, shipped
from chaos.scenarios.repeat import ROUNDS_HELP, ROUNDS_MAX
from chaos.scenarios.schema import WrongScenario, load
from chaos.show import STYLES
from ledgermq.runtime.clock import SystemClock

HOURS_MAX: Final = 1_000.0
GIB: Final = 1 << 30
OF_CODE: Final = ("demo", "baseline", "failover", "zombies")
"""Scenarios that are no files and are of a Raft group."""


def main(argv: Sequence[str]) -> int:
    """Run or go on with a campaign; return its exit code."""
    options = parse(argv)
    console = PlainConsole()
    root = options.out or Path("runs") / f"campaign-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    try:
        refuse_foreign(root)
        with Directory(root) as directory:
            settings = settle(directory, options)
            return asyncio.run(_go(directory, settings, options, console))
    except (WrongDirectory, WrongScenario) as error:
        console.print(Text(str(error)), soft_wrap=True)
        return EXIT_USAGE
    except CannotGoOn as error:
        console.print(Text(f"the campaign stopped: {error}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS
    except KeyboardInterrupt:
        return _interrupted(console, root, EXIT_INTERRUPTED)
    except asyncio.CancelledError:
        return _interrupted(console, root, EXIT_TERMINATED)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command. Errors: `SystemExit` with what is wrong on stderr."""
    return _parser().parse_args(argv)


def settle(directory: Directory, options: argparse.Namespace) -> Settings:
    """Return the settings of the campaign that is here, or begin one.

    Errors: `WrongDirectory` if one is here that differs from what is asked for; `WrongScenario`.
    """
    before = directory.settings()
    if before is not None and not options.scenario:
        scenarios = before.scenarios
    else:
        scenarios = tuple(_known(name) for name in options.scenario or shipped())
    seeds = options.seeds or (Seeds() if before is None else before.seeds)
    if before is not None and not options.in_containers:
        in_containers = before.in_containers
    else:
        in_containers = tuple(_known(name) for name in options.in_containers or ())
    words = tuple(_run_options(options))
    asked = Settings(scenarios=scenarios, seeds=seeds, options=words, in_containers=in_containers)
    if before is None:
        directory.begin(asked)
        return asked
    if words == DEFAULT_OPTIONS:  # nothing was said of them
        asked = msgspec.structs.replace(asked, options=before.options)
    if asked != before:
        what = f"{directory.root} is a campaign of other settings"
        told = f"seeds {before.seeds}, {before.many} scenarios"
        had = " ".join(before.options) or "no further options"
        raise WrongDirectory(f"{what} ({told}, {had}); give the same, or another --out")
    return before


def _known(name: str) -> str:
    """Return what a run is given for a scenario: its name, or the whole path of a file."""
    if name in OF_CODE:
        return name
    path = find(name)
    load(path)  # what is wrong with a file is better said before the first run
    return name if name in shipped() else str(path.resolve())


def _run_options(options: argparse.Namespace) -> list[str]:
    words = [] if options.spark else [WITHOUT_SPARK]
    given = {"--workload": options.workload, "--rate": options.rate, "--flush": options.flush}
    given |= {"--rounds": options.rounds, "--break": options.mutant}
    for name, value in given.items():
        words += [] if value is None else [name, str(value)]
    return words if options.backend == "local" else [*words, "--backend", options.backend]


DEFAULT_OPTIONS: Final = (WITHOUT_SPARK,)


async def _go(
    directory: Directory, settings: Settings, options: argparse.Namespace, console: Console
) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    keep = Keep(last=options.keep, bytes_max=int(options.disk * GIB))
    runner = Runner(directory, SystemClock(), keep, limit_s=options.run_limit)
    again = runner.run_again(options.again or ())
    bounds = Bounds(runs=options.runs, hours=options.hours)
    if total(settings, bounds) is None and bounds.hours is None:
        bounds = Bounds(runs=settings.many)  # each once
    show = _Screen(console, runner, settings, bounds)
    show.begin(again)

    def following(going: Collection[int]) -> Job | None:
        return next_job(settings, bounds, {*runner.done, *going}, spent_s(runner.outcomes))

    async def make(job: Job) -> None:
        show.run_begins(job)
        show.run_ended(await runner.make(job))
        publish(runner, settings, bounds, going_on=True)

    try:
        await make_all(following, make, runner.is_quiet)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        publish(runner, settings, bounds, going_on=False)
    show.end()
    return worst_code(runner.outcomes)


def publish(runner: Runner, settings: Settings, bounds: Bounds, *, going_on: bool) -> None:
    """Write page, JUnit file and summary anew."""
    directory, outcomes = runner.directory, runner.outcomes
    links = {
        one.job.number: f"runs/{one.job.name}/report/index.html"
        for one in outcomes
        if (directory.run(one.job) / "report" / "index.html").is_file()
    }
    about = About(
        title=f"Campaign {directory.root.name}",
        program=program(),
        total=total(settings, bounds),
        going_on=going_on,
        links=links,
    )
    directory.write("index.html", render(outcomes, about).encode())
    directory.write("junit.xml", junit(outcomes, directory.root.name))
    summary = {
        "exit_code": worst_code(outcomes),
        "verdicts": Counter(one.verdict for one in outcomes),
        "settings": settings,
        "runs": outcomes,
    }
    directory.write("summary.json", msgspec.json.format(msgspec.json.encode(summary)))


class _Screen:
    """What a person sees: a line when a run begins, a line when it ends."""

    def __init__(
        self, console: Console, runner: Runner, settings: Settings, bounds: Bounds
    ) -> None:
        self._console = console
        self._runner = runner
        self._settings = settings
        self._bounds = bounds
        self._going: list[Job] = []

    def begin(self, again: int) -> None:
        done = len(self._runner.done)
        many = self._settings.many
        about = f"{many} scenarios, seeds {self._settings.seeds}"
        went_on = f"; {done} runs are done already" if done else ""
        went_on += f"; {again} are run again" if again else ""
        self._say(Text(f"Campaign {self._runner.directory.root}: {about}{went_on}"))

    def run_begins(self, job: Job) -> None:
        most = total(self._settings, self._bounds)
        of = "" if most is None else f"/{most}"
        self._going.append(job)
        number = len(self._runner.done) + len(self._going)
        self._say(Text(f"{number}{of}  {job.name} ..."))

    def run_ended(self, one: Outcome) -> None:
        beside = "" if self._going == [one.job] else f"{one.job.name}: "
        self._going.remove(one.job)
        counted = sum(seen.overlapped for seen in one.faults.values())
        planned = sum(seen.planned for seen in one.faults.values())
        about = f" in {one.seconds:.0f} s, {one.counts.get('acknowledged', 0):,} acknowledged"
        about += f", {counted} of {planned} faults count"
        style = STYLES.get(one.verdict, "bold yellow")
        verdict = (one.verdict.upper(), style)
        self._say(Text.assemble(f"    {beside}", verdict, about, self._left()))
        for finding in one.findings[:3]:
            self._say(Text(f"    {finding.cause}", style="dim"))

    def end(self) -> None:
        tally = Counter(one.verdict for one in self._runner.outcomes)
        self._say(Text("Runs: " + (", ".join(f"{n} {w}" for w, n in tally.items()) or "none")))
        root = self._runner.directory.root
        self._say(Text(f"Page: {root / 'index.html'}   JUnit: {root / 'junit.xml'}"))

    def _left(self) -> str:
        runner = self._runner
        spent = spent_s(runner.outcomes)
        left = seconds_left(self._settings, self._bounds, len(runner.done), spent)
        return "" if left is None else f"; about {left / 60:.0f} min to go"

    def _say(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def _interrupted(console: Console, root: Path, code: int) -> int:
    console.print("interrupted; the run that was under way does not count and will be run again")
    console.print(Text(f"  {program()} chaos campaign --out {root} ...   goes on"), soft_wrap=True)
    return code


def _seeds(text: str) -> Seeds:
    try:
        return parse_seeds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    made = Parser(prog="ledgermq chaos campaign", description=(__doc__ or "").splitlines()[0])
    ends = made.add_argument_group("how long; by default each scenario once")
    ends.add_argument("--hours", type=Range(0.001, HOURS_MAX), help="begin no run after so long")
    ends.add_argument("--runs", type=Count(1, RUNS_MAX), help="so many runs in all")
    made.add_argument("--out", type=Path, help="its directory; one that is there is gone on with")
    made.add_argument(
        "--again",
        action="append",
        choices=(INVALID, UNKNOWN, FAILED),
        help="of a campaign that is gone on with: run what ended so once more (may be repeated)",
    )
    made.add_argument(
        "--scenario",
        action="append",
        metavar="NAME",
        help=f"name or file, up to {SCENARIOS_MAX} times (default: all that are shipped)",
    )
    made.add_argument(
        "--in-containers",
        action="append",
        metavar="NAME",
        help="the same, for scenarios that run on the docker backend, after the others",
    )
    made.add_argument("--seeds", type=_seeds, metavar="A..B", help="7, 1..20 or 5.. (default 1..)")
    made.add_argument("--spark", action="store_true", help="judge each run on Spark, too")
    made.add_argument("--workload", choices=tuple(WORKLOADS), help="instead of the files' own")
    made.add_argument("--rate", type=Range(1, RATE_MAX), help="sends a second, likewise")
    made.add_argument("--rounds", type=Count(1, ROUNDS_MAX), help=ROUNDS_HELP)
    made.add_argument("--flush", choices=("sync", "async"), help="instead of what the seed says")
    made.add_argument("--backend", choices=("local", "docker"), default="local")
    made.add_argument("--break", dest="mutant", metavar="BUG", help="plant a bug in each run")
    made.add_argument(
        "--keep", type=Count(0, 10_000), default=3, help="histories of valid runs (default 3)"
    )
    made.add_argument(
        "--disk", type=Range(0.1, 1e5), default=10.0, help="GiB of all histories (default 10)"
    )
    made.add_argument(
        "--run-limit", type=Range(30, 86_400), default=LIMIT_S, help="seconds of one run"
    )
    return made
