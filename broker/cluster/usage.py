"""How much is used of what is limited: ``limits`` in the answer to RAFT_STATUS.

Whoever owns a table, a cache or a set of connections adds its limit and how to count what is used
of it. It knows nothing of what is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgermq.remoting.protocol.limits import Limit


class Usage:
    """Collects the limits of one broker."""

    def __init__(self) -> None:
        self._gauges: dict[str, tuple[Limit, Callable[[], int]]] = {}

    def add(self, limit: Limit, used: Callable[[], int]) -> None:
        """Have ``limit`` shown; ``used`` must be cheap, it may run once a second."""
        assert limit.name not in self._gauges, limit.name
        self._gauges[limit.name] = (limit, used)

    def report(self) -> dict[str, list[int]]:
        """Return by a limit's name what is used, and what may be."""
        return {name: [used(), int(limit)] for name, (limit, used) in self._gauges.items()}
