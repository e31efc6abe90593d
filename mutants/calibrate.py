"""``ledgermq chaos calibrate``: which shipped scenario finds which planted bug.

Bugs of brokers and of the client library that a run of processes executes; bugs of tools, of name
servers and of the harness cannot show there. Exit codes: 0 every bug was found, 1 some were not
though all was tried, 2 the time was over before, 130 interrupted (143), 254 usage, 255 the baseline
was not valid, or the harness failed.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from chaos.campaign.command import publish
from chaos.campaign.directory import Directory, WrongDirectory
from chaos.campaign.matrix import FIRST, Bug, baseline_of, is_found, known, next_try, table
from chaos.campaign.outcome import spent_s
from chaos.campaign.plan import Bounds, Settings
from chaos.campaign.runner import CannotGoOn, Keep, Runner
from chaos.catalogue.contracts import CONTROLLER, RAFT, SYNC_MASTER
from chaos.catalogue.faults import BY_SIMULATOR
from chaos.checker.compose import EXIT_HARNESS, EXIT_USAGE
from chaos.checker.model import VALID
from chaos.demo import EXIT_INTERRUPTED, EXIT_TERMINATED, Parser, Range
from chaos.scenarios.expand import expand
from chaos.scenarios.library import shipped
from chaos.scenarios.schema import load
from ledgermq.runtime.clock import SystemClock
from mutants.master_slave import MASTER_SLAVE
from mutants.patches import ALL
from mutants.planting import is_of_clients, targets_of
from mutants.slaves import SLAVES
from mutants.switch import SWITCH

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from mutants.planting import Mutant

RUNS_EACH: Final = 5
OF_BROKERS: Final = ("broker", "store", "dledger", "ledgermq.runtime", "ledgermq.remoting")
OF_CLIENTS: Final = ("ledgermq.client", "ledgermq.remoting")
OF_PAIRS: Final = ("demo", "disks")
_PAIR_BUGS: Final = frozenset(mutant.name for mutant in (*MASTER_SLAVE, *SLAVES))
_SWITCH_BUGS: Final = frozenset(mutant.name for mutant in SWITCH)
_EXIT_MISSED, _EXIT_TIME = 1, 2


def bugs() -> list[Bug]:
    """Return the planted bugs that processes of a run execute, by name."""
    return [_bug(ALL[name]) for name in sorted(ALL) if shows_in_processes(ALL[name])]


def shows_in_processes(mutant: Mutant) -> bool:
    """Tell whether a broker, or a client where the bug is one of clients, has the code of it."""
    places = OF_CLIENTS if is_of_clients(mutant) else OF_BROKERS
    targets = targets_of(mutant)
    return not targets or any(target.startswith(places) for target in targets)


def scenario_kinds() -> dict[str, frozenset[str]]:
    """Return the kinds of faults of each scenario that bugs of a group are tried with."""
    found = {FIRST[0]: frozenset({"kill", "cut", "pause"})}
    for name, path in shipped().items():
        plan = load(path)
        if plan.mode != RAFT:
            continue
        steps = expand(plan, 1).timeline
        drawn = {choice.kind for choice in plan.random.packages} if plan.random else set()
        found[name] = frozenset({step.kind for step in steps if step.do == "start"} | drawn)
    return found


def main(argv: Sequence[str]) -> int:
    """Calibrate; return the exit code."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False, markup=False, emoji=False)
    chosen = [bug for bug in bugs() if not options.bug or bug.name in options.bug]
    if unknown := sorted(set(options.bug or ()) - {bug.name for bug in chosen}):
        console.print(Text(f"no planted bug of processes: {', '.join(unknown)}"), soft_wrap=True)
        return EXIT_USAGE
    try:
        with Directory(options.out or Path("runs") / "calibration") as directory:
            _refuse_campaign(directory)
            return asyncio.run(_go(directory, chosen, options, console))
    except WrongDirectory as error:
        console.print(Text(str(error)), soft_wrap=True)
        return EXIT_USAGE
    except CannotGoOn as error:
        console.print(Text(f"it stopped: {error}", style="bold red"), soft_wrap=True)
        return EXIT_HARNESS
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on")
        return EXIT_INTERRUPTED
    except asyncio.CancelledError:
        console.print("interrupted; the same command goes on")
        return EXIT_TERMINATED


