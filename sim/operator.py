"""What is asked of a broker directly, in its own process: read indexes, and to drop old log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from broker.retention.compaction import NO_LIMIT
from dledger.core.model import Role
from dledger.errors import DLedgerError
from ledgermq.runtime.errors import FatalError
from sim.workload import AT_BROKERS, Kind, Op

if TYPE_CHECKING:
    from broker.controller import BrokerController
    from dledger.node import DLedgerNode
    from sim.world import World

NS_PER_MS: Final = 1_000_000


class Operator:
    """Does what the operations of a run want of brokers."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self) -> None:
        """Schedule all of it."""
        world = self._world
        for op in world.operations:
            if op.kind in AT_BROKERS:
                ask = self._ask_read_index if op.kind is Kind.READ_INDEX else self._ask_compact
                world.at(op.at_ms * NS_PER_MS, partial(ask, op))

    def _ask_read_index(self, op: Op) -> None:
        """Ask whoever believes to lead, and one more."""
        world = self._world
        names = world.brokers()
        chosen = names[op.choice % len(names)]
        for name in names:
            node = world.node(name)
            if node is not None and (name == chosen or node.role is Role.LEADER):
                world.run_on(name, self._read_index(name, node))

    async def _read_index(self, name: str, node: DLedgerNode) -> None:
        world = self._world
        before = world.watch.truth.commit_index
        try:
            index = await node.read_index()
        except DLedgerError:
            world.record.count("reads_refused")
            return
        world.clients_oracle.on_read_index(before, index, name)
        world.record.count("reads")

    def _ask_compact(self, op: Op) -> None:
        world = self._world
        names = world.brokers()
        name = names[op.choice % len(names)]
        if world.node(name) is not None:
            world.run_on(name, self._compact(world.controllers[name]))

    async def _compact(self, controller: BrokerController) -> None:
        world = self._world
        before = controller.node.first_index
        try:
            await controller.compactor.compact(NO_LIMIT)
        except FatalError as error:  # as the dispatcher of requests does
            world.loop.call_exception_handler({"message": str(error), "exception": error})
            return
        dropped = world.clients_oracle.dropped
        for queue in controller.store._queues.by_key.values():
            place = (queue.topic, queue.queue_id)
            dropped[place] = max(queue.min_offset, dropped.get(place, 0))
        world.record.count("compactions", int(controller.node.first_index > before))
