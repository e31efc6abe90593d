"""Connections to any number of peers, one per address, made when first needed."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import ConnectFailed, LocalProtocolError
from ledgermq.remoting.protocol.hosts import parse_address
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.dialling import dial, give_up_after
from ledgermq.remoting.transport.dispatch import Handler, RequestDispatcher
from ledgermq.remoting.transport.server import close_all
from ledgermq.remoting.transport.shares import slowest_sender
from ledgermq.runtime.cancel import Timeout, cancel_requests, timeout

_log = logging.getLogger(__name__)

Sign = Callable[[RemotingCommand], RemotingCommand]
NO_HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType({})


class RemotingClient(RequestDispatcher):
    """Sends requests to addresses; serves the requests that peers send back by ``handlers``.

    ``on_disconnect`` gets the address and the connection that is gone. ``source_address`` is the
    local address that connections leave from. ``sign`` has the last word on each request that is
    sent as a command; what is sent as buffers is signed by whoever wrote them. With ``tls`` all
    connections carry it.
    """

    def __init__(
        self,
        *,
        config: TransportConfig | None = None,
        handlers: Mapping[int, Handler] = NO_HANDLERS,
        on_disconnect: Callable[[str, Connection], None] | None = None,
        source_address: str | None = None,
        sign: Sign | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config or TransportConfig()
        super().__init__(handlers, {}, self._config.requests_in_progress_max)
        self._on_disconnect = on_disconnect
        self._source_address = source_address
        self._sign = sign
        self._tls = tls
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._open: dict[int, Connection] = {}
        self._closed = False
        self._receive_bytes = 0

    def maybe_connection(self, addr: str) -> Connection | None:
        """Return the open connection to ``host:port`` if there is one."""
        connection = self._connections.get(addr)
        return None if connection is None or connection.closed else connection

    async def connect(self, addr: str) -> Connection:
        """Return the connection to ``host:port``, making it if need be.

        Callers that ask at the same time share one attempt. Errors: `ConnectFailed`.
        """
        connection = self._connections.get(addr)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise ConnectFailed(f"{addr}: the client is closed")
        task = self._connecting.get(addr)
        if task is None:
            task = asyncio.ensure_future(self._connect(addr))
            self._connecting[addr] = task
            task.add_done_callback(lambda done: self._on_connected(addr, done))
        known = cancel_requests()
        try:
            # One caller that gives up must not take the attempt from the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and cancel_requests() == known:
                raise ConnectFailed(f"{addr}: the client was closed") from None
            raise

    async def request(
        self, addr: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and return its response, whatever its code.

        ``timeout_ms`` covers connecting and answering. Errors: `ConnectFailed` (nothing was sent),
        `RequestTimeout`, `ConnectionLost`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        connection = self.maybe_connection(addr)
        if connection is None:
            try:
                async with Timeout(deadline):
                    connection = await self.connect(addr)
            except TimeoutError as error:
                raise ConnectFailed(f"{addr}: no connection within {timeout_ms} ms") from error
        left_ms = max(1, int((deadline - loop.time()) * 1000))
        return await connection.request(command, left_ms)

    async def oneway(self, addr: str, command: RemotingCommand) -> None:
        """Send a request that wants no answer. Errors: `ConnectFailed`."""
        (await self.connect(addr)).send_oneway(command)

    async def close(self) -> None:
        """Close all connections; requests under way fail with `ConnectionLost`."""
        self._closed = True
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await close_all(self._open)

    def on_open(self, connection: Connection) -> None:
        """Remember the connection until it is gone."""
        self._open[connection.id] = connection
        self._receive_bytes += connection.receive_bytes

    def on_closed(self, connection: Connection) -> None:
        """Forget the connection, and what it read into."""
        super().on_closed(connection)
        if self._open.pop(connection.id, None) is not None:
            self._receive_bytes -= connection.receive_bytes

    def on_receive_bytes(self, connection: Connection, more: int) -> None:
        """Count what is read into: many servers that send half a frame each are too much."""
        if connection.id not in self._open:
            return
        self._receive_bytes += more
        most = self._config.receive_bytes_max
        if self._receive_bytes > most and more > 0:
            for one in list(self._open.values()):  # nobody sweeps the idle ones of a client
                one.shrink()
        if self._receive_bytes > most and more > 0:
            slowest = slowest_sender(self._open.values())
            taken = self._receive_bytes
            self.on_closed(slowest)
            slowest.abort(f"{taken} bytes are taken by frames that come in")

    async def _connect(self, addr: str) -> Connection:
        try:
            host, port = parse_address(addr)
            async with timeout(self._config.connect_timeout_ms / 1000):
                transport, connection = await dial(
                    self._make_connection,
                    host,
                    port,
                    source_address=self._source_address,
                    tls=self._tls,
                )
                give_up_after(transport, self._config.dead_after_ms)
        except (OSError, ValueError, LocalProtocolError) as error:
            # A TimeoutError is an OSError; a host that no name server could have is a ValueError.
            why = str(error) or "timed out"
            raise ConnectFailed(f"cannot connect to {addr}: {why}") from error
        connection.on_close.append(lambda gone: self._forget(addr, gone))
        if connection.closed:
            raise ConnectFailed(f"{addr} closed the connection at once")
        self._connections[addr] = connection
        return connection

    def _make_connection(self) -> Connection:
        if self._sign is None:
            return Connection(self, self._config, server_side=False)
        return _SigningConnection(self, self._config, self._sign)

    def _on_connected(self, addr: str, task: "asyncio.Task[Connection]") -> None:
        self._connecting.pop(addr, None)
        if not task.cancelled() and task.exception() is not None:
            _log.debug("event=connect_failed addr=%s error=%s", addr, task.exception())

    def _forget(self, addr: str, connection: Connection) -> None:
        if self._connections.get(addr) is connection:
            del self._connections[addr]
        if self._on_disconnect is not None:
            self._on_disconnect(addr, connection)


class _SigningConnection(Connection):
    """Signs the requests that it is given as commands."""

    __slots__ = ("_sign",)

    def __init__(self, dispatcher: RemotingClient, config: TransportConfig, sign: Sign) -> None:
        super().__init__(dispatcher, config, server_side=False)
        self._sign = sign

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """As `Connection.request`."""
        return await super().request(self._sign(command), timeout_ms)

    def send_oneway(self, command: RemotingCommand) -> None:
        """As `Connection.send_oneway`."""
        super().send_oneway(self._sign(command))
