"""Halves that wait for their end first, and then for a level of delay: other libraries send them.

Nobody is handed one that was not committed, nor before its level is due once it was. What is told
is committed comes in the end.
Source: docs/transactions.md; RocketMQ EndTransactionProcessor, TransactionalMessageBridge.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.message import parse_offset_message_id
from sim.clients.wire import RawConnection, frame_of
from sim.oracles.delays import SCHEDULE_TOPIC
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.everyday.life import Life
    from sim.rng import SplitRng

UNCOMMITTED: Final = "A54 half handed out that was not committed"
EARLY: Final = "A56 half handed out before its time"
LONGEST_MS: Final = 5_000
"""Longer delays are not drawn."""
PREPARED, COMMIT, ROLLBACK = "4", "8", "12"
ENDS: Final = (COMMIT, COMMIT, ROLLBACK, "")
WAITS_S: Final = (0.0, 0.05, 1.5)
"""How long after a half its end comes; a level may have come due by then."""


class Sent(msgspec.Struct):
    """A half that was sent."""

    level: int
    end: str = ""
    """How somebody has asked for it to end; empty while nobody has."""
    ended_ms: int = 0
    """When that was asked for."""
    is_taken: bool = False
    """Whether it was answered that it is committed."""
    came: bool = False


class Place(NamedTuple):
    """Where a half lies, as its sender is told."""

    offset: int
    physical: int


class DelayedHalves:
    """Who sends them by hand, and a consumer of their topic.

    Args:
        delays_ms: of each level; none where clocks do not run as time does, which delays go by.
    """

    def __init__(self, life: Life, delays_ms: Sequence[int]) -> None:
        self._life = life
        self._topic = f"{life.name}-halves"
        self._group = f"{life.name}-half-senders"
        self._levels = [0, *(at for at, ms in enumerate(delays_ms, 1) if ms <= LONGEST_MS)]
        self._delays_ms = (0, *delays_ms)
        self._sent: dict[bytes, Sent] = {}
        clock = life.machine.clock
        config, rng = life.named("halves"), life.rng.split("halves")
        self._producer = Producer(config, clock=clock, rng=rng.split("send"))
        self._puller = PullConsumer(config, clock=clock, rng=rng.split("pull"))
        options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
        self._consumer = PushConsumer(
            life.named("half-readers"), self._take, options, clock=clock,
            rng=life.rng.split("half readers"),
        )  # fmt: skip
        self._consumer.subscribe(self._topic)

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        await self._puller.start()
        await self._life.make_topic(self._producer, self._topic, 1)
        await self._consumer.start()

    async def step(self, rng: SplitRng) -> None:
        """Send a half, and have it end. Errors: `RemotingError`."""
        life = self._life
        await self._puller.fetch_subscribe_queues(self._topic)
        addr = self._puller._leaders.master(MessageQueue(self._topic, GROUP_NAME, 0))
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return
        body = f"{self._topic} {len(self._sent)}".encode()
        sent = self._sent[body] = Sent(rng.split("level").choice(self._levels))
        try:
            place = await self._prepare(connection, body, sent.level)
            if place is not None:
                await asyncio.sleep(rng.split("wait").choice(WAITS_S))
                await self._end(connection, body, place, rng.split("end").choice(ENDS))
        finally:
            connection.close()

    async def _prepare(self, connection: RawConnection, body: bytes, level: int) -> Place | None:
        properties = {"TRAN_MSG": "true", "PGROUP": self._group, "UNIQ_KEY": body.decode()}
        if level:
            properties["DELAY"] = str(level)
        fields = {
            "a": self._group, "b": self._topic, "c": "TBW102", "d": "1", "e": "0", "f": PREPARED,
            "g": str(self._life.machine.clock.wall_ms()), "h": "0", "j": "0", "k": "false",
            "i": "\x02".join(f"{name}\x01{value}" for name, value in properties.items()),
            "m": "false",
        }  # fmt: skip
        told = await connection.ask(frame_of(RequestCode.SEND_MESSAGE_V2, 1, fields, body=body), 1)
        if told is None or told.code != ResponseCode.SUCCESS:
            return None
        answer = told.ext_fields or {}
        _, _, physical = parse_offset_message_id(answer["msgId"])
        self._life.count("halves_by_hand")
        return Place(int(answer["queueOffset"]), physical)

    async def _end(self, connection: RawConnection, body: bytes, place: Place, end: str) -> None:
        if not end:
            return
        sent = self._sent[body]
        sent.end, sent.ended_ms = end, self._life.now_ms()
        fields = {
            "producerGroup": self._group, "tranStateTableOffset": str(place.offset),
            "commitLogOffset": str(place.physical), "commitOrRollback": end,
            "fromTransactionCheck": "false", "msgId": body.decode(),
            "transactionId": body.decode(),
        }  # fmt: skip
        told = await connection.ask(frame_of(RequestCode.END_TRANSACTION, 2, fields), 2)
        is_done = told is not None and told.code == ResponseCode.SUCCESS
        sent.is_taken = is_done and end == COMMIT
        self._life.count("halves_committed", sent.is_taken)

    async def _take(self, messages: list[MessageExt], _context: ConsumeContext) -> ConsumeStatus:
        for one in messages:
            self.check(bytes(one.content()))
        self._life.count("halves_taken", len(messages))
        return ConsumeStatus.CONSUME_SUCCESS

    def check(self, body: bytes) -> None:
        """Judge a message that is handed out."""
        sent, life = self._sent[body], self._life
        sent.came = True
        if sent.end != COMMIT:
            how = {ROLLBACK: "was to be rolled back"}.get(sent.end, "nobody has let end")
            life.report(UNCOMMITTED, f"{body!r}, which {how}, of level {sent.level}")
            return
        waited_ms, due_ms = life.now_ms() - sent.ended_ms, self._delays_ms[sent.level]
        if waited_ms < due_ms:
            text = f"{body!r} waits for {due_ms} ms once it is committed"
            life.report(EARLY, f"{text}, and is handed out {waited_ms} ms after")

    def missing(self) -> str:
        """Say what is committed, and was not handed out."""
        left = [
            body
            for body, sent in self._sent.items()
            if sent.is_taken and not sent.came and not self._may_be_dropped(sent.level)
        ]
        return f"{left[0]!r} is committed, and was not handed out" if left else ""

    def _may_be_dropped(self, level: int) -> bool:
        """Tell whether anything of where a message waits, or goes then, was ever dropped."""
        places = [(self._topic, 0), *([(SCHEDULE_TOPIC, level - 1)] if level else [])]
        return any(self._life.dropped.get(place, 0) for place in places)
