"""A listening socket and its connections."""

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from remoting.transport.config import TransportConfig
from remoting.transport.connection import IDLE_SWEEPS, Connection, HotHandler
from remoting.transport.dispatch import Handler, RequestDispatcher
from runtime.errors import FatalError
from runtime.tasks import attempt

_log = logging.getLogger(__name__)

NO_HOT_HANDLERS: Final[Mapping[int, HotHandler]] = MappingProxyType({})


class RemotingServer(RequestDispatcher):
    """Accepts connections and serves their requests by code."""

    def __init__(
        self,
        *,
        name: str,
        handlers: Mapping[int, Handler],
        hot: Mapping[int, HotHandler] = NO_HOT_HANDLERS,
        config: TransportConfig | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.name = name
        self._config = config or TransportConfig()
        super().__init__(handlers, hot, self._config.requests_in_progress_max)
        self._on_close = on_close
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.connections: dict[int, Connection] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, which the system chooses if ``port`` is 0.

        Errors: `FatalError` (exit code 2) naming host and port when it cannot be bound.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._accept, host or None, port, backlog=self._config.backlog
            )
        except OSError as error:
            why = "is in use by another process" if error.errno == errno.EADDRINUSE else str(error)
            raise FatalError(f"{self.name}: cannot listen on {host}:{port}: {why}") from error
        self._arm_sweep()
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, cancel what handlers are awaiting, close all connections."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = [task for one in self.connections.values() for task in one.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await close_all(self.connections)

    def on_open(self, connection: Connection) -> None:
        """Take the connection, or close it when there are too many."""
        if len(self.connections) >= self._config.connections_max or self._server is None:
            connection.abort(f"{self.name} has {len(self.connections)} connections, its limit")
            return
        self.connections[connection.id] = connection

    def on_closed(self, connection: Connection) -> None:
        """Forget the connection."""
        if self.connections.pop(connection.id, None) is not None and self._on_close is not None:
            attempt(f"the end of {connection}", partial(self._on_close, connection))

    def _accept(self) -> Connection:
        return Connection(self, self._config, server_side=True)

    def _arm_sweep(self) -> None:
        period_s = self._config.idle_timeout_ms / 1000 / IDLE_SWEEPS
        self._sweep = asyncio.get_running_loop().call_later(period_s, self._check_idle)

    def _check_idle(self) -> None:
        for connection in list(self.connections.values()):
            attempt("idle connections", connection.check_idle)
        self._arm_sweep()


async def close_all(connections: dict[int, Connection]) -> None:
    """Close connections and wait until they are gone; each removes itself from the dict."""
    gone = asyncio.Event()

    def check(_: Connection) -> None:
        if not connections:
            gone.set()

    for connection in list(connections.values()):
        connection.on_close.append(check)
        connection.close("stopping")
    if connections:
        await gone.wait()
