"""``ledgermq chaos shrink RUN``: from an INVALID run to a small scenario that is INVALID, too.

Every candidate is run for real, up to ``--tries`` times, until one of them is INVALID by a check
that the run was INVALID by; the search (`chaos.campaign.minimal`) is bounded by time and goes on
where it was. The smallest scenario that was INVALID is written to DIR/minimal.yaml.

Exit codes: 0 a smaller one was found, or there is none; 2 the time was over before the search was;
1 not even the run's own scenario was INVALID again; 130 interrupted (143), 254 usage, 255 harness.
"""

import argparse
import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from chaos.campaign.directory import Directory, WrongDirectory, read_run, refuse_foreign
from chaos.campaign.minimal import fault_names, search
from chaos.campaign.outcome import Outcome
from chaos.campaign.plan import WITHOUT_SPARK, Job, Settings
from chaos.campaign.runner import CannotGoOn, Keep, Runner
from chaos.catalogue.console import PlainConsole
from chaos.checker.compose import EXIT_HARNESS, EXIT_USAGE
from chaos.checker.model import INVALID
from chaos.demo import EXIT_INTERRUPTED, EXIT_TERMINATED, Parser, Range
from chaos.hints import program
from chaos.replay import NoPlan, about_run, scenario_of
from chaos.scenario import Scenario
from chaos.scenarios.write import NotAFile, text_of
from ledgermq.runtime.clock import Clock, SystemClock

MINUTES: Final = 15.0
TRIES: Final = 2
EXIT_LOST: Final = 1
EXIT_TIME: Final = 2


class Target:
    """What is looked for: the checks by which a run was INVALID, and how it was made."""

    def __init__(self, run: Path) -> None:
        """Read the run. Errors: `NoPlan` if it is not one of ours, or not INVALID."""
        try:
            self._read(run, about_run(run))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise NoPlan(f"{run}: run.json or verdict is none of ours: {what}") from error

    def _read(self, run: Path, about: dict[str, Any]) -> None:
        files, _ = read_run(run)
        told = (files["inprocess"] or {}).get("checks", {})
        bad = {name: found for name, found in told.items() if found["verdict"] == INVALID}
        if not bad or (files["inprocess"] or {}).get("verdict") != INVALID:
            raise NoPlan(f"{run} was not INVALID: there is nothing to look for")
        self.checks = frozenset(bad)
        self.scenario: Scenario = scenario_of(about)
        self.seen = {
            str(fault)
            for found in bad.values()
            for one in found.get("evidence") or ()
            for fault in one.get("faults") or ()
        }
        self.seed = int(about["seed"])
        self.mutant: str | None = about.get("mutant")
        self.backend = str(about.get("backend", "local"))

    def is_met(self, one: Outcome) -> bool:
        """Tell whether a run found it again."""
        return one.verdict == INVALID and bool(one.shown & self.checks)


class Shrinker:
    """Runs the candidates of a search, each up to so many times, and remembers the best."""

    def __init__(
        self, runner: Runner, target: Target, tries: int, deadline_ns: int, clock: Clock
    ) -> None:
        self.best: Scenario | None = None
        self.tried = 0
        self._runner = runner
        self._target = target
        self._tries = tries
        self._deadline_ns = deadline_ns
        self._clock = clock
        self._number = 0

    @property
    def out_of_time(self) -> bool:
        """Whether no further run may begin."""
        return self._clock.monotonic_ns() >= self._deadline_ns

    async def shrink(self, console: Console) -> bool:
        """Search; tell whether the search came to its end. Errors: those of `Runner.make`."""
        hunt = search(self._target.scenario, self._target.seen)
        try:
            candidate = next(hunt)
            while True:
                answer = await self._is_found(candidate, console)
                if answer is None:
                    return False
                if answer:
                    self.best = candidate
                candidate = hunt.send(answer)
        except StopIteration:
            return True

    async def again(self, console: Console) -> bool | None:
        """Tell whether the run's own scenario finds it again; None: out of time."""
        found = await self._is_found(self._target.scenario, console)
        if found:
            self.best = self._target.scenario
        return found

    async def _is_found(self, scenario: Scenario, console: Console) -> bool | None:
        """Run a scenario until it is found or the tries are used up; None: out of time."""
        self.tried += 1
        names = ", ".join(fault_names(scenario)) or "no faults"
        console.print(Text(f"{self.tried}  {describe(scenario)}: {names}"), soft_wrap=True)
        for _ in range(self._tries):
            if self.out_of_time and self._number not in self._runner.done:
                return None
            one = await self._run(scenario)
            found = self._target.is_met(one)
            word = "found again" if found else one.verdict
            console.print(Text(f"    {word} in {one.seconds:.0f} s"), soft_wrap=True)
            if found:
                return True
        return False

    async def _run(self, scenario: Scenario) -> Outcome:
        """Make the next run, or take what is known of it: the search asks in the same order."""
        number = self._number
        self._number += 1
        directory = self._runner.directory
        path = directory.root / "candidates" / f"{number:05d}.yaml"
        text = text_of(scenario, "what an INVALID run found")
        if number in self._runner.done:
            if not path.is_file() or path.read_text() != text:
                raise WrongDirectory(f"{directory.root} is of another search; give another --out")
            return self._runner.done[number]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return await self._runner.make(
            Job(
                number=number,
                scenario=str(path),
                seed=self._target.seed,
                mutant=self._target.mutant,
                options=(WITHOUT_SPARK, "--backend", self._target.backend),
            )
        )


