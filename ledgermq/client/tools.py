"""What RocketMQ's tools ask of a consumer, through its broker: 220, 221, 307.

220 has it go on at other offsets, 221 asks where it is, and 307 how it runs. A message that a tool
wants to have consumed (309) is another module's (`ledgermq.client.direct`).
Source: ClientRemotingProcessor, MQClientInstance.resetOffset; spec/wire.md 3.9.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ledgermq.client.limits import TOOL_ROWS_MAX
from ledgermq.client.message import MessageQueue
from ledgermq.client.running_info import RunningConsumer, running_info
from ledgermq.remoting.protocol.administration import (
    ClientOffsets,
    ClientStatusHeader,
    RunningInfoHeader,
    ToldResetHeader,
)
from ledgermq.remoting.protocol.bodies import QueueKey, encode_body, queue_key, queue_map
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import RemoteProtocolError
from ledgermq.remoting.protocol.headers import decode_header
from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads
from ledgermq.remoting.transport.connection import Connection

if TYPE_CHECKING:
    from ledgermq.remoting.transport.dispatch import Handler

_log = logging.getLogger(__name__)

OFFSET_MAX = (1 << 63) - 1


class ToolHost(RunningConsumer, Protocol):
    """The consumer, as a tool sees and moves it."""

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets, soon."""
        ...


class ToolAnswers:
    """Answers for one consumer."""

    def __init__(self, host: ToolHost) -> None:
        self._host = host
        self.handlers: dict[int, Handler] = {
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._on_reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._on_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._on_running_info,
        }

    def _on_reset(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Take RESET_CONSUMER_CLIENT_OFFSET (220), which brokers send without waiting."""
        header = decode_header(request, ToldResetHeader)
        if header.group != self._host.config.group:
            return no_such_group(request, header.group)
        offsets = {
            queue: offset
            for queue, offset in parse_offsets(request.body).items()
            if queue.topic == header.topic
        }
        _log.warning("topic=%s event=reset_by_tool queues=%d", header.topic, len(offsets))
        self._host.move(offsets)
        return make_response(request, ResponseCode.SUCCESS)

    def _on_status(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Take GET_CONSUMER_STATUS_FROM_CLIENT (221)."""
        header = decode_header(request, ClientStatusHeader)
        if header.group != self._host.config.group:
            return no_such_group(request, header.group)
        rows = [
            (QueueKey(queue.broker_name, queue.queue_id, queue.topic), one.process_queue.position)
            for one in self._host.assignment.held
            for queue in [one.process_queue.queue]
            if queue.topic == header.topic and not one.process_queue.lost
        ]
        body = encode_body(ClientOffsets(message_queue_table=queue_map(rows[:TOOL_ROWS_MAX])))
        return make_response(request, ResponseCode.SUCCESS, body=body)

    def _on_running_info(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_CONSUMER_RUNNING_INFO (307)."""
        header = decode_header(request, RunningInfoHeader)
        if header.consumer_group != self._host.config.group:
            return no_such_group(request, header.consumer_group)
        info = running_info(self._host, stacks=header.jstack_enable)
        return make_response(request, ResponseCode.SUCCESS, body=encode_body(info))


def no_such_group(request: RemotingCommand, group: str) -> RemotingCommand:
    """Return the answer for a group that this client does not belong to."""
    remark = f"The Consumer Group <{group[:300]}> not exist in this consumer"
    return make_response(request, ResponseCode.SYSTEM_ERROR, remark)


def parse_offsets(body: bytes) -> dict[MessageQueue, int]:
    """Return the offsets of a reset: a map with queues as keys, or a list as C++ clients get it.

    Errors: `RemoteProtocolError`.
    """
    content = loads(bytes(body), ANSWER)
    table: Any = content.get("offsetTable") if isinstance(content, dict) else None
    try:
        if isinstance(table, dict):
            rows = [(queue_key(key), offset) for key, offset in table.items()]
        elif isinstance(table, list):
            rows = [(queue_key(_without_offset(row)), row["offset"]) for row in table]
        else:
            raise RemoteProtocolError("a reset without a table of offsets")
        found = {MessageQueue(key.topic, key.broker_name, key.queue_id): int(n) for key, n in rows}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"a reset without offsets: {error!r}"[:300]) from error
    wrong = [offset for offset in found.values() if not 0 <= offset <= OFFSET_MAX]
    if wrong:
        raise RemoteProtocolError(f"a reset to offset {wrong[0]}")
    return found


def _without_offset(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, value) for name, value in row.items() if name != "offset")
