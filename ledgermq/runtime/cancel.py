"""Time limits, and who was meant by a cancellation, in a task that may have been cancelled before.

A clean-up runs in a task that was cancelled, and `asyncio.Task.cancelling` stays above zero in it:
only a request on top of those known before is a new one. `asyncio.timeout` of early Python 3.11,
Debian 12's 3.11.2 among them, does not know that (python/cpython#102780): where it should raise
`TimeoutError` in a clean-up it raises `CancelledError`, and what follows in the clean-up is lost.
"""

import asyncio
from types import TracebackType
from typing import Self


def cancel_requests() -> int:
    """Return how often the running task was asked to end; 0 outside of any task."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def timeout(seconds: float | None) -> "Timeout":
    """Limit an ``async with`` block to so many seconds from now, see `Timeout`."""
    if seconds is None:
        return Timeout(None)
    return Timeout(asyncio.get_running_loop().time() + seconds)


class Timeout:
    """Cancels the block that it encloses when its time has come, and raises `TimeoutError` then.

    It is what `asyncio.Timeout` is in later versions of Python, in all of them; used once.
    """

    def __init__(self, when: float | None) -> None:
        """``when`` is a time of the running loop, None for never."""
        self._when = when
        self._task: asyncio.Task[object] | None = None
        self._known: int = 0
        """How often the task had been cancelled before."""
        self._timer: asyncio.Handle | None = None
        self._expired = False

    def expired(self) -> bool:
        """Tell whether its time has come before the block ended."""
        return self._expired

    def reschedule(self, when: float | None) -> None:
        """Let it be at another time, at once if that is past. Only inside the block."""
        assert self._task is not None, "outside of its block"
        self._when = when
        if self._expired:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None:
            loop = asyncio.get_running_loop()
            if when <= loop.time():
                self._timer = loop.call_soon(self._expire)
            else:
                self._timer = loop.call_at(when, self._expire)

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._timer = None
        self._task.cancel()

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a time limit needs a task that it can cancel"
        assert self._task is None, "a time limit is used once"
        self._task = task
        self._known = task.cancelling()
        self.reschedule(self._when)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._task is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._expired:
            is_ours = self._task.uncancel() <= self._known
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error
