"""``ledgermq chaos``: run a scenario, or check a recorded run in process.

Commands: ``run SCENARIO [options]`` with the scenarios demo, baseline, failover, zombies, those of
`chaos.scenarios`, and files; ``list``; ``check RUN``; ``replay RUN``; ``diff RUN RUN``;
``campaign``; ``shrink RUN``.
Exit codes as `chaos.demo`.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from chaos.campaign import command as campaign
from chaos.campaign import shrink
from chaos.catalogue.console import PlainConsole
from chaos.catalogue.contracts import CONTROLLER, RAFT
from chaos.checker.compose import EXIT_USAGE
from chaos.compare import compared, tables
from chaos.demo import Count, demo_of, parser, run_and_check, workload_of
from chaos.foreign import TableReader
from chaos.pair_scenarios import disks
from chaos.record import DamagedRecording
from chaos.replay import NoPlan, about_run, not_taken, scenario_of, settle
from chaos.run import convert_interrupted
from chaos.scenario import ROUND_S, Scenario, baseline, failover, zombies
from chaos.scenarios.expand import expand
from chaos.scenarios.library import find, shipped
from chaos.scenarios.modes import in_mode
from chaos.scenarios.repeat import ROUNDS_HELP, ROUNDS_MAX, WITHOUT_ROUNDS, repeated
from chaos.scenarios.schema import WrongScenario, load
from chaos.show import show_verdict
from chaos.switch_scenarios import switch_disks
from chaos.verdict import check_in_process, combine, write_verdict
from ledgermq.runtime.clock import SystemClock

SCENARIOS: dict[str, Callable[[argparse.Namespace], Scenario]] = {
    "demo": demo_of,
    "baseline": lambda o: replace(
        baseline(seconds=o.seconds or ROUND_S, rate=o.rate, workload=workload_of(o)), mode=o.mode
    ),
    "disks": lambda o: (
        switch_disks(rounds=o.rounds or 2, rate=o.rate, workload=workload_of(o))
        if o.mode == CONTROLLER
        else disks(mode=o.mode, rounds=o.rounds or 2, rate=o.rate, workload=workload_of(o))
    ),
    "failover": lambda o: failover(kills=o.rounds or 20, rate=o.rate, workload=workload_of(o)),
    "zombies": lambda o: zombies(rounds=o.rounds or 5, rate=o.rate, workload=workload_of(o)),
}
ROUNDS_OF_CODE_MAX: Final = 1_000
OF_RAFT, OF_PAIRS = ("failover", "zombies"), ("disks",)
"""Scenarios that are only of a Raft group, or only of a master and its slave."""
BUILT_IN: Final[Mapping[str, str]] = {
    "demo": "kills, cut links, pauses",
    "baseline": "no faults at all: must be valid",
    "failover": "the leader is killed again and again: how long is the gap?",
    "zombies": "the leader is cut off and returns with a tail of its own",
    "disks": "of master and slave (--mode): the disk of one is lost, again and again",
}
"""What the scenarios do that are no files."""
USAGE = """usage: ledgermq chaos run SCENARIO [--rounds N] [options of ledgermq demo]
       ledgermq chaos list
       ledgermq chaos doctor
       ledgermq chaos check RUN
       ledgermq chaos watch RUN [--json]
       ledgermq chaos replay RUN [--out DIR] [--no-spark]
       ledgermq chaos diff RUN RUN
       ledgermq chaos shrink RUN [--minutes M] [--tries N] [--out DIR]
       ledgermq chaos calibrate [--bug NAME]... [--scenario NAME]... [--hours H] [--out DIR]
       ledgermq chaos campaign [--hours H | --runs N] [--scenario NAME]... [--out DIR] ...

run     Run a scenario and judge it: one by its name, or a file of your own (docs/chaos.md).
          demo      kills, cut links, pauses
          baseline  no faults at all: must be valid
          failover  the leader is killed again and again: how long is the gap?
          zombies   the leader is cut off and returns with a tail of its own
          disks     of master and slave (--mode): the disk of one is lost, again and again
list    Print the names of all scenarios and what each hunts.
doctor  Say what of it this machine can do, and what is left out (also: --json).
check   Judge a recorded run again, in process, without Spark.
watch   Show what a run that goes on already shows, with Spark: alarms, what is not delivered yet.
replay  Make a recorded run again: the same scenario, seed and settings.
diff    Show verdicts, counts, rates and faults of two judged runs side by side.
shrink  From an INVALID run to a small scenario that is INVALID, too.
calibrate  Which scenario finds which planted bug: goes on where it was (--help has its options).
campaign  Scenarios times seeds, for hours; goes on where it was (--help has its options).
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    console = PlainConsole()
    match arguments:
        case ["run", name, *rest] if name in SCENARIOS:
            made = parser(f"ledgermq chaos run {name}")
            what = "failover, zombies, disks: how many times"
            made.add_argument("--rounds", type=Count(1, ROUNDS_OF_CODE_MAX), help=what)
            options = made.parse_args(rest)
            if name in (OF_PAIRS if options.mode == RAFT else OF_RAFT):
                made.error(f"the scenario {name} has no --mode {options.mode}")
            if options.rounds is not None and name in WITHOUT_ROUNDS:
                made.error(f"--rounds is of failover, zombies and disks: {name} has none")
            if options.seconds is not None and name not in WITHOUT_ROUNDS:
                made.error(f"--seconds is of demo and baseline: {name} has its own times")
            return run_and_check(SCENARIOS[name](options), options)
        case ["run", name, *rest] if not name.startswith("-"):
            return _run_file(name, rest, console)
        case ["campaign" | "shrink" as command, *rest]:
            return campaign.main(rest) if command == "campaign" else shrink.main(rest)
        case ["--help" | "-h"]:
            console.print(Text(USAGE))
            return 0
        case _:
            return _of_runs(arguments, console)


