"""A listening socket whose connections carry TLS: all of them, or those that begin with it.

Each connection has a bounded time to show what it is, and so many may be at that: when there are
more, the oldest of the address that has most of them goes. A handshake takes the loop a millisecond
and its client almost nothing, so only so many begin in a second, and addresses take turns at them.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.transport.flows import Flows
from ledgermq.remoting.transport.limits import HANDSHAKE_MS, HANDSHAKES_MAX, HANDSHAKES_PER_S
from ledgermq.remoting.transport.listening import SocketListener
from ledgermq.runtime.cancel import timeout

_log = logging.getLogger(__name__)

HANDSHAKE_BYTE: Final = 0x16
"""How TLS begins; a frame of ours begins with the first byte of its length, which is 0 or 1."""
COMPLAIN_S: Final = 10.0


class HandshakeTurns:
    """Lets handshakes begin one by one, ``per_s`` of them in a second, address by address.

    What was not used so far is saved up, as much as a tenth of a second's: clients that come back
    together after an outage do not wait for each other.
    """

    def __init__(self, per_s: int = HANDSHAKES_PER_S) -> None:
        self._gap_s = 1 / per_s
        self._saved_s = 0.1
        self._next_s = 0.0
        self._waiting = Flows[asyncio.Future[None]]()
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, address: str) -> None:
        """Return when a handshake with this address may begin."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        party = party_of(address)
        self._waiting.add(party, turn)
        if self._timer is None:
            self._begin()
        try:
            await turn
        finally:  # who is given up leaves nothing: others may keep its address from its turns
            self._waiting.take_last(party, lambda one: one is turn)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now_s = loop.time()
        self._next_s = max(self._next_s, now_s - self._saved_s)
        while self._waiting:
            if self._next_s > now_s:
                self._timer = loop.call_at(self._next_s, self._begin)
                return
            turn = self._waiting.pop()
            if not turn.done():  # its connection has not been given up
                turn.set_result(None)
                self._next_s += self._gap_s


class Contexts(Protocol):
    """What TLS needs, of the moment; a `ledgermq.remoting.transport.tls.ServerTls`."""

    @property
    def is_enforced(self) -> bool:
        """Whether nobody may speak without."""
        ...

    def context(self, now_s: float) -> ssl.SSLContext:
        """Return what a new connection needs."""
        ...


class SecureListener:
    """Accepts until it is closed; ``factory`` makes the protocol of a connection."""

    def __init__(
        self, tls: Contexts, factory: Callable[[], asyncio.BufferedProtocol], backlog: int
    ) -> None:
        self._tls = tls
        self._factory = factory
        self._listener = SocketListener(self._take, backlog)
        self._turns = HandshakeTurns()
        self._pending: dict[asyncio.Task[None], str] = {}
        """Who has not shown yet what it is, with its address; the oldest first."""
        self._complained_s = -COMPLAIN_S
        self._refused = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Errors: `OSError`."""
        return await self._listener.start(host, port)

    async def close(self) -> None:
        """Accept no more, and end what has not shown what it is."""
        self._listener.close()
        tasks = list(self._pending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, taken: socket.socket, host: str) -> None:
        if len(self._pending) >= HANDSHAKES_MAX:
            most = Counter(self._pending.values()).most_common(1)[0][0]
            oldest = next(task for task, one in self._pending.items() if one == most)
            del self._pending[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._secure(taken, host))
        self._pending[task] = party_of(host)
        task.add_done_callback(partial(self._on_done, taken))

    def _on_done(self, taken: socket.socket, task: asyncio.Task[None]) -> None:
        self._pending.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            taken.close()
        if error is not None:
            _log.error("event=handshake_failed", exc_info=error)

    async def _secure(self, taken: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with timeout(HANDSHAKE_MS / 1000):
                first = await _first_byte(taken)
                if first < 0:
                    taken.close()
                    return
                is_tls = first == HANDSHAKE_BYTE or self._tls.is_enforced
                if is_tls:
                    await self._turns.wait(host)
                context = self._tls.context(loop.time()) if is_tls else None
                await loop.connect_accepted_socket(self._factory, taken, ssl=context)
        except (OSError, TimeoutError) as error:
            taken.close()
            self._complain(host, error)

    def _complain(self, host: str, error: Exception) -> None:
        """Tell of a connection that came to nothing; not more often than now and then."""
        self._refused += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._complained_s >= COMPLAIN_S:
            why = str(error) or f"no handshake within {HANDSHAKE_MS:d} ms"
            _log.warning("event=tls_refused from=%s count=%d error=%r", host, self._refused, why)
            self._complained_s, self._refused = now_s, 0


async def _first_byte(taken: socket.socket) -> int:
    """Wait for the first byte and leave it where it is; -1: the connection ended before."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(taken, on_readable)
    try:
        await readable
    finally:
        loop.remove_reader(taken)
    found = taken.recv(1, socket.MSG_PEEK)
    return found[0] if found else -1
