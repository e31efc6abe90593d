"""Clients: HEART_BEAT (34, hot), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38).

A heartbeat registers its producers and consumers; a consumer group whose members or topics changed
is told by 40 at once, so that it rebalances. A group seen for the first time is created with its
retry topic before the answer.
Source: spec/wire.md 3.6; RocketMQ ClientManageProcessor, ConsumerManager, Broker2Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from broker.answers import WritableConnection, failed, write_command
from broker.groups.client_registry import BROADCASTING, Client, GroupTraits, Subscription
from broker.groups.notifier import Notifier
from broker.serving_limits import (
    EXPRESSION_LENGTH_MAX,
    HEARTBEAT_GROUPS_MAX,
    SUBSCRIPTIONS_MAX,
    SUBSCRIPTIONS_PER_GROUP_MAX,
    TAGS_MAX,
)
from broker.state.subscription import group_name_is_valid
from broker.state.topic_config import RETRY_PREFIX
from ledgermq.remoting.protocol.bodies import decode_heartbeat
from ledgermq.remoting.protocol.codes import LanguageCode, RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import (
    FLAG_ONEWAY,
    RemotingCommand,
    decode_command,
    make_response,
)
from ledgermq.remoting.protocol.errors import InvalidHeader
from ledgermq.remoting.protocol.headers import ConsumerGroupHeader, decode_header
from ledgermq.remoting.protocol.hosts import party_of
from ledgermq.remoting.protocol.limits import CLIENT_ID_LENGTH_MAX, GROUP_LENGTH_MAX
from ledgermq.remoting.transport.requests import serves
from ledgermq.runtime.tasks import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from broker.groups.client_registry import ConsumerRegistry, ProducerRegistry
    from broker.groups.new_groups import NewGroups
    from broker.sends.creation import Creator
    from broker.state.queue_lock import QueueLockTable
    from broker.state.subscription import SubscriptionGroupConfig, SubscriptionGroupTable
    from ledgermq.remoting.protocol.bodies import ConsumerData, HeartbeatData
    from ledgermq.remoting.protocol.frame import Frame
    from ledgermq.runtime.clock import Clock
    from ledgermq.runtime.tasks import Alarm

    Answer = tuple[int, str | None]

_TOPIC_LENGTH_MAX: Final = len(RETRY_PREFIX) + GROUP_LENGTH_MAX
_RELEASE_FIRST: Final = frozenset({LanguageCode.JAVA, LanguageCode.CPP})
"""Clients that have given their queues back when they leave."""
_OK: Final = (ResponseCode.SUCCESS, None)
_TOO_MANY_NEW: Final = (
    ResponseCode.SYSTEM_BUSY,
    "too many new consumer groups of this address, some were not created, try again later",
)


class ClientConnection(WritableConnection, Protocol):
    """What client management needs of a connection."""

    @property
    def id(self) -> int:
        """Number of the connection."""

    @property
    def remote(self) -> tuple[str, int]:
        """Where the client is."""

    @property
    def slow(self) -> bool:
        """Whether more waits for the client than it takes."""

    def send(self, command: RemotingCommand) -> None:
        """Send a command."""

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and return its answer."""


