"""Limits and times of queues, and messages by id: 29, 30, 31, 32, 33.

Source: protocol.md 3.7, 3.9, 5.3; RocketMQ AdminBrokerProcessor, QueryMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand, make_response
from remoting.protocol.headers import QueueHeader, SearchOffsetHeader, decode_header
from store.results import Boundary

if TYPE_CHECKING:
    from collections.abc import Callable


class _ViewHeader(msgspec.Struct):
    offset: int


class QueryStore(Protocol):
    """What queries need of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last queue offset, 0 for no queue."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset held."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary) -> int:
        """Return the queue offset of a store time in milliseconds."""

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message in milliseconds, -1 if there is none."""

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Return a committed message record, or None."""


class QueryProcessor:
    """Answers questions about queues."""

    def __init__(self, store: QueryStore) -> None:
        self._store = store

    def handle_max_offset(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_MAX_OFFSET (30)."""
        return _number(request, "offset", self._store.max_offset)

    def handle_min_offset(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_MIN_OFFSET (31)."""
        return _number(request, "offset", self._store.min_offset)

    def handle_earliest(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_EARLIEST_MSG_STORETIME (32)."""
        return _number(request, "timestamp", self._store.earliest_store_time)

    def handle_by_time(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take SEARCH_OFFSET_BY_TIMESTAMP (29)."""
        header = decode_header(request, SearchOffsetHeader)
        upper = (header.boundary_type or "").upper() == "UPPER"
        offset = self._store.offset_by_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            Boundary.UPPER if upper else Boundary.LOWER,
        )
        return make_response(request, ResponseCode.SUCCESS, None, {"offset": str(offset)})

    def handle_by_id(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take VIEW_MESSAGE_BY_ID (33)."""
        offset = decode_header(request, _ViewHeader).offset
        record = self._store.message_at(offset)
        if record is None:
            return make_response(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}",
            )
        return make_response(request, ResponseCode.SUCCESS, body=bytes(record))


def _number(request: RemotingCommand, name: str, ask: Callable[[str, int], int]) -> RemotingCommand:
    header = decode_header(request, QueueHeader)
    value = ask(header.topic, header.queue_id)
    return make_response(request, ResponseCode.SUCCESS, None, {name: str(value)})
