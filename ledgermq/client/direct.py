"""A message that a tool has a consumer consume now (309), beside all queues.

The broker sends the message along. The listener is called once, and what it says goes back to the
tool: nothing is committed, sent back or tried again. Calls are few at a time, and one that does not
end is answered as such before the broker stops waiting.
Source: ConsumeMessageConcurrentlyService.consumeMessageDirectly, and that of the orderly service.
"""

import asyncio
import logging
from inspect import isawaitable
from typing import Final

from ledgermq.client.limits import DIRECT_CALLS_MAX, TOLD_ERROR_BYTES_MAX
from ledgermq.client.listening import Listener
from ledgermq.client.message import ConsumeContext, ConsumeStatus, MessageQueue
from ledgermq.client.pulled import decode_pulled, restore_topic
from ledgermq.client.tools import no_such_group
from ledgermq.remoting.protocol.administration import ConsumeDirectlyHeader, DirectResult
from ledgermq.remoting.protocol.bodies import encode_body
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.transport.connection import Connection
from ledgermq.runtime.cancel import cancel_requests
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

CALL_MS = 9_000
"""A broker waits for ten seconds."""
_RESULTS: Final = {
    ConsumeStatus.CONSUME_SUCCESS: "CR_SUCCESS",
    ConsumeStatus.RECONSUME_LATER: "CR_LATER",
}


class DirectCalls:
    """Calls of one listener for tools."""

    def __init__(self, listener: Listener, group: str, clock: Clock, *, orderly: bool) -> None:
        self._listener = listener
        self._group = group
        self._clock = clock
        self._orderly = orderly
        self._calls: set[asyncio.Task[DirectResult]] = set()
        self._stopping = False

    async def handle(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Take CONSUME_MESSAGE_DIRECTLY (309)."""
        header = decode_header(request, ConsumeDirectlyHeader)
        if header.consumer_group != self._group or self._stopping:
            return no_such_group(request, header.consumer_group)
        if len(self._calls) >= DIRECT_CALLS_MAX:
            busy = f"{DIRECT_CALLS_MAX} messages are being consumed for tools, try again later"
            return make_response(request, ResponseCode.SYSTEM_BUSY, busy)
        messages, _ = decode_pulled(bytes(request.body))
        if len(messages) != 1:
            raise RemoteProtocolError(f"{len(messages)} messages instead of one")
        message = restore_topic(messages[0])
        queue = MessageQueue(message.topic, header.broker_name or "", message.queue_id)
        call = asyncio.create_task(self._consume(message, queue), name="consume-directly")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        await asyncio.wait({call}, timeout=CALL_MS / 1000)
        if not call.done():
            late = f"the listener goes on after {CALL_MS} ms"
            return make_response(request, ResponseCode.CONSUME_MSG_TIMEOUT, late)
        return make_response(request, ResponseCode.SUCCESS, body=encode_body(call.result()))

    def refuse(self) -> None:
        """Begin no further calls."""
        self._stopping = True

    async def stop(self, timeout_ms: int) -> None:
        """Begin no further calls and wait for those in progress, at most ``timeout_ms``."""
        self.refuse()
        if self._calls:
            _, running = await asyncio.wait(self._calls, timeout=timeout_ms / 1000)
            if running:
                _log.warning("event=listeners_still_running count=%d", len(running))

    async def _consume(self, message: MessageExt, queue: MessageQueue) -> DirectResult:
        t_start_ns = self._clock.monotonic_ns()
        remark = None
        try:
            outcome = self._listener([message], ConsumeContext(queue))
            status: object = await outcome if isawaitable(outcome) else outcome
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and cancel_requests():
                raise  # This call is to end; otherwise it was something that the listener awaited.
            _log.exception("queue=%s event=listener_failed asked_by=tool", queue)
            result = "CR_THROW_EXCEPTION"
            remark = _cut(f"{type(error).__name__}: {error}")
        else:
            result = _RESULTS[status] if isinstance(status, ConsumeStatus) else "CR_RETURN_NULL"
            if result == "CR_RETURN_NULL" and status is not None:
                remark = _cut(f"the listener returned {status!r}")
        return DirectResult(
            auto_commit=True,
            consume_result=result,
            order=self._orderly,
            remark=remark,
            spent_time_mills=(self._clock.monotonic_ns() - t_start_ns) // 1_000_000,
        )


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:TOLD_ERROR_BYTES_MAX].decode("utf-8", "ignore")
