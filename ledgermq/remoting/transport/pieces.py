"""Writes to a connection with TLS, so that what its peer does not read is seen to wait.

What is given to a transport with TLS is encrypted at once, and goes on whole to the transport below
as soon as that one has room: there it waits, and `get_write_buffer_size` of the one with TLS does
not count it. So pieces wait here, above it, and one goes down when those before it have: below are
never more than a few.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, cast

PIECE_BYTES: Final = 64 * 1024

Buffer = bytes | bytearray | memoryview

_GONE: Final = asyncio.Transport()


class _InPieces(asyncio.BufferedProtocol):
    """Stands between a transport with TLS and its protocol, as the one for the other.

    All but writing is their own.
    """

    def __init__(self, transport: asyncio.Transport, protocol: asyncio.BufferedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._waiting: deque[Buffer] = deque()
        self._waiting_bytes = 0
        self._high = self._low = 0
        self._is_full = False
        """Whether the protocol was told to write no more."""
        self._is_paused = False
        """Whether the transport told so."""
        self._is_closing = False
        transport.set_write_buffer_limits(high=PIECE_BYTES, low=0)
        transport.set_protocol(self)

    # For the protocol

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a transport has
        return getattr(self._transport, name)

    def set_write_buffer_limits(self, high: int) -> None:
        """Set from how many bytes on the protocol is told to write no more."""
        self._high, self._low = high, high // 4

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def write(self, data: Buffer) -> None:
        """Write a buffer."""
        if self._is_paused or self._waiting or len(data) > PIECE_BYTES:
            self.writelines((data,))
        else:
            self._transport.write(data)

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Write buffers."""
        for one in buffers:
            whole = memoryview(one)
            for at in range(0, len(whole), PIECE_BYTES):
                self._waiting.append(whole[at : at + PIECE_BYTES])
            self._waiting_bytes += len(whole)
        self._go_on()

    def close(self) -> None:
        """Write what waits, then close."""
        self._is_closing = True
        if self._waiting:
            self._transport.pause_reading()
        self._go_on()

    def abort(self) -> None:
        """Close at once."""
        self._forget()
        self._transport.abort()

    # For the transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next read goes."""
        return cast("memoryview", self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        """The peer will send no more."""
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._forget()
        self._protocol.connection_lost(exc)
        self._transport = _GONE  # the two would hold each other

    def pause_writing(self) -> None:
        """Give the transport no further piece."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Give it pieces again."""
        self._is_paused = False
        self._go_on()

    # Private

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _go_on(self) -> None:
        if self._transport.is_closing():  # it takes no more, and complains of each
            self._forget()
        while self._waiting and not self._is_paused:
            piece, size = [], 0
            while self._waiting and size < PIECE_BYTES:
                piece.append(self._waiting.popleft())
                size += len(piece[-1])
            self._waiting_bytes -= size
            self._transport.writelines(piece)
        if self._is_closing and not self._waiting:
            self._transport.close()
            return
        waiting = self.get_write_buffer_size()
        if waiting > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()
        elif waiting <= self._low and self._is_full:
            self._is_full = False
            self._protocol.resume_writing()


def counted(
    transport: asyncio.BaseTransport, protocol: asyncio.BufferedProtocol
) -> asyncio.Transport:
    """Return a transport whose write buffer counts all that waits, but for the first pieces."""
    if transport.get_extra_info("sslcontext") is None:
        return cast("asyncio.Transport", transport)  # or one of uvloop's
    return cast("asyncio.Transport", _InPieces(cast("asyncio.Transport", transport), protocol))
