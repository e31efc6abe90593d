"""The world of a run with a master and its slaves.

The operator of such a cluster does what docs/replication.md says: who lost the end of its log, or
its disk, while a slave has more than it, comes back as a slave with nothing, and the slave with
the most is made the master. In some plans he does not look, and the master goes on with what it
has left; whoever has more is then refused.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.controller import BrokerController
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sim.classic.layout import ClassicLayout
from sim.classic.plain_world import PlainWorld
from sim.context import CURRENT
from sim.layout import BROKER_PORT, NAMESRV_PORT, STORE
from sim.machines import NS_PER_MS
from sim.oracles.base import Violation
from sim.oracles.line_tables import LineTables
from sim.oracles.pair import Pair, Terms
from sim.oracles.pair_answers import PairEnd
from sim.oracles.pair_tables import PairTables
from sim.oracles.plain_saved import ends_copied
from sim.oracles.queue_files import QueueFiles
from sim.oracles.reporting import Reporting
from sim.oracles.restarting_plain import PlainRestarts
from sim.oracles.shares import check_shares
from sim.oracles.wire import Tap

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.context import Process
    from sim.faults.plan import Plan
    from sim.transport import SimTransport

LOOK_MS: Final = 100


class ClassicWorld(PlainWorld):
    """All machines of one run.

    Args:
        plan: has ``options.classic``.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    def __init__(self, plan: Plan, *, keep_lines: bool = False) -> None:
        self.layout = ClassicLayout(plan)
        self.classic = self.layout.classic
        super().__init__(plan, self.layout, self.classic.delay_p, keep_lines=keep_lines)
        names = self.layout.brokers
        terms = Terms(
            self.classic.is_sync,
            self.classic.slave_timeout_ms,
            self.classic.behind_max,
            plan.options.segment_bytes,
            self.classic.switches,
            {name: self.layout.is_synced(name) for name in names},
        )
        self._pair = Pair(
            {name: self.disk(name) for name in names},
            terms,
            self.findings,
            lambda: self.loop.now_ns,
            self.record.count,
        )
        self.master = names[0]
        """Who is the master, as the operator has it."""
        self.controllers: dict[str, BrokerController] = {}
        self.servers: dict[str, NameServer] = {}
        addresses = tuple(self.hosts[name].address for name in names)
        self.tables = PairTables(self.pair, lambda: self.loop.now_ns)
        self._logged = LineTables(self.pair.book)
        self._reporting = Reporting(self.is_held_up)
        self._taps = {name: PairEnd(self.pair, self.tables, name, addresses) for name in names}
        for name in names:
            ends = partial(ends_copied, self.pair.book, self.pair.brokers[name])
            QueueFiles(self.disk(name), self.findings, ends)
        self.network.on_connected = self._listen

    # What the faults need, see `sim.faults.target.Target`

    @property
    def pair(self) -> Pair:
        """What is known of the brokers."""
        return self._pair

    def leader(self) -> str | None:
        """Return the master, None while it does not run."""
        return self.master if self.hosts[self.master].alive else None

    def wipe(self, name: str) -> None:
        """Kill the process and empty its disk."""
        self.crash(name)
        self.pair.on_wipe(name)
        super().wipe(name)

    def start(self, name: str) -> None:
        """Start the process of a host, as what the operator has found it to be."""
        if name == self.master and not self.hosts[name].alive:
            self._find_master()
        super().start(name)

    # The operator

    def _find_master(self) -> None:
        """Make the slave the master that has more than the master has left, if there is one."""
        copies = {one: broker.copy for one, broker in self.pair.brokers.items()}
        old = copies[self.master]
        broker = self.pair.brokers[self.master]
        if not (self.classic.switches and (broker.is_wiped or broker.lost_power_ns)):
            return
        end, rows = 0, self.pair.book.line.rows
        for position, data in old.files.read(old.files.begin()):
            row = rows.get(position)
            if row is not None and row.data != data:
                break  # torn where the sum of its body tells nothing: a start does not take it
            end = position + len(data)
        able = [
            copy
            for name, copy in copies.items()
            if name != self.master and copy.base == 0 and self.pair.book.is_of_line(copy)
        ]
        best = max(able, key=lambda copy: copy.end, default=None)
        if best is None or best.end <= end:
            return
        self.trace.event("switch", best.name, before=self.master, end=best.end, left=end)
        was_up = self.hosts[best.name].alive
        self.crash(best.name)
        self.pair.promote(best.name)
        self._forget_order()
        self.wipe(self.master)
        self.master = best.name
        if was_up:
            super().start(best.name)

    def _after_event(self, name: str, look: Callable[[], None]) -> None:
        """Look at a broker after each of its events."""
        look()
        try:
            self.tables.on_event(name)
            self._logged.on_event(self.pair.brokers[name])
        except Violation as found:
            self.findings.report(found)

    def look(self) -> None:
        """Look at what no event tells, again and again."""
        try:
            self.tables.look()
            self._reporting.look(self.pair.running())
            for name, running in self.pair.running():
                check_shares(name, running)
        except Violation as found:
            self.findings.report(found)
        self.at(self.loop.now_ns + LOOK_MS * NS_PER_MS, self.look)

    # The life of the run

    def start_all(self) -> None:
        """Start every machine, and begin to look."""
        super().start_all()
        restarts = PlainRestarts(self.findings)
        for name in self.pair.brokers:
            restarts.listen(name, self.disk(name), self.pair.running)
        self.look()
        self.look_at_streams(self.pair.running)

    # Processes

    async def _broker(self, name: str) -> None:
        host, process = self.hosts[name], CURRENT.get()
        assert process is not None
        is_master = name == self.master
        controller = BrokerController(
            self.layout.broker_config(name, is_master=is_master),
            disk=self.disk(name),
            clock=host.clock,
            rng=host.rng.split(f"life{host.incarnation}"),
            tasks=Supervisor(),
        )
        self.controllers[name] = controller
        after_event = self.pair.begin(name, controller, is_master=is_master)
        process.after_event = partial(self._after_event, name, after_event)
        try:
            await controller.start()
            await self.loop.create_future()
        except asyncio.CancelledError:
            await controller.stop()

    async def _namesrv(self, name: str) -> None:
        host = self.hosts[name]
        config = NamesrvConfig(
            listen_port=NAMESRV_PORT, bind_address=host.address, kv_config_path=f"{STORE}/kv.json"
        )
        server = NameServer(config, host.clock, self.disk(name))
        self.servers[name] = server
        await server.start()
        await self.loop.create_future()

    # The end of a process

    def _loses_power(self, name: str) -> None:
        super()._loses_power(name)
        if name in self.pair.brokers:
            self.pair.on_power_loss(name)

    def _forget(self, process: Process) -> None:
        super()._forget(process)
        if self._restarts and process.host.name in self.pair.brokers:
            self.pair.end(process.host.name)
            self.tables.forget(process.host.name)

    # Watching

    def _listen(self, near: SimTransport, far: SimTransport) -> None:
        """Listen to a connection that somebody has opened to a broker."""
        self._listen_to_client(near, far)
        name = None if far.process is None else far.process.host.name
        if far.local[1] == BROKER_PORT and name in self._taps:
            far.tap = Tap(
                self._taps[name], far, lambda: self.loop.now_ns, self.findings, asks=False
            )
