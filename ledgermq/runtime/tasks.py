"""Tasks that must not die unnoticed, and functions that run at times or intervals.

A supervised task or timer that ends by an exception takes the process down: the loop's exception
handler (see `ledgermq.runtime.process`) gets a `FatalError` that names it. Not so what serves one
request or one client: its exception is told with its trace, and the process goes on. What must end
the process even then, a broken invariant of the log, is a `FatalError` where it is raised
(`ledgermq.runtime.errors`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

_log = logging.getLogger(__name__)

SERVING: Final = "serving"
"""Key of the context that tells the loop's exception handler that only one request failed."""


def report_serving_failure(what: str, error: BaseException) -> None:
    """Tell of what the serving of one request raised: a log line with its trace, and no more.

    A `FatalError` ends the process all the same. The loop's exception handler decides, so that the
    simulator, which takes any such failure for a bug, hears of it too.
    """
    context = {"message": what, "exception": error, SERVING: True}
    asyncio.get_running_loop().call_exception_handler(context)


def _not_told(_error: Exception) -> None:
    """Have nobody wait for the end of a coroutine."""


class Supervisor:
    """Owns the tasks of one component; `stop` ends them in the reverse order of their start."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._alarms: list[Alarm] = []
        self.stopping = False

    def spawn(self, name: str, coro: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a supervised task. It may end; it may not raise."""
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._on_done)
        return task

    def serve(
        self,
        name: str,
        coro: Coroutine[Any, Any, Any],
        on_error: Callable[[Exception], object] = _not_told,
    ) -> "asyncio.Task[Any]":
        """Run a coroutine that serves one request or one client.

        What it raises is told with its trace, and ``on_error`` is called with it once, to answer
        whoever waits; the process goes on. A `FatalError` ends it as ever. Neither a cancelled
        coroutine nor one that fails while everything stops is told of to ``on_error``.
        """
        task = asyncio.get_running_loop().create_task(coro, name=name)
        self._tasks[task] = name
        task.add_done_callback(partial(self._on_served, on_error))
        return task

    def every(self, name: str, interval_ms: int, function: Callable[[], object]) -> None:
        """Call a plain function every ``interval_ms``, the first time after that interval.

        A call that takes longer than the interval delays the next one; calls never pile up.
        """

        def call() -> None:
            function()
            alarm.set(interval_ms)

        alarm = self.alarm(name, call)
        alarm.set(interval_ms)

    def tend(self, name: str, interval_ms: int, function: Callable[[], object]) -> None:
        """As `every`, for what only tends clients: its failure is told, and it is called again."""
        self.every(name, interval_ms, partial(attempt, name, function))

    def alarm(self, name: str, function: Callable[[], object]) -> "Alarm":
        """Return a timer, not set yet, that calls a plain function; it may not raise."""
        alarm = Alarm(self, name, function)
        self._alarms.append(alarm)
        return alarm

    async def stop(self) -> None:
        """Cancel all timers and tasks, the youngest task first, and wait for each."""
        self.stopping = True
        for alarm in self._alarms:
            alarm.cancel()
        for task in reversed(list(self._tasks)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        name = self._tasks.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.on_error(name, error)

    def _on_served(
        self, on_error: Callable[[Exception], object], task: "asyncio.Task[Any]"
    ) -> None:
        name = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self.stopping or not isinstance(error, Exception):
            self.on_error(name, error)
            return
        report_serving_failure(name, error)
        attempt(name, partial(on_error, error))

    def on_error(self, name: str, error: BaseException) -> None:
        """Take what a task or a timer raised: the end of the process, unless it ends anyway.

        A broken environment (`FatalError`) is told by the exit code also of a process that ends.
        """
        if self.stopping and not isinstance(error, FatalError):
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


def attempt(what: str, function: Callable[[], object]) -> bool:
    """Call a plain function that serves a client; False if it raised, which is told."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the failure of one request, told and left at that
        report_serving_failure(what, error)
        return False
    return True


class Alarm:
    """A supervised timer: it calls its function once, at the time that was set last."""

    __slots__ = ("_function", "_handle", "_name", "_supervisor")

    def __init__(self, supervisor: Supervisor, name: str, function: Callable[[], object]) -> None:
        self._supervisor = supervisor
        self._name = name
        self._function = function
        self._handle: asyncio.TimerHandle | None = None

    def set(self, delay_ms: float) -> None:
        """Have it go off after so long, and not when it was to before."""
        if self._handle is not None:
            self._handle.cancel()
        if not self._supervisor.stopping:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(delay_ms / 1000, self._go_off)

    def cancel(self) -> None:
        """Let it not go off."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _go_off(self) -> None:
        self._handle = None
        try:
            self._function()
        except Exception as error:  # noqa: BLE001 - the process ends by it, as by that of a task
            self._supervisor.on_error(self._name, error)
