"""Members that come again and again until their group is there.

A group is made by the log when its first member comes. That may fail: nobody leads, no majority
answers. Who comes again has it made then. Source: spec/wire.md 3.6 (34); RocketMQ
SubscriptionGroupManager.findSubscriptionGroupConfig.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from ledgermq.client import MessageQueue, PullConsumer, RemotingError
from ledgermq.remoting.protocol.codes import RequestCode
from sim.clients.wire import RawConnection, first_heartbeat
from sim.validators import GROUP_NAME
from sim.workload import TOPIC

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

NOT_MADE: Final = "A44 group that its members cannot have made"
OPEN_MAX: Final = 4
"""Groups that are waited for at a time."""
TRIES_CALM: Final = 6
"""So often in a row a member comes in calm times, and its group must be there."""


class NewGroups:
    """Members of groups that nobody has made."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._made = 0
        self._open: dict[str, list[int]] = {}
        """By group that is not there: when somebody came, by a calm clock."""
        self._puller = PullConsumer(
            life.named("joins"), clock=life.machine.clock, rng=life.rng.split("joins")
        )

    async def start(self) -> None:
        """Begin."""
        await self._puller.start()

    async def step(self, rng: SplitRng) -> None:
        """Come as a member of a new group, or again. Errors: `RemotingError`."""
        life = self._life
        if len(self._open) < OPEN_MAX and rng.split("new").chance(0.5):
            self._made += 1
            group = f"{life.name}-joins-{self._made}"
            if life.may_make(f"%RETRY%{group}"):
                self._open[group] = []
        for group in list(self._open):
            await self._join(group)

    async def _join(self, group: str) -> None:
        """Come as a member, and look whether the group is there. Errors: `RemotingError`."""
        life = self._life
        await self._puller.fetch_subscribe_queues(TOPIC)
        addr = self._puller._leaders.master(MessageQueue(TOPIC, GROUP_NAME, 0))
        begun_ms = life.now_ms()
        connection = await RawConnection.dial(addr, life.machine.address)
        if connection is None:
            return
        joins = first_heartbeat(group, f"{group}@joins", TOPIC)
        told = await connection.ask(joins, 1)
        connection.close()
        if told is None:
            return
        life.count("groups_joined")
        if await self._is_there(group):
            del self._open[group]
        else:
            self._check(group, begun_ms)

    async def _is_there(self, group: str) -> bool:
        """Tell whether there is such a group. Errors: `RemotingError`."""
        told = await self._life.ask_leader(
            self._puller, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}
        )
        if told.code:
            raise RemotingError(f"no groups: {told.code}")
        return group in json.loads(bytes(told.body))["subscriptionGroupTable"]

    def _check(self, group: str, begun_ms: int) -> None:
        calm_ms, came = self._life.calm_since_ms(), self._open[group]
        if calm_ms is None or calm_ms > begun_ms:
            came.clear()
            return
        came.append(begun_ms)
        if len(came) >= TRIES_CALM:
            since_ms = self._life.now_ms() - came[0]
            text = f"{group} is not there, although a member has come {len(came)} times"
            self._life.report(NOT_MADE, f"{text} within {since_ms} ms in which nothing happened")

    def missing(self) -> str:
        """What is not there yet is judged as it is asked for."""
        return ""
