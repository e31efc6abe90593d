"""A client that is killed amid its work: a producer, or a consumer of the main group.

Witness: its process ran before, is gone while the fault is on, and another one has taken its place
at the end. Numbers: clients of its role that run, before, during and after. What it had received or
had in flight is for the checkers to judge: the record has its end.

Source: spec/proof.md P7.
"""

from collections.abc import Mapping
from typing import Any

from chaos.backends.base import ClusterFailed
from chaos.nemesis.base import Setting, Witness


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
