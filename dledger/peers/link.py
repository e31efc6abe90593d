"""A connection that is dialled: kept up for ever, used once the other side has proven itself."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from dledger.codec.handshake import Buffers, Dialler, NotProven, Sealer, check_welcome
from dledger.config import DLedgerConfig, is_address
from dledger.core.model import NodeId
from dledger.errors import CorruptEntry
from dledger.peers.door import Door, Mode
from dledger.peers.inbound import HANDSHAKE_S
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.transport.dialling import dial
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 1.0
USER_TIMEOUT_MS: Final = 1500
"""A connection whose bytes nobody acknowledges for so long is given up and dialled anew: after a
cut that drops packets, the kernel alone would wait out its growing retransmission timer."""
HUNG_UP: Final = "it hung up; its log says why"


class Outbound(asyncio.Protocol):
    """A dialled connection: what comes back belongs to the handshake, then only its end counts.

    Args:
        dialler: with a shared key, the own half of the handshake.
        awaits_welcome: over TLS, whether the other side says that all is well.
    """

    def __init__(self, dialler: Dialler | None, *, awaits_welcome: bool) -> None:
        self._dialler = dialler
        self._awaits_welcome = awaits_welcome
        self._decoder = FrameDecoder()
        self._transport: asyncio.Transport | None = None
        self.sealer: Sealer | None = None
        self.error: Exception | None = None
        self.settled = asyncio.Event()
        """The handshake has ended, well or not."""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take that there is a connection."""
        self._transport = cast("asyncio.Transport", transport)
        if self._dialler is not None:
            self._transport.write(self._dialler.greeting)
        elif not self._awaits_welcome:
            self.settled.set()

    def data_received(self, data: bytes) -> None:
        """Take what was read."""
        if self.settled.is_set():
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except (NotProven, RemoteProtocolError, CorruptEntry) as error:
            self._end(error)

    def _take(self, frame: Frame) -> None:
        assert self._transport is not None
        if self.settled.is_set():
            return
        if self._dialler is not None:
            proof, self.sealer = self._dialler.answer(frame)
            self._transport.write(proof)
        else:
            check_welcome(frame)
        self.settled.set()

    def _end(self, error: Exception) -> None:
        self.error = self.error or error
        self.settled.set()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take that the connection is gone."""
        if not self.settled.is_set():
            self._end(exc or NotProven(HUNG_UP))
        self.lost.set()


class Link:
    """Keeps one connection to a peer up; reconnects forever, at growing intervals."""

    def __init__(
        self,
        peer: NodeId,
        address: str,
        config: DLedgerConfig,
        door: Door,
        on_unreachable: Callable[[NodeId], None],
    ) -> None:
        self._peer = peer
        self.address = address
        self._hello = b""
        self._config = config
        self._buffer_bytes_max = config.peer_buffer_bytes_max
        self._door = door
        self._on_unreachable = on_unreachable
        self._transport: asyncio.Transport | None = None
        self.sealer: Sealer | None = None
        """What messages are sealed with, where there is a shared key."""
        self._task: asyncio.Task[None] | None = None

    def start(self, hello: bytes) -> None:
        """Begin to dial; ``hello`` is the first frame of every connection."""
        self._hello = hello
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Give up for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None:
            self._transport.abort()

    def maybe_transport(self) -> asyncio.Transport | None:
        """Return where to write, sealed by ``sealer``; None if it would not leave soon."""
        transport = self._transport
        if (
            transport is None
            or transport.is_closing()
            or transport.get_write_buffer_size() >= self._buffer_bytes_max
        ):
            return None
        return transport

    def check(self) -> None:
        """Dial again if the key or certificate of the peer is not valid any more."""
        if self._transport is not None and self._door.mode is Mode.TLS:
            try:
                self._door.check(self._transport, b"")
            except NotProven as error:
                self._door.complain("peer_lapsed", f"peer={self._peer}", error)
                self._transport.abort()

    async def _run(self) -> None:
        delay_ms = self._config.reconnect_ms_min
        while True:
            protocol = await self._dial()
            if protocol is not None:
                _log.info("event=peer_connected peer=%s", self._peer)
                delay_ms = self._config.reconnect_ms_min
                await protocol.lost.wait()
                self._transport = None
                _log.info("event=peer_disconnected peer=%s", self._peer)
                self._on_unreachable(self._peer)
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(delay_ms * 2, self._config.reconnect_ms_max)

    async def _dial(self) -> Outbound | None:
        try:
            transport, protocol = await self._connect()
        except (ssl.SSLError, NotProven) as error:
            self._door.complain("peer_not_proven", f"peer={self._peer}", error)
            return None
        except (OSError, TimeoutError, UnicodeError):  # no name, says its encoding: a..b
            return None
        try:
            await self._confirm(transport, protocol)
        except (OSError, NotProven, CorruptEntry, RemoteProtocolError) as error:
            transport.abort()
            self._door.complain("peer_not_proven", f"peer={self._peer}", error)
            return None
        except BaseException:
            transport.abort()
            raise
        set_options(transport.get_extra_info("socket"))
        self._transport, self.sealer = transport, protocol.sealer
        hello: Buffers = (self._hello,)
        transport.writelines(hello if self.sealer is None else self.sealer.seal(hello))
        return protocol

    async def _confirm(self, transport: asyncio.Transport, protocol: Outbound) -> None:
        """Wait until the handshake has ended. Errors: those of the handshake."""
        try:
            async with timeout(HANDSHAKE_S):
                await protocol.settled.wait()
        except TimeoutError:
            raise NotProven(
                "it did not answer: does it have a shared key, or certificates?"
            ) from None
        if protocol.error is not None:
            raise protocol.error
        if transport.is_closing():  # its socket is gone: nothing can be set or written there
            raise NotProven(HUNG_UP)
        if self._door.mode is Mode.TLS:
            found = self._door.member(transport)
            if found != self._peer:
                raise NotProven(f"its certificate is that of {found}")

    async def _connect(self) -> tuple[asyncio.Transport, Outbound]:
        """Dial. Errors: `OSError`, `TimeoutError`, `UnicodeError`, `NotProven`."""
        host, port = split_address(self.address)
        door = self._door
        dialler = door.dial(self._peer) if door.mode is Mode.KEY else None
        is_tls = door.mode is Mode.TLS
        async with timeout(HANDSHAKE_S if is_tls else CONNECT_TIMEOUT_S):
            return await dial(
                lambda: Outbound(dialler, awaits_welcome=is_tls),
                host,
                port,
                source_address=self._config.source_address,
                tls=door.context(is_server=False) if is_tls else None,
            )


def set_options(sock: socket.socket) -> None:
    """Let a connection that is dead be noticed, and small messages leave at once."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``. Errors: `FatalError`."""
    host, _, port = address.rpartition(":")
    if not is_address(address):
        raise FatalError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port)
