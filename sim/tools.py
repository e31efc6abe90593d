"""A client that asks what tools ask, and asks for the same as another at the same time.

One step after the other, each chosen by chance, until the faults are over. Two members ask for the
lock of a queue in one turn, and let it run out; two topics are made a moment apart; somebody asks
where a queue was at a time, of which messages may be gone or not there yet, and where a topic's
queues and a group are; pulls wait on connections of which some are closed. All of it is judged on
the wire, in the log and in the routes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from ledgermq.client import MessageQueue, Producer, PullConsumer, RemotingError
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.signing import KeyCredentials, sign
from sim.clients.wire import RawConnection, frame_of
from sim.layout import PEER_KEY
from sim.validators import GROUP_NAME
from sim.workload import GROUP, PULL_GROUP, TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgermq.client import ClientConfig
    from sim.context import Host
    from sim.validators import Validators

MS_PER_S: Final = 1000
TOOLS_GROUP: Final = "tools"
ASK_MS: Final = 3_000
AROUND_MS: Final = 5
FAR_MS: Final = 1 << 42
KEPT_MS: Final = (200, 1 << 30, 1 << 30)
"""How long a lock is kept; most run out."""
CONTENDED: Final = 2
"""Queues that two members want at once: few, so that one is asked for as soon as it is free."""
APART_MS: Final = (0, 2, 30, 200)
"""How long one topic is made after the other."""
TOPICS_MAX: Final = 6
"""Of each life: routes tell all of them."""
CHANGED_P: Final = 0.3
"""How often one is made wider and narrower, in place of two that are made."""
REMOVED_P: Final = 0.8
"""How often one of them is removed again."""
HELD: Final = 4
"""Connections on which pulls wait."""
HELD_MS: Final = 2_500
SUSPENDS: Final = "2"
BOUNDARIES: Final = ("", "", "LOWER", "UPPER")
SHARES: Final = {
    "contend": 0.25, "ask_time": 0.2, "ask_stats": 0.2, "hold": 0.15, "make": 0.1, "join": 0.1,
}  # fmt: skip
HANGS_UP_MS: Final = (0, 0, 1, 5, 50)
"""How long after its first heartbeat a member's connection ends."""
GONE_S: Final = 1.2
"""So long after that it is in no list of members any more."""


