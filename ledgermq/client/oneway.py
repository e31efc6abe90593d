"""How much may wait for the network of what nobody answers.

No answer ever says that a broker keeps up, so a broker that reads slowly, or no longer, would have
the process gather all that is sent to it. What counts is what the kernel has not taken.
"""

import asyncio
from typing import Final

from ledgermq.client.errors import TooManyPending
from ledgermq.remoting.transport.connection import Connection

TURN_BYTES: Final = 65_536
"""After so much the caller lets the loop write: a loop of sends never waits for anything else."""


class Oneway:
    """The sends without an answer of one producer, to any broker."""

    __slots__ = ("_bytes_max", "_turn_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._turn_bytes = 0
        """What this turn of the loop has been given, and connections have not written yet."""

    async def write(self, connection: Connection, head: bytes, body: bytes) -> None:
        """Send a frame. Errors: ``TooManyPending`` while too much waits to be written."""
        size = len(head) + len(body)
        waiting = self._turn_bytes + connection.buffered_bytes
        if waiting and waiting + size > self._bytes_max:
            raise TooManyPending(
                f"{waiting} bytes wait to be written to {connection.remote[0]}:"
                f"{connection.remote[1]}, and {size} more are over max_pending_bytes "
                f"({self._bytes_max})"
            )
        connection.write(head, body)
        if not self._turn_bytes:  # Behind the connection, which writes at the end of the turn.
            asyncio.get_running_loop().call_soon(self._on_turn)
        self._turn_bytes += size
        if self._turn_bytes >= TURN_BYTES:
            await asyncio.sleep(0)

    def _on_turn(self) -> None:
        self._turn_bytes = 0
