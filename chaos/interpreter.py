"""The interpreter: draws operations from a generator, invokes them, records the history.

The only loop that does I/O on behalf of a generator. Producers and the nemesis run the same one,
each in its process. It knows nothing of what operations mean: a `Client` performs them.

A logical process has one operation in flight. After ``info`` (outcome unknown) its id is retired
and the slot gets a new one, because the old operation may still take effect while the process
would begin another. Source: Jepsen ``generator/interpreter.clj``.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from chaos.generator import Context, Event, Generator, Op, Pending
from chaos.record import Recorder
from ledgermq.runtime.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """How an operation ended: ``type`` is ok, fail or info."""

    type: str
    value: Mapping[str, Any] = field(default_factory=dict)
    err_code: int | None = None
    err_class: str | None = None
    time_ns: int = 0
    """When the answer arrived; 0 lets the interpreter take the time."""


_log: Final = logging.getLogger(__name__)
PROCESSES_PER_WORKER: Final = 10_000
"""So many ids of logical processes a worker has; the next one's follow."""
PACE_S = 0.005
"""A loop that has to wait for the next operation's time wakes no more often than this."""


class Client(Protocol):
    """Performs operations; an exception that it raises counts as ``info``."""

    def prepare(self, op: Op) -> Mapping[str, Any]:
        """Return what the invocation's record says, decided before anything is sent."""
        ...

    async def invoke(self, op: Op, prepared: Mapping[str, Any]) -> Completion:
        """Perform the operation."""
        ...


