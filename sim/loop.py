"""An asyncio event loop without I/O, threads or waiting: one heap of what is due, in virtual time.

The order is asyncio's own: a turn takes over what is due by now, runs what was ready when it began
in order of arrival, and leaves what that made ready to the next turn. Time stands still within a
turn, goes on by `TURN_NS` from one turn to the next, and jumps to what is due next when nothing is
ready. Whatever a process does goes through its handles here, which is how it can be paused, and
killed at any await: nothing of a dead process runs again, no ``finally`` and no callback.
"""

import asyncio
import contextlib
import contextvars
import logging
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, TypeVar

from runtime.errors import EXIT_ENVIRONMENT, FatalError
from sim.clock import MS
from sim.context import CURRENT, DEAD, HELD, RUNNING, Host, Process, SimCrash
from sim.executor import Lane
from sim.handle import SimHandle
from sim.network import SimNetwork, SimServer
from sim.rng import SplitRng
from sim.teardown import let_go, silence
from sim.trace import BATCH, Trace
from sim.transport import CLOSE, SimTransport

T = TypeVar("T")

_log = logging.getLogger(__name__)

TURN_NS: Final = 1_000
"""What one turn of the loop costs; it lets even a loop over `sleep(0)` come to an end."""
NS: Final = 1_000_000_000

AfterEvent = Callable[[Process], None]
OnExit = Callable[[Process], None]


