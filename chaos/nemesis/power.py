"""Loss of power: brokers are killed, and what no sync had reached is taken from their files.

For a while before, the library in the process notes what is written until it is synced
(`chaos.shim.unsynced`); what was written earlier counts as synced. Where syncs lie (`lie`), nothing
that was written since counts. ``slow_ms`` has syncs take longer meanwhile, so that more waits for
them.

Witness: that of a kill, of each broker, and bytes that differ. Numbers: bytes of the logs before;
bytes that differ, or are gone; bytes of the logs after the restart. A run in which nothing was
waiting for a sync lost nothing, and does not count.

Source: spec/proof.md D1, D2, D4.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from chaos.backends.base import ClusterFailed
from chaos.nemesis.alone import count_alone
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.disk import log_bytes
from chaos.nemesis.process import Kill
from chaos.nemesis.restarts import machine_of
from chaos.nemesis.wait import every, in_thread
from chaos.shim.unsynced import Loss, lose_power

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.shim.control import Control


class PowerLoss:
    """Brokers lose their power at once; undone by a restart of all."""

    def __init__(
        self, setting: Setting, kind: str, nodes: tuple[str, ...], parameters: Mapping[str, Any]
    ) -> None:
        self.kind = kind
        self.targets = nodes
        self.witness = Witness(
            probe="bytes of the logs before; that differ; of the logs after the restart"
        )
        self._setting = setting
        self._parameters = parameters
        self._kills = [Kill(setting, node) for node in nodes]
        self._controls: dict[str, Control] = {}
        self._roots: dict[str, Path] = {}

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: what is lost stays lost."""
        return {"do": "restart", "nodes": list(self.targets)}

    async def probe_before(self) -> None:
        """Note which boots answer. Errors: ClusterFailed where no library is in a process."""
        machine = machine_of(self._setting, self.kind)
        self._controls = {node: machine.shim(node) for node in self.targets}
        self._roots = {node: machine.directory(node) for node in self.targets}
        await asyncio.gather(*(kill.probe_before() for kill in self._kills))

    async def apply(self) -> None:
        """Note what is written for a while, kill all, and take away what no sync had reached."""
        try:
            await self._apply()
        finally:
            for control in self._controls.values():
                control.end_notes()

    async def _apply(self) -> None:
        slow_us = int(float(self._parameters["slow_ms"]) * 1000)
        for control in self._controls.values():
            control.begin_notes()
            if slow_us:
                control.command(sync_us=slow_us)
        await asyncio.sleep(float(self._parameters["noted_ms"]) / 1000)
        await every(kill.apply() for kill in self._kills)
        if len(self.targets) == 1:
            self.witness.only_there = await count_alone(self._setting.cluster, self.targets[0])
        self.witness.before = float(sum(map(log_bytes, self._roots.values())))
        lost = [await in_thread(self._lose, node) for node in self.targets]
        self.witness.during = float(sum(lost))

    def _lose(self, node: str) -> int:
        control = self._controls[node]
        stream = self._setting.stream.split(f"power/{node}")
        if control.count("notes_lost"):
            raise ClusterFailed(f"{node}: not all that was written could be noted")
        if not control.is_noting:  # syncs that nobody noted may have reached it since
            raise ClusterFailed(f"{node}: noting ended before it lost its power")
        end = control.count("notes_end")
        loss = Loss(self._parameters["what"])
        differ = lose_power(self._roots[node], control.journal, end, loss, stream)
        control.journal.unlink(missing_ok=True)  # the process that wrote it is gone
        return differ

    async def probe_during(self) -> None:
        """See that they are gone; the files say how many bytes differ."""
        await asyncio.gather(*(kill.probe_during() for kill in self._kills))

    async def undo(self) -> None:
        """Start them again."""
        await every(kill.undo() for kill in self._kills)

    async def probe_after(self) -> None:
        """Wait for the first answers of the new boots."""
        await asyncio.gather(*(kill.probe_after() for kill in self._kills))
        self.witness.after = float(sum(map(log_bytes, self._roots.values())))
        were_hit = all(kill.witness.effective for kill in self._kills)
        self.witness.effective = were_hit and bool(self.witness.during)


def loses_power(kind: str) -> Callable[..., PowerLoss]:
    """Return what makes a fault of a kind."""

    def make(setting: Setting, *nodes: str, **parameters: float | str) -> PowerLoss:
        return PowerLoss(setting, kind, nodes, parameters)

    return make
