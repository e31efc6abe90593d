"""Faults by which a broker has too little: of the processor, or of descriptors.

Witness of `starve`: status questions, each at another moment of the period, take longer than
before: by half of what somebody who comes at any moment waits on average, and gives up in time, at
least. Numbers: the mean of some questions in ms, before, during and after.

Witness of `descriptors`: no new connection is served while the limit holds, one is again
afterwards, and it is the same process. Numbers: the limit before, files open while it held, the
limit after.

Source: spec/proof.md P6.
"""

import asyncio
import contextlib
import resource
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from chaos.backends.base import ClusterFailed
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.restarts import machine_of
from chaos.nemesis.wait import until
from chaos.probe import TIMEOUT_S

QUESTIONS = 13
GOLDEN = 0.618
"""Of a period from one question to the next, so that they meet all its moments alike."""
BACK_TIMEOUT_S = 5.0
CLOSED_S = 0.2


class Starve:
    """Stopped for a share of each period, so that it gets only what is left of a processor."""

    kind = "starve"

    def __init__(self, setting: Setting, node: str, *, share: float, period_ms: float) -> None:
        self.targets = (node,)
        self.witness = Witness(probe="ms that a status question took: before, during, after")
        self._setting = setting
        self._node = node
        self._period_s = period_ms / 1000
        self._still_s = share * period_ms / 1000
        longest_s = min(self._still_s, TIMEOUT_S)  # then a question is given up
        self._waits_s = share * (longest_s - longest_s**2 / (2 * self._still_s))
        self._runs_s = (1 - share) * period_ms / 1000
        self._cycle: asyncio.Task[None] | None = None

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "resume", "node": self._node}

    async def probe_before(self) -> None:
        """See how long questions take."""
        self.witness.before = await self._ask_ms()

    async def apply(self) -> None:
        """Begin to stop it and let it go on in turn."""
        self._cycle = asyncio.create_task(self._go_round())

    async def probe_during(self) -> None:
        """See how long questions take now."""
        self.witness.during = await self._ask_ms()
        longer = self.witness.during - (self.witness.before or 0.0)
        self.witness.effective = longer >= self._waits_s * 1000 / 2

    async def undo(self) -> None:
        """Let it go on for good; it must have been at it until now."""
        assert self._cycle is not None
        if self._cycle.done():
            self.witness.effective = False
        self._cycle.cancel()
        with contextlib.suppress(asyncio.CancelledError, ClusterFailed):  # it may have died amid it
            await self._cycle
        await self._setting.cluster.resume(self._node)

    async def probe_after(self) -> None:
        """See how long questions take afterwards."""
        self.witness.after = await self._ask_ms()

    async def _go_round(self) -> None:
        cluster = self._setting.cluster
        while cluster.state(self._node) != "gone":
            await cluster.pause(self._node)
            await asyncio.sleep(self._still_s)
            await cluster.resume(self._node)
            await asyncio.sleep(self._runs_s)

    async def _ask_ms(self) -> float:
        took = []
        now = self._setting.clock.monotonic_ns
        for _ in range(QUESTIONS):
            begun = now()
            await self._setting.probe.ask(self._node)
            took.append((now() - begun) / 1e6)
            await asyncio.sleep(GOLDEN * self._period_s)
        return fmean(took)


class Descriptors:
    """No more files and connections than it has open."""

    kind = "descriptors"

    def __init__(self, setting: Setting, node: str, *, spare: float) -> None:
        self.targets = (node,)
        self.witness = Witness(probe="files: the limit before, open while it held, the limit after")
        self._setting = setting
        self._node = node
        self._spare = int(spare)
        self._limits = (0, 0)
        self._boot = ""

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "unlimit", "node": self._node}

    async def probe_before(self) -> None:
        """Note the limits. Errors: ClusterFailed where its process is not at hand."""
        pid = machine_of(self._setting, self.kind).pid(self._node)
        self._limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        self.witness.before = float(self._limits[0])
        self._boot = (await self._setting.probe.ask(self._node)).boot_id

    async def apply(self) -> None:
        """Set the limit to what is open."""
        self._lower(machine_of(self._setting, self.kind).pid(self._node))

    def _lower(self, pid: int) -> None:
        now, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        low = (min(now, open_files(pid) + self._spare), hard)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, low)

    async def probe_during(self) -> None:
        """See that new connections are not served.

        What is closed meanwhile makes room for one, so the limit follows until none is.
        """
        pid = machine_of(self._setting, self.kind).pid(self._node)
        self.witness.during = float(open_files(pid))

        async def is_refused() -> bool:
            if not (await self._setting.probe.ask(self._node)).ok:
                return True
            await asyncio.sleep(CLOSED_S)  # the broker closes the connection of that question
            self._lower(pid)
            return False

        refused = await until(is_refused, BACK_TIMEOUT_S) if self._boot else False
        self.witness.effective = refused

    async def undo(self) -> None:
        """Set the limit that was; with a process that is gone it has gone, too.

        Another fault like it may have been on, and lifted its own since: none is set again.
        """
        if self._setting.cluster.state(self._node) == "gone":
            self.witness.effective = False
            return
        pid = machine_of(self._setting, self.kind).pid(self._node)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(soft, self._limits[0]), hard))

    async def probe_after(self) -> None:
        """See that a connection is served again, by the same boot."""
        if self._setting.cluster.state(self._node) == "gone":
            return
        pid = machine_of(self._setting, self.kind).pid(self._node)
        self.witness.after = float(resource.prlimit(pid, resource.RLIMIT_NOFILE)[0])

        async def answers() -> bool:
            status = await self._setting.probe.ask(self._node)
            return status.ok and status.boot_id == self._boot

        back = await until(answers, BACK_TIMEOUT_S)
        self.witness.effective = self.witness.effective and back


def open_files(pid: int) -> int:
    """Return one more than the highest descriptor that a process has open: what a limit counts."""
    return 1 + max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())


def lift_limit(pid: int) -> None:
    """Let a process open as many files as its hard limit allows; one that is gone is left alone."""
    with contextlib.suppress(ProcessLookupError):
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
