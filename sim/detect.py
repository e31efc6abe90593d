"""Detection power: how many default plans it takes until a planted bug is found, and by whom.

Seed after seed is run with the bug planted, from the first one on, until a run fails that passes
without it. A plan that has none of the faults which the bug needs to show is not run, and counts
all the same. A simulator that finds no bug says nothing about the code; the matrix says what one
that finds none is worth. The bugs are those of `mutants`.
"""

from __future__ import annotations

import json
import multiprocessing
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledgermq.runtime.clock import SystemClock
from mutants.modes import SHOWN_BY
from mutants.patches import ALL, MUTANTS
from mutants.planting import planted
from sim.campaign import RAFT, Case, plan_of
from sim.run import BROKEN, run_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mutants.planting import Mutant
    from sim.faults.plan import Plan
    from sim.run import Result

SEEDS_MAX: Final = 2_000
"""A bug that is not found in so many default plans counts as one the simulator cannot find."""
SEEDS_PER_TASK: Final = 10
RUNS_PER_WORKER: Final = 40
"""Tasks after which a worker process is replaced: a run leaves cycles behind."""


@dataclass(frozen=True, slots=True)
class Detection:
    """What is known of one mutant."""

    mutant: str
    seeds: int
    """How many were run."""
    seed: int | None = None
    """The first that failed, None if none did."""
    oracle: str = ""
    text: str = ""
    wall_s: float = 0.0
    """Processor time of all its runs, as far as the clock on the wall tells."""

    @property
    def found(self) -> bool:
        """Whether some seed failed."""
        return self.seed is not None

    def describe(self) -> str:
        """Render one row, for a terminal."""
        if self.found:
            return (
                f"{self.mutant:32} found after {self.seeds:5} seeds (seed {self.seed})"
                f"  {self.oracle}"
            )
        return f"{self.mutant:32} NOT FOUND in {self.seeds} seeds"


def bugs_of(mode: str) -> Mapping[str, Mutant]:
    """Return the planted bugs that plans of a mode are to find."""
    return MUTANTS if mode == RAFT else {name: ALL[name] for name in SHOWN_BY[mode]}


def run_mutant(name: str, seed: int, plan: Plan | None = None, mode: str = RAFT) -> Result:
    """Run the default plan of a seed with a bug planted; without one if the name is empty.

    ``plan``: is run instead; a plan that was kept does not change with what is drawn.
    """
    if plan is None:
        plan = plan_of(Case(seed, mode), overkill=False)
    if not name:
        return run_plan(plan)
    with planted(ALL[name]):
        return run_plan(plan)


def may_show(mutant: Mutant, plan: Plan) -> bool:
    """Tell whether a plan has what the bug needs to show."""
    needs = mutant.needs.split()
    if mutant.flush and plan.options.flush_disk_type != mutant.flush:
        return False
    return not needs or any(event.kind.value in needs for event in plan.events)


def detect(name: str, seeds: Sequence[int], mode: str = RAFT) -> Detection:
    """Run plans of a mode, seeds in order, until one fails that passes without the bug."""
    clock = SystemClock()
    started_ns = clock.monotonic_ns()
    count = 0
    for seed in seeds:
        count += 1
        if not may_show(ALL[name], plan_of(Case(seed, mode), overkill=False)):
            continue
        result = _attempt(name, seed, mode)
        is_found = result is not None and result.failed and result.verdict != BROKEN
        if result is not None and is_found and _is_sound(seed, mode):
            wall_s = (clock.monotonic_ns() - started_ns) / 1e9
            return Detection(name, count, seed, result.oracle, result.text, wall_s)
    return Detection(name, count, wall_s=(clock.monotonic_ns() - started_ns) / 1e9)


def measure(
    names: Sequence[str],
    *,
    seed_first: int = 1,
    seeds_max: int = SEEDS_MAX,
    jobs: int = 1,
    mode: str = RAFT,
    report: Callable[[Detection, bool], None] = lambda _detection, _is_final: None,
) -> list[Detection]:
    """Return the detection of each mutant, in the order of ``names``.

    Args:
        names: of mutants.
        seed_first: where each begins.
        seeds_max: after so many a mutant is given up.
        jobs: processes at a time.
        mode: whose plans, see `sim.campaign`.
        report: called with the state of a mutant whenever a piece of its seeds has run, and
            whether that is the last of it.
    """
    search = _Search(names, range(seed_first, seed_first + seeds_max), report)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, mp_context=context, max_tasks_per_child=RUNS_PER_WORKER
    ) as executor:
        running: dict[Future[Detection], str] = {}
        while True:
            while len(running) < jobs and (task := search.next_task()) is not None:
                running[executor.submit(detect, *task, mode)] = task[0]
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                search.take(running.pop(future), future.result())
    return [search.known[name] for name in names]


def table(detections: Sequence[Detection]) -> list[str]:
    """Render the matrix as the lines of a Markdown table, most hidden bug last."""
    rows = [
        f"| {d.mutant} | {d.seeds if d.found else f'not in {d.seeds}'} |"
        f" {d.seed if d.found else ''} | {d.oracle} | {ALL[d.mutant].breaks} |"
        for d in sorted(detections, key=lambda d: (not d.found, d.seeds, d.mutant))
    ]
    return [
        "| mutant | seeds | seed | found by | what it does wrong |",
        "|---|---|---|---|---|",
        *rows,
    ]


def known_seeds(detections: Sequence[Detection]) -> str:
    """Return the seeds that find each bug, as the file that the tests read."""
    found: Mapping[str, dict[str, object]] = {
        d.mutant: {"seed": d.seed, "oracle": d.oracle, "seeds": d.seeds}
        for d in sorted(detections, key=lambda d: d.mutant)
        if d.found
    }
    return json.dumps(found, indent=1) + "\n"


def _attempt(name: str, seed: int, mode: str) -> Result | None:
    """Run a seed; None where the bug breaks the simulator itself, which finds nothing by that."""
    try:
        return run_mutant(name, seed, mode=mode)
    except Exception:  # noqa: BLE001 - whatever a planted bug does to the harness
        return None


def _is_sound(seed: int, mode: str) -> bool:
    result = _attempt("", seed, mode)
    return result is not None and not result.failed


class _Search:
    """Which seeds of which mutants are still to be run; each mutant's own in order."""

    def __init__(
        self, names: Sequence[str], seeds: range, report: Callable[[Detection, bool], None]
    ) -> None:
        self._seeds = seeds
        self._report = report
        self._waiting = deque(names)
        self.known = {name: Detection(name, 0) for name in names}

    def next_task(self) -> tuple[str, Sequence[int]] | None:
        """Return a mutant and its next seeds, None when nothing is left to begin."""
        if not self._waiting:
            return None
        name = self._waiting.popleft()
        done = self.known[name].seeds
        return name, self._seeds[done : done + SEEDS_PER_TASK]

    def take(self, name: str, part: Detection) -> None:
        """Note what a piece has brought; queue the next one if the bug is still hidden."""
        before = self.known[name]
        now = Detection(
            name, before.seeds + part.seeds, part.seed, part.oracle, part.text,
            before.wall_s + part.wall_s,
        )  # fmt: skip
        self.known[name] = now
        is_final = now.found or now.seeds >= len(self._seeds)
        if not is_final:
            self._waiting.append(name)
        self._report(now, is_final)
