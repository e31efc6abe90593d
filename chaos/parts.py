"""What a run consists of while it goes on: the cluster, the workers, the record, the screen.

Shared by the steps of a run (`chaos.run`, `chaos.churn`, `chaos.closing`); it does nothing itself.
"""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.backends.base import Cluster
from chaos.catalogue.contracts import RAFT
from chaos.decisions import DecisionProbe
from chaos.members import Plan
from chaos.probe import NodeStatus, Probe
from chaos.record import Recorder
from chaos.scenario import Scenario
from chaos.view import View
from chaos.watch import Watch
from chaos.workers import Workers
from ledgermq.runtime.clock import SystemClock

RAFT_GROUP, PAIR = "RaftGroup0", "broker-a"


def group_of(mode: str) -> str:
    """Return the name of the brokers in a mode."""
    return RAFT_GROUP if mode == RAFT else PAIR


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the caller chooses besides the scenario."""

    run: Path
    seed: int = 0
    backend: str = "local"
    mutant: str | None = None
    watched: bool = False
    """Whether a stream looks for alarms while it runs."""
    stop_on: str | None = None
    """How grave an alarm ends it early: ``critical`` or ``major``."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a run works with while it goes on."""

    scenario: Scenario
    options: RunOptions
    view: View
    run_id: str
    cluster: Cluster
    recorder: Recorder
    workers: Workers
    probe: Probe
    decisions: DecisionProbe | None = None
    """Where controllers choose masters: writes down what they say."""
    clock: SystemClock
    problems: list[str] = field(default_factory=list)
    exits: list[dict[str, Any]] = field(default_factory=list)
    """Processes that ended though nobody ended them."""
    statuses: dict[str, NodeStatus] = field(default_factory=dict)
    lost_alone: int = 0
    """Messages that only lost disks had, in a mode that may lose them."""
    watch: Watch | None = None
    """The stream over what is recorded, if one was asked for."""
    t0_wall_us: int = 0
    ahead_ns: int = 0
    """How much the run's clock showed more than the wall clock, at the begin."""
    unlogged: dict[str, int] = field(default_factory=dict)
    """By process how many lines of its log that matter are in no row."""
    begun: list[tuple[str, int]] = field(default_factory=list)
    """The phases so far, and when each began."""

    @property
    def plan(self) -> Plan:
        """Who works, with which settings."""
        return Plan(
            scenario=self.scenario,
            run=self.options.run,
            run_id=self.run_id,
            seed=self.options.seed,
            cluster=self.cluster,
            broker_name=group_of(self.scenario.mode),
        )

    def phase(self, name: str, text: str) -> None:
        """Mark the beginning of a phase in the history and on the screen."""
        self.begun.append((name, self.clock.monotonic_ns()))
        self.event("phase", {"name": name})
        self.view.phase(name, text)

    def phases(self) -> list[dict[str, Any]]:
        """Return the phases with their times, as run.json has them; the last goes on until now."""
        marks = [*self.begun, ("", self.clock.monotonic_ns())]
        return [
            {"name": name, "t0": t0, "t1": t1} for (name, t0), (_, t1) in itertools.pairwise(marks)
        ]

    def event(self, f: str, value: dict[str, Any]) -> None:
        """Record an event of the harness."""
        row = {"worker": 0, "process": 0, "role": "harness", "type": "info", "f": f}
        row |= {"t_mono_ns": self.clock.monotonic_ns(), "value": value}
        self.recorder.write("events", row)

    def problem(self, text: str) -> None:
        """Note what went wrong with the run itself."""
        self.problems.append(text)
        self.view.notice(f"problem: {text}")
