"""Groups that begin at the end of empty topics, stop before messages come, and start again.

Where a group begins is committed at once, also in a queue in which nothing lies: what is sent while
none of it is there is handed out later. Of a topic that comes to be while a member waits for it
nothing is old. Judged is only who has committed, by the word of a leader from before and after what
was sent: a commit that a deposed leader took is gone with it.
Source: docs/client.md (where a group begins); `ledgermq.client.assignment`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from ledgermq.client import (
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    RemotingError,
    SendStatus,
)
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from ledgermq.remoting.protocol.command import RemotingCommand
from sim.fitful.members import KINDS, Member
from sim.validators import GROUP_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgermq.client import MessageExt
    from sim.everyday.life import Life
    from sim.rng import SplitRng

UNMADE_P: Final = 0.4
"""How often a topic comes to be once a member waits for it."""
AT_ONCE_P: Final = 0.5
"""How often something is sent to such a topic at once."""
SOME_P: Final = 0.3
"""How often something has come before the stop, in one queue."""
OPEN_MAX: Final = 2
"""Groups that wait for what was sent while they were away."""
JOIN_S: Final = 4.0
SETTLED_S: Final = 1.5
"""Offsets that were taken are in the log by then, where nothing is in the way."""
LOOKS: Final = 60
LOOK_S: Final = 0.05
ASK_MS: Final = 3_000
Wanted = dict[bytes, tuple[MessageQueue, int]]


class Sent(NamedTuple):
    """What was acknowledged."""

    body: bytes
    offset: int
    addr: str
    """Of the broker that took it."""


class Group(NamedTuple):
    """A group that has come back."""

    member: Member
    got: set[bytes]
    wanted: Wanted
    """What was acknowledged since it looked for its topic first, and where."""


class Returning:
    """One client with such groups, one after the other.

    Args:
        name: of it, of several.
    """

    def __init__(self, life: Life, name: str) -> None:
        self._life = life
        self._name = f"back-{name}"
        self._made = self._sent = 0
        self._open: list[Group] = []
        clock, rng = life.machine.clock, life.rng.split(self._name)
        self._producer = Producer(life.named(self._name), clock=clock, rng=rng)

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()

    async def step(self, rng: SplitRng) -> None:
        """Have a group join, go, and come again. Errors: `RemotingError`."""
        for one in [one for one in self._open if not self._left(one)]:
            self._open.remove(one)
            await one.member.stop()
        self._made += 1
        name, life = f"{self._name}-{self._made}", self._life
        topic, count = f"{life.name}-{name}", rng.split("queues").randint(1, 3)
        if len(self._open) >= OPEN_MAX or not life.may_make(topic):
            return
        queues = [MessageQueue(topic, GROUP_NAME, at) for at in range(count)]
        got: set[bytes] = set()
        early = await self._be_there(rng, name, queues, got)
        if early is None:
            return
        await asyncio.sleep(SETTLED_S)
        wanted = await self._send_to_away(f"{life.name}-{name}", queues)
        if wanted is None:
            return
        wanted.update(early)
        life.count("groups_returned")
        member = self._member(rng.split("kind again").choice(KINDS), name, got, "again")
        self._open.append(Group(member, got, wanted))
        await member.start(topic)

    async def _be_there(
        self, rng: SplitRng, name: str, queues: Sequence[MessageQueue], got: set[bytes]
    ) -> Wanted | None:
        """Have a member join and stop; return what it wants by then, None if it had no share."""
        topic, wanted = queues[0].topic, Wanted()
        is_unmade = rng.split("unmade").chance(UNMADE_P)
        if not is_unmade:
            await self._life.make_topic(self._producer, topic, len(queues))
        member = self._member(rng.split("kind").choice(KINDS), name, got, "first")
        await member.start(topic)
        try:
            if is_unmade:
                if not await self._waits_for(member, topic):
                    return None
                await self._life.make_topic(self._producer, topic, len(queues))
                if rng.split("at once").chance(AT_ONCE_P):
                    wanted = await self._send_all(queues)
            await member.consumer.wait_joined(JOIN_S)
            if rng.split("some").chance(SOME_P):
                wanted |= await self._send_all(queues[-1:])
        finally:
            await member.stop()
        return wanted

    async def _send_all(self, queues: Sequence[MessageQueue]) -> Wanted:
        """Send to each of some queues; return what was stored."""
        sent = [(queue, await self._send(queue)) for queue in queues]
        return {one.body: (queue, one.offset) for queue, one in sent if one is not None}

    @staticmethod
    async def _waits_for(member: Member, topic: str) -> bool:
        """Tell whether a member has looked for a topic in vain."""
        for _ in range(LOOKS):
            if isinstance(member.consumer.problems.get(topic), NoRoute):
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def _member(self, kind: str, name: str, got: set[bytes], when: str) -> Member:
        def take(messages: Sequence[MessageExt]) -> None:
            got.update(bytes(one.content()) for one in messages)

        return Member(self._life, kind, (name, f"{name}-{when}"), take)

    async def _send_to_away(self, group: str, queues: Sequence[MessageQueue]) -> Wanted | None:
        """Send to all queues; None unless the group has an offset in each for who takes that.

        Who leads has what it was told before in its log, before what is sent then.
        """
        wanted = Wanted()
        leaders = set[str]()
        for queue in (queues[0], *queues):
            sent = await self._send(queue)
            if sent is None:
                return None
            wanted[sent.body] = queue, sent.offset
            leaders.add(sent.addr)
            if len(leaders) > 1 or not await self._has_committed(sent.addr, group, queues):
                return None
        return wanted

    async def _send(self, queue: MessageQueue) -> Sent | None:
        """Return what was stored, None if nobody knows."""
        self._sent += 1
        body = f"{self._life.name} {self._name} {self._sent}".encode()
        try:
            result = await self._producer.send(Message(queue.topic, body), queue)
        except RemotingError:
            return None
        if result.status is not SendStatus.SEND_OK:
            return None
        return Sent(body, result.queue_offset, result.attempts[-1].broker_addr)

    async def _has_committed(self, addr: str, group: str, queues: Sequence[MessageQueue]) -> bool:
        """Tell whether a broker knows where a group is in all of some queues."""
        for queue in queues:
            where = {
                "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
                "setZeroIfNotFound": "false",
            }  # fmt: skip
            command = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=where)
            told = await self._producer._instance.client.request(addr, command, ASK_MS)
            if told.code != ResponseCode.SUCCESS:
                return False
        return True

    def _left(self, one: Group) -> str:
        for body, place in one.wanted.items():
            if body not in one.got and not self._life.is_dropped(*place):
                return f"{body!r} at {place} is not handed to {one.member.group}, which came back"
        return ""

    def missing(self) -> str:
        """Say what was sent while a group was away, and not handed to it."""
        return next(filter(None, map(self._left, self._open)), "")
