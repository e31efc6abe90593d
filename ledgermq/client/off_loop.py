"""Plain functions of the user's that may block: each call has a thread, so many at a time.

The threads are daemons: a call that never ends keeps its thread, and the process may end all the
same. Knows nothing of what is called.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context


class OffLoop:
    """The threads of one client. Further calls wait for one to become free."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._running = 0
        self._waiting: deque[_Job] = deque()

    def submit(
        self, function: Callable[[], object], on_end: Callable[[], object]
    ) -> "asyncio.Future[object]":
        """Return the future of what ``function`` returns or raises.

        Cancelling it does not stop the function; one that has not begun never does.
        ``on_end`` is called once, as soon as the function does not run and never will. Where the
        machine has no thread left the future fails, with the error of that.
        """
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        job = _Job(function, future, on_end, copy_context())
        future.add_done_callback(lambda _: self._forget(job))
        self._waiting.append(job)
        self._begin()
        return future

    def _forget(self, job: "_Job") -> None:
        """Remove a cancelled call that has not begun from the queue of calls."""
        if not job.begun:
            self._waiting.remove(job)
            job.on_end()

    def _begin(self) -> None:
        while self._waiting and self._running < self._threads_max:
            job = self._waiting.popleft()
            job.begun = True
            work = (asyncio.get_running_loop(), job)
            thread = threading.Thread(target=self._work, args=work, name="listener", daemon=True)
            self._running += 1
            try:
                thread.start()
            except Exception as error:  # noqa: BLE001 - whatever it is, the call has failed
                self._settle(job, None, error)
                if self._running:
                    return  # The others wait for a thread that becomes free.

    def _work(self, loop: asyncio.AbstractEventLoop, job: "_Job") -> None:
        """Run in a thread of its own."""
        result: object = None
        failure: BaseException | None = None
        try:
            result = job.context.run(job.function)
        except BaseException as error:  # noqa: BLE001 - raised to the caller, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            loop.call_soon_threadsafe(self._end, job, result, failure)

    def _end(self, job: "_Job", result: object, failure: BaseException | None) -> None:
        self._settle(job, result, failure)
        self._begin()

    def _settle(self, job: "_Job", result: object, failure: BaseException | None) -> None:
        self._running -= 1
        job.on_end()
        if job.future.done():
            return
        if failure is None:
            job.future.set_result(result)
        elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
            job.future.set_exception(failure)
        else:  # A future refuses it, or it must end the program and not its loop.
            job.future.set_exception(RuntimeError(f"{type(failure).__name__}: {failure}"))


class _Job:
    """One call, and whether it has a thread."""

    __slots__ = ("begun", "context", "function", "future", "on_end")

    def __init__(
        self,
        function: Callable[[], object],
        future: "asyncio.Future[object]",
        on_end: Callable[[], object],
        context: Context,
    ) -> None:
        self.function = function
        self.future = future
        self.on_end = on_end
        self.context = context
        self.begun = False
