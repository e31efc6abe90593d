"""The world of a run: machines, the production processes on them, and what is watched.

Brokers, name servers and clients are the production's own classes, unchanged: they get the disk,
clock and chance of their machine, and the loop's network. What ends a process in production ends
it here: a `FatalError` anywhere, a broken assertion, a failpoint of the disk.
Source: docs/simulation.md#what-makes-a-run-repeatable; TigerBeetle VOPR.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.controller import BrokerController
from dledger.config import FlushDiskType
from dledger.core.messages import describe_message
from dledger.core.model import Role
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sim import edging
from sim.alone_log import AloneLog
from sim.context import CURRENT, Process
from sim.dropping import Dropping
from sim.guarded.file import access_file_of
from sim.health import NS_PER_MS, Health
from sim.judges import Judges
from sim.known import GroupKnown
from sim.layout import BROKER_PORT, GROUP, NAMESRV_PORT, STORE, Layout
from sim.machines import Machines
from sim.members import BroadcastApp
from sim.oracles.alone import Alone
from sim.oracles.alone_disk import AloneEnd, Timing
from sim.oracles.answers import Answers
from sim.oracles.applied import ends_at
from sim.oracles.base import Violation
from sim.oracles.beginning import Beginning
from sim.oracles.busy import Busy
from sim.oracles.client_ends import ClientEnds
from sim.oracles.clients import Clients
from sim.oracles.committing import Committing
from sim.oracles.consuming import Consuming
from sim.oracles.forgotten import Forgotten
from sim.oracles.greeting import Greeting
from sim.oracles.heeding import Heeding
from sim.oracles.insisting import Insisting
from sim.oracles.keeping import Keeping
from sim.oracles.leaving import Leaving
from sim.oracles.library import Library
from sim.oracles.plain_saved import judge_alone
from sim.oracles.queue_files import QueueFiles
from sim.oracles.queue_units import check_units
from sim.oracles.records import id_head
from sim.oracles.refusing import Refusing
from sim.oracles.restarting_plain import PlainRestarts
from sim.oracles.saved_tables import SavedTables
from sim.oracles.shares import Looks
from sim.oracles.watch import Watch
from sim.oracles.wire import Listeners
from sim.oracles.woken import Woken
from sim.programs import plan_crashes, run_client
from sim.record import Record
from sim.refusals import Refusals
from sim.taps import Taps
from sim.transport import RESET
from sim.unwilling import UnwillingBrokers
from sim.validators import ALONE_NAME, Validators
from sim.workload import draw_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from chaos.history.segment import EntryRow
    from dledger.core.messages import Message
    from dledger.node import DLedgerNode
    from sim.faults.plan import Plan
    from sim.inode import PowerLossMode
    from sim.oracles.base import Findings
    from sim.oracles.model import Statement
    from sim.oracles.replica import Change, Replica
    from sim.oracles.wire import Listener
    from sim.programs import App


PLAIN: Final = "plain"
"""A broker outside the group that has RocketMQ's log."""


