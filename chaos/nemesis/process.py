"""Faults of processes: kill (SIGKILL, later restarted) and pause (SIGSTOP, later SIGCONT).

Witness of a kill: the node answered before, the process is gone, its port answers nothing, the
poller heard nothing of it until it was started again, and then another boot id answers. Witness of
a pause: the node answered before, the kernel says stopped at both ends, status questions time out
and the poller heard nothing in between, and afterwards the same boot answers. What was done proves
nothing; only what was seen does. Numbers of a witness: 1 answers, 0 does not.

Source: spec/proof.md P1, P3, P4.
"""

from collections.abc import Mapping
from typing import Any

from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.wait import until

RESTART_TIMEOUT_S = 30.0
STATE_TIMEOUT_S = 3.0
UNDER_WAY_NS = 500_000_000
"""An answer may have been on its way when the node was hit: questions time out after 0.4 s."""


def was_heard(setting: Setting, node: str, since_ns: int) -> bool:
    """Tell whether the poller got an answer of the node that it sent after ``since_ns``."""
    last = setting.probe.last_seen.get(node)
    return last is not None and last.t_ns > since_ns + UNDER_WAY_NS


class Kill:
    """SIGKILL; undone by a restart. Keeps the page cache: it tests recovery, not fsync."""

    kind = "kill"

    def __init__(self, setting: Setting, node: str) -> None:
        self.targets = (node,)
        self.witness = Witness(probe="status answered; another boot id after the restart")
        self._setting = setting
        self._node = node
        self._boot_before = ""
        self._killed_ns = 0

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "restart", "node": self._node}

    async def probe_before(self) -> None:
        """Note which boot answers."""
        before = await self._setting.probe.ask(self._node)
        self.witness.before = float(before.ok)
        self._boot_before = before.boot_id

    async def apply(self) -> None:
        """Kill and wait until the process is gone."""
        await self.hit()
        self._killed_ns = self._setting.clock.monotonic_ns()

    async def hit(self) -> None:
        """End the process."""
        await self._setting.cluster.kill(self._node)

    async def probe_during(self) -> None:
        """See that there is no process and no answer."""
        during = await self._setting.probe.ask(self._node)
        gone = self._setting.cluster.state(self._node) == "gone"
        self.witness.during = float(during.ok)
        was_there = bool(self.witness.before) and self._boot_before != ""
        self.witness.effective = was_there and gone and not during.ok

    async def undo(self) -> None:
        """See that it was silent until now, and start it again."""
        heard = was_heard(self._setting, self._node, self._killed_ns)
        self.witness.effective = self.witness.effective and not heard
        await self._setting.cluster.restart(self._node)

    async def probe_after(self) -> None:
        """Wait for the first answer of the new boot."""

        async def answers() -> bool:
            status = await self._setting.probe.ask(self._node)
            self.witness.after = float(status.ok)
            return status.ok and status.boot_id != self._boot_before

        back = await until(answers, RESTART_TIMEOUT_S)
        self.witness.effective = self.witness.effective and back


class Pause:
    """SIGSTOP; undone by SIGCONT. To its peers a paused node is one that says nothing."""

    kind = "pause"

    def __init__(self, setting: Setting, node: str) -> None:
        self.targets = (node,)
        self.witness = Witness(probe="status answered; process state; the same boot afterwards")
        self._setting = setting
        self._node = node
        self._boot_before = ""
        self._paused_ns = 0

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "resume", "node": self._node}

    async def probe_before(self) -> None:
        """See that it answers, and which boot does."""
        before = await self._setting.probe.ask(self._node)
        self.witness.before = float(before.ok)
        self._boot_before = before.boot_id

    async def apply(self) -> None:
        """Freeze it."""
        await self._setting.cluster.pause(self._node)
        self._paused_ns = self._setting.clock.monotonic_ns()

    async def probe_during(self) -> None:
        """See that the kernel says stopped and that a question goes unanswered."""

        async def stopped() -> bool:
            return self._setting.cluster.state(self._node) == "stopped"

        frozen = await until(stopped, STATE_TIMEOUT_S)
        during = await self._setting.probe.ask(self._node)
        self.witness.during = float(during.ok)
        self.witness.effective = frozen and bool(self.witness.before) and not during.ok

    async def undo(self) -> None:
        """Let it go on; it must have been frozen until now."""
        still = self._setting.cluster.state(self._node) == "stopped"
        heard = was_heard(self._setting, self._node, self._paused_ns)
        self.witness.effective = self.witness.effective and still and not heard
        await self._setting.cluster.resume(self._node)

    async def probe_after(self) -> None:
        """Wait for the first answer of the same boot."""

        async def answers() -> bool:
            status = await self._setting.probe.ask(self._node)
            self.witness.after = float(status.ok)
            return status.ok and status.boot_id == self._boot_before

        back = await until(answers, STATE_TIMEOUT_S)
        self.witness.effective = self.witness.effective and back
