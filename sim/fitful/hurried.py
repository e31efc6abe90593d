"""A consumer that subscribes to something else again before a broker has heard of the time before.

Heartbeats tell brokers what is wanted, and pulls wait there by what was wanted before: so changes
come in bursts, closer together than an answer, and something is sent just behind them. Then the
member stops, another one of its group takes over, or the first one goes on. What was sent once it
had subscribed, and has a tag that it wants since, is handed to one of them; each stops within its
time. Source: docs/client.md (subscriptions); spec/wire.md 3.2.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ledgermq.client import (
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    RemotingError,
    SendStatus,
)
from sim.everyday.life import MS_PER_S
from sim.everyday.tags import EXPRESSIONS
from sim.fitful.members import Member
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import MessageExt
    from sim.everyday.life import Life
    from sim.rng import SplitRng

CHANGES_MAX: Final = 5
APART_MS: Final = (0, 0, 0.2, 1, 3, 10)
"""How long one change comes after the other."""
FIRST: Final = ("red", "blue")
SENDS: Final = 3
STOPS_P: Final = 0.35
JOIN_S: Final = 4.0
KINDS: Final = ("push", "push", "lite", "orderly")


class Hurried:
    """Such members of one group, one after the other, and who sends to its topic."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._topic = f"{life.name}-hurried"
        self._lives = self._sent = 0
        self._producer = Producer(
            life.named("hurried"), clock=life.machine.clock, rng=life.rng.split("hurried")
        )
        self._member: Member | None = None
        self._tags: tuple[str, ...] = ()
        """What is wanted now."""
        self._wanted: dict[bytes, tuple[MessageQueue, int]] = {}
        """What was acknowledged and has not come, and where it lies."""
        self._got: set[bytes] = set()

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._life.make_topic(self._producer, self._topic, 1)

    async def step(self, rng: SplitRng) -> None:
        """Join, subscribe to other things in haste, or stop. Errors: `RemotingError`."""
        if self._member is None:
            await self._join(rng)
            return
        if rng.split("stop").chance(STOPS_P):
            await self._member.stop()
            await self._join(rng)  # in the end somebody is there
            return
        if self.missing():
            return  # what was sent for the last change has not come yet
        names = list(EXPRESSIONS)
        for at in range(rng.split("changes").randint(1, CHANGES_MAX)):
            stream = rng.split(f"change{at}")
            expression = stream.split("which").choice(names)
            self._tags = EXPRESSIONS[expression]
            self._member.consumer.subscribe(self._topic, expression)
            await asyncio.sleep(stream.split("apart").choice(APART_MS) / MS_PER_S)
        self._life.count("subscriptions_in_haste")
        for at in range(SENDS):
            await self._send(rng.split(f"tag{at}").choice(sorted(set(self._tags))))

    async def _join(self, rng: SplitRng) -> None:
        """Begin a member that wants what the one before wanted last, or something at first."""
        self._lives += 1
        kind = rng.split("kind").choice(KINDS)
        self._member = member = Member(
            self._life, kind, ("hurried", f"hurried-{self._lives}"), self._take,
            ConsumeFrom.FIRST_OFFSET,
        )  # fmt: skip
        if not self._tags:
            self._tags = FIRST
        names = [name for name, tags in EXPRESSIONS.items() if tags == self._tags]
        await member.start(self._topic, names[0] if names else " || ".join(FIRST))
        try:
            await member.consumer.wait_joined(JOIN_S)
        except RemotingError:
            self._life.count("client_errors")

    async def _send(self, tag: str) -> None:
        self._sent += 1
        body = f"{self._topic} {self._sent}".encode()
        queue = MessageQueue(self._topic, GROUP_NAME, 0)
        tags = self._tags
        result = await self._producer.send(Message(self._topic, body, tags=tag), queue)
        is_wanted = tag in tags and body not in self._got
        if result.status is SendStatus.SEND_OK and is_wanted:
            self._wanted[body] = queue, result.queue_offset

    def _take(self, messages: Sequence[MessageExt]) -> None:
        for one in messages:
            body = bytes(one.content())
            self._got.add(body)
            self._wanted.pop(body, None)
        self._life.count("hurried_taken", len(messages))

    def missing(self) -> str:
        """Say what it subscribed to, that was sent since, and was not handed to it."""
        for body, place in self._wanted.items():
            if not self._life.is_dropped(*place):
                return f"{body!r} at {place} was not handed to who wants {self._tags}"
        return ""
