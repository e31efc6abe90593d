"""A listening socket whose connections are taken one by one, before any protocol begins."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Final

from ledgermq.remoting.transport.limits import ACCEPTED_MAX

PAUSE_S: Final = 0.1
"""After an accept that failed for want of files."""


class SocketListener:
    """Accepts on one address until it is closed; ``take`` gets each socket and who is there."""

    def __init__(self, take: Callable[[socket.socket, str], None], backlog: int) -> None:
        self._take = take
        self._backlog = backlog
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which the system chooses if it is 0.

        Addresses of a family that the kernel lacks (IPv6, as a rule) are left out if it has
        another, as asyncio's own servers leave them out.

        Errors: `OSError`; then it listens on none of the addresses that a name has.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        lacking: OSError | None = None
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    listening = socket.create_server(
                        (str(address[0]), int(address[1])), family=family, backlog=self._backlog
                    )
                except OSError as error:
                    if error.errno != errno.EAFNOSUPPORT:
                        raise
                    lacking = error
                    continue
                listening.setblocking(False)  # noqa: FBT003  # the name of its argument is flag
                self._sockets.append(listening)
                self._listen(listening)
            if lacking is not None and not self._sockets:
                raise lacking
        except OSError:
            self.close()
            raise
        return int(self._sockets[0].getsockname()[1])

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Take those that wait, some in a turn: one alone would be too few under a flood."""
        for _ in range(ACCEPTED_MAX):
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it is gone already
                continue
            except OSError:  # no files: whoever waits has to wait
                self._pause(listening)
                return
            accepted.setblocking(False)  # noqa: FBT003  # the name of its argument is flag
            self._take(accepted, str(address[0]))
            if listening not in self._sockets:
                return

    def _pause(self, listening: socket.socket) -> None:
        """Accept nothing for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(PAUSE_S, self._listen, listening)

    def close(self) -> None:
        """Accept no more."""
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            loop.remove_reader(listening)
            listening.close()