class ToolsApp:
    """One host with such clients."""

    def __init__(
        self, name: str, config: ClientConfig, machine: Host, validators: Validators,
        times_ms: tuple[int, int], brokers: dict[str, str],
    ) -> None:  # fmt: skip
        self.name = name
        self._brokers = brokers
        self.is_busy = False
        self._config = config
        self._machine = machine
        self._validators = validators
        self._every_ms, self._until_ms = times_ms
        self._rng = machine.rng.split(f"life{machine.incarnation}")
        self._made = 0
        self._asked = self._joined = 0
        self._signed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take one step after the other, for ever."""
        clock, rng = self._machine.clock, self._rng
        self._pullers = [
            PullConsumer(self._named(f"pull{at}"), clock=clock, rng=rng.split(f"pull{at}"))
            for at in range(2)
        ]
        self._makers = [
            Producer(self._named(f"make{at}"), clock=clock, rng=rng.split(f"make{at}"))
            for at in range(2)
        ]
        for one in (*self._pullers, *self._makers):
            await one.start()
        steps: dict[str, Callable[[Any], Awaitable[None]]] = {
            "contend": self._contend, "ask_time": self._ask_time, "ask_stats": self._ask_stats,
            "hold": self._hold, "make": self._make, "join": self._join,
        }  # fmt: skip
        number = 0
        while clock.monotonic_ms() < self._until_ms:
            number += 1
            stream = rng.split(f"step{number}")
            await asyncio.sleep(stream.exponential(self._every_ms) / MS_PER_S)
            step = stream.split("what").weighted(list(SHARES), list(SHARES.values()))
            try:
                await steps[step](stream)
            except RemotingError:
                self._validators.record.count("client_errors")
        await asyncio.get_running_loop().create_future()

    def _named(self, instance: str) -> ClientConfig:
        name = f"{self._config.instance_name}-{instance}"
        return dataclasses.replace(self._config, group=TOOLS_GROUP, instance_name=name)

    async def _queue(self, rng: Any, count: int | None = None) -> MessageQueue | None:  # noqa: ANN401  # a stream
        queues = await self._pullers[0].fetch_subscribe_queues(TOPIC)
        known = [one for one in queues if self._validators.is_known(one)]
        return rng.split("queue").choice(known[:count]) if known else None

    async def _contend(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Ask for a lock under two names in one turn; who has it keeps it, or gives it back."""
        queue = await self._queue(rng, CONTENDED)
        if queue is None:
            return
        self._asked += 1
        owners = [f"{self.name}-{self._machine.incarnation}-{self._asked}-{at}" for at in range(2)]
        addr = self._pullers[0]._leaders.master(queue)
        apis = [one._instance.api for one in self._pullers]
        given = await asyncio.gather(
            *(api.lock(addr, one, [queue]) for api, one in zip(apis, owners, strict=True)),
            return_exceptions=True,
        )
        has = [
            (api, owner)
            for api, owner, one in zip(apis, owners, given, strict=True)
            if not isinstance(one, BaseException) and queue in one
        ]
        self._validators.record.count("locks_contended", len(has))
        kept_ms = rng.split("kept").choice(KEPT_MS)
        if has and kept_ms <= self._until_ms:
            await asyncio.sleep(kept_ms / MS_PER_S)
            api, owner = has[0]
            await api.unlock(addr, owner, [queue])

    async def _ask_time(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Ask where a queue was at a time, as wide as times may be."""
        queue = await self._queue(rng)
        if queue is None:
            return
        place = (queue.topic, queue.queue_id)
        stored_ms = self._validators.of(queue).choose_time(place, rng.split("time").randint(0, 999))
        around = (stored_ms or 0) + rng.split("around").randint(-AROUND_MS, AROUND_MS)
        wanted = rng.split("which").weighted((around, 0, FAR_MS), (0.7, 0.15, 0.15))
        fields = {
            "topic": queue.topic, "queueId": str(queue.queue_id), "timestamp": str(max(0, wanted)),
        }  # fmt: skip
        if boundary := rng.split("boundary").choice(BOUNDARIES):
            fields["boundaryType"] = boundary
        await self._request_of(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        self._validators.record.count("times_asked")

    async def _ask_stats(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Ask where the queues of a topic are, or a group in them."""
        queue = await self._queue(rng)
        if queue is None:
            return
        group = rng.split("group").choice((GROUP, PULL_GROUP))
        code, fields = rng.split("what").choice((
            (RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
            (RequestCode.GET_CONSUME_STATS, {"consumerGroup": group, "topic": TOPIC}),
            (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}),
            (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC}),
        ))  # fmt: skip
        await self._request_of(queue, code, fields)
        self._validators.record.count("stats_asked")
        if rng.split("producers").chance(0.5):
            fields = {"producerGroup": TOOLS_GROUP, "topic": TOPIC}
            await self._request_of(queue, RequestCode.GET_PRODUCER_CONNECTION_LIST, fields)

    async def _make(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Make two topics, one a moment behind the other; perhaps remove one of them."""
        if self._made >= TOPICS_MAX:
            return
        if rng.split("changed").chance(CHANGED_P):
            await self._change()
            return
        names = []
        for _ in range(2):
            self._made += 1
            names.append(f"{self.name}-{self._machine.incarnation}-{self._made}")
        first = asyncio.ensure_future(self._makers[0].create_topic(names[0], 1))
        await asyncio.sleep(rng.split("apart").choice(APART_MS) / MS_PER_S)
        ended = await asyncio.gather(
            first, self._makers[1].create_topic(names[1], 1), return_exceptions=True
        )
        made = sum(not isinstance(one, BaseException) for one in ended)
        self._validators.record.count("tools_topics", made)
        queue = await self._queue(rng) if rng.split("removed").chance(REMOVED_P) else None
        if queue is not None and made == len(names):
            fields = {"topic": rng.split("which").choice(names)}
            await self._request_of(queue, RequestCode.GET_ALL_TOPIC_CONFIG, {})
            told = await self._request_of(queue, RequestCode.DELETE_TOPIC_IN_BROKER, fields)
            await self._request_of(queue, RequestCode.GET_ALL_TOPIC_CONFIG, {})
            is_removed = told.code == ResponseCode.SUCCESS
            self._validators.record.count("tools_topics_removed", is_removed)

    async def _change(self) -> None:
        """Have a topic grow, then take a queue from those who write: a group is in it still."""
        self._made += 1
        topic = f"{self.name}-{self._machine.incarnation}-{self._made}"
        await self._makers[0].create_topic(topic, 1)
        await self._makers[1].create_topic(topic, CONTENDED)
        queues = await self._pullers[0].fetch_subscribe_queues(topic)
        if len(queues) < CONTENDED or not all(map(self._validators.is_known, queues)):
            return
        queue = queues[-1]
        where = {"topic": topic, "queueId": str(queue.queue_id)}
        offset = {"consumerGroup": GROUP, **where, "commitOffset": "0"}
        await self._request_of(queue, RequestCode.UPDATE_CONSUMER_OFFSET, offset)
        narrow = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(CONTENDED),
            "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        told = await self._request_of(queue, RequestCode.UPDATE_AND_CREATE_TOPIC, narrow)
        is_narrow = told.code == ResponseCode.SUCCESS
        self._validators.record.count("tools_topics_narrowed", is_narrow)

    async def _hold(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Let pulls wait at the end of a queue, on several connections, of which some close."""
        queue = await self._queue(rng)
        if queue is None:
            return
        end = await self._pullers[0].max_offset(queue)
        addr = self._pullers[0]._leaders.master(queue)
        self._tasks = {task for task in self._tasks if not task.done()}
        loop = asyncio.get_running_loop()
        for at in range(HELD):
            stream = rng.split(f"held{at}")
            closes_ms = HELD_MS if at % 2 else stream.split("closes").randint(1, HELD_MS)
            self._tasks.add(loop.create_task(self._wait(addr, queue, end, closes_ms)))

    async def _wait(self, addr: str, queue: MessageQueue, offset: int, closes_ms: int) -> None:
        connection = await RawConnection.dial(addr, self._machine.address)
        if connection is None:
            return
        fields = {
            "consumerGroup": TOOLS_GROUP, "topic": queue.topic, "queueId": str(queue.queue_id),
            "queueOffset": str(offset), "maxMsgNums": "1", "sysFlag": SUSPENDS,
            "commitOffset": "0", "suspendTimeoutMillis": str(HELD_MS), "subscription": "*",
            "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        connection.write(frame_of(RequestCode.PULL_MESSAGE, 1, fields))
        await asyncio.sleep(closes_ms / MS_PER_S)
        connection.close()
        self._validators.record.count("pulls_held_and_closed")

    async def _join(self, rng: Any) -> None:  # noqa: ANN401  # likewise
        """Join a group that is new, hang up at once, and ask later who its members are."""
        queue = await self._queue(rng)
        if queue is None:
            return
        addr = self._pullers[0]._leaders.master(queue)
        connection = await RawConnection.dial(addr, self._machine.address)
        if connection is None:
            return
        self._joined += 1
        group = f"{self.name}-{self._machine.incarnation}-joins-{self._joined}"
        body = {
            "clientID": f"{group}@once",
            "consumerDataSet": [{
                "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": queue.topic, "subString": "*", "subVersion": 1}],
            }],
        }  # fmt: skip
        connection.write(frame_of(RequestCode.HEART_BEAT, 1, {}, body=json.dumps(body).encode()))
        await asyncio.sleep(rng.split("hangs up").choice(HANGS_UP_MS) / MS_PER_S)
        connection.close()
        self._validators.record.count("joined_and_gone")
        fields = {"consumerGroup": group}
        for wait_s in (0.0, GONE_S):
            await asyncio.sleep(wait_s)
            await self._request_of(queue, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)

    async def _request_of(
        self, queue: MessageQueue, code: RequestCode, fields: dict[str, str]
    ) -> RemotingCommand:  # fmt: skip
        puller = self._pullers[0]
        command = RemotingCommand(code=code, ext_fields=fields)
        addr = puller._leaders.master(queue)
        if code is RequestCode.DELETE_TOPIC_IN_BROKER and addr in self._brokers:
            self._signed += 1
            command = sign(
                command, KeyCredentials(PEER_KEY.encode(), self.name),
                now_ms=self._machine.clock.wall_ms(),
                nonce=f"{self.name}-{self._machine.incarnation}-{self._signed}",
                audience=f"{GROUP_NAME}/{self._brokers[addr]}",
            )  # fmt: skip
        return await puller._instance.client.request(addr, command, ASK_MS)
