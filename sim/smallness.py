"""Sets the small limits of a plan for the length of its run; lets turns last, and threads be late.

Modules of production read a limit each time they need it, so that it is enough to set it there and
to put it back after the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from typing import TYPE_CHECKING, Final

from sim.context import CURRENT
from sim.faults.small import SMALL
from sim.rng import SplitRng

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.faults.plan import Plan
    from sim.faults.skilled import Skilled


NS_PER_MS: Final = 1_000_000
UNREAD: Final = 4
"""What part of that which may be under way may wait at the sender besides."""
BUFFERS: Final = ("sim.transport:KERNEL_BYTES", "sim.transport:HIGH_WATER_BYTES")
ROOM: Final = "broker.sends.room:LOG_ROOM_BYTES"
FRAMES: Final = (
    "ledgermq.remoting.transport.connection:TURN_FRAMES_MAX",
    "ledgermq.remoting.transport.turns:TURN_FRAMES_MAX",
    "ledgermq.remoting.transport.turns:FEW_FRAMES",
)
SAVES: Final = "broker.state.saver:PERIOD_MS"


@contextlib.contextmanager
def with_small(plan: Plan) -> Iterator[None]:
    """Set what a plan has drawn small for as long as the context lasts."""
    small, worn = plan.workload.small, plan.workload.worn
    with contextlib.ExitStack() as behind:
        if small is not None:
            for name in small.limits:
                _exchange(behind, name, SMALL[name])
            if small.threads_ms:
                _exchange(behind, "sim.executor:START_NS", round(small.threads_ms * NS_PER_MS))
            if small.turn_ms:
                rng = SplitRng(plan.seed).split("turns between slices")
                behind.enter_context(_long_turns(rng, small.turn_ms / 1_000))
        if plan.workload.skilled is not None:
            _make_narrow(behind, plan.workload.skilled)
        if worn is not None and worn.saved_ms:
            _exchange(behind, SAVES, worn.saved_ms)
        if worn is not None and worn.socket_bytes:
            _exchange(behind, "sim.transport:WINDOW_BYTES", worn.socket_bytes)
            for name in BUFFERS:
                _exchange(behind, name, worn.socket_bytes // UNREAD)
        yield


def _make_narrow(behind: contextlib.ExitStack, skilled: Skilled) -> None:
    """Have few requests taken in a turn, and little of the log wait for its commit."""
    if skilled.room_bytes:
        _exchange(behind, ROOM, skilled.room_bytes)
    for name in FRAMES if skilled.turn_frames else ():
        _exchange(behind, name, skilled.turn_frames)


def _exchange(behind: contextlib.ExitStack, name: str, value: int) -> None:
    """Set a constant of a module, and have it put back."""
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    usual = getattr(module, attribute)
    setattr(module, attribute, value)
    behind.callback(setattr, module, attribute, usual)


@contextlib.contextmanager
def _long_turns(rng: SplitRng, mean_s: float) -> Iterator[None]:
    """Make ``asyncio.sleep(0)``, by which a process gives other tasks a turn, take time."""
    usual = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        if delay <= 0 and CURRENT.get() is not None:
            delay = rng.exponential(mean_s)
        return await usual(delay, result)

    asyncio.sleep = sleep  # type: ignore[assignment]  # no test asks for its result
    try:
        yield
    finally:
        asyncio.sleep = usual