@dataclass(slots=True)
class Tally:
    """Counts for the live display; ``last_ok_inv_ns`` is the latest invocation that was ok."""

    invoked: int = 0
    ok: int = 0
    fail: int = 0
    info: int = 0
    last_ok_inv_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Who may invoke: ``count`` logical processes whose ids begin at ``first_process``."""

    worker: int
    role: str
    count: int
    first_process: int
    ids: int = PROCESSES_PER_WORKER
    """How many ids there are."""


class Interpreter:
    """Runs one generator against one client until it is exhausted or stopped."""

    def __init__(self, *, client: Client, recorder: Recorder, clock: Clock, slots: Slots) -> None:
        self.tally = Tally()
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._slots = slots
        first = slots.first_process
        self._free = list(range(first, first + slots.count))
        self._next_process = first + slots.count
        self._retired: deque[int] = deque()
        self._busy: dict[asyncio.Task[Completion], tuple[Op, int, int]] = {}
        self._done: list[asyncio.Task[Completion]] = []
        self._next_op = 0
        self._is_stopped = False
        self._waker: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Draw no more operations; those in flight may end."""
        self._is_stopped = True
        self._wake()

    async def run(self, generator: Generator) -> None:
        """Run until the generator ends or `stop`; returns when nothing is in flight.

        Whoever cancels it cancels what is in flight: none of that goes on behind its back.
        """
        try:
            await self._run(generator)
        finally:
            await self._end_all()

    async def _end_all(self) -> None:
        """Cancel what is in flight, and wait until it has ended."""
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy)

    async def _run(self, generator: Generator) -> None:
        gen = generator
        while not self._is_stopped:
            gen = self._collect(gen)
            step = gen.op(self._context())
            if step is None:
                break
            op, after = step
            if isinstance(op, Op) and op.time_ns <= self._clock.monotonic_ns():
                gen = self._invoke(op, after)
                if len(self._busy) % 16 == 0:
                    await asyncio.sleep(0)
            else:
                # A future operation is asked for again: completions may change the answer.
                gen = gen if isinstance(op, Op) else after
                await self._wait(op)
        while self._busy:
            if not self._done:
                await self._sleep(None)
            gen = self._collect(gen)

    def _context(self) -> Context:
        return Context(
            time_ns=self._clock.monotonic_ns(),
            free=tuple(self._free),
            busy_count=len(self._busy),
        )

    def _invoke(self, op: Op, after: Generator) -> Generator:
        self._free.remove(op.process)
        op_id = self._slots.worker << 40 | self._next_op
        self._next_op += 1
        self.tally.invoked += 1
        prepared = self._client.prepare(op)
        time_ns = self._clock.monotonic_ns()
        # The invocation is on record before anything can be sent.
        invoked = Completion(type="invoke", value=prepared)
        self._recorder.write("events", self._row("invoke", op, op_id, time_ns, invoked))
        task = asyncio.get_running_loop().create_task(self._client.invoke(op, prepared))
        self._busy[task] = (op, op_id, time_ns)
        task.add_done_callback(self._note_done)
        event = Event(type="invoke", f=op.f, process=op.process, time_ns=time_ns)
        return after.update(self._context(), event)

    async def _wait(self, op: Op | Pending) -> None:
        """Wait for a completion, for the time of ``op``, or for `stop`."""
        if self._done or self._is_stopped:
            return
        seconds = None
        if isinstance(op, Op):
            seconds = max(PACE_S, (op.time_ns - self._clock.monotonic_ns()) / 1e9)
        await self._sleep(seconds)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep until something wakes us. One future for all: `asyncio.wait` costs by the task."""
        loop = asyncio.get_running_loop()
        self._waker = loop.create_future()
        self._timer = None if seconds is None else loop.call_later(seconds, self._wake)
        try:
            await self._waker
        finally:
            self._waker = None
            if self._timer is not None:
                self._timer.cancel()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def _note_done(self, task: asyncio.Task[Completion]) -> None:
        """Wake at once where a free process is waited for, else soon, with others that end."""
        self._done.append(task)
        if self._timer is None or self._waker is None:
            self._wake()
            return
        loop = asyncio.get_running_loop()
        if len(self._done) == 1 and self._timer.when() > loop.time() + PACE_S:
            self._timer.cancel()
            self._timer = loop.call_later(PACE_S, self._wake)

    def _collect(self, gen: Generator) -> Generator:
        ended, self._done = self._done, []
        rows = []
        for task in ended:
            op, op_id, invoked_ns = self._busy.pop(task)
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None and self._slots.role != "nemesis":  # what no client foresaw
                _log.error("event=client_raised op=%s", op.f, exc_info=error)
            done = (
                Completion(type="info", err_class=type(error).__name__, value={"error": str(error)})
                if error is not None
                else task.result()
            )
            time_ns = done.time_ns or self._clock.monotonic_ns()
            rows.append(self._row(done.type, op, op_id, time_ns, done))
            self._count(done.type, invoked_ns)
            if done.type == "info" and self._slots.role != "nemesis":
                self._free.append(self._in_place_of(op.process))
            else:
                self._free.append(op.process)
            event = Event(type=done.type, f=op.f, process=op.process, time_ns=time_ns)
            gen = gen.update(self._context(), event)
        self._recorder.write_all("events", rows)
        return gen

    def _in_place_of(self, process: int) -> int:
        """Retire an id and return a new one; where there is none, the one retired longest ago.

        Those that follow are another worker's: two messages would have one key.
        """
        self._retired.append(process)
        if self._next_process >= self._slots.first_process + self._slots.ids:
            return self._retired.popleft()
        self._next_process += 1
        return self._next_process - 1

    def _count(self, type_: str, invoked_ns: int) -> None:
        if type_ == "ok":
            self.tally.ok += 1
            self.tally.last_ok_inv_ns = max(self.tally.last_ok_inv_ns, invoked_ns)
        elif type_ == "fail":
            self.tally.fail += 1
        else:
            self.tally.info += 1

    def _row(
        self, type_: str, op: Op, op_id: int, time_ns: int, what: Completion
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "worker": self._slots.worker,
            "process": op.process,
            "role": self._slots.role,
            "type": type_,
            "f": op.f,
            "op_id": op_id,
            "t_mono_ns": time_ns,
            "value": dict(what.value),
        }
        if type_ != "invoke":
            row["err_code"] = what.err_code
            row["err_class"] = what.err_class
            row["definite"] = type_ != "info"
        return row
