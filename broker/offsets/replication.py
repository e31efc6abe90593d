"""Carries accepted consumer offsets into the replicated log: once a second, and at a hand-over.

Source: docs/adr/0002.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.state.kinds import StateKind
from ledgermq.runtime.cancel import timeout
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.replicated_state import StateLog

OFFSETS_PER_FLUSH: Final = 4_096
REST_MS: Final = 50
_POLL_S: Final = 0.005


class OffsetReplicator:
    """Proposes what the offset table has pending.

    Args:
        later: has `flush` called in so many milliseconds.
    """

    def __init__(
        self, offsets: ConsumerOffsetTable, log: StateLog, later: Callable[[int], object]
    ) -> None:
        self._offsets = offsets
        self._log = log
        self._later = later

    def flush(self) -> None:
        """Propose the offsets accepted since the last call; does nothing on a follower.

        What is more than the loop should spend on it at a time follows a moment later.
        """
        self._propose(OFFSETS_PER_FLUSH)
        if self._log.writable and self._offsets.has_proposals:
            self._later(REST_MS)

    def flush_all(self) -> None:
        """Propose all of them at once: leadership is about to be handed over."""
        self._propose(None)

    def _propose(self, count_max: int | None) -> None:
        if not self._log.writable:
            return
        for payload in self._offsets.take_proposals(count_max):
            self._log.propose_state(
                StateKind.OFFSET.value, payload, partial(self._settled, payload)
            )

    async def drain(self, timeout_ms: int) -> bool:
        """Propose everything and wait until it is applied; False if the time ran out."""
        try:
            async with timeout(timeout_ms / 1000):
                while self._log.writable and self._offsets.has_pending:
                    self.flush()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return False
        return True

    def _settled(self, payload: bytes, status: PutStatus) -> None:
        # With the leadership the pending offsets are gone; anything else is tried again.
        if status not in (PutStatus.OK, PutStatus.NOT_LEADER, PutStatus.UNKNOWN):
            self._offsets.give_back(payload)
