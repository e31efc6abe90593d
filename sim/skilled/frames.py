"""Many requests that are written at once, of which some have to wait for room: each is answered.

A large send that has to wait holds up what came behind it on its connection, and nothing of that
may be forgotten. Source: docs/protocol.md; `ledgermq.remoting.transport.room`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ledgermq.client import MessageQueue, Producer, PullConsumer
from ledgermq.remoting.protocol.codes import RequestCode
from sim.clients.wire import ANSWER_S, RawConnection, frame_of
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

UNANSWERED: Final = "A41 one of many requests is not answered"
REQUESTS: Final = (3, 20, 40, 90)
LARGE: Final = (7_000, 12_000)
"""Bytes of a body that needs room."""
LARGE_P: Final = 0.15
SMALL: Final = 100
SURE_S: Final = 8.0
"""Longer than a send waits for room, and for a majority."""


class Frames:
    """Who writes them, and waits for the answers."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._topic = f"{life.name}-frames"
        self._asked = 0
        clock = life.machine.clock
        config, rng = life.named("frames"), life.rng.split("frames")
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, 1)

    async def step(self, rng: SplitRng) -> None:
        """Write some at once. Errors: `RemotingError`."""
        life = self._life
        await self._puller.fetch_subscribe_queues(self._topic)
        addr = self._puller._leaders.master(MessageQueue(self._topic, GROUP_NAME, 0))
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return
        count, frames = rng.split("count").choice(REQUESTS), {}
        for at in range(count):
            stream = rng.split(f"request{at}")
            is_large = stream.split("large").chance(LARGE_P)
            size = stream.split("size").choice(LARGE) if is_large else SMALL
            self._asked += 1
            frames[self._asked] = self._send_of(self._asked, size)
        asked = connection.ask_all(frames)
        if not connection.is_lost:
            await asyncio.wait(asked.values(), timeout=ANSWER_S)
        is_heard = True
        if not all(one.done() for one in asked.values()):
            is_heard = await self._is_heard(connection)
        life.count("written_at_once", count)
        answered = [one.done() and one.result() is not None for one in asked.values()]
        self.check(answered, is_heard=is_heard and not connection.is_lost)
        connection.close()

    async def _is_heard(self, connection: RawConnection) -> bool:
        """Tell whether what was written has come to who serves the connection, long ago."""
        self._asked += 1
        fields = {"topic": self._topic, "queueId": "0"}
        frame = frame_of(RequestCode.GET_MAX_OFFSET, self._asked, fields)
        if await connection.ask(frame, self._asked) is None:
            return False
        await asyncio.sleep(SURE_S)
        return True

    def _send_of(self, opaque: int, size: int) -> bytes:
        fields = {
            "a": "senders", "b": self._topic, "c": "TBW102", "d": "1", "e": "0", "f": "0",
            "g": str(self._life.machine.clock.wall_ms()), "h": "0", "i": "", "j": "0",
            "k": "false", "m": "false",
        }  # fmt: skip
        body = (b"%d " % opaque).ljust(size, b"f")
        return frame_of(RequestCode.SEND_MESSAGE_V2, opaque, fields, body=body)

    def check(self, answered: list[bool], *, is_heard: bool) -> None:
        """Judge which were answered, in the order of the requests."""
        if is_heard and not all(answered):
            text = f"{answered.count(False)} of {len(answered)} that were written at once"
            first = answered.index(False) + 1
            self._life.report(UNANSWERED, f"{text} to {self._topic}, the first of them {first}.")

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
