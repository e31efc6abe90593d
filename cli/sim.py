"""``ledgermq sim``: the whole cluster in virtual time, many seeds, faults from the seed.

Knows the options and what is printed; `sim` does the work. The seed comes first on the screen and
last, so that whoever finds a failure in a log can repeat it.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.runs import PANEL

if TYPE_CHECKING:
    from collections.abc import Iterable


EXITS = (
    "Exit code: 0 valid, 1 a bug was found, 3 the fault budget was exceeded (--overkill), "
    "254 usage, 255 harness failure."
)
SEED_MAX = 2**63 - 1
"""What a plan file can hold."""
DEFAULT_SEEDS = "1..100"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(rich_help_panel=PANEL, epilog=EXITS)(sim)


def sim(
    seed: Annotated[
        int | None, typer.Option(help="Run the plan of this seed.", min=0, max=SEED_MAX)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="A..B", help="Run these seeds, both included."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Run seeds, from 1 or from A on, for so long.", min=0.01)
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run a plan that was written to a file.")
    ] = None,
    elections: Annotated[
        int | None,
        typer.Option(metavar="N", help="Measure N elections after a leader's death.", min=1),
    ] = None,
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="Plant each bug, and count seeds until found."),
    ] = False,
    mutant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Plant this bug only; with --seed or --plan: in that run."
        ),
    ] = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Measure events a second and virtual time to real time.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes at a time.", min=1, max=256)] = 1,
    overkill: Annotated[
        bool, typer.Option("--overkill", help="Faults beyond what the cluster can survive.")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print the trace, one line per event.")
    ] = False,
    no_shrink: Annotated[
        bool, typer.Option("--no-shrink", help="Do not make a failing plan smaller.")
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where plan, trace and diagram of a failure go.")
    ] = Path("runs/sim"),
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON.")] = False,
) -> None:
    """Run the production code of brokers, name servers and clients in simulated time.

    Everything of a run follows from its seed: faults, their times, the network, the disks, what
    clients do. Oracles look after every event; a failure is made small, written as a plan that
    --plan repeats, and drawn as a diagram.

    Columns of --trace: virtual nanoseconds, kind, host, then name=value (docs/simulation.md).

    Example: ledgermq sim --seed 7 --trace

    Example: ledgermq sim --seeds 1..1000 --jobs 2

    Example: ledgermq sim --minutes 10 --jobs 2

    Example: ledgermq sim --plan runs/sim/seed-7/plan.json
    """
    from cli import sim_report as report

    _refuse_several(bench=bench, elections=elections, mutants=mutants, plan=plan, seed=seed)
    _refuse_several(seed=seed, plan=plan, seeds=seeds)
    _refuse_several(seed=seed, plan=plan, minutes=minutes)
    _refuse_several(mutants=mutants, mutant=mutant, bench=bench, elections=elections)
    _refuse_several(mutants=mutants, minutes=minutes, overkill=overkill, trace=trace)
    if overkill and plan is not None:
        raise typer.BadParameter("the plan says so itself", param_hint="--overkill")
    if trace and seed is None and plan is None:
        raise typer.BadParameter("takes one run: --seed or --plan", param_hint="--trace")
    printer = report.Printer(as_json=as_json, planted=f" --mutant {mutant}" if mutant else "")
    if bench:
        code = report.bench(printer)
    elif elections is not None:
        code = report.elections(printer, elections)
    elif plan is not None or seed is not None:
        chosen = report.load(plan) if plan else report.draw_plan(seed or 0, overkill=overkill)
        with report.bug(mutant):
            code = report.one(printer, chosen, out, trace=trace, shrink=not no_shrink)
    elif mutants or mutant is not None:
        limits = _range(seeds) if seeds else None
        code = report.mutants(printer, mutant, limits, jobs)
    else:
        code = report.many(
            printer,
            _seeds(seeds, minutes),
            report.Settings(
                jobs=jobs, minutes=minutes, overkill=overkill, out=out, shrink=not no_shrink
            ),
        )
    raise typer.Exit(code)


def _refuse_several(**given: object) -> None:
    """Refuse options that ask for different things at once, rather than leave one out."""
    named = [
        f"--{name}" for name, value in given.items() if value is not None and value is not False
    ]
    if len(named) > 1:
        raise typer.BadParameter(
            "asks for something else", param_hint=f"{named[1]} with {named[0]}"
        )


def _seeds(text: str | None, minutes: float | None) -> Iterable[int]:
    """Return the seeds that were asked for; without end if there is a time limit only."""
    if text is None:
        return count(1) if minutes is not None else _range(DEFAULT_SEEDS)
    return _range(text)


def _range(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.isdigit() or not last.isdigit() or int(first) > int(last):
        raise typer.BadParameter(f"{text!r} is not of the form A..B", param_hint="--seeds")
    return range(int(first), int(last) + 1)
