"""The thread and the event loop in which the clients of `ledgermq.sync` live, and calls into it.

A call hands a coroutine to the loop and blocks its thread until the loop has the result. Whatever
ends the wait (Ctrl-C, or what another signal raises) ends the coroutine, too. Knows of a client
that it starts and stops, and nothing of what it does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from ledgermq.client.errors import NotRunning

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

    from ledgermq.client.lifecycle import StartStop

C = TypeVar("C", bound="StartStop")
T = TypeVar("T")

END_S: Final = 5.0
"""How long the thread of the loop may take to end."""
GIVE_UP_S: Final = 2.0
"""How long an interrupted call may take to end; it goes on ending behind that."""
listens_for: ContextVar[object] = ContextVar("listens_for", default=None)
"""The consumer whose listener runs in this thread."""


class Call(Generic[T]):
    """One coroutine that a thread has the loop run; ``undo`` gets a result that nobody took."""

    def __init__(
        self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None
    ) -> None:
        self._work = work
        self._undo = undo
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._ending: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._given_up = False
        self._over = threading.Event()

    @property
    def ended(self) -> bool:
        """Whether the coroutine came to its end by itself, well or badly."""
        return self._ending.done() and not self._ending.cancelled()

    @property
    def failed(self) -> bool:
        """Whether it ended with an error of its own."""
        return self.ended and self._ending.exception() is not None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop run it. Errors: ``RuntimeError`` if the loop is closed."""
        self._loop = loop
        loop.call_soon_threadsafe(self._begin)

    def result(self) -> T:
        """Wait for the end. Errors: those of the coroutine; ``CancelledError``."""
        return self._ending.result()

    def give_up(self) -> None:
        """End it, and wait a while until it has: the caller does not wait for its result."""
        if self.failed:
            return
        if self._loop is None:  # It never began.
            self._work.close()
            return
        try:
            self._loop.call_soon_threadsafe(self._give_up)
        except RuntimeError:  # The loop is closed, and has ended what it had begun.
            if self._task is None:
                self._work.close()
            return
        self._over.wait(GIVE_UP_S)

    # The rest runs in the loop.

    def _begin(self) -> None:
        assert self._loop is not None
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._ending.cancel()
        elif (error := task.exception()) is not None:
            self._ending.set_exception(error)
        else:
            self._ending.set_result(task.result())
        if self._given_up:
            self._take_back()

    def _give_up(self) -> None:
        self._given_up = True
        if self._ending.done():
            self._take_back()
        elif self._task is not None:
            self._task.cancel()
        else:
            self._work.close()
            self._over.set()

    def _take_back(self) -> None:
        if self._undo is not None and self.ended and not self.failed:
            self._undo(self._ending.result())
        self._over.set()


class LoopThread:
    """The event loop of this process's clients, in a thread of its own.

    A handler of a signal may call whatever its thread is in the middle of: the lock lets it.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked process must: the thread did not come with it."""
        self._lock = threading.RLock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, for a client that starts."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                work = (self._loop,)
                self._thread = threading.Thread(
                    target=_run_loop, args=work, name="ledgermq-loop", daemon=True
                )
                self._thread.start()
            self._users += 1
            return self._loop

    def begin(self, loop: asyncio.AbstractEventLoop, call: Call[Any]) -> None:
        """Have ``loop`` run a call. Errors: ``NotRunning`` if the last client has left it.

        Under the lock: a call comes before the end of the loop, which ends it, or not at all.
        """
        with self._lock:
            if self._loop is not loop:
                raise NotRunning("the client was stopped")
            try:
                call.begin(loop)
            except RuntimeError:  # A handler of a signal stopped the client just now.
                raise NotRunning("the client was stopped") from None

    def leave(self) -> None:
        """A client has stopped; the last one ends the thread."""
        with self._lock:
            self._users -= 1
            loop, thread = self._loop, self._thread
            if self._users or loop is None or thread is None:
                return
            self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(END_S)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        while left := asyncio.all_tasks(loop):  # Some begin others while they end.
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


LOOP: Final = LoopThread()
os.register_at_fork(after_in_child=LOOP.forget)


class Blocking(Generic[C]):
    """A client of the loop, whose methods block; use it as a context manager."""

    def __init__(self, client: C) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = threading.RLock()
        self._stopping = False
        self._process_id = os.getpid()

    def start(self) -> None:
        """Begin to work. Errors: those of the asyncio client; ``RuntimeError`` in a coroutine."""
        self._refuse()
        with self._turn:
            if self._loop is not None:
                raise RuntimeError("this client was started already")
            self._loop = LOOP.enter()
            call = Call(self._client.start())
            try:
                self._wait(call)
            except BaseException:
                if call.failed:
                    self._leave()
                else:  # It may run by now, and nobody else will stop it.
                    self.stop()
                raise

    def stop(self) -> None:
        """Finish what is under way, and close. Calling it again is harmless.

        One that was interrupted has to be called again. One that a handler of a signal calls while
        its thread is in another returns at once, as does one in a forked process, which has nothing
        to stop.
        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_elsewhere:
            return
        refuse_in_loop()
        if listens_for.get() is self:
            raise RuntimeError(
                "a listener cannot stop its own consumer, which would wait for the listener: set a "
                "threading.Event, and have the thread that started the consumer stop it"
            )
        with self._turn:
            if self._loop is None or self._stopping:
                return
            self._stopping = True
            try:
                call = Call(self._client.__aexit__(kind, error, trace))
                try:
                    self._wait(call)
                finally:
                    if call.ended:
                        self._leave()
            finally:
                self._stopping = False

    def _leave(self) -> None:
        if self._loop is not None:
            self._loop = None
            LOOP.leave()

    def _call(self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> T:
        """Run a coroutine in the loop and return its result; it ends where the caller does."""
        return self._wait(Call(work, undo))

    def _wait(self, call: Call[T]) -> T:
        try:
            LOOP.begin(self._running_loop(), call)
            return call.result()
        except concurrent.futures.CancelledError:
            raise NotRunning("the client was stopped") from None
        except BaseException:
            call.give_up()  # Ctrl-C; where the call itself failed, this does nothing.
            raise

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        self._refuse()
        if self._loop is None:
            raise NotRunning("the client is not running: start() first")
        return self._loop

    def _do(self, function: Callable[[], T]) -> T:
        """Run a plain function of the client, in the loop if that runs."""
        if self._loop is None:
            return function()

        async def work() -> T:
            return function()

        return self._call(work())

    def _refuse(self) -> None:
        """Raise ``RuntimeError`` where a call would wait for ever."""
        if self._is_elsewhere:
            raise RuntimeError(
                "this client belongs to the process that made it: make a new one after a fork"
            )
        refuse_in_loop()

    @property
    def _is_elsewhere(self) -> bool:
        return os.getpid() != self._process_id


def refuse_in_loop() -> None:
    """Raise ``RuntimeError`` in the thread of a running loop, which would wait for ever."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("ledgermq.sync blocks; a coroutine uses the same classes of ledgermq")