def describe(scenario: Scenario) -> str:
    """Return how large a scenario is."""
    many = len(fault_names(scenario))
    load = scenario.workload
    clients = f"{load.senders} producers"
    return f"{many} fault{'' if many == 1 else 's'}, {clients}, {1 + len(load.groups)} groups"


def main(argv: Sequence[str]) -> int:
    """Shrink a run; return the exit code."""
    options = _parser().parse_args(argv)
    console = PlainConsole()
    run = options.run.resolve()
    root = options.out or run.with_name(f"{run.name}-shrink")
    try:
        target = Target(run)
        text_of(target.scenario, "")  # better said before the first run
        refuse_foreign(root)
        with Directory(root) as directory:
            _begin(directory, run)
            return asyncio.run(_go(directory, target, options, console))
    except (NoPlan, NotAFile, WrongDirectory) as error:
        console.print(Text(str(error)), soft_wrap=True)
        return EXIT_USAGE
    except CannotGoOn as error:
        console.print(Text(f"it stopped: {error}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS
    except KeyboardInterrupt:
        return _interrupted(console, EXIT_INTERRUPTED)
    except asyncio.CancelledError:
        return _interrupted(console, EXIT_TERMINATED)


def _begin(directory: Directory, run: Path) -> None:
    """Say of which run the directory is. Errors: `WrongDirectory` if it is of another."""
    asked = Settings(scenarios=(str(run),))
    before = directory.settings()
    if before is None:
        directory.begin(asked)
    elif before != asked:
        what = f"{directory.root} is of {before.scenarios[0]}"
        raise WrongDirectory(f"{what}, not of {run}; give another --out")


async def _go(
    directory: Directory, target: Target, options: argparse.Namespace, console: Console
) -> int:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    clock = SystemClock()
    runner = Runner(directory, clock, Keep(last=0, bytes_max=int(options.disk * (1 << 30))))
    deadline_ns = clock.monotonic_ns() + int(options.minutes * 60e9)
    shrinker = Shrinker(runner, target, int(options.tries), deadline_ns, clock)
    checks = ", ".join(sorted(target.checks))
    console.print(f"Looking for {checks} in at most {options.minutes:g} minutes; {directory.root}")
    is_over = await shrinker.shrink(console)
    if shrinker.best is None and is_over:
        again = await shrinker.again(console)
        is_over = again is not None
        if again is False:
            why = "it is rare, or was chance"
            console.print(f"not even the run's own scenario found it again: {why}")
            return EXIT_LOST
    return _tell(shrinker.best or target.scenario, directory, target, console, is_over=is_over)


def _tell(
    best: Scenario, directory: Directory, target: Target, console: Console, *, is_over: bool
) -> int:
    before, now = len(fault_names(target.scenario)), len(fault_names(best))
    path = directory.root / "minimal.yaml"
    checks = ", ".join(sorted(target.checks))
    directory.write(path.name, text_of(best, f"what {checks} found").encode())
    console.print(f"{before} faults became {now}: {describe(best)}")
    if not is_over:
        console.print("the time is over, the search is not; the same command goes on")
    bug = f" --break {target.mutant}" if target.mutant else ""
    bug += "" if target.backend == "local" else f" --backend {target.backend}"
    command = f"{program()} chaos run {path} --seed {target.seed}{bug} --no-spark"
    console.print(Text(f"  {command}"), soft_wrap=True)
    return 0 if is_over else EXIT_TIME


def _interrupted(console: Console, code: int) -> int:
    console.print("interrupted; the same command goes on")
    return code


def _parser() -> argparse.ArgumentParser:
    made = Parser(prog="ledgermq chaos shrink", description=(__doc__ or "").splitlines()[0])
    made.add_argument("run", type=Path, metavar="RUN", help="the directory of an INVALID run")
    made.add_argument("--out", type=Path, help="where it works (default RUN-shrink)")
    made.add_argument(
        "--minutes", type=Range(0.5, 10_000), default=MINUTES, help="begin no run after so long"
    )
    made.add_argument(
        "--tries", type=Range(1, 50), default=TRIES, help="runs of what is not found at once"
    )
    made.add_argument("--disk", type=Range(0.1, 1e5), default=2.0, help="GiB of all histories")
    return made
