"""``ledgermq sim``: the whole cluster in virtual time, many seeds, faults from the seed.

Knows the options and what is printed; `sim` does the work. The seed comes first on the screen and
last, so that whoever finds a failure in a log can repeat it.
"""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.runs import PANEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


EXITS = (
    "Exit code: 0 valid, 1 a bug was found, 3 the fault budget was exceeded (--overkill), "
    "254 usage, 255 harness failure."
)
SEED_MAX = 2**63 - 1
"""What a plan file can hold."""
DEFAULT_SEEDS = "1..100"
SEEDS_OF_BUGS = "1..300"
_APART = (
    ("bench", "bugs", "elections", "mutants", "plan", "seed"),
    ("seed", "plan", "seeds"),
    ("seed", "plan", "minutes"),
    ("mutants", "mutant", "bench", "elections"),
    ("bench", "seeds"),
    ("bench", "minutes"),
    ("bench", "overkill"),
    ("elections", "seeds"),
    ("elections", "minutes"),
    ("elections", "overkill"),
    ("mutants", "minutes", "overkill", "trace"),
    ("bugs", "minutes"),
    ("bugs", "mutant"),
    ("bugs", "overkill"),
    ("bugs", "trace"),
    ("mode", "plan"),
    ("mode", "bench"),
    ("mode", "elections"),
)
"""Options of which one is enough: each asks for a run of its own kind."""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(rich_help_panel=PANEL, epilog=EXITS)(sim)


_SeedOption = Annotated[
    int | None, typer.Option(help="Run the plan of this seed.", min=0, max=SEED_MAX)
]
_SeedsOption = Annotated[
    str | None,
    typer.Option(metavar="A..B", help="Run these seeds, both included."),
]
_MinutesOption = Annotated[
    float | None, typer.Option(help="Run seeds, from 1 or from A on, for so long.", min=0.01)
]
_PlanOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run a plan that was written to a file.")
]
_ElectionsOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Measure N elections after a leader's death.", min=1),
]
_MutantsOption = Annotated[
    bool,
    typer.Option("--mutants", help="Plant each bug, and count seeds until found."),
]
_MutantOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Plant this bug only; with --seed or --plan: in that run."),
]
_BugsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.py",
        help="Run this Python file, plant the bugs in its BUGS, many at a time, and say which"
        " plans show which (docs/simulation.md, Bugs of your own). Seeds 1..300 unless --seeds"
        " says otherwise.",
    ),
]
_BenchOption = Annotated[
    bool, typer.Option("--bench", help="Measure events a second and virtual time to real time.")
]
_JobsOption = Annotated[int, typer.Option(help="Processes at a time.", min=1, max=256)]
_OverkillOption = Annotated[
    bool, typer.Option("--overkill", help="Faults beyond what the cluster can survive.")
]
_ModeOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="Whose plans: raft, alone, sync-master, async-master, controller; every: all of them,"
        " the default of campaigns. One seed alone, and planted bugs, are raft's.",
    ),
]
_TraceOption = Annotated[bool, typer.Option("--trace", help="Print the trace, one line per event.")]
_NoShrinkOption = Annotated[
    bool, typer.Option("--no-shrink", help="Do not make a failing plan smaller.")
]
_OutOption = Annotated[
    Path, typer.Option(metavar="DIR", help="Where plan, trace and diagram of a failure go.")
]
_AsJsonOption = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def sim(
    seed: _SeedOption = None,
    seeds: _SeedsOption = None,
    minutes: _MinutesOption = None,
    plan: _PlanOption = None,
    elections: _ElectionsOption = None,
    mutants: _MutantsOption = False,
    mutant: _MutantOption = None,
    bugs: _BugsOption = None,
    bench: _BenchOption = False,
    jobs: _JobsOption = 1,
    mode: _ModeOption = None,
    overkill: _OverkillOption = False,
    trace: _TraceOption = False,
    no_shrink: _NoShrinkOption = False,
    out: _OutOption = Path("runs/sim"),
    as_json: _AsJsonOption = False,
) -> None:
    """Run the production code of brokers, name servers and clients in simulated time.

    Everything of a run follows from its seed: faults, their times, the network, the disks, what
    clients do. Oracles look after every event; a failure is made small, written as a plan that
    --plan repeats, and drawn as a diagram.

    Columns of --trace: virtual nanoseconds, kind, host, then name=value (docs/simulation.md).

    Example: ledgermq sim --seed 7 --trace

    Example: ledgermq sim --seeds 1..1000 --jobs 2

    Example: ledgermq sim --seeds 1..100 --mode sync-master

    Example: ledgermq sim --mutants --mode controller --jobs 2

    Example: ledgermq sim --bugs mine.py --seeds 1..300 --jobs 2

    Example: ledgermq sim --minutes 10 --jobs 2

    Example: ledgermq sim --plan runs/sim/seed-7/plan.json
    """
    from cli import sim_report as report
    from sim.campaign import EVERY, RAFT

    _refuse_contradictions({
        "bench": bench, "bugs": bugs, "elections": elections, "minutes": minutes, "mutant": mutant,
        "mutants": mutants, "overkill": overkill, "plan": plan, "seed": seed, "seeds": seeds,
        "trace": trace, "mode": mode,
    })  # fmt: skip
    _check_mode(mode, is_one=seed is not None or mutants or mutant is not None)
    printer = report.Printer(as_json=as_json, planted=f" --mutant {mutant}" if mutant else "")
    if bench:
        code = report.bench(printer)
    elif elections is not None:
        code = report.elections(printer, elections)
    elif plan is not None or seed is not None:
        chosen = report.load(plan) if plan else report.draw_plan(seed or 0, mode, overkill=overkill)
        with report.bug(mutant, mode or (report.mode_of(chosen) if mutant else RAFT)):
            code = report.one(printer, chosen, out, trace=trace, shrink=not no_shrink)
    elif bugs is not None:
        chosen_seeds = _range(seeds or SEEDS_OF_BUGS)
        code = report.bugs_of_file(printer, bugs, chosen_seeds, jobs, mode or EVERY)
    elif mutants or mutant is not None:
        limits = _range(seeds) if seeds else None
        code = report.mutants(printer, mutant, limits, jobs, mode or RAFT)
    else:
        code = report.many(
            printer,
            _seeds(seeds, minutes),
            report.Settings(
                jobs=jobs,
                minutes=minutes,
                overkill=overkill,
                mode=mode or EVERY,
                out=out,
                shrink=not no_shrink,
            ),
        )
    raise typer.Exit(code)


