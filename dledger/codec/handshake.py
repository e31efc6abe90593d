"""How two members that share a key prove it to each other, and how their frames are sealed then.

```
 dialler A                                         acceptor B
   GREETING  names, key id, nonce a          ->
                                             <-    CHALLENGE  nonce b, proof of B
   PROOF     proof of A                      ->
   sealed frames                             ->
```

A proof is HMAC-SHA256 with the shared key over: whose it is (dialler or acceptor), group, A, B, and
both nonces, each with its length. So it is worth nothing on another connection, in the other
direction, for another pair, or in another group. B proves first: it answers anybody, which gives
nothing away, since a shared key is too long to be guessed from an answer; and A tells an impostor
nothing but its name.

Each frame behind the proof ends with a seal: the first 16 bytes of HMAC-SHA256, with a key that
both derive from the shared key and the nonces, over the number of the frame and its bytes. So what
somebody puts into the connection, takes out, repeats or exchanges is noticed, and the connection
closed. It can be read by whoever hears it: that takes TLS.

The key id lets a group exchange its key while it runs: both know which of several is meant.

A stream that goes both ways (RocketMQ's HA) is sealed both ways, with a key for each: `PART`.

Frames are those of `dledger.codec.peer` in all else. Pure: nonces come in.
"""

import hmac
import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from dledger.core.model import NodeId
from dledger.errors import DLedgerError
from ledgermq.remoting.protocol.frame import PREFIX_BYTES, Frame, encode_frame

GREETING: Final = 31_050
CHALLENGE: Final = 31_051
PROOF: Final = 31_052
WELCOME: Final = 31_053
"""Over TLS there is nothing else to say: the acceptor has found the certificate good. (Without it
the dialler would believe so until the first byte comes back, which is never.)"""
PART: Final = 31_054
"""Behind the handshake, of a connection that carries a stream of bytes: some of them."""
HANDSHAKE_CODES: Final = frozenset({GREETING, CHALLENGE, PROOF, WELCOME})

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
KEY_ID_BYTES: Final = 8
SEAL_BYTES: Final = 16
HANDSHAKE_FRAME_BYTES_MAX: Final = 1024

_SERIALIZE_BINARY: Final = 1
_HEADER: Final = struct.Struct(">hBhiiii")
_HEADERS: Final = {code: _HEADER.pack(code, 3, 1, 0, 2, 0, 0) for code in (*HANDSHAKE_CODES, PART)}
_NUMBER: Final = struct.Struct(">Q")
_TOTAL: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">H")
_LABEL: Final = b"LedgerMQ peers 1"
_DIALLER, _ACCEPTOR, _SESSION = b"dialler", b"acceptor", b"session"
_BACK: Final = b"session, back"
"""Of the seals of what the acceptor sends, where it sends anything but its proof."""

Buffers = tuple[bytes | memoryview, ...]


class NotProven(DLedgerError):  # noqa: N818  # says what is
    """The other side has not proven who it is; the message says why."""


class Sealer:
    """Seals what leaves on one connection."""

    __slots__ = ("_key", "_number")

    def __init__(self, key: bytes) -> None:
        self._key = hmac.new(key, digestmod=sha256)
        self._number = 0

    def seal(self, buffers: Buffers) -> Buffers:
        """Return the buffers of one frame with its seal behind them."""
        mac = self._key.copy()
        mac.update(_NUMBER.pack(self._number))
        self._number += 1
        for buffer in buffers:
            mac.update(buffer)
        first = bytes(buffers[0])
        (total,) = _TOTAL.unpack_from(first)
        head = _TOTAL.pack(total + SEAL_BYTES) + first[_TOTAL.size :]
        return (head, *buffers[1:], mac.digest()[:SEAL_BYTES])


class Opener:
    """Checks and removes the seals of what comes on one connection."""

    __slots__ = ("_key", "_number")

    def __init__(self, key: bytes) -> None:
        self._key = hmac.new(key, digestmod=sha256)
        self._number = 0

    def open(self, frame: Frame) -> Frame:
        """Return the frame that was sealed. Errors: `NotProven`."""
        body = memoryview(frame.body)
        if len(body) < SEAL_BYTES:
            raise NotProven("a frame without a seal")
        content = body[:-SEAL_BYTES]
        mac = self._key.copy()
        mac.update(_NUMBER.pack(self._number))
        self._number += 1
        bytes_max = PREFIX_BYTES + len(frame.header) + len(content)  # who cut it has a bound
        mac.update(encode_frame(frame.serialize_type, frame.header, len(content), bytes_max))
        mac.update(content)
        if not hmac.compare_digest(mac.digest()[:SEAL_BYTES], body[-SEAL_BYTES:]):
            raise NotProven("a frame with a seal that is not its own")
        return Frame(frame.serialize_type, frame.header, bytes(content))


