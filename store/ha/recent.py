"""What a slave has got last, in memory until it is dispatched. Pure.

It was checked when it came, and is not read back from the disk nor checked again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from store.ha.assembly import Run
from store.plain.view import Body

RECENT_BYTES_MAX: Final = 1024 * 1024
"""Of records that are kept; the oldest go first."""


class Recent:
    """Runs that follow each other up to the end of a log."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._bytes = 0

    def add(self, runs: Sequence[Run]) -> None:
        """Take what was written."""
        self._runs += runs
        self._bytes += sum(len(run.data) for run in runs)
        while self._bytes > RECENT_BYTES_MAX:
            self._drop()

    def drop_before(self, position: int) -> None:
        """Forget what nobody will walk again."""
        runs = self._runs
        while runs and runs[0].extent.position <= position:
            self._drop()

    def _drop(self) -> None:
        self._bytes -= len(self._runs.popleft().data)

    def walk(self, start: int, end: int, limit: int) -> Iterator[Body]:
        """Walk records as `PlainView.walk` does; none if the one at ``start`` is not kept."""
        runs = self._runs
        if not runs or start < runs[0].position:
            return
        for run in tuple(runs):
            position, data = run.position, run.data
            if run.extent.position <= start:
                continue
            at = 0
            for size in run.sizes:
                if position >= start:
                    if position >= end or limit <= 0:
                        return
                    yield position, data, at, size
                    limit -= 1
                position += size
                at += size
