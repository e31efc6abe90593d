"""Leader changes of our group between requests; clients come again then, as real ones do.

RocketMQ's broker goes on: what it answers is what our next leader has to answer, too. Clients leave
both sides and come back, since members are known by their connections.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledgermq.runtime.cancel import timeout
from tests.interop.differential.wire import Wired
from tests.interop.differential.words import CLIENTS

if TYPE_CHECKING:
    from bench.cluster import Cluster
    from tests.interop.differential.draw import Step
    from tests.interop.differential.sides import Side

HEARTBEAT, LEAVE, TRANSFER = 34, 35, 29_003
WITHIN_S, POLL_S = 30.0, 0.02
PERSISTED_S = 1.3
"""A leader puts offsets into the log once a second; one that is killed takes what came since."""
TOLD_S = 0.5
"""Members are told of each other (40), which is not compared."""
PROBE = Wired(30, {"topic": "begin", "queueId": 0})


@dataclass(slots=True)
class Moves:
    """Moves our leader after each ``every`` requests: hands it over, and kills it, in turn.

    ``joined`` is in which groups each client has said it is, by the number of its connection, and
    ``makers`` who is a producer: both sides hear it again on new connections.
    """

    cluster: Cluster
    every: int
    count: int = 0
    handed_over: int = 0
    killed: int = 0
    joined: dict[int, dict[str, Any]] = field(default_factory=dict)
    makers: set[int] = field(default_factory=set)

    async def after(self, step: Step, theirs: Side, ours: Side) -> None:
        """Note what a client has said of itself; move, where it is time."""
        self.note(step)
        self.count += 1
        if self.count % self.every:
            return
        await asyncio.sleep(PERSISTED_S)
        for side in (theirs, ours):
            await side.close()
        await self._move(ours)
        for side in (theirs, ours):
            for number in range(len(CLIENTS)):
                await side.link("broker", number).ask(Wired(HEARTBEAT, {}, self._said(number)))
        await asyncio.sleep(TOLD_S)
        for side in (theirs, ours):
            for link in side.links.values():
                link.asked.clear()

    def note(self, step: Step) -> None:
        """Note what a client says of itself."""
        if step.code == LEAVE:
            self.joined.get(step.link, {}).pop(step.fields.get("consumerGroup"), None)
            if "producerGroup" in step.fields:
                self.makers.discard(step.link)
        if step.code != HEARTBEAT or b"clientID" not in step.body or step.body[-1:] != b"}":
            return
        told = json.loads(step.body)
        groups = self.joined.setdefault(step.link, {})
        groups.update({row["groupName"]: row for row in told["consumerDataSet"]})
        if told["producerDataSet"]:
            self.makers.add(step.link)

    def _said(self, number: int) -> bytes:
        producers = [{"groupName": "makers"}] if number in self.makers else []
        consumers = list(self.joined.get(number, {}).values())
        told = {"clientID": CLIENTS[number], "consumerDataSet": consumers}
        return json.dumps({**told, "producerDataSet": producers}).encode()

    async def _move(self, ours: Side) -> None:
        """Have another member lead, and wait until it takes requests."""
        before = await asyncio.to_thread(self.cluster.leader)
        is_kill = self.killed < self.handed_over
        if is_kill:
            await asyncio.to_thread(self.cluster.kill, before)
        else:
            target = (before + 1) % len(self.cluster.ports)
            await ours.link("broker").ask(Wired(TRANSFER, {"target": f"n{target}"}))
            await ours.close()
        async with timeout(WITHIN_S):
            while (leader := await asyncio.to_thread(self.cluster.leader)) == before:
                await asyncio.sleep(POLL_S)
            ours.broker = f"127.0.0.1:{self.cluster.ports[leader]}"
            while (answer := await ours.link("broker").ask(PROBE)) is None or answer.code:
                await asyncio.sleep(POLL_S)
        if is_kill:
            await asyncio.to_thread(self.cluster.restart, before)
        self.killed += is_kill
        self.handed_over += not is_kill
