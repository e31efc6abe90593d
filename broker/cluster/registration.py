"""Registration with the name servers: at start, at every change, every 30 s, and out at stop.

One task per name server sends one registration at a time, each built from the tables when it is
sent, so no older one can arrive after a newer one. ``publish`` waits until every name server that
can be reached has seen the tables as they are now: a topic is registered before the send that
created it is answered.
Source: spec/wire.md 3.2, 7.1; RocketMQ BrokerOuterAPI, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.runtime.cancel import timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ledgermq.remoting.protocol.command import RemotingCommand

_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS: Final = 3_000
RETRY_MS: Final = 500
ASK_AGAIN_S: Final = 2.0
"""Time between registrations of a slave that has no master."""
PUBLISH_TIMEOUT_MS: Final = 1_000
UNREGISTER_TIMEOUT_MS: Final = 500


class NameServerClient(Protocol):
    """What registration needs of the remoting client."""

    async def request(
        self, addr: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and return its answer."""


class _Server:
    """How far one name server is."""

    __slots__ = ("addr", "changed", "is_enough", "reachable", "rounds", "seen")

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.changed = asyncio.Event()
        #: Version of the tables in the last registration that it acknowledged.
        self.seen = 0
        self.reachable = True
        #: Whether its last answer said all that this broker needs to know.
        self.is_enough = True
        #: Set and replaced after every attempt.
        self.rounds = asyncio.Event()


class Registrar:
    """Keeps all name servers informed.

    Args:
        build: returns the registration of this moment (103).
        build_leave: returns the farewell (104).
        on_registered: takes what a name server answers; returns whether that is enough, or the
            server is to be asked again soon.
        period_ms: time between registrations without a change.
    """

    def __init__(
        self,
        servers: Sequence[str],
        client: NameServerClient,
        *,
        build: Callable[[], RemotingCommand],
        build_leave: Callable[[], RemotingCommand],
        on_registered: Callable[[Mapping[str, str]], bool],
        period_ms: int,
    ) -> None:
        self._servers = [_Server(addr) for addr in servers]
        self._client = client
        self._build = build
        self._build_leave = build_leave
        self._on_registered = on_registered
        self._period_s = period_ms / 1000
        self._version = 1
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; the first registrations leave at once."""
        self._tasks = [
            asyncio.create_task(self._serve(server), name=f"register {server.addr}")
            for server in self._servers
        ]

    def change(self) -> None:
        """Have the tables of this moment registered, without waiting."""
        self._version += 1
        for server in self._servers:
            server.changed.set()

    async def publish(self, timeout_ms: int = PUBLISH_TIMEOUT_MS) -> None:
        """Register the tables of this moment and wait for the reachable name servers."""
        self.change()
        version = self._version
        waits = [self._seen(server, version) for server in self._servers]
        try:
            async with timeout(timeout_ms / 1000):
                await asyncio.gather(*waits)
        except TimeoutError:
            _log.warning("event=registration_slow timeout_ms=%d action=continue", timeout_ms)

    def connection_lost(self, addr: str) -> None:
        """React to a lost connection: the name server has forgotten us."""
        for server in self._servers:
            if server.addr == addr:
                server.changed.set()

    async def stop(self) -> None:
        """End the tasks and take this broker out of the routes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(
            *[self._leave(server) for server in self._servers if server.seen],
            return_exceptions=True,
        )

    async def _serve(self, server: _Server) -> None:
        while True:
            server.changed.clear()
            await self._register(server)
            rounds, server.rounds = server.rounds, asyncio.Event()
            rounds.set()
            pause = self._period_s if server.is_enough else min(self._period_s, ASK_AGAIN_S)
            if not server.reachable:
                pause = min(pause, RETRY_MS / 1000)
                # Changes do not hurry attempts at a server that does not answer.
                await asyncio.sleep(pause)
                continue
            try:
                async with timeout(pause):
                    await server.changed.wait()
            except TimeoutError:
                continue

    async def _register(self, server: _Server) -> None:
        version = self._version
        try:
            response = await self._client.request(server.addr, self._build(), REQUEST_TIMEOUT_MS)
            if response.code != ResponseCode.SUCCESS:
                raise_with = f"code={response.code} remark={response.remark}"
                self._failed(server, raise_with)
                return
        except RemotingError as error:
            self._failed(server, str(error))
            return
        if not server.reachable or not server.seen:
            _log.info("event=registered namesrv=%s", server.addr)
        server.reachable = True
        server.seen = version
        server.is_enough = self._on_registered(response.ext_fields)

    def _failed(self, server: _Server, reason: str) -> None:
        if server.reachable:
            _log.warning("event=registration_failed namesrv=%s reason=%s", server.addr, reason)
        server.reachable = False

    async def _seen(self, server: _Server, version: int) -> None:
        while server.reachable and server.seen < version:
            await server.rounds.wait()

    async def _leave(self, server: _Server) -> None:
        try:
            await self._client.request(server.addr, self._build_leave(), UNREGISTER_TIMEOUT_MS)
        except RemotingError as error:
            _log.info("event=unregistration_failed namesrv=%s reason=%s", server.addr, error)
