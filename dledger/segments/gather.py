"""Work that many share waits until no more of them come: for a pass or two of the loop.

A sync costs the same for one entry as for fifty, and requests that lie in sockets are read in the
next passes. So a sync that begins two passes later covers more, and a log does fewer of them:
PostgreSQL's ``commit_delay``, measured in passes instead of time.
"""

from collections.abc import Callable
from typing import Final

PASSES_MAX: Final = 4
"""Passes of the loop until work begins although more keeps coming."""


class Gather:
    """Begins one piece of work at a time."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        progress: Callable[[], int],
        begin: Callable[[], None],
    ) -> None:
        """Make one that does nothing yet.

        Args:
            call_soon: has a function called in the next pass of the loop.
            progress: grows with what has come.
            begin: begins the work.
        """
        self._call_soon = call_soon
        self._progress = progress
        self._begin = begin
        self._passes = 0
        self._seen = 0

    def start(self) -> None:
        """Begin soon, unless that is under way already."""
        if not self._passes:
            self._passes = PASSES_MAX
            self._seen = -1
            self._call_soon(self._look)

    def _look(self) -> None:
        progress = self._progress()
        self._passes -= 1
        if self._passes and progress != self._seen:
            self._seen = progress
            self._call_soon(self._look)
        else:
            self._passes = 0
            self._begin()
