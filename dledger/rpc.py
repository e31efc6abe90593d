"""Messages between replicas over TCP: one connection for each *directed* pair.

Node i dials node j to carry everything i says to j, and only that; the answers come on the
connection that j dialled. So a link can fail in one direction alone, as networks do, and so can a
proxy in between.

Nothing here waits for anyone. A message that cannot leave now (not connected, or too much waits in
the socket already) is dropped: the core repeats what matters. A broken connection is reported,
because it is the fastest hint that a peer died. Frames that no replica sends end a connection with
one log line.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from dledger.codec.peer import Hello, Misaddressed, PeerCodec
from dledger.config import DLedgerConfig
from dledger.core.messages import Message
from dledger.core.model import NodeId
from dledger.errors import CorruptEntry
from dledger.limits import PEER_FRAME_BYTES_MAX
from remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from remoting.protocol.frame import Frame, FrameDecoder
from runtime.cancel import timeout
from runtime.errors import FatalError

_log: Final = logging.getLogger(__name__)

INBOUND_MAX: Final = 64
"""Most connections accepted at a time; the group is small, so more are a mistake or an attack."""
ANY_HOST: Final = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104  # compared, not bound
HOST_CHARACTERS_MAX: Final = 253
"""Longest name that DNS has."""
LINKS_MAX: Final = 64
"""Most servers dialled."""
HALF_FRAME_S: Final = 10.0
"""An accepted connection on which a frame has begun and nothing came for so long is closed."""
CONNECT_TIMEOUT_S: Final = 1.0
USER_TIMEOUT_MS: Final = 1500
"""A connection whose bytes nobody acknowledges for so long is given up and dialled anew: after a
cut that drops packets, the kernel alone would wait out its growing retransmission timer."""


class PeerTransport(Protocol):
    """What a node needs of the network."""

    async def start(self) -> None:
        """Listen and begin to dial. Errors: `FatalError` when the address cannot be had."""
        ...

    async def stop(self) -> None:
        """Close everything."""
        ...

    def send(self, message: Message) -> None:
        """Send, or drop."""
        ...

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """Keep connections to these, by id -> ``host:port``."""
        ...

    def judge_notes(self, is_sound: Callable[[bytes, int], bool]) -> None:
        """Take no entries with a note that is none, see `Annotator.is_sound_note`."""
        ...


class TcpTransport:
    """A `PeerTransport` over asyncio."""

    def __init__(
        self,
        config: DLedgerConfig,
        *,
        on_message: Callable[[Message], None],
        on_unreachable: Callable[[NodeId], None],
    ) -> None:
        self._config = config
        self._on_message = on_message
        self._on_unreachable = on_unreachable
        others = tuple(peer for peer in config.peers if peer != config.self_id)
        self._codec = PeerCodec(config.group, config.self_id, others)
        self._members: Mapping[NodeId, str] = {peer: config.peers[peer] for peer in others}
        self._links: dict[NodeId, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._inbound: dict[_Inbound, None] = {}
        self._by_sender: dict[NodeId, _Inbound] = {}
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Listen on the own address and dial the others; without an address do neither."""
        if not self._config.listen_address:
            return
        host, port = split_address(self._config.listen_address)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Inbound(self), host, port)
        except OSError as error:
            raise FatalError(f"cannot listen for peers on {host}:{port}: {error}") from error
        self._sweep = loop.call_later(HALF_FRAME_S, self._close_half_frames)
        self.set_members(self._members)

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """Dial who is new, or has moved; who is a member no more is given up by and by.

        Addresses in the settings of this node win. Before `start` nothing is dialled.
        """
        known = self._config.peers
        self._members = {
            peer: known.get(peer, address)
            for peer, address in addresses.items()
            if peer != self._config.self_id
        }
        if self._sweep is not None:
            for peer, address in self._members.items():
                self._link(peer, address)

    def judge_notes(self, is_sound: Callable[[bytes, int], bool]) -> None:
        """Hang up on peers that send entries with a note that is none."""
        self._codec.is_sound_note = is_sound

    def _link(self, peer: NodeId, address: str) -> None:
        """Make sure that ``peer`` is dialled there."""
        link = self._links.get(peer)
        if link is not None and link.address == address:
            return
        if link is not None:
            self._unlink(peer)
        if is_address(address):
            hello = self._codec.encode_hello(peer, self._config.listen_address)
            link = _Link(peer, address, self._config, self._on_unreachable)
            self._links[peer] = link
            link.start(hello)

    def _unlink(self, peer: NodeId) -> None:
        task = asyncio.get_running_loop().create_task(self._links.pop(peer).stop())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def stop(self) -> None:
        """Close all connections; nothing is reported any more."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        for inbound in list(self._inbound):
            inbound.close()
        self._inbound.clear()
        self._by_sender.clear()
        self._sweep = None
        await asyncio.gather(*(link.stop() for link in self._links.values()), *self._closing)
        self._links.clear()

    def send(self, message: Message) -> None:
        """Send to the receiver named in the message, or drop."""
        link = self._links.get(message.receiver)
        if link is not None and link.can_send():
            try:
                link.write(self._codec.encode(message))
            except LocalProtocolError as error:  # from a version that appended what it liked
                _log.error("event=message_too_large peer=%s error=%s", message.receiver, error)

    # Called by the connections

    def on_frame(self, inbound: "_Inbound", frame: Frame) -> None:
        """Take a frame. Errors: `CorruptEntry`."""
        try:
            message = self._codec.decode(frame)
        except Misaddressed as error:
            if not inbound.complained:
                inbound.complained = True
                _log.warning("event=misaddressed remote=%s %s", inbound.remote, error)
            return
        if inbound.sender is None:
            inbound.sender = message.sender
            previous = self._by_sender.get(message.sender)
            self._by_sender[message.sender] = inbound
            if previous is not None:
                previous.close()
        if isinstance(message, Hello):
            self._on_hello(inbound, message)
        else:
            self._on_message(message)

    def _on_hello(self, inbound: "_Inbound", hello: Hello) -> None:
        """Dial a server that is no member as far as this one knows: it needs answers."""
        if hello.sender not in self._members and len(self._links) < LINKS_MAX:
            host, _, port = hello.address.rpartition(":")
            if host in ANY_HOST:  # it listens everywhere: it is where it dialled from
                host = inbound.remote.rpartition(":")[0]
            self._link(hello.sender, self._config.peers.get(hello.sender, f"{host}:{port}"))

    def on_opened(self, inbound: "_Inbound") -> bool:
        """Take a new connection; where there are too many, the oldest that said nothing goes.

        Whoever holds connections open cannot keep the members out: theirs are the newest, or have
        spoken. A silent one of a member that is closed so is dialled anew.
        """
        if len(self._inbound) >= INBOUND_MAX:
            silent = next((one for one in self._inbound if one.sender is None), None)
            closed = inbound if silent is None else silent
            _log.warning("event=too_many_connections closed=%s", closed.remote)
            if silent is None:
                return False
            del self._inbound[silent]
            silent.close()
        self._inbound[inbound] = None
        return True

    def on_closed(self, inbound: "_Inbound") -> None:
        """Report a peer whose connection broke, unless it has a newer one or we closed it."""
        if self._inbound.pop(inbound, inbound) is inbound:
            return
        sender = inbound.sender
        if sender is not None and self._by_sender.get(sender) is inbound:
            del self._by_sender[sender]
            self._on_unreachable(sender)

    def _close_half_frames(self) -> None:
        for inbound in list(self._inbound):
            if inbound.is_stuck():
                _log.warning("event=half_peer_frame remote=%s", inbound.remote)
                inbound.close()
        for peer in [peer for peer in self._links if peer not in self._members]:
            if peer not in self._by_sender:
                self._unlink(peer)
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(HALF_FRAME_S, self._close_half_frames)


class _Inbound(asyncio.BufferedProtocol):
    """An accepted connection: frames in, nothing out."""

    def __init__(self, owner: TcpTransport) -> None:
        self._owner = owner
        self._decoder = FrameDecoder(PEER_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self.remote = "?"
        self.sender: NodeId | None = None
        self.complained = False
        self._moved = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.remote = "{}:{}".format(*(transport.get_extra_info("peername") or ("?", "?"))[:2])
        if not self._owner.on_opened(self):
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._moved = True
        try:
            for frame in self._decoder.received(nbytes):
                self._owner.on_frame(self, frame)
        except (RemoteProtocolError, CorruptEntry) as error:
            _log.warning("event=bad_peer_frame remote=%s error=%r", self.remote, str(error))
            self.close()

    def is_stuck(self) -> bool:
        """Tell whether nothing has come since the last call although a frame has begun."""
        moved, self._moved = self._moved, False
        return not moved and self._decoder.partial_bytes > 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.on_closed(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Outbound(asyncio.Protocol):
    """A dialled connection: only its end is of interest."""

    def __init__(self) -> None:
        self.lost: asyncio.Event = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class _Link:
    """Keeps one connection to a peer up; reconnects forever, at growing intervals."""

    def __init__(
        self,
        peer: NodeId,
        address: str,
        config: DLedgerConfig,
        on_unreachable: Callable[[NodeId], None],
    ) -> None:
        self._peer = peer
        self.address = address
        self._hello = b""
        self._config = config
        self._on_unreachable = on_unreachable
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, hello: bytes) -> None:
        self._hello = hello
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None:
            self._transport.abort()

    def can_send(self) -> bool:
        """Tell whether a message would leave, now or soon."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        return transport.get_write_buffer_size() < self._config.peer_buffer_bytes_max

    def write(self, buffers: tuple[bytes | memoryview, ...]) -> None:
        if self._transport is not None:
            self._transport.writelines(buffers)

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

    async def _dial(self) -> _Outbound | None:
        host, port = split_address(self.address)
        source = self._config.source_address
        loop = asyncio.get_running_loop()
        try:
            async with timeout(CONNECT_TIMEOUT_S):
                transport, protocol = await loop.create_connection(
                    _Outbound, host, port, local_addr=(source, 0) if source else None
                )
        except (OSError, TimeoutError, UnicodeError):  # no name, says its encoding: a..b
            return None
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        self._transport = transport
        transport.write(self._hello)
        return protocol


def is_address(address: str) -> bool:
    """Tell whether `split_address` takes it."""
    host, _, port = address.rpartition(":")
    is_host = 0 < len(host) <= HOST_CHARACTERS_MAX and host.isascii() and host.isprintable()
    if not is_host or " " in host:
        return False
    return port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``. Errors: `FatalError`."""
    host, _, port = address.rpartition(":")
    if not is_address(address):
        raise FatalError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port)
