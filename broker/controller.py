"""Wires one broker together and runs its clockwork; decides nothing itself.

Start: ports and directory are checked before anything is written; then log, snapshot, store,
server, registration. Stop, in order: leave the routes, replicate the last offsets, stop the
server, save the snapshot, stop store and log.
Source: docs/architecture.md#layers; docs/adr/0002; RocketMQ BrokerController.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, cast

from broker.access.build import Access
from broker.core import Core, Machine
from broker.delays.service import SCHEDULE_TOPIC
from broker.files import files_of
from broker.limits import LOG_ROOM_BYTES, LOG_WAITING_BYTES_MAX
from broker.modes.build import build_mode
from broker.name_servers import build_registrar
from broker.ports import check_port_free
from broker.processors import Around, build_processors
from broker.pulls.hold_sweep import HoldSweep
from broker.pulls.wake_up import WakeUp
from broker.retention.service import DiskUse, Retention
from broker.sends.room import LogRoom
from broker.services import build_services
from broker.state.kinds import StateKind
from broker.tables import Tables
from broker.transactions.takeover import HALF_TOPIC
from ledgermq.remoting.transport.limits import (
    CONNECTIONS_MAX,
    RECEIVE_BYTES_MAX,
    SENDING_BYTES_MAX,
    UNSENT_BYTES_MAX,
)
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.tasks import attempt
from store.message_store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.access.file import AccessFile
    from broker.config import BrokerConfig
    from broker.files import Files
    from broker.modes.assignment import Assignment
    from broker.modes.mode import Mode
    from broker.modes.raft import RaftMode
    from broker.retention.compaction import Compactor
    from dledger.node import DLedgerNode
    from ledgermq.remoting.transport.config import TransportConfig
    from ledgermq.remoting.transport.connection import Connection
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Closeable, Disk
    from ledgermq.runtime.errors import FatalError
    from ledgermq.runtime.rng import Rng
    from ledgermq.runtime.tasks import Supervisor
    from store.queues.start import QueueStart

_log = logging.getLogger(__name__)

_OF_TOPICS: Final = frozenset({StateKind.TOPIC.value, StateKind.FORGET_TOPIC.value})
CLIENT_SWEEP_MS: Final = 10_000
CLIENT_SLICE_MS: Final = 2_000
MORE_MS: Final = 20
"""When what a turn leaves is gone on with: names to be counted, locks that have run out."""
CREDENTIALS_MS: Final = 5_000


class BrokerController:
    """One broker; also the store's listener.

    Args:
        config: its settings.
        disk, clock, rng: the machine, or the simulator's.
        tasks: supervises everything that runs beside the loop's callbacks.
        transport: limits of the clients' connections.
        assignment: what controllers have made this broker, if they say so.
        access_file: rules of access control that were read in another role of this process.
        files: keys and certificates that were.
        claim: takes what else this process alone may have, once all checks have passed.
    """

    on_message: Callable[[str, int, int], None]
    """Wakes the pulls that wait for a queue, or the delivery of what waits in it, see `WakeUp`."""

    def __init__(  # noqa: PLR0913 - what it runs on, and what it is to be
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        tasks: Supervisor,
        transport: TransportConfig | None = None,
        assignment: Assignment | None = None,
        access_file: AccessFile | None = None,
        files: Files | None = None,
        claim: Callable[[], Closeable] | None = None,
    ) -> None:
        self._config = config
        self._claim = claim
        self._tasks = tasks
        #: What `stop` has to undo, youngest first.
        self._leave = AsyncExitStack()
        self._started = False
        self.tables = Tables(config, clock)
        room = self._room = LogRoom(lambda: self.store.writer.uncommitted_bytes, clock)
        self.store = MessageStore(
            config.store_config(), disk, clock, self, on_fatal=self._fail,
            watchers=room.watching,
        )  # fmt: skip
        machine = Machine(disk, clock, rng, self._fail)
        files = files or files_of(config, clock)
        core = self._core = Core(config, self.tables, self.store, machine, room, tasks, files)
        self._mode: Mode = build_mode(core, assignment)
        self._client, self._registrar = build_registrar(core, self._mode)
        self._retention = build_retention(core, self._mode)
        self._access = Access(core, access_file)
        around = Around(
            self._mode.guard, self._registrar, self._retention, self._status, self._access.file
        )
        self._processors = build_processors(core, around, self._mode.processors)
        self.requests = self._processors.requests
        handlers, hot = self._access.handlers(self.requests, self._mode.guard)
        self._services = build_services(core, self._processors)
        self._services.transactions.save = self._mode.saver.save
        self._services.transactions.may_hear = self._access.may_hear
        delays, transactions = self._services.delays, self._services.transactions
        self.on_message = WakeUp(
            self.tables.held,
            self._processors.pull.wake,
            lambda run: asyncio.get_running_loop().call_soon(run),
            {SCHEDULE_TOPIC: delays.on_message, HALF_TOPIC: lambda _: transactions.on_half()},
        ).on_message
        self.server = RemotingServer(
            name="broker",
            handlers=handlers,
            hot=hot,
            config=transport,
            clock=clock,
            on_close=self._on_client_gone,
        )
        self.server.use_tls(files.server_tls)
        usage, server = self.tables.usage, self.server
        usage.add(LOG_ROOM_BYTES, lambda: room.used)
        usage.add(LOG_WAITING_BYTES_MAX, lambda: room.waiting_bytes)
        usage.add(CONNECTIONS_MAX, lambda: len(server.connections))
        usage.add(RECEIVE_BYTES_MAX, lambda: server.receive_bytes)
        usage.add(UNSENT_BYTES_MAX, lambda: server.unsent_bytes)
        usage.add(SENDING_BYTES_MAX, lambda: server.sending_bytes)

    async def start(self) -> None:
        """Come up.

        Raises:
            FatalError: port in use, or a directory that is foreign, in use or damaged.
        """
        config, leave, mode = self._config, self._leave, self._mode
        await check_port_free("listenPort", config.listen_host, config.listen_port)
        self._access.load()
        await mode.check()
        if self._claim is not None:
            leave.callback(self._claim().close)
        leave.push_async_callback(self._client.close)
        leave.callback(mode.leave)
        leave.push_async_callback(mode.log.stop)  # also of one that was opened in vain
        mode.open()
        leave.callback(self.store.close_files)
        mode.load()
        leave.push_async_callback(self.store.stop)
        await mode.start_log()
        self.store.start()
        leave.push_async_callback(mode.end)
        await mode.begin()
        leave.push_async_callback(mode.saver.save)
        leave.push_async_callback(self._retention.settle)
        leave.push_async_callback(self._tasks.stop)
        leave.callback(self._services.leader.stop)
        self._start_clockwork()
        await self.server.start(config.listen_host, config.listen_port)
        leave.push_async_callback(self.server.stop)
        if config.second_port:
            await self.server.listen_also(config.listen_host, config.second_port)
        leave.push_async_callback(self._services.let_go)
        self._registrar.start()
        leave.push_async_callback(self._registrar.stop)
        self._started = True
        _log.info(
            "event=broker_started name=%s id=%s addr=%s boot_id=%s",
            config.registered_name,
            config.self_id,
            config.broker_addr,
            mode.boot_id,
        )

    @property
    def mode(self) -> Mode:
        """What of the broker depends on its kind."""
        return self._mode

    @property
    def node(self) -> DLedgerNode:
        """The member of the group; only of a broker that is in one."""
        return cast("RaftMode", self._mode).log

    @property
    def compactor(self) -> Compactor:
        """What drops the beginning of the log; only of a broker that is in a group."""
        return cast("RaftMode", self._mode).compactor

    @property
    def server_port(self) -> int:
        """The port that clients connect to."""
        return self._config.listen_port

    @property
    def applied_index(self) -> int:
        """Last entry applied, as status and files name it."""
        return self._mode.applied_index

    @property
    def state_index(self) -> int:
        """Last entry whose state records the tables had when they were loaded."""
        return self._mode.state_index

    async def stop(self) -> None:
        """Go down cleanly, as far as it came up: out of the routes first, nothing accepted lost."""
        await self._leave.aclose()
        self._mode.saver.close()
        if self._started:
            _log.info("event=broker_stopped id=%s", self._config.self_id)

    # StoreListener

    def apply_state(self, position: int, kind: str, payload: bytes) -> None:
        """Apply a replicated change."""
        if self._mode.includes(position, kind):
            return
        self.tables.state.apply(position, kind, payload)
        self._mode.on_applied(kind)
        if kind in _OF_TOPICS and self.store.writer.writable:
            self._registrar.change()

    def restore_state(self, state: bytes) -> tuple[list[QueueStart], Iterator[None]]:
        """Take over the state of a snapshot that took the log's place."""
        _log.info("event=state_restored_from_a_snapshot bytes=%d", len(state))
        return self._mode.restore(state)

    def on_writable(self, writable: bool, term: int) -> None:  # noqa: FBT001 - the store's event
        """Take or lose the leadership: other broker id, and nobody waits here in vain."""
        _log.info(
            "event=leadership term=%d writable=%s broker_id=%d",
            term,
            writable,
            self._mode.broker_id,
        )
        self._services.leader.on_writable(writable, term)
        self._room.on_progress()
        self._registrar.change()

    def on_hand_over(self) -> None:
        """Have the services of the leader propose what they hold back."""
        self._services.leader.before_hand_over()

    # Private

    def _start_clockwork(self) -> None:
        pull = self._processors.pull
        tend = self._tasks.tend
        HoldSweep(self.tables.held, self._core.clock, self._tasks, pull.expire)
        self._services.leader.schedule()
        tend("credentials", CREDENTIALS_MS, self._mode.credentials.refresh)
        self._access.tend()
        self._more_traffic = self._tasks.alarm(
            "traffic", lambda: attempt("traffic", self._fold_traffic)
        )
        tend("clients", CLIENT_SLICE_MS, self._tend_clients)
        self._more_locks = self._tasks.alarm("locks", lambda: attempt("locks", self._expire_locks))
        tend("locks", CLIENT_SWEEP_MS, self._expire_locks)
        self._tasks.spawn("snapshot", self._mode.saver.run())
        if self._config.clean_interval_ms:
            self._tasks.spawn("retention", self._retention.run())

    def _tend_clients(self) -> None:
        self._processors.client.expire()
        self._fold_traffic()

    def _expire_locks(self) -> None:
        if self.tables.locks.expire(self._core.clock.monotonic_ms()):
            self._more_locks.set(MORE_MS)

    def _fold_traffic(self) -> None:
        """Count the next names; many of them take many turns of the loop."""
        if self._processors.counts.fold():
            self._more_traffic.set(MORE_MS)

    def _fail(self, error: FatalError) -> None:
        """Log or store cannot go on: the process ends."""
        self._mode.on_failed()
        self._tasks.fail(error)

    def _on_client_gone(self, connection: Connection) -> None:
        attempt("the pulls of a connection", lambda: self._processors.pull.on_close(connection.id))
        self._processors.client.on_close(connection)

    def _status(self) -> dict[str, Any]:
        return {
            **self._mode.status(),
            **(self._retention.status() if self._config.clean_interval_ms else {}),
            "limits": self.tables.usage.report(),
        }


def build_retention(core: Core, mode: Mode) -> Retention:
    """Return what drops the log's old segments."""
    return Retention(
        core.config.retention_config(),
        mode.retained,
        disk_used=DiskUse(core.machine.disk, core.config.partitions).ratio,
        clock=core.clock,
        refuse=core.store.writer.refuse_messages,
    )
