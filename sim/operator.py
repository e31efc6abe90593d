"""What is asked of a broker directly, in its own process: read indexes, to drop old log.

In some plans also for the last message that it has, by its id: anybody can guess that.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from dledger.core.model import Role
from dledger.errors import DamagedEntry, DLedgerError
from sim.oracles.records import ENTRY_HEADER_BYTES
from sim.workload import AT_BROKERS, Kind, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.node import DLedgerNode
    from sim.kinds import Odd
    from sim.world import World

NS_PER_MS: Final = 1_000_000
TERM_WAITS_MS: Final = (0, 1, 5, 20, 100, 500)
"""How long after a leader is one the logs are dropped: before and after its first entry."""


class Operator:
    """Does what the operations of a run want of brokers."""

    def __init__(self, world: World) -> None:
        self._world = world

    def start(self) -> None:
        """Schedule all of it."""
        world = self._world
        world.on_leads = self._on_leads
        asks: dict[Kind | Odd, Callable[[Op], None]] = {
            Kind.READ_INDEX: self._ask_read_index,
            Kind.COMPACT: self._ask_compact,
            Kind.EXPIRE: self._ask_expire,
        }
        for op in world.operations:
            if op.kind in AT_BROKERS:
                world.at(op.at_ms * NS_PER_MS, partial(asks[op.kind], op))
        worn = world.plan.workload.worn
        if worn is not None and worn.by_id_ms:
            self._ask_by_id(worn.by_id_ms * NS_PER_MS)

    def _ask_by_id(self, period_ns: int) -> None:
        """Ask each broker for the last message that it has, again and again."""
        world = self._world
        for name in world.brokers():
            if world.node(name) is not None:
                world.run_on(name, self._read_by_id(name))
        next_ns = world.loop.now_ns + period_ns
        if next_ns < world.plan.options.safety_ms * NS_PER_MS:
            world.at(next_ns, partial(self._ask_by_id, period_ns))

    async def _read_by_id(self, name: str) -> None:
        world, replica = self._world, self._world.watch.replicas[name]
        last = replica.mark(replica.last_index)
        if last is None or world.node(name) is None:  # it may begin anew meanwhile
            return
        physical = last.position + ENTRY_HEADER_BYTES
        with contextlib.suppress(DamagedEntry):
            if world.controllers[name].store.reader.message_at(physical) is not None:
                world.clients_oracle.on_shown(name, replica.last_index)
                world.record.count("shown_by_id")

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
            index = await node.operations.read_index()
        except DLedgerError:
            world.record.count("reads_refused")
            return
        world.clients_oracle.on_read_index(before, index, name)
        world.record.count("reads")

    def _ask_compact(self, op: Op) -> None:
        names = self._world.brokers()
        self._world.compact(names[op.choice % len(names)])

    def _ask_expire(self, op: Op) -> None:
        names = (*self._world.brokers(), *self._world.alone())
        self._world.dropping.ask(names[op.choice % len(names)])

    def _on_leads(self, name: str, term: int) -> None:
        """Have logs dropped around the beginning of a term, by the leader and by others."""
        world = self._world
        stream = world.rng.split("terms").split(f"{term}-{name}")
        now_ns = world.loop.now_ns
        is_over = now_ns >= world.plan.options.safety_ms * NS_PER_MS
        if is_over or not stream.split("on").chance(world.plan.workload.term_compact_p):
            return
        for one in world.brokers():
            if one == name or stream.split(f"also {one}").chance(0.5):
                wait_ms = stream.split(f"wait {one}").choice(TERM_WAITS_MS)
                world.at(now_ns + wait_ms * NS_PER_MS, partial(world.compact, one))
        world.record.count("terms_compacted")
