"""A client of the simulation: the production's producer and consumers, driven by operations.

One process on a host of its own. What it learns is noted in the harness's `Record` and judged at
once by `sim.oracles.clients`; both survive when the process is killed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from chaos.history.outcome import Outcome, is_definite
from chaos.history.payload import encode_body, make_key
from client import (
    Attempt,
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
    RemotingError,
    SendFailed,
    SendStatus,
)
from client import Outcome as ClientOutcome
from sim.oracles.records import KEYS, TAGS
from sim.workload import (
    GROUP,
    KEYS_PER_OP,
    ORDERED_TOPIC,
    PULL_GROUP,
    TOPIC,
    Kind,
    Op,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.context import Host
    from sim.oracles.clients import Clients
    from sim.record import Record, Row

MS_PER_S: Final = 1000
RETRY_S: Final = 0.2
PULL_COUNT: Final = 16
SLOW_P: Final = 0.2
SLOW_MS_MAX: Final = 400
"""A listener takes up to so long, every fifth time: what is pulled is not what is done."""


class ClientApp:
    """A producer host or a consumer host.

    Args:
        name, number: of the host, and its place among the clients.
        machine: what it runs on.
    """

    def __init__(
        self,
        name: str,
        number: int,
        config: ClientConfig,
        machine: Host,
        record: Record,
        oracle: Clients,
    ) -> None:
        self.name = name
        self._pid = number + 1
        self._config = config
        self._clock = machine.clock
        self._record = record
        self._oracle = oracle
        self._tag = bytes.fromhex(record.tag)
        self._ordered = asyncio.Lock()
        self._positions: dict[MessageQueue, int] = {}
        self._queues: dict[str, list[MessageQueue]] = {}
        """By topic, as the name servers told; asked again once something has failed."""
        self._rng = machine.rng.split(f"life{machine.incarnation}")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._all_begun = False

    @property
    def is_busy(self) -> bool:
        """Whether it has operations under way, or to begin."""
        return bool(self._tasks) or not self._all_begun

    async def run(self, operations: Sequence[Op], queues: tuple[int, int]) -> None:
        """Carry out operations at their times; ``queues`` of the plain and the ordered topic."""
        config = self._config
        self._producer = Producer(config, clock=self._clock, rng=self._rng.split("producer"))
        pull_config = ClientConfig(
            namesrv_addrs=config.namesrv_addrs,
            group=PULL_GROUP,
            instance_name=f"{self.name}-pull",
            source_address=config.source_address,
            process_id=config.process_id,
        )
        self._puller = PullConsumer(pull_config, clock=self._clock, rng=self._rng.split("pull"))
        self._record.follow(self._producer)
        await self._producer.start()
        await self._puller.start()
        for topic, count in zip((TOPIC, ORDERED_TOPIC), queues, strict=True):
            if count:
                await self._make_topic(topic, count)
        self._begin_due(deque(operations))
        await asyncio.get_running_loop().create_future()

    def _begin_due(self, operations: deque[Op]) -> None:
        """Begin the operations whose time has come, and look again when the next one's has."""
        loop = asyncio.get_running_loop()
        while operations:
            wait_ms = operations[0].at_ms - self._clock.monotonic_ms()
            if wait_ms > 0:
                loop.call_later(wait_ms / MS_PER_S, self._begin_due, operations)
                return
            op = operations.popleft()
            self._tasks[op.number] = loop.create_task(self._perform(op))
        self._all_begun = True

    async def consume(self) -> None:
        """Be a member of the group for ever."""
        self._all_begun = True
        config = ClientConfig(
            namesrv_addrs=self._config.namesrv_addrs,
            group=GROUP,
            instance_name=self.name,
            source_address=self._config.source_address,
            process_id=self._config.process_id,
            persist_offset_ms=1_000,
            rebalance_ms=5_000,
        )
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET, consume_batch_count=16)
        self._push = PushConsumer(
            config, self._listen, options, clock=self._clock,
            rng=self._rng.split("push"),
        )  # fmt: skip
        self._push.subscribe(TOPIC)
        await self._push.start()
        await asyncio.get_running_loop().create_future()

    # Operations

    async def _make_topic(self, topic: str, count: int) -> None:
        while True:
            try:
                await self._producer.create_topic(topic, count)
            except RemotingError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _perform(self, op: Op) -> None:
        try:
            match op.kind:
                case Kind.SEND | Kind.BATCH:
                    await self._send(op, self._bodies(op))
                case Kind.BURST:
                    await asyncio.gather(*(self._send(op, [one]) for one in self._bodies(op)))
                case Kind.ORDERED:
                    await self._send_ordered(op)
                case Kind.PULL:
                    await self._pull(op)
                case Kind.COMMIT:
                    await self._commit(op)
                case Kind.SEARCH:
                    await self._search(op)
                case Kind.LOCK:
                    await self._lock(op)
                case _:
                    return  # not a client's
        except RemotingError:
            self._record.count("client_errors")
            self._queues.clear()
        finally:
            self._tasks.pop(op.number, None)

    def _bodies(self, op: Op) -> list[tuple[int, bytes]]:
        count = op.messages if op.kind in {Kind.BATCH, Kind.BURST} else 1
        keys = [make_key(self._pid, op.number * KEYS_PER_OP + at) for at in range(count)]
        return [(key, encode_body(self._tag, key, op.size_bytes)) for key in keys]

    async def _send(self, op: Op, bodies: list[tuple[int, bytes]]) -> None:
        rows = self._record.sending(op.number, TOPIC, bodies)
        messages = [self._message(TOPIC, key, body) for key, body in bodies]
        try:
            if op.kind is Kind.BATCH:
                result = await self._producer.send_batch(messages)
            else:
                result = await self._producer.send(messages[0])
        except RemotingError as error:
            self._refused(rows, error)
            return
        self._acknowledged(rows, result.status, result.queue, result.queue_offset, result.attempts)

    async def _send_ordered(self, op: Op) -> None:
        """Send one after the other to one queue, each once the one before it has been answered."""
        async with self._ordered:
            queue = await self._queue(ORDERED_TOPIC, self._pid)
            bodies = self._bodies(op)
            rows = self._record.sending(op.number, ORDERED_TOPIC, bodies)
            message = self._message(ORDERED_TOPIC, *bodies[0])
            try:
                result = await self._producer.send(message, queue)
            except RemotingError as error:
                self._refused(rows, error)
                return
            place = (queue.topic, queue.queue_id)
            self._oracle.on_ordered(self.name, place, op.number, result.queue_offset)
            self._acknowledged(
                rows, result.status, result.queue, result.queue_offset, result.attempts
            )

    def _message(self, topic: str, key: int, body: bytes) -> Message:
        return Message(topic, body, tags=self._record.tag_of(key), keys=str(key))

    def _acknowledged(
        self,
        rows: list[Row],
        status: SendStatus,
        queue: MessageQueue,
        offset: int,
        attempts: tuple[Attempt, ...],
    ) -> None:
        place = (queue.topic, queue.queue_id)
        ok = status is SendStatus.SEND_OK
        for number, row in enumerate(rows):
            columns = {
                "queue_id": queue.queue_id,
                "queue_offset": offset + number,
                "attempts": len(attempts),
                "possible": _possible(attempts),
                "node": attempts[-1].broker_addr,
                "err_code": None if ok else int(status),
            }
            self._record.sent([row], "ok" if ok else "info", **columns)
        if ok:
            self._oracle.on_acknowledged(place, offset, [row["msg_key"] for row in rows])

    def _refused(self, rows: list[Row], error: RemotingError) -> None:
        attempts = error.attempts if isinstance(error, SendFailed) else ()
        definite = error.outcome is ClientOutcome.FAILED and all(map(_stored_nothing, attempts))
        outcome = Outcome.FAIL if definite else Outcome.INFO
        code = attempts[-1].code if attempts else None
        self._queues.clear()
        self._record.sent(
            rows, outcome.value, err_code=code, attempts=max(1, len(attempts)),
            possible=_possible(attempts),
        )  # fmt: skip

    async def _queue(self, topic: str, choice: int) -> MessageQueue:
        queues = self._queues.get(topic)
        if not queues:
            queues = self._queues[topic] = await self._puller.fetch_subscribe_queues(topic)
        return queues[choice % len(queues)]

    async def _pull(self, op: Op) -> None:
        queue = await self._queue(TOPIC, op.choice)
        place = (queue.topic, queue.queue_id)
        offset = self._positions.get(queue)
        if offset is None:
            stored = await self._puller.fetch_offset(queue)
            self._oracle.on_fetched(place, stored)
            offset = max(stored, 0)
        tag = self._record.tag_of(op.size_bytes)
        result = await self._puller.pull(queue, tag or "*", offset=offset, max_count=PULL_COUNT)
        if result.status in {PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE}:
            passed = range(max(offset, result.min_offset), result.next_offset)
            self._oracle.on_pulled(place, passed, tag, {m.queue_offset for m in result.messages})
        expected = offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            expected = result.next_offset  # what was there has been dropped from the log
        for message in result.messages:
            self._note(message, PULL_GROUP)
            expected = max(expected, message.queue_offset + 1)
        self._positions[queue] = max(expected, self._positions.get(queue, 0))
        self._record.count("pulls")

    async def _search(self, op: Op) -> None:
        """Ask for the first message stored at or after a time, while none is added or dropped."""
        queue = await self._queue(TOPIC, op.choice)
        place, puller = (queue.topic, queue.queue_id), self._puller
        stored_ms = self._oracle.choose_time(place, op.size_bytes)
        if stored_ms is None:
            return
        end = await puller.max_offset(queue)
        found = await puller.search_offset(queue, stored_ms)
        end = min(end, await puller.max_offset(queue))
        begin = await puller.min_offset(queue)
        self._oracle.on_searched(place, stored_ms, found, (begin, end))
        self._record.count("searches")

    async def _lock(self, op: Op) -> None:
        """Lock a queue under a name of its own, and perhaps give it back."""
        queue = await self._queue(TOPIC, op.choice)
        place, owner = (queue.topic, queue.queue_id), f"{self.name}-{op.number}"
        api, call = self._puller._instance.api, self._puller._leaders.call
        is_mine = queue in await call(queue, lambda addr: api.lock(addr, owner, [queue]))
        self._record.count("locks" if is_mine else "locks_refused")
        if is_mine:
            self._oracle.on_locked(place, owner, self._record.now_ns)
        if op.messages % 2:  # who was refused gives back, too: nothing comes of it
            await asyncio.sleep(op.size_bytes / MS_PER_S)
            self._oracle.on_unlocking(place, owner)
            await call(queue, lambda addr: api.unlock(addr, owner, [queue]))

    async def _commit(self, op: Op) -> None:
        queue = await self._queue(TOPIC, op.choice)
        offset = self._positions.get(queue)
        if offset is not None:
            self._oracle.on_offered((queue.topic, queue.queue_id), offset)
            await self._puller.commit_offset(queue, offset)
            self._record.count("commits")

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        """Work for a while at some messages; they count when that is done."""
        del context
        point = self._rng.point(f"work{messages[0].queue_id}-{messages[0].queue_offset}")
        if point < SLOW_P:
            await asyncio.sleep((1 + int(point / SLOW_P * SLOW_MS_MAX)) / MS_PER_S)
        for message in messages:
            self._note(message, GROUP)
        return ConsumeStatus.CONSUME_SUCCESS

    def _note(self, message: MessageExt, group: str) -> None:
        key, digest = self._record.delivered(message, group, self.name)
        place = (message.topic, message.queue_id)
        self._oracle.on_delivered(place, message.queue_offset, key, digest)
        told = (message.maybe_property(KEYS), message.maybe_property(TAGS))
        sent = (str(key), self._record.tag_of(key) or None)
        self._oracle.on_properties(place, message.queue_offset, told, sent)


def _possible(attempts: Sequence[Attempt]) -> int:
    """Return how many attempts may have stored something: those that were not refused."""
    return sum(not _stored_nothing(attempt) for attempt in attempts)


def _stored_nothing(attempt: Attempt) -> bool:
    if attempt.outcome is not ClientOutcome.FAILED:
        return False
    return attempt.code is None or is_definite(attempt.code)