def _refuse_contradictions(options: Mapping[str, object]) -> None:
    """Refuse options that ask for different things at once, rather than leave one out."""
    given = {name for name, value in options.items() if value is not None and value is not False}
    for apart in _APART:
        named = [f"--{name}" for name in apart if name in given]
        if len(named) > 1:
            raise typer.BadParameter(f"not together with {named[0]}", param_hint=named[1])
    if {"overkill", "plan"} <= given:
        raise typer.BadParameter("the plan says so itself", param_hint="--overkill")
    if "trace" in given and not given & {"seed", "plan"}:
        raise typer.BadParameter("takes one run: --seed or --plan", param_hint="--trace")


def _check_mode(mode: str | None, *, is_one: bool) -> None:
    """Refuse a mode that is none, or that is none of one run, or of one planted bug."""
    from sim.campaign import CHOICES, EVERY

    if mode is not None and mode not in CHOICES:
        raise typer.BadParameter(
            f"{mode!r} is not one of {', '.join(CHOICES)}", param_hint="--mode"
        )
    if is_one and mode == EVERY:
        raise typer.BadParameter("takes one of the other modes here", param_hint="--mode")


def _seeds(text: str | None, minutes: float | None) -> Iterable[int]:
    """Return the seeds that were asked for; without end if there is a time limit only."""
    if text is None:
        return count(1) if minutes is not None else _range(DEFAULT_SEEDS)
    return _range(text)


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    are_numbers = dots and all(re.fullmatch("[0-9]{1,19}", one) for one in (first, last))
    if not are_numbers or not int(first) <= int(last) <= SEED_MAX:
        raise typer.BadParameter(
            f"{text!r} is not of the form A..B, A not above B", param_hint="--seeds"
        )
    return range(int(first), int(last) + 1)
