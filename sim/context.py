"""Machines and the processes on them; which process is running now.

A `Host` is a machine: address, clock, disk, chance; it outlives its processes. A `Process` is what
runs on it from a start to a kill. Every callback, timer and task carries its process in the
context variable `CURRENT`, which tasks and callbacks inherit, so that all of a process can be
stopped, or ended, at once and from outside.
"""

import asyncio
import contextvars
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from sim.clock import SimClock

if TYPE_CHECKING:
    from sim.clock import VirtualTime
    from sim.lookout import Lookout
    from sim.rng import SplitRng

RUNNING: Final = 0
HELD: Final = 1
DEAD: Final = 2

UNEXPECTED: Final = (asyncio.InvalidStateError, struct.error)
"""Mistakes, beside what Python itself raises."""

CURRENT: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)
"""The process whose code is running; None outside of all."""


class SimCrash(SystemExit):
    """The process that is running is gone, here and now: making one kills it.

    It is a `SystemExit` because asyncio stores every other exception of a task in the task, while
    this one must reach the loop.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        process = CURRENT.get()
        if process is not None:
            process.on_crash(process)


class Socket(Protocol):
    """What a process holds open in the network, as seen by who ends the process."""

    def on_killed(self, ending: str) -> None:
        """The process is gone; ``ending`` is one of `sim.network.CLOSE`, RESET, VANISH."""
        ...


class HostDisk(Protocol):
    """What the loop needs of the disk of a host; see `sim.disk.SimDisk`."""

    on_block: Callable[[], None] | None
    """Called when a call that is no thread's hangs: the process stands still."""
    on_unblock: Callable[[], None] | None
    """Called when nothing hangs any more."""

    def crash(self) -> None:
        """The process that used the disk is gone."""
        ...


class Host:
    """A machine of the simulation; survives the crashes of its processes.

    ``disk`` is set by who makes the host. Whether it is alive is whether its process is.
    """

    __slots__ = ("address", "clock", "disk", "incarnation", "name", "number", "process", "rng")

    def __init__(
        self, name: str, address: str, *, number: int, time: "VirtualTime", rng: "SplitRng"
    ) -> None:
        """Make a machine; use `SimLoop.add_host`."""
        self.name = name
        self.address = address
        self.number = number
        self.clock = SimClock(time)
        self.rng = rng
        self.disk: HostDisk | None = None
        self.incarnation = 0
        self.process: Process | None = None

    def __repr__(self) -> str:
        return f"<Host {self.name}>"

    @property
    def alive(self) -> bool:
        """Whether a process runs on it, or is paused."""
        return self.process is not None and self.process.alive

    @property
    def paused(self) -> bool:
        """Whether its process is held."""
        return self.process is not None and self.process.state == HELD

    @property
    def stopped(self) -> bool:
        """Whether its process waits for a `SimLoop.resume`, whatever else it waits for."""
        return self.process is not None and self.process.pauses > 0


def error_of(task: "asyncio.Task[Any]") -> BaseException | None:
    """Return what a task has ended with; nobody counts it as asked for by that."""
    return getattr(task, "_exception", None)


def is_unexpected(error: BaseException | None) -> bool:
    """Tell whether an error is a mistake of a program, and not an answer to its surroundings."""
    of_python = type(error).__module__ == "builtins" and isinstance(error, Exception)
    return isinstance(error, UNEXPECTED) or (of_python and not isinstance(error, OSError))


class Process:
    """One life of the program on a host."""

    __slots__ = (
        "after_event", "at_gate", "charged_ns", "context", "error", "exit_code", "gate_shut",
        "held", "holds", "host", "incarnation", "is_blocked", "is_buried", "lanes", "lookout",
        "number", "on_crash", "pauses", "settling", "sockets", "state", "tasks", "tasks_limit",
    )  # fmt: skip

    def __init__(self, host: Host, on_crash: "Callable[[Process], None]") -> None:
        """Begin a life; use `SimLoop.boot`."""
        self.host = host
        self.number = host.number
        """Stands for the host in the trace."""
        self.incarnation = host.incarnation
        self.on_crash = on_crash
        self.after_event: Callable[[], None] | None = None
        """Called after every callback of it, and free to look, or to raise."""
        self.lookout: Lookout | None = None
        """What sees where its tasks wait; None: nobody wants to know."""
        self.state = RUNNING
        self.holds = 0
        """How many reasons there are for it to wait, see `SimLoop.pause`."""
        self.pauses = 0
        """How many of them are pauses."""
        self.held: list[Any] = []
        """Callbacks that wait until it goes on; those of the dead, for ever."""
        self.charged_ns = 0
        """What the calls of this very callback have cost so far."""
        self.settling: list[Callable[[], None]] | None = None
        """Within the work of a thread: what takes effect when the work is over."""
        self.gate_shut = False
        """Whether a disk call of a thread hangs: no thread goes on until `open_gate`."""
        self.at_gate: list[Callable[[], None]] = []
        self.is_blocked = False
        """Whether a disk call that is no thread's hangs."""
        self.is_buried = False
        """Whether the kernel has cleaned up behind it."""
        self.exit_code: int | None = None
        self.error: BaseException | None = None
        """Why it ended by itself."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks that are not done, and some that are."""
        self.tasks_limit = 64
        self.sockets: dict[Socket, None] = {}
        self.lanes: dict[object, Any] = {}
        """Work given to executors, see `sim.executor`."""
        self.context = contextvars.Context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.name}>"

    @property
    def name(self) -> str:
        """Host and incarnation."""
        return f"{self.host.name}.{self.incarnation}"

    @property
    def alive(self) -> bool:
        """Whether it has not ended; it may be held."""
        return self.state != DEAD

    def charge(self, cost_ns: int) -> None:
        """Let the call being made take so long: its clock goes on, then everything of it waits.

        Within the work of a thread, only that work takes longer.
        """
        self.charged_ns += cost_ns
        if self.settling is None:
            self.host.clock.lag_ns += cost_ns

    def take_charge(self) -> int:
        """Return what was charged, and begin anew."""
        cost_ns, self.charged_ns = self.charged_ns, 0
        self.host.clock.lag_ns = 0
        return cost_ns

    def wait_at_gate(self, again: Callable[[], None]) -> bool:
        """If the disk hangs, have ``again`` called when it goes on, and return true."""
        if self.gate_shut:
            self.at_gate.append(again)
        return self.gate_shut

    def open_gate(self) -> None:
        """Let the threads that wait for the disk go on."""
        self.gate_shut = False
        waiting, self.at_gate = self.at_gate, []
        for again in waiting:
            again()

    def crash(self, why: str) -> NoReturn:
        """End the process in the middle of the call being made; nothing of it runs any more."""
        raise SimCrash(why)

    def add_task(self, task: "asyncio.Task[Any]") -> None:
        """Hold a task, so that it can neither vanish nor be heard when the process dies."""
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) > self.tasks_limit:
            self.tasks = [one for one in tasks if not one.done() or is_unexpected(error_of(one))]
            self.tasks_limit = max(64, 2 * len(self.tasks))

    def clear(self) -> None:
        """Let go of everything, at the end of the world."""
        self.tasks = []
        self.held = []
        self.at_gate = []
        self.sockets = {}
        self.lanes = {}
