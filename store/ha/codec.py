"""The HA stream as bytes, both ways. Pure.

A slave reports, a master transfers::

    report     8   position up to which the slave has the log, i64; the first one asks for what
                   lies behind it, 0 for the last file of the master
    transfer  12   position i64, size i32, then so many bytes of the log as they lie in the file; a
                   size of 0 is a heartbeat

Source: spec/disk.md 7.1; RocketMQ HAConnection, HAClient 4.9.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from store.limits import HA_TRANSFER_BYTES_MAX

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")


class BadStream(Exception):  # noqa: N818  # it is the stream that is bad
    """The other side sent what cannot be true; the connection ends, and nothing was changed."""


class Piece(NamedTuple):
    """Bytes of the log that came together; none of them for a heartbeat."""

    position: int
    data: bytes | memoryview


def encode_report(position: int) -> bytes:
    """Return the report of a slave whose log reaches ``position``."""
    return REPORT.pack(position)


def encode_header(position: int, size_bytes: int) -> bytes:
    """Return the head of a transfer; of no bytes: a heartbeat."""
    return HEADER.pack(position, size_bytes)


class ReportDecoder:
    """What a master reads."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """Return the last position reported in ``data``, None if none is whole.

        Reports never fall. Errors: `BadStream`.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        last: int | None = None
        for (position,) in REPORT.iter_unpack(data[:whole]):
            if position < (last or 0):
                raise BadStream(f"a slave cannot have the log up to {position}")
            last = position
        return last


class TransferDecoder:
    """What a slave reads; it keeps no more than a header."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._wanted = HEADER.size
        """How many bytes are needed before `_take_head` can go on."""
        self._position = self._remaining = 0

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Yield what has come, in order. Errors: `BadStream`."""
        view, at = memoryview(data), 0
        while at < len(view):
            if self._remaining:
                part = view[at : at + self._remaining]
                yield Piece(self._position, part)
                at += len(part)
                self._position += len(part)
                self._remaining -= len(part)
                continue
            missing = self._wanted - len(self._head)
            self._head += view[at : at + missing]
            at += missing
            if len(self._head) == self._wanted and self._take_head():
                yield Piece(self._position, b"")

    def _take_head(self) -> bool:
        """Take a head; return whether it is that of a heartbeat. Errors: `BadStream`."""
        return self._begin(*HEADER.unpack(self._head))

    def _begin(self, position: int, size: int) -> bool:
        """Begin a transfer; return whether it is a heartbeat. Errors: `BadStream`."""
        self._head.clear()
        if position < 0 or not 0 <= size <= HA_TRANSFER_BYTES_MAX:
            raise BadStream(f"no transfer has {size} bytes at position {position}")
        self._position, self._remaining = position, size
        return not size
