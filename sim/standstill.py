"""A run that stands still: a callback that never returns, or callbacks for ever at one moment.

Neither comes back to whoever runs the loop, so no bound of virtual time finds it. The processor
time of the process does, whatever else the machine is doing. What stood still is told by file and
line, and the run ends there: it is not live.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

LIMIT_S: Final = 60.0
"""Processor time for half a second of virtual time, which takes a hundredth of a second."""


class StoodStill(SystemExit):
    """The time is over; a `SystemExit` because asyncio lets no other exception out of a task."""

    def __init__(self, seconds: float, where: str) -> None:
        super().__init__(f"no end after {seconds:g} s of processor time: {where}")


@contextmanager
def limited(seconds: float = LIMIT_S) -> Iterator[None]:
    """Raise `StoodStill` where the code is that is running after so much processor time.

    Outside the main thread, which signals need, nothing is watched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, frame: FrameType | None) -> None:
        raise StoodStill(seconds, _place(frame))

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _place(frame: FrameType | None) -> str:
    if frame is None:
        return "nowhere in Python"
    path = PurePath(frame.f_code.co_filename)
    return f"{path.parent.name}/{path.name}:{frame.f_lineno} in {frame.f_code.co_qualname}"
