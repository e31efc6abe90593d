"""A plain log that tells when more of it is on the own disk: what both sides of the stream need."""

from collections.abc import Callable
from typing import TypedDict, Unpack

from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import Disk
from ledgermq.runtime.errors import FatalError
from store.plain.config import PlainLogConfig
from store.plain.log import PlainLog


class Machine(TypedDict):
    """What a log needs of the machine, see `PlainLog`."""

    disk: Disk
    clock: Clock
    on_fatal: Callable[[FatalError], None]


class WatchedLog(PlainLog):
    """See the module."""

    def __init__(self, config: PlainLogConfig, **machine: Unpack[Machine]) -> None:
        super().__init__(config, **machine)
        self._told_of = 0
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_moved: Callable[[], None]) -> None:
        """Have ``on_moved`` called whenever `own_position` has moved."""
        self._watchers.append(on_moved)

    def _find_committed(self) -> int:
        own = self.own_position
        if own > self._told_of:
            self._told_of = own
            for on_moved in self._watchers:
                on_moved()
        return own
