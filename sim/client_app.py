"""A client of the simulation: the production's producer and pull consumer, driven by operations.

One process on a host of its own. What it learns is noted in the harness's `Record` and judged at
once by `sim.oracles.clients`; both survive when the process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from chaos.history.outcome import Outcome, is_definite
from chaos.history.payload import encode_body, make_key
from ledgermq.client import (
    Attempt,
    ClientConfig,
    MessageFinder,
    Producer,
    PullConsumer,
    RemotingError,
    SendFailed,
    SendResult,
    SendStatus,
)
from ledgermq.client import Outcome as ClientOutcome
from ledgermq.remoting.protocol.errors import NoPermission
from sim.edging import due_at_once
from sim.oracles.delays import SCHEDULE_TOPIC
from sim.reads import Reads
from sim.workload import (
    KEYS_PER_OP,
    LATER_TOPIC,
    ORDERED_TOPIC,
    PULL_GROUP,
    QUEUES_MORE,
    STEP_TOPIC,
    TASK_TOPIC,
    TOPIC,
    Kind,
    Op,
    topics_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import Message, MessageQueue, QueueSelector
    from sim.context import Host
    from sim.faults.plan import Workload
    from sim.record import Record, Row
    from sim.validators import Validators

MS_PER_S: Final = 1000
RETRY_S: Final = 0.2
LAST_NUMBER: Final = 1 << 30
"""Where operations begin that belong to no plan."""
LAST_BYTES: Final = 64
CANCEL_MS_MAX: Final = 40
"""A send that is cancelled is under way for so long, at most."""


def chosen_once(queue: MessageQueue) -> QueueSelector:
    """Return what chooses a queue, and others whenever it is asked again: nobody should."""
    asked = 0

    def choose(queues: Sequence[MessageQueue], _message: Message) -> MessageQueue:
        nonlocal asked
        asked += 1
        return queue if asked == 1 else queues[(queues.index(queue) + asked - 1) % len(queues)]

    return choose


class ClientApp:
    """A host that sends and asks.

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
        validators: Validators,
        workload: Workload,
    ) -> None:
        self.name = name
        self._pid = number + 1
        self._config = config
        self._workload = workload
        self._clock = machine.clock
        self._record: Record = validators.record
        self._validators = validators
        self._tag = bytes.fromhex(self._record.tag)
        self._ordered: dict[int, asyncio.Lock] = {}
        """By queue: who sends in order waits for the one before."""
        self._rng = machine.rng.split(f"life{machine.incarnation}")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._all_begun = False
        self._last = 0
        self.has_sent_last = False
        """Whether it can still send, with everything healed."""

    @property
    def is_busy(self) -> bool:
        """Whether it has operations under way, or to begin."""
        return bool(self._tasks) or not self._all_begun

    @property
    def _grown(self) -> int:
        return self._workload.queues + QUEUES_MORE

    async def run(self, operations: Sequence[Op]) -> None:
        """Carry out operations at their times."""
        config = self._config
        self._producer = Producer(config, clock=self._clock, rng=self._rng.split("producer"))
        pull_config = ClientConfig(
            namesrv_addrs=config.namesrv_addrs,
            group=PULL_GROUP,
            instance_name=f"{self.name}-pull",
            heartbeat_ms=config.heartbeat_ms,
            source_address=config.source_address,
            process_id=config.process_id,
        )
        self._puller = PullConsumer(pull_config, clock=self._clock, rng=self._rng.split("pull"))
        self._record.follow(self._producer)
        finder = MessageFinder(
            dataclasses.replace(config, instance_name=f"{self.name}-find"),
            clock=self._clock,
            rng=self._rng.split("find"),
        )
        clients = (self._puller, finder)
        self._reads = Reads(self.name, clients, self._record, self._validators, self._workload)
        await self._producer.start()
        await self._puller.start()
        if self._workload.query_p:
            await finder.start()
        for topic, count in topics_of(self._workload).items():
            await self._make_topic(topic, count)
        self._begin_due(deque(operations))
        await asyncio.get_running_loop().create_future()

    async def send_last(self) -> None:
        """Send as it is now, until the group has acknowledged one message of it."""
        while not self.has_sent_last:
            self._last += 1
            number = LAST_NUMBER + self._last
            key = make_key(self._pid, number * KEYS_PER_OP)
            body = encode_body(self._tag, key, LAST_BYTES)
            rows = self._record.sending(number, TOPIC, [(key, body)])
            try:
                result = await self._producer.send(self._validators.message(TOPIC, key, body))
            except RemotingError as error:
                self._refused(rows, error)
                await asyncio.sleep(RETRY_S)
            else:
                self._acknowledged(rows, result)
                self.has_sent_last = self._validators.is_known(result.queue)
                if not self.has_sent_last:  # the route lacks the group
                    await asyncio.sleep(RETRY_S)

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

    # Operations

    async def _make_topic(self, topic: str, count: int) -> None:
        while True:
            try:
                if self._validators.brokers > 1:  # one that came later is not on the topic's route
                    await self._producer.routes.refresh(self._config.default_topic)
                with contextlib.suppress(NoPermission):  # it has grown: who takes queues away signs
                    grown = topic == TOPIC and self._record.has_grown
                    await self._producer.create_topic(topic, self._grown if grown else count)
                queues = await self._producer.fetch_publish_queues(topic)
            except RemotingError:
                queues = []
            if len({queue.broker_name for queue in queues}) >= self._validators.brokers:
                return
            await asyncio.sleep(RETRY_S)

    async def _perform(self, op: Op) -> None:
        try:
            match op.kind:
                case Kind.SEND | Kind.BATCH:
                    await self._send(op, self._bodies(op))
                case Kind.BURST:
                    await asyncio.gather(*(self._send(op, [one]) for one in self._bodies(op)))
                case Kind.ORDERED:
                    await self._send_ordered(op)
                case Kind.DELAY | Kind.TASK:
                    await self._send_special(op)
                case Kind.STEP:
                    await self._send_step(op)
                case Kind.CANCEL:
                    await self._send_and_cancel(op)
                case Kind.GROW:
                    self._record.has_grown = True
                    await self._producer.create_topic(TOPIC, self._grown)
                case _:
                    await self._reads.perform(op)
        except RemotingError:
            self._record.count("client_errors")
            self._reads.forget_queues()
        finally:
            self._tasks.pop(op.number, None)

    def _bodies(self, op: Op) -> list[tuple[int, bytes]]:
        count = op.messages if op.kind in {Kind.BATCH, Kind.BURST} else 1
        keys = [make_key(self._pid, op.number * KEYS_PER_OP + at) for at in range(count)]
        return [(key, encode_body(self._tag, key, op.size_bytes)) for key in keys]

    async def _send(self, op: Op, bodies: list[tuple[int, bytes]]) -> None:
        rows = self._record.sending(op.number, TOPIC, bodies)
        messages = [self._validators.message(TOPIC, key, body) for key, body in bodies]
        try:
            if op.kind is Kind.BATCH:
                result = await self._producer.send_batch(messages)
            else:
                result = await self._producer.send(messages[0])
        except RemotingError as error:
            self._refused(rows, error)
            return
        self._acknowledged(rows, result)

    async def _send_and_cancel(self, op: Op) -> None:
        """Begin a send, alone or in the same turn as others, and give it up in flight."""
        bodies = [
            (key, encode_body(self._tag, key, op.size_bytes))
            for key in (
                make_key(self._pid, op.number * KEYS_PER_OP + at) for at in range(op.messages)
            )
        ]
        loop = asyncio.get_running_loop()
        sends = [loop.create_task(self._send(op, [one])) for one in bodies]
        await asyncio.sleep(op.choice % CANCEL_MS_MAX / MS_PER_S)
        for task in sends[: 1 + op.choice % len(sends)]:
            task.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        self._record.count("cancelled", sum(task.cancelled() for task in sends))

    async def _send_ordered(self, op: Op) -> None:
        """Send one after the other to one queue, each once the one before it has been answered."""
        number = op.choice % self._workload.ordered_queues
        async with self._ordered.setdefault(number, asyncio.Lock()):
            queue = await self._reads.queue(ORDERED_TOPIC, self._pid + number)
            bodies = self._bodies(op)
            rows = self._record.sending(op.number, ORDERED_TOPIC, bodies)
            message = self._validators.message(ORDERED_TOPIC, *bodies[0])
            try:
                wanted = queue if op.number % 2 else chosen_once(queue)
                result = await self._producer.send(message, wanted)
            except RemotingError as error:
                self._refused(rows, error)
                return
            self._validators.answers(queue).on_chosen(queue, result.queue)
            place = (result.queue.topic, result.queue.queue_id)
            stream = f"{self.name}-{number}"
            validator = self._validators.of(result.queue)
            validator.on_ordered(stream, place, op.number, result.queue_offset)
            self._acknowledged(rows, result)

    async def _send_special(self, op: Op) -> None:
        """Send a message that waits, or one whose listener may fail."""
        at_once = due_at_once(self._workload)
        if op.kind is Kind.DELAY and at_once:
            many = op._replace(kind=Kind.BURST, messages=at_once)
            await asyncio.gather(*(self._send_one_special(op, one) for one in self._bodies(many)))
        else:
            await self._send_one_special(op, *self._bodies(op))

    async def _send_one_special(self, op: Op, body: tuple[int, bytes]) -> None:
        bodies, waits_in = [body], None
        topic = LATER_TOPIC if op.kind is Kind.DELAY else TASK_TOPIC
        message = self._validators.message(topic, *bodies[0])
        rows = self._record.sending(op.number, topic, bodies)
        if op.kind is Kind.DELAY:
            level = op.choice % self._validators.levels
            message = msgspec.structs.replace(message, delay_level=level + 1)
            waits_in = (SCHEDULE_TOPIC, level)
            rows[0]["lies_in"] = SCHEDULE_TOPIC
        try:
            result = await self._producer.send(message)
        except RemotingError as error:
            self._refused(rows, error)
            return
        self._acknowledged(rows, result, waits_in)

    async def _send_step(self, op: Op) -> None:
        """Send one message of a key, once that before it has been answered."""
        assert self._workload.orderly is not None
        number = op.choice % self._workload.orderly.keys
        async with self._ordered.setdefault(-1 - number, asyncio.Lock()):
            bodies = self._bodies(op)
            rows = self._record.sending(op.number, STEP_TOPIC, bodies)
            message = self._validators.message(STEP_TOPIC, *bodies[0])
            message = msgspec.structs.replace(message, sharding_key=f"key{number}")
            try:
                result = await self._producer.send(message)
            except RemotingError as error:
                self._refused(rows, error)
                return
            place = (result.queue.topic, result.queue.queue_id)
            stream = f"{self.name}-key{number}"
            validator = self._validators.of(result.queue)
            validator.on_ordered(stream, place, op.number, result.queue_offset)
            self._acknowledged(rows, result)

    def _acknowledged(
        self, rows: list[Row], result: SendResult, waits_in: tuple[str, int] | None = None
    ) -> None:
        """Note a success; ``waits_in``: the queue in which a message is put by."""
        status, queue, attempts = result.status, result.queue, result.attempts
        offset = result.queue_offset
        place = waits_in or (queue.topic, queue.queue_id)
        ok = status is SendStatus.SEND_OK
        for number, row in enumerate(rows):
            columns = {
                "queue_id": queue.queue_id,
                "queue_offset": offset + number,
                "attempts": len(attempts),
                "possible": possible_of(attempts),
                "node": attempts[-1].broker_addr,
                "err_code": None if ok else int(status),
                "broker": queue.broker_name,
            }
            self._record.sent([row], "ok" if ok else "info", **columns)
        if ok:
            validator = self._validators.of(queue)
            validator.on_acknowledged(place, offset, [row["msg_key"] for row in rows])
            if waits_in is not None:
                return  # nobody asks for it by key as long as it waits
            ids = zip(result.msg_id.split(","), result.offset_msg_id.split(","), strict=False)
            for row, (unique, stored) in zip(rows, ids, strict=False):
                self._reads.known.add(row["msg_key"], queue, unique, stored)

    def _refused(self, rows: list[Row], error: RemotingError) -> None:
        attempts = error.attempts if isinstance(error, SendFailed) else ()
        outcome = Outcome.FAIL if is_stored_nowhere(error) else Outcome.INFO
        code = attempts[-1].code if attempts else None
        self._reads.forget_queues()
        self._record.sent(
            rows, outcome.value, err_code=code, attempts=max(1, len(attempts)),
            possible=possible_of(attempts),
        )  # fmt: skip


def is_stored_nowhere(error: RemotingError) -> bool:
    """Tell whether a send that failed has certainly stored nothing."""
    attempts = error.attempts if isinstance(error, SendFailed) else ()
    return error.outcome is ClientOutcome.FAILED and all(map(_stored_nothing, attempts))


def possible_of(attempts: Sequence[Attempt]) -> int:
    """Return how many attempts may have stored something: those that were not refused."""
    return sum(not _stored_nothing(attempt) for attempt in attempts)


def _stored_nothing(attempt: Attempt) -> bool:
    if attempt.outcome is not ClientOutcome.FAILED:
        return False
    return attempt.code is None or is_definite(attempt.code)
