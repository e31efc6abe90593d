"""Limits and times of queues, messages by id and by key: 12, 29, 30, 31, 32, 33, 321.

Limits and keys belong to the leader: any other replica refuses 12 and 29 to 32 with 14, because
the end that it knows may lie before messages that were acknowledged (ADR 7). A message that it has
is the same everywhere.
Source: spec/wire.md 3.7, 3.8; spec/disk.md 5.3; RocketMQ AdminBrokerProcessor,
QueryMessageProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from broker.answers import DAMAGED, shown
from broker.limits import QUEUE_UNITS_MAX
from broker.processor.members import subscription_data
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.administration import QueueUnit, QueueUnits, QueueUnitsHeader
from ledgermq.remoting.protocol.bodies import encode_body
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import QueueHeader, SearchOffsetHeader, decode_header
from ledgermq.remoting.protocol.limits import Int32, Int64  # noqa: TC001 - msgspec reads them
from ledgermq.remoting.transport.requests import ServedBy, serves
from store.results import Boundary

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.groups.client_registry import Subscription
    from store.read.key_query import KeyResult


UNIQUE_KEY_FLAG: Final = "_UNIQUE_KEY_QUERY"
NOT_FOUND: Final = "can not find message, maybe time range not correct"


#: RocketMQ 4.9 answers a successful 321 with this remark; recorded tools got it.
FOUND_REMARK: Final = "not set any response code"


class _ViewHeader(msgspec.Struct):
    offset: Int64


class _KeyHeader(msgspec.Struct, rename="camel"):
    """Header of 12; times are wall time in milliseconds."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryStore(Protocol):
    """What queries need of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last queue offset, 0 for no queue."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset held."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary | None
    ) -> int:
        """Return the queue offset of a store time in milliseconds; no boundary: the nearest."""

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message in milliseconds, -1 if there is none."""

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]] | None:
        """Return places, sizes and tags codes of a queue's messages, None for no queue."""

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Return a committed message record, or None."""

    def messages_of_key(self, topic: str, key: str, limit: int, span: tuple[int, int]) -> KeyResult:
        """Return the newest messages of a key within store times, oldest first."""


def _nobody(_group: str, _topic: str) -> Subscription | None:
    """Say that nobody is connected."""
    return None


class QueryProcessor:
    """Answers questions about queues and messages.

    Args:
        exists: whether there is a topic, of the system perhaps. Queues and keys of one that was
            removed are on disk until retention takes them; what is asked about them finds nothing.
        subscribed: what the connected members of a group want of a topic.
        unique_max: messages of a query by unique key (``defaultQueryMaxNum``).
    """

    def __init__(
        self,
        store: QueryStore,
        exists: Callable[[str], bool],
        *,
        subscribed: Callable[[str, str], Subscription | None] = _nobody,
        unique_max: int = 32,
    ) -> None:
        self._store = store
        self._exists = exists
        self._subscribed = subscribed
        self._unique_max = unique_max

    @serves(
        RequestCode.QUERY_MESSAGE,
        what="messages by key; with `_UNIQUE_KEY_QUERY=true` by unique key",
        header=_KeyHeader,
        fields=(UNIQUE_KEY_FLAG,),
        served_by=ServedBy.READABLE,
    )
    def handle_by_key(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take QUERY_MESSAGE (12)."""
        header = decode_header(request, _KeyHeader)
        is_unique = request.ext_fields.get(UNIQUE_KEY_FLAG) == "true"
        limit = self._unique_max if is_unique else header.max_num
        try:
            result = self._store.messages_of_key(
                header.topic, header.key, limit, (header.begin_timestamp, header.end_timestamp)
            )
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        fields = {
            "indexLastUpdateTimestamp": str(result.last_timestamp),
            "indexLastUpdatePhyoffset": str(result.last_physical),
        }
        if not result.records or not self._exists(header.topic):
            return make_response(request, ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, fields)
        return make_response(
            request, ResponseCode.SUCCESS, None, fields, body=b"".join(result.records)
        )

    @serves(
        RequestCode.GET_MAX_OFFSET,
        what="where a queue ends",
        header=QueueHeader,
        served_by=ServedBy.READABLE,
    )
    def handle_max_offset(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_MAX_OFFSET (30)."""
        return self._number(request, ("offset", 0), self._store.max_offset)

    @serves(
        RequestCode.GET_MIN_OFFSET,
        what="where a queue begins",
        header=QueueHeader,
        served_by=ServedBy.READABLE,
    )
    def handle_min_offset(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_MIN_OFFSET (31)."""
        return self._number(request, ("offset", 0), self._store.min_offset)

    @serves(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        what="store time of a queue's first message",
        header=QueueHeader,
        served_by=ServedBy.READABLE,
    )
    def handle_earliest(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_EARLIEST_MSG_STORETIME (32)."""
        return self._number(request, ("timestamp", -1), self._store.earliest_store_time)

    @serves(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        what="offset by time",
        header=SearchOffsetHeader,
        served_by=ServedBy.READABLE,
    )
    def handle_by_time(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take SEARCH_OFFSET_BY_TIMESTAMP (29).

        RocketMQ 4.9 knows no boundary and answers with the nearest message, RocketMQ 5 asks for one
        of the two boundaries: each client gets what its own broker would tell it.
        """
        header = decode_header(request, SearchOffsetHeader)
        boundary: Boundary | None = None
        if header.boundary_type is not None:
            upper = header.boundary_type.upper() == "UPPER"
            boundary = Boundary.UPPER if upper else Boundary.LOWER
        if not self._exists(header.topic):
            return make_response(request, ResponseCode.SUCCESS, None, {"offset": "0"})
        try:
            offset = self._store.offset_by_time(
                header.topic, header.queue_id, header.timestamp, boundary
            )
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        return make_response(request, ResponseCode.SUCCESS, None, {"offset": str(offset)})

    @serves(RequestCode.VIEW_MESSAGE_BY_ID, what="message by physical offset", header=_ViewHeader)
    def handle_by_id(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take VIEW_MESSAGE_BY_ID (33)."""
        offset = decode_header(request, _ViewHeader).offset
        try:
            record = self._store.message_at(offset)
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        if record is None:
            return make_response(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}",
            )
        return make_response(request, ResponseCode.SUCCESS, body=bytes(record))

    @serves(
        RequestCode.QUERY_CONSUME_QUEUE,
        what="entries of a queue: where its messages lie in the log",
        header=QueueUnitsHeader,
        limits=(QUEUE_UNITS_MAX,),
        served_by=ServedBy.READABLE,
    )
    def handle_units(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take QUERY_CONSUME_QUEUE (321)."""
        header = decode_header(request, QueueUnitsHeader)
        topic, queue_id, count = header.topic, header.queue_id, min(header.count, QUEUE_UNITS_MAX)
        units = None
        try:
            if self._exists(topic):
                units = self._store.units(topic, queue_id, header.index, count)
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        if units is None:
            remark = f"{queue_id}@{shown(topic)} is not exist!"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
        body = QueueUnits(
            max_queue_index=self._store.max_offset(topic, queue_id),
            min_queue_index=self._store.min_offset(topic, queue_id),
            queue_data=[
                QueueUnit(eval=False, physic_offset=place, physic_size=size, tags_code=code)
                for place, size, code in units
            ],
        )
        if header.consumer_group:
            wanted = self._subscribed(header.consumer_group, topic)
            if wanted is not None:
                body.subscription_data, body.filter_data = subscription_data(wanted), "null"
            else:
                body.filter_data = f"{shown(header.consumer_group)}@{topic} is not online!"
        return make_response(
            request, ResponseCode.SUCCESS, FOUND_REMARK if units else remark, body=encode_body(body)
        )

    def _number(
        self, request: RemotingCommand, said: tuple[str, int], ask: Callable[[str, int], int]
    ) -> RemotingCommand:
        """Answer with a number of a queue; ``said`` is its name, and what it is of none."""
        header = decode_header(request, QueueHeader)
        name, value = said
        try:
            if self._exists(header.topic):
                value = ask(header.topic, header.queue_id)
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        return make_response(request, ResponseCode.SUCCESS, None, {name: str(value)})
