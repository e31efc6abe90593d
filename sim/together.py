"""Which of many bugs the plans of a campaign show, with many planted at a time.

A run that passes with twenty bugs planted shows none of the twenty, at the price of one run. One
that fails is repeated with each half of them until those that show are alone (group testing:
Dorfman 1943). So bugs that are hard to find, whoever wrote them, get hundreds of plans each.
`sim.detect` looks for one bug at a time instead; for where the planted bugs of `mutants` are known.

Bugs that are planted together can hide each other; then one counts as not shown that is. None
counts as shown that did not fail a plan alone, on which the code passes without it.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from mutants.planting import Mutant, StaleMutantError, planted, targets_of
from sim.campaign import cases, plan_of
from sim.run import BROKEN, run_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sim.campaign import Case

    Attempt = Callable[[Sequence[Mutant], Case], "Outcome"]

TOGETHER_MAX: Final = 24
"""So many bugs are planted at most in one run: more hide each other."""
RUN_S_MAX: Final = 300.0
"""A run that takes longer is ended; a bug may have the code go round for ever."""

PASSED, FAILED, ENDED = "passed", "failed", "ended"


class Outcome(NamedTuple):
    """What came of one run."""

    kind: str
    """`FAILED`: a bug was found. `ENDED`: the simulator itself broke or took too long."""
    oracle: str = ""
    text: str = ""


class Shown(NamedTuple):
    """A bug, and the first plan that fails with it alone."""

    case: Case
    outcome: Outcome


@dataclass(slots=True)
class Search:
    """Bugs that are looked for on one plan after the other."""

    left: list[Mutant]
    """What no plan has shown yet."""
    attempt: Attempt
    shown: dict[str, Shown] = field(default_factory=dict)
    """By name. `ENDED` stands for bugs that were set aside: they break the simulator."""
    runs: int = 0
    _is_sound: bool | None = None
    _share: float = 0.15
    """Of the bugs that were left, how many a plan has shown of late."""

    def look(self, case: Case) -> None:
        """Look for all bugs that are left in one plan."""
        self._is_sound = None
        Random(case.seed).shuffle(self.left)  # bugs hide each other seldom twice
        size = max(1, min(TOGETHER_MAX, round(0.7 / max(self._share, 0.01))))
        before = len(self.left)
        for group in _groups(self.left, size):
            self._find(group, case)
        self.left = [bug for bug in self.left if bug.name not in self.shown]
        self._share = 0.7 * self._share + 0.3 * (before - len(self.left)) / max(before, 1)

    def _find(self, bugs: Sequence[Mutant], case: Case) -> None:
        """Note those of some bugs that fail a plan alone, on which the code passes without any."""
        outcome = self._run(bugs, case)
        if outcome.kind == PASSED or not self._passes(case):
            return
        if len(bugs) > 1:
            middle = len(bugs) // 2
            self._find(bugs[:middle], case)
            self._find(bugs[middle:], case)
        else:
            self.shown[bugs[0].name] = Shown(case, outcome)

    def _passes(self, case: Case) -> bool:
        """Tell whether the code passes a plan; asked once for each that fails."""
        if self._is_sound is None:
            self._is_sound = self._run((), case).kind == PASSED
        return self._is_sound

    def _run(self, bugs: Sequence[Mutant], case: Case) -> Outcome:
        self.runs += 1
        return self.attempt(bugs, case)


def _groups(bugs: Sequence[Mutant], size: int) -> list[list[Mutant]]:
    """Split bugs into groups, no two that patch one function in one: texts of patches collide."""
    groups: list[tuple[list[Mutant], set[str]]] = []
    for bug in bugs:
        targets = set(targets_of(bug))
        fit = next((g for g in groups if len(g[0]) < size and not g[1] & targets), None)
        if fit is None:
            fit = ([], set())
            groups.append(fit)
        fit[0].append(bug)
        fit[1].update(targets)
    return [group for group, _ in groups]


@dataclass(slots=True)
class Found:
    """What a search among the bugs of a file came to."""

    shown: dict[str, Shown] = field(default_factory=dict)
    runs: int = 0
    interrupted: bool = False
    """Whether somebody ended it; what was shown before counts."""
    broken: int = 0
    """Processes that ended amid their seeds: what they had left is not known."""


class Told(NamedTuple):
    """What a process of a search says when it is through with a plan."""

    part: int
    case: Case
    shown: dict[str, Shown]
    left: int
    runs: int


def search(
    path: Path,
    seeds: range,
    *,
    mode: str,
    jobs: int,
    report: Callable[[Told], None],
) -> Found:
    """Look for the bugs of a file in the plans of some seeds, one plan after the other.

    Args:
        path: see `load`, which has to succeed.
        seeds: whose plans.
        mode: one of `sim.campaign.CHOICES`.
        jobs: processes at a time; each has a share of the bugs.
        report: called with each plan that is done.
    """
    context = multiprocessing.get_context("spawn")
    found = Found()
    pipes: list[Connection] = []
    processes = []
    for part in range(jobs):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_part, args=(path, part, jobs, seeds, mode, theirs))
        process.start()
        processes.append(process)
        pipes.append(ours)
        theirs.close()
    try:
        while pipes:
            for pipe in [pipe for pipe in wait(pipes) if isinstance(pipe, Connection)]:
                try:
                    told: Told = pipe.recv()
                except EOFError:
                    pipes.remove(pipe)
                    continue
                found.shown |= told.shown
                found.runs += told.runs
                report(told)
    except KeyboardInterrupt:
        found.interrupted = True
    else:
        for process in processes:
            process.join()
        found.broken = sum(process.exitcode != 0 for process in processes)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    return found


def _part(path: Path, part: int, parts: int, seeds: range, mode: str, answers: Connection) -> None:
    """Look for each of so many bugs of a file, and say what each plan has shown."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it, too, and ends this
    signal.signal(signal.SIGTERM, _end)
    search = Search(load(path)[part::parts], attempt)
    for case in cases(seeds, mode):
        if not search.left:
            break
        known, runs = set(search.shown), search.runs
        search.look(case)
        new = {name: shown for name, shown in search.shown.items() if name not in known}
        answers.send(Told(part, case, new, len(search.left), search.runs - runs))


