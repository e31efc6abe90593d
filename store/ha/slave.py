"""The slave's side: keeps a connection to the master up, and has its log follow.

What is wrong is a state that `HaSlave.status` tells, and a line in the log when it changes; the
slave goes on trying, and never changes what it has.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final, Protocol, cast

from dledger.codec.handshake import NotProven
from dledger.peers.door import Door, Mode
from ledgermq.remoting.protocol.errors import LocalProtocolError
from ledgermq.remoting.protocol.hosts import parse_address
from ledgermq.remoting.transport.dialling import dial
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock
from store.ha.channel import Channel, SealedChannel
from store.ha.codec import BadStream, Piece, TransferDecoder, encode_report
from store.ha.config import HaConfig
from store.ha.intake import DiskFull, Diverged, Intake
from store.ha.slave_log import SlaveLog

TICK_MS_MAX: Final = 500
"""So often it is looked whether a report is due, or a master silent."""
CONNECT_S: Final = 3.0
MASTER_ID: Final = "0"
"""What a master is called where it proves itself with a shared key."""
RETRY_MS_MIN: Final = 200
RETRY_MS_MAX: Final = 5_000
_REFUSALS: Final = BadStream, DiskFull

_log: Final = logging.getLogger(__name__)


class Decoder(Protocol):
    """Makes pieces of the log of what a master sends."""

    def feed(self, data: bytes) -> Iterable[Piece]:
        """Return what has come, in order. Errors: `BadStream`."""
        ...


class MasterLink(asyncio.Protocol):
    """One connection to a master."""

    def __init__(self, slave: "HaSlave") -> None:
        self._slave = slave
        self._intake = Intake(slave.log)
        self._channel = slave.make_channel()
        self._decoder: Decoder = TransferDecoder()
        self._transport: asyncio.Transport | None = None
        self._opened_ms = self._heard_ms = self._said_ms = slave.clock.monotonic_ms()
        self._reported = -1
        self._is_following = False
        self.error: Exception | None = None
        self.lost = asyncio.Event()

    @property
    def is_verified(self) -> bool:
        """Whether the master has been found to have the same log."""
        return self._intake.is_verified

    @property
    def peer(self) -> tuple[str, int] | None:
        """IP address and port of the master; None: not known."""
        found = self._transport and self._transport.get_extra_info("peername")
        return (str(found[0]), int(found[1])) if found else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take that there is a connection: ask, or prove first who is there."""
        self._transport = cast("asyncio.Transport", transport)
        try:
            self._slave.admit(transport)
        except NotProven as error:
            self.error = error
            self.close()
            return
        if self._channel.greeting:
            self._transport.write(self._channel.greeting)
        self.report(is_due=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take that it is gone."""
        self.error = self.error or exc
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        """Take what the master sends."""
        if self.error is not None:
            return
        self._heard_ms = self._slave.clock.monotonic_ms()
        is_due = not self._channel.is_open
        try:
            stream, back = self._channel.take(data)
            if back and self._transport is not None:
                self._transport.write(back)
            self._intake.take(self._decoder.feed(stream))
        except (BadStream, DiskFull, NotProven) as error:
            self.error = error
            self.close()
            return
        if self.is_verified:
            is_due = is_due or not self._is_following  # the first report has confirmed nothing
            self._is_following = True
            self._slave.on_following()
        self.report(is_due=is_due)

    def report(self, *, is_due: bool = False) -> None:
        """Say how far the log is, if that is news, or time to say so."""
        position = self._intake.report()
        transport = self._transport
        if transport is None or transport.is_closing() or not self._channel.is_open:
            return
        if is_due or position > self._reported:
            self._reported = position
            self._said_ms = self._slave.clock.monotonic_ms()
            transport.write(self._channel.wrap(self._encode_report(position)))

    def _encode_report(self, position: int) -> bytes:
        """Return a report as the master reads it."""
        return encode_report(position)

    def pass_time(self, now_ms: int) -> None:
        """Say that the slave is there, or give up a master that says nothing."""
        config = self._slave.config
        if now_ms - self._heard_ms > config.housekeeping_ms:
            self.error = TimeoutError("it says nothing")
            self.close()
        elif self.is_verified and now_ms - self._said_ms >= config.heartbeat_ms:
            self._said_ms = now_ms  # also where nothing can be said any more
            self.report(is_due=True)  # before, a second report would confirm what was not compared
        if not self.is_verified and now_ms - self._opened_ms > 2 * config.heartbeat_ms:
            self._slave.on_nothing(self._intake.first_report)

    def wait_ms(self, now_ms: int) -> int:
        """Return when to call `pass_time` again: a master counts on reports that come on time."""
        heartbeat_ms = self._slave.config.heartbeat_ms
        until_report_ms = self._said_ms + heartbeat_ms - now_ms
        due_ms = until_report_ms if self.is_verified else heartbeat_ms
        return max(1, min(due_ms, TICK_MS_MAX))

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class HaSlave:
    """Follows one master.

    Args:
        door: what is asked of the master, and shown to it.
    """

    def __init__(self, config: HaConfig, log: SlaveLog, clock: Clock, door: Door) -> None:
        self.config = config
        self._door = door
        self.log = log
        self.clock = clock
        self._address = ""
        self._moved = asyncio.Event()
        self._link: MasterLink | None = None
        self._state = "no master is known"
        self._was_turned_away = False
        """Whether the last connection ended by what either side does not take of the other."""
        self._delay_ms = RETRY_MS_MIN
        log.watch(self._report)

    def set_master(self, address: str) -> None:
        """Follow the master whose HA service is there; empty: it is not known (any more)."""
        if address == self._address:
            return
        _log.info("event=master_is address=%s before=%s", address or "unknown", self._address)
        self._address = address
        self._delay_ms = RETRY_MS_MIN
        self._was_turned_away = False
        self._moved.set()
        if self._link is not None:
            self._link.close()

    def make_link(self) -> MasterLink:
        """Return what serves a new connection."""
        return MasterLink(self)

    def make_channel(self) -> Channel:
        """Return what the bytes of a new connection go through."""
        is_sealed = self._door.mode is Mode.KEY
        return SealedChannel(self._door.dial(MASTER_ID)) if is_sealed else Channel()

    def admit(self, transport: asyncio.BaseTransport) -> None:
        """Look at the certificate of the master. Errors: `NotProven`."""
        if self._door.mode is Mode.TLS:
            self._door.member(transport)

    def status(self) -> dict[str, object]:
        """Return whom it follows, and what is wrong if it does not."""
        return {"master": self._address, "state": self._state}

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the master."""
        return self._link is not None

    @property
    def is_following(self) -> bool:
        """Whether the master that is wanted is there, and has been found to have the same log."""
        link = self._link
        is_there = link is not None and link.error is None and link.is_verified
        return is_there and not self._moved.is_set()

    @property
    def peer(self) -> tuple[str, int] | None:
        """IP address and port to which there is a connection."""
        return None if self._link is None else self._link.peer

    def on_following(self) -> None:
        """Take that all is well."""
        self._delay_ms = RETRY_MS_MIN
        self._tell("following")

    def on_nothing(self, position: int) -> None:
        """Take that the master sends nothing of what it was asked for."""
        self._tell(
            f"{self._address} sends nothing from position {position} on, where this log goes on:"
            " its log ends before, or it has deleted that. To give up this log, stop this"
            " broker and move its commitlog, consumequeue, index and the checkpoints away"
        )

    async def run(self) -> None:
        """Follow for ever."""
        try:
            while True:
                self._moved.clear()
                if self._address:
                    await self._follow(self._address)
                else:
                    self._tell("no master is known")
                await self._pause()
        finally:
            if self._link is not None:
                self._link.close()

    async def _pause(self) -> None:
        """Wait a moment, longer each time, or until there is another master."""
        try:
            async with timeout(self._delay_ms / 1000):
                await self._moved.wait()
        except TimeoutError:
            self._delay_ms = min(self._delay_ms * 2, RETRY_MS_MAX)

    async def _follow(self, address: str) -> None:
        """Stay connected as long as it goes well."""
        if not self.log.has_synced_last:
            self._tell("what was written last is not synced, and is not to be confirmed")
            return
        try:
            host, port = parse_address(address)
            is_tls = self._door.mode is Mode.TLS
            tls = self._door.context(is_server=False) if is_tls else None
            async with timeout(CONNECT_S):
                _, link = await dial(self.make_link, host, port, tls=tls)
        except (OSError, TimeoutError, ValueError, LocalProtocolError, NotProven) as error:
            self._was_turned_away = False
            self._tell(f"{address} cannot be reached: {error or type(error).__name__}")
            return
        self._link = link
        if not (link.is_verified or self._was_turned_away):
            self._tell("connected")  # it may follow already; and what is wrong stays told
        if self._moved.is_set():
            link.close()
        while not link.lost.is_set():
            try:
                async with timeout(link.wait_ms(self.clock.monotonic_ms()) / 1000):
                    await link.lost.wait()
            except TimeoutError:
                link.pass_time(self.clock.monotonic_ms())
        self._link = None
        self._was_turned_away = not link.is_verified or isinstance(link.error, _REFUSALS)
        self._tell(self._describe_end(address, link))

    def _describe_end(self, address: str, link: MasterLink) -> str:
        error = link.error
        if isinstance(error, Diverged):
            self._delay_ms = RETRY_MS_MAX
            return (
                f"{address} has another log: {error}. This broker was the slave of another master,"
                " or the master has lost the end of its log. Nothing is changed here. To follow it"
                " from its last file on, stop this broker and move its commitlog, consumequeue,"
                " index and the checkpoints away"
            )
        if isinstance(error, BadStream):
            self._delay_ms = RETRY_MS_MAX
            return f"what {address} sends is refused: {error}"
        if isinstance(error, NotProven):
            self._delay_ms = RETRY_MS_MAX
            return f"{address} has not proven that it is the master: {error}"
        if isinstance(error, DiskFull):
            self._delay_ms = RETRY_MS_MAX
            return f"what {address} sends is not taken: {error}"
        if not link.is_verified and not isinstance(error, TimeoutError):
            self._delay_ms = max(self._delay_ms, RETRY_MS_MAX // 5)
            return f"{address} hung up before it sent anything: its log may say why"
        return f"{address} is gone: {error or 'it hung up'}"

    def _report(self) -> None:
        if self._link is not None:
            self._link.report()

    def _tell(self, state: str) -> None:
        """Note how it is, and write a line if that is news."""
        if state == self._state:
            return
        self._state = state
        is_well = state in ("connected", "following")
        _log.log(
            logging.INFO if is_well else logging.WARNING,
            "event=slave_state state=%r position=%d", state, self.log.own_position,
        )  # fmt: skip
