"""From a frame to the handler of its code, and from a handler's result or failure to an answer.

A plain handler is a function of connection and command: what it returns is sent, None means that it
answered or will answer by itself, an awaitable becomes a task (a bounded number per connection,
with those of its address whose connections are gone).
A hot handler is a function of connection and frame and answers through `Connection.write`.

Whatever a handler raises is answered, even a broken assertion: one request never ends a process.
Only a `FatalError` does, and where the data are in danger one is raised
(`ledgermq.runtime.errors`).

Source: NettyRemotingAbstract.processRequestCommand (spec/wire.md 1.7).
"""

import asyncio
import inspect
import logging
import struct
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import (
    FLAG_RESPONSE,
    RemotingCommand,
    decode_command,
    decode_head,
    make_response,
    maybe_head_of_large,
)
from ledgermq.remoting.protocol.errors import (
    InvalidHeader,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseError,
    for_code,
)
from ledgermq.remoting.protocol.frame import Frame
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.protocol.limits import HEADER_BYTES_MAX
from ledgermq.remoting.transport.connection import Connection, HotHandler
from ledgermq.remoting.transport.limits import BODIES_BYTES_MAX
from ledgermq.remoting.transport.room import NoRoom
from ledgermq.remoting.transport.turns import Turns
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.errors import FatalError
from ledgermq.runtime.tasks import report_serving_failure

_log = logging.getLogger(__name__)

Answer = RemotingCommand | None
Handler = Callable[[Connection, RemotingCommand], Answer | Awaitable[Answer]]

BUSY_REMARK: Final = "[OVERLOAD]system busy, start flow control for a while"
REASON_CHARACTERS_MAX: Final = 1_000
"""So much of an error's text goes into an answer and into the log; it may quote the request."""
SHARE: Final = 4
"""An address may have this part of what is free, so that something is left for those that come."""
_MESSAGES: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
"""What makes their header large are properties, for which RocketMQ has a code."""


