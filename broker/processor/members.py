"""Who is connected: consumers of a group (203), producers of a group (204), all producers (328).

Answered by every replica for the clients that are connected to it; clients are to the leader.
Source: spec/wire.md 3.9; RocketMQ AdminBrokerProcessor.getConsumerConnectionList,
getProducerConnectionList, getAllProducerInfo 4.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from broker.answers import shown
from broker.limits import ANSWER_BYTES_MAX, ANSWER_ROWS_MAX, WALKS_WAITING_MAX
from broker.pulls.filters import TAG_TYPES
from broker.pulls.tags import ALL_TAGS
from ledgermq.remoting.protocol.administration import (
    ProducerConnections,
    ProducerGroupHeader,
    ProducerInfo,
    ProducerTable,
)
from ledgermq.remoting.protocol.bodies import (
    ClientConnection,
    ConsumerConnection,
    SubscriptionData,
    encode_body,
)
from ledgermq.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.headers import ConsumerGroupHeader, decode_header
from ledgermq.remoting.transport.requests import serves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.groups.client_registry import Client, ConsumerGroup, Subscription
    from broker.stats.walks import Walks
    from broker.tables import Tables
    from ledgermq.runtime.clock import Clock

_LIMITS: Final = (ANSWER_ROWS_MAX, ANSWER_BYTES_MAX, WALKS_WAITING_MAX)
_END: Final = b"}}"
"""What closes the table of subscriptions, and what it is in."""
_LANGUAGES: Final = {int(language): language.name for language in LanguageCode}


class MembersProcessor:
    """Answers who is connected to one broker."""

    def __init__(self, tables: Tables, clock: Clock, walks: Walks) -> None:
        self._consumers = tables.consumers
        self._producers = tables.producers
        self._clock = clock
        self._walks = walks

    @serves(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        what="connected members of a consumer group, and what they subscribe to",
        header=ConsumerGroupHeader,
        limits=_LIMITS,
    )
    async def handle_consumers(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_CONSUMER_CONNECTION_LIST (203)."""
        name = decode_header(request, ConsumerGroupHeader).consumer_group
        group = self._consumers.get(name)
        if group is None:
            remark = f"the consumer group[{shown(name)}] not online"
            return make_response(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        rows = _rows_of(list(group.clients.values()), list(group.subscriptions.values()))

        def body(found: list[_Row]) -> bytes:
            return _group_body(group, found)

        return await self._walks.answer(request, rows, body)

    @serves(
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        what="connected members of a producer group",
        header=ProducerGroupHeader,
        limits=_LIMITS,
    )
    async def handle_producers(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_PRODUCER_CONNECTION_LIST (204)."""
        name = decode_header(request, ProducerGroupHeader).producer_group
        clients = self._producers.clients(name)
        if not clients:
            remark = f"the producer group[{shown(name)}] not exist"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        return await self._walks.answer(
            request,
            (_connection_of(client) for client in clients),
            lambda rows: encode_body(ProducerConnections(connection_set=rows)),
        )

    @serves(RequestCode.GET_ALL_PRODUCER_INFO, what="all connected producers", limits=_LIMITS)
    async def handle_all_producers(
        self, _connection: object, request: RemotingCommand
    ) -> RemotingCommand:
        """Take GET_ALL_PRODUCER_INFO (328)."""
        return await self._walks.answer(request, self._all_producers(), _producer_table)

    def _all_producers(self) -> Iterator[tuple[str, ProducerInfo] | None]:
        since_start = self._clock.wall_ms() - self._clock.monotonic_ms()
        for name in self._producers.groups():
            for client in self._producers.clients(name):
                yield (
                    name,
                    ProducerInfo(
                        client_id=client.client_id,
                        language=_language(client),
                        last_update_timestamp=since_start + client.last_seen_ms,
                        remote_ip=f"/{_addr(client)}",
                        version=client.version,
                    ),
                )


def _connection_of(client: Client) -> ClientConnection:
    return ClientConnection(
        client_addr=_addr(client),
        client_id=client.client_id,
        language=_language(client),
        version=client.version,
    )


def _addr(client: Client) -> str:
    host, port = client.connection.remote[:2]
    return f"{host}:{port}"


def _language(client: Client) -> str:
    return _LANGUAGES.get(client.language, LanguageCode.OTHER.name)


class _Row(NamedTuple):
    """What 203 tells: a member of a group, or one of its subscriptions as text."""

    member: ClientConnection | None
    subscription: bytes = b""


def _rows_of(clients: Sequence[Client], subscriptions: Sequence[Subscription]) -> Iterator[_Row]:
    """Yield the members of a group, then each subscription as text: its tags may be thousands."""
    for client in clients:
        yield _Row(_connection_of(client))
    for one in subscriptions:
        text = msgspec.json.encode(one.topic) + b":" + encode_body(subscription_data(one))
        yield _Row(None, text)


def _group_body(group: ConsumerGroup, rows: Sequence[_Row]) -> bytes:
    """Return the body of 203; the subscriptions go into its last member, which is empty so far."""
    body = encode_body(
        ConsumerConnection(
            connection_set=[row.member for row in rows if row.member is not None],
            consume_from_where=group.traits.consume_from_where,
            consume_type=group.traits.consume_type,
            message_model=group.traits.message_model,
        )
    )
    texts = [row.subscription for row in rows if row.subscription]
    return body[: -len(_END)] + b",".join(texts) + _END


def subscription_data(subscription: Subscription) -> SubscriptionData:
    """Return a subscription as its client has told it."""
    tags: list[str] = []
    if subscription.expression_type in TAG_TYPES and subscription.expression != ALL_TAGS:
        tags = [tag.strip() for tag in subscription.expression.split("||")]
    return SubscriptionData(
        code_set=sorted(subscription.codes or ()),
        expression_type=subscription.expression_type,
        sub_string=subscription.expression,
        sub_version=subscription.version,
        tags_set=[tag for tag in tags if tag],
        topic=subscription.topic,
    )


def _producer_table(rows: list[tuple[str, ProducerInfo]]) -> bytes:
    data: dict[str, list[ProducerInfo]] = {}
    for name, info in rows:
        data.setdefault(name, []).append(info)
    return encode_body(ProducerTable(data=data))
