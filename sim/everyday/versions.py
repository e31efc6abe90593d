"""A member that subscribes to something else as Java's clients do, which drop no pull for that.

It says what it wants with a heartbeat, and pulls go on: one waits at the broker since before, or
comes before the heartbeat and names the newer version. Who asks so is told to go on behind nothing
that it wants by then: it is refused, or asks again from where it was.
Source: spec/wire.md 3.2, 3.5 (25); RocketMQ PullRequestHoldService, which runs a held pull anew.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from ledgermq.client import Message, MessageQueue, Producer, PullConsumer, SendStatus
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from sim.clients.wire import RawConnection, frame_of
from sim.everyday.life import MS_PER_S
from sim.oracles.records import tags_code

if TYPE_CHECKING:
    from ledgermq.remoting.protocol.command import RemotingCommand
    from sim.everyday.life import Life
    from sim.rng import SplitRng

PASSED: Final = "A14 passed over what its group wants by now"
FIRST, SECOND = "red", "blue"
HELD_MS: Final = 1_200
SUSPENDS: Final = "2"
SETTLED_MS: Final = 30
GOES_ON: Final = (
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)  # fmt: skip
"""Answers that say where to go on."""


class Versions:
    """Such members, one after the other, and who sends to their topic."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._topic = f"{life.name}-versions"
        self._asked = self._groups = 0
        clock = life.machine.clock
        config, rng = life.named("versions"), life.rng.split("versions")
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, 1)

    async def step(self, rng: SplitRng) -> None:
        """Be a member that wants one tag, then another one. Errors: `RemotingError`."""
        queue = (await self._puller.fetch_subscribe_queues(self._topic))[0]
        offset = await self._puller.max_offset(queue)
        addr = self._puller._leaders.master(queue)
        connection = await RawConnection.dial(addr, self._life.machine.address)
        if connection is None:
            return
        self._groups += 1
        group = f"{self._topic}-{self._groups}"
        episode = self._held if rng.split("held").chance(0.5) else self._newer
        try:
            if await self._says(connection, group, FIRST, 1):
                await episode(connection, group, queue, offset)
        finally:
            connection.close()

    async def _held(
        self, connection: RawConnection, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Change what it wants while a pull of it waits."""
        loop = asyncio.get_running_loop()
        waits = loop.create_task(self._pull(connection, group, offset, 1))
        await asyncio.sleep(SETTLED_MS / MS_PER_S)
        sent = await self._send(SECOND)
        if sent is None or not await self._says(connection, group, SECOND, 2) or waits.done():
            await waits
            return
        await self._send(SECOND)  # it wakes whoever waits
        self._check(sent, queue, await waits, f"{group} wants {SECOND}, and a held pull of it")

    async def _newer(
        self, connection: RawConnection, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Pull by what the broker has not heard of yet."""
        sent = await self._send(SECOND)
        if sent is not None:
            told = await self._pull(connection, group, offset, 2)
            self._check(sent, queue, told, f"{group} wants {SECOND} in its newer pull, which")

    def _check(
        self, sent: int, queue: MessageQueue, told: RemotingCommand | None, who: str
    ) -> None:
        """Judge what a pull was told, where a message lay before that."""
        self._life.count("versions_asked")
        if told is None or told.code not in GOES_ON or told.body:
            return
        goes_on = int((told.ext_fields or {})["nextBeginOffset"])
        if goes_on > sent and not self._life.is_dropped(queue, sent):
            text = f"{who} is told {told.code}, and to go on at {goes_on}: {sent} has {SECOND}"
            self._life.report(PASSED, text)

    async def _send(self, tag: str) -> int | None:
        """Return the offset of a message that was stored, None if nobody knows."""
        body = f"{self._topic} {self._asked}".encode()
        result = await self._producer.send(Message(self._topic, body, tags=tag))
        return result.queue_offset if result.status is SendStatus.SEND_OK else None

    async def _says(self, connection: RawConnection, group: str, tag: str, version: int) -> bool:
        """Tell the broker what the group wants."""
        body = {
            "clientID": f"{group}@versions",
            "consumerDataSet": [{
                "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{
                    "topic": self._topic, "subString": tag, "tagsSet": [tag],
                    "codeSet": [tags_code(tag)],
                    "subVersion": version, "expressionType": "TAG",
                }],
            }],
        }  # fmt: skip
        code, text = RequestCode.HEART_BEAT, json.dumps(body).encode()
        self._asked += 1
        told = await connection.ask(frame_of(code, self._asked, {}, body=text), self._asked)
        return told is not None and told.code == ResponseCode.SUCCESS

    async def _pull(
        self, connection: RawConnection, group: str, offset: int, version: int
    ) -> RemotingCommand | None:
        fields = {
            "consumerGroup": group, "topic": self._topic, "queueId": "0",
            "queueOffset": str(offset), "maxMsgNums": "8", "sysFlag": SUSPENDS,
            "commitOffset": "0", "suspendTimeoutMillis": str(HELD_MS),
            "subVersion": str(version), "expressionType": "TAG",
        }  # fmt: skip
        self._asked += 1
        return await connection.ask(
            frame_of(RequestCode.PULL_MESSAGE, self._asked, fields), self._asked
        )

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
