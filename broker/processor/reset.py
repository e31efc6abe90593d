"""Offsets by time: 222 tells the members of a group where to go on; 223 asks them where they are.

A member that is told (220) drops what it has, goes on at the offset and commits it. Without members
there is nobody to tell: RocketMQ's tools are answered 206 and then commit the offsets themselves,
for which 208, 202, 29 and 15 are there.
Source: spec/wire.md 3.9; RocketMQ Broker2Client.resetOffset, getConsumeStatus 4.9.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.answers import DAMAGED, shown
from broker.limits import (
    ANSWER_BYTES_MAX,
    ANSWER_ROWS_MAX,
    ASKED_GROUPS_MAX,
    ASKED_MEMBERS_MAX,
    RESET_BYTES_MAX,
    WALKS_WAITING_MAX,
)
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.administration import (
    ClientStatusHeader,
    ClientStatusTable,
    QueueOffset,
    ResetOffsetHeader,
    ResetOffsetList,
    ResetOffsets,
    ToldResetHeader,
)
from ledgermq.remoting.protocol.bodies import QueueKey, encode_body, queue_key, queue_map
from ledgermq.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import FLAG_ONEWAY, RemotingCommand, make_response
from ledgermq.remoting.protocol.errors import ProtocolError, RemotingError
from ledgermq.remoting.protocol.headers import decode_header, header_fields
from ledgermq.remoting.protocol.tolerant_json import loads
from ledgermq.remoting.transport.requests import ServedBy, serves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import msgspec

    from broker.groups.client_registry import Client
    from broker.stats.walks import Walks
    from broker.tables import Tables
    from store.results import Boundary

END: Final = -1
"""The time that stands for the end of a queue."""
ASK_MS: Final = 5_000
VERSION_MIN: Final = 28
"""3.0.7: who is older knows neither request."""
TURN_BYTES: Final = 1024**2
"""What members are told in one turn of the loop, besides the last one's."""
_TOLD_BYTES: Final = 4096
"""What it costs at least to tell one."""
#: RocketMQ 4.9 answers a successful 222 with this remark; recorded tools got it.
_REMARK: Final = "not set any response code"


