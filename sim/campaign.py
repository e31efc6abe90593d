"""Many runs: seeds in order, on several processes, until they are done or the time is up.

Each run is a function of its plan, so processes share nothing; a worker is replaced now and then.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.runtime.clock import SystemClock
from sim.faults.alone_draw import ALONE, draw_alone, is_alone_too
from sim.faults.classic import MODES
from sim.faults.classic_draw import draw_classic, is_classic_too
from sim.faults.draw import draw
from sim.faults.switch import CONTROLLER
from sim.faults.switch_draw import draw_switch, is_switch_too
from sim.run import BROKEN, EXCEEDED, VALID, Result, run_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sim.faults.plan import Plan

SEEDS_PER_TASK: Final = 4
TASKS_PER_WORKER: Final = 50
"""A worker process is replaced after so many tasks: a run may leave memory behind."""
FAILURES_MAX: Final = 10
"""After so many failures a campaign ends early."""

RAFT: Final = "raft"
"""The mode of a plan about a group; the others are `ALONE`, `MODES` and `CONTROLLER`."""
EVERY: Final = "every"
"""Each seed's plan about a group, and those of some seeds about master and slaves."""
CHOICES: Final = (EVERY, RAFT, ALONE, *MODES, CONTROLLER)


class Case(NamedTuple):
    """One run of a campaign."""

    seed: int
    mode: str


Ran = list[tuple[Case, Result]]


def cases(seeds: Iterable[int], mode: str) -> Iterator[Case]:
    """Yield the runs of some seeds; ``mode``: one of `CHOICES`."""
    for seed in seeds:
        if mode != EVERY:
            yield Case(seed, mode)
            continue
        yield Case(seed, RAFT)
        if is_classic_too(seed):
            classic = draw_classic(seed).options.classic
            assert classic is not None
            yield Case(seed, classic.mode)
        if is_switch_too(seed):
            yield Case(seed, CONTROLLER)
        if is_alone_too(seed):
            yield Case(seed, ALONE)


def plan_of(case: Case, *, overkill: bool) -> Plan:
    """Return the plan of a run."""
    if case.mode == RAFT:
        return draw(case.seed, overkill=overkill)
    if case.mode == ALONE:
        return draw_alone(case.seed)
    if case.mode == CONTROLLER:
        return draw_switch(case.seed)
    return draw_classic(case.seed, case.mode)


@dataclass(slots=True)
class Totals:
    """What the runs of a campaign come to."""

    runs: int = 0
    valid: int = 0
    exceeded: int = 0
    events: int = 0
    virtual_ms: int = 0
    run_s: float = 0.0
    """Sum of the runs' own wall time."""
    cpu_s: float = 0.0
    """Sum of the runs' processor time."""
    wall_s: float = 0.0
    digests: dict[Case, str] = field(default_factory=dict)
    """By run, what it did."""
    counters: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    without_effect: dict[str, int] = field(default_factory=dict)
    failures: list[Result] = field(default_factory=list)
    interrupted: bool = False
    """Whether somebody ended it; what has run counts."""

    def add(self, case: Case, result: Result) -> None:
        """Count one run."""
        self.runs += 1
        self.events += result.events
        self.virtual_ms += result.virtual_ms
        self.run_s += result.wall_s
        self.cpu_s += result.cpu_s
        self.digests[case] = f"{result.digest} {result.verdict}"
        for into, what in (
            (self.counters, result.counters),
            (self.faults, result.faults),
            (self.without_effect, result.without_effect),
        ):
            for name, count in what.items():
                into[name] = into.get(name, 0) + count
        if result.failed:
            self.failures.append(result)
        self.valid += result.verdict == VALID
        self.exceeded += result.verdict == EXCEEDED

    @property
    def exit_code(self) -> int:
        """0 all valid, 1 a bug was found, 3 a contract was exceeded, 255 the harness failed."""
        if any(result.verdict == BROKEN for result in self.failures):
            return 255
        if self.failures:
            return 1
        return 3 if self.exceeded else 0

    @property
    def digest(self) -> str:
        """One hash of what all runs did and how they were judged, whatever order they ended in."""
        rows = (f"{seed} {mode} {did}\n" for (seed, mode), did in sorted(self.digests.items()))
        return hashlib.blake2b("".join(rows).encode(), digest_size=16).hexdigest()

    def quote(self, build: str, jobs: int) -> str:
        """Render what a document may quote: which seeds of which build, their verdicts and cost."""
        seeds = {case.seed for case in self.digests}
        first, last = min(seeds, default=0), max(seeds, default=0)
        whole = "" if last - first + 1 == len(seeds) else f" ({len(seeds)} of them)"
        if classic := sum(case.mode != RAFT for case in self.digests):
            whole += f", {classic} runs of master and slaves among them"
        return (
            f"{build}, seeds {first}..{last}{whole}: {self.valid} valid, "
            f"{len(self.failures)} failed, {self.exceeded} beyond the contract; "
            f"{self.cpu_s:.0f} s of CPU, {self.wall_s:.0f} s with --jobs {jobs}; "
            f"digest {self.digest}"
        )

    def describe(self) -> str:
        """Render the sums in one line."""
        per_s = self.events / self.run_s if self.run_s else 0.0
        ratio = self.virtual_ms / 1000 / self.run_s if self.run_s else 0.0
        return (
            f"{self.runs} runs, {self.valid} valid, {self.exceeded} beyond the contract, "
            f"{len(self.failures)} failed; {self.events} events, {per_s:,.0f} a second and "
            f"{ratio:.0f}x real time in one process; {60 * self.runs / max(self.wall_s, 1e-9):.0f} "
            "seeds a minute"
        )


