"""An asyncio event loop without I/O, threads or waiting, over the virtual time of `sim.scheduler`.

It is the loop of a whole world: every host's code runs on it, each callback as part of the process
that it belongs to. What production asks of a loop is here; the rest of asyncio's interface is not.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from heapq import heappush
from typing import Any, Final, TypeVar

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.tasks import SERVING
from sim.context import CURRENT, DEAD, Process, SimCrash
from sim.executor import Lane
from sim.handle import SimHandle
from sim.network import SimServer
from sim.scheduler import FOREVER_NS, Scheduler
from sim.teardown import let_go, silence
from sim.transport import SimTransport

T = TypeVar("T")

_log = logging.getLogger(__name__)

NS: Final = 1_000_000_000

OnExit = Callable[[Process], None]


class Stalled(Exception):  # noqa: N818 - says what is
    """Nothing is due any more, and what was waited for has not come."""


class SimLoop(Scheduler, asyncio.AbstractEventLoop):
    """The loop of a whole world, and the machines in it."""

    def __init__(self, seed: int | str = 0, *, keep_lines: bool = False) -> None:
        """Make an empty world in which it is time 0."""
        super().__init__(seed, keep_lines=keep_lines)
        self.on_exit: OnExit | None = None
        """Called when a process has ended by itself, see its ``error`` and ``exit_code``."""
        self.uncaught: list[dict[str, Any]] = []
        """What nobody caught and did not end a process."""
        self._closed = False
        self._handler: Callable[..., object] | None = None
        self._outside_tasks: list[asyncio.Task[Any]] = []

    def spawn(
        self, process: Process, coro: Coroutine[Any, Any, T], *, name: str = "main"
    ) -> "asyncio.Task[T]":
        """Run a coroutine as a task of a process, as its main program or beside it."""
        return self.create_task(coro, name=name, context=process.context.copy())

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]  # narrower
        """Run until a future is done and return its result. Errors: its own; `Stalled`."""
        with self._as_running():
            task = asyncio.ensure_future(future, loop=self)
            self._run(FOREVER_NS, task.done)
        if not task.done():
            task.cancel()
            raise Stalled(f"at {self.now_ns} ns nothing is due, and {task!r} is not done")
        return task.result()

    # asyncio: callbacks

    def call_soon(  # type: ignore[override]  # a `SimHandle` does what a `Handle` does
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """See asyncio."""
        if context is None:
            context, process = copy_context(), CURRENT.get()
        else:
            process = context.get(CURRENT)
        handle = SimHandle(self.now_ns, callback, args, context, process)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # likewise

    def call_later(  # type: ignore[override]  # likewise
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """See asyncio; the delay is one of the clock of the host."""
        if context is None:
            context, process = copy_context(), CURRENT.get()
        else:
            process = context.get(CURRENT)
        if self.drifting and process is not None:
            delay /= process.host.clock.rate
        when_ns = self.now_ns + int(delay * NS + 0.999)
        handle = SimHandle(when_ns, callback, args, context, process)
        heappush(self._heap, (when_ns, self._seq(), handle))
        return handle

    def call_at(  # type: ignore[override]  # likewise
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """See asyncio; ``when`` is a time as `time` returns it."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def time(self) -> float:
        """Return seconds of the clock of the host whose process is running."""
        if self.drifting:
            process = CURRENT.get()
            if process is not None:
                return process.host.clock.monotonic_ns() / NS
        return self.now_ns / NS

    # asyncio: futures, tasks, executors

    def create_future(self) -> "asyncio.Future[Any]":
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[T]":
        """See asyncio."""
        if context is None:
            context = copy_context()
        if self._closed:
            coro.close()  # the world is over, and this is what its clean-up wants to begin
        task = asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)
        process = context.get(CURRENT)
        if process is not None:
            process.add_task(task)
        else:
            self._outside_tasks.append(task)
        return task

    def run_in_executor(
        self, executor: object, func: Callable[..., T], *args: object
    ) -> "asyncio.Future[T]":
        """Do the work later in virtual time; see `sim.executor`."""
        future: asyncio.Future[T] = self.create_future()
        process = CURRENT.get() or self._outside_process()
        lane: Lane | None = None if executor is None else process.lanes.get(executor)
        if lane is None:
            lane = Lane(self, process, process.host.rng)
            if executor is not None:
                process.lanes[executor] = lane
        if process.lookout is not None:
            process.lookout.see_call(process.host.name, func)
        lane.submit((func, args, future))
        return future

    def _outside_process(self) -> Process:
        """The process of what belongs to none, for its executors."""
        if self._outside.process is None:
            self._outside.process = Process(self._outside, self.kill)
        return self._outside.process

    # asyncio: network

    async def create_server(  # type: ignore[override]  # the parameters that exist here
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        start_serving: bool = True,
        **_options: object,
    ) -> SimServer:
        """See asyncio. Errors: `OSError`."""
        server = self.network.listen(protocol_factory, host, port, accepts=start_serving)
        await asyncio.sleep(0)
        return server

    async def create_connection(  # type: ignore[override]  # the parameters that exist here
        self,
        protocol_factory: Callable[[], Any],
        host: str,
        port: int,
        *,
        local_addr: tuple[str, int] | None = None,
        **_options: object,
    ) -> tuple[SimTransport, Any]:
        """See asyncio. Errors: `OSError`."""
        source = None if local_addr is None else local_addr[0]
        return await self.network.connect(protocol_factory, host, port, source)

    # asyncio: errors and state

    def set_exception_handler(self, handler: Callable[..., object] | None) -> None:
        """Set what gets the errors of code outside of all processes."""
        self._handler = handler

    def get_exception_handler(self) -> Callable[..., object] | None:
        """Return it."""
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error."""
        _log.error(
            "event=uncaught what=%r", context.get("message"), exc_info=context.get("exception")
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Take what nobody caught, as `on_loop_exception` does in production.

        Fatal errors and broken invariants end the process; others are kept in `uncaught`, and so
        is whatever the serving of one request raised.
        """
        if self._closed:
            return
        process = CURRENT.get()
        error = context.get("exception")
        fatal = isinstance(error, FatalError) or (
            isinstance(error, AssertionError) and SERVING not in context
        )
        if process is not None and fatal:
            code = error.exit_code if isinstance(error, FatalError) else EXIT_ENVIRONMENT
            try:
                self.exit(process, error, code)
            except SimCrash:
                if "future" not in context:  # else it is a destructor that calls: nothing to stop
                    raise
        elif self._handler is not None and process is None:
            self._handler(self, context)
        else:
            self.uncaught.append(context)
            self.default_exception_handler(context)

    def exit(self, process: Process, error: BaseException | None, code: int) -> None:
        """End a process by its own doing, as ``os._exit`` would: within it, this never returns."""
        if process.state == DEAD:
            return
        process.error = error
        process.exit_code = code
        self.trace.event("exit", process.host.name, code=code)
        self.kill(process)
        if self.on_exit is not None:
            self.on_exit(process)
        if CURRENT.get() is process:
            raise SimCrash(f"exit {code}")

    def _report(self, process: Process | None, error: Exception, handle: SimHandle) -> None:
        context = {"message": f"Exception in callback {handle!r}", "exception": error}
        if process is None:
            self.call_exception_handler(context)
        else:
            with contextlib.suppress(SimCrash):  # it was fatal, and the process is gone
                handle.context.run(self.call_exception_handler, context)

    get_debug = staticmethod(bool)  # false; every future and task asks

    def is_running(self) -> bool:
        """Tell whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Tell whether the world has ended."""
        return self._closed

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: there are none."""

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - newer versions have it
    ) -> None:
        """Do nothing: there are no threads."""

    def close(self) -> None:
        """End the world: let go of all coroutines without anyone hearing what they still do."""
        if self._closed:
            return
        self._closed = True
        processes = self.processes()
        tasks = [task for process in processes for task in process.tasks] + self._outside_tasks
        for process in processes:
            process.state = DEAD
        with silence(), self._as_running():
            let_go(tasks)
            self._ready.clear()
            self._heap.clear()
            self._graveyard.clear()
            for process in processes:
                process.clear()
            self._outside_tasks.clear()
            tasks.clear()
