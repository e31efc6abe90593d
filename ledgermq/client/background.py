"""Tasks of a client: periodic work and loops, all ended by one ``stop``.

A library must not end the process, so an unexpected error in periodic work is logged and the work
goes on at its next turn.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ledgermq.client.errors import NotRunning
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.runtime.cancel import cancel_requests

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Background:
    """The tasks of one client."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._has_stopped = False

    def spawn(self, work: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        """Run ``work()`` as a task that ``stop`` cancels; an error is logged.

        Behind the stop nothing begins: whoever was in the middle gets a task that is cancelled.
        """
        task = asyncio.create_task(self._guard(work, name), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        if self._has_stopped:
            task.cancel()
        return task

    def every(
        self,
        interval_ms: int,
        work: Callable[[], Awaitable[None]],
        name: str,
        idle_ms: Callable[[], float] = lambda: 0,
    ) -> asyncio.Task[None]:
        """Run ``work`` every ``interval_ms``, the first time after one interval.

        ``idle_ms`` is asked each time for how long there will surely be nothing to do: 0 where
        there is something. No task wakes up before that.
        """
        return self.spawn(lambda: self._repeat(interval_ms, work, name, idle_ms), name)

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self._has_stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(
        self,
        interval_ms: int,
        work: Callable[[], Awaitable[None]],
        name: str,
        idle_ms: Callable[[], float],
    ) -> None:
        while True:
            await _until_due(interval_ms, idle_ms)
            try:
                await work()
            except RemotingError as error:
                _log.info("task=%s error=%s", name, error)
            except Exception:  # noqa: BLE001 - logged, and the work goes on
                _log.exception("task=%s event=unexpected_error", name)

    async def _guard(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await work()
        except Exception:  # noqa: BLE001 - logged; a library does not end the process
            _log.exception("task=%s event=unexpected_end", name)


async def _until_due(interval_ms: int, idle_ms: Callable[[], float]) -> None:
    """Wait an interval, and then for as long as there is nothing to do."""
    loop = asyncio.get_running_loop()
    due: asyncio.Future[None] = loop.create_future()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if due.done():
            return
        try:
            wait_ms = idle_ms()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            due.set_exception(error)
            return
        if wait_ms > 0:
            timer = loop.call_later(max(wait_ms, interval_ms) / 1000, look)
        else:
            due.set_result(None)

    timer = loop.call_later(interval_ms / 1000, look)
    try:
        await due
    finally:
        timer.cancel()


async def join(task: asyncio.Task[T]) -> T:
    """Await a task shared with others; a caller that is cancelled does not take it with it.

    Errors: those of the task; ``NotRunning`` when the task was cancelled because the client was
    stopped, since the caller was not cancelled and must not believe so.
    """
    known = cancel_requests()
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled() and cancel_requests() == known:
            raise NotRunning("the client was stopped") from None
        raise
