"""A full disk: for how long appends are refused, and how often that is told.

While it holds, reads are served and the group goes on; it ends by itself, and the next append that
finds no space begins it anew. It knows neither roles nor entries.
"""

import logging
from typing import Final

from dledger.core.model import LogIndex, NodeId

_log: Final = logging.getLogger(__name__)

DISK_FULL_LOG_INTERVAL_MS: Final = 10_000


class DiskFullGate:
    """Closed for a moment after each write that found no space."""

    def __init__(self, node_id: NodeId, retry_ms: int) -> None:
        self._node_id = node_id
        self._retry_ms = retry_ms
        self._until_ms: int | None = None
        self._silent_until_ms = 0

    @property
    def is_closed(self) -> bool:
        """Whether appends are refused."""
        return self._until_ms is not None

    def shut(self, now_ms: int, index: LogIndex) -> None:
        """Take that entry ``index`` could not be written; one log line in ten seconds."""
        self._until_ms = now_ms + self._retry_ms
        if now_ms >= self._silent_until_ms:
            self._silent_until_ms = now_ms + DISK_FULL_LOG_INTERVAL_MS
            _log.error("event=disk_full node=%s index=%d", self._node_id, index)

    def pass_time(self, now_ms: int) -> bool:
        """Return True when the gate has just opened."""
        if self._until_ms is None or now_ms < self._until_ms:
            return False
        self._until_ms = None
        return True
