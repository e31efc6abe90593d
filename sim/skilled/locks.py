"""Topics with other queues to read than to write, and locks that are given back too late.

What lies in a queue is consumed, at once and in order, whether or not anybody may still write
there, so such a queue can be locked. Who gives a lock back that has run out, and that somebody else
has by now, changes nothing: what is granted is judged on the wire, and what holds by the log.
Source: spec/wire.md 3.7 (41, 42), 7.1; RocketMQ RebalanceLockManager.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Final

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    RemotingError,
    SendStatus,
)
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from sim.everyday.life import MS_PER_S
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.everyday.life import Life
    from sim.rng import SplitRng

QUEUES: Final = 4
FEW: Final = 2
SHAPES: Final = ((QUEUES, FEW), (QUEUES, FEW), (QUEUES, QUEUES), (FEW, QUEUES))
"""Queues to read, and to write."""
LATE_P: Final = 0.5
LEASE_MAX_MS: Final = 4_000
"""Longer ones are not waited for."""
SLACK_MS: Final = 600
"""How long after its lease a lock is free at the latest: the log takes its time."""
KINDS: Final = (False, True)
"""Whether a group consumes in order."""


class Locks:
    """Clients of one such topic.

    Args:
        lease_ms: how long a lock holds.
        on_made: told of a consumer before it starts.
        is_steady: whether clocks run as time does, so that a lease is as long as it says.
    """

    def __init__(
        self, life: Life, lease_ms: int, on_made: Callable[[PushConsumer], None], *, is_steady: bool
    ) -> None:  # fmt: skip
        self._life = life
        self._lease_ms = lease_ms
        self._is_steady = is_steady
        self._topic = f"{life.name}-narrow"
        self._sent = self._owners = 0
        self._read = 0
        """How many queues are read for certain; it is not known after a change that failed."""
        self._stored: dict[bytes, MessageQueue] = {}
        self._places: dict[bytes, int] = {}
        self._got: dict[bool, set[bytes]] = {is_orderly: set() for is_orderly in KINDS}
        config, rng = life.named("narrow"), life.rng.split("narrow")
        clock = life.machine.clock
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))
        self._consumers = []
        for is_orderly in KINDS:
            name = f"narrow-{'in-order' if is_orderly else 'readers'}"
            options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, orderly=is_orderly)
            consumer = PushConsumer(
                life.named(name), partial(self._take, self._got[is_orderly]), options,
                clock=clock, rng=rng.split(name),
            )  # fmt: skip
            consumer.subscribe(self._topic)
            on_made(consumer)
            self._consumers.append(consumer)

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, QUEUES)
        self._read = QUEUES
        for consumer in self._consumers:
            await consumer.start()

    async def step(self, rng: SplitRng) -> None:
        """Send to all queues and change them, or lock one. Errors: `RemotingError`."""
        if rng.split("late").chance(LATE_P):
            await self._lock(rng)
            return
        for queue_id in range(QUEUES):
            await self._send(MessageQueue(self._topic, GROUP_NAME, queue_id))
        await self._change(*rng.split("shape").choice(SHAPES))

    async def _send(self, queue: MessageQueue) -> None:
        self._sent += 1
        body = f"{self._topic} {self._sent}".encode()
        try:
            result = await self._producer.send(Message(self._topic, body), queue)
        except RemotingError:  # it may be one that is not written now
            self._life.count("client_errors")
            return
        if result.status is SendStatus.SEND_OK:
            self._stored[body], self._places[body] = result.queue, result.queue_offset

    async def _change(self, read: int, write: int) -> None:
        fields = {
            "topic": self._topic, "defaultTopic": "TBW102", "readQueueNums": str(read),
            "writeQueueNums": str(write), "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        self._read = min(self._read, read)
        told = await self._life.ask_leader(
            self._puller, RequestCode.UPDATE_AND_CREATE_TOPIC, fields, signs=True
        )
        if told.code == ResponseCode.SUCCESS:
            self._read = read
            self._life.count("queues_changed")

    async def _lock(self, rng: SplitRng) -> None:
        """Lock all queues for a new group; one is given back late. Errors: `RemotingError`."""
        life = self._life
        await self._puller.fetch_subscribe_queues(self._topic)
        self._owners += 1
        group = f"{self._topic}-{self._owners}"
        given = await self._ask(RequestCode.LOCK_BATCH_MQ, group, "first", range(QUEUES))
        if given is None:
            return
        life.count("queues_locked")
        if not self._is_steady or self._lease_ms > LEASE_MAX_MS:
            return
        await asyncio.sleep((self._lease_ms + SLACK_MS) / MS_PER_S)
        queue_id = rng.split("queue").randint(0, QUEUES - 1)
        second, _ = await asyncio.gather(  # the lease that is over may still be noted
            self._ask(RequestCode.LOCK_BATCH_MQ, group, "second", [queue_id]),
            self._ask(RequestCode.UNLOCK_BATCH_MQ, group, "first", [queue_id]),
        )
        if second:
            life.count("locks_given_back_late")
            await self._ask(RequestCode.LOCK_BATCH_MQ, group, "third", [queue_id])

    async def _ask(
        self, code: RequestCode, group: str, owner: str, queues: object
    ) -> list[int] | None:
        """Return the queues that are given; None where it is not known. Errors: `RemotingError`."""
        body = {
            "consumerGroup": group,
            "clientId": f"{group}-{owner}",
            "mqSet": [
                {"topic": self._topic, "brokerName": GROUP_NAME, "queueId": queue_id}
                for queue_id in queues  # type: ignore[attr-defined]  # a range or a list
            ],
        }
        told = await self._life.ask_leader(self._puller, code, {}, body=json.dumps(body).encode())
        if told.code != ResponseCode.SUCCESS:
            return None
        if not told.body:
            return []
        return sorted(one["queueId"] for one in json.loads(bytes(told.body))["lockOKMQSet"])

    async def _take(
        self, got: set[bytes], messages: list[MessageExt], _context: ConsumeContext
    ) -> ConsumeStatus:
        got.update(bytes(one.content()) for one in messages)
        self._life.count("narrow_taken", len(messages))
        return ConsumeStatus.CONSUME_SUCCESS

    def missing(self) -> str:
        """Say what lies in a queue that is read, and was not consumed by each group."""
        for is_orderly, got in self._got.items():
            for body in self._stored.keys() - got:
                queue, offset = self._stored[body], self._places[body]
                if queue.queue_id < self._read and not self._life.is_dropped(queue, offset):
                    how = "in order" if is_orderly else "at once"
                    return f"{body!r} at {queue} {offset} was not consumed {how}"
        return ""
