"""The world of a run with brokers that controllers switch, and of these controllers.

Each name server's process runs a controller, as ``enableControllerInNamesrv`` has it. A wiped
broker comes back as a replica that nobody knows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from broker.switch.broker import SwitchingBroker
from namesrv.controller.server import ControllerServer
from namesrv.server import NameServer
from sim.classic.clients import Reader, Sender
from sim.classic.no_group import NoGroup
from sim.context import CURRENT
from sim.layout import BROKER_PORT
from sim.machines import NS_PER_MS, Machines
from sim.oracles.base import Findings
from sim.oracles.wire import Tap
from sim.record import Record
from sim.switch.answers import ReplicaEnd
from sim.switch.decisions import Decisions
from sim.switch.layout import CONTROLLER_PORT, NAME, SwitchLayout
from sim.switch.lease import Lease
from sim.switch.replicas import Replicas
from sim.workload import draw_operations

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from namesrv.controller.commands import Command, Outcome
    from namesrv.controller.machine import Machine
    from namesrv.controller.node import Controller
    from sim.context import Process
    from sim.faults.plan import Plan
    from sim.transport import SimTransport

CONNECTIONS_MAX: Final = 4_096


class SwitchWorld(NoGroup, Machines):
    """All machines of one run.

    Args:
        plan: has ``options.switch``.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    def __init__(self, plan: Plan, *, keep_lines: bool = False) -> None:
        self.layout = SwitchLayout(plan)
        super().__init__(plan, self.layout, keep_lines=keep_lines)
        self.switch = self.layout.switch
        self.findings = Findings()
        self.loop.findings = self.findings.all
        self.record = Record(f"sim-{plan.seed}", self.trace)
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
        self.controllers: dict[str, ControllerServer] = {}
        """By host, that of its process, or of the last one."""
        self.senders: dict[str, Sender] = {}
        self.readers: dict[str, Reader] = {}
        self.done: dict[int, None] = {}
        """Keys of the messages that listeners of the group have finished."""
        self.operations = draw_operations(
            self.rng.split("workload"), plan.workload, plan.options.safety_ms
        )
        self._taps = {name: ReplicaEnd(self.replicas, name) for name in names}
        self.network.on_connected = self._listen

    # What the faults need, see `sim.faults.target.Target`

    def brokers(self) -> tuple[str, ...]:
        """Return the hosts of brokers."""
        return self.layout.brokers

    def namesrvs(self) -> tuple[str, ...]:
        """Return the hosts of name servers and their controllers."""
        return self.layout.namesrvs

    def clients(self) -> tuple[str, ...]:
        """Return the hosts of producers and consumers."""
        return self.layout.clients

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
        leading = [name for name in self.namesrvs() if (one := self._node(name)) and one.leads]
        return leading[0] if leading else None

    def _node(self, name: str) -> Controller | None:
        """Return the controller that runs on a host, None while none does."""
        server = self.controllers.get(name)
        if server is None or not self.hosts[name].alive or server.controller._raft is None:
            return None
        return server.controller

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

    def begin_anew(self, name: str) -> None:
        """Take a replica's directory away, as an operator does where its log is another one."""
        self.record.count("begun_anew")
        self.wipe(name)
        self.start(name)

    # The life of the run

    def start_all(self) -> None:
        """Start every machine."""
        for name in (*self.layout.namesrvs, *self.layout.brokers, *self.layout.clients):
            self.start(name)

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

    def _main_of(self, name: str) -> Coroutine[Any, Any, None]:
        if name in self.layout.brokers:
            return self._broker(name)
        if name in self.layout.namesrvs:
            return self._namesrv(name)
        return self._client(name)

    async def _broker(self, name: str) -> None:
        host, process = self.hosts[name], CURRENT.get()
        assert process is not None
        broker = SwitchingBroker(
            self.layout.broker_config(name),
            disk=self.disk(name),
            clock=host.clock,
            rng=host.rng.split(f"life{host.incarnation}"),
        )
        process.after_event = self.replicas.begin(name, broker, process)
        try:
            await broker.start()
            await self.loop.create_future()
        except asyncio.CancelledError:
            await broker.stop()

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

    async def _client(self, name: str) -> None:
        host, config, workload = (
            self.hosts[name],
            self.layout.client_config(name),
            self.plan.workload,
        )
        if name in self.layout.consumers:
            reader = Reader(name, config, host, self.record, self.done, workload)
            self.readers[name] = reader
            await reader.run()
            return
        number = self.layout.producers.index(name)
        delay_p = self.switch.delay_p
        sender = Sender(name, number, config, host, self.record, workload, delay_p=delay_p)
        self.senders[name] = sender
        now_ms = self.loop.now_ns // NS_PER_MS
        count = len(self.layout.producers)
        await sender.run(
            [op for op in self.operations if op.client % count == number and op.at_ms >= now_ms]
        )

    # The end of a process

    def _loses_power(self, name: str) -> None:
        if name in self.replicas.brokers:
            self.replicas.on_power_loss(name)

    def _forget(self, process: Process) -> None:
        super()._forget(process)
        if self._restarts and process.host.name in self.replicas.brokers:
            self.replicas.end(process.host.name)

    # Watching

    def _listen(self, near: SimTransport, far: SimTransport) -> None:
        """Listen to a connection to a broker, or of a broker to a controller."""
        asker = None if near.process is None else near.process.host.name
        if far.local[1] == CONTROLLER_PORT and asker in self._taps:
            near.tap = Tap(self._lease, near, lambda: self.loop.now_ns, self.findings, asks=True)
        name = None if far.process is None else far.process.host.name
        if far.local[1] == BROKER_PORT and name in self._taps:
            far.tap = Tap(
                self._taps[name], far, lambda: self.loop.now_ns, self.findings, asks=False
            )
