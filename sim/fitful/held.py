"""A group that consumes in order, of more queues than it works at, with listeners that take long.

Members join and leave while calls run for longer than anybody waits for them, so that queues are
wanted by others meanwhile; and at times somebody takes a lock away, as where a lease ran out. Who
has a queue, and what it begins and commits, is judged by `sim.oracles.turns`.
Source: docs/consumption.md (in order); RocketMQ ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import dataclasses
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
)
from ledgermq.remoting.protocol.codes import RequestCode
from sim.everyday.life import MS_PER_S
from sim.fitful.members import stop_in_time
from sim.oracles.turns import Turns
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.everyday.life import Life
    from sim.rng import SplitRng

QUEUES: Final = 6
MEMBERS_MAX: Final = 3
SENDS_MAX: Final = 8
LONG_P: Final = 0.12
LONG_MS: Final = 1_700
"""Longer than a rebalance waits for a call, and shorter than what is left of a lock that is valid
no more for its owner."""
SHORT_MS: Final = 60
FAIL_P: Final = 0.05
SUSPEND_MS: Final = 50
RENEW_MS: Final = 1_000
"""How often members renew locks, so that they hear soon of one that is gone."""
STOPS_MS: Final = (200, 10_000)
"""How long a stop waits for calls."""
THIEF: Final = "a thief"
THEFT_LOOKS: Final = 60
LOOK_S: Final = 0.1
STEPS: Final = {"send": 5.0, "join": 2.0, "leave": 1.0, "theft": 2.0, "reset": 1.0}


class HeldQueues:
    """Such a group on one machine.

    Args:
        on_made: hears of each member before it starts.
    """

    def __init__(self, life: Life, on_made: Callable[[PushConsumer], None]) -> None:
        self._life = life
        self._on_made = on_made
        self._topic = f"{life.name}-held"
        self._queues = [MessageQueue(self._topic, GROUP_NAME, at) for at in range(QUEUES)]
        self._turns = Turns(self._topic, life.report)
        self._members: dict[str, PushConsumer] = {}
        self._made = self._sent = self._calls = 0
        clock, rng = life.machine.clock, life.rng.split("held")
        self._rng = rng
        self._concurrency = rng.split("concurrency").choice((1, 2, 20))
        config = dataclasses.replace(life.named("held"), group=self._topic)
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))
        self._thefts: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, QUEUES)
        await self._join(self._rng.split("first"))

    async def step(self, rng: SplitRng) -> None:
        """Send, join, leave, take a lock away, or go on elsewhere. Errors: `RemotingError`."""
        what = rng.split("what").weighted(list(STEPS), list(STEPS.values()))
        if what == "join" and len(self._members) < MEMBERS_MAX:
            await self._join(rng)
        elif what == "leave" and len(self._members) > 1:
            name = rng.split("who").choice(sorted(self._members))
            await stop_in_time(self._life, self._members.pop(name))
        elif what == "theft" and not self._turns.disturbed:
            work = self._steal(rng.split("queue").choice(self._queues))
            self._thefts.add(task := asyncio.get_running_loop().create_task(work))
            task.add_done_callback(self._thefts.discard)
        elif what == "reset":
            await self._reset()
        else:
            await self._send(rng)

    async def _join(self, rng: SplitRng) -> None:
        self._made += 1
        life, name = self._life, f"held-{self._made}"
        config = dataclasses.replace(
            life.named(name), group=self._topic,
            stop_timeout_ms=rng.split("stops").choice(STOPS_MS),
        )  # fmt: skip
        options = ConsumeOptions(
            orderly=True, consume_from=ConsumeFrom.FIRST_OFFSET, concurrency=self._concurrency,
            order_suspend_ms=SUSPEND_MS,
        )  # fmt: skip

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
            return await self._listen(name, push, messages[0], context)

        push = PushConsumer(
            config, listen, options, clock=life.machine.clock, rng=self._rng.split(name)
        )
        push.subscribe(self._topic)
        self._on_made(push)
        assert push.locks is not None
        push.locks.renew_ms = min(push.locks.renew_ms, RENEW_MS)
        self._turns.follow(name, push)
        self._members[name] = push
        await push.start()

    async def _listen(
        self, name: str, push: PushConsumer, message: MessageExt, context: ConsumeContext
    ) -> ConsumeStatus:
        queue, offset, turns = context.queue, message.queue_offset, self._turns
        held = push.assignment._held.get(queue)
        is_held = held is not None and not held.process_queue.dropped
        first = self._life.dropped.get((queue.topic, queue.queue_id), 0)
        turns.on_begun(name, queue.queue_id, offset, first, is_held=is_held)
        self._calls += 1
        rng, is_done = self._rng.split(f"call{self._calls}"), False
        try:
            long_ms = LONG_MS if rng.split("long").chance(LONG_P) else SHORT_MS
            await asyncio.sleep(rng.point("work") * long_ms / MS_PER_S)
            is_done = not rng.split("fail").chance(FAIL_P)
        finally:
            turns.on_ended(name, queue.queue_id, offset, is_done=is_done)
        self._life.count("held_steps")
        if is_done:
            return ConsumeStatus.CONSUME_SUCCESS
        return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

    async def _send(self, rng: SplitRng) -> None:
        for at in range(rng.split("count").randint(1, SENDS_MAX)):
            self._sent += 1
            queue = rng.split(f"to{at}").choice(self._queues)
            body = f"{self._topic} {self._sent}".encode()
            await self._producer.send(Message(self._topic, body), queue)

    async def _reset(self) -> None:
        """Have the group go on at the beginning."""
        fields = {
            "topic": self._topic, "group": self._topic,
            "timestamp": "0", "isForce": "true",
        }  # fmt: skip
        await self._puller.fetch_subscribe_queues(self._topic)
        await self._life.ask_leader(self._puller, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        self._life.count("held_resets")

    async def _steal(self, queue: MessageQueue) -> None:
        """Take the lock of a queue from who has it, until that has heard of it and given it up."""
        owners = [one for one in self._members.values() if queue in one.assigned_queues]
        if len(owners) != 1:
            return
        owner, turns = owners[0], self._turns
        held = owner.assignment._held[queue]
        api, number = self._puller._instance.api, queue.queue_id
        turns.disturbed.add(number)
        try:
            await self._puller.fetch_subscribe_queues(self._topic)
            addr = self._puller._leaders.master(queue)
            await api.unlock(addr, owner.client_id, [queue])
            await api.lock(addr, THIEF, [queue])
            for _ in range(THEFT_LOOKS):
                await asyncio.sleep(LOOK_S)
                is_gone = owner.assignment._held.get(queue) is not held
                if is_gone and not turns.is_at_work(number):
                    turns.disturbed.discard(number)
                    self._life.count("locks_stolen")
                    break
            await api.unlock(addr, THIEF, [queue])
        except RemotingError:
            self._life.count("client_errors")

    def missing(self) -> str:
        """What is left waits for locks that may hold for longer than a run."""
        return ""
