"""Work that production gives to threads, done in the one thread there is, later in virtual time.

An executor with one thread is a lane: one piece after the other. The default executor has as many
lanes as it has work. A piece starts a moment after it was given, and is over when the time that its
disk calls cost has passed; only then is durable what it synced. A disk that hangs keeps it longer.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from sim.context import Process
from sim.handle import SimHandle

if TYPE_CHECKING:
    import asyncio

    from sim.rng import SplitRng

START_NS: Final = 40_000
"""How long it takes on average until a thread has woken up and begun."""

Work = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


class Loop(Protocol):
    """What executors need of the loop."""

    now_ns: int

    def post(self, when_ns: int, handle: SimHandle) -> None:
        """Have a handle run at a virtual time."""
        ...


class Lane:
    """Runs pieces of work of one process one after the other."""

    __slots__ = ("_busy", "_loop", "_process", "_queue", "_rng")

    def __init__(self, loop: Loop, process: Process, rng: "SplitRng") -> None:
        """Make an idle lane."""
        self._loop = loop
        self._process = process
        self._rng = rng
        self._queue: deque[Work] = deque()
        self._busy = False

    def submit(self, work: Work) -> None:
        """Take a piece of work."""
        self._queue.append(work)
        if not self._busy:
            self._busy = True
            self._post(1 + int(self._rng.exponential(START_NS)), self._run)

    def _run(self) -> None:
        process = self._process
        if process.wait_at_gate(lambda: self._post(1, self._run)):
            return
        function, args, future = self._queue.popleft()
        if future.cancelled():
            self._next()
            return
        result: Any = None
        failure: Exception | None = None
        settling: list[Callable[[], None]] = []
        process.settling = settling
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - goes to whoever waits for the work
            failure = error
        cost_ns = 1 + process.take_charge()
        process.settling = None

        def end() -> None:
            for settle in settling:
                settle()
            if not future.cancelled():
                if failure is None:
                    future.set_result(result)
                else:
                    future.set_exception(failure)
            self._next()

        if not process.wait_at_gate(lambda: self._post(cost_ns, end)):
            self._post(cost_ns, end)

    def _next(self) -> None:
        self._busy = False
        if self._queue:
            self._busy = True
            self._post(1, self._run)

    def _post(self, delay_ns: int, callback: Callable[[], None]) -> None:
        """Have something done for the process; threads of a held process stand still too."""
        when = self._loop.now_ns + delay_ns
        process = self._process
        self._loop.post(when, SimHandle(when, callback, (), process.context.copy(), process))
