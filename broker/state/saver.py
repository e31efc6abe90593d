"""Writes the tables to disk: every few seconds, when somebody asks, and at the stop.

It knows when, and that an entry must be safe before what includes it is written; what the files
look like is `broker.state.snapshot`'s.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from broker.state.steps import in_turns
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.state.snapshot import Snapshot

_log = logging.getLogger(__name__)

PERIOD_MS: Final = 5_000


class TableSaver:
    """Saves the tables of one broker.

    Args:
        applied_index: last entry that the tables include.
        secure: waits until tables that include an entry may be written; False: they may not.
        pause: waits so many seconds, or less if something is due.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        applied_index: Callable[[], int],
        *,
        secure: Callable[[int], Awaitable[bool]],
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self._snapshot = snapshot
        self._applied_index = applied_index
        self._secure = secure
        self._pause = pause
        #: One thread, so that a snapshot never overtakes an earlier one.
        self._writer = ThreadPoolExecutor(1, "snapshot")
        self._saving = asyncio.Lock()

    async def run(self) -> None:
        """Save them every few seconds."""
        while True:
            await self._pause(PERIOD_MS / 1000)
            await self.save()

    async def save(self) -> None:
        """Save what changed. Errors: `FatalError`, unless the disk is full: then it waits."""
        # One at a time: of two that overtake each other the older would be on disk at the end.
        async with self._saving:
            await self._save()

    def close(self) -> None:
        """End the thread."""
        self._writer.shutdown()

    async def _save(self) -> None:
        capture = await in_turns(self._snapshot.capture_steps(self._applied_index()))
        if not await self._secure(capture.applied_index):
            return  # the log may lose what these tables include
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self._snapshot.write, capture)
        except OSError as error:
            if error.errno not in NO_SPACE:
                message = f"cannot write a snapshot of the state: {error}"
                raise FatalError(message, EXIT_ENVIRONMENT) from error
            # Reads go on, and the log keeps what the snapshot lacks.
            _log.warning("event=snapshot_waits reason=disk_full error=%s", error)
