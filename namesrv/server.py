"""One name server: the listening socket, the tables behind it, the scan for silent brokers."""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.transport.config import TransportConfig, connections_within
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.credentials import CredentialStore
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.disk import Disk, RealDisk
from ledgermq.runtime.process import freeze_gc, raise_open_files_limit, run_main
from ledgermq.runtime.rng import SystemRng
from ledgermq.runtime.tasks import Supervisor
from namesrv.config import NamesrvConfig
from namesrv.guard import Guard
from namesrv.kv_config import KvConfig
from namesrv.processor import Processor
from namesrv.route_table import EXPIRY_MS, RouteTable

if TYPE_CHECKING:
    from namesrv.controller.server import ControllerServer

_log = logging.getLogger(__name__)

CREDENTIALS_MS: Final = 5_000
"""How often keys and certificates are looked at for changes."""
STALL_MS: Final = 5_000
"""A scan that is later than this says that the process, or its machine, stood still."""


class NameServer:
    """A name server that can be started and stopped in any event loop."""

    def __init__(
        self, config: NamesrvConfig, clock: Clock, disk: Disk, expiry_ms: int = EXPIRY_MS
    ) -> None:
        self._config = config
        self._clock = clock
        self._tasks = Supervisor()
        self.table = RouteTable(expiry_ms)
        self._scanned_ms = clock.monotonic_ms()
        self._broom = self._tasks.alarm("topics of brokers that are gone", self._sweep)
        self.table.rows.on_abandoned = partial(self._broom.set, 0)
        self._scan_again = self._tasks.alarm("more silent brokers", self._scan)
        self._kv = KvConfig(disk, config.kv_config_path)
        self._credentials = CredentialStore(config.security, "namesrv", clock.wall_ms)
        processor = Processor(config, self.table, self._kv, clock, self._find)
        guard = Guard(lambda: self._credentials.trust, clock.wall_ms)
        self._server = RemotingServer(
            name="namesrv",
            handlers=processor.requests(guard).commands,
            config=TransportConfig(connections_max=config.connections_max),
            clock=clock,
            on_close=self._on_close,
        )
        self._server.use_tls(config.server_tls())

    async def start(self) -> int:
        """Listen; return the port. Errors: `FatalError` if that is impossible."""
        self._kv.load()
        self._credentials.load()
        port = await self._server.start(self._config.bind_address, self._config.listen_port)
        self._tasks.every("scan", self._config.scan_interval_ms, self._scan)
        self._tasks.every("credentials", CREDENTIALS_MS, self._credentials.refresh)
        _log.info("event=namesrv_started addr=%s:%d", self._config.bind_address, port)
        return port

    async def stop(self) -> None:
        """Close everything."""
        await self._tasks.stop()
        await self._server.stop()

    def _find(self, connection_id: int) -> Connection | None:
        connection = self._server.connections.get(connection_id)
        return None if connection is None or connection.closed else connection

    def _on_close(self, connection: Connection) -> None:
        for addr in self.table.on_connection_closed(connection.id):
            _log.info("event=broker_removed addr=%s reason=connection_closed", addr)

    def _sweep(self) -> None:
        if self.table.rows.sweep():
            self._broom.set(0)

    def _scan(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - self._scanned_ms - self._config.scan_interval_ms
        self._scanned_ms = now_ms
        if late_ms > STALL_MS:
            _log.warning("event=stood_still ms=%d", late_ms)
            self.table.excuse(late_ms, now_ms)
        gone = self.table.expire(now_ms)
        if gone:
            self._scan_again.set(0)  # there may be more
        for addr, connection_id in gone:
            _log.warning("event=broker_removed addr=%s reason=silent", addr)
            connection = self._server.connections.get(connection_id)
            if connection is not None:
                connection.close("broker expired")


def _make_controller(config: NamesrvConfig) -> "ControllerServer | None":
    """Return the controller beside the name server, None without one. Errors: `FatalError`."""
    settings = config.controller
    if settings is None:
        return None
    # The library under it is slow to import, and most name servers have no controller.
    from namesrv.controller.server import ControllerServer  # noqa: PLC0415 - see above

    machine = SystemClock(), RealDisk(), SystemRng()
    return ControllerServer(settings, config.security, machine, config.connections_max)


def run(config: NamesrvConfig) -> int:
    """Run a name server until a signal comes; return the exit code."""

    async def main() -> None:
        limit = connections_within(raise_open_files_limit(), config.connections_max)
        limited = replace(config, connections_max=limit)
        server = NameServer(limited, SystemClock(), RealDisk())
        controller = _make_controller(limited)
        try:
            await server.start()
            if controller is not None:
                await controller.start()
            freeze_gc()
            await asyncio.get_running_loop().create_future()
        finally:
            if controller is not None:
                await controller.stop()
            await server.stop()

    return run_main(main)
