"""Faults of controllers: name servers that are killed or frozen, brokers that reach none of them.

Witness: those concerned answered before, none does while it is on, and all do afterwards; numbers:
how many of them answer. That brokers are cut off is seen as a cut of links is.

Source: spec/proof.md P1, P3, N1; docs/replication.md (automatic switch).
"""

from collections.abc import Callable, Mapping
from typing import Any

from chaos.backends.base import ClusterFailed, Overseen, controller_link_names
from chaos.decisions import leading_controller
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.partition import Cut
from chaos.nemesis.wait import until
from chaos.net.wire import StatusConnection

METADATA = 1005
ASK_S = 0.6
BACK_S = 20.0


def overseen(setting: Setting, kind: str) -> Overseen:
    """Return the cluster whose masters controllers choose. Errors: ClusterFailed for another."""
    cluster = setting.cluster
    if not isinstance(cluster, Overseen):
        raise ClusterFailed(f"{kind}: no controllers choose the masters of this cluster")
    return cluster


class ControllerFault:
    """``count`` name servers with controllers are killed or frozen, the one that leads first."""

    def __init__(self, setting: Setting, kind: str, count: int) -> None:
        self.kind = kind
        self._cluster = overseen(setting, kind)
        self.targets: tuple[str, ...] = ()
        self.witness = Witness(probe="controllers that answer: before, meanwhile, afterwards")
        self._count = count

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: all are lifted, whichever it was."""
        return {"do": "controllers", "nodes": list(self._cluster.controllers)}

    async def probe_before(self) -> None:
        """Choose them, the one that leads first, and see that they answer."""
        names = list(self._cluster.controllers)
        first = await leading_controller(self._cluster)
        names.sort(key=lambda name: name != first)
        self.targets = tuple(names[: self._count])
        self.witness.before = float(await self._answering())

    async def apply(self) -> None:
        """Kill or freeze them."""
        for name in self.targets:
            if self.kind == "controller_kill":
                await self._cluster.kill_controller(name)
            else:
                await self._cluster.pause_controller(name)

    async def probe_during(self) -> None:
        """See that none answers."""
        self.witness.during = float(await self._answering())
        answered = self.witness.before == len(self.targets)
        self.witness.effective = answered and not self.witness.during

    async def undo(self) -> None:
        """See that they were silent until now, and let them come back."""
        silent = not await self._answering()
        self.witness.effective = self.witness.effective and silent
        await lift_controllers(self._cluster, self.targets)

    async def probe_after(self) -> None:
        """Wait until all answer again."""

        async def are_back() -> bool:
            self.witness.after = float(await self._answering())
            return self.witness.after == len(self.targets)

        back = await until(are_back, BACK_S)
        self.witness.effective = self.witness.effective and back

    async def _answering(self) -> int:
        count = 0
        for name in self.targets:
            connection = StatusConnection(*self._cluster.controllers[name])
            try:
                await connection.ask_all(METADATA, ASK_S)
                count += 1
            except (OSError, TimeoutError, EOFError, ValueError):
                pass  # that is the answer
            finally:
                connection.close()
        return count


async def lift_controllers(cluster: Overseen, names: tuple[str, ...]) -> None:
    """Have controllers run: idempotent."""
    for name in names:
        await cluster.resume_controller(name)
        await cluster.start_controller(name)


def of_controllers(kind: str) -> Callable[..., ControllerFault]:
    """Return what makes a fault of a kind."""

    def make(setting: Setting, *, count: float) -> ControllerFault:
        return ControllerFault(setting, kind, int(count))

    return make


def cut_controllers(setting: Setting, *nodes: str) -> Cut:
    """Return the fault by which brokers reach no controller, but clients and each other."""
    names = list(overseen(setting, "controller_cut").controllers)
    return Cut(setting, "controller_cut", nodes, controller_link_names(nodes, names))
