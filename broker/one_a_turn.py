"""Lets one costly piece of work begin in a turn of the loop; the others wait, in their order.

Requests that are served as coroutines begin outside the time that a server gives its connections
in a turn (`ledgermq.remoting.transport.turns`). Where a small request makes the broker read and
copy a whole message, a hundred of them would hold the loop for seconds. They pass through here.
What waits should hold no message: it asks for its turn first, and reads then.
"""

from __future__ import annotations

import asyncio
from collections import deque


class OneATurn:
    """The turns of one broker's costly requests. The first that asks does not wait."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    async def turn(self) -> None:
        """Return when the caller may do its work, until it awaits again."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            mine = loop.create_future()
            self._waiting.append(mine)
            await mine
        else:
            self._is_taken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # its request was given up
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_taken = False
