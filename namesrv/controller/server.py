"""A controller as it runs beside a name server: the port, what is served there, its lifetime."""

import logging
from typing import Final

from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.credentials import CredentialStore, SecuritySettings
from ledgermq.remoting.transport.requests import Requests
from ledgermq.remoting.transport.server import RemotingServer
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.rng import Rng
from ledgermq.runtime.tasks import Supervisor
from namesrv.controller.config import ControllerConfig
from namesrv.controller.links import Links
from namesrv.controller.node import Controller
from namesrv.controller.processor import ControllerProcessor
from namesrv.guard import Guard

_log: Final = logging.getLogger(__name__)

CREDENTIALS_MS: Final = 5_000
"""How often keys and certificates are looked at for changes."""


class ControllerServer:
    """One controller that can be started and stopped in any event loop.

    Args:
        config: its own settings.
        security: where keys are: those of name servers and brokers.
        machine: clock, disk and chance.
        connections_max: connections held at the same time.
    """

    def __init__(
        self,
        config: ControllerConfig,
        security: SecuritySettings,
        machine: tuple[Clock, Disk, Rng],
        connections_max: int,
    ) -> None:
        clock, disk, rng = machine
        self._config = config
        self._tasks = Supervisor()
        self._credentials = CredentialStore(security, config.own_id, clock.wall_ms)
        self.controller = Controller(config, clock, disk, self._tasks)
        links = Links(config, self._credentials, clock, self._tasks, rng.randint(0, 2**62 - 1))
        self._links = links
        guard = Guard(
            lambda: self._credentials.trust, clock.wall_ms, trusts_machine=False,
            audience=config.audience,
        )  # fmt: skip
        self.requests = Requests(guard.wrap)
        self.requests.add(links, ControllerProcessor(self.controller, clock))
        self._server = RemotingServer(
            name="controller",
            handlers=self.requests.commands,
            config=TransportConfig(connections_max=connections_max),
            clock=clock,
            on_close=self._on_close,
        )

    async def start(self) -> None:
        """Read the files, listen, dial the others. Errors: `FatalError`."""
        self._credentials.load()
        self.controller.start(self._links)
        await self._server.start(self._config.bind_address, self._config.port)
        self._tasks.every("credentials", CREDENTIALS_MS, self._credentials.refresh)
        _log.info(
            "event=controller_listens addr=%s:%d", self._config.bind_address, self._config.port
        )

    async def stop(self) -> None:
        """Close everything."""
        await self._tasks.stop()
        await self._server.stop()
        await self.controller.stop()

    def _on_close(self, connection: Connection) -> None:
        self.controller.on_connection_closed(connection.id)
