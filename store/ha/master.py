"""The master's side: accepts slaves, and sends each the log from where it asks for it.

What is not sent yet stays in the log: a slave that is slow holds no memory here. Whoever sends
what no slave of this log would is closed, with a line that says why.
"""

import asyncio
import logging
import re
import ssl
from contextlib import suppress
from typing import Final, Protocol, cast

from dledger.codec.handshake import NotProven
from dledger.peers.door import Door, Mode
from ledgermq.remoting.transport.secure import SecureListener
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.errors import FatalError
from store.ha.channel import Channel, SealedChannel
from store.ha.codec import BadStream, ReportDecoder, encode_header
from store.ha.config import HaConfig
from store.ha.master_log import MasterLog
from store.ha.pace import Pace
from store.limits import (
    HA_COMPLAINTS_MAX,
    HA_PROOF_MS,
    HA_REPORTS_BYTES_MAX,
    HA_SLAVES_MAX,
    HA_UNSENT_BYTES,
)

PUSH_BYTES_MAX: Final = 256 * 1024
"""What one slave is sent in one turn of the loop: sends wait no longer for one that catches up."""
PAUSE_S: Final = 0.001
"""How long a slave that catches up waits when it has had its share (`store.ha.pace`)."""
AHEAD_BYTES: Final = 8 * 1024 * 1024
"""So far ahead of what is sent a backlog is read from the disk."""
ASKED_BYTES: Final = 512 * 1024
"""What of that is asked for in one turn: more than is sent, and not so much that it takes time."""
COLD_MS_MAX: Final = 200
"""So long a slave waits for that; then it is read in the loop, until something was there again."""
TICK_MS_MAX: Final = 500
CHECK_MS: Final = 5_000
"""How often it is looked whether what slaves have proven themselves with counts still."""
FORGET_MS: Final = 3_600_000
BACKLOG: Final = 128
_NUMBERS: Final = re.compile("[0-9]+")

_log: Final = logging.getLogger(__name__)


class Decoder(Protocol):
    """Makes positions of what a slave sends."""

    def feed(self, data: bytes) -> int | None:
        """Return the last position reported in ``data``, None for none. Errors: `BadStream`."""
        ...


