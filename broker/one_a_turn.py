"""Lets one costly piece of work begin in a turn of the loop; the others wait.

One address has its turn after the other, of an address whoever came first: however many of its
messages one has copied, another one's is next.

Requests that are served as coroutines begin outside the time that a server gives its connections
in a turn (`ledgermq.remoting.transport.turns`). Where a small request makes the broker read and
copy a whole message, a hundred of them would hold the loop for seconds. They pass through here.
What waits should hold no message: it asks for its turn first, and reads then.
"""

from __future__ import annotations

import asyncio

from ledgermq.remoting.transport.flows import Flows


class OneATurn:
    """The turns of one broker's costly requests. The first that asks does not wait."""

    def __init__(self) -> None:
        self._waiting = Flows[asyncio.Future[None]]()
        self._is_taken = False

    async def turn(self, address: str) -> None:
        """Return when work for an address may be done, until its caller awaits again."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            mine = loop.create_future()
            self._waiting.add(address, mine)
            await mine
        else:
            self._is_taken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting:
            first = self._waiting.pop()
            if not first.done():  # its request was given up
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_taken = False
