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
from ledgermq.runtime.cancel import timeout

BACKLOG: Final = 128
PAUSE_S: Final = 0.1
"""After an accept that failed for want of files."""


class TlsListener:
    """Accepts on one address until it is closed."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen. Errors: `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(found):
            listening = socket.create_server(
                (str(address[0]), int(address[1])), family=family, backlog=BACKLOG
            )
            listening.setblocking(False)  # noqa: FBT003  # the name of its argument is flag
            self._sockets.append(listening)
            self._listen(listening)

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            accepted, address = listening.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no files: whoever waits has to wait
            loop.remove_reader(listening)
            loop.call_later(PAUSE_S, self._listen, listening)
            return
        accepted.setblocking(False)  # noqa: FBT003  # the name of its argument is flag
        inbound = Inbound(self._owner, str(address[0]))
        task = inbound.securing = loop.create_task(self._secure(inbound, accepted))
        self._tasks.add(task)
        task.add_done_callback(partial(self._on_secured, inbound, accepted))
        self._owner.on_opened(inbound)

    def _on_secured(
        self, inbound: Inbound, accepted: socket.socket, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
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
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            loop.remove_reader(listening)
            listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
