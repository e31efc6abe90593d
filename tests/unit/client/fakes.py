"""A name server and brokers that answer from memory and can be told to misbehave.

They speak the real protocol over real loopback sockets, so the client under test is whole. The
members of one `FakeGroup` share their messages and offsets, as replicas would.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand, make_response
from ledgermq.remoting.protocol.hosts import pack_host
from ledgermq.remoting.protocol.message import (
    MessageExt,
    decode_batch,
    encode_record,
    offset_message_id,
)
from ledgermq.remoting.protocol.properties import format_properties
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.server import RemotingServer

HOST = "127.0.0.1"


class FakeNameServer:
    """Answers 105 and 106 from ``routes``: topic to route as JSON-ready dict."""

    def __init__(self) -> None:
        self.routes: dict[str, dict] = {}
        self.asked: list[str] = []
        self.seen = asyncio.Condition()
        self.port = 0
        self._server = RemotingServer(
            name="fake-namesrv",
            handlers={
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
            },
        )

    @property
    def addr(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> "FakeNameServer":
        self.port = await self._server.start(HOST, self.port)
        return self

    async def stop(self) -> None:
        await self._server.stop()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds after some question; at most five seconds."""
        async with asyncio.timeout(5), self.seen:
            await self.seen.wait_for(condition)

    def _cluster(self, _connection: object, request: RemotingCommand) -> RemotingCommand:
        table = {
            one["brokerName"]: one for route in self.routes.values() for one in route["brokerDatas"]
        }
        return make_response(request, 0, body=msgspec.json.encode({"brokerAddrTable": table}))

    def publish(self, topic: str, brokers: dict[str, dict[int, str]], queues: int = 4) -> None:
        self.routes[topic] = {
            "brokerDatas": [
                {
                    "brokerName": name,
                    "cluster": "c",
                    "brokerAddrs": {str(key): addr for key, addr in addrs.items()},
                }
                for name, addrs in brokers.items()
            ],
            "queueDatas": [
                {
                    "brokerName": name,
                    "perm": 6,
                    "readQueueNums": queues,
                    "writeQueueNums": queues,
                    "topicSysFlag": 0,
                }
                for name in brokers
            ],
            "filterServerTable": {},
        }

    async def _route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        self.asked.append(topic)
        async with self.seen:
            self.seen.notify_all()
        route = self.routes.get(topic)
        if route is None:
            return make_response(request, 17, f"No topic route info for the topic: {topic}")
        return make_response(request, 0, body=msgspec.json.encode(route))


