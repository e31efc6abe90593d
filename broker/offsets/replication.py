"""Carries accepted consumer offsets into the replicated log: once a second, and at a hand-over.

Source: docs/adr/0002.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from broker.leader.service import LeaderService
from broker.state.kinds import StateKind
from ledgermq.runtime.cancel import timeout
from store.results import PutStatus
from store.write.uncommitted import LATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.replicated_state import StateLog

FLUSH_MS: Final = 1_000
OFFSETS_PER_FLUSH: Final = 4_096
REST_MS: Final = 50
_POLL_S: Final = 0.005


class Timer(Protocol):
    """What is needed of `ledgermq.runtime.tasks.Alarm`."""

    def set(self, delay_ms: float) -> None:
        """Have it go off after so long."""


class OffsetReplicator(LeaderService):
    """Proposes what the offset table has pending.

    Args:
        alarm: returns a timer that calls a function.
    """

    name: ClassVar = "offsets"
    period_ms: ClassVar = FLUSH_MS

    def __init__(
        self,
        offsets: ConsumerOffsetTable,
        log: StateLog,
        alarm: Callable[[str, Callable[[], object]], Timer],
    ) -> None:
        self._offsets = offsets
        self._log = log
        self._rest = alarm("rest of the offsets", self.flush)

    def tick(self) -> None:
        """See `flush`."""
        self.flush()

    def stop(self) -> None:
        """Forget offsets that are not replicated: their groups read again, and skip nothing."""
        self._offsets.drop_pending()

    def before_hand_over(self) -> None:
        """Propose everything at once."""
        self._propose(None)

    def flush(self) -> None:
        """Propose the offsets accepted since the last call; does nothing on a follower.

        What is more than the loop should spend on it at a time follows a moment later.
        """
        self._propose(OFFSETS_PER_FLUSH)
        if self._log.writable and self._offsets.has_proposals:
            self._rest.set(REST_MS)

    def _propose(self, count_max: int | None) -> None:
        if not self._log.writable:
            return
        for payload in self._offsets.take_proposals(count_max):
            settled = partial(self._settled, payload)
            self._log.propose_state(StateKind.OFFSET.value, payload, settled)

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
        # An unknown outcome means that the leadership is gone, and the pending offsets with it.
        # All else is put again. A leader that hands over refuses as if it were none, and goes on
        # to lead if the hand-over fails. What is late is in the log, and comes as a rule.
        if status not in (PutStatus.OK, PutStatus.UNKNOWN):
            self._offsets.give_back(payload, may_come=status in LATE)