class Stalled(Exception):  # noqa: N818 - says what is
    """Nothing is due any more, and what was waited for has not come."""


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of a whole world, and the machines in it."""

    def __init__(self, seed: int | str = 0, *, keep_lines: bool = False) -> None:
        """Make an empty world in which it is time 0."""
        self.rng = SplitRng(seed)
        self.trace = Trace(keep_lines=keep_lines)
        self.now_ns = 0
        self.drifting = False
        self.events = 0
        """Callbacks that were run."""
        self.hosts: list[Host] = []
        self.after_event: AfterEvent | None = None
        """Called after every callback of a process, and free to look, or to raise."""
        self.on_exit: OnExit | None = None
        """Called when a process has ended by itself, see its ``error`` and ``exit_code``."""
        self.uncaught: list[dict[str, Any]] = []
        """What nobody caught and did not end a process."""
        self._ready: deque[SimHandle] = deque()
        self._heap: list[tuple[int, int, SimHandle]] = []
        self._seq = count(1).__next__
        self._todo = 0
        self._running = False
        self._closed = False
        self._handler: Callable[..., object] | None = None
        self._graveyard: list[Process] = []
        self._outside_tasks: list[asyncio.Task[Any]] = []
        self.network = SimNetwork(self, self.rng.split("network"))
        self._outside = self.add_host("outside", "127.0.0.1")

    # Machines and processes

    def add_host(self, name: str, address: str) -> Host:
        """Add a machine."""
        host = Host(
            name, address, number=len(self.hosts), time=self, rng=self.rng.split(f"host {name}")
        )
        self.hosts.append(host)
        self.network.add_address(address, name)
        return host

    def boot(self, host: Host) -> Process:
        """Begin a process on a host that has none."""
        assert not host.alive, host
        host.incarnation += 1
        host.process = process = Process(host, self.kill)
        host.clock.lag_ns = 0
        self.network.power_on(host.address)
        self.trace.event("boot", host.name, incarnation=host.incarnation)
        return process

    def spawn(
        self, process: Process, coro: Coroutine[Any, Any, T], *, name: str = "main"
    ) -> "asyncio.Task[T]":
        """Run a coroutine as a task of a process, as its main program or beside it."""
        return self.create_task(coro, name=name, context=process.context.copy())

    def call(self, process: Process | None, function: Callable[..., T], *args: object) -> T:
        """Call a function as if the process did it, now and from outside of the loop."""
        context = contextvars.Context() if process is None else process.context.copy()
        with self._as_running():
            return context.run(function, *args)

    def kill(self, process: Process, ending: str = CLOSE) -> None:
        """End a process on the spot (SIGKILL); its sockets end as ``ending`` says."""
        if process.state == DEAD:
            return
        process.state = DEAD
        self.trace.event("kill", process.host.name, ending=ending)
        self._graveyard.append(process)
        for held in process.held:
            held.on_dead()
        for one in list(process.sockets):
            one.on_killed(ending)

    def pause(self, host: Host) -> None:
        """Stop the process of a host (SIGSTOP); once for every later `resume`."""
        process = host.process
        if process is not None and process.alive:
            self._hold(process)
            self.trace.event("pause", host.name)

    def resume(self, host: Host) -> None:
        """Let it go on; what was due meanwhile happens now, in order."""
        process = host.process
        if process is not None and process.alive:
            self.trace.event("resume", host.name)
            self._release(process)

    def _hold(self, process: Process) -> None:
        process.holds += 1
        process.state = HELD

    def _release(self, process: Process) -> None:
        if process.state == HELD and process.holds:
            process.holds -= 1
            if not process.holds:
                process.state = RUNNING
                held, process.held = process.held, []
                self._ready.extend(held)

    # Running

    def run_until(self, when_ns: int) -> None:
        """Run everything that is due up to and including a virtual time, which it then is."""
        with self._as_running():
            self._run(when_ns, None)
        if self.now_ns < when_ns:
            self.now_ns = self.trace.now_ns = when_ns

    def run_for(self, duration_ms: int) -> None:
        """Run for so many milliseconds of virtual time."""
        self.run_until(self.now_ns + duration_ms * MS)

    def run_until_true(self, predicate: Callable[[], bool], limit_ms: int) -> bool:
        """Run until a predicate holds, at most so long; return whether it does.

        It is asked after every turn.
        """
        with self._as_running():
            return self._run(self.now_ns + limit_ms * MS, predicate)

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]  # narrower
        """Run until a future is done and return its result. Errors: its own; `Stalled`."""
        with self._as_running():
            task = asyncio.ensure_future(future, loop=self)
            self._run(None, task.done)
        if not task.done():
            task.cancel()
            raise Stalled(f"at {self.now_ns} ns nothing is due, and {task!r} is not done")
        return task.result()

    def step(self) -> bool:
        """Run one callback; return false if nothing is due any more."""
        with self._as_running():
            before = self.events
            while self._begin_turn(None):
                self._todo -= 1
                self._run_one(self._ready.popleft())
                if self.events != before:
                    return True
        return False

    def _run(self, until_ns: int | None, predicate: Callable[[], bool] | None) -> bool:
        """Run turns; return true as soon as the predicate holds."""
        popleft, run_one = self._ready.popleft, self._run_one
        while predicate is None or not predicate():
            if not self._begin_turn(until_ns):
                return False
            while self._todo:
                self._todo -= 1
                run_one(popleft())
        return True

    def _begin_turn(self, until_ns: int | None) -> bool:
        """Take over what is due; false if nothing is, up to a time."""
        if self._todo:
            return True
        ready, heap = self._ready, self._heap
        now = self.now_ns
        if ready:
            now += TURN_NS
        elif heap:
            now = max(now, heap[0][0])
        else:
            return False
        if until_ns is not None and now > until_ns:
            return False
        self.now_ns = self.trace.now_ns = now
        while heap and heap[0][0] <= now:
            ready.append(heappop(heap)[2])
        self._todo = len(ready)
        if len(self.trace.numbers) >= BATCH:
            self.trace.fold()
        return True

    def _run_one(self, handle: SimHandle) -> None:
        if handle._cancelled:
            return
        process = handle.process
        if process is not None and process.state:
            if process.state == DEAD:
                handle.on_dead()
            process.held.append(handle)
            return
        self.events += 1
        try:
            handle._context.run(handle._callback, *handle._args)  # type: ignore[arg-type]  # not cancelled
        except SimCrash:
            if process is not None:
                self.kill(process)
        except Exception as error:  # noqa: BLE001 - as asyncio does
            self._report(process, error, handle)
        if process is None:
            self.trace.note(self.now_ns << 8)
            return
        self.trace.note(self.now_ns << 8 | process.number)
        if process.charged_ns:
            self._make_wait(process)
        if self.after_event is not None:
            self.after_event(process)

    def _make_wait(self, process: Process) -> None:
        """What the callback's calls have cost delays everything else of its process."""
        cost_ns = process.take_charge()
        if process.state != DEAD:
            self._hold(process)
            when = self.now_ns + cost_ns
            context = contextvars.Context()
            self.post(when, SimHandle(when, self._release, (process,), context, None))

    @contextlib.contextmanager
    def _as_running(self) -> Generator[None, None, None]:
        assert not self._running, "the loop runs already"
        outer = events._get_running_loop()
        self._running = True
        events._set_running_loop(self)
        try:
            yield
        finally:
            self._running = False
            events._set_running_loop(outer)

    def is_reachable(self, address: str) -> bool:
        """Tell whether the machine at an address has power."""
        return self.network.is_reachable(address)

    # asyncio: callbacks

    def post(self, when_ns: int, handle: SimHandle) -> None:
        """Have a handle run at a virtual time, at once if that is past."""
        if when_ns <= self.now_ns:
            self._ready.append(handle)
        else:
            heappush(self._heap, (when_ns, self._seq(), handle))

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """See asyncio."""
        if context is None:
            context = contextvars.copy_context()
        handle = SimHandle(self.now_ns, callback, args, context, context.get(CURRENT))
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        """See asyncio; the delay is one of the clock of the host."""
        if context is None:
            context = contextvars.copy_context()
        process = context.get(CURRENT)
        if self.drifting and process is not None:
            delay /= process.host.clock.rate
        when_ns = self.now_ns + int(delay * NS + 0.5)
        handle = SimHandle(when_ns, callback, args, context, process)
        heappush(self._heap, (when_ns, self._seq(), handle))
        return handle

    def call_at(
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
            context = contextvars.copy_context()
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
        **_options: object,
    ) -> SimServer:
        """See asyncio. Errors: `OSError`."""
        server = self.network.listen(protocol_factory, host, port)
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
        """Take what nobody caught, as `runtime.process.on_loop_exception` does in production.

        Fatal errors and broken invariants end the process; others are kept in `uncaught`.
        """
        if self._closed:
            return
        process = CURRENT.get()
        error = context.get("exception")
        if process is not None and isinstance(error, FatalError):
            self.exit(process, error, error.exit_code)
        elif process is not None and isinstance(error, AssertionError):
            self.exit(process, error, EXIT_ENVIRONMENT)
        elif self._handler is not None and process is None:
            self._handler(self, context)
        else:
            self.uncaught.append(context)
            self.default_exception_handler(context)

    def exit(self, process: Process, error: BaseException | None, code: int) -> None:
        """End a process by its own doing, as ``os._exit`` would."""
        if process.state == DEAD:
            return
        process.error = error
        process.exit_code = code
        self.trace.event("exit", process.host.name, code=code)
        self.kill(process)
        if self.on_exit is not None:
            self.on_exit(process)

    def _report(self, process: Process | None, error: Exception, handle: SimHandle) -> None:
        context = {"message": f"Exception in callback {handle!r}", "exception": error}
        if process is None:
            self.call_exception_handler(context)
        else:
            handle._context.run(self.call_exception_handler, context)

    def get_debug(self) -> bool:
        """Return false."""
        return False

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
        processes = [*self._graveyard, *(h.process for h in self.hosts if h.process)]
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
