"""What the loop runs: a callback, when, in which context, and for which process."""

import contextvars
from typing import Any

from msgspec import Struct

NS: float = 1e9
"""Nanoseconds of a second."""


class SimHandle(Struct, eq=False):
    """A callback that is due; also what `call_soon` and `call_later` return.

    It does what `asyncio.TimerHandle` does, and is made for every event: so it is a structure.
    """

    when_ns: int
    callback: Any
    """None once it is cancelled."""
    args: tuple[Any, ...]
    context: contextvars.Context
    process: Any
    """The `sim.context.Process` it belongs to, or None."""

    def __repr__(self) -> str:
        return f"<SimHandle {self.when_ns} {self.callback!r}>"

    def cancel(self) -> None:
        """Let it not run."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Tell whether it was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """Return the time it is due, in seconds of virtual time."""
        return self.when_ns / NS

    def on_dead(self) -> None:
        """Its process is dead, so it will not run."""


class Packet(SimHandle, eq=False):
    """Something that arrives from the network for a socket, which is the callback's object."""

    def on_dead(self) -> None:
        """Let the kernel answer that there is no such socket."""
        if self.callback is not None:
            self.callback.__self__.bounce()
