"""What the loop runs: a callback, when, in which context, and for which process."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.context import Process

NS: float = 1e9
"""Nanoseconds of a second."""


class SimHandle(asyncio.TimerHandle):
    """A callback that is due; also what `call_soon` and `call_later` return."""

    __slots__ = ("process", "when_ns")

    def __init__(
        self,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        process: "Process | None",
    ) -> None:
        # asyncio's own constructor looks for debug modes; the base's `_run` and `repr` are unused.
        self.when_ns = when_ns
        self._callback: Callable[..., object] | None = callback
        self._args: tuple[Any, ...] = args
        self._context = context
        self._cancelled = False
        self.process = process

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<SimHandle {self.when_ns} {self._callback!r}>"

    def cancel(self) -> None:
        """Let it not run."""
        self._cancelled = True
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self._cancelled

    def when(self) -> float:
        """Return the time it is due, in seconds of virtual time."""
        return self.when_ns / NS

    def on_dead(self) -> None:
        """Its process is dead, so it will not run."""


class Packet(SimHandle):
    """Something that arrives from the network for a socket, which is the callback's object."""

    __slots__ = ()

    def on_dead(self) -> None:
        """Let the kernel answer that there is no such socket."""
        callback = self._callback
        if callback is not None:
            callback.__self__.bounce()  # type: ignore[attr-defined]  # a method of `SimTransport`
