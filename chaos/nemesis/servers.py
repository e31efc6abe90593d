"""Faults of name servers and the controllers in them: some are killed or frozen.

Witness: those concerned answered before, none does while it is on, and all do afterwards; numbers:
how many of them answer. A name server without a controller is asked who is in the cluster (106):
it counts as back once it tells of a broker, if it did before: one that knows none is of no use.

Source: spec/proof.md P1, P3; docs/replication.md (automatic switch).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from chaos.backends.base import ClusterFailed, Overseen, Served
from chaos.decisions import leading_controller
from chaos.nemesis.base import Setting, Witness
from chaos.nemesis.wait import until
from chaos.net.wire import StatusConnection

CLUSTER, METADATA = 106, 1005
ASK_S = 0.6
BACK_S = 20.0
KNOWS_S = 45.0
"""A broker tells a name server of itself every 30 s at the latest."""
_CONTROLLERS: Final = ("controller_kill", "controller_pause")


def served(setting: Setting, kind: str) -> Served:
    """Return the cluster with name servers that can be hit. Errors: ClusterFailed for another."""
    cluster = setting.cluster
    if not isinstance(cluster, Served):
        raise ClusterFailed(f"{kind}: the name servers of this cluster are no processes of ours")
    return cluster


def overseen(setting: Setting, kind: str) -> Overseen:
    """Return the cluster whose masters controllers choose. Errors: ClusterFailed for another."""
    cluster = setting.cluster
    if not isinstance(cluster, Overseen):
        raise ClusterFailed(f"{kind}: no controllers choose the masters of this cluster")
    return cluster


class ServerFault:
    """``count`` name servers are killed or frozen."""

    answering = "name servers that answer"

    def __init__(self, setting: Setting, kind: str, count: int) -> None:
        self.kind = kind
        self._cluster = served(setting, kind)
        self.targets: tuple[str, ...] = ()
        self.witness = Witness(probe=f"{self.answering}: before, meanwhile, afterwards")
        self._count = count
        self._known: dict[str, int] = {}

    def undo_entry(self) -> Mapping[str, Any]:
        """Return the journal entry: all are lifted, whichever it was."""
        return {"do": "name_servers", "nodes": list(self._cluster.name_servers)}

    async def probe_before(self) -> None:
        """Choose them, and see that they answer."""
        self.targets = (await self.choose())[: self._count]
        for name in self.targets:
            known = await self.ask(name)
            if known is not None:
                self._known[name] = known
        self.witness.before = float(len(self._known))

    async def choose(self) -> tuple[str, ...]:
        """Return all, whom to hit first at the head."""
        return tuple(self._cluster.name_servers)

    async def apply(self) -> None:
        """Kill or freeze them."""
        for name in map(self.server_of, self.targets):
            if self.kind.endswith("kill"):
                await self._cluster.kill_name_server(name)
            else:
                await self._cluster.pause_name_server(name)

    async def probe_during(self) -> None:
        """See that none answers."""
        self.witness.during = float(len(await self._answers()))
        answered = self.witness.before == len(self.targets)
        self.witness.effective = answered and not self.witness.during

    async def undo(self) -> None:
        """See that they were silent until now, and let them come back."""
        silent = not await self._answers()
        self.witness.effective = self.witness.effective and silent
        await lift_servers(self._cluster, tuple(map(self.server_of, self.targets)))

    async def probe_after(self) -> None:
        """Wait until all answer again, and know what they knew."""
        back = await until(self._are_back, KNOWS_S if self.knows_brokers else BACK_S)
        self.witness.effective = self.witness.effective and back

    async def _are_back(self) -> bool:
        answers = await self._answers()
        self.witness.after = float(len(answers))
        return all(
            name in answers and (answers[name] or not self._known.get(name))
            for name in self.targets
        )

    @property
    def knows_brokers(self) -> bool:
        """Whether an answer says how many brokers are known, which takes a while after a start."""
        return any(self._known.values())

    def server_of(self, name: str) -> str:
        """Return the name server that a target is."""
        return name

    async def ask(self, name: str) -> int | None:
        """Return how many brokers a server knows; None if it does not answer."""
        told = await _ask(self._cluster.name_servers[name], CLUSTER)
        if told is None:
            return None
        table = told.get("brokerAddrTable") or {}
        return sum(len(broker.get("brokerAddrs", {})) for broker in table.values())

    async def _answers(self) -> dict[str, int]:
        told = {name: await self.ask(name) for name in self.targets}
        return {name: known for name, known in told.items() if known is not None}


class ControllerFault(ServerFault):
    """The same of name servers with controllers, the one that leads first."""

    answering = "controllers that answer"

    def __init__(self, setting: Setting, kind: str, count: int) -> None:
        self._overseen = overseen(setting, kind)
        super().__init__(setting, kind, count)

    async def choose(self) -> tuple[str, ...]:
        """Return all, the one that leads at the head."""
        return await leading_first(self._overseen)

    def server_of(self, name: str) -> str:
        """Return the name server that a controller is part of."""
        return self._overseen.server_of(name)

    async def ask(self, name: str) -> int | None:
        """Return 0 if a controller answers: it says nothing of brokers; None if it does not."""
        return None if await _ask(self._overseen.controllers[name], METADATA) is None else 0


async def leading_first(cluster: Overseen) -> tuple[str, ...]:
    """Return all controllers, the one that leads at the head."""
    first = await leading_controller(cluster)
    return tuple(sorted(cluster.controllers, key=lambda name: name != first))


async def _ask(address: tuple[str, int], code: int) -> Mapping[str, Any] | None:
    connection = StatusConnection(*address)
    try:
        return await connection.ask(code, ASK_S)
    except (OSError, TimeoutError, EOFError, ValueError):
        return None
    finally:
        connection.close()


async def lift_servers(cluster: Served, names: tuple[str, ...]) -> None:
    """Have name servers run: idempotent."""
    for name in names:
        await cluster.resume_name_server(name)
        await cluster.start_name_server(name)


def of_servers(kind: str) -> Callable[..., ServerFault]:
    """Return what makes a fault of a kind."""
    made = ControllerFault if kind in _CONTROLLERS else ServerFault

    def make(setting: Setting, *, count: float) -> ServerFault:
        return made(setting, kind, int(count))

    return make
