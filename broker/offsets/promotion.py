"""Has a new master take over what it took from consumers while it was a slave.

It runs before anything of that is proposed: the log is dispatched then, and tells where the queues
end. What is replicated is forgotten, so that it cannot come back at a later start.
Source: docs/replication.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from broker.leader.service import LeaderService

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.own_offsets import OwnOffsets

PERIOD_MS: Final = 1_000
FORGOTTEN_PER_TICK: Final = 2_000
"""Topics and groups: a turn of the loop takes a few milliseconds for them."""


class OwnOffsetsTakeover(LeaderService):
    """Of one master.

    Args:
        max_offset: returns where a queue ends, by topic and queue id.
    """

    name: ClassVar = "offsets of a slave"
    period_ms: ClassVar = PERIOD_MS

    def __init__(self, own: OwnOffsets, max_offset: Callable[[str, int], int]) -> None:
        self._own = own
        self._max_offset = max_offset

    def start(self, term: int) -> None:
        """See `OwnOffsets.bound`."""
        del term
        self._own.bound(self._max_offset)

    def stop(self) -> None:
        """See `OwnOffsets.forget_settled`."""
        self._own.forget_settled()

    def tick(self) -> None:
        """See `OwnOffsets.forget_settled`."""
        self._own.forget_settled(FORGOTTEN_PER_TICK)