class RequestDispatcher:
    """Serves the frames of all connections of one server or client."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        hot: Mapping[int, HotHandler],
        requests_in_progress_max: int,
        clock: Clock | None = None,
    ) -> None:
        self.turns = Turns(clock)
        self._handlers = dict(handlers)
        self._hot_by_code = dict(hot)
        self._requests_in_progress_max = requests_in_progress_max
        self._left: dict[asyncio.Task[None], str] = {}
        """Requests under way whose connections are gone, with the address that they came from."""
        self._left_of: Counter[str] = Counter()
        self.body_bytes = 0
        """Bytes of the bodies of requests under way."""
        self._body_bytes_of: Counter[str] = Counter()
        self.hot: dict[bytes, HotHandler] = {}
        for code, handler in hot.items():
            for key in hot_keys(code):
                self.hot[key] = handler

    def on_open(self, connection: Connection) -> None:
        """Nothing to do; servers and clients override it."""

    def on_closed(self, connection: Connection) -> None:
        """Take over the requests that are still under way; they end as if somebody waited."""
        if not connection.tasks:
            return
        address = party_of(connection.remote[0])
        self._left_of[address] += len(connection.tasks)
        self._left.update(dict.fromkeys(connection.tasks, address))
        connection.tasks.clear()

    def on_receive_bytes(self, connection: Connection, more: int) -> None:
        """Nothing to do; servers override it."""

    def on_unsent(self, connection: Connection, unsent: int) -> None:
        """Nothing to do; servers override it."""

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        """Hand a response to its request and a request to its handler.

        Errors: `NoRoom` of a hot handler.
        """
        if len(frame.header) > HEADER_BYTES_MAX:
            self._refuse_large(connection, frame)
            return
        try:
            head = decode_head(frame)
            if head.flag & FLAG_RESPONSE:
                connection.on_response(head.opaque, frame)
                return
            hot = self._hot_by_code.get(head.code)
            command = decode_command(frame) if hot is None else None
        except RemoteProtocolError as error:
            connection.abort(str(error))
            return
        if hot is not None:
            try:
                hot(connection, frame)
            except NoRoom:
                raise
            except Exception as error:  # noqa: BLE001 - a handler's failure is answered
                self.on_hot_error(connection, frame, error)
        elif command is not None:
            self._serve(connection, command)

    def _refuse_large(self, connection: Connection, frame: Frame) -> None:
        """Answer a request whose header takes too long to read, if its number is easily found."""
        remark = f"header of {len(frame.header)} bytes, more than {HEADER_BYTES_MAX}"
        try:
            head = maybe_head_of_large(frame)
        except RemoteProtocolError:
            head = None
        if head is None or head.flag & FLAG_RESPONSE:
            connection.abort(remark)
            return
        command = RemotingCommand(
            head.code, head.flag, head.opaque, serialize_type=frame.serialize_type
        )
        is_message = head.code in _MESSAGES
        error = for_code(ResponseCode.MESSAGE_ILLEGAL, remark) if is_message else None
        self._answer_error(connection, command, error or InvalidHeader(remark))

    def on_hot_error(self, connection: Connection, frame: Frame, error: Exception) -> None:
        """Answer the request of a hot handler that raised; close if its header is none."""
        try:
            command = decode_command(frame)
        except RemoteProtocolError as wrong:
            connection.abort(str(wrong))
            return
        if command.is_response:
            return
        self._answer_error(connection, command, error)

    def _serve(self, connection: Connection, command: RemotingCommand) -> None:
        handler = self._handlers.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            _answer(connection, command, make_response(command, code, remark))
            return
        try:
            result = handler(connection, command)
        except Exception as error:  # noqa: BLE001 - a handler's failure is answered
            self._answer_error(connection, command, error)
            return
        if result is None or isinstance(result, RemotingCommand):
            _answer(connection, command, result)
        elif not self._may_begin(connection, len(command.body)):
            _discard(result)
            busy = make_response(command, ResponseCode.SYSTEM_BUSY, BUSY_REMARK)
            _answer(connection, command, busy)
        else:
            task = asyncio.ensure_future(self._answer_later(connection, command, result))
            connection.tasks[task] = None
            self._count_body(connection, len(command.body))
            task.add_done_callback(partial(self._on_done, connection, len(command.body)))

    def _may_begin(self, connection: Connection, size: int) -> bool:
        """Tell whether one more request, with a body of ``size`` bytes, may be under way."""
        if self._under_way(connection) >= self._requests_in_progress_max:
            return False
        if not size:
            return True
        theirs = self._body_bytes_of[party_of(connection.remote[0])]
        return theirs + size <= (BODIES_BYTES_MAX - self.body_bytes - size) // SHARE

    def _count_body(self, connection: Connection, size: int) -> None:
        if not size:
            return
        address = party_of(connection.remote[0])
        self.body_bytes += size
        self._body_bytes_of[address] += size
        if not self._body_bytes_of[address]:
            del self._body_bytes_of[address]

    def _under_way(self, connection: Connection) -> int:
        """Count the requests of a connection, with those that others of its address left behind.

        Whoever hangs up and comes again would have any number under way.
        """
        left = self._left_of[party_of(connection.remote[0])] if self._left else 0
        return len(connection.tasks) + left

    def _on_done(self, connection: Connection, size: int, task: asyncio.Task[None]) -> None:
        self._count_body(connection, -size)
        address = self._left.pop(task, None)
        if address is None:
            del connection.tasks[task]
            return
        self._left_of[address] -= 1
        if not self._left_of[address]:
            del self._left_of[address]

    async def _answer_later(
        self, connection: Connection, command: RemotingCommand, result: Awaitable[Answer]
    ) -> None:
        try:
            await self.turns.begin(connection.remote)
        except asyncio.CancelledError:
            _discard(result)
            raise
        try:
            _answer(connection, command, await result)
        except Exception as error:  # noqa: BLE001 - a handler's failure is answered
            self._answer_error(connection, command, error)

    def _answer_error(
        self, connection: Connection, command: RemotingCommand, error: Exception
    ) -> None:
        """Tell the peer what went wrong; fatal ones go to the process instead."""
        code: int = ResponseCode.SYSTEM_ERROR
        remark: str | None
        if isinstance(error, FatalError):
            # A broken environment is no answer to a peer, it ends the process.
            report_serving_failure(error.message, error)
            return
        if isinstance(error, ResponseError):
            code, remark = error.code, error.remark
        elif isinstance(error, NoRoom):
            code, remark = ResponseCode.SYSTEM_BUSY, BUSY_REMARK
        elif isinstance(error, (InvalidHeader, RemoteProtocolError)):
            remark = f"{type(error).__name__}, {str(error)[:REASON_CHARACTERS_MAX]}"
            _log.warning(
                "event=bad_request code=%d remote=%s:%d reason=%r",
                command.code, *connection.remote, remark,
            )  # fmt: skip
        else:
            why = str(error)[:REASON_CHARACTERS_MAX]
            remark = f"{type(error).__name__}, {why}, {_place(error)}"
            host, port = connection.remote
            report_serving_failure(f"request {command.code} of {host}:{port}", error)
        _answer(connection, command, make_response(command, code, remark))


def hot_keys(code: int) -> list[bytes]:
    """Return what a header of this request code begins with: JSON as Java writes it, and binary.

    Headers that begin otherwise (another key first, spaces) are found by decoding them.
    """
    keys = [(b'{"code":%d,"' % code)[:12]] if 0 <= code <= 999 else []
    if -0x8000 <= code <= 0x7FFF:
        keys.append(struct.pack(">h", code))
    return keys


def _answer(connection: Connection, request: RemotingCommand, answer: Answer) -> None:
    if answer is None or request.is_oneway:
        return
    try:
        connection.send(answer)
    except LocalProtocolError as error:
        _log.warning("event=answer_unsent code=%d reason=%r", request.code, str(error))
        remark = f"LocalProtocolError, {error}"
        connection.send(make_response(request, ResponseCode.SYSTEM_ERROR, remark))


def _discard(result: Awaitable[Answer]) -> None:
    if inspect.iscoroutine(result):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()


def _place(error: Exception) -> str:
    """Return the file and line where an exception came from."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "?"
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"
