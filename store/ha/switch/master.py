"""The master's side of the stream where controllers say who is master.

A slave says which one it is, and is told the epochs of this log; by them it finds what it has to
cut. What it confirms counts for the epoch of this master alone.
"""

from typing import TYPE_CHECKING, Final

from dledger.peers.door import Door
from ledgermq.runtime.clock import Clock
from store.ha.codec import BadStream
from store.ha.config import HaConfig
from store.ha.master import HaMaster, SlaveLink
from store.ha.switch.codec import HEADER, TRANSFER, HelloDecoder, Welcome, encode_welcome
from store.ha.switch.in_sync import InSync
from store.ha.switch.logs import SwitchMasterLog

if TYPE_CHECKING:
    from store.ha.switch.epochs import Epochs


class SwitchSlaveLink(SlaveLink):
    """One connection of a slave."""

    def __init__(self, master: "SwitchHaMaster") -> None:
        super().__init__(master)
        self._group = master
        self._hello: Final = HelloDecoder()
        self._confirmed = 0

    @property
    def slave_id(self) -> int:
        """Which slave it is, 0 before it has said so."""
        return self._hello.slave_id

    def _feed(self, stream: bytes) -> int | None:
        was_known = bool(self.slave_id)
        position = self._hello.feed(stream)
        if self.slave_id and not was_known:
            self._check_id()
            self._group.on_known(self)
            if self._transport is not None:
                self._transport.write(self._channel.wrap(self._group.welcome()))
        return position

    def _check_id(self) -> None:
        """See that it says of itself what it has proven. Errors: `BadStream`.

        A certificate proves the name of the brokers only: controllers give ids, not who signs.
        """
        proven = self._channel.proven_id
        if proven and proven != str(self.slave_id):
            raise BadStream(f"it says that it is replica {self.slave_id}, and has proven {proven}")

    def _header(self, size_bytes: int) -> bytes:
        last = self._group.epochs[-1]
        self._confirmed = self._log.committed_position
        return HEADER.pack(
            TRANSFER, size_bytes, self._next, last.epoch, last.start, self._confirmed
        )

    def pass_time(self, now_ms: int) -> None:
        """Say what is confirmed by now, if nothing else has said so."""
        super().pass_time(now_ms)
        if self.position is not None and self._confirmed < self._log.committed_position:
            self._beat()


class SwitchHaMaster(HaMaster):
    """Serves the slaves of one log in one epoch.

    Args:
        log: its log.
        in_sync: is told who follows, and what each has.
        epochs: of the log, the last one that in which this is the master.
    """

    def __init__(
        self,
        config: HaConfig,
        log: SwitchMasterLog,
        clock: Clock,
        address: tuple[str, int],
        door: Door,
        in_sync: InSync,
    ) -> None:
        super().__init__(config, log, clock, address, door)
        self._own_log = log
        self._in_sync = in_sync
        self.epochs: Epochs = ()

    def make_link(self) -> SlaveLink:
        """Return what serves a new connection."""
        return SwitchSlaveLink(self)

    def welcome(self) -> bytes:
        """Return what a slave is told first."""
        end = self.log.next_position
        return encode_welcome(Welcome(end, self.epochs[-1].epoch, self.epochs))

    def on_known(self, link: SwitchSlaveLink) -> None:
        """Take that a slave has said which one it is. Errors: `BadStream`."""
        if link.slave_id == self._in_sync.own_id:
            raise BadStream(f"it has this broker's own id, {link.slave_id}")
        for one in self._links_of(link.slave_id):
            if one is not link:
                one.refuse("it has come again")
                self.on_closed(one, "it has come again")  # from now on it says nothing any more
        self._in_sync.on_connected(link.slave_id, self.clock.monotonic_ms())

    def drop_outsiders(self) -> None:
        """Close the connections of slaves that are not in sync; what they confirmed is forgotten.

        The controllers may have taken one out, or have refused to let it in, because it has lost
        the end of its log: over a connection from before nobody would hear of that.
        """
        for link in list(self._links):
            one = link.slave_id if isinstance(link, SwitchSlaveLink) else 0
            if one and one not in self._in_sync.members:
                link.close()
                self.on_closed(link, "it is not in sync, and has to come again")

    def on_closed(self, link: SlaveLink, reason: str) -> None:
        """Take that a connection is gone."""
        super().on_closed(link, reason)
        if isinstance(link, SwitchSlaveLink) and link.slave_id:
            others = [one for one in self._links_of(link.slave_id) if one is not link]
            if not others:
                was_holding = self._in_sync.is_holding
                self._in_sync.on_gone(link.slave_id, self.clock.monotonic_ms())
                if was_holding and not self._in_sync.is_holding:
                    self._own_log.look_again()

    def on_report(self) -> None:
        """Take what the slaves have; what only asks says nothing of it."""
        now_ms, end = self.clock.monotonic_ms(), self.log.own_position
        for link in self._links:
            if not isinstance(link, SwitchSlaveLink) or not link.is_confirming:
                continue
            if link.position is not None:  # 0 is all that there is of an empty log
                self._in_sync.on_confirmed(link.slave_id, link.position, now_ms, end)
        self._own_log.look_again()

    def _links_of(self, slave_id: int) -> list[SwitchSlaveLink]:
        return [
            link
            for link in self._links
            if isinstance(link, SwitchSlaveLink) and link.slave_id == slave_id
        ]
