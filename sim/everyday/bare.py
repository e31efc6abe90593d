"""Messages that have a body and one thing more, which is all that their consumer goes by.

A library that leaves out what is empty must not leave out what is there. A delay counts by when the
message was sent: who is handed it earlier was not meant to have it yet.
Source: docs/client.md; RocketMQ Message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from sim.oracles.records import KEYS, TAGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.everyday.life import Life
    from sim.rng import SplitRng

EARLY: Final = "A56 handed out before its time"
CHANGED: Final = "A6 handed out otherwise than sent"
LONGEST_MS: Final = 5_000
"""Longer delays are not drawn."""
COLOUR: Final = "colour"
WHAT: Final = ("delay", "delay", "tag", "key", "property", "nothing")


class Bare:
    """One producer of them, and who consumes them.

    Args:
        delays_ms: of each level; none where clocks do not run as time does, which delays go by.
    """

    def __init__(self, life: Life, delays_ms: Sequence[int]) -> None:
        self._life = life
        self._topic = f"{life.name}-bare"
        self._levels = [at for at, ms in enumerate(delays_ms, 1) if ms <= LONGEST_MS]
        self._delays_ms = delays_ms
        self._sent: dict[bytes, tuple[Message, int]] = {}
        """By its body: a message, and when it was to be sent."""
        clock = life.machine.clock
        self._producer = Producer(life.named("bare"), clock=clock, rng=life.rng.split("bare"))
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        self._consumer = PushConsumer(
            life.named("bare-readers"), self._take, options, clock=clock,
            rng=life.rng.split("bare readers"),
        )  # fmt: skip
        self._consumer.subscribe(self._topic)

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._life.make_topic(self._producer, self._topic, 1)
        await self._consumer.start()

    async def step(self, rng: SplitRng) -> None:
        """Send one. Errors: `RemotingError`."""
        life, what = self._life, rng.split("what").choice(WHAT)
        is_delayed = what == "delay" and self._levels
        body = f"{self._topic} {len(self._sent)}".encode()
        message = Message(
            self._topic,
            body,
            tags="bare" if what == "tag" else "",
            keys="bare" if what == "key" else "",
            properties={COLOUR: "bare"} if what == "property" else {},
            delay_level=rng.split("level").choice(self._levels) if is_delayed else 0,
        )
        self._sent[body] = message, life.now_ms()
        await self._producer.send(message)
        life.count("bare_sends")

    def missing(self) -> str:
        """What must come is judged by the log."""
        return ""

    async def _take(self, messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        for one in messages:
            self._check(one)
        self._life.count("bare_taken", len(messages))
        return ConsumeStatus.CONSUME_SUCCESS

    def _check(self, one: MessageExt) -> None:
        body, life = bytes(one.content()), self._life
        sent = self._sent.get(body)
        if sent is None:
            life.report(CHANGED, f"nobody has sent {body[:80]!r} to {self._topic}")
            return
        message, sent_ms = sent
        told = tuple(one.maybe_property(name) or "" for name in (TAGS, KEYS, COLOUR))
        wanted = (message.tags, message.keys, message.properties.get(COLOUR, ""))
        if told != wanted:
            life.report(CHANGED, f"{body!r} was sent with {wanted}, and has {told}")
        due_ms = self._delays_ms[message.delay_level - 1] if message.delay_level else 0
        waited_ms = life.now_ms() - sent_ms
        if waited_ms < due_ms:
            text = f"{body!r} waits for {due_ms} ms, and is handed out {waited_ms} ms after"
            life.report(EARLY, text)
