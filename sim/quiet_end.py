"""The end of some runs: nobody does anything any more, and then somebody asks for one thing.

While clients work, each thing that was forgotten is done with the next request of somebody. So all
clients are killed once everything is judged, and some time passes. Then a pull is held at the end
of a queue, alone, and has to be answered when its time is up; and another one, a while later.
Source: docs/protocol.md (long polling); RocketMQ PullRequestHoldService.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ledgermq.remoting.protocol.codes import RequestCode, ResponseCode
from sim.clients.wire import RawConnection, frame_of
from sim.machines import NS_PER_MS
from sim.oracles.base import Violation
from sim.record import AUDITOR
from sim.stepping import run_until
from sim.workload import PULL_GROUP, TOPIC

if TYPE_CHECKING:
    from sim.world import World

QUIET_P: Final = 0.3
"""How many runs end so."""
STREAM: Final = "quiet end"
QUIET_MS: Final = 1_500
HELD_MS: Final = 600
LATE_MS: Final = 1_000
"""A pull is answered so late at the most."""
TIMES: Final = 2
SUSPENDS: Final = "6"
"""It may wait, and says itself what it wants."""


class QuietEnd:
    """Runs it, on the host of the auditor."""

    name: Final = "A41 pull that waits alone is not answered"

    def __init__(self, world: World) -> None:
        self._world = world
        self._answered_ms: list[float] = []
        self._term = -1

    def run(self) -> None:
        """Run it. Errors: `Violation`."""
        world = self._world
        leader = world.leader()
        self._term = self._term_of(leader)
        if leader is None or not world.rng.split(STREAM).chance(QUIET_P):
            return
        kept = {*world.brokers(), *world.alone(), *world.namesrvs(), AUDITOR}
        for name in world.hosts:
            if name not in kept:
                world.crash(name)
        world.run_on(AUDITOR, self._ask(world.layout.broker_address(leader)))
        waits_ms = TIMES * (QUIET_MS + HELD_MS + LATE_MS)
        run_until(world, world.loop.now_ns // NS_PER_MS + waits_ms, lambda: None)
        if world.leader() == leader and self._term_of(leader) == self._term:
            self._check(leader)

    def _term_of(self, name: str | None) -> int:
        return -1 if name is None else self._world.watch.replicas[name].state.term

    def _check(self, leader: str) -> None:
        world = self._world
        world.record.count("quiet_pulls", len(self._answered_ms))
        soon, late = HELD_MS // 2, HELD_MS + LATE_MS  # clocks may run at half speed, or at double
        wrong = [took for took in self._answered_ms if not soon <= took <= late]
        if wrong or len(self._answered_ms) < TIMES:
            text = f"{leader}: held for {HELD_MS} ms, answered after {self._answered_ms}"
            raise Violation(self.name, text, node=leader)

    async def _ask(self, address: str) -> None:
        world = self._world
        clock = world.hosts[AUDITOR].clock
        for number in range(TIMES):
            await asyncio.sleep(QUIET_MS / 1_000)
            connection = await RawConnection.dial(address, world.hosts[AUDITOR].address)
            if connection is None:
                return
            end = len(world.watch.truth.queues.get((TOPIC, 0), ()))
            fields = {
                "consumerGroup": PULL_GROUP, "topic": TOPIC, "queueId": "0",
                "queueOffset": str(end), "maxMsgNums": "1", "sysFlag": SUSPENDS,
                "commitOffset": "0", "suspendTimeoutMillis": str(HELD_MS), "subscription": "*",
                "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            begun_ms = clock.monotonic_ms()
            request = frame_of(RequestCode.PULL_MESSAGE, number, fields)
            answer = await connection.ask(request, number)
            took_ms = clock.monotonic_ms() - begun_ms
            if answer is not None and answer.code == ResponseCode.PULL_NOT_FOUND:
                self._answered_ms.append(took_ms)
            connection.close()
