"""The bytes of the HA stream under a connection: as they are, or sealed with a shared key. Pure.

Sealed, each side has proven that it has the key before the first of them, and what somebody puts
in, takes out or changes is noticed (`dledger.codec.handshake`). With certificates TLS does that.
"""

from typing import Final

from dledger.codec.handshake import (
    HANDSHAKE_FRAME_BYTES_MAX,
    PART,
    Acceptor,
    Dialler,
    NotProven,
    Opener,
    Sealer,
    code_of,
    encode_part,
)
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from store.limits import HA_TRANSFER_BYTES_MAX

_ROOM_BYTES: Final = 1024
"""For what is around a transfer."""


class Channel:
    """Bytes as they are: what RocketMQ speaks."""

    greeting = b""
    """What to send first."""

    @property
    def is_open(self) -> bool:
        """Whether the stream may begin."""
        return True

    @property
    def key(self) -> bytes:
        """The shared key by which the other side has proven itself, empty for none."""
        return b""

    @property
    def proven_id(self) -> str:
        """Which broker the other side has proven to be, empty if it proved none."""
        return ""

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what of the stream has come, and what to send back. Errors: `NotProven`."""
        return data, b""

    def wrap(self, data: bytes) -> bytes:
        """Return what to send for bytes of the stream."""
        return data


class SealedChannel(Channel):
    """One side of a sealed stream."""

    def __init__(self, side: Dialler | Acceptor) -> None:
        self._side = side
        self._decoder = FrameDecoder(HA_TRANSFER_BYTES_MAX + _ROOM_BYTES)
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._proven_id = ""
        if isinstance(side, Dialler):
            self.greeting = side.greeting

    @property
    def is_open(self) -> bool:
        """Whether the other side has proven itself."""
        return self._sealer is not None

    @property
    def key(self) -> bytes:
        """The shared key that a slave has named."""
        return self._side.key if isinstance(self._side, Acceptor) else b""

    @property
    def proven_id(self) -> str:
        """The id that a slave has named in its proof, empty before that."""
        return self._proven_id

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Take bytes of the handshake, or of sealed parts. Errors: `NotProven`."""
        stream: list[bytes] = []
        back = b""
        try:
            frames = self._decoder.feed(data)
        except RemoteProtocolError as error:
            raise NotProven(f"{error}: has it the shared key?") from error
        for frame in frames:
            if self._opener is None:
                back += self._shake(frame)
                continue
            part = self._opener.open(frame)
            if code_of(part) != PART:
                raise NotProven("a frame that is no part of the stream")
            stream.append(part.body)
        if self._opener is None and self._decoder.partial_bytes > HANDSHAKE_FRAME_BYTES_MAX:
            raise NotProven("much is sent before it is known by whom")
        return b"".join(stream), back

    def _shake(self, frame: Frame) -> bytes:
        """Take a frame of the handshake; return what to say to it."""
        side = self._side
        if isinstance(side, Dialler):
            proof, self._sealer = side.answer(frame)
            self._opener = side.opener
            return proof
        if not side.has_greeted:
            return side.challenge(frame)
        self._proven_id, self._opener = side.finish(frame)
        self._sealer = side.sealer
        return b""

    def wrap(self, data: bytes) -> bytes:
        """Return a sealed part."""
        assert self._sealer is not None, "nothing is proven yet"
        return b"".join(self._sealer.seal((encode_part(len(data)), data)))
