"""Frames: the unit of the wire. Bytes in, frames out; nothing is known of what is in a header.

| offset | size | field | note |
|---|---|---|---|
| 0 | 4 | total | int32 big-endian, not counting itself: 4 + header + body |
| 4 | 1 | serialize type | 0 JSON, 1 ROCKETMQ (binary) |
| 5 | 3 | header length | uint24 big-endian |
| 8 | n | header | |
| 8+n | rest | body | may be empty |

Source: NettyDecoder, NettyEncoder, RemotingCommand, SerializeType (spec/wire.md 1.1).
"""

import struct
from typing import Final

import msgspec

from ledgermq.remoting.protocol.errors import LocalProtocolError, RemoteProtocolError
from ledgermq.remoting.protocol.limits import HEADER_BYTES_MAX

MAX_FRAME_BYTES: Final = 16_777_216
"""Largest frame, its length prefix included; a larger one closes the connection."""

PREFIX_BYTES: Final = 8
RECEIVE_BYTES_MIN: Final = 16 * 1024
"""Receive buffer of a new connection; doubles while reads fill it."""
RECEIVE_BYTES_USUAL: Final = 256 * 1024
"""Largest receive buffer kept between frames; only a larger frame makes it larger, for its time."""

_PREFIX: Final = struct.Struct(">iI")
_unpack_prefix: Final = _PREFIX.unpack_from


class Frame(msgspec.Struct, gc=False):
    """One frame; header and body are bytes of their own, never views of a receive buffer."""

    serialize_type: int
    header: bytes
    body: bytes


def encode_frame(
    serialize_type: int, header: bytes, body_bytes: int = 0, bytes_max: int = MAX_FRAME_BYTES
) -> bytes:
    """Return the prefix and the header of a frame whose body of ``body_bytes`` follows by itself.

    Errors: `LocalProtocolError` when the frame would be larger than ``bytes_max``.
    """
    header_bytes = len(header)
    total = 4 + header_bytes + body_bytes
    if total + 4 > bytes_max or header_bytes > 0xFFFFFF:
        raise LocalProtocolError(f"frame of {total + 4} bytes exceeds {bytes_max}")
    return _PREFIX.pack(total, serialize_type << 24 | header_bytes) + header


