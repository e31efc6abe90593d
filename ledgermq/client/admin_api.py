"""One function per request by which tools look at name servers and brokers: values in and out.

Every function takes an address and raises ``RemotingError``. Answers that have message queues as
keys are no strict JSON; `tolerant_json` reads them. Source: MQClientAPIImpl; spec/wire.md 3.9.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ledgermq.client.commands import make_command
from ledgermq.client.message import MessageQueue
from ledgermq.client.name_servers import Caller
from ledgermq.client.signer import UNSIGNED, Seals
from ledgermq.client.stored_offset import StoredOffsets
from ledgermq.remoting.protocol.bodies import queue_key
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError, for_code
from ledgermq.remoting.protocol.tolerant_json import ANSWER, loads

T = TypeVar("T")

Fields = Mapping[str, str]
Object = dict[str, Any]
"""A JSON object."""


class AdminApi:
    """Requests of tools."""

    def __init__(self, caller: Caller, timeout_ms: int, seals: Seals = UNSIGNED) -> None:
        self._caller = caller
        self._seals = seals
        self._timeout_ms = timeout_ms
        self._stored = StoredOffsets(caller, timeout_ms)

    async def cluster(self, addr: str) -> Object:
        """Return clusters and brokers as a name server knows them (106)."""
        return await self._object(addr, RequestCode.GET_BROKER_CLUSTER_INFO)

    async def topics(self, addr: str) -> list[str]:
        """Return the names of all topics that a name server knows (206)."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        found = await self._object(addr, code)
        return _read(lambda: sorted(str(one) for one in found["topicList"]))

    async def forget_topic(self, addr: str, topic: str) -> None:
        """Have a name server forget a topic (216)."""
        command = make_command(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
        await self._ask(addr, self._seals.for_name_server(command))

    async def delete_topic(self, addr: str, topic: str) -> None:
        """Have a broker delete a topic (215)."""
        command = make_command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        await self._ask(addr, await self._seals.for_broker(addr, command))

    async def delete_group(self, addr: str, group: str, *, offsets: bool) -> None:
        """Have a broker delete the settings of a group, and its offsets if so asked (207).

        The field of the latter is called ``removeOffset`` by RocketMQ 4.9, ``cleanOffset`` by 5.
        """
        said = "true" if offsets else "false"
        fields = {"groupName": group, "removeOffset": said, "cleanOffset": said}
        command = make_command(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        await self._ask(addr, await self._seals.for_broker(addr, command))

    async def topic_stats(self, addr: str, topic: str) -> dict[MessageQueue, Any]:
        """Return the offsets of a topic's queues (202)."""
        return await self._by_queue(addr, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})

    async def create_group(self, addr: str, group: str) -> None:
        """Have a broker create a group with default settings (200)."""
        body = msgspec.json.encode({"groupName": group})
        command = make_command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        await self._ask(addr, await self._seals.for_broker(addr, command))

    async def groups(self, addr: str) -> list[str]:
        """Return the names of a broker's consumer groups (201)."""
        found = await self._object(addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return _read(lambda: sorted(found["subscriptionGroupTable"]))

    async def consume_stats(
        self, addr: str, group: str, topic: str
    ) -> dict[MessageQueue, dict[str, int]]:
        """Return how far a group has come (208); no topic means all of its."""
        fields = {"consumerGroup": group} | ({"topic": topic} if topic else {})
        return await self._by_queue(addr, RequestCode.GET_CONSUME_STATS, fields)

    async def connections(self, addr: str, group: str) -> Object | None:
        """Return the connected members of a group, None if there is none (203)."""
        command = make_command(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        response = await self._caller.request(addr, command, self._timeout_ms)
        if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        if response.code != ResponseCode.SUCCESS:
            raise for_code(response.code, response.remark)
        return _object_of(response)

    async def reset_offsets(
        self, addr: str, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Have the connected members go on elsewhere (222); code 206 raises: there is none."""
        fields = {
            "topic": topic, "group": group, "timestamp": str(timestamp_ms), "isForce": "true",
        }  # fmt: skip
        return await self._by_queue(addr, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)

    async def commit_offset(self, addr: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Store a group's offset (15)."""
        fields = {
            "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
            "commitOffset": str(offset),
        }  # fmt: skip
        await self._call(addr, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def fetch_offset(self, addr: str, group: str, queue: MessageQueue) -> int:
        """Return a group's offset (14), -1 if there is none."""
        return (await self._stored.ask(addr, group, queue)).offset

    async def broker_status(self, addr: str) -> dict[str, str]:
        """Return a broker's figures (28)."""
        found = await self._object(addr, RequestCode.GET_BROKER_RUNTIME_INFO)
        return _read(lambda: {str(key): str(value) for key, value in found["table"].items()})

    async def broker_config(self, addr: str) -> dict[str, str]:
        """Return a broker's settings (26)."""
        response = await self._call(addr, RequestCode.GET_BROKER_CONFIG, {})
        lines = bytes(response.body).decode("utf-8", "replace").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, _, value in pairs}

    async def _by_queue(self, addr: str, code: RequestCode, fields: Fields) -> dict[Any, Any]:
        table = await self._object(addr, code, fields)

        def read() -> dict[MessageQueue, Any]:
            rows = [(queue_key(key), value) for key, value in table["offsetTable"].items()]
            return {MessageQueue(key.topic, key.broker_name, key.queue_id): v for key, v in rows}

        return _read(read)

    async def _object(self, addr: str, code: RequestCode, fields: Fields | None = None) -> Object:
        return _object_of(await self._call(addr, code, fields or {}))

    async def _call(self, addr: str, code: RequestCode, fields: Fields) -> RemotingCommand:
        return await self._ask(addr, make_command(code, dict(fields)))

    async def _ask(self, addr: str, command: RemotingCommand) -> RemotingCommand:
        response = await self._caller.request(addr, command, self._timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise for_code(response.code, response.remark)
        return response


def _object_of(response: RemotingCommand) -> Object:
    found = loads(bytes(response.body), ANSWER)
    if not isinstance(found, dict):
        raise RemoteProtocolError("the body of the answer is not a JSON object")
    return found


def _read(take: Callable[[], T]) -> T:
    """Return what ``take`` finds in an answer. Errors: `RemoteProtocolError` if it is not there."""
    try:
        return take()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"the answer lacks something: {error!r}"[:300]) from error
