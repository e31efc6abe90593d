"""A listening socket and its connections."""

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from ledgermq.remoting.transport.acceptor import Acceptor
from ledgermq.remoting.transport.config import TransportConfig
from ledgermq.remoting.transport.connection import IDLE_SWEEPS, Connection, HotHandler
from ledgermq.remoting.transport.dispatch import Handler, RequestDispatcher
from ledgermq.remoting.transport.secure import SecureListener
from ledgermq.remoting.transport.shares import (
    ByAddress,
    one_to_close,
    slowest_reader,
    slowest_sender,
    spare_ones,
)
from ledgermq.remoting.transport.tls import ServerTls
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import attempt

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
        clock: Clock | None = None,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.name = name
        self._tls: ServerTls | None = None
        self._secure: list[SecureListener] = []
        self._config = config or TransportConfig()
        super().__init__(handlers, hot, self._config.requests_in_progress_max, clock)
        self._on_close = on_close
        self._server: asyncio.Server | None = None
        self._second: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None
        self._is_open = False
        self._sweep: asyncio.TimerHandle | None = None
        self.connections: dict[int, Connection] = {}
        self._by_address = ByAddress[Connection]()
        self._spare: list[Connection] | None = None
        """Who may go for others, as of the last sweep; None until somebody asks."""
        self._leaving: dict[int, Connection] = {}
        """Dropped, and not gone yet."""
        self.receive_bytes = 0
        """Bytes of the buffers that all connections read into."""
        self._unsent: dict[int, int] = {}
        self._sending: dict[Connection, int] = {}
        """What waited to be sent when it was looked at last, of those for which it was much."""
        self._sending_bytes = 0

    def use_tls(self, tls: ServerTls | None) -> None:
        """Let connections carry TLS, all or some of them; to be called before `start`."""
        self._tls = tls

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, which the system chooses if ``port`` is 0.

        Errors: `FatalError` (exit code 2) naming host and port when it cannot be bound.
        """
        loop = asyncio.get_running_loop()
        self._is_open = True
        try:
            if self._tls is not None:
                bound = await self._listen_securely(self._tls, host, port)
                self._arm_sweep()
                return bound
            self._server = await loop.create_server(
                self._accept, host or None, port, backlog=self._config.backlog
            )
        except OSError as error:
            self._is_open = False
            why = "is in use by another process" if error.errno == errno.EADDRINUSE else str(error)
            raise FatalError(f"{self.name}: cannot listen on {host}:{port}: {why}") from error
        self._acceptor = Acceptor(self._server, self._accept)
        self._arm_sweep()
        return int(self._server.sockets[0].getsockname()[1])

    async def _listen_securely(self, tls: ServerTls, host: str, port: int) -> int:
        listener = SecureListener(tls, self._accept, self._config.backlog)
        bound = await listener.start(host, port)
        self._secure.append(listener)
        return bound

    async def listen_also(self, host: str, port: int) -> bool:
        """Take connections at a second port as well; False if it cannot be bound."""
        loop = asyncio.get_running_loop()
        try:
            if self._tls is not None:
                await self._listen_securely(self._tls, host, port)
                return True
            self._second = await loop.create_server(self._accept, host or None, port)
        except OSError as error:
            _log.warning("event=no_second_port server=%s port=%d error=%s", self.name, port, error)
            return False
        return True

    async def stop(self) -> None:
        """Stop listening, cancel what handlers are awaiting, close all connections."""
        if not self._is_open:
            return
        self._is_open = False
        for listener in self._secure:
            await listener.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._second is not None:
            self._second.close()
            self._second = None
        if self._acceptor is not None:
            await self._acceptor.close()
        if self._sweep is not None:
            self._sweep.cancel()
        await self._cancel_requests()
        await close_all(self.connections)
        await self._cancel_requests()  # those that came meanwhile

    async def _cancel_requests(self) -> None:
        """Cancel what handlers are awaiting, also for connections that are gone."""
        tasks = [*self._left, *(task for one in self.connections.values() for task in one.tasks)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_open(self, connection: Connection) -> None:
        """Take the connection; when there are too many, one goes, see `shares`."""
        if self._acceptor is not None:
            self._acceptor.on_accepted()
        full = len(self.connections) >= self._config.connections_max
        if full and self._is_open:
            closed = one_to_close(self._by_address, connection, self._spare_one) or connection
            reason = f"{self.name} has {len(self.connections)} connections, its limit"
            self._drop(closed, reason)
        if not connection.closed and self._is_open:
            self.connections[connection.id] = connection
            self._by_address.add(connection)
            self.receive_bytes += connection.receive_bytes
        else:
            connection.abort(f"{self.name} takes no connection")

    def _spare_one(self) -> Connection | None:
        """Return a connection that nobody has used for long, of any address."""
        if self._spare is None:
            self._spare = spare_ones(self.connections.values())
        while self._spare:
            one = self._spare.pop()
            if one.id in self.connections and not one.saw_frame:
                return one
        return None

    def on_receive_bytes(self, connection: Connection, more: int) -> None:
        """Count what is read into; when it is too much, a slow sender goes."""
        if connection.id not in self.connections:
            return
        self.receive_bytes += more
        if self.receive_bytes > self._config.receive_bytes_max and more > 0:
            slowest = slowest_sender(self.connections.values())
            self._drop(slowest, f"{self.receive_bytes} bytes are taken by frames that come in")

    def on_unsent(self, connection: Connection, unsent: int) -> None:
        """Count what waits for peers; when it is too much, the slowest goes."""
        if connection.id not in self.connections:
            return
        self._sending_bytes += unsent - self._sending.get(connection, 0)
        self._sending[connection] = unsent
        if unsent > self._config.write_pause_bytes:
            self._count_unread(connection, unsent)
        if self._sending_bytes > self._config.sending_bytes_max:
            self._end_slowest()

    def _end_slowest(self) -> None:
        """Look again what waits; close the slowest if it is still too much."""
        self._sending = {one: size for one in self._sending if (size := one.buffered_bytes)}
        self._sending_bytes = total = sum(self._sending.values())
        if total > self._config.sending_bytes_max:
            self._drop(slowest_reader(self._sending), f"{total} bytes wait to be sent")

    def _count_unread(self, connection: Connection, unsent: int) -> None:
        """Count what waits for peers that do not read; when it is too much, the slowest goes."""
        self._unsent[connection.id] = unsent
        if sum(self._unsent.values()) <= self._config.unsent_bytes_max:
            return
        self._unsent = {
            number: one.unsent_bytes
            for number in self._unsent
            if (one := self.connections.get(number)) is not None and one.slow
        }
        total = sum(self._unsent.values())
        if total > self._config.unsent_bytes_max:
            most = max(self._unsent, key=self._unsent.__getitem__)
            self._drop(self.connections[most], f"{total} bytes wait for peers that do not read")

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for peers that do not read."""
        return sum(one.unsent_bytes for one in self.connections.values() if one.slow)

    @property
    def sending_bytes(self) -> int:
        """Bytes that wait for peers for which many do, whether they read or not."""
        return sum(one.buffered_bytes for one in self._sending)

    def _drop(self, connection: Connection, reason: str) -> None:
        """Close a connection so that others can be served."""
        connection.abort(reason)
        self._leave(connection)

    def _leave(self, connection: Connection) -> bool:
        """Count a connection no more; it says that it is gone in a later turn of the loop."""
        if self.connections.pop(connection.id, None) is None:
            return False
        self._by_address.remove(connection)
        self.receive_bytes -= connection.receive_bytes
        self._unsent.pop(connection.id, None)
        self._sending_bytes -= self._sending.pop(connection, 0)
        self._leaving[connection.id] = connection
        return True

    def on_closed(self, connection: Connection) -> None:
        """Forget the connection."""
        super().on_closed(connection)
        self._leave(connection)
        if self._leaving.pop(connection.id, None) is not None and self._on_close is not None:
            attempt(f"the end of {connection}", partial(self._on_close, connection))

    def _accept(self) -> Connection:
        return Connection(self, self._config, server_side=True)

    def _arm_sweep(self) -> None:
        period_s = self._config.idle_timeout_ms / 1000 / IDLE_SWEEPS
        self._sweep = asyncio.get_running_loop().call_later(period_s, self._check_idle)

    def _check_idle(self) -> None:
        for connection in list(self.connections.values()):
            attempt("idle connections", connection.check_idle)
        self._spare = None
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
