"""Consumer offsets: UPDATE_CONSUMER_OFFSET (15, hot) and QUERY_CONSUMER_OFFSET (14).

Offsets belong to the leader: any other replica refuses an update with 14. A query that a replica
without authority cannot answer with an offset is left to time out: clients take every error code
for "no offset" and then may skip to the end of the queue, but a timeout makes them ask again.
Source: protocol.md 3.7; RocketMQ ConsumerManageProcessor 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from broker.answers import PUT_ANSWERS, WritableConnection, write_command
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand, make_response
from remoting.protocol.headers import (
    QueryOffsetHeader,
    decode_header,
    decode_update_offset_header,
)
from store.results import PutStatus

if TYPE_CHECKING:
    from broker.consumer_offset import ConsumerOffsetTable
    from remoting.protocol.frame import Frame

_FULL: Final = (ResponseCode.SYSTEM_BUSY, "the table of consumer offsets is full")


class OffsetStore(Protocol):
    """What offsets need of the store."""

    @property
    def writable(self) -> bool:
        """Whether this replica leads and has applied everything before its term."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset held."""


class OffsetProcessor:
    """Answers offset requests of one broker."""

    def __init__(self, offsets: ConsumerOffsetTable, store: OffsetStore) -> None:
        self._offsets = offsets
        self._store = store

    def handle_update(self, connection: WritableConnection, frame: Frame) -> None:
        """Take an UPDATE_CONSUMER_OFFSET frame; usually oneway."""
        opaque, flag, _, header = decode_update_offset_header(frame)
        answer: tuple[int, str | None] = (ResponseCode.SUCCESS, None)
        if not self._store.writable:
            answer = PUT_ANSWERS[PutStatus.NOT_LEADER]
        elif not self._offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        ):
            answer = _FULL
        if not flag & FLAG_ONEWAY:
            write_command(connection, frame.serialize_type, opaque, answer, {})

    def handle_query(self, _connection: object, request: RemotingCommand) -> RemotingCommand | None:
        """Take a QUERY_CONSUMER_OFFSET request."""
        header = decode_header(request, QueryOffsetHeader)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        if offset is None:
            if not self._store.writable:
                return None
            if self._store.min_offset(topic, queue_id) > 0:
                return make_response(
                    request,
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, maybe this group consumer boot first",
                    {},
                )
            offset = 0
        return make_response(request, ResponseCode.SUCCESS, None, {"offset": str(offset)})
