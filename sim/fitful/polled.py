"""Members that are polled, of a topic with several queues of which one is paused now and then.

What was pulled ahead waits in the member in several parts: a pause keeps them there, a seek drops
them, and a stop commits nothing that another task still works on. What is given out and committed
is judged as that of who polls elsewhere (`sim.polling`), where there is a queue or two, and nobody
stops amid work. Source: docs/client.md; `ledgermq.client.polled`; DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final

from ledgermq.client import Message, MessageQueue, Producer, RemotingError
from sim.everyday.life import MS_PER_S
from sim.faults.further import Further
from sim.fitful.members import stop_in_time
from sim.polling import Poller
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.oracles.further import Further as Judge
    from sim.rng import SplitRng

QUEUES: Final = 4
SENDS_MAX: Final = 10
POLLS_MAX: Final = 3
STOP_P: Final = 0.08
AMID_P: Final = 0.6
"""How many of the stops come while another task works on what it polled."""
WORKS_MS: Final = (1, 50, 600)


class PolledQueues:
    """Such members, one after the other, and who sends to their topic."""

    def __init__(self, life: Life, judge: Judge) -> None:
        rng = life.rng.split("polled")
        self._life = life
        self._judge = judge
        self._settings = Further(
            seek_p=rng.split("seeks").choice((0.0, 0.05, 0.2)),
            pause_p=rng.split("pauses").choice((0.2, 0.5)),
            manual=rng.split("manual").chance(0.4),
            poll_counts=rng.split("counts").choice(((1,), (1, 2, 5), (3, 32))),
            pull_count=rng.split("pulls").choice((1, 2, 4)),
        )
        self._topic = f"{life.name}-polled"
        self._queues = [MessageQueue(self._topic, GROUP_NAME, at) for at in range(QUEUES)]
        self._lives = self._sent = 0
        self._producer = Producer(
            life.named("polled"), clock=life.machine.clock, rng=rng.split("send")
        )
        self._poller: Poller | None = None

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._life.make_topic(self._producer, self._topic, QUEUES)

    async def step(self, rng: SplitRng) -> None:
        """Send to some queues, poll some times, and stop at times. Errors: `RemotingError`."""
        if self._poller is None:
            self._poller = self._new()
            await self._poller.consumer.start()
        await self._send(rng.split("send"))
        for at in range(rng.split("polls").randint(1, POLLS_MAX)):
            await self._poll(rng.split(f"poll{at}"))
        if rng.split("stop").chance(STOP_P):
            poller, self._poller = self._poller, None
            if rng.split("amid").chance(AMID_P):
                await self._stop_amid(poller, rng.split("work"))
            else:
                await poller.stop()

    def _new(self) -> Poller:
        self._lives += 1
        life, name = self._life, f"polled-{self._lives}"
        config = dataclasses.replace(life.named(name), group=self._topic)
        return Poller(
            config, self._settings, life.validators, self._judge,
            (life.machine.clock, life.rng.split(name)), self._topic,
        )  # fmt: skip

    async def _send(self, rng: SplitRng) -> None:
        for at in range(rng.split("count").randint(0, SENDS_MAX)):
            self._sent += 1
            body = f"{self._topic} {self._sent}".encode()
            queue = rng.split(f"queue{at}").choice(self._queues)
            try:
                await self._producer.send(Message(self._topic, body), queue)
            except RemotingError:
                self._life.count("client_errors")
                return

    async def _poll(self, rng: SplitRng) -> None:
        assert self._poller is not None
        try:
            await self._poller.step(rng)
        except ValueError:  # a queue that is held no more
            self._life.count("client_errors")

    async def _stop_amid(self, poller: Poller, rng: SplitRng) -> None:
        """Stop a member while another task works on what it has polled."""
        polled = asyncio.Event()

        async def work() -> None:
            try:
                await poller.step(rng.split("poll"))
            except (RemotingError, ValueError):
                self._life.count("client_errors")
            polled.set()
            await asyncio.sleep(rng.split("works").choice(WORKS_MS) / MS_PER_S)

        works = asyncio.get_running_loop().create_task(work())
        await polled.wait()
        await stop_in_time(self._life, poller.consumer)
        await works
        self._life.count("stops_amid_work")

    def missing(self) -> str:
        """What is left waits for somebody who polls."""
        return ""
