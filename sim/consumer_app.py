"""Members of consumer groups: the one that is judged for loss, and those that come later.

Listeners take their time, and fail at times. A message counts as handed out when the listener has
done its work. A late group begins where its start policy says, and what it wants by its tags.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec

from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageExt,
    PushConsumer,
)
from ledgermq.client import rebalance as shares
from sim.oracles.records import TAGS
from sim.workload import GROUP, TOPIC

if TYPE_CHECKING:
    from ledgermq.client import ClientConfig, MessageQueue
    from ledgermq.client.process_queue import ProcessQueue
    from sim.context import Host
    from sim.faults.plan import LateGroup, Workload
    from sim.validators import Validators

MS_PER_S: Final = 1000
SLOW_P: Final = 0.2
SLOW_MS_MAX: Final = 400
"""A listener takes up to so long, every fifth time: what is pulled is not what is done."""
FAILS_MAX: Final = 2
"""A listener fails for a message at most so often."""
LOCAL_RETRY_MS: Final = 700
CACHE_BYTES: Final = 100 << 20
"""Where a group says nothing else."""
START: Final = {
    "first": ConsumeFrom.FIRST_OFFSET,
    "last": ConsumeFrom.LAST_OFFSET,
    "timestamp": ConsumeFrom.TIMESTAMP,
}
LOOK_BACK_MS: Final = 2_000
"""A group that begins at a time begins so long before it comes."""


class ListenerFailed(Exception):  # noqa: N818 - said by a listener, which has failed
    """Raised by a listener of the simulation."""


class KeepingConsumer(PushConsumer):
    """Keeps what its listener failed for: brokers refuse to take back what is nowhere.

    Its messages come in place, again and again, and none takes the way of a retry.
    """

    async def send_back(
        self, process_queue: ProcessQueue, message: MessageExt, delay_level: int
    ) -> None:
        """See `PushConsumer.send_back`."""
        addr = self.leaders.master(process_queue.queue)
        nowhere = msgspec.structs.replace(message, physical_offset=-1)
        await self.api.send_back(addr, nowhere, delay_level, -1)


class ConsumerApp:
    """One host with members of a group."""

    def __init__(
        self,
        name: str,
        config: ClientConfig,
        machine: Host,
        validators: Validators,
        workload: Workload,
    ) -> None:
        self.name = name
        self.is_busy = False
        self._config = config
        self._clock = machine.clock
        self._validators = validators
        self._workload = workload
        self._rng = machine.rng.split(f"life{machine.incarnation}")
        self._fails: dict[tuple[str, int, int], int] = {}
        self.members: list[PushConsumer] = []
        """Those that stay in their group."""

    async def consume(self) -> None:
        """Be a member of the group for ever."""
        options = ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET,
            consume_batch_count=16,
            local_retry_ms=LOCAL_RETRY_MS,
            commit_on_pull=self._workload.commit_on_pull,
            allocate=shares.allocate_averagely,
        )
        push = self._member(GROUP, self.name, options, "*")
        self.members.append(push)
        await push.start()
        await asyncio.get_running_loop().create_future()

    def _member(self, group: str, name: str, options: ConsumeOptions, tags: str) -> PushConsumer:
        config = dataclasses.replace(
            self._config, group=group, instance_name=name, persist_offset_ms=1_000,
            rebalance_ms=5_000,
        )  # fmt: skip
        rng = self._rng.split("push" if group == GROUP else name)

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
            return await self._listen(group, name, messages, context)

        push = KeepingConsumer(config, listen, options, clock=self._clock, rng=rng)
        self._validators.record.follow_consumer(push)
        push.subscribe(TOPIC, tags)
        return push

    async def _listen(
        self, group: str, name: str, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:
        """Work for a while at some messages; they count when that is done."""
        first = messages[0]
        point = self._rng.point(f"work{first.queue_id}-{first.queue_offset}")
        if point < SLOW_P:
            await asyncio.sleep((1 + int(point / SLOW_P * SLOW_MS_MAX)) / MS_PER_S)
        if self._fails_now(context.queue, first):
            if point < 0.5:
                raise ListenerFailed(str(first.queue_offset))
            return ConsumeStatus.RECONSUME_LATER
        for message in messages:
            self.take(group, name, message, context.queue)
        return ConsumeStatus.CONSUME_SUCCESS

    def take(self, group: str, name: str, message: MessageExt, queue: MessageQueue) -> None:
        """Note that a message was handed out and is done."""
        self._validators.note(message, queue, group, name)

    def _fails_now(self, queue: MessageQueue, message: MessageExt) -> bool:
        place = (queue.broker_name, queue.queue_id, message.queue_offset)
        tries = self._fails.get(place, 0)
        point = self._rng.point(f"fail{place}{tries}")
        if tries >= FAILS_MAX or point >= self._workload.fail_p:
            return False
        self._fails[place] = tries + 1
        self._validators.record.count("listener_failures")
        return True


class LateApp(ConsumerApp):
    """One host with the members of a late group."""

    def __init__(
        self, name: str, config: ClientConfig, machine: Host, validators: Validators,
        workload: Workload, *, late: LateGroup,
    ) -> None:  # fmt: skip
        super().__init__(name, config, machine, validators, workload)
        self._late = late
        self.group = f"late-{name}"
        self._first: dict[MessageQueue, int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._address = machine.address
        self._since_ms = 0
        self._got: dict[MessageQueue, set[int]] = {}
        self.has_begun = False

    async def run(self) -> None:
        """Come at the time of the group; members leave and come as it says."""
        late = self._late
        wait_ms = late.at_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / MS_PER_S)
        self._since_ms = max(0, self._clock.wall_ms() - LOOK_BACK_MS)
        self._ends = self._validators.group_answers.ends(TOPIC)
        self.has_begun = True
        options = ConsumeOptions(
            consume_from=START[late.start],
            consume_timestamp_ms=self._since_ms,
            consume_batch_count=4,
            pull_batch_count=late.pull_count,
            suspend_ms=late.suspend_ms,
            local_retry_ms=LOCAL_RETRY_MS,
            max_cached_bytes=late.cache_bytes or CACHE_BYTES,
            commit_on_pull=late.commit_on_pull,
        )
        names = [f"{self.name}-{number}" for number in range(late.members)]
        for name in names[:-1] if late.churn_ms else names:
            await self._member(self.group, name, options, late.tags).start()
        lives = 0
        while late.churn_ms:
            lives += 1
            member = self._member(self.group, f"{names[-1]}-{lives}", options, late.tags)
            await member.start()
            await asyncio.sleep(late.churn_ms / MS_PER_S)
            await member.stop()
            await asyncio.sleep(late.churn_ms / MS_PER_S)
        await asyncio.get_running_loop().create_future()

    def take(self, group: str, name: str, message: MessageExt, queue: MessageQueue) -> None:
        """See `ConsumerApp`; it is also to be in what the group wants."""
        super().take(group, name, message, queue)
        place, answers = (queue.topic, queue.queue_id), self._validators.answers(queue)
        answers.on_filtered(
            place, message.queue_offset, message.maybe_property(TAGS), self._late.tags
        )
        self._got.setdefault(queue, set()).add(message.queue_offset)
        if self._validators.is_known(queue):
            answers.on_begun(group, place, message.queue_offset, self._begins(place))

    def _begins(self, place: tuple[str, int]) -> int:
        """Return the offset before which the group is to be handed nothing."""
        answers, end = self._validators.group_answers, self._ends.get(place, 0)
        if self._late.start == "last":
            # Who was told that there is no such topic takes what comes later for new, all of it.
            is_new = self._validators.routes.lacked(self._address, place[0])
            return 0 if is_new else end
        if self._late.start == "timestamp" and not answers.times_may_fall:
            # Where nothing is so late yet, it begins at the end.
            return min(end, answers.first_since(place, self._since_ms))
        return 0

    def wanted(self, queue: MessageQueue, first: int) -> list[int]:
        """Return the offsets from ``first`` on that the group wants."""
        place = (queue.topic, queue.queue_id)
        return self._validators.group_answers.wanted(place, first, self._late.tags)

    def missing(self, queue: MessageQueue) -> list[int]:
        """Return what the group was not handed and should have been, once all is healed.

        A group that begins at the end may begin there again until it has committed something.
        """
        place = (queue.topic, queue.queue_id)
        answers, got = self._validators.group_answers, self._got.get(queue, set())
        if not self.has_begun or self._late.start == "last":
            return []
        first = 0
        if self._late.start == "timestamp":
            if answers.times_may_fall:
                return []
            first = answers.first_since(place, self._since_ms)
        return [at for at in answers.wanted(place, first, self._late.tags) if at not in got]