def run_seed(
    seed: int, *, overkill: bool = False, trace_lines: bool = False, mode: str = RAFT
) -> Result:
    """Run the plan of a seed; an error of the simulator itself is a result, too."""
    try:
        return run_plan(plan_of(Case(seed, mode), overkill=overkill), trace_lines=trace_lines)
    except Exception as error:  # noqa: BLE001 - one broken run must not end a campaign
        return Result(
            seed=seed, verdict=BROKEN, text=f"{type(error).__name__}: {error}", digest="",
            events=0, virtual_ms=0, wall_s=0.0, counters={}, faults={},
        )  # fmt: skip


def run_cases(piece: list[Case], overkill: bool) -> Ran:  # noqa: FBT001 - for a pool
    """Run some cases in this process."""
    return [
        (case, replace(run_seed(case.seed, overkill=overkill, mode=case.mode), lines=()))
        for case in piece
    ]


def campaign(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    minutes: float | None = None,
    overkill: bool = False,
    mode: str = RAFT,
    report: Callable[[Totals, Case, Result], None] = lambda _totals, _case, _result: None,
) -> Totals:
    """Run seeds until they are done, the time is up, or too many have failed.

    Args:
        seeds: in the order to run them; may be endless if ``minutes`` is given.
        jobs: processes at a time.
        minutes: no run begins later than that.
        overkill: leave the fault budget.
        mode: one of `CHOICES`.
        report: hears of each run.
    """
    clock = SystemClock()
    started_ns = clock.monotonic_ns()
    totals = Totals()

    def is_over() -> bool:
        totals.wall_s = (clock.monotonic_ns() - started_ns) / 1e9
        late = minutes is not None and totals.wall_s >= 60 * minutes
        return late or len(totals.failures) >= FAILURES_MAX

    pieces = _pieces(cases(seeds, mode))
    try:
        for results in (
            _in_pool(pieces, jobs, overkill, is_over)
            if jobs > 1
            else _here(pieces, overkill, is_over)
        ):
            for case, result in results:
                totals.add(case, result)
                is_over()
                report(totals, case, result)
    except KeyboardInterrupt:
        totals.interrupted = True
    is_over()
    return totals


def _ignore_ctrl_c() -> None:
    """Leave it to the process that the terminal sees."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _pieces(all_cases: Iterator[Case]) -> Iterator[list[Case]]:
    while piece := list(islice(all_cases, SEEDS_PER_TASK)):
        yield piece


def _here(
    pieces: Iterator[list[Case]],
    overkill: bool,  # noqa: FBT001 - passed on
    is_over: Callable[[], bool],
) -> Iterator[Ran]:
    for piece in pieces:
        for case in piece:
            if is_over():
                return
            yield run_cases([case], overkill)


def _in_pool(
    pieces: Iterator[list[Case]],
    jobs: int,
    overkill: bool,  # noqa: FBT001 - passed on
    is_over: Callable[[], bool],
) -> Iterator[Ran]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, mp_context=context, max_tasks_per_child=TASKS_PER_WORKER, initializer=_ignore_ctrl_c
    ) as executor:
        running: deque[Future[Ran]] = deque()
        while True:
            while len(running) < jobs and not is_over():
                piece = next(pieces, None)
                if piece is None:
                    break
                running.append(executor.submit(run_cases, piece, overkill))
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in [one for one in running if one in done]:
                running.remove(future)
                yield future.result()