def _end(*_: object) -> None:
    """End this process, and the run that it waits for; an exception could be lost on its way."""
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(128 + signal.SIGTERM)


def load(path: Path) -> list[Mutant]:
    """Return the bugs of a Python file: the `Mutant` objects in its ``BUGS``.

    Raises:
        ValueError: it cannot be run, has none, has one twice, or one whose code is not there.
    """
    spec = importlib.util.spec_from_file_location("bugs_of_a_file", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} does not run: {type(error).__name__}: {error}") from error
    bugs = list(getattr(module, "BUGS", ()))
    if not bugs or not all(isinstance(bug, Mutant) for bug in bugs):
        raise ValueError(f"{path} has no BUGS, a tuple of mutants.planting.Mutant")
    names = [bug.name for bug in bugs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path} has two bugs named {twice[0]}")
    for bug in bugs:
        try:
            with planted(bug):
                pass
        except (StaleMutantError, ImportError, AttributeError, SyntaxError) as error:
            raise ValueError(f"{path}: {bug.name}: {error}") from error
    return bugs


def attempt(bugs: Sequence[Mutant], case: Case) -> Outcome:
    """Run the default plan of a case with some bugs planted, in a process of its own."""
    context = multiprocessing.get_context("fork")  # a bug's code is not to be sent
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(bugs, case, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if wait([ours], RUN_S_MAX):
            outcome: Outcome = ours.recv()
            return outcome
        return Outcome(ENDED, text=f"it runs for more than {RUN_S_MAX:.0f} s")
    except EOFError:
        return Outcome(ENDED, text="its process ended")
    finally:
        process.kill()
        process.join()
        ours.close()


def _run(bugs: Sequence[Mutant], case: Case, answer: Connection) -> None:
    """Run a plan and send its outcome; the process ends with it."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stderr.fileno())
    try:
        plan = plan_of(case, overkill=False)
        for bug in bugs:
            bug()
        result = run_plan(plan)
    except Exception as error:  # noqa: BLE001  # whatever planted bugs do to the simulator
        answer.send(Outcome(ENDED, text=f"{type(error).__name__}: {error}"))
        return
    kind = ENDED if result.verdict == BROKEN else FAILED if result.failed else PASSED
    answer.send(Outcome(kind, result.oracle, result.text))
