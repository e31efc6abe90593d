"""One function per request to a broker, except sends: fields in, values out.

Every function takes the broker's address and raises ``RemotingError`` (``ResponseError`` with the
broker's code and remark when it refused). Source: MQClientAPIImpl; spec/wire.md 3.4-3.7, 3.9.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ledgermq.client.commands import make_command, number_in
from ledgermq.client.limits import MEMBERS_MAX
from ledgermq.client.message import MessageQueue, PullResult, PullStatus, SendStatus
from ledgermq.client.name_servers import Caller
from ledgermq.client.pulled import check_places, decode_found, decode_pulled
from ledgermq.client.stored_offset import StoredOffset, StoredOffsets
from ledgermq.remoting.protocol.bodies import (
    ConsumerIdList,
    HeartbeatData,
    LockBody,
    LockResult,
    QueueKey,
    SubscriptionData,
    decode_answer,
    encode_body,
)
from ledgermq.remoting.protocol.codes import (
    VERSION_MAX_RECONSUME,
    RequestCode,
    ResponseCode,
)
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemoteProtocolError, for_code
from ledgermq.remoting.protocol.headers import Claim
from ledgermq.remoting.protocol.message import MessageExt

PULL_COMMIT = 1
PULL_SUSPEND = 2
PULL_SUBSCRIPTION = 4

_PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a pull asks; ``suspend_ms`` 0 means an answer at once.

    ``commit_offset`` None commits nothing. ``expression`` None means that the broker uses the
    subscription of the group's heartbeat.
    """

    queue: MessageQueue
    offset: int
    max_count: int
    suspend_ms: int = 0
    commit_offset: int | None = None
    expression: str | None = None
    expression_type: str = "TAG"
    sub_version: int = 0


class KeySelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a key: the newest ``max_count`` stored in that time (ms)."""

    max_count: int = 64
    begin_ms: int = 0
    end_ms: int = (1 << 63) - 1
    unique: bool = False
    """Whether the key is a UNIQ_KEY; the broker then has its own limit."""


class BrokerApi:
    """Requests of one group."""

    def __init__(self, caller: Caller, group: str, timeout_ms: int) -> None:
        self._caller = caller
        self._group = group
        self._timeout_ms = timeout_ms
        self._stored = StoredOffsets(caller, timeout_ms)

    async def pull(self, addr: str, request: PullRequest, timeout_ms: int) -> PullResult:
        """Pull messages; the statuses of `PullStatus` are answers, other codes raise."""
        sys_flag = PULL_COMMIT if request.commit_offset is not None else 0
        sys_flag |= PULL_SUSPEND if request.suspend_ms else 0
        sys_flag |= PULL_SUBSCRIPTION if request.expression is not None else 0
        fields = self._queue_fields(request.queue) | {
            "queueOffset": str(request.offset),
            "maxMsgNums": str(request.max_count),
            "sysFlag": str(sys_flag),
            "commitOffset": str(request.commit_offset or 0),
            "suspendTimeoutMillis": str(request.suspend_ms),
            "subVersion": str(request.sub_version),
            "expressionType": request.expression_type,
        }
        if request.expression is not None:
            fields["subscription"] = request.expression
        command = make_command(RequestCode.PULL_MESSAGE, fields)
        response = await self._caller.request(addr, command, timeout_ms)
        status = _PULL_STATUS.get(response.code)
        if status is None:
            raise for_code(response.code, response.remark)
        next_offset = number_in(response, "nextBeginOffset")
        if next_offset < 0:
            raise RemoteProtocolError(f"nextBeginOffset is {next_offset}: no queue has one below 0")
        messages: list[MessageExt] = []
        if status is PullStatus.FOUND:
            messages, is_whole = decode_pulled(response.body)
            check_places(messages, request.offset, next_offset, request.max_count)
            if not is_whole:
                next_offset = messages[-1].queue_offset + 1
        return PullResult(
            status=status,
            next_offset=next_offset,
            min_offset=number_in(response, "minOffset"),
            max_offset=number_in(response, "maxOffset"),
            messages=messages,
            suggested_broker_id=number_in(response, "suggestWhichBrokerId"),
        )

    async def fetch_offset(self, addr: str, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none."""
        return (await self._stored.ask(addr, self._group, queue)).offset

    async def claim(self, addr: str, queue: MessageQueue, claim: Claim) -> StoredOffset:
        """Claim a queue, or let go of it; returns where the group is, and who holds it still."""
        return await self._stored.ask(addr, self._group, queue, claim)

    async def commit_offset(
        self, addr: str, queue: MessageQueue, offset: int, claim: Claim | None = None
    ) -> None:
        """Store ``offset`` as the group's next one to consume and wait for the answer."""
        fields = self._queue_fields(queue) | {"commitOffset": str(offset)}
        if claim is not None:
            fields["claim"] = claim.value
        await self._call(addr, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def max_offset(self, addr: str, queue: MessageQueue) -> int:
        """Return the offset that the next message of the queue will get."""
        return await self._offset(addr, RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, addr: str, queue: MessageQueue) -> int:
        """Return the offset of the oldest message kept."""
        return await self._offset(addr, RequestCode.GET_MIN_OFFSET, queue)

    async def search_offset(self, addr: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a wall-clock time.

        RocketMQ 4.9 knows no boundary: it returns the message stored nearest to that time.
        """
        extra = {"timestamp": str(timestamp_ms), "boundaryType": "LOWER"}
        return await self._offset(addr, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, extra)

    async def query_messages(
        self, addr: str, topic: str, key: str, selection: KeySelection
    ) -> list[MessageExt]:
        """Return the messages of a key, as the broker found them; none if it found none."""
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": str(selection.max_count),
            "beginTimestamp": str(selection.begin_ms),
            "endTimestamp": str(selection.end_ms),
            "_UNIQUE_KEY_QUERY": "true" if selection.unique else "false",
        }
        response = await self._call(
            addr, RequestCode.QUERY_MESSAGE, fields, also_ok=ResponseCode.QUERY_NOT_FOUND
        )
        return [] if response.code else decode_found(response.body)

    async def view_message(self, addr: str, physical_offset: int) -> MessageExt:
        """Return the message at an offset of the broker's log; code 1 raises: there is none."""
        fields = {"offset": str(physical_offset)}
        response = await self._call(addr, RequestCode.VIEW_MESSAGE_BY_ID, fields)
        messages = decode_found(response.body)
        if len(messages) != 1:
            raise RemoteProtocolError(f"{len(messages)} messages instead of one")
        return messages[0]

    async def consumer_ids(self, addr: str) -> list[str]:
        """Return the client ids of the group's members; an empty group is an error (code 1)."""
        fields = {"consumerGroup": self._group}
        response = await self._call(addr, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        ids = decode_answer(response.body, ConsumerIdList).consumer_id_list
        if len(ids) > MEMBERS_MAX:
            raise RemoteProtocolError(f"{len(ids)} members of a group, more than {MEMBERS_MAX}")
        return ids

    async def heartbeat(self, addr: str, data: HeartbeatData) -> None:
        """Announce this client and its subscriptions."""
        body = encode_body(data)
        await self._call(addr, RequestCode.HEART_BEAT, {}, body=body)

    async def check_client(self, addr: str, client_id: str, wanted: SubscriptionData) -> None:
        """Have the broker check the expression of a subscription; code 23 raises: it is wrong."""
        body = {"clientId": client_id, "group": self._group, "subscriptionData": wanted}
        await self._call(addr, RequestCode.CHECK_CLIENT_CONFIG, {}, body=msgspec.json.encode(body))

    async def unregister(self, addr: str, client_id: str, *, consumer: bool) -> None:
        """Take the client out of its group."""
        role = "consumerGroup" if consumer else "producerGroup"
        fields = {"clientID": client_id, role: self._group}
        await self._call(addr, RequestCode.UNREGISTER_CLIENT, fields)

    async def send_back(
        self, addr: str, message: MessageExt, delay_level: int, maybe_times_max: int | None
    ) -> None:
        """Ask the broker to deliver ``message`` again later (level 0: the broker decides).

        Without a limit of ours the one of the group counts.
        """
        fields = {
            "offset": str(message.physical_offset),
            "group": self._group,
            "delayLevel": str(delay_level),
            "originMsgId": message.message_id(),
            "originTopic": message.topic,
            "unitMode": "false",
        }
        if maybe_times_max is not None:
            fields["maxReconsumeTimes"] = str(maybe_times_max)
        await self._call(addr, RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    async def send_retry(
        self, addr: str, fields: dict[str, str], body: bytes, maybe_times_max: int | None
    ) -> None:
        """Send a message to the retry topic; returns once it is stored, however well.

        Without a limit of ours the one of the group counts. A broker of RocketMQ fails on a request
        without any, unless its version is from before there were limits in requests.
        """
        if maybe_times_max is not None:
            fields = fields | {"l": str(maybe_times_max)}
        command = make_command(RequestCode.SEND_MESSAGE_V2, fields, body)
        if maybe_times_max is None:
            command.version = VERSION_MAX_RECONSUME - 1
        response = await self._caller.request(addr, command, self._timeout_ms)
        if response.code not in set(SendStatus):
            raise for_code(response.code, response.remark)

    async def create_topic(self, addr: str, topic: str, queues: int, default_topic: str) -> None:
        """Create ``topic``, or change it, with ``queues`` readable and writable queues."""
        fields = {
            "topic": topic,
            "defaultTopic": default_topic,
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        await self._call(addr, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def lock(
        self, addr: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Lock queues for orderly consumption; returns those granted (lease 60 s)."""
        body = self._lock_body(client_id, queues)
        response = await self._call(addr, RequestCode.LOCK_BATCH_MQ, {}, body=body)
        granted = decode_answer(response.body, LockResult).lock_ok_mq_set
        return frozenset(MessageQueue(q.topic, q.broker_name, q.queue_id) for q in granted)

    async def unlock(self, addr: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give locks back."""
        body = self._lock_body(client_id, queues)
        await self._call(addr, RequestCode.UNLOCK_BATCH_MQ, {}, body=body)

    def _lock_body(self, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
        keys = [
            QueueKey(broker_name=queue.broker_name, queue_id=queue.queue_id, topic=queue.topic)
            for queue in queues
        ]
        return encode_body(LockBody(client_id=client_id, consumer_group=self._group, mq_set=keys))

    def _queue_fields(self, queue: MessageQueue) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
        }

    async def _offset(
        self,
        addr: str,
        code: RequestCode,
        queue: MessageQueue,
        extra: Mapping[str, str] | None = None,
    ) -> int:
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), **(extra or {})}
        return number_in(await self._call(addr, code, fields), "offset")

    async def _call(
        self,
        addr: str,
        code: RequestCode,
        fields: dict[str, str],
        *,
        body: bytes = b"",
        also_ok: ResponseCode = ResponseCode.SUCCESS,
    ) -> RemotingCommand:
        command = make_command(code, fields, body)
        response = await self._caller.request(addr, command, self._timeout_ms)
        if response.code not in {ResponseCode.SUCCESS, also_ok}:
            raise for_code(response.code, response.remark)
        return response
