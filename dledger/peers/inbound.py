"""An accepted connection of a peer: who is there is found out first, then its frames are taken.

Before that it holds next to nothing here: frames of the handshake only, for a few seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from dledger.codec.handshake import (
    HANDSHAKE_FRAME_BYTES_MAX,
    Acceptor,
    NotProven,
    Opener,
    encode_welcome,
)
from dledger.codec.peer import Hello, Misaddressed, PeerCodec
from dledger.core.messages import Message
from dledger.core.model import NodeId
from dledger.errors import CorruptEntry
from dledger.limits import PEER_FRAME_BYTES_MAX, PEER_HANDSHAKE_MS
from dledger.peers.door import Door, Mode
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder

_log: Final = logging.getLogger(__name__)

HANDSHAKE_S: Final = PEER_HANDSHAKE_MS / 1000


class Owner(Protocol):
    """Who accepts connections."""

    door: Door
    codec: PeerCodec
    members: Mapping[NodeId, str]
    """Those of the group, by id."""
    on_message: Callable[[Message], None]
    """Takes a message of who has proven to be its sender."""

    def on_opened(self, inbound: "Inbound") -> None:
        """Take a new connection."""
        ...

    def on_proven(self, inbound: "Inbound", sender: NodeId) -> None:
        """Take who is there."""
        ...

    def on_stranger(self, inbound: "Inbound", message: Message | Hello) -> None:
        """Take what somebody said who is no member."""
        ...

    def on_closed(self, inbound: "Inbound") -> None:
        """Take that the connection is gone."""
        ...


class Inbound(asyncio.BufferedProtocol):
    """See the module. Without keys and certificates the first message says who is there."""

    def __init__(self, owner: Owner, host: str = "?") -> None:
        """Make it; over TLS it is opened already, for ``host``."""
        self._owner = owner
        self._decoder = FrameDecoder(PEER_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self.is_connected = False
        """Whether there is a connection, or was one: over TLS, once that has ended well."""
        self.host = self.remote = host
        self.sender: NodeId | None = None
        self.complained = False
        self._moved = False
        self._is_open = owner.door.mode is Mode.OPEN
        self._acceptor: Acceptor | None = None
        self._opener: Opener | None = None
        self.securing: asyncio.Task[None] | None = None
        """Over TLS: what proves who is there."""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take that there is a connection."""
        self._transport = cast("asyncio.Transport", transport)
        self.is_connected = True
        self.host, port = (transport.get_extra_info("peername") or ("?", "?"))[:2]
        self.remote = f"{self.host}:{port}"
        door = self._owner.door
        if door.mode is Mode.TLS:
            self._take_certificate(self._transport)
            return
        self._owner.on_opened(self)
        if door.mode is Mode.KEY:
            self._acceptor = door.accept()
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(HANDSHAKE_S, self._expire)

    def _take_certificate(self, transport: asyncio.Transport) -> None:
        try:
            sender = self._owner.door.member(transport)
        except NotProven as error:
            self.refuse(error)
            return
        transport.write(encode_welcome())
        self._prove(sender)

    def _prove(self, sender: NodeId) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._owner.on_proven(self, sender)

    def _expire(self) -> None:
        self.refuse(TimeoutError("it did not prove who it is in time"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read into."""
        return self._decoder.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._moved = True
        try:
            frames = self._decoder.received(nbytes)
            if self._is_open or (self._opener is None and self.sender is not None):
                for frame in frames:
                    self._take(frame)
            else:
                for frame in frames:
                    self._take_guarded(frame)
                self._check_size()
        except (RemoteProtocolError, CorruptEntry, NotProven) as error:
            self.refuse(error)

    def _take(self, frame: Frame) -> None:
        """Take a frame. Errors: `CorruptEntry`, `NotProven`: it speaks for somebody else."""
        owner = self._owner
        try:
            message = owner.codec.decode(frame)
        except Misaddressed as error:
            if not self.complained:
                self.complained = True
                _log.warning("event=misaddressed remote=%s %s", self.remote, error)
            return
        if self.sender is None:
            owner.on_proven(self, message.sender)
        elif message.sender != self.sender:
            raise NotProven(f"a message of {message.sender} on the connection of {self.sender}")
        if not isinstance(message, Hello):
            owner.on_message(message)  # the core refuses a former member, and notes that
        if message.sender not in owner.members:
            owner.on_stranger(self, message)

    def _check_size(self) -> None:
        if self.sender is None and self._decoder.partial_bytes > HANDSHAKE_FRAME_BYTES_MAX:
            raise NotProven("it sends too much before it has proven who it is")

    def _take_guarded(self, frame: Frame) -> None:
        """Take a frame of a handshake, or a sealed one. Errors: `CorruptEntry`, `NotProven`."""
        if self._opener is not None:
            self._take(self._opener.open(frame))
        elif self._acceptor is None:
            raise NotProven("it is refused already")
        elif not self._acceptor.has_greeted:
            assert self._transport is not None
            self._transport.write(self._acceptor.challenge(frame))
        else:
            sender, self._opener = self._acceptor.finish(frame)
            self._prove(sender)

    def check(self) -> None:
        """Close if the key or certificate of the peer is not valid any more."""
        if self.sender is not None:
            try:
                key = b"" if self._acceptor is None else self._acceptor.key
                self._owner.door.check(self._transport, key)
            except NotProven as error:
                self._owner.door.complain("peer_lapsed", f"peer={self.sender}", error)
                self.close()

    def refuse(self, error: Exception) -> None:
        """Close, and say why."""
        who = f"remote={self.host}" if self.sender is None else f"peer={self.sender}"
        self._owner.door.complain(
            "bad_peer_frame" if self.sender is not None or self._is_open else "peer_refused",
            who,
            error,
        )
        self.close()

    def is_stuck(self) -> bool:
        """Tell whether nothing has come since the last call although a frame has begun."""
        moved, self._moved = self._moved, False
        return not moved and self._decoder.partial_bytes > 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Take that the connection is gone."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._transport = None  # over TLS the two would hold each other, see `TlsListener`
        self._owner.on_closed(self)

    def close(self) -> None:
        """Close at once."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self.securing is not None and not self.is_connected:
            self.securing.cancel()
        if self._transport is not None:
            self._transport.abort()
