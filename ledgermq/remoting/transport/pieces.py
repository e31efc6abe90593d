"""Writes to a connection with TLS, so that what its peer does not read is seen to wait.

What is written at once is encrypted at once, and goes on whole to the transport below, whose bytes
`get_write_buffer_size` of the one with TLS does not count. In pieces only the first ones do: the
transport below is full then, and the others wait above it, where they count.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, cast

PIECE_BYTES: Final = 64 * 1024

Buffer = bytes | bytearray | memoryview


class _InPieces:
    """A transport with TLS; all but writing is its own."""

    __slots__ = ("_transport",)

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a transport has
        return getattr(self._transport, name)

    def write(self, data: Buffer) -> None:
        """Write a buffer."""
        if len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        whole = memoryview(data)
        for at in range(0, len(whole), PIECE_BYTES):
            self._transport.write(whole[at : at + PIECE_BYTES])

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Write buffers."""
        for one in buffers:
            self.write(one)


def counted(transport: asyncio.BaseTransport) -> asyncio.Transport:
    """Return a transport whose write buffer counts all that waits, but for the first pieces."""
    if transport.get_extra_info("sslcontext") is None:
        return cast("asyncio.Transport", transport)  # or one of uvloop's
    return cast("asyncio.Transport", _InPieces(cast("asyncio.Transport", transport)))
