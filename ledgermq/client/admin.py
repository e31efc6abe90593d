"""The admin client: topics, groups, offsets, brokers and single messages of a running cluster.

Asks name servers in turn, and the leader of each broker that holds a topic. Changes what it is told
to change and nothing else. Source: DefaultMQAdminExtImpl.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ledgermq.client.admin_api import AdminApi
from ledgermq.client.broker_api import PullRequest
from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import NameServersUnreachable, NoOffset, NoRoute
from ledgermq.client.finder import MessageFinder
from ledgermq.client.message import MessageQueue
from ledgermq.client.route import TopicRoute
from ledgermq.client.signer import UNSIGNED, Signer
from ledgermq.client.stored_offset import NO_OFFSET
from ledgermq.client.validation import check_group, check_topic
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import RemoteProtocolError, RemotingError, ResponseError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.protocol.signing import Credentials
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng

T = TypeVar("T")

_SYSTEM_CLOCK = SystemClock()
END = -1
"""The time that stands for the end of a queue."""
QUEUES_MAX = 65_536


class QueueStats(msgspec.Struct, frozen=True):
    """One queue of a topic; ``last_update_ms`` is when its last message was stored, or 0."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int


class QueueProgress(msgspec.Struct, frozen=True):
    """How far a group has come in one queue; ``last_ms`` is the store time of what it had last."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_ms: int

    @property
    def lag(self) -> int:
        """How many messages are left."""
        return self.broker_offset - self.consumer_offset


class Member(msgspec.Struct, frozen=True):
    """One connected member of a group."""

    client_id: str
    address: str
    language: str
    version: int


class GroupConnections(msgspec.Struct, frozen=True):
    """The connected members of a group and what they subscribe to, by topic."""

    members: list[Member]
    subscriptions: dict[str, str]
    consume_type: str
    message_model: str


class BrokerPlace(msgspec.Struct, frozen=True):
    """One broker process; id 0 is the leader, or the master."""

    cluster: str
    name: str
    broker_id: int
    address: str


class AdminClient(MessageFinder):
    """Looks at a cluster and prepares it; use it as an async context manager."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        credentials: Credentials | None = None,
        clock: Clock = _SYSTEM_CLOCK,
        rng: Rng | None = None,
    ) -> None:
        """Keep the settings; ``credentials`` sign what is removed, where servers want that."""
        super().__init__(config, clock=clock, rng=rng)
        caller, timeout_ms = self._instance.client, config.request_timeout_ms
        next_id = self._instance.unique_ids.next
        self._admin = AdminApi(
            caller,
            timeout_ms,
            UNSIGNED
            if credentials is None
            else Signer(caller, credentials, clock, next_id, timeout_ms),
        )

    # Topics.

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._ask_name_server(self._admin.topics)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Return the queues of a topic and the brokers that hold them. Errors: ``NoRoute``."""
        check_topic(topic)
        self._check_running()
        return await self._instance.routes.refresh(topic)

    async def create_topic(
        self, topic: str, queues: int = 8, *, cluster: str = "", broker: str = ""
    ) -> None:
        """Create a topic with so many queues on each master and leader, or change it.

        ``cluster``: only on those of that one; ``broker``: only on that address.
        Errors: ``NoRoute`` if there are none; ``RemotingError``: what was done on others stands.
        """
        check_topic(topic)
        self._check_running()
        if not 1 <= queues <= QUEUES_MAX:
            raise ValueError(f"queues {queues} is not in 1..{QUEUES_MAX}")
        if cluster and broker:
            raise ValueError("a cluster and a broker: one of them is expected")
        # Not those of its route: where it is missing, it is to be made.
        places = [] if broker else await self.brokers()
        addrs = [
            one.address
            for one in places
            if one.broker_id == 0 and (not cluster or one.cluster == cluster)
        ]
        if not addrs and not broker:
            whose = f"cluster {cluster!r} has" if cluster else "there is"
            raise NoRoute(f"{whose} no master and no leader at the moment")
        for addr in [broker] if broker else addrs:
            await self._instance.api.create_topic(addr, topic, queues, self._config.default_topic)

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete a topic on the brokers that hold it, then on all name servers that can be reached.

        Returns the names of those brokers. One that is down is not among them, and brings the topic
        back when it comes. A name server that cannot be reached is raised, after the others: call
        it again when that one runs. Brokers that want signed requests refuse without
        ``credentials``, with 16.
        """
        names = await self._holders(topic)
        for name in names:
            await self._leaders.call(
                MessageQueue(topic, name, 0), lambda addr: self._admin.delete_topic(addr, topic)
            )
        failures: list[RemotingError] = []
        for addr in self._config.namesrv_addrs:
            try:
                await self._admin.forget_topic(addr, topic)
            except RemotingError as error:
                failures.append(error)
        for failure in failures:
            raise failure
        return names

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """Return the offsets of a topic's queues, sorted."""
        found = await self._each_broker(topic, lambda addr: self._admin.topic_stats(addr, topic))
        return _rows(
            found,
            lambda queue, one: QueueStats(
                queue, int(one["minOffset"]), int(one["maxOffset"]), int(one["lastUpdateTimestamp"])
            ),
        )

    # Groups.

    async def groups(self) -> list[str]:
        """Return the names of the consumer groups that any leader knows, sorted."""
        leaders = [one.address for one in await self.brokers() if one.broker_id == 0]
        return sorted({name for addr in leaders for name in await self._admin.groups(addr)})

    async def delete_group(self, group: str, *, offsets: bool = False) -> list[str]:
        """Delete the settings of a group on every broker, with its offsets if you say so.

        Returns the names of those brokers; one that is down keeps what it has. The group's topics
        of retries and dead letters stay. Members that are connected go on, and bring the settings
        back. Errors: as `delete_topic`.
        """
        check_group(group)
        leaders = [one for one in await self.brokers() if one.broker_id == 0]
        if not leaders:
            raise NoRoute("no broker leads")
        for one in leaders:
            await self._admin.delete_group(one.address, group, offsets=offsets)
        return [one.name for one in leaders]

    async def group_progress(self, group: str, topic: str = "") -> list[QueueProgress]:
        """Return how far a group has come in a topic, or in all topics in which it has offsets."""
        check_group(group)
        if topic:
            found = await self._each_broker(
                topic, lambda addr: self._admin.consume_stats(addr, group, topic)
            )
        else:
            found = {}
            for one in await self.brokers():
                if one.broker_id == 0:
                    found |= await self._admin.consume_stats(one.address, group, "")
        return _rows(
            found,
            lambda queue, one: QueueProgress(
                queue, int(one["brokerOffset"]), int(one["consumerOffset"]),
                int(one["lastTimestamp"]),
            ),
        )  # fmt: skip

    async def group_connections(self, group: str) -> GroupConnections | None:
        """Return who of a group is connected; None if nobody is."""
        check_group(group)
        for one in await self.brokers():
            if one.broker_id:
                continue
            found = await self._admin.connections(one.address, group)
            if found is not None:
                return _connections(found)
        return None

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int = END
    ) -> dict[MessageQueue, int]:
        """Have a group go on at a time (`END`: at the end); returns where, by queue.

        Connected members are told, and go there at once. Without any, the offsets are committed in
        their stead. Errors: ``NoOffset`` where the group has none in the topic; ``RemotingError``;
        what was done on other brokers stands.
        """
        check_group(group)

        async def reset(addr: str) -> dict[MessageQueue, int]:
            try:
                return await self._admin.reset_offsets(addr, group, topic, timestamp_ms)
            except ResponseError as error:
                if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    return {}  # RocketMQ 5 says so; 4.9 and ours that it has no offset
                # A broker looks whether each queue has an offset before it looks for members.
                nobody = error.code == ResponseCode.CONSUMER_NOT_ONLINE or (
                    error.code == ResponseCode.SYSTEM_ERROR
                    and await self._admin.connections(addr, group) is None
                )
                if not nobody:
                    raise
            return await self._commit_times(addr, group, topic, timestamp_ms)

        found = await self._each_broker(topic, reset)
        if not found:
            raise NoOffset(f"group {group} has no offset in topic {topic}")
        return dict(_rows(found, lambda queue, offset: (queue, int(offset))))

    async def clone_offsets(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Give ``target`` the offsets that ``source`` has in a topic; returns them by queue.

        Errors: ``NoOffset`` where ``source`` has none; ``RemotingError``.
        """
        check_group(source)
        check_group(target)
        offsets = await self._each_broker(topic, lambda addr: self._offsets(addr, source, topic))
        if not offsets:
            raise NoOffset(f"group {source} has no offset in topic {topic}")
        for queue, offset in sorted(offsets.items()):
            await self._commit(target, queue, offset)
        return dict(sorted(offsets.items()))

    # Brokers and messages.

    async def brokers(self) -> list[BrokerPlace]:
        """Return all broker processes, sorted."""
        found = await self._ask_name_server(self._admin.cluster)
        try:
            return sorted(
                (
                    BrokerPlace(str(data.get("cluster", "")), name, int(number), str(address))
                    for name, data in found["brokerAddrTable"].items()
                    for number, address in data["brokerAddrs"].items()
                ),
                key=lambda one: (one.cluster, one.name, one.broker_id),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"no table of brokers: {error!r}"[:300]) from error

    async def broker_status(self, address: str) -> dict[str, str]:
        """Return the figures of one broker, as RocketMQ names them."""
        self._check_running()
        return await self._admin.broker_status(address)

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of one broker."""
        self._check_running()
        return await self._admin.broker_config(address)

    async def message_at(self, queue: MessageQueue, offset: int) -> MessageExt | None:
        """Return the message at an offset of a queue, None if there is none (any more)."""
        self._check_running()
        if offset < 0:
            raise ValueError(f"offset {offset} must not be negative")
        request = PullRequest(queue=queue, offset=offset, max_count=1, expression="*")
        api, timeout_ms = self._instance.api, self._config.request_timeout_ms
        result = await self._leaders.call(queue, lambda addr: api.pull(addr, request, timeout_ms))
        return next((one for one in result.messages if one.queue_offset == offset), None)

    async def _commit_times(
        self, addr: str, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Commit the offsets of a time for a group without members, where it has offsets."""
        api, found = self._instance.api, {}
        for queue in await self._offsets(addr, group, topic):
            if timestamp_ms == END:
                offset = await api.max_offset(addr, queue)
            else:
                offset = await api.search_offset(addr, queue, timestamp_ms)
            await self._admin.commit_offset(addr, group, queue, offset)
            found[queue] = offset
        return found

    async def _offsets(self, addr: str, group: str, topic: str) -> dict[MessageQueue, int]:
        """Return what a group has committed in the queues of one broker."""
        found = {}
        for queue in await self._admin.topic_stats(addr, topic):
            offset = await self._admin.fetch_offset(addr, group, queue)
            if offset != NO_OFFSET:
                found[queue] = offset
        return found

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        admin = self._admin

        async def commit(addr: str) -> None:
            try:
                await admin.commit_offset(addr, group, queue, offset)
            except ResponseError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                # RocketMQ 5 keeps no offset of a group that it does not know.
                await admin.create_group(addr, group)
                await admin.commit_offset(addr, group, queue, offset)

        await self._leaders.call(queue, commit)

    async def _ask_name_server(self, ask: Callable[[str], Awaitable[T]]) -> T:
        """Return the answer of the first name server that gives one."""
        self._check_running()
        last: RemotingError | None = None
        for addr in self._config.namesrv_addrs:
            try:
                return await ask(addr)
            except ResponseError:
                raise
            except RemotingError as error:
                last = error
        servers = ", ".join(self._config.namesrv_addrs)
        raise NameServersUnreachable(f"no answer from {servers}: {last}") from last

    async def _each_broker(
        self, topic: str, ask: Callable[[str], Awaitable[dict[MessageQueue, Any]]]
    ) -> dict[MessageQueue, Any]:
        """Ask the leader of each broker that holds a topic, and join the tables they return."""
        found: dict[MessageQueue, Any] = {}
        for name in await self._holders(topic):
            found |= await self._leaders.call(MessageQueue(topic, name, 0), ask)
        return found

    async def _holders(self, topic: str) -> list[str]:
        """Return the names of the brokers that hold a topic, as a name server knows them."""
        check_topic(topic)
        self._check_running()
        route = await self._instance.routes.refresh(topic)
        if not route.broker_names:
            raise NoRoute(f"topic {topic} has no queue")
        return sorted(route.broker_names)


def _rows(found: Mapping[MessageQueue, Any], make: Callable[[MessageQueue, Any], T]) -> list[T]:
    try:
        return [make(queue, one) for queue, one in sorted(found.items())]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"the answer lacks something: {error!r}"[:300]) from error


def _connections(found: Mapping[str, Any]) -> GroupConnections:
    try:
        return GroupConnections(
            members=[
                Member(
                    str(one["clientId"]), str(one["clientAddr"]), str(one["language"]),
                    int(one["version"]),
                )
                for one in found["connectionSet"]
            ],
            subscriptions={
                topic: str(one["subString"]) for topic, one in found["subscriptionTable"].items()
            },
            consume_type=str(found["consumeType"]),
            message_model=str(found["messageModel"]),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"no table of members: {error!r}"[:300]) from error
