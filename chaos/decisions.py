"""What the controllers say: who is master of which epoch, and who is in sync.

Asked of each controller; the one that leads answers. What they said is the witness of a switch: the
rows of the table ``masters``, which the checkers lay beside what brokers say of themselves.

Source: docs/replication.md (automatic switch); RocketMQ 5 GetReplicaInfoResponseHeader.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from chaos.backends.base import Overseen
from chaos.net.wire import StatusConnection
from chaos.probe import stop_all
from chaos.record import Recorder
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock

GET_REPLICA_INFO: Final = 1004
INTERVAL_S: Final = 0.25
ASK_S: Final = 1.0
ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a controller that leads says of a group."""

    epoch: int
    master: str | None
    """The node that is master, None if there is none."""
    in_sync: tuple[int, ...]
    """Ids of the replicas in sync."""
    set_epoch: int
    """How often the set has changed."""


async def ask_controller(cluster: Overseen, connection: StatusConnection) -> Decision | None:
    """Return what one controller says, None if it does not lead or does not answer."""
    try:
        about = {"brokerName": cluster.group}
        fields, body = await connection.ask_all(GET_REPLICA_INFO, ASK_S, about)
        return _decision(cluster, fields, body)
    except (OSError, TimeoutError, EOFError, ValueError, KeyError):
        return None


def _decision(cluster: Overseen, fields: Mapping[str, str], body: Mapping[str, Any]) -> Decision:
    address = fields.get("masterAddress", "") if int(fields["masterBrokerId"]) else ""
    return Decision(
        epoch=int(fields["masterEpoch"]),
        master=(cluster.node_at(address) or address) if address else None,
        in_sync=tuple(sorted(map(int, body["syncStateSet"]))),
        set_epoch=int(fields["syncStateSetEpoch"]),
    )


async def leading_controller(cluster: Overseen) -> str | None:
    """Return which controller leads, None if none says so."""
    for name, address in cluster.controllers.items():
        if await _ask_once(cluster, address) is not None:
            return name
    return None


async def _ask_once(cluster: Overseen, address: tuple[str, int]) -> Decision | None:
    connection = StatusConnection(*address)
    try:
        return await ask_controller(cluster, connection)
    finally:
        connection.close()


async def in_sync_nodes(cluster: Overseen) -> set[str]:
    """Return which nodes the in-sync set names; none of them if no controller tells in time."""
    try:
        async with timeout(ANSWER_S):
            while True:
                for address in cluster.controllers.values():
                    decision = await _ask_once(cluster, address)
                    if decision is not None:
                        return {node for one in decision.in_sync if (node := cluster.node_of(one))}
                await asyncio.sleep(INTERVAL_S)
    except TimeoutError:
        return set()


class DecisionProbe:
    """Asks all controllers a few times a second, and writes down what they say."""

    def __init__(self, cluster: Overseen, recorder: Recorder, clock: Clock) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to ask, one task per controller so that a silent one delays no other."""
        names = self._cluster.controllers
        self._tasks = [asyncio.create_task(self._poll(name)) for name in names]

    async def stop(self) -> list[str]:
        """Stop asking; return a line for each controller that was not asked to the end."""
        return await stop_all(self._tasks)

    async def _poll(self, name: str) -> None:
        connection = StatusConnection(*self._cluster.controllers[name])
        try:
            while True:
                t0 = self._clock.monotonic_ns()
                decision = await ask_controller(self._cluster, connection)
                if decision is not None:
                    self._recorder.write("masters", self._row(name, t0, decision))
                await asyncio.sleep(INTERVAL_S)
        finally:
            connection.close()

    def _row(self, name: str, t0: int, decision: Decision) -> dict[str, Any]:
        return {
            "controller": name,
            "t0": t0,
            "t1": self._clock.monotonic_ns(),
            "grp": self._cluster.group,
            "epoch": decision.epoch,
            "node": decision.master,
            "set_epoch": decision.set_epoch,
            "in_sync": list(decision.in_sync),
        }