class SlaveLink(asyncio.BufferedProtocol):
    """One connection of a slave."""

    def __init__(self, master: "HaMaster") -> None:
        self._master = master
        self._log = master.log
        self._channel = master.make_channel()
        self._decoder: Decoder = ReportDecoder()
        self._room = bytearray(HA_REPORTS_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._paused = self._scheduled = False
        self.remote = "?"
        self.position: int | None = None
        """What it has reported last, None before it has."""
        self.is_confirming = False
        """Whether that says what it has; the first report asks for what lies behind it."""
        self._next = 0
        self._asked = 0
        """Up to where the log was asked to be read into memory."""
        self._cold_ms: int | None = None
        """Since when what is next is waited for."""
        self._heard_ms = self._sent_ms = self._opened_ms = master.clock.monotonic_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take that there is a connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(HA_UNSENT_BYTES)
        host, port = (transport.get_extra_info("peername") or ("?", "?"))[:2]
        self.remote = f"{host}:{port}"
        try:
            self._master.admit(self._transport)
        except NotProven as error:
            self.refuse(str(error))
            return
        self._master.on_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take that it is gone."""
        self._transport = None  # over TLS the two would hold each other
        self._master.on_closed(self, str(exc or "hung up"))

    def pause_writing(self) -> None:
        """Send no more for now: the slave is slower than the log."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self.on_moved()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return where to read into; the rest waits for the next turn of the loop."""
        del sizehint
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self.take_bytes(bytes(memoryview(self._room)[:nbytes]))

    def take_bytes(self, data: bytes) -> None:
        """Take reports."""
        try:
            stream, back = self._channel.take(data)
            if back and self._transport is not None:
                self._transport.write(back)
            position = self._feed(stream)
            if position is not None:
                self._take(position)
        except (BadStream, NotProven) as error:
            self.refuse(str(error))

    def _feed(self, stream: bytes) -> int | None:
        """Return the last position reported, None for none. Errors: `BadStream`."""
        return self._decoder.feed(stream)

    def _take(self, position: int) -> None:
        self._heard_ms = self._master.clock.monotonic_ms()
        if self.position is None:
            self._next = self._find_start(position)
        elif not self.position <= position <= self._next:
            raise BadStream(
                f"it reports position {position} after {self.position}, and was sent {self._next}"
            )
        is_first, self.position = self.position is None, position
        self.is_confirming = not is_first
        self._master.on_report()
        if is_first:
            _log.info("event=slave_follows remote=%s from=%d", self.remote, self._next)
            self._beat()
            self.push()

    def _find_start(self, position: int) -> int:
        """Return where to send from. Errors: `BadStream`."""
        log = self._log
        if not position:
            return log.first_to_send
        if position > log.last_to_ask_for:
            raise BadStream(
                f"it has a log up to {position}, and this one ends at {log.last_to_ask_for}: it is"
                " the slave of another master, or this master has lost the end of its log; move"
                " away the one of the two logs that you give up"
            )
        if position < log.first_position:
            raise BadStream(
                f"it has the log up to {position}, and this one begins at {log.first_position}: it"
                " was away for longer than messages are kept; move its commitlog, consumequeue,"
                " index and the checkpoints away to let it begin anew"
            )
        return position

    def on_moved(self) -> None:
        """Take that there is more to send, or room for it.

        One that catches up goes on by itself: the entries of this turn are behind what it lacks,
        and whoever sent them would wait for that.
        """
        if not self._scheduled:
            self.push()

    def push(self) -> None:
        """Send what there is, up to a bound.

        Where the log cannot be read now (no more files may be opened), the slave has to come again:
        whoever appends to the log calls this, and must not end by it.
        """
        try:
            self._send_some()
        except OSError as error:
            self.refuse(f"the log cannot be read: {error}")

    def _send_some(self) -> None:
        transport = self._transport
        if self.position is None or transport is None or transport.is_closing():
            return
        if not self._paused and self._waits_for_disk():
            self._scheduled = True
            asyncio.get_running_loop().call_later(PAUSE_S, self._push_soon)
            return
        sent, batch_bytes = 0, self._master.config.batch_bytes
        while not self._paused and sent < PUSH_BYTES_MAX:
            try:
                data = self._log.bytes_at(self._next, batch_bytes)
            except LookupError:
                self.refuse(f"the log does not have position {self._next} any more")
                return
            if not len(data):
                break
            transport.write(self._channel.wrap(b"".join((self._header(len(data)), data))))
            self._next += len(data)
            sent += len(data)
        if sent:
            self._sent_ms = self._master.clock.monotonic_ms()
            if self._next < self._log.own_position:
                self._master.pace.on_sent(self._sent_ms, sent)
        if sent >= PUSH_BYTES_MAX and not self._scheduled:
            self._scheduled = True
            self._push_soon()

    def _waits_for_disk(self) -> bool:
        """Have a backlog read from the disk, and tell whether to wait for what comes next of it.

        Whoever touched it before would stand still, and so would all clients of this broker.
        """
        log, now_ms = self._log, self._master.clock.monotonic_ms()
        if log.own_position - self._next < PUSH_BYTES_MAX:
            return False
        ahead = self._asked - self._next
        if not 0 <= ahead <= AHEAD_BYTES:
            ahead, self._asked = 0, self._next
        if ahead <= AHEAD_BYTES - ASKED_BYTES:
            log.files.read_ahead(self._asked, ASKED_BYTES)
            self._asked += ASKED_BYTES
        if log.files.is_in_memory(self._next, PUSH_BYTES_MAX):
            self._cold_ms = None
            return False
        if self._cold_ms is None:
            self._cold_ms = now_ms
        if now_ms - self._cold_ms >= COLD_MS_MAX:
            return False
        log.files.read_ahead(self._next, PUSH_BYTES_MAX)  # it may have gone again meanwhile
        return True

    def _push_soon(self) -> None:
        """Have more sent when it is due: the rest of this turn comes first in any case."""
        loop = asyncio.get_running_loop()
        if self._master.pace.is_due(self._master.clock.monotonic_ms()):
            loop.call_soon(self._push_more)
        else:
            loop.call_later(PAUSE_S, self._push_soon)

    def _push_more(self) -> None:
        self._scheduled = False
        self.push()

    def pass_time(self, now_ms: int) -> None:
        """Say that the master is there, or give up a slave that says nothing."""
        config = self._master.config
        if now_ms - self._heard_ms > config.housekeeping_ms:
            self.refuse("it says nothing")
        elif not self._channel.is_open and now_ms - self._opened_ms > HA_PROOF_MS:
            self.refuse("it did not prove in time who it is")
        elif self.position is not None and now_ms - self._sent_ms >= config.heartbeat_ms:
            self._beat()

    def _beat(self) -> None:
        """Say that the master is there, and what comes next."""
        self._sent_ms = self._master.clock.monotonic_ms()
        if not self._paused and self._transport is not None:
            self._transport.write(self._channel.wrap(self._header(0)))

    def _header(self, size_bytes: int) -> bytes:
        """Return the head of a transfer of so many bytes."""
        return encode_header(self._next, size_bytes)

    def check(self, door: Door) -> None:
        """Close if what proved who is there counts no more."""
        if self.position is not None:
            try:
                door.check(self._transport, self._channel.key)
            except NotProven as error:
                self.refuse(str(error))

    def refuse(self, reason: str) -> None:
        """Close, and say why."""
        self._master.complain(self.remote, reason)
        self.close()

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


class _Certificates:
    """The door of a master as a listener asks for it: everybody has to show a certificate."""

    is_enforced = True

    def __init__(self, door: Door) -> None:
        """Make it. Errors: `NotProven`: the files are not usable now."""
        self._door = door
        self._last = door.context(is_server=True)

    def context(self, now_s: float) -> ssl.SSLContext:
        """Return what a new connection needs; what could be read last counts."""
        del now_s
        with suppress(NotProven):
            self._last = self._door.context(is_server=True)
        return self._last


class HaMaster:
    """Serves the slaves of one log.

    Args:
        address: host and port to listen on.
        door: what is asked of who connects.
    """

    def __init__(
        self,
        config: HaConfig,
        log: MasterLog,
        clock: Clock,
        address: tuple[str, int],
        door: Door,
    ) -> None:
        self.config = config
        self._door = door
        self.log = log
        self.clock = clock
        self.pace = Pace(clock.monotonic_ms())
        self._address = address
        self._links: dict[SlaveLink, None] = {}
        self._server: asyncio.Server | SecureListener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._complained: set[tuple[str, str]] = set()
        """Hosts that were closed, each with why."""
        self._forgot_ms = clock.monotonic_ms()
        self._checked_ms = 0
        log.watch(self._push)

    async def start(self) -> None:
        """Listen. Errors: `FatalError`."""
        host, port = self._address
        try:
            self._server = await self._listen(host, port)
        except (OSError, NotProven) as error:
            raise FatalError(f"haListenPort: cannot listen on {host}:{port}: {error}") from error
        self._tick()

    async def _listen(self, host: str, port: int) -> asyncio.Server | SecureListener:
        """Listen; with TLS each connection counts from before its handshake, as at other ports.

        (asyncio's server tells of none before it is proven, and bounds none.)
        """
        if self._door.mode is not Mode.TLS:
            return await asyncio.get_running_loop().create_server(self.make_link, host, port)
        listener = SecureListener(_Certificates(self._door), self.make_link, BACKLOG)
        await listener.start(host, port)
        return listener

    async def stop(self) -> None:
        """Close all connections."""
        if self._timer is not None:
            self._timer.cancel()
        server, self._server = self._server, None
        if isinstance(server, SecureListener):
            await server.close()
        elif server is not None:
            server.close()
        for link in list(self._links):
            link.close()
        await asyncio.sleep(0)

    def status(self) -> list[dict[str, object]]:
        """Return who follows, and how far each is."""
        end = self.log.own_position
        return [
            {
                "remote": link.remote,
                "position": link.position,
                "behind": end - link.position,
                "confirms": link.is_confirming,
            }
            for link in self._links
            if link.position is not None
        ]

    def make_link(self) -> SlaveLink:
        """Return what serves a new connection."""
        return SlaveLink(self)

    def make_channel(self) -> Channel:
        """Return what the bytes of a new connection go through."""
        return SealedChannel(self._door.accept()) if self._door.mode is Mode.KEY else Channel()

    def admit(self, transport: asyncio.BaseTransport) -> None:
        """Look at the certificate of who connects. Errors: `NotProven`."""
        if self._door.mode is Mode.TLS:
            self._door.member(transport)

    def on_opened(self, link: SlaveLink) -> None:
        """Take a new connection; where there are too many, for the oldest that confirms nothing."""
        if self._server is None:
            link.close()
            return
        if len(self._links) >= HA_SLAVES_MAX:
            idle = next((one for one in self._links if not one.is_confirming), None)
            (idle or link).refuse("too many connections")
            if idle is None:
                return
            self.on_closed(idle, "too many connections")
        self._links[link] = None

    def on_closed(self, link: SlaveLink, reason: str) -> None:
        """Take that a connection is gone."""
        if link in self._links:
            del self._links[link]
            if link.position is not None:
                _log.warning(
                    "event=slave_gone remote=%s position=%d reason=%r",
                    link.remote, link.position, reason,
                )  # fmt: skip
            self.on_report()

    def on_report(self) -> None:
        """Take that a slave has come, moved or gone; what only asks says nothing of what it has."""
        counts = [link for link in self._links if link.is_confirming]
        self.log.on_slaves([link.position for link in counts if link.position is not None])

    def complain(self, remote: str, reason: str) -> None:
        """Write a line about who is closed, the first time that there is this reason for it.

        Positions differ each time, and make no other reason of it.
        """
        kind = (remote.rpartition(":")[0], _NUMBERS.sub("", reason))
        if kind in self._complained:
            return
        if len(self._complained) >= HA_COMPLAINTS_MAX:
            if self.clock.monotonic_ms() - self._forgot_ms < FORGET_MS:
                return
            self._complained.clear()
            self._forgot_ms = self.clock.monotonic_ms()
        self._complained.add(kind)
        _log.warning("event=slave_refused remote=%s reason=%r", remote, reason)

    def _push(self) -> None:
        self.pace.on_served(self.clock.monotonic_ms())
        for link in list(self._links):
            link.on_moved()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        period_ms = min(TICK_MS_MAX, self.config.heartbeat_ms)
        self._timer = loop.call_later(period_ms / 1000, self._tick)
        now_ms = self.clock.monotonic_ms()
        is_due = now_ms - self._checked_ms >= CHECK_MS
        if is_due:
            self._checked_ms = now_ms
        for link in list(self._links):
            link.pass_time(now_ms)
            if is_due:
                link.check(self._door)
