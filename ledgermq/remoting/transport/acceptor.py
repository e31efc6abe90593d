"""Takes the connections that wait at a listening socket, several in a turn of the loop.

uvloop takes one a turn. While a flood of requests makes turns long, that is so few a second that
clients which connect wait for seconds behind each other. So whenever one was taken, more are taken
in the next turn: a bounded number, since each takes its part of a millisecond.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ledgermq.remoting.transport.limits import ACCEPTED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


class Acceptor:
    """Takes more connections for one server.

    Args:
        server: listens, and takes those that the loop gives it.
        factory: makes the protocol of a connection.
    """

    def __init__(
        self, server: asyncio.Server, factory: Callable[[], asyncio.BufferedProtocol]
    ) -> None:
        self._loop = server.get_loop()
        self._factory = factory
        self._listening = [
            socket.socket(fileno=os.dup(one.fileno()))
            for one in server.sockets
            if hasattr(one, "fileno")  # those of a simulated network have none
        ]
        self._tasks: dict[asyncio.Task[Any], socket.socket] = {}
        """Who is being taken, and over which socket."""
        self._is_due = False

    async def close(self) -> None:
        """Take no more; who is being taken is hung up on."""
        for one in self._listening:
            one.close()
        self._listening = []
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_accepted(self) -> None:
        """Take that there was a connection: others may wait behind it."""
        if not self._is_due and self._listening:
            self._is_due = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._is_due = False
        for one in self._listening:
            # What cannot be taken now, for want of files as well, the loop tries again.
            with suppress(OSError):
                for _ in range(ACCEPTED_MAX):
                    self._serve(one.accept()[0])

    def _serve(self, taken: socket.socket) -> None:
        taken.setblocking(False)  # noqa: FBT003 - a switch of the system's
        task = self._loop.create_task(self._connect(taken))
        self._tasks[task] = taken
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        taken = self._tasks.pop(task)
        if task.cancelled():  # maybe before its first step, when nobody else has the socket
            taken.close()

    async def _connect(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._factory, taken)
        except OSError:  # it is gone already
            taken.close()