class FrameDecoder:
    """Cuts a byte stream into frames; any split of the stream gives the same frames.

    A transport that owns the reading calls `writable`, reads into it, then `received`; everybody
    else calls `feed`. The buffer is allocated once and grows only for a frame that needs it.
    After bytes that are no frame the decoder is dead: `error` holds why, and since the frames
    before them are still good, it is raised only by a call that has no frame to return.
    """

    __slots__ = (
        "_buffer", "_end", "_frame_bytes_max", "_start", "_view", "buffer_bytes", "error",
        "has_large_headers",
    )  # fmt: skip

    def __init__(self, frame_bytes_max: int = MAX_FRAME_BYTES) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(RECEIVE_BYTES_MIN)
        self._view = memoryview(self._buffer)
        self.buffer_bytes = RECEIVE_BYTES_MIN
        """Size of the buffer."""
        self._start = 0
        self._end = 0
        self.error: RemoteProtocolError | None = None
        self.has_large_headers = False
        """Whether a frame returned last has a header above `HEADER_BYTES_MAX`."""

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._end - self._start

    def shrink(self) -> None:
        """Give back what an idle stream does not need; a frame under way is kept."""
        if self._end == 0 and len(self._buffer) > RECEIVE_BYTES_MIN:
            self._take_buffer(bytearray(RECEIVE_BYTES_MIN))

    def _take_buffer(self, buffer: bytearray) -> None:
        self._buffer, self._view, self.buffer_bytes = buffer, memoryview(buffer), len(buffer)

    def writable(self) -> memoryview:
        """Return the free part of the buffer, never empty.

        Of a buffer that was made larger for a frame it is what that frame lacks, and as much behind
        it as any read may take: what is left could hold a million frames of a few bytes.
        """
        if self.buffer_bytes <= RECEIVE_BYTES_USUAL:
            return self._view[self._end :]
        frame_end = self._start + 4 + _unpack_prefix(self._view, self._start)[0]
        return self._view[self._end : max(frame_end, self._end) + RECEIVE_BYTES_USUAL]

    def received(self, count: int) -> list[Frame]:
        """Take ``count`` bytes that were written into `writable`; return the frames they complete.

        Errors: `RemoteProtocolError` for bytes that are no frame, see the class.
        """
        end, view = self._end + count, self._view
        if PREFIX_BYTES <= end < len(view) <= RECEIVE_BYTES_USUAL and self.error is None:
            # One frame and nothing else, as nearly always.
            total, word = _unpack_prefix(view)
            header_end = PREFIX_BYTES + (word & 0xFFFFFF)
            if header_end <= total + 4 == end <= self._frame_bytes_max and not word >> 25:
                self._end = 0
                self.has_large_headers = False
                header, body = bytes(view[PREFIX_BYTES:header_end]), bytes(view[header_end:end])
                return [Frame(word >> 24, header, body)]
        self._end = end
        frames = self._cut() if self.error is None else []
        if self.error is not None and not frames:
            raise RemoteProtocolError(*self.error.args)  # one that is kept holds its frames
        # Such a header needs a buffer that is larger than usual.
        self.has_large_headers = len(self._buffer) > RECEIVE_BYTES_USUAL and any(
            len(frame.header) > HEADER_BYTES_MAX for frame in frames
        )
        self._make_room(filled=self._end == len(self._buffer))
        return frames

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take ``data``; return the frames it completes.

        Errors: `RemoteProtocolError` for bytes that are no frame, see the class.
        """
        if self.error is not None:
            raise RemoteProtocolError(*self.error.args)  # one that is kept holds its frames
        rest = memoryview(data)
        frames: list[Frame] = []
        while rest and self.error is None:
            room = self.writable()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            try:
                frames += self.received(count)
            except RemoteProtocolError:
                if not frames:
                    raise
        return frames

    def _cut(self) -> list[Frame]:
        """Cut all complete frames; one copy of the read, then cheap slices of bytes."""
        available = self._end - self._start
        if available < 4:
            return []
        data = self._complete_part(available)
        frames: list[Frame] = []
        position, end = 0, len(data)
        limit = self._frame_bytes_max - 4
        while end - position >= PREFIX_BYTES:
            total, word = _unpack_prefix(data, position)
            header_end = position + PREFIX_BYTES + (word & 0xFFFFFF)
            frame_end = position + 4 + total
            if not 4 <= total <= limit or header_end > frame_end or word >> 25:
                self._fail(data, position)
                break
            if frame_end > end:
                break
            frames.append(
                Frame(
                    word >> 24,
                    data[position + PREFIX_BYTES : header_end],
                    data[header_end:frame_end],
                )
            )
            position = frame_end
        else:
            # The total alone condemns an oversize frame, however few bytes follow it.
            if end - position >= 4:
                self._check_total(data, position)
        self._start += position
        return frames

    def _complete_part(self, available: int) -> bytes:
        """Return what there is to cut: everything, or no more than a prefix of a long frame."""
        if available >= PREFIX_BYTES:
            total = _PREFIX.unpack_from(self._buffer, self._start)[0]
            if total + 4 > available:
                return bytes(self._view[self._start : self._start + PREFIX_BYTES])
        return bytes(self._view[self._start : self._end])

    def _make_room(self, *, filled: bool) -> None:
        """Move the partial frame to the front and give the buffer the size it needs."""
        partial = self._end - self._start
        size = len(self._buffer)
        wanted = size
        if filled and (size < RECEIVE_BYTES_USUAL or partial * 2 > size):
            # Grow with the bytes that came, not with the length that a peer claims.
            wanted = min(size * 2, max(self._frame_bytes_max, RECEIVE_BYTES_USUAL))
        elif size > RECEIVE_BYTES_USUAL > partial:
            wanted = RECEIVE_BYTES_USUAL
        if wanted != size:
            buffer = bytearray(wanted)
            buffer[:partial] = self._view[self._start : self._end]
            self._take_buffer(buffer)
        elif partial and self._start:
            self._view[:partial] = self._view[self._start : self._end]
        self._start, self._end = 0, partial

    def _check_total(self, data: bytes, position: int) -> None:
        total = int.from_bytes(data[position : position + 4], "big", signed=True)
        if not 4 <= total <= self._frame_bytes_max - 4:
            self._fail(data, position)

    def _fail(self, data: bytes, position: int) -> None:
        head = data[position : position + PREFIX_BYTES].hex()
        self.error = RemoteProtocolError(f"no frame begins with bytes {head}")
