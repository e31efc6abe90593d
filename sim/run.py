"""One run: safety phase, then liveness phase, then the last questions; and what came of it.

In the safety phase clients work while faults come and go. Then everything is healed and started,
and the cluster must, within a bound of virtual time, elect, acknowledge a new message, bring all
replicas to the same log, and hand out every message. Source: TigerBeetle VOPR; spec/proof.md 4.4.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import sys
import warnings
from dataclasses import dataclass, field
from time import process_time
from typing import TYPE_CHECKING, Any, Final, Protocol

from chaos.checker.compose import check_history
from chaos.checker.model import INVALID
from ledgermq.runtime.clock import SystemClock
from sim.audit import Auditor, is_of_group, run_history
from sim.classic.run import ClassicRun
from sim.faults.apply import Nemesis
from sim.machines import NS_PER_MS, Machines
from sim.operator import Operator
from sim.oracles.applied import check_keys
from sim.oracles.base import Violation
from sim.oracles.expiry import Expiry
from sim.oracles.kept import all_kept_twice
from sim.oracles.tasks import Ear, check_tasks
from sim.quiet_end import QuietEnd
from sim.smallness import with_small
from sim.standstill import StoodStill
from sim.stepping import LIVENESS, run_audit, run_until
from sim.switch.run import SwitchRun
from sim.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgermq.runtime.clock import Clock
    from sim.faults.plan import Plan
    from sim.oracles.twice import Twice
    from sim.record import Record

VALID, VIOLATED, NOT_LIVE, EXCEEDED, BROKEN = (
    "valid", "violation", "not live", "contract exceeded", "harness failure"
)  # fmt: skip
EXIT_CODES: Final = {VALID: 0, VIOLATED: 1, NOT_LIVE: 1, EXCEEDED: 3, BROKEN: 255}


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run."""

    seed: int
    verdict: str
    oracle: str = ""
    """Which oracle found the violation."""
    text: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    digest: str
    events: int
    virtual_ms: int
    wall_s: float
    cpu_s: float = 0.0
    """Processor time of the process, over the same span."""
    counters: dict[str, int]
    faults: dict[str, int]
    """By kind, how many faults took effect."""
    without_effect: dict[str, int] = field(default_factory=dict)
    """By kind, how many were planned and did not."""
    lines: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a bug was found, or the harness broke."""
        return self.verdict in {VIOLATED, NOT_LIVE, BROKEN}

    @property
    def signature(self) -> str:
        """What two failures must share to be the same: verdict and oracle."""
        return f"{self.verdict}: {self.oracle}" if self.oracle else self.verdict


def run_plan(plan: Plan, *, trace_lines: bool = False) -> Result:
    """Run a plan from beginning to end. Errors: none that come of the cluster."""
    clock = SystemClock()
    with _quiet() as ear, with_small(plan), all_kept_twice() as twice:
        run = prepare(plan, trace_lines)
        ear.follow(run.world.findings, run.is_blocked)
        try:
            return _check(run, clock, twice)
        finally:
            with _no_last_words():
                run.world.close()
                del run
                gc.collect()


def prepare(plan: Plan, trace_lines: bool) -> Run:  # noqa: FBT001 - as all runs
    """Return the run of a plan, before anything happens."""
    if plan.options.classic is not None:
        return ClassicRun(plan, trace_lines)
    if plan.options.switch is not None:
        return SwitchRun(plan, trace_lines)
    return GroupRun(plan, trace_lines)


class Run(Protocol):
    """A run that has been prepared."""

    @property
    def world(self) -> Machines:
        """Its machines."""
        ...

    @property
    def record(self) -> Record:
        """What its clients did."""
        ...

    nemesis: Nemesis

    def is_blocked(self, name: str) -> bool:
        """Whether a fault of its disk explains that a program on a host logs errors."""
        ...

    def phases(self) -> None:
        """Run it to its end. Errors: `Violation`."""
        ...


class GroupRun:
    """A run of a Raft group."""

    def __init__(self, plan: Plan, trace_lines: bool) -> None:  # noqa: FBT001 - as all runs
        self.world = world = World(plan, keep_lines=trace_lines)
        self.record = world.record
        self.is_blocked = world.health.is_blocked
        self.nemesis = nemesis = Nemesis(world)
        world.explains, world.explains_start = nemesis.explains, nemesis.explains_start
        watch = world.watch
        watch.healthy.disturbed_ns = lambda: world.health.disturbed_ns(nemesis.disturbed_ms)
        watch.following.disturbed_ns = lambda: world.health.disturbed_ns(nemesis.any_ms)
        world.judges.delays.disturbed_ns = watch.healthy.disturbed_ns
        world.health.faults_ms = nemesis.any_ms
        world.health.touched_ms = nemesis.touched_ms
        watch.brokers.prompt.calm_since_ns = world.health.calm_since_ns

    def phases(self) -> None:
        """Run it to its end. Errors: `Violation`."""
        _phases(self.world, self.nemesis)


def _check(run: Run, clock: Clock, twice: Twice) -> Result:
    """Run a world to its end, and say what came of it."""
    started_ns, began_s = clock.monotonic_ns(), process_time()
    world, nemesis = run.world, run.nemesis
    verdict, violation = VALID, None
    try:
        _run_phases(run)
        twice.raise_first()
    except Violation as found:
        violation = found
        verdict = NOT_LIVE if found.oracle == LIVENESS else VIOLATED
        if nemesis.is_exceeded:
            verdict = EXCEEDED
        world.trace.event("violation", "-", oracle=found.oracle, text=found.text)
    return Result(
        seed=world.plan.seed,
        verdict=verdict,
        oracle="" if violation is None else violation.oracle,
        text="" if violation is None else violation.text,
        evidence={} if violation is None else violation.evidence,
        digest=world.trace.digest(),
        events=world.loop.events,
        virtual_ms=world.loop.now_ns // NS_PER_MS,
        wall_s=(clock.monotonic_ns() - started_ns) / 1e9,
        cpu_s=process_time() - began_s,
        counters=dict(sorted(run.record.counters.items())),
        faults=dict(sorted(nemesis.effective().items())),
        without_effect=dict(sorted(nemesis.skipped().items())),
        lines=tuple(world.trace.lines),
    )


def _run_phases(run: Run) -> None:
    """Run it, and see that nobody made a mistake, which may be why it is not live."""
    try:
        run.phases()
    except StoodStill as stuck:
        raise Violation(LIVENESS, str(stuck)) from stuck
    except Violation as found:
        if found.oracle == LIVENESS:
            check_tasks(run.world.loop)
        raise
    check_tasks(run.world.loop)


def _phases(world: World, nemesis: Nemesis) -> None:
    expiry = Expiry(world)

    def look() -> None:
        world.health.check_routes()
        world.health.check_registered()
        world.health.check_changes()
        expiry.look()

    options = world.plan.options
    world.start_all()
    Operator(world).start()
    nemesis.start()
    run_until(world, options.safety_ms, look)
    nemesis.heal_all()
    auditor = Auditor(world)
    auditor.start()
    run_audit(world, lambda: auditor.is_done, auditor.describe, look)
    run_until(world, expiry.until_ms, look)
    _at_end(world, auditor)
    QuietEnd(world).run()


def _at_end(world: World, auditor: Auditor) -> None:
    """Ask what can only be asked at the end. Errors: `Violation`."""
    world.record.count("snapshots", sum(one.snapshots for one in world.watch.replicas.values()))
    world.clients_oracle.at_end([row for row in world.record.sends if is_of_group(row)])
    if world.alone_log is not None:
        world.alone_log.note_end()
    if world.validators.alone is not None:
        world.validators.alone.at_end(world.record.sends)
    for name in (*world.brokers(), *world.alone()):
        world.check_units(name)
    for name in world.brokers():
        world.watch.look_again(name)
        if world.node(name) is not None:
            check_keys(world.watch.truth, world.watch.replicas[name])
    if world.findings.first is not None:
        raise world.findings.first
    verdict = check_history(run_history(world, auditor.ends))
    if verdict.verdict == INVALID:
        raise Violation("history checker", "; ".join(verdict.reasons))


@functools.cache
def _freeze() -> None:
    """Take what the process had before its first run out of the collections after each run."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _quiet() -> Iterator[Ear]:
    """Keep garbage collection out of the run, and logs but for errors, which are heard.

    Both cost, neither belongs to it.
    """
    disabled, handlers = logging.root.manager.disable, logging.root.handlers
    logging.disable(logging.WARNING)
    ear = Ear()
    logging.root.handlers = [ear]
    collects = gc.isenabled()
    _freeze()
    gc.disable()
    try:
        yield ear
    finally:
        logging.root.handlers = handlers
        logging.disable(disabled)
        if collects:
            gc.enable()


@contextlib.contextmanager
def _no_last_words() -> Iterator[None]:
    """Let coroutines of a world that has ended be dropped; what they say of it is no finding."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = hook
