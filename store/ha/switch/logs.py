"""The plain logs of a master and of a slave where a controller keeps an in-sync set.

On both, what not all of the set has is not committed: it is in no queue, and nobody reads it. So
what a switch cuts off was never seen by anybody.
"""

import logging
from collections.abc import Callable
from typing import Final

from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.ha.master_log import MasterLog
from store.ha.slave_log import SlaveLog
from store.ha.switch.in_sync import InSync
from store.plain.config import PlainLogConfig
from store.plain.files import open_segments
from store.plain.recovery import Synced

_log: Final = logging.getLogger(__name__)


class SwitchMasterLog(MasterLog):
    """A log of which counts what the whole in-sync set has.

    What is there when it is opened counts: the epoch begins behind it, with a set of its own.
    """

    def __init__(
        self,
        config: PlainLogConfig,
        in_sync: InSync,
        *,
        disk: Disk,
        clock: Clock,
        on_fatal: Callable[[FatalError], None],
    ) -> None:
        super().__init__(config, None, disk=disk, clock=clock, on_fatal=on_fatal)
        self._in_sync = in_sync

    @property
    def first_to_send(self) -> int:
        """Where a slave begins that has nothing: at the beginning, for it may be master one day."""
        return self.first_position

    def look_again(self) -> None:
        """Take that a slave has confirmed something, or that the set is another one."""
        self._guard(self._tell)

    def _find_committed(self) -> int:
        return self._in_sync.limit(super()._find_committed())


class SwitchSlaveLog(SlaveLog):
    """A log of which counts what its master says to be confirmed."""

    _confirmed = 0
    cut_from: int | None = None
    """Position from which on the log is another master's: `open` cuts it off."""

    def open(
        self, *, clean: bool = False, safe_timestamp_ms: int = 0, synced: Synced | None = None
    ) -> None:
        """Recover the log; nothing of it counts yet, see `confirm`. Errors: `FatalError`."""
        was_open = self._opened
        if self.cut_from is not None and not was_open:
            self._cut_off(self.cut_from)
        super().open(clean=clean, safe_timestamp_ms=safe_timestamp_ms, synced=synced)
        if not was_open:
            self.committed_position = min(self.first_position, self.committed_position)

    def _cut_off(self, position: int) -> None:
        """Cut what nobody acknowledged. Errors: `FatalError`."""
        try:
            segments = open_segments(self._disk, self.config)
            try:
                end = segments.nonzero_end(position)
                if not segments.is_empty:
                    segments.cut(position)
            finally:
                segments.close()
        except OSError as error:
            message = f"the commit log in {self.config.directory} cannot be cut: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        _log.warning("event=commit_log_cut_to_the_master position=%d end=%d", position, end)

    def confirm(self, position: int) -> None:
        """Take that all of the in-sync set has what lies before ``position``."""
        if position > self._confirmed:
            self._confirmed = position
            self._guard(self._tell)

    def begin_at(self, position: int) -> None:
        """Let a log without an entry begin there. Errors: `OSError`."""
        super().begin_at(position)
        self._confirmed = max(self._confirmed, position)

    def _find_committed(self) -> int:
        return self._counted(super()._find_committed())

    def _counted(self, own: int) -> int:
        """Return what counts of a log that the own disk has up to ``own``."""
        return min(own, self._confirmed)
