"""One end of a TCP connection: a transport for asyncio, and the kernel's buffers behind it.

Bytes written wait in the sender's queue while the link is cut or the receiver's window is full,
travel as chunks that keep their order, and wait at the receiver while it does not read or is
paused. What TCP does about silence is here too: a user timeout, resets for sockets that are gone.
Chunks are whole writes unless the link splits them, so that frames end where chunks do.
"""

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from sim.context import DEAD
from sim.frames import apply_rules
from sim.handle import Packet, SimHandle
from sim.kernel import Kernel, SimSocket, Tap

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.context import Process
    from sim.link import Link

WINDOW_BYTES: Final = 256 * 1024
"""Most bytes on their way, or at the receiver and not read."""
KERNEL_BYTES: Final = 64 * 1024
"""Of what waits at the sender, so much is the kernel's and not the transport's."""
HIGH_WATER_BYTES: Final = 64 * 1024

CLOSE: Final = "close"
RESET: Final = "reset"
VANISH: Final = "vanish"

_EOF: Final = b""
_KERNEL: Final = contextvars.Context()
"""Context of what no process does."""


class SimTransport(asyncio.Transport):
    """See the module. ``link`` carries what is sent, ``back`` what is received."""

    __slots__ = (
        "_arrival_ns", "_blocked", "_buffered", "_closing", "_context", "_eof_queued", "_eof_sent",
        "_gone", "_high", "_inbox", "_kernel", "_lost", "_low", "_protocol", "_queue", "_queued",
        "_reading", "_unacked_lost", "_used", "_writing_paused", "back", "link", "local", "on_left",
        "peer", "process", "remote", "silent", "sock", "tap",
    )  # fmt: skip

    peer: "SimTransport"

    def __init__(
        self,
        kernel: Kernel,
        process: "Process | None",
        context: contextvars.Context,
        links: "tuple[Link, Link]",
        names: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        """Make an end; ``links`` are out and in, ``names`` own and remote address."""
        self._kernel = kernel
        self.process = process
        self._context = context
        self.link, self.back = links
        self.local, self.remote = names
        self.sock = SimSocket(self.local)
        self._protocol: asyncio.BaseProtocol | None = None
        self._buffered = False
        """Whether the protocol owns the buffers that are read into."""
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._used = 0
        """Bytes sent that the peer has not read."""
        self._unacked_lost = 0
        """Of these, bytes that were read but whose acknowledgement met a cut."""
        self._arrival_ns = 0
        self._inbox: deque[bytes] = deque()
        self._reading = False
        self._closing = False
        self._lost = False
        self._gone = False
        self._eof_queued = self._eof_sent = False
        self.silent = False  # whether the other end hears nothing of the end of this one
        self._writing_paused = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._blocked: SimHandle | None = None
        self.tap: Tap | None = None
        self.on_left: Callable[[], object] = bool  # hears that this end is about to close
        self.link.sockets[self] = None
        if process is not None:
            process.sockets[self] = None

    def __repr__(self) -> str:
        return f"<SimTransport {self.local}->{self.remote}>"

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection to its protocol; call it in the context of the process."""
        self.set_protocol(protocol)
        self._reading = True
        protocol.connection_made(self)
        if self._inbox:
            self._soon(self._read_inbox)

    def expect_after(self, when_ns: int) -> None:
        """Let nothing that is sent arrive before the other end has accepted."""
        self._arrival_ns = when_ns

    # asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - asyncio's
        """Return ``peername``, ``sockname`` or ``socket``."""
        known = {"peername": self.remote, "sockname": self.local, "socket": self.sock}
        return known.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol."""
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        """Tell whether it is closed or about to be."""
        return self._closing

    def is_reading(self) -> bool:
        """Tell whether data is taken."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        """Take no more data."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take data again."""
        if not self._reading and not self._closing:
            self._reading = True
            if self._inbox:
                self._soon(self._read_inbox)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when `pause_writing` and `resume_writing` are called."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return low and high."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the kernel has not taken."""
        return self._queued - KERNEL_BYTES if self._queued > KERNEL_BYTES else 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if self._eof_queued and not self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        process = self.process
        if not data or self._closing or (process is not None and process.state == DEAD):
            return
        link = self.link
        if self.tap is not None:
            self.tap.pass_on(bytes(data), leaves=True)
        if link.rules:
            apply_rules(link, bytes(data), self._send, self._send_later)
        elif self._queue or link.cut or link.split or self._used >= WINDOW_BYTES:
            self._send(bytes(data))
        else:
            self._transmit_piece(bytes(data))
        if self._queued > self._high + KERNEL_BYTES and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send buffers as one chunk."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Tell that `write_eof` works."""
        return True

    def write_eof(self) -> None:
        """Send no more, but go on receiving."""
        if not self._eof_queued and not self._closing:
            self._eof_queued = True
            self._pump()

    def close(self) -> None:
        """Send what was written, then close."""
        if self._closing or self._is_dead():
            return
        self.on_left()
        self._closing = True
        self._inbox.clear()
        self._eof_queued = True
        self._pump()

    def abort(self) -> None:
        """Close at once."""
        if not self._lost and not self._is_dead():
            self.on_left()
            self._force_close(None, RESET if self._inbox else CLOSE)

    # Sending

    def _send(self, data: bytes) -> None:
        link = self.link
        if self._queue or link.cut or self._used >= WINDOW_BYTES:
            link.stopped += link.cut
            self._queue.append(data)
            self._queued += len(data)
            if self._blocked is None:
                self._arm_user_timeout()
        elif link.split:
            self._transmit(data)
        else:
            self._transmit_piece(data)

    def _send_later(self, delay_ns: int, data: bytes) -> None:
        """Send a frame that a rule has held back, if there is a connection then."""

        def send() -> None:
            if not self._closing and not self._is_dead():
                self._send(data)

        self._post(self._kernel.now_ns + delay_ns, send)

    def _transmit(self, data: bytes) -> None:
        link = self.link
        if link.split and len(data) > 1 and link.rng.chance(link.split):
            at = link.rng.randint(1, len(data) - 1)
            self._transmit_piece(data[:at])
            data = data[at:]
        self._transmit_piece(data)

    def _transmit_piece(self, data: bytes) -> None:
        kernel, link, peer = self._kernel, self.link, self.peer
        link.chunks += 1
        self._used += len(data)
        process = self.process
        when = kernel.now_ns + link.draw_ns()
        if process is not None:
            when += process.charged_ns
        if link.bytes_per_ms:
            when += link.pass_ns(kernel.now_ns, len(data))
        if when < self._arrival_ns:  # noqa: PLR1730 - `max` is slower, and this is the hot path
            when = self._arrival_ns
        self._arrival_ns = when
        kernel.post(when, Packet(when, peer.on_data, (data,), peer._context, peer.process))

    def _pump(self) -> None:
        """Send what waits, as far as it may go now; then what was to come after it."""
        queue, link = self._queue, self.link
        while queue and not link.cut and self._used < WINDOW_BYTES:
            data = queue.popleft()
            self._queued -= len(data)
            self._transmit(data)
            self._disarm_user_timeout()
        if queue or self._unacked_lost:
            if self._blocked is None and not self._gone:
                self._arm_user_timeout()
        else:
            self._disarm_user_timeout()
        if self._eof_queued and not self._eof_sent and not queue and not link.cut:
            self._eof_sent = True
            self._to_peer(self.peer.on_eof)
            if self._gone:
                link.sockets.pop(self, None)
        if self._closing and not self._lost and self._queued <= KERNEL_BYTES:
            self._lose(None)
        if self._writing_paused and self.get_write_buffer_size() <= self._low and not self._gone:
            self._writing_paused = False
            self._soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._closing and not self._writing_paused:
            self.get_protocol().resume_writing()

    def on_acknowledged(self, count: int) -> None:
        """The peer has read bytes; its word of it comes by the other link."""
        if self.back.cut_acks:
            self._unacked_lost += count
            if self._blocked is None and not self._gone:
                self._arm_user_timeout()
            return
        self._used -= count
        if self._queue:
            self._pump()

    def on_healed(self) -> None:
        """A link works again: send what it had stopped, take what was acknowledged."""
        if not self.back.cut_acks:
            self._used -= self._unacked_lost
            self._unacked_lost = 0
        self._pump()

    def _arm_user_timeout(self) -> None:
        when = self._kernel.now_ns + self.sock.user_timeout_ms * 1_000_000
        self._blocked = self._post(when, self._on_user_timeout)

    def _disarm_user_timeout(self) -> None:
        if self._blocked is not None:
            self._blocked.cancel()
            self._blocked = None

    def _on_user_timeout(self) -> None:
        self._blocked = None
        if self._queue or self._unacked_lost:
            self._kernel.trace.event("user_timeout", self.local[0], peer=self.remote[0])
            self._queue.clear()
            self._queued = 0
            self._force_close(TimeoutError(errno.ETIMEDOUT, "Connection timed out"), RESET)

    # Receiving

    def on_data(self, data: bytes) -> None:
        """A chunk arrives; in the context of the process."""
        if self._gone:
            self.bounce()
            return
        trace = self._kernel.trace
        trace.note(crc32(data) << 20 | len(data) & 0xFFFFF)
        if trace.keep_lines:
            trace.line(
                "arrive", self.local[0], source=self.remote[0], port=self.local[1], size=len(data)
            )
        if self._inbox or not self._reading:
            if not self._closing:
                self._inbox.append(data)
            return
        self._deliver(data)

    def on_eof(self) -> None:
        """The peer sends no more; in the context of the process."""
        if self._gone or self._closing:
            return
        if self._inbox or not self._reading:
            self._inbox.append(_EOF)
            return
        if not self.get_protocol().eof_received():  # type: ignore[attr-defined]  # in every protocol
            self.close()

    def on_reset(self) -> None:
        """The peer's kernel knows nothing of this connection."""
        if not self._lost:
            self._queue.clear()
            self._queued = 0
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._force_close(error, VANISH)

    def bounce(self) -> None:
        """Something arrived for a socket that is gone: its kernel, if it runs, says so."""
        if self._kernel.is_reachable(self.local[0]) and not self.silent:
            self._to_peer(self.peer.on_reset)

    def _read_inbox(self) -> None:
        while self._inbox and self._reading and not self._closing:
            data = self._inbox.popleft()
            if data:
                self._deliver(data)
            else:
                self.on_eof()

    def _deliver(self, data: bytes) -> None:
        protocol = self._protocol
        size = len(data)
        if self.tap is not None:
            self.tap.pass_on(data, leaves=False)
        try:
            if self._buffered:
                room = protocol.get_buffer(size)  # type: ignore[union-attr]  # a BufferedProtocol
                if len(room) >= size:
                    room[:size] = data
                    protocol.buffer_updated(size)  # type: ignore[union-attr]  # likewise
                else:
                    size = self._fill(protocol, data)  # type: ignore[arg-type]  # likewise
            else:
                protocol.data_received(data)  # type: ignore[union-attr]  # a Protocol then
        except Exception as error:  # noqa: BLE001 - reported, and the end of the connection
            self._on_protocol_error(error)
        self.peer.on_acknowledged(size)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> int:
        """Give a chunk to the protocol's buffers; return how much of it was taken."""
        size, done = len(data), 0
        while done < size:
            room = protocol.get_buffer(size - done)
            count = min(len(room), size - done)  # type: ignore[arg-type]  # a buffer
            room[:count] = data[done : done + count]  # type: ignore[index]  # a buffer
            done += count
            protocol.buffer_updated(count)
            if self._closing:
                return size
            if not self._reading and done < size:
                self._inbox.appendleft(data[done:])
                if self.tap is not None:
                    self.tap.again(size - done)
                break
        return done

    def _on_protocol_error(self, error: Exception) -> None:
        message = "Fatal error: protocol.data_received() call failed."
        self._kernel.call_exception_handler(
            {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
        )
        if not self._is_dead():
            self._force_close(error, CLOSE)

    # The end

    def on_killed(self, ending: str) -> None:
        """The process is gone: no callback any more; the kernel does what ``ending`` says."""
        self._closing = self._lost = True
        self._disarm_user_timeout()
        if ending == CLOSE and self._inbox:
            ending = RESET
        if ending == CLOSE:
            self._eof_queued = True
            self._pump()
        elif ending == RESET:
            self._to_peer(self.peer.on_reset)
        self._forget()

    def reset(self) -> None:
        """A fault ends the connection for this end."""
        if not self._lost and not self._is_dead():
            self._post(self._kernel.now_ns, self.on_reset, own=True)

    def _force_close(self, error: Exception | None, ending: str) -> None:
        self._closing = True
        self._inbox.clear()
        if not self._lost:
            self._lose(error)
        if self._eof_sent:
            return
        if ending == RESET:
            self._eof_sent = True
            self._to_peer(self.peer.on_reset)
        elif ending == CLOSE:
            self._eof_queued = True
            self._queue.clear()
            self._queued = 0
            self._pump()

    def _lose(self, error: Exception | None) -> None:
        self._lost = True
        self._soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        self._forget()
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def _forget(self) -> None:
        self._gone = True
        if not self._queue:
            self._disarm_user_timeout()
            if self._eof_sent or not self._eof_queued:
                self.link.sockets.pop(self, None)
        if self.process is not None:
            self.process.sockets.pop(self, None)

    # Private

    def _is_dead(self) -> bool:
        return self.process is not None and self.process.state == DEAD

    def _soon(self, callback: "Callable[..., object]", *args: object) -> None:
        now = self._kernel.now_ns
        self._kernel.post(now, SimHandle(now, callback, args, self._context, self.process))

    def _post(
        self, when_ns: int, callback: "Callable[..., object]", *, own: bool = False
    ) -> SimHandle:
        """Have the kernel do something, or (``own``) the process."""
        process = self.process if own else None
        context = self._context if own else _KERNEL
        handle = SimHandle(when_ns, callback, (), context, process)
        self._kernel.post(when_ns, handle)
        return handle

    def _to_peer(self, callback: "Callable[[], None]") -> None:
        """Have something without a payload arrive at the peer, after all that was sent."""
        link, peer = self.link, self.peer
        if link.cut:
            return
        when = max(self._kernel.now_ns + link.draw_ns(), self._arrival_ns)
        self._arrival_ns = when
        # A reset is never answered: two dead ends would reset each other for ever.
        make = SimHandle if callback == peer.on_reset else Packet
        self._kernel.post(when, make(when, callback, (), peer._context, peer.process))
