"""Groups that commit an offset once, and never again: what was taken has to last.

A group that goes on commits a later offset soon, and nobody misses what was left out of the log
before. What a leader does with these is judged by its log (`sim.oracles.offsets_kept`).
Source: docs/consumption.md (offsets).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ledgermq.client import PullConsumer
from ledgermq.remoting.protocol.codes import RequestCode
from sim.workload import TOPIC

if TYPE_CHECKING:
    from sim.everyday.life import Life
    from sim.rng import SplitRng

GROUPS_MAX: Final = 60


class Once:
    """One client that commits for such groups."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._made = 0
        self._puller = PullConsumer(
            life.named("once"), clock=life.machine.clock, rng=life.rng.split("once")
        )

    async def start(self) -> None:
        """Begin."""
        await self._puller.start()

    async def step(self, rng: SplitRng) -> None:
        """Commit an offset of a new group. Errors: `RemotingError`."""
        life = self._life
        queues = await self._puller.fetch_subscribe_queues(TOPIC)
        known = [one for one in queues if life.validators.is_known(one)]
        if not known or not life.may_make(f"once {self._made}") or self._made >= GROUPS_MAX:
            return
        queue = rng.split("queue").choice(known)
        self._made += 1
        end = await self._puller.max_offset(queue)
        offset, place = rng.split("offset").randint(0, end), (queue.topic, queue.queue_id)
        life.validators.of(queue).on_offered(place, offset)
        group = f"{life.name}-once-{self._made}"
        made = await life.ask_leader(
            self._puller, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {},
            body=b'{"groupName":"%s"}' % group.encode(), signs=True,
        )  # fmt: skip
        if made.code:
            return
        fields = {
            "consumerGroup": group, "topic": TOPIC, "queueId": str(queue.queue_id),
            "commitOffset": str(offset),
        }  # fmt: skip
        told = await life.ask_leader(self._puller, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        life.count("committed_once", not told.code)

    def missing(self) -> str:
        """Nothing is under way."""
        return ""
