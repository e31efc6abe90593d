"""Tasks that must not die unnoticed, and functions that run at intervals.

A supervised task that ends by an exception takes the process down: the loop's exception handler
(see `runtime.process`) gets a `FatalError` that names the task.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from runtime.errors import EXIT_ENVIRONMENT, FatalError

_log = logging.getLogger(__name__)


class Supervisor:
    """Owns the tasks of one component; `stop` ends them in the reverse order of their start."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._stopping = False

    def spawn(self, name: str, coro: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a supervised task. It may end; it may not raise."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._on_done)
        return task

    def every(self, name: str, interval_ms: int, function: Callable[[], object]) -> None:
        """Call a plain function every ``interval_ms``, the first time after that interval.

        A call that takes longer than the interval delays the next one; calls never pile up.
        """
        self.spawn(name, _repeat(interval_ms / 1000, function))

    async def stop(self) -> None:
        """Cancel all tasks, the youngest first, and wait for each."""
        self._stopping = True
        for task in reversed(list(self._tasks)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        name = self._tasks.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._stopping:
            _log.warning("event=task_failed_while_stopping task=%s error=%r", name, error)
            return
        if not isinstance(error, FatalError):
            _log.error("event=task_failed task=%s", name, exc_info=error)
            fatal = FatalError(f"task {name} failed: {error!r}", EXIT_ENVIRONMENT)
            fatal.__cause__ = error
            error = fatal
        self.fail(error)

    def fail(self, error: FatalError) -> None:
        """Take the process down: the loop's exception handler gets ``error``."""
        context = {"message": error.message, "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


async def _repeat(interval_s: float, function: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        function()
