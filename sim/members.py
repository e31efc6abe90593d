"""Members of the groups that are there for one kind of messages: retried, in order, to everybody.

Each runs on a host of its own. It leaves and comes again, pauses and goes on, as the plan says,
until the faults are over; that it is killed is the world's to do. What its listener is handed is
noted in the harness, which survives the process.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from chaos.history.payload import decode_body
from ledgermq.client import (
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageExt,
    MessageModel,
    PushConsumer,
    local_offsets,
)
from ledgermq.remoting.protocol.headers import Claim
from sim.context import CURRENT
from sim.workload import BROADCAST_GROUP, STEP_GROUP, STEP_TOPIC, TASK_GROUP, TASK_TOPIC, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledgermq.client import ClientConfig, MessageQueue, RemotingError
    from ledgermq.client.assignment import Held
    from sim.context import Host
    from sim.disk import SimDisk
    from sim.faults.traffic import Broadcast, Membership, Orderly, Retrying
    from sim.oracles.broadcast import Broadcast as BroadcastOracle
    from sim.oracles.order import Order
    from sim.oracles.retries import Retries
    from sim.validators import Validators

MS_PER_S: Final = 1000
SLOW_P: Final = 0.3
SLOW_MS_MAX: Final = 400
LONG_P: Final = 0.05
"""How many calls take much longer, where some do."""
LOCAL_RETRY_MS: Final = 700
ORDER_SUSPEND_MS: Final = 100
OFFSETS_DIRECTORY: Final = "/offsets"
NEVER_OF: Final = 1_000
LEVELS_CHOSEN: Final = (-1, 1, 2, 2)
"""What a listener may say itself: below 0, that it gives the message up."""


class ListenerFailed(Exception):  # noqa: N818 - said by a listener, which has failed
    """Raised by a listener of the simulation."""


class MemberApp:
    """One host with one member of a group.

    Args:
        until_ms: when it does nothing but consume any more.
    """

    group = ""
    topic = ""

    def __init__(
        self, name: str, config: ClientConfig, machine: Host, validators: Validators,
        membership: Membership, until_ms: int,
    ) -> None:  # fmt: skip
        self.name = name
        self.is_busy = False
        self._config = config
        self._machine = machine
        self._validators = validators
        self._membership = membership
        self._until_ms = until_ms
        number = int(name[1:])
        self._churn_ms = membership.churn_ms if number == membership.members - 1 else 0
        self._rng = machine.rng.split(f"life{machine.incarnation}")

    async def run(self) -> None:
        """Be a member until the process ends; leave and come again."""
        lives = 0
        while True:
            lives += 1
            push = self._member(lives)
            await push.start()
            await self._live(push)
            await push.stop()
            self.on_stopped()
            await asyncio.sleep(self._churn_ms / MS_PER_S)

    async def _live(self, push: PushConsumer) -> None:
        """Consume, with pauses, until it is time to leave."""
        pause_ms, clock = self._membership.pause_ms, self._machine.clock
        leaves_ms = clock.monotonic_ms() + self._churn_ms
        while clock.monotonic_ms() < self._until_ms:
            if self._churn_ms and clock.monotonic_ms() >= leaves_ms:
                return
            await asyncio.sleep((pause_ms or self._churn_ms or MS_PER_S) / MS_PER_S)
            if pause_ms:
                push.pause()
                await asyncio.sleep(pause_ms / MS_PER_S)
                push.resume()
        await asyncio.get_running_loop().create_future()

    def _member(self, lives: int) -> PushConsumer:
        config = dataclasses.replace(
            self._config, group=self.group, instance_name=self._instance(lives),
            persist_offset_ms=1_000, rebalance_ms=5_000,
        )  # fmt: skip
        push = PushConsumer(
            config, self._listen, self._options(), clock=self._machine.clock,
            rng=self._rng.split(f"push{lives}"),
        )  # fmt: skip
        self._validators.record.follow_consumer(push)
        push.subscribe(self.topic)
        return push

    def _instance(self, lives: int) -> str:
        return f"{self._config.instance_name}-{lives}"

    def _options(self) -> ConsumeOptions:
        return ConsumeOptions(
            consume_from=ConsumeFrom.FIRST_OFFSET,
            consume_batch_count=self._membership.batch,
            local_retry_ms=LOCAL_RETRY_MS,
            order_suspend_ms=ORDER_SUSPEND_MS,
        )

    async def _listen(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        raise NotImplementedError

    async def _work(self, context: ConsumeContext, message: MessageExt) -> float:
        """Take a while at times; return a number of chance for this call."""
        place = f"{context.queue.topic}-{context.queue.queue_id}-{message.queue_offset}"
        point = self._rng.point(f"work{place}-{message.reconsume_times}")
        if point < SLOW_P:
            await asyncio.sleep((1 + int(point / SLOW_P * SLOW_MS_MAX)) / MS_PER_S)
        if self._rng.point(f"long{place}-{message.reconsume_times}") < LONG_P:
            await asyncio.sleep(self._membership.slow_ms / MS_PER_S)
        return self._rng.point(f"fail{place}-{message.reconsume_times}")

    def _note(self, message: MessageExt, context: ConsumeContext) -> None:
        """Have what was handed out compared with the log."""
        validators, queue = self._validators, context.queue
        key, digest = validators.record.delivered(message, self.group, self.name)
        place = (queue.topic, queue.queue_id)
        validators.of(queue).on_delivered(place, message.queue_offset, key, digest)

    def on_stopped(self) -> None:
        """The member has left in good order."""


class RetryApp(MemberApp):
    """A member whose listener fails, and gives back what it could not take."""

    group, topic = TASK_GROUP, TASK_TOPIC

    def __init__(self, *args: Any, settings: Retrying, oracle: Retries) -> None:  # noqa: ANN401  # as `MemberApp`
        super().__init__(*args)
        self._settings = settings
        self._oracle = oracle

    def _options(self) -> ConsumeOptions:
        return dataclasses.replace(super()._options(), max_reconsume_times=self._settings.times_max)

    async def _listen(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        """Finish some messages, or fail for all of them."""
        chance = await self._work(context, messages[0])
        is_failed = chance < self._settings.fail_p or any(map(self._is_never_taken, messages))
        chosen = self._rng.point(f"level{chance}")
        if is_failed and chosen < self._settings.chosen_p:
            at = int(chosen / self._settings.chosen_p * len(LEVELS_CHOSEN))
            context.delay_level = LEVELS_CHOSEN[at]
        for message in messages:
            self._note(message, context)
            key = _key_of(message)
            place = (context.queue.topic, context.queue.queue_id, message.queue_offset)
            if key is not None and is_failed:
                times = message.reconsume_times
                self._oracle.on_failed(place, key, times, context.delay_level)
            elif key is not None:
                self._oracle.on_finished(place, key)
        if not is_failed:
            return ConsumeStatus.CONSUME_SUCCESS
        self._validators.record.count("given_back", len(messages))
        if chance < self._settings.fail_p / 2:
            raise ListenerFailed(self.name)
        return ConsumeStatus.RECONSUME_LATER

    def _is_never_taken(self, message: MessageExt) -> bool:
        """Tell whether no listener ever takes a message."""
        key = _key_of(message) or 0
        return key * 2_654_435_761 % NEVER_OF < self._settings.never_p * NEVER_OF


class OrderlyApp(MemberApp):
    """A member that takes the messages of each queue one after the other."""

    group, topic = STEP_GROUP, STEP_TOPIC

    def __init__(self, *args: Any, settings: Orderly, oracle: Order) -> None:  # noqa: ANN401  # likewise
        super().__init__(*args)
        self._settings = settings
        self._oracle = oracle
        self.on_made: Callable[[PushConsumer], None] = lambda _push: None
        """Hears of each consumer before it starts."""
        self._held_of: Callable[[MessageQueue], Held | None] = lambda _queue: None
        self._tries = 0
        self._finished: dict[MessageQueue, int] = {}
        """Where a queue goes on behind what was finished last."""

    def _member(self, lives: int) -> PushConsumer:
        push = super()._member(lives)
        unlock = push.api.unlock

        self._finished, asked = {}, {}
        ask, commit = push.api.commit_offset, push.assignment._commit
        take, self._held_of = push.assignment._take, push.assignment._held.get

        async def taken(queue: MessageQueue) -> bool:
            # Its lock may have run out: then what was finished before is not committed any more.
            self._finished.pop(queue, None)
            return await take(queue)

        async def noted(
            addr: str, queue: MessageQueue, offset: int, claim: Claim | None = None
        ) -> None:
            asked[queue] = offset
            await ask(addr, queue, offset, claim)

        async def committed(held: Held, claim: Claim = Claim.IF_FREE) -> RemotingError | None:
            error = await commit(held, claim)
            # Nobody took it, or could be asked: it was tried. Or its lock is lost: it must not be.
            if error is not None or held.process_queue.lost:
                self._finished.pop(held.process_queue.queue, None)
            return error

        async def heard(addr: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
            released = list(queues)
            for queue in released:
                self._oracle.on_unlocked(self.name, (queue.topic, queue.queue_id))
                done = self._finished.pop(queue, None)
                if done is not None:
                    self._oracle.on_left(
                        self.name, (queue.topic, queue.queue_id), done, asked.get(queue)
                    )
            await unlock(addr, client_id, released)

        push.api.commit_offset = noted  # type: ignore[method-assign]  # to listen to it
        push.assignment._commit = committed  # type: ignore[method-assign]  # likewise
        push.assignment._take = taken  # type: ignore[method-assign]  # likewise
        push.api.unlock = heard  # type: ignore[method-assign]  # to listen to it
        self.on_made(push)
        return push

    def _options(self) -> ConsumeOptions:
        times_max = self._settings.times_max
        return dataclasses.replace(super()._options(), orderly=True, max_reconsume_times=times_max)

    async def _listen(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        """Finish some messages, or fail for all of them."""
        queue = (context.queue.topic, context.queue.queue_id)
        offsets = [message.queue_offset for message in messages]
        process = CURRENT.get()
        assert process is not None
        self._oracle.on_begun(self.name, queue, offsets, lambda: process.alive)
        held = self._held_of(context.queue)
        try:
            chance = await self._work(context, messages[0])
        except asyncio.CancelledError:
            self._oracle.on_cancelled(self.name, queue)
            raise
        is_done = chance >= self._settings.fail_p
        for message in messages:
            self._note(message, context)
        self._oracle.on_ended(self.name, queue, offsets, is_done=is_done)
        self._validators.record.count("steps" if is_done else "steps_again", len(messages))
        if is_done:
            is_same = held is not None and self._held_of(context.queue) is held
            if is_same and held is not None and not held.process_queue.lost:
                self._finished[context.queue] = max(offsets) + 1
            return ConsumeStatus.CONSUME_SUCCESS
        return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class BroadcastApp(MemberApp):
    """A member that gets all messages, and keeps on its disk how far it has come."""

    group, topic = BROADCAST_GROUP, TOPIC

    def __init__(
        self, *args: Any, settings: Broadcast, oracle: BroadcastOracle, disk: SimDisk  # noqa: ANN401  # likewise
    ) -> None:  # fmt: skip
        super().__init__(*args)
        self._settings = settings
        self._oracle = oracle
        self._disk = disk
        self._path = ""

    def _instance(self, lives: int) -> str:
        """Return a name that lasts: the folder of the offsets has it."""
        del lives
        return self.name

    def _options(self) -> ConsumeOptions:
        is_first = self._settings.start == "first"
        return dataclasses.replace(
            super()._options(),
            model=MessageModel.BROADCASTING,
            consume_from=ConsumeFrom.FIRST_OFFSET if is_first else ConsumeFrom.LAST_OFFSET,
        )

    def _member(self, lives: int) -> PushConsumer:
        push = super()._member(lives)
        local = local_offsets.LocalOffsets(
            OFFSETS_DIRECTORY, push.client_id, self.group, self._disk
        )
        local_offsets._IN_USE.discard(local._folder)  # a process that was killed had it
        push.local = local
        self._path = local.path
        return push

    async def _listen(
        self, messages: list[MessageExt], context: ConsumeContext
    ) -> ConsumeStatus:  # fmt: skip
        """Take messages; what it fails for does not come again."""
        is_known = self._validators.is_known(context.queue)
        places = [((one.topic, one.queue_id), one.queue_offset) for one in messages if is_known]
        for place in places:
            self._oracle.on_handed(self.name, *place)
        chance = await self._work(context, messages[0])
        for message in messages:
            self._note(message, context)
        for place in places:
            self._oracle.on_taken(self.name, *place)
        self._validators.record.count("broadcast", len(messages))
        if chance < self._settings.fail_p:
            return ConsumeStatus.RECONSUME_LATER
        return ConsumeStatus.CONSUME_SUCCESS

    def written(self) -> bytes:
        """Return what its file holds now, be it dead or alive."""
        return bytes(self._disk.look(self._path))

    def on_stopped(self) -> None:
        """See `MemberApp`."""
        self._oracle.on_stopped(self.name, self._disk.read(self._path))


def _key_of(message: MessageExt) -> int | None:
    payload = decode_body(message.content())
    return None if payload is None else payload.msg_key
