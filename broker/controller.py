"""Wires one broker together and runs its clockwork; decides nothing itself.

Start: ports and directory are checked before anything is written; then log, snapshot, store,
server, registration. Stop, in order: leave the routes, replicate the last offsets, stop the
server, save the snapshot, stop store and log.
Source: docs/architecture.md#layers; docs/adr/0002; RocketMQ BrokerController.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from broker.cluster.registration import Registrar
from broker.cluster.registration_body import register_request, signed, unregister_request
from broker.core import Core
from broker.machine import Machine
from broker.modes.plain import PlainMode
from broker.modes.raft import RaftMode
from broker.offsets.cleaning import OffsetCleaner
from broker.offsets.replication import OffsetReplicator
from broker.ports import check_port_free
from broker.processor.registered import confirm_handlers
from broker.processors import Around, build_processors
from broker.pulls.hold_sweep import HoldSweep
from broker.pulls.wake_up import WakeUp
from broker.retention.service import DiskUse, Retention
from broker.state.kinds import StateKind
from broker.state.snapshot import in_turns
from broker.tables import Tables
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.limits import CONNECTIONS_MAX, RECEIVE_BYTES_MAX, UNSENT_BYTES_MAX
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.tasks import attempt
from store.message_store import MessageStore

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from ledgermq.remoting.protocol.command import RemotingCommand
    from ledgermq.remoting.transport.config import TransportConfig
    from ledgermq.remoting.transport.connection import Connection
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.disk import Disk
    from ledgermq.runtime.rng import Rng
    from ledgermq.runtime.tasks import Supervisor
    from store.queues.start import QueueBase

_log = logging.getLogger(__name__)

OFFSET_FLUSH_MS: Final = 1_000
SNAPSHOT_MS: Final = 5_000
CLIENT_SWEEP_MS: Final = 10_000
CLIENT_SLICE_MS: Final = 2_000
OFFSET_DRAIN_MS: Final = 1_000
CREDENTIALS_MS: Final = 5_000


class BrokerController:
    """One broker; also the store's listener.

    Args:
        config: its settings.
        disk, clock, rng: the machine, or the simulator's.
        tasks: supervises everything that runs beside the loop's callbacks.
        transport: limits of the clients' connections.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        tasks: Supervisor,
        transport: TransportConfig | None = None,
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        #: What `stop` has to undo, youngest first.
        self._leave = AsyncExitStack()
        self._started = False
        #: One thread, so that a snapshot never overtakes an earlier one.
        self._writer = ThreadPoolExecutor(1, "snapshot")
        self._saving = asyncio.Lock()
        self.tables = Tables(config, clock)
        self._client = RemotingClient(
            handlers=confirm_handlers(lambda: self._broker_id),
            on_disconnect=self._on_namesrv_lost,
        )
        self._registrar = Registrar(
            config.namesrvs,
            self._client,
            build=self._registration,
            build_leave=lambda: self._signed(unregister_request(config, self._broker_id)),
            period_ms=config.register_period_ms,
        )
        self.store = MessageStore(config.store_config(), disk, clock, self, on_fatal=self._fail)
        rest = tasks.alarm("rest of the offsets", self._flush_offsets)
        self._offsets = OffsetReplicator(self.tables.offsets, self.store, rest.set)
        self.store.before_hand_over = self._offsets.flush_all
        self._cleaner = OffsetCleaner(self.tables, self.store)
        self._mode = self._make_mode(disk)
        if isinstance(self._mode, RaftMode):
            #: Only of a member of a group.
            self.node, self._compactor = self._mode.log, self._mode.compactor
        self._retention = Retention(
            config.retention_config(),
            self._mode.retained,
            disk_used=DiskUse(disk, config.partitions).ratio,
            clock=clock,
            refuse=self.store.refuse_messages,
        )
        core = Core(config, self.tables, self.store, clock, rng, tasks)
        around = Around(self._mode.guard, self._registrar, self._retention, self._status)
        self._processors = build_processors(core, around, self._mode.processors)
        self.requests = self._processors.requests
        self._wake_up = WakeUp(
            self.tables.held,
            self._processors.pull.wake,
            lambda run: asyncio.get_running_loop().call_soon(run),
        )
        self.server = RemotingServer(
            name="broker",
            handlers=self.requests.commands,
            hot=self.requests.hot,
            config=transport,
            clock=clock,
            on_close=self._on_client_gone,
        )
        usage, server = self.tables.usage, self.server
        usage.add(CONNECTIONS_MAX, lambda: len(server.connections))
        usage.add(RECEIVE_BYTES_MAX, lambda: server.receive_bytes)
        usage.add(UNSENT_BYTES_MAX, lambda: server.unsent_bytes)

    async def start(self) -> None:
        """Come up.

        Raises:
            FatalError: port in use, or a directory that is foreign, in use or damaged.
        """
        config, leave, mode = self._config, self._leave, self._mode
        await check_port_free("listenPort", config.listen_host, config.listen_port)
        await mode.check()
        leave.push_async_callback(self._client.close)
        leave.callback(mode.leave)
        mode.open()
        leave.push_async_callback(mode.log.stop)
        mode.load()
        leave.push_async_callback(self.store.stop)
        await mode.log.start()
        self.store.start()
        await mode.begin()
        leave.push_async_callback(self._save_snapshot)
        leave.push_async_callback(self._retention.settle)
        leave.push_async_callback(self._tasks.stop)
        self._start_clockwork()
        await self.server.start(config.listen_host, config.listen_port)
        leave.push_async_callback(self.server.stop)
        leave.push_async_callback(self._let_go)
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
    def server_port(self) -> int:
        """The port that clients connect to."""
        return self._config.listen_port

    async def stop(self) -> None:
        """Go down cleanly, as far as it came up: out of the routes first, nothing accepted lost."""
        await self._leave.aclose()
        self._writer.shutdown()
        if self._started:
            _log.info("event=broker_stopped id=%s", self._config.self_id)

    # StoreListener

    def on_message(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Wake the pulls that wait for a queue."""
        self._wake_up.on_message(topic, queue_id, max_offset)

    def apply_state(self, index: int, kind: str, payload: bytes) -> None:
        """Apply a replicated change."""
        if self._mode.includes(index, kind):
            return
        self.tables.state.apply(index, kind, payload)
        self._mode.on_applied(kind)
        if kind == StateKind.TOPIC.value and self.store.writable:
            self._registrar.change()

    def restore_state(self, state_index: int, state: bytes) -> list[QueueBase]:
        """Take over the state of a snapshot that took the log's place."""
        _log.info("event=state_restored_from_a_snapshot state_index=%d", state_index)
        return self._mode.restore(state)

    def on_writable(self, writable: bool, term: int) -> None:  # noqa: FBT001 - the store's event
        """Take or lose the leadership: other broker id, and nobody waits here in vain."""
        _log.info("event=office term=%d writable=%s broker_id=%d", term, writable, self._broker_id)
        if not writable:
            self.tables.offsets.drop_pending()
            self._release_pulls()
        self._registrar.change()

    # Private

    def _make_mode(self, disk: Disk) -> RaftMode | PlainMode:
        kind = RaftMode if self._config.enable_dledger else PlainMode
        machine = Machine(disk, self._clock, self._rng, self._fail)
        return kind(self._config, self.tables, self.store, machine, self._save_snapshot)

    def _start_clockwork(self) -> None:
        pull, client = self._processors.pull, self._processors.client
        every, tend, now_ms = self._tasks.every, self._tasks.tend, self._clock.monotonic_ms
        HoldSweep(self.tables.held, self._clock, self._tasks, pull.expire)
        every("offsets", OFFSET_FLUSH_MS, self._flush_offsets)
        tend("offsets without a reader", OFFSET_FLUSH_MS, self._cleaner.tick)
        tend("credentials", CREDENTIALS_MS, self._mode.credentials.refresh)
        tend("clients", CLIENT_SLICE_MS, client.expire)
        tend("locks", CLIENT_SWEEP_MS, lambda: self.tables.locks.expire(now_ms()))
        self._tasks.spawn("snapshot", self._save_snapshots())
        if self._config.clean_interval_ms:
            self._tasks.spawn("retention", self._retention.run())

    def _fail(self, error: FatalError) -> None:
        """Log or store cannot go on: the process ends."""
        self._mode.on_failed()
        self._tasks.fail(error)

    def _flush_offsets(self) -> None:
        self._offsets.flush()

    async def _let_go(self) -> None:
        """Hand over what clients entrusted to this broker."""
        if not await self._offsets.drain(OFFSET_DRAIN_MS):
            _log.warning("event=offsets_not_replicated_at_stop timeout_ms=%d", OFFSET_DRAIN_MS)
        while self._processors.pull.release():  # noqa: ASYNC110  # no event: it is the work
            await asyncio.sleep(0)  # a slice in each turn of the loop

    def _release_pulls(self) -> None:
        """Send waiting clients to the new leader, a slice in each turn of the loop."""
        if attempt("held pulls", self._processors.pull.release) and len(self.tables.held):
            asyncio.get_running_loop().call_soon(self._release_pulls)

    def _on_client_gone(self, connection: Connection) -> None:
        attempt("the pulls of a connection", lambda: self._processors.pull.on_close(connection.id))
        self._processors.client.on_close(connection)

    @property
    def _broker_id(self) -> int:
        return self._mode.broker_id

    def _registration(self) -> RemotingCommand:
        topics = self.tables.topics
        return self._signed(
            register_request(self._config, topics, self._broker_id, self._mode.term)
        )

    def _signed(self, command: RemotingCommand) -> RemotingCommand:
        nonce = "".join(f"{self._rng.randint(0, 2**31 - 1):08x}" for _ in range(4))
        credentials = self._mode.credentials.credentials
        return signed(command, credentials, self._clock.wall_ms(), nonce)

    def _on_namesrv_lost(self, addr: str, _connection: object) -> None:
        self._registrar.connection_lost(addr)

    def _status(self) -> dict[str, Any]:
        return {
            **self._mode.status(),
            **(self._retention.status() if self._config.clean_interval_ms else {}),
            "limits": self.tables.usage.report(),
        }

    async def _save_snapshots(self) -> None:
        while True:
            await self._mode.pause(SNAPSHOT_MS / 1000)
            await self._save_snapshot()

    async def _save_snapshot(self) -> None:
        # One at a time: of two that overtake each other the older would be on disk at the end.
        async with self._saving:
            await self._save_slices()

    async def _save_slices(self) -> None:
        snapshot = self._mode.snapshot
        capture = await in_turns(snapshot.capture_steps(self.store.applied_index))
        if not await self._mode.secure(capture.applied_index):
            return  # the log may lose what these tables include
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, snapshot.write, capture)
        except OSError as error:
            if error.errno not in NO_SPACE:
                message = f"cannot write a snapshot of the state: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            # Reads go on, and the log keeps what the snapshot lacks.
            _log.warning("event=snapshot_waits reason=disk_full error=%s", error)
