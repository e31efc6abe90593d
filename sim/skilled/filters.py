"""Reads by drawn expressions: what is handed out is what they say.

Of what a read has passed, exactly what its expression wants is handed out. Others wait for what
lies behind more messages than one read looks at (`sim.oracles.held_table` judges that).
Source: docs/consumption.md (filters); spec/wire.md 7.2, 7.3.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ledgermq.client import (
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullResult,
    PullStatus,
    RemotingError,
    SendStatus,
    Sql92,
)
from sim.everyday.life import RETRY_S
from sim.skilled.expressions import Expression, draw_expression, draw_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.everyday.life import Life
    from sim.rng import SplitRng

OTHERWISE: Final = "A22 filtered otherwise than its expression says"
SENDS_MAX: Final = 6
COUNTS: Final = (3, 32, 32)
READS: Final = 6
HELD_P: Final = 0.3
HELD_MS: Final = 2_500
BURSTS: Final = (5, 12, 40)
"""Messages that nobody wants, before the one that somebody waits for."""
WANTED: Final = Expression("wanted = 'yes'", lambda properties: properties.get("wanted") == "yes")
LEFT_OUT: Final = {"wanted": "no"}


class Filters:
    """Who sends to a topic, and reads it by expressions."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._topic = f"{life.name}-filters"
        self._sent: dict[bytes, dict[str, str]] = {}
        """By its body: the properties of a message."""
        self._places: dict[int, bytes] = {}
        """By its offset: the body of one that was acknowledged."""
        config, rng = life.named("filters"), life.rng.split("filters")
        clock = life.machine.clock
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, 1)

    async def step(self, rng: SplitRng) -> None:
        """Send some, and read by an expression. Errors: `RemotingError`."""
        queue = (await self._puller.fetch_subscribe_queues(self._topic))[0]
        if rng.split("held").chance(HELD_P):
            await self._wait(queue, rng)
            return
        count = rng.split("count").randint(1, SENDS_MAX)
        await self._send([draw_properties(rng.split(f"message{at}")) for at in range(count)])
        end = await self._puller.max_offset(queue)
        for at in range(READS):
            stream = rng.split(f"read{at}")
            offset = stream.split("from").randint(0, max(0, end - 1))
            expression = draw_expression(stream.split("expression"))
            result = await self._puller.pull(
                queue, Sql92(expression.text), offset=offset,
                max_count=stream.split("most").choice(COUNTS),
            )  # fmt: skip
            self.check(queue, expression, offset, result)

    async def _send(self, many: Sequence[dict[str, str]]) -> None:
        """Send messages with such properties at once."""
        messages = []
        for properties in many:
            body = f"{self._topic} {len(self._sent)}".encode()
            self._sent[body] = properties
            messages.append(Message(self._topic, body, properties=properties))
        ended = await asyncio.gather(
            *(self._producer.send(one) for one in messages), return_exceptions=True
        )
        for message, result in zip(messages, ended, strict=True):
            if isinstance(result, BaseException):
                if not isinstance(result, RemotingError):
                    raise result
                self._life.count("client_errors")
            elif result.status is SendStatus.SEND_OK:
                self._places[result.queue_offset] = message.body

    async def _wait(self, queue: MessageQueue, rng: SplitRng) -> None:
        """Wait for one message behind many that are not wanted. Errors: `RemotingError`."""
        offset = await self._puller.max_offset(queue)
        until_ms = self._life.now_ms() + HELD_MS
        waits = asyncio.ensure_future(self._read_until(queue, offset, until_ms))
        await asyncio.sleep(rng.split("before").choice((0.02, 0.2)))
        await self._send([LEFT_OUT] * rng.split("burst").choice(BURSTS))
        await self._send([{"wanted": "yes"}])
        await waits
        self._life.count("filtered_waits")

    async def _read_until(self, queue: MessageQueue, offset: int, until_ms: int) -> None:
        """Read from an offset on until something comes, or it is late."""
        life = self._life
        while (left_ms := until_ms - life.now_ms()) > 0:
            try:
                result = await self._puller.pull(
                    queue, Sql92(WANTED.text), offset=offset, block_ms=left_ms
                )
            except RemotingError:
                life.count("client_errors")
                await asyncio.sleep(RETRY_S)
                continue
            self.check(queue, WANTED, offset, result)
            if result.messages:
                return
            offset = max(offset, result.next_offset)

    def check(
        self, queue: MessageQueue, expression: Expression, offset: int, result: PullResult
    ) -> None:
        """Judge what a read from an offset has brought."""
        life = self._life
        if result.status not in {PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE}:
            return
        life.count("filtered_anew")
        got = {one.queue_offset for one in result.messages}
        for one in result.messages:
            properties = self._sent.get(bytes(one.content()))
            if properties is None or not expression.matches(properties):
                text = f"{expression.text} brings {one.queue_offset} with {properties}"
                life.report(OTHERWISE, f"{self._topic}: {text}")
        for place in range(max(offset, result.min_offset), result.next_offset):
            body = self._places.get(place)
            if body is None or place in got or life.is_dropped(queue, place):
                continue
            if expression.matches(self._sent[body]):
                text = f"{expression.text} passes over {place} with {self._sent[body]}"
                life.report(OTHERWISE, f"{self._topic}: {text}, read from {offset}")

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