class World(Machines):
    """All machines of one run.

    Args:
        plan: seed, options, faults and workload; see `sim.faults.plan`.
        keep_lines: keep the trace as lines, not only as a digest.
    """

    def __init__(self, plan: Plan, *, keep_lines: bool = False) -> None:
        self.layout = Layout(plan)
        super().__init__(plan, self.layout, keep_lines=keep_lines)
        options = plan.options
        self.record = Record(f"sim-{plan.seed}", self.trace)
        self.record.follow_workload(plan.workload)
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
        self._refusals, self._unwilling = self._by_chance()
        self._woken = Woken(self.findings, lambda: self.health.touched_ns(tuple(self.hosts)))
        self.ends = ClientEnds(self.findings, GroupKnown(self), self.library, self._woken)
        self._follow_clients()
        edging.tell_oracles(self)
        self.watch.brokers.topics.model_queues = max(1, plan.workload.queues)
        self.clients_oracle.requests_of = self.library.possible
        answers = Answers(
            self.watch.truth, self.findings, self.clients_oracle.dropped, self._lacks_room
        )
        alone = self._make_alone() if options.alone else None
        self.validators = Validators(self.record, self.clients_oracle, answers, alone)
        if alone is not None:
            self.validators.alone_host = self.layout.alone_config().store_host
        self.judges = Judges(self)
        payments = self.judges.transactions
        decisions = {} if payments is None else payments.decisions
        self.alone_log = AloneLog(self, decisions) if options.alone == PLAIN else None
        self.validators.levels = len(self.judges.delays.delays_ms)
        self._replicas: dict[Process, Replica] = {}
        self.health: Health = Health(self)
        self.watch.truth.on_row.append(self._check_row)
        self.watch.truth.on_statement += [self._check_offsets, Forgotten().on_statement]
        self.watch.brokers.on_made = self.health.check_made
        self.dropping = Dropping(self)
        self.on_leads: Callable[[str, int], None] = lambda _name, _term: None
        """Hears of each new leader and its term."""
        self._judge_files()
        self.network.on_connected = self._taps().listen
        self.controllers: dict[str, BrokerController] = {}
        self.apps: dict[str, App] = {}
        self._started: set[str] = set()
        """Brokers that have started in this life."""
        self.operations = draw_operations(
            self.rng.split("workload"), plan.workload, options.safety_ms
        )
        self.loop.findings = self.findings.all

    def _by_chance(self) -> tuple[Refusals, UnwillingBrokers]:
        """Return what brokers refuse, and fail at, until the faults are over."""
        plan, count = self.plan, self.record.count

        def is_over() -> bool:
            return self.loop.now_ns >= plan.options.safety_ms * NS_PER_MS

        shares = (edging.refused_p(plan), edging.not_taken_back_p(plan))
        unwilling = UnwillingBrokers(plan.workload.unwilling, is_over, count)
        return Refusals(shares, is_over, count), unwilling

    def _judge_files(self) -> None:
        """Have what brokers write down of their queues and tables judged as they do so."""
        for name in self.layout.alone:
            judge_alone(self.disk(name), self.alone_log, self.findings)
        truth = self.watch.truth
        for name in self._brokers:
            disk, replica = self.disk(name), self.watch.replicas[name]
            QueueFiles(disk, self.findings, partial(ends_at, truth, replica))
            ahead = partial(self.watch.tables.compared_from, replica)
            SavedTables(disk, truth, self.findings, ahead)

    def _follow_clients(self) -> None:
        """Have what clients do judged in their own processes."""
        findings = self.findings
        heeding = Heeding(findings)
        self.record.follow = Keeping(findings, self.library.follow, heeding.follow).follow
        self.record.follow_consumer = Leaving(
            findings,
            Consuming(findings).follow,
            Keeping(findings).follow,
            Committing(findings).follow,
            Refusing(findings).follow,
            heeding.follow_member,
            self.ends.polls.follow,
            Insisting(findings).follow,
            Beginning(self.watch.truth, findings, lambda queue: queue.broker_name == GROUP).follow,
        ).follow

    def _taps(self) -> Taps:
        """Return who has what is said on connections judged."""
        greeting = Greeting(self.findings, self._calm_since_ns)
        members = Listeners(self._woken, self.ends.beyond, greeting)
        askers = (
            (BROKER_PORT, self.clients(), self.ends.listener),
            (BROKER_PORT, self.layout.all_members, members),
            (BROKER_PORT, self.layout.late, self.ends.beyond),
            (NAMESRV_PORT, self.layout.late, self.validators.routes),
        )
        busy = Busy(self.findings, self.layout.unhurried, self._calm_since_ns)
        ends = self._alone_ends() | {
            one: Listeners(self.health.listener(one), busy) for one in self.namesrvs()
        }
        return Taps(self.loop, self.watch, self._replicas, askers, ends, busy)

    def _calm_since_ns(self) -> int | None:
        """Return since when nothing has happened to anybody, None if something does."""
        leader = self.leader()
        if self.plan.workload.unwilling is not None:
            return None  # who is refused asks again, and looks for who leads
        return None if leader is None else self.health.calm_since_ns(leader, clients=True)

    def _lacks_room(self) -> bool:
        return any(self.disk(name).lacks_room for name in self.watch.replicas)

    def _make_alone(self) -> Alone:
        return Alone(
            self.findings,
            is_sync=self.plan.options.alone_flush == FlushDiskType.SYNC_FLUSH.value,
            tag_of=self.record.tag_of,
            now_ns=lambda: self.loop.now_ns,
            sent_ns=self.record.sent_ns,
        )

    def _alone_ends(self) -> dict[str, Listener]:
        options, files = self.plan.options, self.layout.alone_log
        is_sync = options.alone_flush == FlushDiskType.SYNC_FLUSH.value
        ends: dict[str, Listener] = {}
        for name in self.layout.alone:
            timing = Timing(
                self.hosts[name].clock.monotonic_ms, options.max_wait_ack_ms,
                partial(self.health.settled_ns, name),
            )  # fmt: skip
            end = AloneEnd(self.disk(name), files(), self.findings, timing, is_sync=is_sync)
            ends[name] = end
        return ends

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

    def members(self) -> tuple[str, ...]:
        """Return the hosts with members of further groups."""
        return self.layout.all_members

    def alone(self) -> tuple[str, ...]:
        """Return the hosts of brokers outside the group."""
        return self.layout.alone

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

    def controller(self) -> str | None:
        """Return None: a group elects by itself."""
        return None

    def stop(self, name: str) -> None:
        """See `Machines.stop`; a broker that is to end may send its clients away."""
        if name in self.watch.replicas:
            self.watch.replicas[name].is_leaving = True
        super().stop(name)

    def power_loss(self, name: str, mode: PowerLossMode) -> None:
        """Cut the power of a machine: process and unsynced writes are gone."""
        super().power_loss(name, mode)
        if name in self.watch.replicas:
            self.watch.replicas[name].lost_power = True
        elif self.validators.alone is not None and name in self.layout.alone:
            self.validators.alone.on_power_loss()
            if self.alone_log is not None:
                self.alone_log.on_power_loss()
            if self.plan.options.alone_flush != FlushDiskType.SYNC_FLUSH.value:
                self.ends.sent.forget(ALONE_NAME, self.loop.now_ns)

    def wipe(self, name: str) -> None:
        """Kill the process and empty its disk."""
        super().wipe(name)
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

    def compact(self, name: str) -> None:
        """Have a broker of the group drop the beginning of its log, where it runs."""
        if self.node(name) is not None:
            self.run_on(name, self.dropping.compact(name, self.controllers[name]))

    # The life of the run

    def start_all(self) -> None:
        """Start every machine but the spares."""
        layout = self.layout
        others = (*layout.alone, *layout.clients, *layout.odd, *layout.late, *layout.all_members)
        others += layout.tools + layout.everyday + layout.fitful + layout.skilled
        others += layout.guarded
        for name in (*layout.namesrvs, *self.voters, *others):
            self.start(name)
        plan_crashes(self)
        edging.slow_files(self)
        if layout.alone:
            restarts = PlainRestarts(self.findings)
            for name in layout.alone:
                restarts.listen(name, self.disk(name), self._running_alone)
            Looks(self.at, lambda: self.loop.now_ns, self._running_alone, self.findings).look()

    # Processes

    def _main_of(self, name: str) -> Coroutine[Any, Any, None]:
        if name in self._brokers or name in self.layout.alone:
            return self._broker(name)
        if name in self.layout.namesrvs:
            return self._namesrv(name)
        return run_client(self, name)

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
            access_file=access_file_of(layout, name, self.disk(name)),
        )
        self.controllers[name] = controller
        if not is_alone:
            self._watch(name, process, controller)
        elif self.alone_log is not None:
            process.after_event = self.alone_log.follow(controller)
        edging.scale_broker(self.plan, controller)
        self.dropping.listen(name, controller)
        self._refusals.listen(controller, host.rng.split(f"refusals{host.incarnation}"))
        self._unwilling.listen(controller, host.rng.split(f"unwilling{host.incarnation}"))
        try:
            await controller.start()
            self.dropping.on_started(name, controller)
            self._started.add(name)
            if is_alone:
                self._check_started(controller)
            await self.loop.create_future()
        except asyncio.CancelledError:
            await controller.stop()

    def _watch(self, name: str, process: Process, controller: BrokerController) -> None:
        """Have the oracles look at a replica."""
        incarnation = self.hosts[name].incarnation
        self._replicas[process] = replica = self.watch.begin(name, controller, incarnation)
        replica.process = process
        replica.tick_ms = self.plan.options.tick_ms
        replica.wait_ack_ms = self.plan.options.max_wait_ack_ms
        replica.id_head = id_head(self.hosts[name].address, BROKER_PORT)
        process.after_event = self.watch.looking_at(replica)

    async def _namesrv(self, name: str) -> None:
        host = self.hosts[name]
        config = NamesrvConfig(
            listen_port=NAMESRV_PORT,
            bind_address=host.address,
            kv_config_path=f"{STORE}/kv.json",
            shared_key=self.layout.namesrv_key(),
            order_message_enable=self.plan.workload.fitful is not None,
        )
        if config.shared_key:
            self.disk(name).make_directories(STORE)  # somebody keeps values there
        server = NameServer(config, host.clock, self.disk(name))
        self.health.servers[name] = server
        await server.start()
        await self.loop.create_future()

    def written(self, name: str) -> bytes:
        """Return what the file of a broadcasting member holds, nothing before it has begun."""
        app = self.apps.get(name)
        return app.written() if isinstance(app, BroadcastApp) else b""

    def peer_address(self, name: str) -> str:
        """Return where a broker listens for its peers."""
        return self.layout.peer_address(name)

    def namesrv_addrs(self) -> list[str]:
        """Return the addresses of all name servers."""
        return self.layout.namesrv_addrs()

    # The beginning and the end of a process

    def _begins(self, name: str) -> None:
        self.health.gone.pop(name, None)
        self._started.discard(name)

    def _ends(self, name: str, ending: str) -> None:
        if name in self.watch.replicas and self._restarts:
            self.watch.check_end(name)
        self.check_units(name)
        if ending == RESET:
            self.health.gone[name] = self.loop.now_ns

    def _running_alone(self) -> Iterator[tuple[str, BrokerController]]:
        """Yield the broker outside the group while it serves."""
        for name in self.layout.alone:
            if self.hosts[name].alive and name in self._started:
                yield name, self.controllers[name]

    def _check_started(self, controller: BrokerController) -> None:
        if self.alone_log is None:
            return
        try:
            self.alone_log.on_started(controller)
        except Violation as found:
            self.findings.report(found)

    def check_units(self, name: str) -> None:
        """Judge the queue files of a broker that has started, and runs; report what is found."""
        replica = self.watch.replicas.get(name)
        is_corrupt = replica is not None and replica.is_corrupt
        if name not in self._started or is_corrupt or self.disk(name).has_failed_syncs():
            return
        try:
            self.record.count("units", check_units(self.disk(name), self.layout.log_of(name)))
        except Violation as found:
            self.findings.report(found)

    def _loses_power(self, name: str) -> None:
        if name in self.watch.replicas and self.disk(name).has_failed_syncs():
            self.watch.excuse_corruption(name)  # what a failed sync has lost is missing from now on

    def _forget(self, process: Process) -> None:
        super()._forget(process)
        replica = self._replicas.pop(process, None)
        if replica is not None:
            replica.is_up = False

    # Watching

    def _check_row(self, row: EntryRow, before: int | None) -> None:
        assert row.topic is not None
        place = (row.topic, row.queue_id or 0, row.queue_offset or 0)
        self.ends.sent.check_row(place, row.msg_key, before)

    def _check_offsets(self, statement: Statement) -> None:
        self.ends.beyond.check(statement, self.watch.truth)

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
