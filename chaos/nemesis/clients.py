"""Faults of clients: one is killed amid its work; consumers come and go, again and again.

Witness: its process ran before, is gone while the fault is on, and another one has taken its place
at the end. Numbers: clients of its role that run, before, during and after. What it had received or
had in flight is for the checkers to judge: the record has its end.

Of a storm: two newcomers at least came, got messages of queues that others had, and left; numbers:
consumers before, comings and goings, consumers afterwards.

Source: spec/proof.md P7, C3.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from chaos.backends.base import ClusterFailed
from chaos.nemesis.base import Setting, Witness

COMINGS = 2
"""So many newcomers make a storm."""


class ClientKill:
    """SIGKILL of a client; undone by another one in its place."""

    kind = "client_kill"

    def __init__(self, setting: Setting, *, role: str) -> None:
        """Choose one. Errors: ClusterFailed if none of that role runs."""
        if setting.clients is None:
            raise ClusterFailed("client_kill: this run has no clients")
        self._clients = setting.clients
        self._role = role
        name = self._clients.pick(role)
        if name is None:
            raise ClusterFailed(f"client_kill: no {role} runs that could be killed")
        self._name = name
        self.targets = (name,)
        self.witness = Witness(probe=f"{role}s that run: before, while one is gone, afterwards")

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: clients end with the harness, nothing is left to lift."""
        return {"do": "nothing"}

    async def probe_before(self) -> None:
        """Count who runs."""
        self.witness.before = float(len(self._clients.running(self._role)))

    async def apply(self) -> None:
        """Kill it and wait until it is gone."""
        await self._clients.crash(self._name)

    async def probe_during(self) -> None:
        """See that it is gone and the others are not."""
        running = self._clients.running(self._role)
        self.witness.during = float(len(running))
        fewer = self.witness.during == (self.witness.before or 0.0) - 1
        self.witness.effective = self._name not in running and fewer

    async def undo(self) -> None:
        """Start another one."""
        await self._clients.replace(self._name)

    async def probe_after(self) -> None:
        """See that there are as many as before."""
        self.witness.after = float(len(self._clients.running(self._role)))
        back = self.witness.after == self.witness.before
        self.witness.effective = self.witness.effective and back


class Storm:
    """One more consumer joins its group and leaves it, again and again: all rebalance."""

    kind = "rebalance_storm"

    def __init__(
        self, setting: Setting, *, stay_ms: float, away_ms: float, role: str = "consumer"
    ) -> None:
        """Storm a group. Errors: ClusterFailed if the run has none of that role."""
        if setting.clients is None:
            raise ClusterFailed("rebalance_storm: this run has no clients")
        if not setting.clients.running(role):
            raise ClusterFailed(f"rebalance_storm: no {role} runs beside which one could come")
        self.targets = ("consumers",)
        self.witness = Witness(probe="consumers before, comings and goings, consumers afterwards")
        self._clients = setting.clients
        self._role = role
        self._stay_s, self._away_s = stay_ms / 1000, away_ms / 1000
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._gone = 0
        self._delivered = 0

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: clients end with the harness, nothing is left to lift."""
        return {"do": "nothing"}

    async def probe_before(self) -> None:
        """Count who consumes."""
        self.witness.before = float(len(self._clients.running(self._role)))

    async def apply(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._come_and_go())

    async def probe_during(self) -> None:
        """Nothing to do: what happened is known when it ends."""

    async def undo(self) -> None:
        """Let the last newcomer leave."""
        self._over.set()
        if self._task is not None:
            await self._task
        self.witness.during = float(2 * self._gone)

    async def probe_after(self) -> None:
        """See that those who were there before are there still."""
        self.witness.after = float(len(self._clients.running(self._role)))
        same = self.witness.after == self.witness.before
        self.witness.effective = self._gone >= COMINGS and self._delivered > 0 and same

    async def _come_and_go(self) -> None:
        while not self._over.is_set():
            name = await self._clients.join(self._role)
            if name is None:
                return
            await self._wait(self._stay_s)
            self._delivered += await self._clients.leave(name)
            self._gone += 1
            await self._wait(self._away_s)

    async def _wait(self, seconds: float) -> None:
        await asyncio.wait([asyncio.ensure_future(self._over.wait())], timeout=seconds)
