"""The world of a run with brokers that controllers switch, and of these controllers.

Each name server's process runs a controller, as ``enableControllerInNamesrv`` has it. A wiped
broker comes back as a replica that nobody knows.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.switch.broker import SwitchingBroker
from namesrv.controller.server import ControllerServer
from namesrv.server import NameServer
from sim.classic.plain_world import PlainWorld
from sim.context import CURRENT
from sim.layout import BROKER_PORT
from sim.oracles.base import Violation
from sim.oracles.line_tables import LineTables
from sim.oracles.plain_saved import ends_copied
from sim.oracles.queue_files import QueueFiles
from sim.oracles.restarting_plain import PlainRestarts
from sim.oracles.shares import Looks
from sim.oracles.wire import Tap
from sim.switch.answers import ReplicaEnd
from sim.switch.decisions import Decisions
from sim.switch.layout import CONTROLLER_PORT, NAME, SwitchLayout
from sim.switch.lease import Lease
from sim.switch.replicas import Replicas
from sim.switch.tables import SwitchTables
from sim.switch.telling import ControllerEnd
from sim.switch.votes import Votes

if TYPE_CHECKING:
    from collections.abc import Callable

    from namesrv.controller.commands import Command, Outcome
    from namesrv.controller.machine import Machine
    from namesrv.controller.node import Controller
    from sim.context import Process
    from sim.faults.plan import Plan
    from sim.transport import SimTransport

CONNECTIONS_MAX: Final = 4_096


class SwitchWorld(PlainWorld):
    """All machines of one run.

    Args:
        plan: has ``options.switch``.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    def __init__(self, plan: Plan, *, keep_lines: bool = False) -> None:
        self.layout = SwitchLayout(plan)
        self.switch = self.layout.switch
        super().__init__(plan, self.layout, self.switch.delay_p, keep_lines=keep_lines)
        names = self.layout.brokers
        self.replicas = Replicas(
            {name: self.disk(name) for name in names},
            {name: self.layout.is_synced(name) for name in names},
            plan.options.segment_bytes,
            self.findings,
            broker_at=self.layout.broker_at,
            now_ns=lambda: self.loop.now_ns,
            count=self.record.count,
        )
        self.decisions = self.replicas.decisions = Decisions(NAME, self.replicas.on_decided)
        self.replicas.lease = self._lease = Lease(
            self.switch.silence_ms + self.switch.poll_ms, lambda: self.loop.now_ns
        )
        for name in names:
            self._lease.follow(self.hosts[name].address, name)
        self.tables = self.replicas.tables = SwitchTables(self.replicas, lambda: self.loop.now_ns)
        self._logged = LineTables(self.replicas.book)
        self.controllers: dict[str, ControllerServer] = {}
        """By host, that of its process, or of the last one."""
        for name in names:
            ends = partial(ends_copied, self.replicas.book, self.replicas.brokers[name])
            QueueFiles(self.disk(name), self.findings, ends)
        self.votes = Votes(self.disk, self.findings, self.record.count)
        self._told = {
            name: ControllerEnd(name, self.findings, self._is_leader) for name in self.namesrvs()
        }
        self._taps = {name: ReplicaEnd(self.replicas, self.tables, name) for name in names}
        self.network.on_connected = self._listen

    # What the faults need, see `sim.faults.target.Target`

    def leader(self) -> str | None:
        """Return the master of the highest epoch that runs, None if none does."""
        masters = [one for one in self.replicas.brokers.values() if one.is_master]
        best = max(masters, key=lambda one: one.epoch, default=None)
        return None if best is None else best.name

    @property
    def master(self) -> str:
        """The master, or some broker while there is none."""
        return self.leader() or self.layout.brokers[0]

    @property
    def pair(self) -> Replicas:
        """What is known of the brokers."""
        return self.replicas

    def controller(self) -> str | None:
        """Return the controller that leads, None if none does."""
        terms = {
            name: one.raft.term
            for name in self.namesrvs()
            if (one := self._node(name)) is not None and one.leads
        }
        return max(terms, key=terms.__getitem__, default=None)  # one that is cut off may lead, too

    def _node(self, name: str) -> Controller | None:
        """Return the controller that runs on a host, None while none does."""
        server = self.controllers.get(name)
        if server is None or not self.hosts[name].alive or server.controller._raft is None:
            return None
        return server.controller

    def _is_leader(self, name: str) -> bool:
        """Tell whether the controller of a host leads, as its Raft has it."""
        node = self._node(name)
        return node is not None and node.raft._isLeader()

    def unsettled(self) -> str:
        """Return what may be decided yet that is under way; nothing if nothing is."""
        for name in self.namesrvs():
            node = self._node(name)
            if node is None or node.raft.journal.last[0] != node.raft.raftLastApplied:
                return f"{name} may have a command that is not decided"
        return self.replicas.unsettled()

    def wipe(self, name: str) -> None:
        """Kill the process and empty its disk."""
        self.crash(name)
        self.replicas.on_wipe(name)
        super().wipe(name)

    # The life of the run

    def start_all(self) -> None:
        """Start every machine, and begin to look."""
        super().start_all()
        restarts = PlainRestarts(self.findings)
        for name in self.replicas.brokers:
            restarts.listen(name, self.disk(name), self.replicas.running)
        Looks(self.at, lambda: self.loop.now_ns, self.replicas.running, self.findings).look()
        self.look_at_streams(self.replicas.running)

    def on_applied(self, host: str, machine: Machine, command: Command, outcome: Outcome) -> None:
        """A controller has applied a command."""
        node = self.controllers[host].controller
        try:
            index = int(node.raft.raftLastApplied) + 1
            self.trace.event("decided", host, index=index, command=type(command).__name__)
            self.decisions.on_applied(host, index, machine, command, outcome)
        except Exception as error:  # noqa: BLE001 - the caller is production's code
            self.findings.report(error)

    # Processes

    async def _broker(self, name: str) -> None:
        host, process = self.hosts[name], CURRENT.get()
        assert process is not None
        broker = SwitchingBroker(
            self.layout.broker_config(name),
            disk=self.disk(name),
            clock=host.clock,
            rng=host.rng.split(f"life{host.incarnation}"),
        )
        after_event = self.replicas.begin(name, broker, process)
        process.after_event = partial(self._after_event, name, after_event)
        try:
            await broker.start()
            await self.loop.create_future()
        except asyncio.CancelledError:
            await broker.stop()

    def _after_event(self, name: str, look: Callable[[], None]) -> None:
        """Look at a broker after each of its events."""
        look()
        try:
            self._logged.on_event(self.replicas.brokers[name])
        except Violation as found:
            self.findings.report(found)

    async def _namesrv(self, name: str) -> None:
        host, disk = self.hosts[name], self.disk(name)
        server = NameServer(self.layout.namesrv_config(name), host.clock, disk)
        rng = host.rng.split(f"life{host.incarnation}")
        controller = ControllerServer(
            self.layout.controller_config(name),
            self.layout.security(),
            (host.clock, disk, rng),
            CONNECTIONS_MAX,
        )
        self.controllers[name] = controller
        try:
            await server.start()
            await controller.start()
            await self.loop.create_future()
        except asyncio.CancelledError:
            await controller.stop()
            await server.stop()

    # The end of a process

    def _loses_power(self, name: str) -> None:
        super()._loses_power(name)
        if name in self.replicas.brokers:
            self.replicas.on_power_loss(name)

    def _forget(self, process: Process) -> None:
        super()._forget(process)
        if self._restarts and process.host.name in self.replicas.brokers:
            self.replicas.end(process.host.name)

    # Watching

    def _listen(self, near: SimTransport, far: SimTransport) -> None:
        """Listen to a connection to a broker, or of a broker to a controller."""
        self._listen_to_client(near, far)
        asker = None if near.process is None else near.process.host.name
        if far.local[1] == CONTROLLER_PORT and asker in self._taps:
            near.tap = Tap(self._lease, near, lambda: self.loop.now_ns, self.findings, asks=True)
        name = None if far.process is None else far.process.host.name
        if far.local[1] == CONTROLLER_PORT and name in self._told:
            far.tap = Tap(
                self._told[name], far, lambda: self.loop.now_ns, self.findings, asks=False
            )
        if far.local[1] == BROKER_PORT and name in self._taps:
            far.tap = Tap(
                self._taps[name], far, lambda: self.loop.now_ns, self.findings, asks=False
            )
