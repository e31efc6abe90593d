"""Term, vote and cuts are made durable in a thread; on a full disk again and again until it works.

Nothing of a `Ready` leaves before that. A vote that cannot be written is therefore never given, and
a node whose disk is full takes part again as soon as there is space. Any other failure ends the
node: what is on disk is unknown then.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from dledger.config import DLedgerConfig
from dledger.core.ready import Ready
from dledger.driver import Driver
from dledger.errors import DiskFull
from dledger.segments.sync import SyncWorker

_log: Final = logging.getLogger(__name__)


class Persister:
    """Carries out `Driver.persist_state` for one node, one `Ready` at a time."""

    def __init__(self, config: DLedgerConfig, driver: Driver) -> None:
        self._node_id = config.self_id
        self._retry_s = config.disk_full_retry_ms / 1000
        self._driver = driver
        self._found_full = False
        self._timer: asyncio.TimerHandle | None = None
        self.is_blocked = False
        """Whether the last attempt found the disk full: nothing may be stepped until one works."""

    def start(self, worker: SyncWorker, on_persisted: Callable[[Ready], None]) -> None:
        """Begin to work; ``on_persisted`` is called in the loop."""
        self._worker = worker
        self._on_persisted = on_persisted

    def submit(self, ready: Ready) -> None:
        """Make ``ready`` durable, then report it."""
        self._timer = None
        self._worker.submit(partial(self._persist, ready), partial(self._on_returned, ready))

    def stop(self) -> None:
        """Try no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _persist(self, ready: Ready) -> None:
        """Run in the thread. The flag is read in the loop only after this has returned."""
        try:
            self._driver.persist_state(ready)
            self._found_full = False
        except DiskFull:
            self._found_full = True

    def _on_returned(self, ready: Ready) -> None:
        if not self._found_full:
            if self.is_blocked:
                _log.warning("event=vote_written node=%s", self._node_id)
            self.is_blocked = False
            self._on_persisted(ready)
            return
        if not self.is_blocked:
            _log.error("event=disk_full node=%s file=currterm", self._node_id)
        self.is_blocked = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._retry_s, self.submit, ready)
