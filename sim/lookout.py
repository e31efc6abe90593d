"""Sees where the product's code waits, and how seldom it has waited there before.

A *point* is where a task of a process has just stopped: the innermost coroutine of the product on
its stack and the line at which it awaits; or a function that was just called later (a timer, what
follows a future), or given to a thread. Where somebody wants to know, a message that arrives is one
as well, by its code, and a step of a disk, by what is done to which kind of file. Most bugs that
need a moment need one that is rare, and rare moments are at rare points. Whoever wants something to
happen there, see `sim.faults.ambush`, puts a trap here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ledgermq
from sim.frames import head_of, split_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType

    from sim.disk_rules import Op

ROOT: Final = Path(ledgermq.__file__).parent.parent
PRODUCT: Final = ("broker", "dledger", "ledgermq", "namesrv", "store")
"""The folders whose code counts."""

Point = tuple[str, str, int]
"""File below the root, name of the function, line; line 0 for a whole function. Or `FRAMES` or
`DISK`, what came or was done, and 0."""
FRAMES: Final = "frames"
DISK: Final = "disk"
ARRIVES: Final = "on_data"
"""What is called of a transport when bytes have arrived."""
EPHEMERAL_PORT: Final = 32_768
"""From here on ports are those of clients."""
_numbers: Final = re.compile(r"\d+")


class Lookout:
    """Counts the points of all processes of a world, and tells traps of each.

    It is asked for every callback of a process, so that it does little where no trap is laid: it
    counts all the same, since what is seldom is so over the whole run.
    """

    def __init__(self) -> None:
        """Begin with no point seen."""
        self.closed: set[Point] = set()
        """Points at which traps have closed: the next one is for another point."""
        self.traps: list[Callable[[str, Point, int], None]] = []
        """Called with a host, a point, and how often it was seen in this run, with this time."""
        self.listens = False
        """Whether messages that arrive are points."""
        self._files: dict[CodeType, str] = {}
        self._seen: dict[Point, int] = {}

    def see(
        self, name: str, callback: Callable[..., object] | None, args: Sequence[Any] = ()
    ) -> None:
        """Take that a callback has just been run by the process of a host."""
        if self.listens and getattr(callback, "__name__", "") == ARRIVES:
            port: int = callback.__self__.local[1]  # type: ignore[union-attr]  # a transport
            self.hear(name, port, args[0])
            return
        get_coro = getattr(getattr(callback, "__self__", None), "get_coro", None)
        if get_coro is None:
            self.see_call(name, callback)
            return
        point = self._where(get_coro())
        if point is not None:
            self._note(name, point)

    def see_call(self, name: str, function: Callable[..., object] | None) -> None:
        """Take that a process of a host has called this later, or given it to a thread."""
        inner: Any = getattr(function, "func", function)
        inner = getattr(inner, "__func__", inner)
        code = getattr(inner, "__code__", None)
        file = self._file(code) if code is not None else ""
        if file:
            self._note(name, (file, inner.__qualname__, 0))

    def hear(self, name: str, port: int, data: bytes) -> None:
        """Take that bytes arrive at a port of a process of a host."""
        for frame in split_frames(data):
            head = head_of(frame)
            if head is None:  # of a stream of its own: by its size, roughly
                what = f"{len(frame).bit_length()} bits of length"
            else:
                what = f"answer {head[0]}" if head[1] else f"request {head[0]}"
            here = port if port < EPHEMERAL_PORT else 0
            self._note(name, (FRAMES, f"{what} at {here}", 0))

    def feel(self, name: str, op: Op, path: str) -> None:
        """Take that the disk of a host has just made a step, or is about to sync."""
        self._note(name, (DISK, f"{op.value} {_numbers.sub('#', path)}", 0))

    def _note(self, name: str, point: Point) -> None:
        count = self._seen[point] = self._seen.get(point, 0) + 1
        for trap in tuple(self.traps):
            trap(name, point, count)

    def _where(self, coro: Any) -> Point | None:  # noqa: ANN401 - a coroutine, or what it awaits
        """Return where a task waits, in the innermost code of the product; None: nowhere there."""
        found: Point | None = None
        while (frame := getattr(coro, "cr_frame", None)) is not None:
            file = self._file(frame.f_code)
            if file:
                found = file, frame.f_code.co_qualname, frame.f_lineno
            coro = coro.cr_await
        return found

    def _file(self, code: CodeType) -> str:
        """Return the file of some code below the root, nothing if it is none of the product."""
        file = self._files.get(code)
        if file is None:
            path = Path(code.co_filename)
            inside = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
            file = self._files[code] = inside if inside.split("/")[0] in PRODUCT else ""
        return file
