"""That a client is being stopped, as what waits inside it learns it.

A request that is on the wire goes on. Whoever waits for something else (a route, a connection, the
next attempt) is told at once, and nobody begins another request. Knows no requests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ledgermq.client.errors import NotRunning
from ledgermq.remoting.protocol.errors import Outcome
from ledgermq.runtime.cancel import Timeout, timeout


class Stopping:
    """Begins once, for one client."""

    def __init__(self) -> None:
        self.begun = False
        self._waits: dict[Timeout, None] = {}

    def begin(self) -> None:
        """End what is inside of `waiting`, and let nothing enter it any more."""
        self.begun = True
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            wait.reschedule(now)

    @asynccontextmanager
    async def waiting(self, outcome: Outcome = Outcome.FAILED) -> AsyncIterator[None]:
        """Run the block as long as the client is not being stopped.

        ``outcome`` is what is known of the requests made before. Errors: ``NotRunning`` with that
        outcome when stopping has begun, before the block, in it or just as it ended.
        """
        wait = timeout(None)
        try:
            if not self.begun:
                async with wait:
                    self._waits[wait] = None
                    try:
                        yield
                    finally:
                        del self._waits[wait]
        except TimeoutError:
            if not wait.expired():
                raise
        if self.begun:
            raise NotRunning("the client was stopped", outcome) from None
