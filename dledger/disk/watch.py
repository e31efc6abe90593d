"""A disk that hangs: syncs are under way and do not return. The worst failure of a leader.

Its heartbeats go on, so nobody replaces it, and nothing is committed by it in SYNC_FLUSH, while in
ASYNC_FLUSH what it acknowledges is never synced. So it gives up leadership itself, and does not
campaign again until the disk has answered.
Source: spec/proof.md D7; hashicorp/raft 503, etcd 13527, tarantool 9399 (leaders that kept on).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from dledger.core.model import NodeId
    from ledgermq.runtime.clock import Clock

_log: Final = logging.getLogger(__name__)

TICKS_LATE: Final = 4


class BusyWorker(Protocol):
    """A worker that knows how long it has been at it; see `dledger.disk.worker.Worker`."""

    def waiting_ms(self) -> int:
        """Return for how long the oldest piece of work has not returned; 0 when idle."""
        ...


class DiskWatch:
    """Watches the workers of one node; looked at once a tick.

    Where the process itself stood still, work may be over that nobody could hear of yet. So a look
    that comes late by half the limit says nothing, and the next one does.

    Args:
        tick_ms: when a look is due; what comes a few of them later is not late.
    """

    def __init__(self, node_id: NodeId, hang_ms: int, tick_ms: int, clock: Clock) -> None:
        self._node_id = node_id
        self._hang_ms = hang_ms
        self._late_ms = max(hang_ms // 2, TICKS_LATE * tick_ms)
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._workers: tuple[BusyWorker, ...] = ()
        self._longest_ms = 0
        self.is_hung = False
        """Whether a piece of work is out for longer than the limit."""

    def start(self, *workers: BusyWorker) -> None:
        """Watch these."""
        self._workers = workers
        self._looked_ms = self._clock.monotonic_ms()

    def look(self) -> bool:
        """Return whether `is_hung` has changed; one log line each time."""
        looked_ms, self._looked_ms = self._looked_ms, self._clock.monotonic_ms()
        if self._looked_ms - looked_ms >= self._late_ms:
            return False
        waiting_ms = 0
        for worker in self._workers:
            waiting_ms = max(waiting_ms, worker.waiting_ms())
        hangs = waiting_ms >= self._hang_ms
        if hangs:
            self._longest_ms = max(self._longest_ms, waiting_ms)
        if hangs == self.is_hung:
            return False
        self.is_hung = hangs
        if hangs:
            _log.error(
                "event=disk_hung node=%s waiting_ms=%d limit_ms=%d",
                self._node_id, waiting_ms, self._hang_ms,
            )  # fmt: skip
        else:
            _log.warning("event=disk_back node=%s after_ms=%d", self._node_id, self._longest_ms)
            self._longest_ms = 0
        return True