class Dialler:
    """The side that dials, of one connection."""

    def __init__(self, key: bytes, names: tuple[str, NodeId, NodeId], nonce: bytes) -> None:
        """Begin; ``names`` are group, own id, and the id of whom it dials."""
        self._key = key
        self._nonce = nonce
        self._names = _pack(*(name.encode() for name in names))
        self.greeting = _frame(GREETING, _pack(self._names, key_id(key), nonce))
        self.opener: Opener | None = None
        """After `answer`: what opens all that the acceptor sends."""

    def answer(self, frame: Frame) -> tuple[bytes, Sealer]:
        """Take the challenge; return the proof, and what seals all that follows.

        Errors: `NotProven`.
        """
        parts = _parts(frame, CHALLENGE, (NONCE_BYTES, PROOF_BYTES))
        text = _pack(self._names, self._nonce, parts[0])
        if not hmac.compare_digest(_prove(self._key, _ACCEPTOR, text), parts[1]):
            raise NotProven("it has another key, or is another member")
        proof = _frame(PROOF, _pack(_prove(self._key, _DIALLER, text)))
        self.opener = Opener(_prove(self._key, _BACK, text))
        return proof, Sealer(_prove(self._key, _SESSION, text))


class Acceptor:
    """The side that accepts, of one connection."""

    def __init__(
        self,
        keys: tuple[bytes, ...],
        names: tuple[str, NodeId],
        make_nonce: Callable[[int], bytes],
    ) -> None:
        """Begin; ``names`` are group and own id."""
        self._keys = keys
        self._own = names
        self._make_nonce = make_nonce
        self._sender: NodeId | None = None
        self._key = self._text = b""
        self.sealer: Sealer | None = None
        """After `finish`: what seals all that this side sends."""

    def challenge(self, frame: Frame) -> bytes:
        """Take the greeting; return the challenge. Errors: `NotProven`."""
        names, wanted, nonce = _parts(frame, GREETING, (None, KEY_ID_BYTES, NONCE_BYTES))
        group, sender, receiver = (_text(part) for part in _unpack(names, 3))
        if (group, receiver) != self._own or sender == receiver:
            raise NotProven(f"it is {group}/{sender} and looks for {group}/{receiver}")
        keys = [key for key in self._keys if key_id(key) == wanted]
        if not keys:
            raise NotProven(f"{sender} has a shared key that is not set here")
        own = self._make_nonce(NONCE_BYTES)
        self._sender, self._key = sender, keys[0]
        self._text = _pack(names, nonce, own)
        return _frame(CHALLENGE, _pack(own, _prove(self._key, _ACCEPTOR, self._text)))

    @property
    def key(self) -> bytes:
        """The shared key that the other side has named."""
        return self._key

    @property
    def has_greeted(self) -> bool:
        """Whether `challenge` has been answered."""
        return self._sender is not None

    def finish(self, frame: Frame) -> tuple[NodeId, Opener]:
        """Take the proof; return who is there, and what opens all that follows.

        Errors: `NotProven`.
        """
        assert self._sender is not None, "no greeting yet"
        (proof,) = _parts(frame, PROOF, (PROOF_BYTES,))
        if not hmac.compare_digest(_prove(self._key, _DIALLER, self._text), proof):
            raise NotProven(f"it is not {self._sender}, or has another key")
        self.sealer = Sealer(_prove(self._key, _BACK, self._text))
        return self._sender, Opener(_prove(self._key, _SESSION, self._text))


def encode_part(size_bytes: int) -> bytes:
    """Return how a frame begins that carries so many bytes of a stream, to be sealed."""
    return encode_frame(_SERIALIZE_BINARY, _HEADERS[PART], size_bytes)


def encode_welcome() -> bytes:
    """Return the frame that says: your certificate is good."""
    return _frame(WELCOME, b"")


def check_welcome(frame: Frame) -> None:
    """Take that frame. Errors: `NotProven`."""
    _parts(frame, WELCOME, ())


def key_id(key: bytes) -> bytes:
    """Return what tells a key from others, and nothing else about it."""
    return hmac.digest(key, _LABEL + b" key id", "sha256")[:KEY_ID_BYTES]


def code_of(frame: Frame) -> int:
    """Return the code of a frame with a binary header, 0 for any other."""
    return int.from_bytes(frame.header[:2]) if frame.serialize_type == _SERIALIZE_BINARY else 0


def _prove(key: bytes, role: bytes, text: bytes) -> bytes:
    return hmac.digest(key, _pack(_LABEL, role, text), "sha256")


def _frame(code: int, body: bytes) -> bytes:
    return encode_frame(_SERIALIZE_BINARY, _HEADERS[code], len(body)) + body


def _pack(*parts: bytes) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _unpack(data: bytes, count: int) -> list[bytes]:
    parts = []
    for _ in range(count):
        if len(data) < _LENGTH.size:
            raise NotProven("a greeting that is cut short")
        end = _LENGTH.size + int.from_bytes(data[: _LENGTH.size])
        if len(data) < end:
            raise NotProven("a greeting that is cut short")
        parts.append(data[_LENGTH.size : end])
        data = data[end:]
    if data:
        raise NotProven("a greeting that is too long")
    return parts


def _parts(frame: Frame, code: int, sizes: tuple[int | None, ...]) -> list[bytes]:
    """Return the parts of a frame of the handshake. Errors: `NotProven`."""
    if code_of(frame) != code or frame.header != _HEADERS[code]:
        found = code_of(frame)
        raise NotProven(f"it said {found} where {code} was due: does it have the shared key?")
    if PREFIX_BYTES + len(frame.header) + len(frame.body) > HANDSHAKE_FRAME_BYTES_MAX:
        raise NotProven("a greeting that is too long")
    parts = _unpack(frame.body, len(sizes))
    if any(size not in (None, len(part)) for size, part in zip(sizes, parts, strict=True)):
        raise NotProven("a greeting with parts of wrong sizes")
    return parts


def _text(part: bytes) -> str:
    return part.decode(errors="replace")