@dataclass
class FakeGroup:
    """What the replicas of one broker name share."""

    name: str = "group-a"
    queues: dict[tuple[str, int], list[MessageExt]] = field(
        default_factory=lambda: defaultdict(list)
    )
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    send_back_refusal: tuple[int, str] | None = (3, " request type 36 not supported")
    sent_back: list[dict[str, str]] = field(default_factory=list)
    send_back_answers_lost: int = 0
    """How many copies are made whose makers learn nothing of it."""
    resets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Where the next pull of a group in a queue is sent, once, as RocketMQ 5 does."""
    locks: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """Who has locked which queue, by group, topic and queue id; no lease ends by itself."""

    def append(
        self, fields: dict[str, str], body: bytes, properties: bytes, flag: int
    ) -> MessageExt:
        topic, queue_id = fields["b"], max(int(fields["e"]), 0)
        stored = self.queues[topic, queue_id]
        host = pack_host(HOST, 10911)
        message = MessageExt(
            topic=topic,
            queue_id=queue_id,
            flag=flag,
            sys_flag=int(fields["f"]),
            queue_offset=len(stored),
            physical_offset=sum(map(len, self.queues.values())) * 1000,
            born_timestamp=int(fields["g"]),
            born_host=host,
            store_timestamp=int(fields["g"]),
            store_host=host,
            reconsume_times=int(fields.get("j", "0")),
            prepared_offset=0,
            body=body,
            properties=properties,
        )
        stored.append(message)
        return message

    def copy_to_retry(self, message: MessageExt, topic: str) -> None:
        stored = self.queues[topic, 0]
        kept = {"RETRY_TOPIC": message.topic, "ORIGIN_MESSAGE_ID": message.offset_message_id()}
        stored.append(
            msgspec.structs.replace(
                message,
                topic=topic,
                queue_id=0,
                queue_offset=len(stored),
                physical_offset=sum(map(len, self.queues.values())) * 1000,
                reconsume_times=message.reconsume_times + 1,
                properties=format_properties(kept | message.property_map()),
            )
        )

    async def wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def bodies(self, topic: str) -> list[bytes]:
        return [m.body for key, stored in self.queues.items() if key[0] == topic for m in stored]


Misbehave = Callable[["FakeBroker", Connection, RemotingCommand], object]


class FakeBroker:
    """One replica; ``misbehave`` holds what to do with the next sends instead of storing them."""

    def __init__(self, group: FakeGroup, *, leader: bool = True) -> None:
        self.group = group
        self.leader = leader
        self.serves_reads = False
        """As a slave of the classic modes does, and the follower of a Raft group does not."""
        self.suggests = 0
        """The broker id that answers to pulls suggest."""
        self.illegal = False
        """Whether it calls all offsets illegal, and says to go on at 0."""
        self.port = 0
        self.misbehave: deque[Misbehave] = deque()
        self.requests: list[RemotingCommand] = []
        self.clients: dict[str, dict[str, Connection]] = defaultdict(dict)
        self.producers: dict[str, Connection] = {}
        """The connection of the last producer of each group that sent a heartbeat."""
        self.heartbeats: list[dict] = []
        self.unregistered: list[str] = []
        self.commits: list[tuple[str, int, int]] = []
        self.commits_wait_for: asyncio.Event | None = None
        self.wants_heartbeats = False
        self.refused_heartbeats = 0
        """How many heartbeats are still to be refused."""
        """Whether it refuses commits of groups without members, as RocketMQ 5 does."""
        self.seen = asyncio.Condition()
        self.tasks: set[asyncio.Task[None]] = set()
        handlers = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.END_TRANSACTION: lambda _connection, _request: None,
        }
        self._server = RemotingServer(
            name="fake-broker",
            handlers={code: self._recorded(handler) for code, handler in handlers.items()},
            on_close=self._forget,
        )

    @property
    def addr(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> "FakeBroker":
        self.port = await self._server.start(HOST, self.port)
        return self

    async def stop(self) -> None:
        await self._server.stop()
        held = list(self.tasks)
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    @property
    def connections(self) -> list[Connection]:
        return list(self._server.connections.values())

    def count(self, code: int) -> int:
        return sum(request.code == code for request in self.requests)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds after some request; at most five seconds."""
        async with asyncio.timeout(5), self.seen:
            await self.seen.wait_for(condition)

    def _recorded(self, handler):
        async def handle(connection, request):
            self.requests.append(request)
            self.tasks.add(asyncio.current_task())
            await self._notify_seen()
            try:
                answer = handler(connection, request)
                return await answer if asyncio.iscoroutine(answer) else answer
            finally:
                self.tasks.discard(asyncio.current_task())
                await self._notify_seen()

        return handle

    async def _notify_seen(self):
        async with self.seen:
            self.seen.notify_all()

    async def _send(self, connection, request):
        if self.misbehave:
            done = self.misbehave.popleft()(self, connection, request)
            return await done if asyncio.iscoroutine(done) else done
        if not self.leader:
            return not_leader(self, connection, request)
        return await self.store(request)

    async def store(self, request):
        fields = request.ext_fields
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            elements = decode_batch(request.body)
        else:
            elements = [None]
        stored = [
            self.group.append(
                fields,
                request.body if one is None else one.body,
                fields["i"].encode() if one is None else one.properties,
                int(fields["h"]) if one is None else one.flag,
            )
            for one in elements
        ]
        await self.group.wake()
        ids = ",".join(offset_message_id(m.store_host, m.physical_offset) for m in stored)
        return make_response(
            request,
            0,
            ext_fields={
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "msgId": ids,
                "queueId": str(stored[0].queue_id),
                "queueOffset": str(stored[0].queue_offset),
            },
        )

    async def _pull(self, _connection, request):
        fields = request.ext_fields
        if not self.leader and not self.serves_reads:
            return not_leader(self, _connection, request)
        key = fields["topic"], int(fields["queueId"])
        offset, group = int(fields["queueOffset"]), self.group
        if int(fields["sysFlag"]) & 1:
            group.offsets[fields["consumerGroup"], *key] = int(fields["commitOffset"])
        stored = group.queues[key]
        if offset == len(stored) and int(fields["sysFlag"]) & 2:
            try:
                async with asyncio.timeout(int(fields["suspendTimeoutMillis"]) / 1000):
                    async with group.changed:
                        await group.changed.wait_for(lambda: len(stored) > offset)
            except TimeoutError:
                pass
        found = stored[offset : offset + int(fields["maxMsgNums"])]
        reset = group.resets.pop((fields["consumerGroup"], *key), None)
        if self.illegal:
            code, following, found = 21, 0, []
        elif reset is not None:
            code, following, found = 21, reset, []
        elif offset > len(stored):
            code, following = 21, len(stored)
        else:
            code, following = 0 if found else 19, offset + len(found)
        return make_response(
            request,
            code,
            ext_fields={
                "suggestWhichBrokerId": str(self.suggests),
                "nextBeginOffset": str(following),
                "minOffset": "0",
                "maxOffset": str(len(stored)),
            },
            body=b"".join(encode_record(message) for message in found),
        )

    def _heartbeat(self, connection, request):
        data = msgspec.json.decode(request.body)
        self.heartbeats.append(data)
        if self.refused_heartbeats:
            self.refused_heartbeats -= 1
            return make_response(request, 2, "too many requests are under way")
        for producer in data.get("producerDataSet", []):
            self.producers[producer["groupName"]] = connection
        for consumer in data.get("consumerDataSet", []):
            members = self.clients[consumer["groupName"]]
            if data["clientID"] not in members:
                members[data["clientID"]] = connection
                self.notify(consumer["groupName"])
        return make_response(request, 0)

    def notify(self, group: str) -> None:
        for connection in self.clients[group].values():
            connection.send_oneway(
                RemotingCommand(
                    code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    ext_fields={"consumerGroup": group},
                )
            )

    def _unregister(self, _connection, request):
        client_id = request.ext_fields["clientID"]
        self.unregistered.append(client_id)
        for group, members in self.clients.items():
            if members.pop(client_id, None) is not None:
                self.notify(group)
        return make_response(request, 0)

    def _forget(self, connection):
        for group, members in self.clients.items():
            for client_id, known in list(members.items()):
                if known is connection:
                    del members[client_id]
                    self.notify(group)

    def _members(self, _connection, request):
        members = sorted(self.clients[request.ext_fields["consumerGroup"]])
        if not members:
            return make_response(request, 1, "no consumer for this group")
        return make_response(request, 0, body=msgspec.json.encode({"consumerIdList": members}))

    def _query_offset(self, _connection, request):
        offset = self.group.offsets.get(_offset_key(request))
        if offset is None:
            return make_response(request, 22, "Not found")
        return make_response(request, 0, ext_fields={"offset": str(offset)})

    async def _update_offset(self, connection, request):
        if self.commits_wait_for is not None:
            await self.commits_wait_for.wait()
        if not self.leader and not self.serves_reads:
            return not_leader(self, connection, request)
        key, offset = _offset_key(request), int(request.ext_fields["commitOffset"])
        if self.wants_heartbeats and not self.clients[key[0]]:
            return make_response(request, 26, "Group name is not exists")
        self.group.offsets[key] = offset
        self.commits.append((key[1], key[2], offset))
        return make_response(request, 0)

    def _max_offset(self, _connection, request):
        if not self.leader and not self.serves_reads:
            return not_leader(self, _connection, request)
        stored = self.group.queues[_queue_key(request)]
        return make_response(request, 0, ext_fields={"offset": str(len(stored))})

    def _min_offset(self, _connection, request):
        if not self.leader and not self.serves_reads:
            return not_leader(self, _connection, request)
        return make_response(request, 0, ext_fields={"offset": "0"})

    def _search_offset(self, _connection, request):
        stored, when = self.group.queues[_queue_key(request)], int(request.ext_fields["timestamp"])
        offset = sum(message.store_timestamp < when for message in stored)
        return make_response(request, 0, ext_fields={"offset": str(offset)})

    def _create_topic(self, _connection, request):
        return make_response(request, 0)

    def _lock(self, connection, request):
        if not self.leader:
            return not_leader(self, connection, request)
        body = msgspec.json.decode(request.body)
        granted = [
            queue
            for queue in body["mqSet"]
            if self.group.locks.setdefault(_lock_key(body, queue), body["clientId"])
            == body["clientId"]
        ]
        return make_response(request, 0, body=msgspec.json.encode({"lockOKMQSet": granted}))

    def _unlock(self, connection, request):
        if not self.leader:
            return not_leader(self, connection, request)
        body = msgspec.json.decode(request.body)
        for queue in body["mqSet"]:
            if self.group.locks.get(_lock_key(body, queue)) == body["clientId"]:
                del self.group.locks[_lock_key(body, queue)]
        return make_response(request, 0)

    async def _send_back(self, connection, request):
        fields, group = request.ext_fields, self.group
        if not self.leader:
            return not_leader(self, connection, request)
        group.sent_back.append(fields)
        if group.send_back_refusal is not None:
            return make_response(request, *group.send_back_refusal)
        given = [
            message
            for stored in group.queues.values()
            for message in stored
            if message.physical_offset == int(fields["offset"])
        ]
        group.copy_to_retry(given[0], f"%RETRY%{fields['group']}")
        await group.wake()
        if group.send_back_answers_lost:
            group.send_back_answers_lost -= 1
            return connection.abort("told to")
        return make_response(request, 0)


def not_leader(_broker, _connection, request):
    return make_response(request, 14, "service not available now, maybe disk full")


def drop_before(_broker, connection, _request):
    connection.abort("told to")


async def drop_after(broker, connection, request):
    await broker.store(request)
    connection.abort("told to")


def ignore(_broker, _connection, _request):
    return None


def answer(code: int, remark: str) -> Misbehave:
    return lambda _broker, _connection, request: make_response(request, code, remark)


def _lock_key(body, queue) -> tuple[str, str, int]:
    return body["consumerGroup"], queue["topic"], queue["queueId"]


def _queue_key(request) -> tuple[str, int]:
    return request.ext_fields["topic"], int(request.ext_fields["queueId"])


def _offset_key(request) -> tuple[str, str, int]:
    return request.ext_fields["consumerGroup"], *_queue_key(request)
