"""A consumer that subscribes to other tags while it consumes; its clock is put back at times.

What is sent once it has subscribed, and has a tag that it wants, is handed to it, whatever a broker
knew of it before, and whatever waited there by what it wanted before. What has none of the tags
that it wanted since is not. Source: docs/client.md (subscriptions); spec/wire.md 3.2.
"""

from __future__ import annotations

import asyncio
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
    PushConsumer,
    SendStatus,
)
from sim.everyday.life import MS_PER_S
from sim.oracles.records import TAGS

if TYPE_CHECKING:
    import time

    from ledgermq.runtime.clock import Clock
    from sim.everyday.life import Life
    from sim.rng import SplitRng

UNWANTED: Final = "A22 handed out though nobody subscribed to it"
EXPRESSIONS: Final = {
    "red": ("red",),
    "blue": ("blue",),
    "Aa": ("Aa",),
    "red || BB": ("red", "BB"),
    "*": ("red", "blue", "Aa", "BB", ""),
}
"""What somebody subscribes to, and the tags that this means; the last two have one hash."""
DRAWN: Final = ("red", "blue", "Aa", "BB", "")
BACK_P: Final = 0.4
BACK_MS: Final = (50, 2_000, 3_600_000)
WAITS_MS: Final = (0, 0, 2, 30)
"""How long after it has subscribed something is sent."""
SENDS: Final = 3


class PutBack:
    """A clock whose hands somebody puts back; durations are as they are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.back_ms = 0
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_ns = clock.monotonic_ns

    def wall_ms(self) -> int:
        """See `Clock`."""
        return self._clock.wall_ms() - self.back_ms

    def local(self, wall_ms: int) -> time.struct_time:
        """See `Clock`."""
        return self._clock.local(wall_ms)


class Changing:
    """One such consumer, and who sends to its topic."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._topic = f"{life.name}-tags"
        self._clock = PutBack(life.machine.clock)
        self._expressions: list[tuple[str, ...]] = []
        """The tags of each subscription, one after the other."""
        self._sent: dict[bytes, tuple[str, int]] = {}
        """By its body: the tag of a message, and how many subscriptions there were then."""
        self._wanted: dict[bytes, tuple[MessageQueue, int]] = {}
        """What was acknowledged and has not come, and where it lies."""
        self._got: set[bytes] = set()
        self._producer = Producer(
            life.named("tags"), clock=life.machine.clock, rng=life.rng.split("tags")
        )
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        self._consumer = PushConsumer(
            life.named("tag-readers"), self._take, options, clock=self._clock,
            rng=life.rng.split("tag readers"),
        )  # fmt: skip

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._life.make_topic(self._producer, self._topic, 1)
        self._subscribe("red")
        await self._consumer.start()

    def _subscribe(self, expression: str) -> None:
        self._expressions.append(EXPRESSIONS[expression])
        self._consumer.subscribe(self._topic, expression)

    async def step(self, rng: SplitRng) -> None:
        """Subscribe to something else, and have something sent. Errors: `RemotingError`."""
        if self.missing():
            return  # what was sent for the former subscription has not come yet
        if rng.split("back").chance(BACK_P):
            self._clock.back_ms += rng.split("how far").choice(BACK_MS)
        self._subscribe(rng.split("expression").choice(list(EXPRESSIONS)))
        self._life.count("subscriptions_changed")
        await asyncio.sleep(rng.split("wait").choice(WAITS_MS) / MS_PER_S)
        for at in range(SENDS):
            await self._send(rng.split(f"tag{at}").choice(DRAWN))

    async def _send(self, tag: str) -> None:
        body = f"{self._topic} {len(self._sent)}".encode()
        self._sent[body] = tag, len(self._expressions)
        result = await self._producer.send(Message(self._topic, body, tags=tag))
        is_wanted = tag in self._expressions[-1] and body not in self._got
        if result.status is SendStatus.SEND_OK and is_wanted:
            self._wanted[body] = result.queue, result.queue_offset

    async def _take(self, messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        for one in messages:
            body = bytes(one.content())
            self._got.add(body)
            self._wanted.pop(body, None)
            tag, count = self._sent[body]
            if not any(tag in tags for tags in self._expressions[count - 1 :]):
                since = self._expressions[count - 1 :]
                told = one.maybe_property(TAGS)
                self._life.report(UNWANTED, f"{body!r} with {told!r}; subscribed to {since}")
        self._life.count("tags_taken", len(messages))
        return ConsumeStatus.CONSUME_SUCCESS

    def missing(self) -> str:
        """Say what it subscribed to, that was sent since, and was not handed to it."""
        for body, place in self._wanted.items():
            if not self._life.is_dropped(*place):
                return f"{body!r} at {place} was not handed to who wants {self._expressions[-1]}"
        return ""
