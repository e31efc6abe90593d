"""Faults by which brokers end and come again: one asked to, one by one, all at once, in a loop.

Witness: as that of a kill, of each broker concerned: it answered before, its process was gone and
its port silent, nobody heard of it until it was started again, and then another boot answers. A
fault of several brokers counts only if it took effect on each of them. Numbers of a witness: how
many answered before, how many while it was on, how many in a new boot afterwards.

Source: spec/proof.md P1, P2.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.backends.base import ClusterFailed, Machine
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.process import Kill
from chaos.nemesis.wait import every, until

HEALTHY_TIMEOUT_S = 20.0
PROBE = "brokers that answered: before, while it was on, in another boot"


def machine_of(setting: Setting, kind: str) -> Machine:
    """Return the machine that the brokers run on. Errors: ClusterFailed where it is not at hand."""
    cluster = setting.cluster
    if not isinstance(cluster, Machine):
        raise ClusterFailed(f"{kind}: processes and files of {cluster.backend} are not at hand")
    return cluster


class Stop(Kill):
    """Asked to end by SIGTERM; undone by a restart."""

    kind = "stop"

    async def hit(self) -> None:
        """Ask it to end and wait until it has."""
        await self._setting.cluster.terminate(self._node)


class _Several:
    """What faults of several brokers have in common; ``_each`` has one fault for each of them."""

    kind = ""

    def __init__(self, setting: Setting, nodes: Sequence[str]) -> None:
        self.targets = tuple(nodes)
        self.witness = Witness(probe=PROBE)
        self._setting = setting
        self._each: list[Kill] = []

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry."""
        return {"do": "restart", "nodes": list(self.targets)}

    def _sum_up(self) -> None:
        seen = [one.witness for one in self._each]
        self.witness.before = sum(one.before or 0.0 for one in seen)
        self.witness.during = sum(one.during or 0.0 for one in seen)
        self.witness.after = sum(one.after or 0.0 for one in seen)
        self.witness.effective = len(seen) > 0 and all(one.effective for one in seen)


class RestartAll(_Several):
    """Brokers are killed at once; undone by a restart of all."""

    kind = "restart_all"

    def __init__(self, setting: Setting, *nodes: str) -> None:
        super().__init__(setting, nodes)
        self._each = [Kill(setting, node) for node in nodes]

    async def probe_before(self) -> None:
        """Note which boots answer."""
        await asyncio.gather(*(one.probe_before() for one in self._each))

    async def apply(self) -> None:
        """Kill all, and wait until they are gone."""
        await every(one.apply() for one in self._each)

    async def probe_during(self) -> None:
        """See that there is no process and no answer."""
        await asyncio.gather(*(one.probe_during() for one in self._each))
        self._sum_up()

    async def undo(self) -> None:
        """Start them again."""
        await every(one.undo() for one in self._each)

    async def probe_after(self) -> None:
        """Wait for the first answers of the new boots."""
        await asyncio.gather(*(one.probe_after() for one in self._each))
        self._sum_up()


class Rolling(_Several):
    """One broker after the other is asked to end and started again, each once all are healthy."""

    kind = "rolling"

    def __init__(self, setting: Setting, *nodes: str, down_ms: float) -> None:
        super().__init__(setting, nodes)
        self._down_s = down_ms / 1000

    async def probe_before(self) -> None:
        """Nothing to do: each is looked at when its turn comes."""

    async def apply(self) -> None:
        """Go round. Errors: ClusterFailed if the group is not healthy again between two."""
        for node in self.targets:
            one = Stop(self._setting, node)
            self._each.append(one)
            await one.probe_before()
            await one.apply()
            await one.probe_during()
            await asyncio.sleep(self._down_s)
            await one.undo()
            await one.probe_after()
            if not await until(self._is_healthy, HEALTHY_TIMEOUT_S):
                late = f"{HEALTHY_TIMEOUT_S:.0f} s"
                raise ClusterFailed(f"not all were healthy within {late} after {node} began again")

    async def probe_during(self) -> None:
        """See that each went and came."""
        self._sum_up()
        went_round = len(self._each) == len(self.targets)
        self.witness.effective = self.witness.effective and went_round

    async def undo(self) -> None:
        """Start whatever is down; nothing should be."""
        for node in self.targets:
            await self._setting.cluster.restart(node)

    async def probe_after(self) -> None:
        """Nothing to do: each was seen in its new boot."""

    async def _is_healthy(self) -> bool:
        return self._setting.probe.healthy()


class CrashLoop(_Several):
    """A broker is killed, started, and killed again before it has got far; it runs in the end.

    Counts only if each kill met a process that ran, and the last boot is another than the first.
    """

    kind = "crash_loop"

    def __init__(self, setting: Setting, node: str, *, times: float, up_ms: float) -> None:
        super().__init__(setting, [node])
        self._node = node
        self._times = int(times)
        self._up_s = up_ms / 1000
        self._ran = 0
        self._each = [Kill(setting, node)]

    async def probe_before(self) -> None:
        """Note which boot answers."""
        await self._each[0].probe_before()

    async def apply(self) -> None:
        """Kill and start; the last kill is left to `undo` to lift."""
        cluster = self._setting.cluster
        for _ in range(self._times - 1):
            self._ran += cluster.state(self._node) == "running"
            await cluster.kill(self._node)
            await cluster.restart(self._node)
            await asyncio.sleep(self._up_s)
        self._ran += cluster.state(self._node) == "running"
        await self._each[0].apply()

    async def probe_during(self) -> None:
        """See that it is gone."""
        await self._each[0].probe_during()
        self._sum_up()

    async def undo(self) -> None:
        """Start it for good."""
        await self._each[0].undo()

    async def probe_after(self) -> None:
        """Wait for the first answer of the last boot."""
        await self._each[0].probe_after()
        self._sum_up()
        self.witness.effective = self.witness.effective and self._ran == self._times
