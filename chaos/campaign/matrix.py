"""Calibration: which planted bug is found by which scenario, and what is to be tried next. Pure.

First the baseline, without faults and bugs, which must be valid: a harness that sees ghosts finds
every bug. Then every bug that nobody has found yet is tried with each of its scenarios in turn, the
likeliest first, and again with the next seed, until it is found or has been tried often enough.
What is known is what the runs say that are over; the order follows from that alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from chaos.campaign.outcome import Outcome
from chaos.campaign.plan import WITHOUT_SPARK, Job
from chaos.checker.model import INVALID, VALID

BASELINE: Final = "baseline"
FIRST: Final = ("demo", "anything-may-break")
"""What is tried first of a bug of which nobody says what it takes."""


class Bug(msgspec.Struct, frozen=True, kw_only=True):
    """A planted bug, and how to look for it."""

    name: str
    kinds: frozenset[str] = frozenset()
    """Kinds of faults, one of which it takes to show it; empty: any."""
    scenarios: tuple[str, ...] = ()
    """The only ones that can show it; empty: all."""
    options: tuple[str, ...] = ()
    """Of its runs."""


class Cell(msgspec.Struct, kw_only=True):
    """What is known of one bug and one scenario."""

    runs: int = 0
    found: int = 0
    checks: set[str] = set()


Matrix = dict[str, dict[str, Cell]]


def order(bug: Bug, kinds: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the scenarios of a bug, the likeliest first; ``kinds``: of faults, by scenario.

    Only those that ``kinds`` has, also of a bug that has scenarios of its own.
    """
    names = [name for name in bug.scenarios or kinds if name in kinds]
    first = FIRST if not bug.kinds else ()
    return sorted(
        names,
        key=lambda name: (
            name not in first,
            not bug.kinds & kinds.get(name, frozenset()),
            names.index(name),
        ),
    )


def known(outcomes: Iterable[Outcome]) -> Matrix:
    """Return what the runs of bugs say, by bug and scenario; failed runs say nothing."""
    matrix: Matrix = {}
    for one in outcomes:
        if one.job.mutant is None or one.exit_code < 0 or one.verdict == "failed":
            continue
        cell = matrix.setdefault(one.job.mutant, {}).setdefault(one.job.title, Cell())
        cell.runs += 1
        if one.verdict == INVALID:
            cell.found += 1
            cell.checks |= one.shown
    return matrix


def baseline_of(outcomes: Iterable[Outcome]) -> str:
    """Return the verdict of the baseline; empty if it has not run."""
    return next((one.verdict for one in outcomes if one.job.mutant is None), "")


def next_try(
    bugs: Sequence[Bug],
    kinds: Mapping[str, frozenset[str]],
    outcomes: Sequence[Outcome],
    runs_each: int,
) -> Job | None:
    """Return the next run; None if every bug was found or tried ``runs_each`` times each.

    ``runs_each``: most runs of a bug in one scenario. A run that failed is not tried again.
    """
    number = max((one.job.number for one in outcomes), default=-1) + 1
    if not baseline_of(outcomes):
        return Job(number=number, scenario=BASELINE, seed=1, options=(WITHOUT_SPARK,))
    if baseline_of(outcomes) != VALID:
        return None
    matrix = known(outcomes)
    tried = {(one.job.mutant, one.job.title, one.job.seed) for one in outcomes}
    open_ = [bug for bug in bugs if not is_found(matrix, bug.name)]
    scenarios = {bug.name: order(bug, kinds) for bug in open_}
    most = max(map(len, scenarios.values()), default=0)
    for seed in range(1, runs_each + 1):
        for rank in range(most):
            for bug in open_:
                name = next(iter(scenarios[bug.name][rank:]), None)
                if name is None or (bug.name, name, seed) in tried:
                    continue
                options = (WITHOUT_SPARK, *bug.options)
                return Job(
                    number=number, scenario=name, seed=seed, mutant=bug.name, options=options
                )
    return None


def is_found(matrix: Matrix, bug: str) -> bool:
    """Tell whether any scenario has found a bug."""
    return any(cell.found for cell in matrix.get(bug, {}).values())


def table(bugs: Sequence[Bug], outcomes: Sequence[Outcome]) -> str:
    """Return the matrix as a Markdown table: a row for each bug that has been tried."""
    matrix = known(outcomes)
    rows = ["| planted bug | found by | not found by |", "|---|---|---|"]
    for bug in bugs:
        cells = matrix.get(bug.name)
        if not cells:
            continue
        found = [
            f"`{name}` ({cell.found} of {cell.runs}: {', '.join(sorted(cell.checks))})"
            for name, cell in cells.items()
            if cell.found
        ]
        missed = [f"`{name}` (0 of {cell.runs})" for name, cell in cells.items() if not cell.found]
        rows.append(f"| `{bug.name}` | {', '.join(found) or '-'} | {', '.join(missed) or '-'} |")
    tried = sum(bug.name in matrix for bug in bugs)
    caught = sum(is_found(matrix, bug.name) for bug in bugs)
    told = f"{caught} found of {tried} tried, of {len(bugs)}; baseline: "
    return "\n".join([told + (baseline_of(outcomes) or "not run"), "", *rows]) + "\n"
