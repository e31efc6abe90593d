"""Sees where the product's code waits, and how seldom it has waited there before.

A *point* is where a task of a process has just stopped: the innermost coroutine of the product on
its stack and the line at which it awaits; or a function that was just called later (a timer, what
follows a future), or given to a thread. Most bugs that need a moment need one that is rare, and
rare moments are at rare points. Whoever wants something to happen there, see `sim.faults.ambush`,
puts a trap here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ledgermq

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

ROOT: Final = Path(ledgermq.__file__).parent.parent
PRODUCT: Final = ("broker", "dledger", "ledgermq", "namesrv", "store")
"""The folders whose code counts."""

Point = tuple[str, str, int]
"""File below the root, name of the function, line; line 0 for a whole function."""


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
        self._files: dict[CodeType, str] = {}
        self._seen: dict[Point, int] = {}

    def see(self, name: str, callback: Callable[..., object] | None) -> None:
        """Take that a callback has just been run by the process of a host."""
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