def _refuse_campaign(directory: Directory) -> None:
    """See that there is none, whose runs would be taken for ours. Errors: `WrongDirectory`."""
    if directory.settings() is not None:
        raise WrongDirectory(f"{directory.root} is a campaign; name another --out")


async def _go(
    directory: Directory, chosen: Sequence[Bug], options: argparse.Namespace, console: Console
) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    kinds = scenario_kinds()
    if options.scenario:
        kinds = {name: kinds.get(name, frozenset()) for name in options.scenario}
    keep = Keep(last=0, bytes_max=int(options.disk * (1 << 30)))
    runner = Runner(directory, SystemClock(), keep)
    settings = Settings(scenarios=tuple(kinds))
    console.print(f"{len(chosen)} planted bugs, {len(kinds)} scenarios; {directory.root}")
    while job := next_try(chosen, kinds, runner.outcomes, int(options.runs_each)):
        if options.hours is not None and spent_s(runner.outcomes) >= options.hours * 3600:
            break
        one = await runner.make(job)
        checks = ", ".join(sorted(one.shown))
        said = f"{job.words}: {one.verdict} {checks} in {one.seconds:.0f} s"
        console.print(Text(f"{job.number}  {said}"), soft_wrap=True)
        directory.write("matrix.md", table(chosen, runner.outcomes).encode())
        publish(runner, settings, Bounds(), going_on=True)
    publish(runner, settings, Bounds(), going_on=False)
    return _tell(chosen, runner, console, is_over=job is None)


def _tell(chosen: Sequence[Bug], runner: Runner, console: Console, *, is_over: bool) -> int:
    first = baseline_of(runner.outcomes)
    if first != VALID:
        console.print(f"the baseline, without faults and bugs, is {first or 'not run'}: no matrix")
        return EXIT_HARNESS
    matrix = known(runner.outcomes)
    missed = [bug.name for bug in chosen if not is_found(matrix, bug.name)]
    console.print(f"{len(chosen) - len(missed)} of {len(chosen)} found; matrix.md has the rest")
    if not missed:
        return 0
    return _EXIT_MISSED if is_over else _EXIT_TIME


def _bug(mutant: Mutant) -> Bug:
    if mutant.name in _PAIR_BUGS:
        return Bug(name=mutant.name, scenarios=OF_PAIRS, options=("--mode", SYNC_MASTER))
    if mutant.name in _SWITCH_BUGS:
        return Bug(name=mutant.name, scenarios=OF_PAIRS, options=("--mode", CONTROLLER))
    kinds = {BY_SIMULATOR[kind].nemesis for kind in mutant.needs.split() if kind in BY_SIMULATOR}
    flush = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}.get(mutant.flush)
    options = () if flush is None else ("--flush", flush)
    return Bug(name=mutant.name, kinds=frozenset(kinds - {""}), options=options)


def _parser() -> argparse.ArgumentParser:
    made = Parser(prog="ledgermq chaos calibrate", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--bug", action="append", metavar="NAME", help="again and again; default all")
    made.add_argument("--scenario", action="append", metavar="NAME", help="likewise")
    made.add_argument("--hours", type=Range(0.001, 10_000), help="begin no run after so long")
    made.add_argument("--out", type=Path, help="default runs/calibration; gone on with")
    made.add_argument(
        "--runs-each", type=Range(1, 100), default=RUNS_EACH, help="of a bug in a scenario (5)"
    )
    made.add_argument("--disk", type=Range(0.1, 1e5), default=2.0, help="GiB of all histories")
    return made
