"""Groups that tools remove with their offsets, and set up while clients have them made.

A group that was removed with its offsets has none, however lately one was committed. What a tool
was told is set is what somebody is told who asks for it, whoever used the group at that moment.
Source: spec/wire.md 3.1; RocketMQ AdminBrokerProcessor (200, 207).
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from ledgermq.client import MessageQueue, PullConsumer
from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from sim.clients.wire import RawConnection, first_heartbeat
from sim.validators import GROUP_NAME
from sim.workload import TOPIC

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

COMES_BACK: Final = "A24 offset of a group that was removed with its offsets"
LOST: Final = "A44 a group has other settings than were set"
WAITS_S: Final = (0.0, 0.1, 0.5)
"""How long after a commit its group is removed."""
SETTLED_S: Final = 2.5
"""Offsets that were taken are in the log by then."""
LOOKS: Final = 3
"""Each of so many answers must be wrong: one may come from who led before."""
LOOK_S: Final = 1.0
APART_S: Final = (0.0, 0.0, 0.001, 0.005, 0.02)
"""How long one of them comes after the other, a tool and a member."""
RETRIES: Final = 5
OTHERWISE: Final = {"retryQueueNums": 2, "retryMaxTimes": RETRIES}
"""Otherwise than groups are that clients have made."""


class Administration:
    """One client that does what a tool does."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._made = 0
        self._puller = PullConsumer(
            life.named("groups"), clock=life.machine.clock, rng=life.rng.split("groups")
        )

    async def start(self) -> None:
        """Begin."""
        await self._puller.start()

    async def step(self, rng: SplitRng) -> None:
        """Remove a group, or set one up. Errors: `RemotingError`."""
        self._made += 1
        if rng.split("what").chance(0.5):
            await self._remove(f"{self._life.name}-removed-{self._made}", rng)
        else:
            await self._set_up(f"{self._life.name}-set-{self._made}", rng)

    async def _remove(self, group: str, rng: SplitRng) -> None:
        """Commit an offset of a group, remove it, make it anew, and look for the offset."""
        queues = await self._puller.fetch_subscribe_queues(TOPIC)
        queue = rng.split("queue").choice(queues)
        end = await self._puller.max_offset(queue)
        if not end:
            return
        offset, place = rng.split("offset").randint(1, end), (queue.topic, queue.queue_id)
        where = {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue.queue_id)}
        self._life.validators.of(queue).on_offered(place, offset)
        commits = {**where, "commitOffset": str(offset)}
        if not await self._is_set_up(group):
            return
        if not await self._is_done(RequestCode.UPDATE_CONSUMER_OFFSET, commits):
            return
        await asyncio.sleep(rng.split("wait").choice(WAITS_S))
        removes = {"groupName": group, "removeOffset": "true", "cleanOffset": "true"}
        if not await self._is_done(RequestCode.DELETE_SUBSCRIPTIONGROUP, removes, signs=True):
            return
        if not await self._is_set_up(group):
            return
        self._life.count("groups_removed")
        for look in range(LOOKS):
            await asyncio.sleep(LOOK_S if look else SETTLED_S)
            told = await self._life.ask_leader(
                self._puller, RequestCode.QUERY_CONSUMER_OFFSET, where
            )
            found = (told.ext_fields or {}).get("offset")
            if told.code != ResponseCode.SUCCESS or found != str(offset):
                return
        self._life.report(COMES_BACK, f"{group} was removed, and is at {offset} of {queue}")

    async def _set_up(self, group: str, rng: SplitRng) -> None:
        """Set a group up, while its first member has it made."""
        life = self._life
        if not life.may_make(f"%RETRY%{group}"):
            return
        await self._puller.fetch_subscribe_queues(TOPIC)
        addr = self._puller._leaders.master(MessageQueue(TOPIC, GROUP_NAME, 0))
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return
        joins = first_heartbeat(group, f"{group}@once", TOPIC)
        apart_s = rng.split("apart").choice(APART_S)
        if rng.split("first").chance(0.5):
            connection.write(joins)
            await asyncio.sleep(apart_s)
            is_set = await self._is_set_up(group)
        else:
            setting = asyncio.ensure_future(self._is_set_up(group))
            await asyncio.sleep(apart_s)
            connection.write(joins)
            is_set = await setting
        connection.close()
        if not is_set:
            return
        life.count("groups_set_up")
        for look in range(LOOKS):
            await asyncio.sleep(LOOK_S if look else 0.0)
            told = await life.ask_leader(
                self._puller, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group}
            )
            has = json.loads(bytes(told.body)) if told.code == ResponseCode.SUCCESS else {}
            if all(has.get(name) == value for name, value in OTHERWISE.items()):
                return
        life.report(LOST, f"{group} was to have {OTHERWISE}, and has {has}")

    async def _is_set_up(self, group: str) -> bool:
        """Set a group up otherwise than clients make it; tell whether that was answered."""
        settings = json.dumps({"groupName": group, **OTHERWISE}).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return await self._is_done(code, {}, body=settings, signs=True)

    async def _is_done(
        self, code: RequestCode, fields: dict[str, str], *, body: bytes = b"", signs: bool = False
    ) -> bool:
        told = await self._life.ask_leader(self._puller, code, fields, body=body, signs=signs)
        return told.code == ResponseCode.SUCCESS

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
