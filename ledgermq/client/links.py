"""Connections to the leaders of broker groups, by broker name.

A link is a connection with the counters that show whether it stalls. It holds until the route
names another leader, the connection breaks, or it is dropped. Concurrent connects to one address
are one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from ledgermq.client.errors import NoRoute
from ledgermq.client.route import RouteCache
from ledgermq.remoting.protocol.errors import ConnectFailed
from ledgermq.remoting.transport.client import RemotingClient
from ledgermq.remoting.transport.connection import Connection
from ledgermq.runtime.cancel import cancel_requests, timeout
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)


class Link:
    """A connection to a leader, with the number of requests that await its answer."""

    __slots__ = (
        "addr", "broker_name", "connection", "pending", "t_progress_ns", "takes_batches",
    )  # fmt: skip

    def __init__(self, broker_name: str, addr: str, connection: Connection) -> None:
        self.broker_name = broker_name
        self.addr = addr
        self.connection = connection
        self.pending = 0
        self.t_progress_ns = 0
        """When the first pending request left or the last answer came (monotonic)."""
        self.takes_batches = True
        """False once the broker has said that it does not know the request."""


class Links:
    """The links of one producer."""

    def __init__(self, client: RemotingClient, routes: RouteCache, clock: Clock) -> None:
        self._client = client
        self._routes = routes
        self._clock = clock
        self._by_name: dict[str, Link] = {}
        self._retired: list[Link] = []

    def maybe_link(self, broker_name: str) -> Link | None:
        """Return the open link to the leader of ``broker_name``, if there is one."""
        link = self._by_name.get(broker_name)
        if link is None or link.connection.closed:
            return None
        return link

    async def connect(self, broker_name: str, timeout_ms: int) -> Link:
        """Return an open link, connecting if need be.

        Errors: ``NoRoute`` while no leader is known; ``ConnectFailed``, also when connecting takes
        longer than ``timeout_ms``.
        """
        link = self.maybe_link(broker_name)
        if link is not None:
            return link
        known = cancel_requests()
        try:
            async with timeout(timeout_ms / 1000):
                addr, connection = await self._reach(broker_name)
        except TimeoutError as error:
            text = f"no connection to the leader of {broker_name!r} within {timeout_ms} ms"
            raise ConnectFailed(text) from error
        except asyncio.CancelledError:
            if cancel_requests() > known:
                raise
            raise ConnectFailed("the client was stopped") from None  # Nobody cancelled the caller.
        existing = self._by_name.get(broker_name)
        if existing is not None and existing.connection is connection:
            return existing
        if existing is not None and not existing.connection.closed:
            self._retired.append(existing)  # What it owes may stall.
        link = Link(broker_name, addr, connection)
        self._by_name[broker_name] = link
        return link

    async def _reach(self, broker_name: str) -> tuple[str, Connection]:
        """Connect to the leader; to the next one if it moves meanwhile.

        The route names a leader once: nobody would come back to a link that was made too late. So
        what is raised is of the leader that the route names now.
        """
        while True:
            addr = self._leader(broker_name)
            try:
                connection = await self._client.connect(addr)
            except ConnectFailed:
                if self._routes.master(broker_name) in {None, addr}:
                    raise
            else:
                if self._routes.master(broker_name) in {None, addr}:
                    return addr, connection

    def _leader(self, broker_name: str) -> str:
        addr = self._routes.master(broker_name)
        if addr is None:
            raise NoRoute(f"broker {broker_name!r} has no master and no leader at the moment")
        return addr

    async def connect_anew(
        self, broker_name: str, timeout_ms: int, refresh: Callable[[str, str], Awaitable[None]]
    ) -> Link:
        """Return an open link for a request that nobody will answer; errors as `connect`.

        1. A leader dies, and its connection breaks. 2. It starts again, and another one leads.
        3. We connect to it, and what it is sent it drops without a word. So ``refresh`` reads the
        route behind a link that broke, and where nobody leads or the leader is out of reach; it is
        given the name and the address that failed.
        """
        link = self._by_name.get(broker_name)
        if link is not None and link.connection.closed:
            await refresh(broker_name, link.addr)
        try:
            return await self.connect(broker_name, timeout_ms)
        except (ConnectFailed, NoRoute):
            addr = self._routes.master(broker_name)
            await refresh(broker_name, addr or "")
            if self._routes.master(broker_name) in {None, addr}:
                raise
        return await self.connect(broker_name, timeout_ms)

    def on_route_change(self, broker_names: Iterable[str]) -> None:
        """Forget links whose address is no longer the leader's; what they carry goes on."""
        for name in sorted(broker_names):
            link = self._by_name.get(name)
            if link is not None and self._routes.master(name) not in {None, link.addr}:
                _log.info("broker=%s event=leader_moved from=%s", name, link.addr)
                self._retired.append(self._by_name.pop(name))

    def stall_free_ms(self, now_ns: int, stall_ms: int) -> float:
        """Return for how long no link can be among the `stalled`; 0 if one may be already.

        A link that owes nothing now cannot have stalled before ``stall_ms`` from now.
        """
        links = (*self._by_name.values(), *self._retired)
        owed_ns = min((link.t_progress_ns for link in links if link.pending), default=now_ns)
        return max(0.0, stall_ms - (now_ns - owed_ns) / 1_000_000)

    def stalled(self, now_ns: int, stall_ms: int) -> list[Link]:
        """Return the open links that owe answers and have given none for ``stall_ms``."""
        limit_ns = now_ns - stall_ms * 1_000_000
        self._retired = [
            link for link in self._retired if link.pending and not link.connection.closed
        ]
        return [
            link
            for link in (*self._by_name.values(), *self._retired)
            if link.pending and link.t_progress_ns < limit_ns and not link.connection.closed
        ]

    @property
    def addrs(self) -> list[str]:
        """Addresses of the open links."""
        links = self._by_name.values()
        return sorted({link.addr for link in links if not link.connection.closed})
