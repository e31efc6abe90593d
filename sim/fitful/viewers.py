"""A broadcasting member that is polled, sent back and forth, and started again.

It keeps itself how far it has come, so it begins where the life before ended: behind what that was
given, or where it was sent last, be that behind or before. Nothing is left out that is there.
Source: docs/consumption.md; `ledgermq.client.local_offsets`; DefaultLitePullConsumer.seek.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from ledgermq.client import (
    ConsumeFrom,
    LitePullConsumer,
    LitePullOptions,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    RemotingError,
    local_offsets,
)
from sim.fitful.members import COMMIT_MS, stop_in_time
from sim.members import OFFSETS_DIRECTORY
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import MessageExt
    from sim.disk import SimDisk
    from sim.everyday.life import Life
    from sim.rng import SplitRng

PASSED: Final = "A14 a broadcasting member passes over what is there"
QUEUES: Final = 2
SENDS_MAX: Final = 4
SEEK_P: Final = 0.3
STOP_P: Final = 0.3
POLL_S: Final = 0.2
POLL_MAX: Final = 3
BACK_MAX: Final = 10


class Places:
    """Where a member is in each queue, over all its lives; pure."""

    def __init__(self) -> None:
        self.next: dict[int, int] = {}

    def on_sent(self, queue: int, offset: int) -> None:
        """It is to go on at an offset."""
        self.next[queue] = offset

    def on_given(self, queue: int, offset: int, first: int) -> str:
        """Take what it is given; say what is wrong with it, empty for nothing.

        ``first``: below which messages of the queue are gone.
        """
        wanted = max(first, self.next.get(queue, 0))
        self.next[queue] = offset + 1
        if offset <= wanted:
            return ""
        return f"is given {offset} of queue {queue}, and not {wanted} before"


class Viewers:
    """One such member, and who sends to its topic."""

    def __init__(self, life: Life, disk: SimDisk) -> None:
        self._life = life
        self._disk = disk
        self._topic = f"{life.name}-viewed"
        self._queues = [MessageQueue(self._topic, GROUP_NAME, at) for at in range(QUEUES)]
        self._places = Places()
        self._lives = self._sent = 0
        self._producer = Producer(
            life.named("viewed"), clock=life.machine.clock, rng=life.rng.split("viewed")
        )
        self._consumer: LitePullConsumer | None = None

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._life.make_topic(self._producer, self._topic, QUEUES)

    async def step(self, rng: SplitRng) -> None:
        """Send, poll, go elsewhere, stop. Errors: `RemotingError`."""
        if self._consumer is None:
            self._consumer = await self._begin()
        await self._send(rng.split("send"))
        self._take(await self._consumer.poll(POLL_S, POLL_MAX))
        if rng.split("seek").chance(SEEK_P):
            await self._seek(self._consumer, rng.split("where"))
        if rng.split("stop").chance(STOP_P):
            consumer, self._consumer = self._consumer, None
            await stop_in_time(self._life, consumer)

    async def _begin(self) -> LitePullConsumer:
        """Return the next life of the member, which has the name of the one before."""
        self._lives += 1
        life = self._life
        options = LitePullOptions(
            auto_commit_interval_ms=COMMIT_MS,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            model=MessageModel.BROADCASTING,
            pull_batch_count=POLL_MAX,
        )
        config = dataclasses.replace(life.named("viewer"), group=self._topic)
        rng = life.rng.split(f"viewer{self._lives}")
        consumer = LitePullConsumer(config, options, clock=life.machine.clock, rng=rng)
        consumer.local = local_offsets.LocalOffsets(
            OFFSETS_DIRECTORY, consumer.client_id, self._topic, self._disk
        )
        local_offsets._IN_USE.discard(consumer.local._folder)  # a run that is over had it
        consumer.subscribe(self._topic)
        await consumer.start()
        return consumer

    async def _send(self, rng: SplitRng) -> None:
        for at in range(rng.split("count").randint(0, SENDS_MAX)):
            self._sent += 1
            queue = rng.split(f"queue{at}").choice(self._queues)
            body = f"{self._topic} {self._sent}".encode()
            try:
                await self._producer.send(Message(self._topic, body), queue)
            except RemotingError:
                self._life.count("client_errors")
                return

    async def _seek(self, consumer: LitePullConsumer, rng: SplitRng) -> None:
        """Go back in a queue that was read, or to where it was."""
        queue = rng.split("queue").choice(self._queues)
        at = self._places.next.get(queue.queue_id, 0)
        offset = max(0, at - rng.split("back").randint(1, BACK_MAX))
        try:
            await consumer.seek(queue, offset)
        except ValueError:  # it is not held yet
            return
        self._places.on_sent(queue.queue_id, offset)
        self._life.count("viewers_sent_back")

    def _take(self, messages: Sequence[MessageExt]) -> None:
        for one in messages:
            first = self._life.dropped.get((one.topic, one.queue_id), 0)
            wrong = self._places.on_given(one.queue_id, one.queue_offset, first)
            if wrong:
                self._life.report(PASSED, f"{self._topic}, life {self._lives}: {wrong}")
        self._life.count("viewed", len(messages))

    def missing(self) -> str:
        """What is left waits for somebody who polls."""
        return ""
