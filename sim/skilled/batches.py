"""Batches whose messages take equally many bytes, and not the same ones.

What is stored of them is judged by the log, as that of all sends is.
Source: RocketMQ MessageDecoder.encodeMessages; docs/protocol.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.client import Producer, PullConsumer
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from sim.clients.shapes import elements
from sim.clients.wire import RawConnection, frame_of
from sim.oracles.records import KEYS, TAGS

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

COUNTS: Final = (2, 3, 17, 40)
WIDTHS: Final = (40, 300)
"""Bytes of body and properties together."""
HEAD: Final = len(f"{KEYS}\x01\x02{TAGS}\x01")
Element = tuple[bytes, str, str]
"""A body, the key and the tag of its message."""


class Batches:
    """Who sends them by hand."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._topic = f"{life.name}-batches"
        self._made = 0
        config, rng = life.named("batches"), life.rng.split("batches")
        clock = life.machine.clock
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, 1)

    async def step(self, rng: SplitRng) -> None:
        """Send a batch. Errors: `RemotingError`."""
        life = self._life
        batch = self.draw(rng)
        queue = (await self._puller.fetch_subscribe_queues(self._topic))[0]
        addr = self._puller._leaders.master(queue)
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return
        fields = {
            "a": "senders", "b": self._topic, "c": "TBW102", "d": "1", "e": "0", "f": "0",
            "g": str(life.machine.clock.wall_ms()), "h": "0", "i": "", "j": "0",
            "k": "false", "m": "true",
        }  # fmt: skip
        whole = elements(
            [(body, f"{KEYS}\x01{key}\x02{TAGS}\x01{tag}".encode()) for body, key, tag in batch]
        )
        frame = frame_of(RequestCode.SEND_BATCH_MESSAGE, 1, fields, body=whole)
        told = await connection.ask(frame, 1)
        connection.close()
        life.count("batches_by_hand", told is not None and told.code == ResponseCode.SUCCESS)

    def draw(self, rng: SplitRng) -> list[Element]:
        """Return messages; most are equally long in all, and their bodies are not."""
        count, width = rng.split("count").choice(COUNTS), rng.split("width").choice(WIDTHS)
        batch = []
        for at in range(count):
            stream = rng.split(f"message{at}")
            self._made += 1
            body = b"%012d" % self._made
            left = width - HEAD - len(body)
            longer = stream.split("longer").randint(0, left - 2)
            more = stream.split("more").randint(1, left - longer - 1)
            tag = "t" * (left - longer - more)
            batch.append((body + b"b" * longer, "k" * more, tag))
        return batch

    def missing(self) -> str:
        """Nothing is waited for."""
        return ""
