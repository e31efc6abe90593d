"""Faults between a broker and its disk or clock, by a library in its process (`chaos.shim`).

Witness: what the library counted in that process since the command: calls that failed, that waited,
wrong times that were told. Nothing counted: no effect. Numbers of a witness: the count before, by
how much it grew while the fault was on, and since it was lifted, which must be nothing.

Source: spec/proof.md D2, D3, D5, D6, D7, P5, T1, T2.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chaos.backends.base import ClusterFailed
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.restarts import machine_of
from chaos.nemesis.wait import until

if TYPE_CHECKING:
    from chaos.shim.control import Control

SEEN_TIMEOUT_S = 10.0
BACK_TIMEOUT_S = 15.0
STILL_S = 0.3
WITHOUT_END: Final = 1 << 62
HANG_US: Final = 3_600_000_000
Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _How:
    """The commands of a kind, what the library counts, and whether the broker may end by it."""

    commands: Callable[[Parameters], dict[str, int]]
    count: Callable[[Parameters], str]
    ends: bool = False
    keeps: bool = False
    """Whether it takes nothing, of what a fault of its kind may take elsewhere."""


def _eio(parameters: Parameters) -> dict[str, int]:
    of = parameters["of"]
    return {f"{of}_errno": errno.EIO, f"{of}_fails": int(parameters["times"])}


STEPS: Final = {"write": 1, "sync": 2, "written": 5, "synced": 6}
"""Steps at which a process may end, as the library numbers them: before it, or once it is done."""


def _crash(parameters: Parameters) -> dict[str, int]:
    return {"crash_of": STEPS[str(parameters["at"])], "crash_in": int(parameters["times"])}


HOW: Final[Mapping[str, _How]] = {
    # What was written stays in the page cache, though a kernel may drop it when a sync fails.
    "eio": _How(_eio, lambda p: f"{p['of']}s_failed", ends=True, keeps=True),
    "full": _How(
        lambda _p: {"write_errno": errno.ENOSPC, "write_fails": WITHOUT_END},
        lambda _p: "writes_failed",
    ),
    "crash_at": _How(_crash, lambda _p: "crashes", ends=True),
    "lie": _How(lambda _p: {"lies": 1}, lambda _p: "syncs_lied"),
    "slow": _How(lambda p: {"delay_us": int(float(p["ms"]) * 1000)}, lambda _p: "delayed"),
    "hang": _How(lambda _p: {"delay_us": HANG_US}, lambda _p: "delayed"),
    "clock_jump": _How(
        lambda p: {"skew_ns": int(float(p["ms"]) * 1_000_000)}, lambda _p: "times_told"
    ),
    "clock_strobe": _How(
        lambda p: {
            "skew_ns": int(float(p["ms"]) * 1_000_000),
            "strobe_ns": int(float(p["period_ms"]) * 1_000_000),
        },
        lambda _p: "times_told",
    ),
    "clock_drift": _How(
        lambda p: {"drift_ppm": int(float(p["percent"]) * 10_000)}, lambda _p: "times_told"
    ),
}
"""By the kind."""


class Shimmed:
    """A library in the broker's process does as it is told."""

    def __init__(self, setting: Setting, kind: str, node: str, parameters: Parameters) -> None:
        self.kind = kind
        self.targets = (node,)
        self._how = HOW[kind]
        self._column = self._how.count(parameters)
        self.witness = Witness(
            probe=f"{self._column.replace('_', ' ')}: before, while on, after",
            only_there=0 if self._how.keeps else None,
        )
        self._setting = setting
        self._node = node
        self._parameters = parameters
        self._control: Control | None = None

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "unshim", "node": self._node}

    async def probe_before(self) -> None:
        """Read the count. Errors: ClusterFailed where no library is in the process, and why.

        And where another fault has given a command like it: the end of one would be that of both.
        Or has ended a broker that is to end by this one: to lift this would start it.
        """
        self._control = machine_of(self._setting, self.kind).shim(self._node)
        self.witness.before = float(self._control.count(self._column))
        commands = self._how.commands(self._parameters)
        others = [name for name in commands if self._control.commanded(name)]
        if self._how.ends and self._setting.cluster.state(self._node) == "gone":
            raise ClusterFailed(f"{self._node} is not running")
        if others:
            raise ClusterFailed(f"{self._node}: another fault that is on has {', '.join(others)}")

    async def apply(self) -> None:
        """Give the command."""
        assert self._control is not None
        if self._how.ends:
            machine_of(self._setting, self.kind).expect_exit(self._node)
        self._control.command(**self._how.commands(self._parameters))

    async def probe_during(self) -> None:
        """Wait until the library has counted something."""

        async def seen() -> bool:
            return self._grown() > 0

        await until(seen, SEEN_TIMEOUT_S)

    async def undo(self) -> None:
        """See what was counted; lift the command; start the broker if it ended by it.

        Commands of other faults stay.
        """
        assert self._control is not None
        self.witness.during = self._grown()
        self.witness.effective = self.witness.during > 0
        self._control.command(**dict.fromkeys(self._how.commands(self._parameters), 0))
        if self._how.ends:
            await self._setting.cluster.restart(self._node)

    async def probe_after(self) -> None:
        """Wait until the broker answers; nothing may be counted any more."""
        cluster = self._setting.cluster

        async def answers() -> bool:
            if self._how.ends:  # it may have been about to end as the command was lifted
                await cluster.restart(self._node)
            return (await self._setting.probe.ask(self._node)).ok

        back = await until(answers, BACK_TIMEOUT_S)
        lifted = self._grown()
        await asyncio.sleep(STILL_S)
        self.witness.after = self._grown() - lifted
        still = self.witness.after == 0
        self.witness.effective = self.witness.effective and back and still
        if self._how.ends and back and cluster.state(self._node) != "gone":
            # Who ends from now on ends of something else.
            machine_of(self._setting, self.kind).expect_exit(self._node, may_end=False)

    def _grown(self) -> float:
        assert self._control is not None
        return self._control.count(self._column) - (self.witness.before or 0.0)


def shimmed(kind: str) -> Callable[..., Shimmed]:
    """Return what makes a fault of a kind."""

    def make(setting: Setting, node: str, **parameters: float | str) -> Shimmed:
        return Shimmed(setting, kind, node, parameters)

    return make
