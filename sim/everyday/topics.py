"""Sends to topics that nobody has made, and groups that subscribe to them before.

Sends that come one behind the other over one connection lie in that order (A20, judged where they
come), also where a topic is made for the first of them meanwhile. A group that begins at the end,
and has looked for a topic before it was there, gets all that is sent to it: none of it is old.
Source: docs/security.md (what brokers let in); docs/client.md (where a group begins).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageExt,
    MessageQueue,
    NoRoute,
    PullConsumer,
    PushConsumer,
)
from ledgermq.remoting.protocol.codes import RequestCode
from sim.clients.wire import RawConnection, frame_of
from sim.everyday.life import MS_PER_S
from sim.validators import GROUP_NAME
from sim.workload import TOPIC

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

SENDS_MAX: Final = 12
APART_MS: Final = (0, 1, 3, 10)
"""How long one send comes after the other."""
OPEN_MAX: Final = 2
"""Groups that wait for what was sent to their topic."""
LOOKS: Final = 60
LOOK_S: Final = 0.05


class Early(NamedTuple):
    """A group that was there before its topic."""

    consumer: PushConsumer
    got: set[bytes]
    wanted: dict[bytes, tuple[MessageQueue, int]]
    """What was acknowledged, and where."""


class NewTopics:
    """One client that makes them by sending.

    Args:
        early_p: how often a group is there before.
    """

    def __init__(self, life: Life, early_p: float) -> None:
        self._life = life
        self._early_p = early_p
        self._made = 0
        self._open: list[Early] = []
        self._puller = PullConsumer(
            life.named("new"), clock=life.machine.clock, rng=life.rng.split("new")
        )

    async def start(self) -> None:
        """Begin."""
        await self._puller.start()

    async def step(self, rng: SplitRng) -> None:
        """Send to a topic that is not there. Errors: `RemotingError`."""
        life = self._life
        await self._close_done()
        await self._puller.fetch_subscribe_queues(TOPIC)
        self._made += 1
        topic, early = f"{life.name}-new-{self._made}", None
        if not life.may_make(topic):
            return
        if len(self._open) < OPEN_MAX and rng.split("early").chance(self._early_p):
            early = await self._subscribe(topic)
        count = rng.split("count").randint(2, SENDS_MAX)
        apart_ms = rng.split("apart").choice(APART_MS)
        stored = await self._send(topic, count, apart_ms)
        if early is not None:
            queue = MessageQueue(topic, GROUP_NAME, 0)
            early.wanted.update({body: (queue, offset) for body, offset in stored})
            life.count("early_groups", bool(stored))

    async def _subscribe(self, topic: str) -> Early | None:
        """Return a group that has looked for a topic in vain; None where it hears nothing."""
        got: set[bytes] = set()

        async def take(messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
            got.update(bytes(one.content()) for one in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        life, name = self._life, f"early-{self._made}"
        options = ConsumeOptions(consume_from=ConsumeFrom.LAST_OFFSET)
        consumer = PushConsumer(
            life.named(name), take, options, clock=life.machine.clock, rng=life.rng.split(name)
        )
        consumer.subscribe(topic)
        await consumer.start()
        for _ in range(LOOKS):
            if isinstance(consumer.problems.get(topic), NoRoute):
                self._open.append(early := Early(consumer, got, {}))
                return early
            await asyncio.sleep(LOOK_S)
        await consumer.stop()
        return None

    async def _send(self, topic: str, count: int, apart_ms: int) -> list[tuple[bytes, int]]:
        """Send messages one behind the other; return those that were stored, and where."""
        life = self._life
        addr = self._puller._leaders.master(MessageQueue(TOPIC, GROUP_NAME, 0))
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return []
        loop = asyncio.get_running_loop()
        asked: list[tuple[bytes, asyncio.Task[int | None]]] = []
        for at in range(count):
            body = f"{topic} {at}".encode()
            asked.append((body, loop.create_task(self._send_one(connection, topic, at, body))))
            await asyncio.sleep(apart_ms / MS_PER_S)
        answers = await asyncio.gather(*(task for _, task in asked))
        connection.close()
        stored = [
            (body, offset)
            for (body, _), offset in zip(asked, answers, strict=True)
            if offset is not None
        ]
        life.count("sends_to_unmade", len(stored))
        return stored

    async def _send_one(
        self, connection: RawConnection, topic: str, at: int, body: bytes
    ) -> int | None:
        fields = {
            "a": "senders", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0",
            "g": str(self._life.machine.clock.wall_ms()), "h": "0", "i": "", "j": "0",
            "k": "false", "m": "false",
        }  # fmt: skip
        answer = await connection.ask(
            frame_of(RequestCode.SEND_MESSAGE_V2, at, fields, body=body), at
        )
        if answer is None or answer.code != 0:
            return None
        return int((answer.ext_fields or {})["queueOffset"])

    async def _close_done(self) -> None:
        """Stop groups that have got all that was sent."""
        for one in [one for one in self._open if not self._left(one)]:
            self._open.remove(one)
            await one.consumer.stop()

    def _left(self, one: Early) -> str:
        for body, place in one.wanted.items():
            if body not in one.got and not self._life.is_dropped(*place):
                group = one.consumer.config.group
                return f"{body!r} at {place} was not handed to {group}, which was there before"
        return ""

    def missing(self) -> str:
        """Say what was sent to a topic and not handed to the group that was there before."""
        return next(filter(None, map(self._left, self._open)), "")
