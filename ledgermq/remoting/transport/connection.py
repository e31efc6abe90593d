"""One connection: frames in, buffers out, and the requests of ours that await answers.

All complete frames of a read are cut in one pass and handed over one by one; what is written in
one turn of the loop leaves with one system call. It knows codes only as keys of the dispatcher's
table of hot handlers. Times are those of the event loop.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from ledgermq.remoting.protocol.command import (
    FLAG_ONEWAY,
    RemotingCommand,
    decode_command,
    encode_command,
)
from ledgermq.remoting.protocol.errors import ConnectionLost, RemoteProtocolError, RequestTimeout
from ledgermq.remoting.protocol.frame import Frame, FrameDecoder
from ledgermq.remoting.transport.config import NOTED_BYTES, TransportConfig
from ledgermq.remoting.transport.limits import TURN_FRAMES_MAX
from ledgermq.remoting.transport.pieces import counted
from ledgermq.remoting.transport.receiver import Receiver
from ledgermq.remoting.transport.room import NoRoom
from ledgermq.remoting.transport.turns import Turns
from ledgermq.runtime.tasks import attempt, report_serving_failure

_log = logging.getLogger(__name__)
_ids = itertools.count(1)

Buffer = bytes | bytearray | memoryview
HotHandler = Callable[["Connection", Frame], None]

JOIN_BYTES_MAX: Final = 64 * 1024
"""Buffers of one turn that are together smaller than this are joined: one copy, one write."""
JOIN_EACH_MAX: Final = 1024
"""Buffers that are on average larger than this are handed over as they are, not copied."""
IDLE_SWEEPS: Final = 8
"""A connection is idle when this many sweeps in a row saw nothing of it."""
_NO_ADDRESS: Final = ("?", 0)
_NO_HOT: Final[dict[bytes, HotHandler]] = {}


class Dispatcher(Protocol):
    """Where frames go."""

    @property
    def hot(self) -> Mapping[bytes, HotHandler]:
        """Hot handlers by the first bytes of the header, see `dispatch.hot_keys`."""
        ...

    @property
    def turns(self) -> Turns:
        """Which connection is served when."""
        ...

    def on_frame(self, connection: "Connection", frame: Frame) -> None:
        """Take a frame that no hot handler took."""
        ...

    def on_hot_error(self, connection: "Connection", frame: Frame, error: Exception) -> None:
        """A hot handler raised."""
        ...

    def on_open(self, connection: "Connection") -> None:
        """The connection is made."""
        ...

    def on_closed(self, connection: "Connection") -> None:
        """The connection is gone."""
        ...

    def on_receive_bytes(self, connection: "Connection", more: int) -> None:
        """The buffer of the connection takes more, or less."""
        ...

    def on_unsent(self, connection: "Connection", unsent: int) -> None:
        """Note that ``unsent`` bytes wait for a peer, more than a few."""
        ...


class Connection(asyncio.BufferedProtocol):
    """A connection of a server or a client; use only in the loop's thread."""

    __slots__ = (
        "_awaits_room", "_closing", "_config", "_decoder", "_dispatcher", "_flushing", "_hot",
        "_later", "_loop", "_noted_bytes", "_opaque", "_out", "_pending", "_server_side", "_timer",
        "_timer_at", "_touched", "_transport", "_turns", "closed", "has_spoken", "id", "local",
        "on_close", "partial_sweeps", "quiet_sweeps", "receive_bytes", "remote", "saw_frame",
        "slow", "state", "tasks", "waiting_since_ms",
    )  # fmt: skip

    def __init__(
        self, dispatcher: Dispatcher, config: TransportConfig, *, server_side: bool
    ) -> None:
        self.id = next(_ids)
        self.remote: tuple[str, int] = _NO_ADDRESS
        self.local: tuple[str, int] = _NO_ADDRESS
        self.closed = True
        self.state: dict[str, Any] = {}
        """Attachments of whoever serves the connection."""
        self.on_close: list[Callable[[Connection], None]] = []
        """Called once, in order, when the connection is gone."""
        self.tasks: dict[asyncio.Task[None], None] = {}
        """Requests whose handlers are awaiting something."""
        self._dispatcher = dispatcher
        self._hot = dispatcher.hot
        self._turns = dispatcher.turns
        self._config = config
        self._noted_bytes = min(NOTED_BYTES, config.write_pause_bytes)
        self._server_side = server_side
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(config.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._flushing = False
        self._closing = False
        self._pending: dict[int, tuple[Receiver, float]] = {}
        self._later: list[Frame] = []
        """Frames that were read and wait for the next turn; nothing is read meanwhile."""
        self._awaits_room = False
        """Whether they wait for room instead."""
        self.waiting_since_ms: int | None = None
        """Since when they do, with what was read along with them; a room's note."""
        self.has_spoken = False
        """Whether a whole frame ever came."""
        self.receive_bytes = self._decoder.buffer_bytes
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._touched = False
        self.saw_frame = False
        self.slow = False
        """Whether so much waits to be sent that a server reads nothing from it."""
        self.quiet_sweeps = self.partial_sweeps = 0

    def __repr__(self) -> str:
        return f"<Connection {self.id} {self.remote[0]}:{self.remote[1]}>"

    # Writing

    def write(self, *buffers: Buffer) -> None:
        """Queue buffers, unchanged until they are sent; a closed connection drops them."""
        if self.closed:
            return
        self._out += buffers
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send(self, command: RemotingCommand) -> None:
        """Queue a command as it is. Errors: `LocalProtocolError`."""
        self.write(*encode_command(command))

    def send_oneway(self, command: RemotingCommand) -> None:
        """Queue a request that wants no answer, with an opaque of its own."""
        command.opaque = self.next_opaque()
        command.flag |= FLAG_ONEWAY
        self.send(command)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written and not yet taken by the kernel."""
        return sum(map(len, self._out)) + self.buffered_bytes

    @property
    def buffered_bytes(self) -> int:
        """Those of earlier turns of the loop among them."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    # Requests of ours

    def next_opaque(self) -> int:
        """Return a number for a request, unique among those that are under way."""
        self._opaque = opaque = self._opaque + 1 & 0x7FFFFFFF
        return opaque

    def start_request(
        self, opaque: int, timeout_ms: int, *buffers: Buffer
    ) -> "asyncio.Future[Frame]":
        """Send a request given as buffers; return the future of its raw response frame.

        The future fails with `RequestTimeout` or `ConnectionLost`. Cancelling it is allowed.
        """
        future: asyncio.Future[Frame] = self._loop.create_future()
        if self._await_answer(future, opaque, timeout_ms):
            self.write(*buffers)
        return future

    def submit_request(
        self, receiver: Receiver, opaque: int, timeout_ms: int, *buffers: Buffer
    ) -> None:
        """Send a request given as buffers in this turn of the loop.

        ``receiver`` is called once, in the very turn in which its answer comes, and must not raise.
        """
        if self._await_answer(receiver, opaque, timeout_ms):
            self._out += buffers
            if not self._flushing:
                self._flush()

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request under a new opaque and return its response, whatever its code.

        Errors: `RequestTimeout`, `ConnectionLost`, `LocalProtocolError`, `RemoteProtocolError`.
        """
        command.opaque = opaque = self.next_opaque()
        buffers = encode_command(command)
        try:
            return decode_command(await self.start_request(opaque, timeout_ms, *buffers))
        finally:
            self._pending.pop(opaque, None)

    def on_response(self, opaque: int, frame: Frame) -> None:
        """Complete the request that a response answers; a late response is dropped."""
        entry = self._pending.pop(opaque, None)
        if entry is not None and not entry[0].done():
            entry[0].set_result(frame)

    # Closing

    def close(self, reason: str) -> None:
        """Send what is queued, then close. ``reason`` is logged at debug level."""
        transport = self._transport
        if transport is None or self._closing:
            return
        _log.debug("event=close connection=%s reason=%s", self.id, reason)
        self._flush()
        self.closed = self._closing = True
        transport.close()
        self._loop.call_later(self._config.close_timeout_ms / 1000, self._abort_late)

    def abort(self, reason: str) -> None:
        """Close at once, because of what the peer did, with one log line."""
        transport = self._transport
        if transport is None or self._closing:
            return
        told = (*self.remote, self.local[1], reason)
        _log.warning("event=connection_closed remote=%s:%d local_port=%d reason=%r", *told)
        self.closed = self._closing = True
        transport.abort()

    def check_idle(self) -> None:
        """Close the connection if `IDLE_SWEEPS` calls in a row saw no progress on it."""
        self.quiet_sweeps = 0 if self._touched else self.quiet_sweeps + 1
        waits = self._decoder.partial_bytes and not self.saw_frame
        self.partial_sweeps = self.partial_sweeps + 1 if waits else 0
        self._touched = self.saw_frame = False
        if self.quiet_sweeps:
            self.shrink()
        if self.partial_sweeps >= IDLE_SWEEPS:
            self.abort(f"half a frame ({self._decoder.partial_bytes} bytes) for too long")
        elif self.quiet_sweeps >= IDLE_SWEEPS:
            self.close("idle")

    def shrink(self) -> None:
        """Give back the buffer of a connection on which nothing is under way."""
        self._decoder.shrink()
        self._note_buffer()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn the addresses and set the write limits."""
        self._transport = transport = counted(transport, self)
        self.closed = False
        self.remote = (transport.get_extra_info("peername") or _NO_ADDRESS)[:2]
        self.local = (transport.get_extra_info("sockname") or _NO_ADDRESS)[:2]
        transport.set_write_buffer_limits(high=self._config.write_pause_bytes)
        self._dispatcher.on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next read goes."""
        return self._decoder.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle all frames that a read completed; what goes wrong ends this connection alone."""
        self._touched = True
        try:
            frames = self._decoder.received(nbytes)
            if self._decoder.buffer_bytes != self.receive_bytes:
                self._note_buffer()
            if len(frames) > TURN_FRAMES_MAX:
                self._put_off(frames, TURN_FRAMES_MAX)
            elif frames:
                self._handle_frames(frames)
            if self._later:
                self._wait()
        except RemoteProtocolError as error:
            self.abort(str(error))
        except Exception as error:  # noqa: BLE001 - the loop would end the process by an assertion
            report_serving_failure(f"frames of {self}", error)
            self.abort("a frame that could not be handled")

    def _handle_frames(self, frames: list[Frame]) -> None:
        self.saw_frame = self.has_spoken = True
        hot = _NO_HOT if self._decoder.has_large_headers else self._hot
        pending, is_over = self._pending, self._turns.is_over
        for number, frame in enumerate(frames):
            if is_over():
                self._later = frames[number:] + self._later
                return
            # A frame with the code of a hot request can only be one while nothing is awaited.
            handler = (
                hot.get(frame.header[: 2 if frame.serialize_type else 12]) if not pending else None
            )
            try:
                if handler is None:
                    self._dispatcher.on_frame(self, frame)
                else:
                    handler(self, frame)
            except NoRoom as full:
                if self._wait_for_room(full, frames[number:]):
                    return
            except Exception as error:
                if handler is None:
                    raise
                self._dispatcher.on_hot_error(self, frame, error)
            if self._closing:
                return
        self._end_if_broken()

    def _end_if_broken(self) -> None:
        """Close if what came behind the last frame is none."""
        if self._decoder.error is not None and not self._later:
            self.abort(str(self._decoder.error))

    def _wait_for_room(self, full: NoRoom, frames: list[Frame]) -> bool:
        """Keep frames until there is room; False if that is too much, and the first is refused."""
        later = frames + self._later
        if full.room.wait(self, sum(len(frame.header) + len(frame.body) for frame in later)):
            self._later, self._awaits_room = later, True
            return True
        self._dispatcher.on_hot_error(self, frames[0], full)
        return False

    def _put_off(self, frames: list[Frame], count: int) -> None:
        """Handle so many frames, as far as the turn allows; the others get theirs between."""
        self._later = frames[count:]
        self._handle_frames(frames[:count])

    def _wait(self) -> None:
        self._pause_reading()
        if not self._awaits_room:
            self._turns.wait(self)

    def handle_later(self) -> None:
        """Go on with frames that were put off."""
        self._go_on(lambda: self._put_off(self._later, self._turns.frames_max(self.remote)))

    def enter(self) -> bool:
        """Handle the frame for which there was no room; the others wait their turn."""
        self._awaits_room = False
        self._go_on(lambda: self._dispatcher.on_frame(self, self._later.pop(0)))
        return True

    def refuse(self, full: NoRoom) -> None:
        """Refuse the frame for which there was no room; the others wait their turn."""
        self._awaits_room = False
        self._go_on(lambda: self._dispatcher.on_hot_error(self, self._later.pop(0), full))

    def _go_on(self, handle: Callable[[], None]) -> None:
        if self._closing:
            self._later = []
            return
        try:
            handle()
        except Exception as error:  # noqa: BLE001 - as in buffer_updated
            report_serving_failure(f"frames of {self}", error)
            self.abort("a frame that could not be handled")
        self._end_if_broken()
        if self._later:
            self._wait()
            return
        self.waiting_since_ms = None
        if not self.slow:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def _note_buffer(self) -> None:
        known, self.receive_bytes = self.receive_bytes, self._decoder.buffer_bytes
        self._dispatcher.on_receive_bytes(self, self.receive_bytes - known)

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return self._decoder.partial_bytes

    def eof_received(self) -> bool:
        """The peer will send no more: close."""
        return False

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read its answers.

        A client never stops: two ends that both wait for the other to read would wait forever.
        """
        if self._server_side:
            self.slow = True
            self._pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if self._server_side:
            self.slow = False
            if not self._later:
                self._resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what awaits an answer, and tell those who asked."""
        if self._transport is None:
            return
        why = exc or ("on this side" if self._closing else "by the peer")
        self.closed = self._closing = True
        self._transport = None
        self._out.clear()
        self._later = []
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, {}
        for future, _ in pending.values():
            if not future.done():
                future.set_exception(ConnectionLost(f"{self} closed: {why}"))
        self._dispatcher.on_closed(self)
        for callback in self.on_close:
            attempt(f"the end of {self}", partial(callback, self))

    # Private

    def _await_answer(self, receiver: Receiver, opaque: int, timeout_ms: int) -> bool:
        """Register who gets an answer; False, and it has got an error, on a closed connection."""
        if self.closed:
            receiver.set_exception(ConnectionLost(f"{self} is closed"))
            return False
        deadline = self._loop.time() + timeout_ms / 1000
        self._pending[opaque] = (receiver, deadline)
        if self._timer is None or deadline < self._timer_at:
            self._arm_timer(deadline)
        return True

    def _flush(self) -> None:
        self._flushing = False
        out, transport = self._out, self._transport
        if not out or transport is None or self._closing:
            return
        self._out = []
        self._touched = True
        if len(out) == 1:
            size = len(out[0])
            transport.write(out[0])
        else:
            size = sum(map(len, out))
            if size <= JOIN_BYTES_MAX and size <= JOIN_EACH_MAX * len(out):
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
        if size + transport.get_write_buffer_size() > self._noted_bytes:
            self._check_backlog(transport.get_write_buffer_size())

    def _check_backlog(self, waiting: int) -> None:
        if waiting > self._config.write_close_bytes:
            self.abort(f"{waiting} bytes wait for a peer that does not read")
        elif waiting > self._noted_bytes:
            self._dispatcher.on_unsent(self, waiting)

    def _arm_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose time is over; one timer serves all requests of a connection."""
        self._timer = None
        now = self._loop.time()
        earliest = None
        for opaque, (future, deadline) in list(self._pending.items()):
            if future.done():
                del self._pending[opaque]
            elif deadline <= now + 0.001:
                del self._pending[opaque]
                future.set_exception(RequestTimeout(f"no answer from {self} in time"))
            elif earliest is None or deadline < earliest:
                earliest = deadline
        if earliest is not None:
            self._arm_timer(earliest)

    def _abort_late(self) -> None:
        if self._transport is not None:
            self._transport.abort()