class QueueStore(Protocol):
    """What is needed of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last queue offset, 0 for no queue."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary | None = None
    ) -> int:
        """Return the queue offset of a store time in milliseconds."""


class _NoOffset(Exception):  # noqa: N818 - says what is
    """A group has no offset in a queue."""


class ResetProcessor:
    """Answers what concerns the offsets of connected groups."""

    def __init__(self, tables: Tables, store: QueueStore, broker_name: str, walks: Walks) -> None:
        self._tables = tables
        self._store = store
        self._broker_name = broker_name
        self._walks = walks
        self.asking = 0
        """Groups whose members are being asked."""

    @serves(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        what="have a connected group go on at a time",
        header=ResetOffsetHeader,
        limits=(ANSWER_ROWS_MAX, ANSWER_BYTES_MAX, WALKS_WAITING_MAX, RESET_BYTES_MAX),
        served_by=ServedBy.LEADER,
    )
    async def handle_reset(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take INVOKE_BROKER_TO_RESET_OFFSET (222)."""
        header = decode_header(request, ResetOffsetHeader)
        if self._tables.topics.get(header.topic) is None:
            remark = f"reset offset failed, no topic in this broker. topic={shown(header.topic)}"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        rows: list[tuple[QueueKey, int]] = []

        def body(found: list[tuple[QueueKey, int]]) -> bytes:
            rows.extend(found)
            return encode_body(ResetOffsets(offset_table=queue_map(found)))

        try:
            answer = await self._walks.answer(request, self._targets(header), body, of_leader=True)
        except DamagedEntry:
            return make_response(request, *DAMAGED)
        except _NoOffset:
            remark = f"THe consumer group <{shown(header.group)}> not exist"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        if answer.code != ResponseCode.SUCCESS:
            return answer
        return await self._tell_all(request, header, rows, answer)

    @serves(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        what="ask connected members of a group for their offsets",
        header=ClientStatusHeader,
        limits=(ASKED_GROUPS_MAX, ASKED_MEMBERS_MAX, ANSWER_BYTES_MAX),
    )
    async def handle_status(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)."""
        header = decode_header(request, ClientStatusHeader)
        wanted, members = header.client_addr, self._members(header.group)
        clients = [one for one in members if not wanted or one.client_id == wanted]
        if not members:  # a member that is named and not there leaves the table empty, as in 4.9
            remark = f"No Any Consumer online in the consumer group: [{shown(header.group)}]"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        if len(clients) > ASKED_MEMBERS_MAX:
            remark = f"the group has more than {ASKED_MEMBERS_MAX} members, name one of them"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        if self.asking >= ASKED_GROUPS_MAX:
            busy = f"the members of {ASKED_GROUPS_MAX} groups are being asked, try again later"
            return make_response(request, ResponseCode.SYSTEM_BUSY, busy)
        asked = header_fields(ClientStatusHeader(header.topic, header.group))
        self.asking += 1
        try:
            found = await asyncio.gather(*(_ask(client, asked) for client in clients))
        finally:
            self.asking -= 1
        table = {client.client_id: one for client, one in zip(clients, found, strict=True) if one}
        body = encode_body(ClientStatusTable(consumer_table=table))
        if len(body) > ANSWER_BYTES_MAX:
            large = f"the answer would have more than {ANSWER_BYTES_MAX} bytes, name one member"
            return make_response(request, ResponseCode.SYSTEM_ERROR, large)
        return make_response(request, ResponseCode.SUCCESS, body=body)

    def _members(self, group: str) -> list[Client]:
        found = self._tables.consumers.get(group)
        return [] if found is None else list(found.clients.values())

    def _targets(self, header: ResetOffsetHeader) -> Iterator[tuple[QueueKey, int]]:
        """Return where the group is to go on in each queue. Errors: `DamagedEntry`, `_NoOffset`."""
        topic = header.topic
        entry = self._tables.topics.get(topic)
        queues = range(entry.write_queues if entry is not None else 0)
        for queue_id in queues if header.queue_id < 0 else [header.queue_id]:
            now = self._tables.offsets.query(header.group, topic, queue_id)
            if now is None or now < 0:
                raise _NoOffset
            target = header.offset
            if target is None or header.queue_id < 0:
                target = (
                    self._store.max_offset(topic, queue_id)
                    if header.timestamp == END
                    else max(0, self._store.offset_by_time(topic, queue_id, header.timestamp))
                )
            goes = target if header.is_force or target < now else now
            yield QueueKey(self._broker_name, queue_id, topic), goes

    async def _tell_all(
        self,
        request: RemotingCommand,
        header: ResetOffsetHeader,
        rows: Sequence[tuple[QueueKey, int]],
        answer: RemotingCommand,
    ) -> RemotingCommand:
        """Tell the members of a group, and return the answer of the request."""
        clients = self._members(header.group)
        if not clients:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {shown(header.group)} Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            return make_response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        if len(clients) * len(answer.body) > RESET_BYTES_MAX:
            remark = f"{len(clients)} members times {len(rows)} queues are too much to tell"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        old = [one for one in clients if one.version < VERSION_MIN]
        if old:
            remark = f"the client does not support this feature. version={old[0].version}"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        fields = header_fields(
            ToldResetHeader(header.topic, header.group, header.timestamp, header.is_force)
        )
        in_cpp = b""
        if any(client.language == LanguageCode.CPP for client in clients):
            await asyncio.sleep(0)
            in_cpp = encode_body(ResetOffsetList(offset_table=[_listed(*row) for row in rows]))
        told = 0
        for client in clients:
            body = in_cpp if client.language == LanguageCode.CPP else answer.body
            client.connection.send(
                RemotingCommand(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    FLAG_ONEWAY,
                    ext_fields=dict(fields),
                    body=body,
                )
            )
            told += max(_TOLD_BYTES, len(body))
            if told >= TURN_BYTES:
                told = 0
                await asyncio.sleep(0)
        answer.remark = _REMARK
        return answer


async def _ask(client: Client, fields: dict[str, str]) -> msgspec.Raw | None:
    """Return the offsets of a client, None if it does not tell."""
    command = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=dict(fields))
    try:
        answer = await client.connection.request(command, ASK_MS)
        if answer.code != ResponseCode.SUCCESS or client.version < VERSION_MIN:
            return None
        table: Any = loads(bytes(answer.body))
        offsets = table.get("messageQueueTable", {}).items()
        return queue_map([(queue_key(key), int(offset)) for key, offset in offsets])
    except (RemotingError, ProtocolError, AttributeError, TypeError, ArithmeticError, ValueError):
        return None


def _listed(key: QueueKey, offset: int) -> QueueOffset:
    return QueueOffset(
        broker_name=key.broker_name, offset=offset, queue_id=key.queue_id, topic=key.topic
    )