class ClientProcessor:
    """Answers client management requests of one broker."""

    def __init__(  # noqa: PLR0913 - collaborators, wired once
        self,
        *,
        producers: ProducerRegistry,
        consumers: ConsumerRegistry,
        groups: SubscriptionGroupTable,
        locks: QueueLockTable,
        creator: Creator,
        new_groups: NewGroups,
        is_writable: Callable[[], bool],
        clock: Clock,
        alarm: Callable[[Callable[[], None]], Alarm],
        serve: Callable[[str, Coroutine[Any, Any, None], Callable[[Exception], None]], object],
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._groups = groups
        self._locks = locks
        self._creator = creator
        self._new_groups = new_groups
        self._is_writable = is_writable
        self._clock = clock
        self._serve = serve
        self._waiting: dict[int, list[HeartbeatData]] = {}
        """By connection, heartbeats whose groups are being made."""
        self._notifier = Notifier(consumers.connections, clock, alarm(self._tell).set)

    @serves(
        RequestCode.HEART_BEAT,
        what="heartbeat: members of groups, subscriptions",
        limits=(
            CLIENT_ID_LENGTH_MAX,
            HEARTBEAT_GROUPS_MAX,
            GROUP_LENGTH_MAX,
            SUBSCRIPTIONS_MAX,
            SUBSCRIPTIONS_PER_GROUP_MAX,
            EXPRESSION_LENGTH_MAX,
            TAGS_MAX,
        ),
        hot=True,
    )
    def handle_heartbeat(self, connection: ClientConnection, frame: Frame) -> None:
        """Take a HEART_BEAT frame."""
        request = decode_command(frame)
        heartbeat = decode_heartbeat(frame.body)
        _check(heartbeat)
        client = Client(
            connection,
            heartbeat.client_id,
            request.language,
            request.version,
            self._clock.monotonic_ms(),
            party_of(connection.remote[0]),
        )
        for producer in heartbeat.producer_data_set:
            self._producers.register(producer.group_name, client)
        missing = self._missing(heartbeat)
        admitted = [group for group in missing if self._new_groups.admit(client.holder)]
        answer = _OK if len(admitted) == len(missing) else _TOO_MANY_NEW
        if admitted:
            self._waiting.setdefault(connection.id, []).append(heartbeat)
            self._serve(
                f"heartbeat {heartbeat.client_id}",
                self._create_then_answer(connection, request, client, heartbeat, admitted, answer),
                lambda error: self._answer(connection, request, failed(error)),
            )
            return
        self._register_consumers(client, heartbeat)
        self._answer(connection, request, answer)

    @serves(RequestCode.UNREGISTER_CLIENT, what="leave", fields=("producerGroup", "consumerGroup"))
    def handle_unregister(
        self, connection: ClientConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Take UNREGISTER_CLIENT."""
        producer = request.ext_fields.get("producerGroup")
        if producer:
            self._producers.unregister(producer, connection.id)
        consumer = request.ext_fields.get("consumerGroup")
        if consumer:
            for heartbeat in self._waiting.get(connection.id, ()):
                _take_out(consumer, heartbeat)
            self._leave(consumer, connection)
        return make_response(request, ResponseCode.SUCCESS, None, {})

    def _leave(self, name: str, connection: ClientConnection) -> None:
        """Take a consumer out of its group.

        Clients in Java and C++ have given all their queues back before. Those in Go before 2.1.2
        have not, nor do ours: they keep what their listener still works at.
        """
        group = self._consumers.get(name)
        member = None if group is None else group.clients.get(connection.id)
        if member is None:
            return
        self._consumers.unregister(name, connection.id)
        if member.language in _RELEASE_FIRST and not self._is_back(name, member):
            self._locks.leave(name, member.client_id, self._clock.monotonic_ms())
        self.notify(name)

    def _is_back(self, name: str, member: Client) -> bool:
        """Tell whether a client is in its group by a newer connection, too: this word was late."""
        group, number = self._consumers.get(name), member.connection.id
        return group is not None and any(
            other > number and one.client_id == member.client_id
            for other, one in group.clients.items()
        )

    @serves(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        what="members of a group",
        header=ConsumerGroupHeader,
    )
    def handle_list(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        """Take GET_CONSUMER_LIST_BY_GROUP."""
        group = decode_header(request, ConsumerGroupHeader).consumer_group
        ids = self._consumers.client_ids(group)
        if not ids:
            return make_response(
                request, ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}", {}
            )
        body = msgspec.json.encode({"consumerIdList": ids})
        return make_response(request, ResponseCode.SUCCESS, None, {}, body)

    def on_close(self, connection: ClientConnection) -> None:
        """Forget a closed connection and tell the groups it was in, quiet ones, too.

        Its queues are free; that members are not told is for those that come and go by themselves.
        """
        self._waiting.pop(connection.id, None)
        self._producers.close(connection.id)
        for group in self._consumers.close(connection.id):
            self._notifier.notify(group)

    def expire(self) -> None:
        """Forget clients that have been silent too long."""
        now_ms = self._clock.monotonic_ms()
        self._producers.expire(now_ms)
        for group in self._consumers.expire(now_ms):
            self.notify(group)

    def notify(self, group: str) -> None:
        """Tell the members of a group that they changed (40)."""
        config = self._groups.get(group)
        if config is None or config.notify_consumer_ids_changed_enable:
            self._notifier.notify(group)

    def _tell(self) -> None:
        attempt("members of groups", self._notifier.run)

    def _missing(self, heartbeat: HeartbeatData) -> list[SubscriptionGroupConfig]:
        """Return the groups of a heartbeat that lack settings or a retry topic."""
        if not self._is_writable():
            return []
        found = [self._groups.find(data.group_name) for data in heartbeat.consumer_data_set]
        return [group for group in found if group is not None and self._creator.misses(group)]

    async def _create_then_answer(
        self,
        connection: ClientConnection,
        request: RemotingCommand,
        client: Client,
        heartbeat: HeartbeatData,
        missing: list[SubscriptionGroupConfig],
        answer: Answer,
    ) -> None:
        """Make groups, then register; what is left meanwhile is taken out of the heartbeat."""
        try:
            for group in missing:
                await self._creator.consumer_group(group)
        finally:
            self._end_wait(connection.id, heartbeat)
        if not connection.closed:
            self._register_consumers(client, heartbeat)
            self._answer(connection, request, answer)

    def _end_wait(self, connection_id: int, heartbeat: HeartbeatData) -> None:
        waiting = self._waiting.get(connection_id, ())
        left = [one for one in waiting if one is not heartbeat]
        if left:
            self._waiting[connection_id] = left
        else:
            self._waiting.pop(connection_id, None)

    def _register_consumers(self, client: Client, heartbeat: HeartbeatData) -> None:
        """Make a client a member of its groups, also of one that may not be made.

        Its pulls are told so (26); without members to share them it would take no queues at all,
        and nobody would hear why.
        """
        for data in heartbeat.consumer_data_set:
            if not group_name_is_valid(data.group_name):
                continue
            self._locks.come_back(data.group_name, client.client_id)
            traits = GroupTraits(data.consume_type, data.message_model, data.consume_from_where)
            changed = self._consumers.register(
                data.group_name, traits, client, _subscriptions(data)
            )
            if changed and data.message_model != BROADCASTING:
                self.notify(data.group_name)

    def _answer(
        self,
        connection: ClientConnection,
        request: RemotingCommand,
        answer: Answer = _OK,
    ) -> None:
        if not request.flag & FLAG_ONEWAY:
            write_command(connection, request.serialize_type, request.opaque, answer)


def _take_out(group: str, heartbeat: HeartbeatData) -> None:
    """Make a heartbeat say nothing of a consumer group."""
    data = heartbeat.consumer_data_set
    heartbeat.consumer_data_set = [one for one in data if one.group_name != group]


def _check(heartbeat: HeartbeatData) -> None:
    """Refuse a heartbeat that says more than a client does. Errors: `InvalidHeader`."""
    if len(heartbeat.client_id) > CLIENT_ID_LENGTH_MAX:
        raise InvalidHeader(f"a client id has at most {CLIENT_ID_LENGTH_MAX} characters")
    consumers, producers = heartbeat.consumer_data_set, heartbeat.producer_data_set
    groups = [one.group_name for one in consumers] + [one.group_name for one in producers]
    if len(groups) > HEARTBEAT_GROUPS_MAX:
        raise InvalidHeader(f"{len(groups)} groups, more than {HEARTBEAT_GROUPS_MAX}")
    if any(len(group) > GROUP_LENGTH_MAX for group in groups):
        raise InvalidHeader(f"a group has at most {GROUP_LENGTH_MAX} characters")
    if sum(len(data.subscription_data_set) for data in consumers) > SUBSCRIPTIONS_MAX:
        raise InvalidHeader(f"more than {SUBSCRIPTIONS_MAX} subscriptions")
    for data in consumers:
        if len(data.subscription_data_set) > SUBSCRIPTIONS_PER_GROUP_MAX:
            raise InvalidHeader(f"more than {SUBSCRIPTIONS_PER_GROUP_MAX} subscriptions of a group")
        for item in data.subscription_data_set:
            is_long = len(item.sub_string or "") > EXPRESSION_LENGTH_MAX
            if is_long or len(item.code_set) > TAGS_MAX or len(item.topic) > _TOPIC_LENGTH_MAX:
                raise InvalidHeader(f"subscription of topic {item.topic[:_TOPIC_LENGTH_MAX]}")


def _subscriptions(data: ConsumerData) -> list[Subscription]:
    return [
        Subscription(
            item.topic,
            item.sub_string or "*",
            item.expression_type or "TAG",
            item.sub_version,
            frozenset(item.code_set) if item.code_set and item.sub_string != "*" else None,
        )
        for item in data.subscription_data_set
    ]
