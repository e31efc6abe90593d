"""What is said on the connections between clients and brokers, read from their bytes.

A `Tap` sits at one end of a connection: it cuts what passes there into frames, reads their headers
with code of its own, and pairs requests with answers. Who listens (`Listener`) judges a request
and its answer at the moment at which that end said or heard them. What is no frame, or has a header
that nobody can read, is passed over; what follows it on that connection, too.
Source: spec/wire.md 1.1-1.3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.oracles.base import Findings
    from sim.transport import SimTransport

PREFIX_BYTES: Final = 8
FRAME_BYTES_MAX: Final = 64 << 20
FLAG_ANSWER: Final = 1
FLAG_ONEWAY: Final = 2


class Header(msgspec.Struct, rename="camel", gc=False):
    """The header of a frame."""

    code: int
    flag: int = 0
    opaque: int = 0
    remark: str | None = None
    ext_fields: dict[str, Any] | None = None


_read_json = msgspec.json.Decoder(Header, strict=False).decode
_binary_head: Final = struct.Struct(">h3xii").unpack_from
"""Code, opaque and flag of a header that is not JSON."""


def _read_binary(data: bytes) -> Header:
    """Read a header in RocketMQ's own form. Errors: `EOFError` and others: it is none."""
    code, opaque, flag = _binary_head(data)
    at = 13
    remark, at = _read_text(data, at, 4)
    size = int.from_bytes(data[at : at + 4], "big")
    at += 4
    end = at + size
    fields: dict[str, Any] = {}
    while at < end:
        name, at = _read_text(data, at, 2)
        fields[name], at = _read_text(data, at, 4)
    return Header(code, flag, opaque, remark, fields)


def _read_text(data: bytes, at: int, width: int) -> tuple[str, int]:
    start = at + width
    end = start + int.from_bytes(data[at:start], "big")
    if end > len(data):
        raise EOFError
    return data[start:end].decode(), end


_READERS: Final = {0: _read_json, 1: _read_binary}
"""By the kind of a header, as its frame says."""


class Said(msgspec.Struct, gc=False):
    """A request or an answer."""

    code: int
    fields: Mapping[str, Any]
    body: bytes
    at_ns: int
    frame: bytes
    remark: str = ""
    asker: str = ""
    """Address of who asks."""
    note: Any = None
    """What its judge wants to know of it when it is answered."""

    def text(self, name: str) -> str:
        """Return a field as text, empty if it is not there."""
        return str(self.fields.get(name, ""))

    def number(self, name: str, default: int = -1) -> int:
        """Return a field that is a number."""
        try:
            return int(self.fields.get(name, default))
        except (TypeError, ValueError):
            return default


class Listener(Protocol):
    """Judges what one end of the connections of a host says and hears."""

    def on_request(self, tap: Tap, request: Said) -> None:
        """A request passes this end."""

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """Its answer does."""

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """An answer passes to what nobody has asked, or what was answered before."""


class Tap:
    """One end of a connection; ``asks`` tells whether requests leave here."""

    def __init__(
        self,
        listener: Listener,
        end: SimTransport,
        now_ns: Callable[[], int],
        findings: Findings,
        *,
        asks: bool,
    ) -> None:
        self.end = end
        self.open: dict[int, Said] = {}
        """Requests without an answer, by their number."""
        self._listener = listener
        self._now_ns = now_ns
        self._findings = findings
        self._asks = asks
        self.pushed: dict[tuple[int, str], int] = {}
        """Of a broker's own requests, by code and group: when the last one passed this end."""
        self.on_pushed: Callable[[Tap, Said], None] | None = None
        """Hears of them, too."""
        self._rest = {True: b"", False: b""}
        """By whether it leaves: the beginning of a frame that is not whole yet."""
        self._is_blind = False
        self._skip = 0

    @property
    def other(self) -> str:
        """The address of the other end."""
        return self.end.remote[0]

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be said here."""
        return self.end.is_closing() or self.end._gone

    @property
    def is_unread(self) -> bool:
        """Whether anything that was written here is on its way, or was not read there."""
        return bool(self.end._queue or self.end._used)

    def again(self, count: int) -> None:
        """So many bytes that were read are put back, and read once more."""
        self._skip = count

    def pass_on(self, data: bytes, *, leaves: bool) -> None:
        """Take bytes that are written or read at this end."""
        if self._skip and not leaves:
            data, self._skip = data[self._skip :], max(0, self._skip - len(data))
        if self._is_blind:
            return
        try:
            self._cut(data, leaves=leaves)
        except Exception as error:  # noqa: BLE001 - the caller is production's code
            self._findings.report(error)

    def _cut(self, data: bytes, *, leaves: bool) -> None:
        rest = self._rest[leaves]
        if rest:
            data = rest + data
        at, size = 0, len(data)
        while size - at >= PREFIX_BYTES:
            total = int.from_bytes(data[at : at + 4], "big")
            if not 4 <= total <= FRAME_BYTES_MAX:
                self._is_blind = True
                return
            end = at + 4 + total
            if end > size:
                break
            self._take(data[at:end] if at or end < size else data, leaves=leaves)
            at = end
        self._rest[leaves] = data[at:]

    def _take(self, frame: bytes, *, leaves: bool) -> None:
        header_end = PREFIX_BYTES + int.from_bytes(frame[5:8], "big")
        try:  # `suppress` would take as long as the reading
            reader = _READERS.get(frame[4]) if header_end <= len(frame) else None
            header = None if reader is None else reader(frame[PREFIX_BYTES:header_end])
        except (msgspec.MsgspecError, UnicodeDecodeError, struct.error, EOFError):
            header = None
        if header is None:
            self._is_blind = True
            self.open.clear()
            return
        said = Said(
            header.code, header.ext_fields or {}, frame[header_end:], self._now_ns(), frame,
            header.remark or "",
        )  # fmt: skip
        is_answer = bool(header.flag & FLAG_ANSWER)
        if is_answer == (leaves is self._asks):
            if not is_answer:
                self.pushed[said.code, said.text("consumerGroup")] = said.at_ns
                if self.on_pushed is not None:
                    self.on_pushed(self, said)
            return  # what the other side asks of this one, or an answer to that
        if not is_answer:
            said.asker = self.end.local[0] if leaves else self.other
            if not header.flag & FLAG_ONEWAY:
                self.open[header.opaque] = said
            self._listener.on_request(self, said)
            return
        request = self.open.pop(header.opaque, None)
        if request is None:
            self._listener.on_stray(self, said)
        else:
            self._listener.on_answer(self, request, said)


class Listeners:
    """Several listeners at one end, each as if it were alone there; a `Listener` itself."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def on_request(self, tap: Tap, request: Said) -> None:
        """See `Listener`."""
        for listener in self._listeners:
            listener.on_request(tap, request)

    def on_answer(self, tap: Tap, request: Said, answer: Said) -> None:
        """See `Listener`."""
        for listener in self._listeners:
            listener.on_answer(tap, request, answer)

    def on_stray(self, tap: Tap, answer: Said) -> None:
        """See `Listener`."""
        for listener in self._listeners:
            listener.on_stray(tap, answer)
