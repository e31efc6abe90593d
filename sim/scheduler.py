"""Virtual time: what is due when, in which order it runs, and which processes may run at all.

The order is asyncio's own: a turn takes over what is due by now, runs what was ready when it began
in order of arrival, and leaves what that made ready to the next turn. Time stands still within a
turn, goes on by `TURN_NS` from one turn to the next, and jumps to what is due next when nothing is
ready. Whatever a process does goes through its handles here, which is how it can be paused, and
killed at any await: nothing of a dead process runs again, no ``finally`` and no callback.
"""

import contextlib
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sim.clock import MS
from sim.context import CURRENT, DEAD, HELD, RUNNING, Host, Process, SimCrash
from sim.handle import SimHandle
from sim.network import SimNetwork
from sim.rng import SplitRng
from sim.trace import BATCH, Trace
from sim.transport import CLOSE

if TYPE_CHECKING:
    from sim.lookout import Lookout

T = TypeVar("T")

FOREVER_NS: Final = 1 << 62
TURN_NS: Final = 1_000
"""What one turn of the loop costs; it lets even a loop over `sleep(0)` come to an end."""

_KERNEL: Final = contextvars.Context()

AfterEvent = Callable[[Process], None]


class Scheduler:
    """Time, machines and processes; `sim.loop.SimLoop` makes an asyncio loop of it."""

    def __init__(self, seed: int | str = 0, *, keep_lines: bool = False) -> None:
        """Make an empty world in which it is time 0."""
        self.rng = SplitRng(seed)
        self.trace = Trace(keep_lines=keep_lines)
        self.now_ns = 0
        self.drifting = False
        self.events = 0
        """Callbacks that were run."""
        self.hosts: list[Host] = []
        self.findings: list[Exception] = []
        """What is put here is raised after the callback of a process in which that is done."""
        self.lookout: Lookout | None = None
        """What sees where tasks of later processes wait; None: nobody wants to know."""
        self.on_kill: AfterEvent | None = None
        """Called when a process has ended, however that came."""
        self._ready: deque[SimHandle] = deque()
        self._heap: list[tuple[int, int, SimHandle]] = []
        self._seq = count(1).__next__
        self._todo = 0
        self._running = False
        self._graveyard: list[Process] = []
        self.network = SimNetwork(self._as_loop(), self.rng.split("network"))
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

    def processes(self) -> list[Process]:
        """Return all processes there have been, ended or not."""
        return [*self._graveyard, *(host.process for host in self.hosts if host.process)]

    def boot(self, host: Host) -> Process:
        """Begin a process on a host that has none."""
        assert not host.alive, host
        if host.process is not None:
            self._bury(host.process)
        host.incarnation += 1
        host.process = process = Process(host, self.kill)
        process.lookout = self.lookout
        if host.disk is not None:
            host.disk.on_block = partial(self._on_block, process)
            host.disk.on_unblock = partial(self._on_unblock, process)
        self.network.power_on(host.address)
        self.trace.event("boot", host.name, incarnation=host.incarnation)
        return process

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
        if CURRENT.get() is not process:
            self._bury(process)
        if self.on_kill is not None:
            self.on_kill(process)

    def _bury(self, process: Process) -> None:
        """Clean up behind a process, once not even a ``finally`` on the stack is left of it."""
        if not process.is_buried:
            process.is_buried = True
            process.host.clock.lag_ns = 0
            if process.host.disk is not None:
                process.host.disk.crash()

    def pause(self, host: Host) -> None:
        """Stop the process of a host (SIGSTOP); once for every later `resume`."""
        process = host.process
        if process is not None and process.alive:
            process.pauses += 1
            self._hold(process)
            self.trace.event("pause", host.name)

    def resume(self, host: Host) -> None:
        """Let it go on; what was due meanwhile happens now, in order.

        A process that was not paused, because it is a later one, may stand still for another
        reason, such as a disk that hangs.
        """
        process = host.process
        if process is not None and process.alive and process.pauses:
            process.pauses -= 1
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

    def step(self) -> bool:
        """Run one callback; return false if nothing is due any more."""
        with self._as_running():
            return self._run(FOREVER_NS, None, self.events + 1)

    def _run(  # noqa: C901, PLR0912, PLR0915 - calls would cost more than what they do
        self, until_ns: int, predicate: Callable[[], bool] | None, events_end: int = 0
    ) -> bool:
        """Run turns; true once the predicate holds, or that many callbacks have been run in all."""
        ready, heap, trace, findings = self._ready, self._heap, self.trace, self.findings
        next_ready, add_ready = ready.popleft, ready.append
        note, numbers = trace.note, trace.numbers
        now, todo, events = self.now_ns, self._todo, self.events
        try:
            while predicate is None or not predicate():
                if not todo:  # a turn begins, and takes over what is due
                    if ready:
                        now += TURN_NS
                    elif not heap:
                        return False
                    elif heap[0][0] > now:
                        now = heap[0][0]
                    if now > until_ns:
                        return False
                    self.now_ns = trace.now_ns = now
                    while heap and heap[0][0] <= now:
                        add_ready(heappop(heap)[2])
                    todo = len(ready)
                    if len(numbers) >= BATCH:
                        trace.fold()
                stamp = now << 8
                while todo:
                    todo -= 1
                    handle = next_ready()
                    callback, process = handle.callback, handle.process
                    if callback is None:
                        continue
                    if process is not None and process.state:
                        if process.state == DEAD:
                            handle.on_dead()
                        process.held.append(handle)
                        continue
                    events += 1
                    try:
                        handle.context.run(callback, *handle.args)
                    except SimCrash:
                        assert process is not None, "only a process can crash"
                        assert not process.alive, process
                    except Exception as error:  # noqa: BLE001 - as asyncio does
                        self._report(process, error, handle)
                    if process is None:
                        note(stamp)
                    else:
                        note(stamp | process.number)
                        if process.charged_ns or process.state:
                            self._settle(process)
                        if process.after_event is not None:
                            process.after_event()
                        if process.lookout is not None:
                            process.lookout.see(process.host.name, handle.callback, handle.args)
                        if findings:
                            raise findings[0]
                    if events == events_end:
                        return True
        finally:
            self._todo, self.events = todo, events
        return True

    def _settle(self, process: Process) -> None:
        """Take what a callback has come to: the end of its process, or time."""
        if process.state == DEAD:
            self._bury(process)
        elif process.charged_ns:
            self._make_wait(process)

    def _make_wait(self, process: Process) -> None:
        """What the callback's calls have cost delays everything else of its process."""
        when = self.now_ns + process.take_charge()
        self._hold(process)
        self.post(when, SimHandle(when, self._release, (process,), _KERNEL, None))

    def _on_block(self, process: Process) -> None:
        if not process.is_blocked and process.alive:
            process.is_blocked = True
            self._hold(process)

    def _on_unblock(self, process: Process) -> None:
        if process.is_blocked:
            process.is_blocked = False
            self._release(process)
        process.open_gate()

    @contextlib.contextmanager
    def _as_running(self) -> Generator[None, None, None]:
        assert not self._running, "the loop runs already"
        outer = events._get_running_loop()
        self._running = True
        events._set_running_loop(self._as_loop())
        try:
            yield
        finally:
            self._running = False
            events._set_running_loop(outer)

    def is_reachable(self, address: str) -> bool:
        """Tell whether the machine at an address has power."""
        return self.network.is_reachable(address)

    def post(self, when_ns: int, handle: SimHandle) -> None:
        """Have a handle run at a virtual time, at once if that is past."""
        if when_ns <= self.now_ns:
            self._ready.append(handle)
        else:
            heappush(self._heap, (when_ns, self._seq(), handle))

    # What an asyncio loop adds

    def _as_loop(self) -> Any:  # noqa: ANN401 - the loop, which this is a part of
        return self

    def _report(self, process: Process | None, error: Exception, handle: SimHandle) -> None:
        """Take what a callback raised."""
        raise NotImplementedError
