"""Asking a transaction listener, whatever it does: it raises, hangs, or returns nonsense.

All of that means UNKNOWN, with a warning: nobody else may decide. Functions run in threads, so
that they may block; coroutines run in the loop. Knows no brokers.
Source: TransactionListener; DefaultMQProducerImpl.sendMessageInTransaction 4.9.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol, cast

from ledgermq.client.config import TransactionOptions
from ledgermq.client.halves import HalfMessage, TransactionState
from ledgermq.client.off_loop import OffLoop
from ledgermq.remoting.protocol.message import MessageExt

_log = logging.getLogger(__name__)

Decision = TransactionState | Awaitable[TransactionState]


class TransactionListener(Protocol):
    """The user's side of transactions; either method may be a function or a coroutine."""

    def execute(self, message: HalfMessage, arg: Any) -> Decision:  # noqa: ANN401 - the user's own
        """Run the local transaction, and say how it ended."""
        ...

    def check(self, message: MessageExt) -> Decision:
        """Say how the local transaction of a message has ended, which may be any time ago."""
        ...


class Deciding:
    """The listener of one producer."""

    def __init__(self, listener: TransactionListener, options: TransactionOptions) -> None:
        for name in ("execute", "check"):
            if not callable(getattr(listener, name, None)):
                raise TypeError(f"a transaction listener needs the method {name}(...)")
        self._listener = listener
        self._options = options
        self._execute_threads = OffLoop(options.threads_max)
        self._check_threads = OffLoop(options.checks_max)
        self._executing: dict[str, None] = {}

    def is_executing(self, msg_id: str) -> bool:
        """Return whether a local transaction still runs, even if nobody waits for it any more."""
        return msg_id in self._executing

    async def execute(self, half: HalfMessage, arg: object) -> TransactionState:
        """Return how the local transaction of a half ended."""
        msg_id = half.transaction_id
        self._executing[msg_id] = None
        call = _Call(partial(self._listener.execute, half, arg))
        work = call.begin(self._execute_threads, lambda: self._executing.pop(msg_id, None))
        label = f"msg_id={msg_id} event=execute"
        return await _decided(call, work, label, self._options.execute_timeout_ms)

    async def check(self, message: MessageExt, msg_id: str) -> TransactionState:
        """Return what the listener knows of an earlier transaction."""
        call = _Call(partial(self._listener.check, message))
        work = call.begin(self._check_threads, lambda: None)
        label = f"msg_id={msg_id} event=check"
        return await _decided(call, work, label, self._options.check_timeout_ms)


class _Call:
    """One call of the listener."""

    def __init__(self, ask: Callable[[], Decision]) -> None:
        self._ask = ask
        self.begun = False
        """Whether the listener has been called: functions may wait for a thread."""

    def begin(self, threads: OffLoop, on_end: Callable[[], object]) -> asyncio.Future[object]:
        """Call it; ``on_end`` follows once neither the call nor what it gave to be awaited runs."""
        if iscoroutinefunction(self._ask):
            task: asyncio.Future[object] = asyncio.ensure_future(self._run_here())
            task.add_done_callback(lambda _: on_end())
            return task
        running = {"thread", "task"}

        def end(part: str) -> None:
            running.discard(part)
            if not running:
                on_end()

        returned = threads.submit(self._run, lambda: end("thread"))
        whole: asyncio.Future[object] = asyncio.ensure_future(_awaited(returned))
        whole.add_done_callback(lambda _: end("task"))
        return whole

    async def _run_here(self) -> object:
        """Run in the loop; a call with other arguments than it takes fails like any other."""
        self.begun = True
        return await cast("Awaitable[object]", self._ask())

    def _run(self) -> object:
        """Run in a thread."""
        self.begun = True
        return self._ask()


async def _awaited(returned: asyncio.Future[object]) -> object:
    """Return what a function returns, also where that has to be awaited."""
    result = await returned
    return await result if isawaitable(result) else result


async def _decided(
    call: _Call, work: asyncio.Future[object], label: str, timeout_ms: int
) -> TransactionState:
    """Return what a call of the listener decides."""
    try:
        state = await _within(work, timeout_ms)
    except TimeoutError:
        if call.begun:
            _log.warning("%s_takes_too_long ms=%d", label, timeout_ms)
        else:  # Earlier calls have all the threads, and may never end.
            _log.warning("%s_never_begun ms=%d reason=no_thread_is_free", label, timeout_ms)
        return TransactionState.UNKNOWN
    except Exception:  # noqa: BLE001 - a listener that raises has not decided
        _log.warning("%s_failed", label, exc_info=True)
        return TransactionState.UNKNOWN
    if isinstance(state, TransactionState):
        return state
    _log.warning("%s_returned value=%r", label, state)
    return TransactionState.UNKNOWN


async def _within(work: asyncio.Future[object], timeout_ms: int) -> object:
    """Return the result; raises what it raises, and ``TimeoutError``.

    Nobody waits for a coroutine that ignores being cancelled, nor for a thread.
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()  # as `asyncio.wait` does, for one future
    wake = partial(_wake, over)
    timer = loop.call_later(timeout_ms / 1000, wake)
    work.add_done_callback(wake)
    try:
        await over
    except asyncio.CancelledError:
        _abandon(work)
        raise
    finally:
        timer.cancel()
        work.remove_done_callback(wake)
    if not work.done():
        _abandon(work)
        raise TimeoutError
    if work.cancelled():
        raise RuntimeError("the listener was cancelled")
    return work.result()


def _wake(waiter: asyncio.Future[None], _work: object = None) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _abandon(work: asyncio.Future[object]) -> None:
    work.cancel()
    work.add_done_callback(lambda gone: gone.cancelled() or gone.exception())
