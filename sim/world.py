"""The world of a run: machines, the production processes on them, and what is watched.

Brokers, name servers and clients are the production's own classes, unchanged: they get the disk,
clock and chance of their machine, and the loop's network. What ends a process in production ends
it here: a `FatalError` anywhere, a broken assertion, a failpoint of the disk.
Source: docs/simulation.md#what-makes-a-run-repeatable; TigerBeetle VOPR.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.controller import BrokerController
from dledger.config import FlushDiskType
from dledger.core.messages import describe_message
from dledger.core.model import Role
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sim.context import CURRENT, Host, Process
from sim.disk import SimDisk
from sim.dropping import Dropping
from sim.handle import SimHandle
from sim.health import Health
from sim.judges import Judges
from sim.layout import BROKER_PORT, NAMESRV_PORT, STORE, Layout
from sim.loop import SimLoop
from sim.oracles.alone import Alone
from sim.oracles.alone_disk import AloneEnd
from sim.oracles.answers import Answers
from sim.oracles.base import Findings, Violation
from sim.oracles.clients import Clients
from sim.oracles.consuming import Consuming
from sim.oracles.leaving import Leaving
from sim.oracles.library import Library
from sim.oracles.records import id_head
from sim.oracles.watch import Watch
from sim.programs import plan_crashes, run_client
from sim.record import Record
from sim.taps import Taps
from sim.transport import RESET, VANISH
from sim.validators import Validators
from sim.workload import draw_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dledger.core.messages import Message
    from dledger.node import DLedgerNode
    from sim.faults.plan import Plan
    from sim.inode import PowerLossMode
    from sim.network import SimNetwork
    from sim.oracles.replica import Change, Replica
    from sim.oracles.wire import Listener
    from sim.programs import App

_log: Final = logging.getLogger(__name__)

NS_PER_MS: Final = 1_000_000
RESTART_MS: Final = 1_000
"""A process that ended by itself is started again after so long, as a supervisor would."""


class World:
    """All machines of one run.

    Args:
        plan: seed, options, faults and workload; see `sim.faults.plan`.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    def __init__(self, plan: Plan, *, keep_lines: bool = False) -> None:
        self.plan = plan
        options = plan.options
        self.loop = SimLoop(  # type: ignore[abstract]  # what asyncio has and nobody here uses
            plan.seed, keep_lines=keep_lines
        )
        self.rng = self.loop.rng
        self.trace = self.loop.trace
        self.loop.set_exception_handler(_fail)
        self.network: SimNetwork = self.loop.network
        self.record = Record(f"sim-{plan.seed}", self.trace)
        self.record.follow_workload(plan.workload)
        self.layout = Layout(plan)
        self.hosts = self.layout.hosts
        self._add_hosts()
        self._brokers = self.layout.brokers
        self.voters = self.layout.voters
        self.watch = Watch(
            self._brokers,
            self.voters,
            is_sync=options.flush_disk_type == FlushDiskType.SYNC_FLUSH.value,
            on_change=self._note_change,
            on_message=self._note_message if keep_lines else None,
            polite=self.layout.polite,
        )
        clocks = [self.hosts[name].clock for name in self._brokers]
        self.watch.tell_time(lambda: self.loop.now_ns, clocks, is_told=options.tell_clock_ms > 0)
        self.findings: Findings = self.watch.findings
        self.clients_oracle = Clients(self.watch.truth, self.findings)
        self.library = Library(self.findings)
        self.record.follow = self.library.follow
        self.record.follow_consumer = Leaving(self.findings, Consuming(self.findings).follow).follow
        self.watch.brokers.topics.model_queues = max(1, plan.workload.queues)
        self.clients_oracle.requests_of = self.library.possible
        answers = Answers(self.watch.truth, self.findings, self.clients_oracle.dropped)
        alone = self._make_alone() if options.alone else None
        self.validators = Validators(self.record, self.clients_oracle, answers, alone)
        if alone is not None:
            self.validators.alone_host = self.layout.alone_config().store_host
        self.judges = Judges(self)
        self.validators.levels = len(self.judges.delays.delays_ms)
        self._replicas: dict[Process, Replica] = {}
        self.health = Health(self)
        self.dropping = Dropping(self)
        self.on_leads: Callable[[str, int], None] = lambda _name, _term: None
        """Hears of each new leader and its term."""
        self.network.on_connected = self._taps().listen
        self.controllers: dict[str, BrokerController] = {}
        self.apps: dict[str, App] = {}
        self._mains: dict[Process, asyncio.Task[None]] = {}
        self.explains: Callable[[str], bool] = lambda _name: False
        """Whether the faults so far explain that the process of a host ends by itself."""
        self.operations = draw_operations(
            self.rng.split("workload"), plan.workload, options.safety_ms
        )
        self.exits: dict[str, int] = {}
        self._restarts = True
        self.loop.findings = self.findings.all
        self.loop.on_exit = self._on_exit
        self.loop.on_kill = self._forget

    def _taps(self) -> Taps:
        """Return who has what is said on connections judged."""
        askers: dict[int, tuple[tuple[str, ...], Listener]] = {
            BROKER_PORT: (self.clients(), self.library),
            NAMESRV_PORT: (self.layout.late, self.validators.routes),
        }
        ends = self._alone_ends() | {one: self.health.listener(one) for one in self.namesrvs()}
        return Taps(self.loop, self.watch, self._replicas, askers, ends)

    def _make_alone(self) -> Alone:
        return Alone(
            self.findings,
            is_sync=self.plan.options.alone_flush == FlushDiskType.SYNC_FLUSH.value,
            tag_of=self.record.tag_of,
            now_ns=lambda: self.loop.now_ns,
            sent_ns=self.record.sent_ns,
        )

    def _alone_ends(self) -> dict[str, Listener]:
        if self.plan.options.alone_flush != FlushDiskType.SYNC_FLUSH.value:
            return {}
        files = self.layout.alone_log
        return {n: AloneEnd(self.disk(n), files(), self.findings) for n in self.layout.alone}

    # What the faults need: see `sim.faults.apply.Target`

    def brokers(self) -> tuple[str, ...]:
        """Return the hosts of brokers, spares included."""
        return self._brokers

    def namesrvs(self) -> tuple[str, ...]:
        """Return the hosts of name servers."""
        return self.layout.namesrvs

    def clients(self) -> tuple[str, ...]:
        """Return the hosts of producers and consumers."""
        return self.layout.clients

    def alone(self) -> tuple[str, ...]:
        """Return the hosts of brokers outside the group."""
        return self.layout.alone

    def host(self, name: str) -> Host:
        """Return a machine."""
        return self.hosts[name]

    def disk(self, name: str) -> SimDisk:
        """Return the disk of a machine."""
        disk = self.hosts[name].disk
        assert isinstance(disk, SimDisk)
        return disk

    def node(self, name: str) -> DLedgerNode | None:
        """Return the replica that runs on a host, None while none does."""
        host = self.hosts[name]
        controller = self.controllers.get(name)
        if controller is None or not host.alive or not controller.node._opened:
            return None
        return controller.node

    def leader(self) -> str | None:
        """Return the leader of the highest term, None if nobody leads."""
        best: tuple[int, str] | None = None
        for name in self._brokers:
            node = self.node(name)
            if node is not None and node.role is Role.LEADER:
                best = max(best or (node.term, name), (node.term, name))
        return best[1] if best is not None else None

    def start(self, name: str) -> None:
        """Start the process of a host; nothing happens where one runs."""
        host = self.hosts[name]
        if host.alive:
            return
        self.health.gone.pop(name, None)
        process = self.loop.boot(host)
        self._mains[process] = self.loop.spawn(process, self._main(name))

    def crash(self, name: str) -> None:
        """Kill the process of a host; its kernel resets the connections, the page cache stays."""
        self._kill(name, RESET)

    def stop(self, name: str) -> None:
        """Ask the process of a host to end, as SIGTERM does."""
        process = self.hosts[name].process
        if process is None or not process.alive:
            return
        main = self._mains[process]
        self.trace.event("stop", name)
        if main.cancelling():
            self.crash(
                name
            )  # a second signal ends the process at once, see `ledgermq.runtime.process`
        else:
            main.cancel()

    def restart(self, name: str) -> None:
        """Start a process again, killing the one that runs."""
        self.crash(name)
        self.start(name)

    def pause(self, name: str) -> None:
        """Stop a process, as SIGSTOP does."""
        process = self.hosts[name].process
        if process is not None and process.alive:
            self.loop.pause(self.hosts[name])

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        process = self.hosts[name].process
        if process is not None and process.alive:
            self.loop.resume(self.hosts[name])

    def power_loss(self, name: str, mode: PowerLossMode) -> None:
        """Cut the power of a machine: process and unsynced writes are gone."""
        self._kill(name, VANISH)
        self.network.power_off(self.hosts[name].address)
        if name in self.watch.replicas and self.disk(name).has_failed_syncs():
            self.watch.excuse_corruption(name)  # what a failed sync has lost is missing from now on
        self.disk(name).power_loss(mode)
        if name in self.watch.replicas:
            self.watch.replicas[name].lost_power = True
        elif self.validators.alone is not None and name in self.layout.alone:
            self.validators.alone.on_power_loss()

    def wipe(self, name: str) -> None:
        """Kill the process and empty its disk."""
        self._kill(name, RESET)
        self.trace.event("wipe", name)
        self.disk(name).wipe()
        self.watch.replicas[name].is_wiped = True
        self.watch.replicas[name].is_corrupt = False

    def is_recovering(self, name: str) -> bool:
        """Whether the replica on a host began empty and nobody has let it vote yet."""
        node = self.node(name)
        return node is not None and bool(node._raft.state.fresh)

    def synced_index(self, name: str) -> int:
        """Return the last entry that a host's replica knows as synced, -1 while none runs."""
        node = self.node(name)
        return -1 if node is None else node._driver.synced_index

    def run_on(self, name: str, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run a coroutine as part of the process of a host, None where none runs."""
        process = self.hosts[name].process
        if process is None or not process.alive:
            coro.close()
            return None
        return self.loop.spawn(process, coro, name="harness")

    def compact(self, name: str) -> None:
        """Have a broker of the group drop the beginning of its log, where it runs."""
        if self.node(name) is not None:
            self.run_on(name, self.dropping.compact(self.controllers[name]))

    def at(self, when_ns: int, action: Callable[[], object]) -> None:
        """Do something at a virtual time that no process does."""
        self.loop.post(when_ns, SimHandle(when_ns, action, (), contextvars.Context(), None))

    # The life of the run

    def start_all(self) -> None:
        """Start every machine but the spares."""
        layout = self.layout
        others = (*layout.alone, *layout.clients, *layout.odd, *layout.late, *layout.all_members)
        for name in (*layout.namesrvs, *self.voters, *others):
            self.start(name)
        plan_crashes(self)

    def close(self) -> None:
        """Let go of everything, so that the run leaves no trace in the process."""
        self._restarts = False
        self.loop.findings = []
        for name in list(self.hosts):
            self._kill(name, RESET)
        self.loop.close()

    # Processes

    def _add_hosts(self) -> None:
        for net, names in enumerate(self.layout.nets):
            for at, name in enumerate(names):
                host = self.loop.add_host(name, f"10.0.{net}.{at + 1}")
                host.disk = SimDisk(host.rng.split("disk"), self.trace, host=name)
                spread_ms = self.plan.options.clock_spread_ms
                if spread_ms:
                    host.clock.jump(int((2 * host.rng.point("clock") - 1) * spread_ms))
                self.hosts[name] = host
                self.trace.event("host", name, address=host.address)

    def _main_of(self, name: str) -> Coroutine[Any, Any, None]:
        if name in self._brokers or name in self.layout.alone:
            return self._broker(name)
        if name in self.layout.namesrvs:
            return self._namesrv(name)
        return run_client(self, name)

    async def _main(self, name: str) -> None:
        """Do what `ledgermq.runtime.process.run_main` does."""
        process = CURRENT.get()
        assert process is not None
        error: Exception | None = None
        code = 0
        try:
            await self._main_of(name)
        except FatalError as fatal:
            error, code = fatal, fatal.exit_code
        except Exception as crash:  # noqa: BLE001 - last resort, as there
            error, code = crash, EXIT_ENVIRONMENT
        self.loop.exit(process, error, code)

    async def _broker(self, name: str) -> None:
        host = self.hosts[name]
        process = CURRENT.get()
        assert process is not None
        layout, is_alone = self.layout, name in self.layout.alone
        controller = BrokerController(
            layout.alone_config() if is_alone else layout.broker_config(name),
            disk=self.disk(name),
            clock=host.clock,
            rng=host.rng.split(f"life{host.incarnation}"),
            tasks=Supervisor(),
        )
        self.controllers[name] = controller
        if not is_alone:
            self._watch(name, process, controller)
        self.dropping.listen(name, controller)
        try:
            await controller.start()
            await self.loop.create_future()
        except asyncio.CancelledError:
            await controller.stop()

    def _watch(self, name: str, process: Process, controller: BrokerController) -> None:
        """Have the oracles look at a replica."""
        incarnation = self.hosts[name].incarnation
        self._replicas[process] = replica = self.watch.begin(name, controller, incarnation)
        replica.process = process
        replica.tick_ms = self.plan.options.tick_ms
        replica.id_head = id_head(self.hosts[name].address, BROKER_PORT)
        process.after_event = self.watch.looking_at(replica)

    async def _namesrv(self, name: str) -> None:
        host = self.hosts[name]
        config = NamesrvConfig(
            listen_port=NAMESRV_PORT, bind_address=host.address, kv_config_path=f"{STORE}/kv.json"
        )
        server = NameServer(config, host.clock, self.disk(name))
        self.health.servers[name] = server
        await server.start()
        await self.loop.create_future()

    def peer_address(self, name: str) -> str:
        """Return where a broker listens for its peers."""
        return self.layout.peer_address(name)

    def namesrv_addrs(self) -> list[str]:
        """Return the addresses of all name servers."""
        return self.layout.namesrv_addrs()

    # The end of a process

    def _kill(self, name: str, ending: str) -> None:
        process = self.hosts[name].process
        if process is None or not process.alive:
            return
        if name in self.watch.replicas and self._restarts:
            self.watch.check_end(name)
        if ending == RESET:
            self.health.gone[name] = self.loop.now_ns
        self.loop.kill(process, ending)

    def _forget(self, process: Process) -> None:
        process.after_event = None
        replica = self._replicas.pop(process, None)
        if replica is not None:
            replica.is_up = False
        self._mains.pop(process, None)

    def _on_exit(self, process: Process) -> None:
        """Take that a process ended by itself, and have it started again."""
        name, error = process.host.name, process.error
        text = error.message if isinstance(error, FatalError) else repr(error)
        code = process.exit_code or 0
        self.exits[name] = code
        _log.warning("event=exit host=%s code=%d why=%s", name, code, text)
        if code:
            bug = not isinstance(error, FatalError | OSError) or "bug" in text
            if bug or not self.explains(name):
                self.findings.report(
                    Violation("process death", f"{name} exits with {code}: {text}", node=name)
                )
            if self._restarts:
                self.at(self.loop.now_ns + RESTART_MS * NS_PER_MS, partial(self.start, name))

    # Watching

    def _note_change(self, replica: Replica, change: Change) -> None:
        before, now = change.before, change.now
        if before[0] is not now[0] or before[1] != now[1]:
            self.trace.event("role", replica.name, role=now[0].value, term=now[1])
            if now[0] is Role.LEADER:
                self.on_leads(replica.name, now[1])
        if change.kept_index < change.old_last:
            self.trace.event("cut_log", replica.name, kept=change.kept_index, last=change.old_last)
        if before[6] != now[6]:
            self.trace.commit(replica.name, now[6], now[1])

    def _note_message(self, replica: Replica, message: Message) -> None:
        words = describe_message(message).split(" ")
        self.trace.line("say", replica.name, to=message.receiver, what=",".join(words[1:]))


def _fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error of the harness itself ends the run."""
    del loop
    raise context.get("exception") or RuntimeError(str(context.get("message")))
