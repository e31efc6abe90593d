"""The slave's side of the stream where controllers say who is master.

It follows the master of one epoch, and no other: one of an earlier epoch is refused, however alive.
Before it takes anything it compares its epochs with the master's. What it has behind the last point
that both surely share is another master's, which nobody acknowledged, and has to go (`Surplus`).
Cutting is its owner's business, with the log closed; nothing is cut here.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from dledger.peers.door import Door
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.disk import NO_SPACE
from ledgermq.runtime.errors import FatalError
from store.ha.codec import BadStream
from store.ha.config import HaConfig
from store.ha.intake import DiskFull
from store.ha.slave import HaSlave, MasterLink
from store.ha.switch.codec import Welcome, WelcomeDecoder, encode_hello, encode_report
from store.ha.switch.epoch_file import EpochFile
from store.ha.switch.epochs import consistent_point
from store.ha.switch.logs import SwitchSlaveLog

_NOTHING_IN_COMMON: Final = (
    "it has no epoch in common with this log: this is the log of another group. To follow it, stop"
    " this broker and move its storePathRootDir away"
)
_OLDER: Final = (
    "this log is from before there was a controller, and the master took messages before it"
    " registered: one of the two has to go. To give up this log, stop this broker and move its"
    " storePathRootDir away. To keep it, and to give up what the master has: ledgermq admin"
    " electMaster -a CONTROLLERS -n NAME -b {} --accept-loss, and then move the storePathRootDir of"
    " the others away"
)


class Surplus(BadStream):
    """This log has what the master's has not; ``position``: where that begins."""

    def __init__(self, position: int, end: int) -> None:
        super().__init__(f"this log ends at {end}, and the master has it up to {position}")
        self.position = position


class Place(NamedTuple):
    """What a slave is, and whom it follows."""

    own_id: int
    """Its own id."""
    epoch: int
    """In which its master is the master."""
    epochs: EpochFile
    """Of the own log."""


class SwitchMasterLink(MasterLink):
    """One connection to a master."""

    def __init__(self, slave: "SwitchHaSlave") -> None:
        super().__init__(slave)
        self._follower = slave
        self._decoder = WelcomeDecoder(self._on_welcome, slave.on_confirmed)
        self._has_greeted = self._is_welcome = self._is_due = False

    @property
    def is_verified(self) -> bool:
        """Whether the master is the right one, and has been found to have the same log."""
        return self._is_welcome and super().is_verified

    def _on_welcome(self, welcome: Welcome) -> None:
        self._follower.on_welcome(welcome)
        self._is_welcome = self._is_due = True

    def report(self, *, is_due: bool = False) -> None:
        """Say how far the log is, once the master has said who it is."""
        transport = self._transport
        if transport is None or transport.is_closing() or not self._channel.is_open:
            return
        if not self._has_greeted:
            self._has_greeted = True
            hello = encode_hello(self._follower.own_id)
            transport.write(self._channel.wrap(hello))
        if self._is_welcome:
            is_due, self._is_due = is_due or self._is_due, False
            super().report(is_due=is_due)

    def _encode_report(self, position: int) -> bytes:
        return encode_report(position)


class SwitchHaSlave(HaSlave):
    """Follows the master of one epoch.

    Args:
        log: the own log.
        door: what is asked of the master, and shown to it.
        place: see `Place`.
        on_surplus: called with the position from which on the log has to be cut.
    """

    def __init__(
        self,
        config: HaConfig,
        log: SwitchSlaveLog,
        clock: Clock,
        door: Door,
        place: Place,
        on_surplus: Callable[[int], None],
    ) -> None:
        super().__init__(config, log, clock, door)
        self._own_log = log
        self.own_id, self._epoch, self._epochs = place
        self._on_surplus = on_surplus

    def make_link(self) -> MasterLink:
        """Return what serves a new connection."""
        return SwitchMasterLink(self)

    def on_welcome(self, welcome: Welcome) -> None:
        """Compare epochs, and take over the master's. Errors: `BadStream`, `FatalError`."""
        if welcome.epoch != self._epoch:
            raise BadStream(
                f"it is the master of epoch {welcome.epoch}, and that of epoch {self._epoch} is"
                " followed here"
            )
        log, own = self.log, self._epochs.epochs
        if own and own[-1].epoch > welcome.epoch:
            raise BadStream(
                f"it is the master of epoch {welcome.epoch}, and this log knows {own[-1].epoch}"
            )
        if not log.is_blank:
            end = log.next_position
            point = consistent_point(own, end, welcome.epochs, welcome.end)
            if point is None:
                raise BadStream(_NOTHING_IN_COMMON if own else _OLDER.format(self.own_id))
            if point < min(end, log.committed_position):
                raise BadStream(
                    f"it has this log up to {point}, and up to {log.committed_position} it was"
                    " acknowledged: this master was elected from outside the in-sync set, or has"
                    " lost the end of its log. Nothing is changed here. To give up what it lacks,"
                    " stop this broker and move its storePathRootDir away"
                )
            if point < end:
                raise Surplus(point, end)
        try:
            self._epochs.save(welcome.epochs)
        except FatalError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE:
                raise DiskFull("the disk is full") from error
            raise

    def on_confirmed(self, epoch: int, position: int) -> None:
        """Take what the master says to be confirmed. Errors: `BadStream`."""
        if epoch != self._epoch:
            raise BadStream(f"it sends for epoch {epoch}, and is the master of {self._epoch}")
        self._own_log.confirm(position)

    def _describe_end(self, address: str, link: MasterLink) -> str:
        error = link.error
        if isinstance(error, Surplus):
            self._on_surplus(error.position)
            return f"{address} is the master of a later epoch: {error}; the rest is cut off"
        return super()._describe_end(address, link)
