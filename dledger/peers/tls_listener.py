"""The peer port where links carry TLS: each connection is counted before its handshake begins.

(asyncio's server hands a TLS connection over once it is proven, and neither tells of those that are
not, nor lets the certificate be exchanged.)
"""

import asyncio
import socket
from functools import partial
from typing import Final

from dledger.codec.handshake import NotProven
from dledger.peers.inbound import HANDSHAKE_S, Inbound, Owner
from ledgermq.remoting.transport.listening import SocketListener
from ledgermq.runtime.cancel import timeout

BACKLOG: Final = 128


class TlsListener:
    """Accepts on one address until it is closed."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._listener = SocketListener(self._take, BACKLOG)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen. Errors: `OSError`."""
        await self._listener.start(host, port)

    def _take(self, accepted: socket.socket, host: str) -> None:
        inbound = Inbound(self._owner, host)
        loop = asyncio.get_running_loop()
        task = inbound.securing = loop.create_task(self._secure(inbound, accepted))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_secured, inbound, accepted))
        self._owner.on_opened(inbound)

    def _on_secured(
        self, inbound: Inbound, accepted: socket.socket, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        inbound.securing = None  # or the two hold each other, and nobody looks for that for hours
        if not inbound.is_connected:
            accepted.close()
            self._owner.on_closed(inbound)

    async def _secure(self, inbound: Inbound, accepted: socket.socket) -> None:
        """Let TLS prove who is there; `Inbound.connection_made` goes on then."""
        loop = asyncio.get_running_loop()
        try:
            context = self._owner.door.context(is_server=True)
            async with timeout(HANDSHAKE_S):
                await loop.connect_accepted_socket(lambda: inbound, accepted, ssl=context)
        except (OSError, TimeoutError, NotProven) as error:
            inbound.refuse(error)

    async def close(self) -> None:
        """Accept no more."""
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
