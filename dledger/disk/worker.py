"""A thread for what waits on the disk; its results come back to the event loop, in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ledgermq.runtime.clock import Clock


class Worker:
    """Runs one thing after the other; a simulator puts an inline one in its place."""

    def __init__(
        self, name: str, clock: Clock, *, on_error: Callable[[BaseException], None]
    ) -> None:
        """Start the thread.

        Args:
            name: of the thread.
            clock: tells how long work takes.
            on_error: called in the loop with whatever a piece of work raised.
        """
        self._name = name
        self._clock = clock
        self._submitted_ms: deque[int] = deque()
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, name)
        self._on_error = on_error

    def submit(self, work: Callable[[], object], then: Callable[[], None]) -> None:
        """Run ``work`` in the thread, and ``then`` in the loop if it succeeded."""
        self._submitted_ms.append(self._clock.monotonic_ms())
        future = self._loop.run_in_executor(self._pool, work)
        future.add_done_callback(partial(self._on_done, then))

    def _on_done(self, then: Callable[[], None], future: "asyncio.Future[None]") -> None:
        self._submitted_ms.popleft()
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            then()
        else:
            self._on_error(error)

    def beside(self, name: str) -> "Worker":
        """Start another thread, for what would keep this one's work waiting."""
        return Worker(f"{self._name}-{name}", self._clock, on_error=self._on_error)

    def waiting_ms(self) -> int:
        """Return for how long the oldest piece of work has not returned; 0 when idle."""
        submitted = self._submitted_ms
        return self._clock.monotonic_ms() - submitted[0] if submitted else 0

    async def drain(self) -> None:
        """Return when everything submitted before has run."""
        await self._loop.run_in_executor(self._pool, _nothing)

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()


def _nothing() -> None:
    """Take the thread's turn."""