def _of_runs(arguments: Sequence[str], console: Console) -> int:
    """Do what is about scenarios and runs that there are."""
    match arguments:
        case ["list"]:
            return _list(console)
        case ["replay", run, *rest] if not run.startswith("-"):
            return _replay(Path(run), rest, console)
        case ["diff", one, other]:
            return _diff(Path(one), Path(other), console)
        case ["check", run] if not run.startswith("-"):
            return _check(Path(run), console)
    console.print(Text(USAGE))
    if not {"--help", "-h"}.isdisjoint(arguments):
        return 0
    name = arguments[0] if arguments else ""
    is_there = f"\n{name} " in USAGE
    takes = f"{name} takes what stands above" if is_there else f"no command is called {name!r}"
    console.print(Text(f"ledgermq chaos: {takes}" if name else "ledgermq chaos: name a command"))
    return EXIT_USAGE


def _run_file(name: str, rest: Sequence[str], console: Console) -> int:
    """Run a scenario of a file, ours by name or anybody's by path."""
    made = parser(f"ledgermq chaos run {name}")
    made.set_defaults(rate=None, seconds=None, workload=None, mode=None)
    made.add_argument("--rounds", type=Count(1, ROUNDS_MAX), default=1, help=ROUNDS_HELP)
    options = made.parse_args(rest)
    try:
        plan = load(find(name))
        plan = plan if options.mode is None else in_mode(plan, options.mode)
        plan = repeated(plan, options.rounds)
    except WrongScenario as error:
        console.print(Text(str(error)), soft_wrap=True)
        return EXIT_USAGE
    options.mode = plan.mode
    if options.seconds is not None:
        console.print(Text("--seconds is of demo and baseline: a file has its own times"))
        return EXIT_USAGE
    chosen = {"rate": options.rate, "workload": options.workload}
    plan = replace(plan, **{name: value for name, value in chosen.items() if value is not None})
    if options.seed is None:
        options.seed = SystemClock().wall_ms() % 1_000_000
    options.flush = options.flush or plan.flush
    return run_and_check(expand(plan, options.seed), options)


def _list(console: Console) -> int:
    """Print every scenario there is and what it hunts."""
    for name, hunts in BUILT_IN.items():
        console.print(Text(f"{name:<30} {hunts}"), soft_wrap=True)
    for name, path in shipped().items():
        console.print(Text(f"{name:<30} {load(path).hunts}"), soft_wrap=True)
    return 0


def _replay(run: Path, rest: Sequence[str], console: Console) -> int:
    """Make a recorded run again: the same scenario, seed and settings."""
    made = parser("ledgermq chaos replay")
    options = made.parse_args(rest)
    written = vars(options).items()
    given = {name: value for name, value in written if value != made.get_default(name)}
    try:
        about = about_run(run)
        scenario = scenario_of(about)
        settle(options, about, scenario)
    except NoPlan as error:
        console.print(Text(str(error)), soft_wrap=True)
        return EXIT_USAGE
    for line in not_taken(given, vars(options)):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    return run_and_check(scenario, options)


def _diff(one: Path, other: Path, console: Console) -> int:
    """Show two judged runs side by side."""
    try:
        parts = compared(one, other)
    except NoPlan as error:
        console.print(Text(str(error)), soft_wrap=True)
        return EXIT_USAGE
    for table in tables(parts, (str(one), str(other))):
        console.print(table)
    return 0


def _check(run: Path, console: Console) -> int:
    if not (run / "run.json").is_file() and not (run / "tables").is_dir():
        console.print(Text(f"{run} is no recorded run: it has neither run.json nor tables"))
        return EXIT_USAGE
    problems: list[str] = []
    try:
        convert_interrupted(run)
    except (DamagedRecording, OSError) as error:  # there are no tables then, and all is unknown
        console.print(Text(f"the recording cannot be read: {error}"))
    combined = combine(check_in_process(run), None, spark_wanted=False)
    write_verdict(run, combined)
    show_verdict(console, combined, TableReader(run, problems).read("faults"), run)
    return combined.exit_code


if __name__ == "__main__":
    sys.exit(main())
