"""What every fault has: targets, apply, undo, and a witness that it took effect.

A fault that cannot be shown to have had an effect does not count (A47). Knows no schedule.
Source: spec/proof.md 4.3 (faults, witness), 4.4 (undo journal).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chaos.backends.base import Cluster
from chaos.generator import Stream
from chaos.probe import Probe
from ledgermq.runtime.clock import Clock


class Clients(Protocol):
    """The clients of a run, by role: ``producer``, ``consumer``, ``orderly``, ``broadcast``."""

    def running(self, role: str) -> list[str]:
        """Return the names of those that run."""
        ...

    def pick(self, role: str) -> str | None:
        """Return whom to kill; None if nobody is left."""
        ...

    async def crash(self, name: str) -> None:
        """Kill one and wait until it is gone."""
        ...

    async def replace(self, name: str) -> None:
        """Let another one take its place; return when it works."""
        ...

    async def join(self, role: str) -> str | None:
        """Let one more ``consumer`` or ``orderly`` member come; return its name, if one may."""
        ...

    async def leave(self, name: str) -> int:
        """Let a consumer leave as it should; return how many messages it had got."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a fault works with."""

    cluster: Cluster
    probe: Probe
    clock: Clock
    clients: Clients | None = None
    stream: Stream = field(default_factory=lambda: Stream(0))
    """What one fault draws from: of the run's seed and the fault's name."""


@dataclass(slots=True, kw_only=True)
class Witness:
    """What was seen before, during and after; ``probe`` says what the numbers are."""

    probe: str
    before: float | None = None
    during: float | None = None
    after: float | None = None
    effective: bool = False
    only_there: int | None = None
    """Of a fault that takes a disk: how many messages no other node had at that moment."""

    def row(self) -> dict[str, Any]:
        """Return the ``witness`` struct of the ``faults`` table."""
        return {
            "probe": self.probe,
            "before": self.before,
            "during": self.during,
            "after": self.after,
            "effective": self.effective,
        }


class Fault(Protocol):
    """One fault on given targets. Everything that acts raises `ClusterFailed`."""

    witness: Witness

    @property
    def kind(self) -> str:
        """What is done, as the ``faults`` table names it."""
        ...

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes concerned."""
        ...

    def undo_entry(self) -> Mapping[str, Any]:
        """Return what the undo journal needs to lift the fault without this object."""
        ...

    async def probe_before(self) -> None:
        """Take the picture before."""
        ...

    async def apply(self) -> None:
        """Do it; returns when the machine says that it is done."""
        ...

    async def probe_during(self) -> None:
        """Take the picture while the fault is on."""
        ...

    async def undo(self) -> None:
        """Take the last picture while it is on, if one is needed, and lift the fault."""
        ...

    async def probe_after(self) -> None:
        """Take the picture after; the witness's ``effective`` is final now."""
        ...


@dataclass(slots=True, kw_only=True)
class FaultRecord:
    """The life of a planned fault, as a row of ``faults``."""

    fault_id: str
    kind: str
    parent_id: str = ""
    targets: tuple[str, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""
    t_sched: int | None = None
    t_on0: int | None = None
    t_on1: int | None = None
    t_off0: int | None = None
    t_off1: int | None = None
    status: str = "planned"
    witness: Witness | None = None

    def row(self) -> dict[str, Any]:
        """Return the row."""
        return {
            "fault_id": self.fault_id,
            "parent_id": self.parent_id or None,
            "kind": self.kind,
            "spec": dict(self.spec),
            "targets": list(self.targets),
            "method": self.method,
            "t_sched": self.t_sched,
            "t_on0": self.t_on0,
            "t_on1": self.t_on1,
            "t_off0": self.t_off0,
            "t_off1": self.t_off1,
            "status": self.status,
            "witness": None if self.witness is None else self.witness.row(),
            "only_there": None if self.witness is None else self.witness.only_there,
        }
