"""The plain log of a master: what its slaves get, and, of a synchronous one, what they confirm."""

from collections.abc import Sequence
from typing import Final, Protocol, Unpack

from store.ha.gate import Gate, Lack
from store.ha.watched_log import Machine, WatchedLog
from store.plain.config import PlainLogConfig
from store.plain.log import PlainListener


class MasterListener(PlainListener, Protocol):
    """Who uses the log of a master."""

    def on_unreplicated(self, position: int, lack: Lack) -> None:
        """Take that entries before ``position`` are committed though no slave confirmed them."""
        ...


class MasterLog(WatchedLog):
    """A log that is followed.

    Args:
        gate: of a synchronous master: what counts when; None: what is on the own disk counts.
    """

    _user: MasterListener

    def __init__(
        self, config: PlainLogConfig, gate: Gate | None, **machine: Unpack[Machine]
    ) -> None:
        super().__init__(config, **machine)
        self._gate: Final = gate
        self._file_bytes: Final = config.segment_bytes

    def on_slaves(self, positions: Sequence[int]) -> None:
        """Take how far the slaves are that are connected now."""
        if self._gate is not None:
            self._gate.on_slaves(positions)
            self._guard(self._tell)

    @property
    def first_to_send(self) -> int:
        """Where a slave begins that has nothing: at the last file, as in RocketMQ."""
        return max(self.first_position, self.own_position - self.own_position % self._file_bytes)

    @property
    def last_to_ask_for(self) -> int:
        """The last position that a slave can have reached: the end, or the file behind it."""
        return max(self.own_position, self.next_position)

    def bytes_at(self, position: int, limit: int) -> memoryview:
        """Return what of the log lies at ``position`` and may be sent: of one file, not copied.

        Only what is on the own disk as it should be: a slave must not have what a master may lose.
        Errors: `LookupError` where the log does not have it any more.
        """
        own = self.own_position
        if position >= own:
            return memoryview(b"")
        file_end = position - position % self._file_bytes + self._file_bytes
        return self.view(position, min(file_end, own, position + limit) - position)

    def _find_committed(self) -> int:
        own = super()._find_committed()
        return own if self._gate is None else self._ask(self._gate, own)

    def _ask(self, gate: Gate, own: int) -> int:
        """Return up to where entries count, and tell of those that no slave has."""
        position, lack = gate.limit(own, self.end_position)
        if lack is not None and position > self.committed_position:
            self._user.on_unreplicated(position, lack)
        return position

    def _pass_time(self) -> None:
        super()._pass_time()
        gate = self._gate
        if gate is not None and gate.pass_time(self._clock.monotonic_ms(), self.end_position):
            self._tell()
