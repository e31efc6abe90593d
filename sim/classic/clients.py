"""Clients of a master and its slaves: production's producer and push consumer, and their work."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from chaos.history.payload import encode_body, make_key
from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RemotingError,
    SendStatus,
)
from sim.workload import GROUP, KEYS_PER_OP, LATER_TOPIC, TOPIC, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import ClientConfig, SendResult
    from sim.context import Host
    from sim.faults.plan import Workload
    from sim.record import Record, Row
    from sim.workload import Op

MS_PER_S: Final = 1000
RETRY_S: Final = 0.2
LEVELS: Final = 3
SLOW_P: Final = 0.1
SLOW_MS_MAX: Final = 200
SENDS: Final = frozenset({Kind.SEND, Kind.BATCH, Kind.BURST})


class Sender:
    """One host that sends.

    Args:
        delay_p: how many sends are to be delivered later.
    """

    def __init__(  # noqa: PLR0913 - what a world knows of a client
        self,
        name: str,
        number: int,
        config: ClientConfig,
        machine: Host,
        record: Record,
        workload: Workload,
        *,
        delay_p: float,
    ) -> None:
        self.name = name
        self._pid = number + 1
        self._config = config
        self._machine = machine
        self._record = record
        self._workload = workload
        self._delay_p = delay_p
        self._tag = bytes.fromhex(record.tag)
        self._rng = machine.rng.split(f"life{machine.incarnation}")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._all_begun = False

    @property
    def is_busy(self) -> bool:
        """Whether it has sends under way, or to begin."""
        return bool(self._tasks) or not self._all_begun

    async def run(self, operations: Sequence[Op]) -> None:
        """Send at the times of the operations."""
        clock = self._machine.clock
        self._producer = Producer(self._config, clock=clock, rng=self._rng.split("producer"))
        await self._producer.start()
        for topic in (TOPIC, LATER_TOPIC):
            await self._make_topic(topic)
        left, loop = deque(op for op in operations if op.kind in SENDS), asyncio.get_running_loop()
        while left:
            wait_ms = left[0].at_ms - clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / MS_PER_S)
                continue
            op = left.popleft()
            self._tasks[op.number] = loop.create_task(self._perform(op))
        self._all_begun = True
        await loop.create_future()

    async def _make_topic(self, topic: str) -> None:
        while True:
            try:
                await self._producer.create_topic(topic, self._workload.queues)
                if await self._producer.fetch_publish_queues(topic):
                    return
            except RemotingError:
                pass
            await asyncio.sleep(RETRY_S)

    async def _perform(self, op: Op) -> None:
        count = 1 if op.kind is Kind.SEND else op.messages
        keys = [make_key(self._pid, op.number * KEYS_PER_OP + at) for at in range(count)]
        bodies = [(key, encode_body(self._tag, key, op.size_bytes)) for key in keys]
        try:
            if op.kind is Kind.BURST:
                await asyncio.gather(*(self._send(op, [one]) for one in bodies))
            else:
                await self._send(op, bodies)
        finally:
            del self._tasks[op.number]

    async def _send(self, op: Op, bodies: list[tuple[int, bytes]]) -> None:
        is_later = op.kind is Kind.SEND and self._rng.point(f"later{op.number}") < self._delay_p
        topic = LATER_TOPIC if is_later else TOPIC
        rows = self._record.sending(op.number, topic, bodies)
        messages = [Message(topic, body, keys=str(key)) for key, body in bodies]
        try:
            if op.kind is Kind.BATCH:
                result = await self._producer.send_batch(messages)
            else:
                level = 1 + op.choice % LEVELS if is_later else 0
                one = msgspec.structs.replace(messages[0], delay_level=level)
                result = await self._producer.send(one)
        except RemotingError:
            self._record.sent(rows, "fail")
            return
        self._sent(rows, result)

    def _sent(self, rows: list[Row], result: SendResult) -> None:
        """Note what came of a send."""
        outcome = "ok" if result.status is SendStatus.SEND_OK else "info"
        for number, row in enumerate(rows):
            self._record.sent(
                [row], outcome, queue_id=result.queue.queue_id,
                queue_offset=result.queue_offset + number,
            )  # fmt: skip


class Reader:
    """One host with a member of the group.

    Args:
        done: takes the keys of what its listener has finished.
    """

    def __init__(
        self,
        name: str,
        config: ClientConfig,
        machine: Host,
        record: Record,
        done: dict[int, None],
        workload: Workload,
    ) -> None:
        self._name = name
        self._config = config
        self._machine = machine
        self._record = record
        self._done = done
        self._commit_on_pull = workload.commit_on_pull
        self._rng = machine.rng.split(f"life{machine.incarnation}")

    async def run(self) -> None:
        """Be a member of the group for ever."""
        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET,
            consume_batch_count=16,
            commit_on_pull=self._commit_on_pull,
        )
        config = dataclasses.replace(
            self._config, group=GROUP, instance_name=self._name, persist_offset_ms=1_000,
            rebalance_ms=5_000, route_poll_ms=5_000,
        )  # fmt: skip
        clock, rng = self._machine.clock, self._rng.split("push")
        push = PushConsumer(config, self._listen, options, clock=clock, rng=rng)
        self._record.follow_consumer(push)
        push.subscribe(TOPIC, "*")
        push.subscribe(LATER_TOPIC, "*")
        await push.start()
        await asyncio.get_running_loop().create_future()

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Work for a while at some messages; they count when that is done."""
        del context
        first = messages[0]
        point = self._rng.point(f"work{first.queue_id}-{first.queue_offset}")
        if point < SLOW_P:
            await asyncio.sleep((1 + int(point / SLOW_P * SLOW_MS_MAX)) / MS_PER_S)
        for message in messages:
            key, _ = self._record.delivered(message, GROUP, self._name)
            if key is not None:
                self._done[key] = None
        return ConsumeStatus.CONSUME_SUCCESS
