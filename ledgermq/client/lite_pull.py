"""The lite pull consumer: a member of a group whose caller polls, instead of a listener.

It pulls ahead, within bounds, and keeps what it got until `LitePullConsumer.poll` takes it. What a
poll gave out is done with at the next poll, and committed after that: delivery is at least once.
Source: DefaultLitePullConsumerImpl, AssignedMessageQueue.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import ClassVar, Final

from ledgermq.client.config import ClientConfig, LitePullOptions
from ledgermq.client.errors import NoRoute
from ledgermq.client.group_member import GroupMember
from ledgermq.client.message import MessageQueue
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.pauses import checked
from ledgermq.client.polled import ManualQueue, Polled
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.subscription import Sql92, parse_subscription
from ledgermq.client.validation import check_topic
from ledgermq.remoting.protocol.bodies import HeartbeatData
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng, SystemRng

_log = logging.getLogger(__name__)
_SYSTEM_CLOCK = SystemClock()

POLLS_PER_TURN_MAX: Final = 64
"""Polls that never wait give the loop a turn after so many."""

QueuesListener = Callable[[str, Sequence[MessageQueue]], None]
"""Told a topic and its queues, sorted, when these have changed."""


class LitePullConsumer(GroupMember):
    """Shares or chooses queues and is polled; use it as an async context manager.

    `subscribe` shares the queues of a topic with the other members of the group; `assign` takes
    chosen ones, whoever else reads them. One of the two. ``async for message in consumer`` polls,
    too.
    """

    CONSUME_TYPE: ClassVar[str] = "CONSUME_ACTIVELY"
    expression_in_pull: ClassVar[bool] = True

    def __init__(
        self,
        config: ClientConfig,
        options: LitePullOptions | None = None,
        *,
        observer: ConsumerObserver | None = None,
        clock: Clock = _SYSTEM_CLOCK,
        rng: Rng | None = None,
    ) -> None:
        self.lite = options or LitePullOptions()
        super().__init__(
            config, self.lite.to_consume(), clock, rng or SystemRng(), observer=observer
        )
        self._polled = Polled(self.assignment.on_finished)
        self.service = self._polled
        self._assigned: frozenset[MessageQueue] | None = None
        self._polling = False
        self._poller: asyncio.Task[object] | None = None
        self._polls = 0
        self._watched: dict[str, tuple[QueuesListener, tuple[MessageQueue, ...] | None]] = {}

    def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """Share the queues of ``topic`` with the group; ``expression`` is as in `PushConsumer`.

        Errors: ``InvalidMessage``; ``ValueError`` after `assign`.
        """
        if self._assigned is not None:
            raise ValueError("this consumer was assigned queues: it cannot subscribe as well")
        super().subscribe(topic, expression)

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql92 = "*") -> None:
        """Take exactly these queues, in place of those before; nobody shares them.

        Errors, by which nothing changes: ``InvalidMessage``; ``TypeError`` for what is no queue;
        ``ValueError`` after `subscribe`.
        """
        if self._assigned is None and self._subscriptions:
            raise ValueError("this consumer has subscribed: it cannot be assigned queues as well")
        assigned = frozenset(checked(queues))
        topics = sorted({queue.topic for queue in assigned})
        for topic in topics:
            parse_subscription(topic, expression, 0)
        self._assigned = assigned
        for topic in sorted(self._subscriptions.keys() - set(topics)):
            self.unsubscribe(topic)
        for topic in topics:
            super().subscribe(topic, expression)

    def on_queues_changed(self, topic: str, listener: QueuesListener) -> None:
        """Call ``listener`` whenever ``topic`` has got other queues; the first look is silent."""
        check_topic(topic)
        self._watched[topic] = (listener, None)

    async def start(self) -> None:
        """Join the group and begin to pull, in the background; see `PushConsumer.start`.

        Errors: ``OffsetsUnusable`` when the folder of a broadcasting consumer is another's.
        """
        self._join()
        every = self.background.every
        if self.lite.auto_commit:
            every(self.lite.auto_commit_interval_ms, self.assignment.commit_due, "commit")
        every(self.lite.queues_check_ms, self._look_at_queues, "queues")

    async def stop(self) -> None:
        """Commit what was given out, leave the group, close. Calling it again is harmless.

        Without ``auto_commit`` only what `commit` has said is committed. While another task works
        on what it polled, that is not committed: it comes again.
        """
        if self._instance.running:
            await self.assignment.stop_pulling()
            poller = self._poller
            if poller is None or poller.done() or poller is asyncio.current_task():
                self._polled.finish()
            else:
                self._polled.keep()
            await self._commit_last()
        await self._leave()
        self._polled.arrived.set()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; after an error, what the last poll gave out is not committed."""
        if error is not None:
            self._polled.keep()
        await super().__aexit__(kind, error, trace)

    async def poll(self, timeout_s: float = 5.0, max_count: int | None = None) -> list[MessageExt]:
        """Return messages, as soon as there are any, or none after ``timeout_s``.

        With it, what the last poll gave out is done with. One task polls at a time. Errors, by
        which nothing is done with: ``NotRunning``; ``RuntimeError`` while another task polls;
        ``ValueError`` for a count below 1. Why nothing comes is told by `problems`.
        """
        self._instance.check_running("consumer")
        if self._polling:
            raise RuntimeError("another task polls this consumer")
        count = self.lite.poll_count_max if max_count is None else max_count
        if count < 1:
            raise ValueError(f"max_count {count} is not at least 1")
        self._poller = asyncio.current_task()
        self._polled.finish()
        self._polls += 1
        if self._polls % POLLS_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
        found = self._polled.take(count, self.pauses)
        if found or timeout_s <= 0:
            return found
        self._polling = True
        try:
            async with timeout(timeout_s):
                while not found:
                    await self._polled.arrived.wait()
                    self._instance.check_running("consumer")
                    found = self._polled.take(count, self.pauses)
        except TimeoutError:
            pass
        finally:
            self._polling = False
        return found

    def take_back(self, messages: Sequence[MessageExt]) -> None:
        """Give out again what the last poll returned, if it was this: its caller never had it."""
        self._polled.take_back(messages)

    def keep(self) -> None:
        """Leave what the last poll gave out unfinished: it is not committed, and comes again."""
        self._polled.keep()

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Poll one message after the other, for as long as the consumer runs."""
        while self._instance.running:
            for message in await self.poll(max_count=1):
                yield message

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with some paused queues, or with all, which alone ends a pause of all."""
        super().resume(queues)
        self._polled.arrived.set()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit ``offsets``, or all that was given out until now, and wait for the answers.

        Errors: ``RemotingError`` of a queue whose commit failed, ``ValueError`` for one that this
        consumer does not hold now; the others are committed. ``ValueError`` for what is no offset,
        and for any with ``auto_commit``; nothing is committed then.
        """
        self._instance.check_running("consumer")
        for queue, offset in (offsets or {}).items():
            _check_offset(offset, f" of {queue}")
        if offsets is not None and self.lite.auto_commit:
            raise ValueError("with auto_commit, the offsets are those that were polled")
        self._polled.finish()
        held = {one.process_queue.queue: one for one in self.assignment.held}
        for one in held.values():
            _ask_for(one.process_queue, offsets)
        wanted: Mapping[MessageQueue, int | None] = offsets or {}
        if offsets is None:
            wanted = {queue: one.process_queue.maybe_commit_offset() for queue, one in held.items()}
        errors = await self.assignment.commit_now()
        # 1. A queue is given away, with a commit. 2. This one waits for it, and is not sent then.
        lost = [
            queue
            for queue, offset in sorted(wanted.items())
            if not self.assignment.has_committed(queue, held.get(queue), offset)
        ]
        for error in errors:
            raise error
        for queue in lost:
            raise ValueError(f"{queue} is not assigned to this consumer now: it was not committed")

    async def committed(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none."""
        self._instance.check_running("consumer")
        return await self.stored_offset(queue)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset behind what was given out and done with. Errors: ``ValueError``."""
        for held in self.assignment.held:
            if held.process_queue.queue == queue:
                return held.process_queue.position
        raise ValueError(f"{queue} is not assigned to this consumer now")

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``: the next poll gives out nothing of ``queue`` from before.

        Errors: ``ValueError`` for a queue that this consumer does not hold now.
        """
        self._instance.check_running("consumer")
        _check_offset(offset)
        try:
            is_held = await self.assignment.restart(queue, offset)
        except asyncio.CancelledError:
            self._wanted.set()  # The queue was dropped: a rebalance takes it again, at the offset.
            raise
        if not is_held:
            raise ValueError(f"{queue} is not assigned to this consumer now")

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message kept. Errors: as `seek`, and ``RemotingError``."""
        api, call = self.api, self.leaders.call
        await self.seek(queue, await call(queue, lambda a: api.min_offset(a, queue), slaves=True))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes from now on. Errors: as `seek`, and ``RemotingError``."""
        api, call = self.api, self.leaders.call
        await self.seek(queue, await call(queue, lambda a: api.max_offset(a, queue), slaves=True))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a wall-clock time."""
        self._instance.check_running("consumer")
        api = self.api
        return await self.leaders.call(
            queue, lambda addr: api.search_offset(addr, queue, timestamp_ms), slaves=True
        )

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with the first message stored at or after a wall-clock time."""
        await self.seek(queue, await self.offset_for_timestamp(queue, timestamp_ms))

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of ``topic``, asking the name servers now."""
        check_topic(topic)
        self._instance.check_running("consumer")
        return sorted((await self.routes.refresh(topic)).subscribe_queues)

    # What pull loops and the assignment need.

    async def settled(self, process_queue: ProcessQueue) -> bool:
        """Return True: nothing ends later, a dropped queue is given out no more."""
        return True

    def new_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        """Return the bookkeeping of a queue that is consumed from ``offset`` on."""
        if self.lite.auto_commit:
            return ProcessQueue(queue, offset)
        return ManualQueue(queue, offset)

    def maybe_flow_control(self, process_queue: ProcessQueue) -> str | None:
        """Return why pulling must pause: of this queue, or of all together."""
        most = self.lite.max_cached_messages_all
        if self._polled.waiting > most:  # Paused queues would keep the others for as long.
            waiting = self._polled.waiting_of(self.pauses)
            if waiting > most:
                return f"{waiting} messages of all queues cached"
        return super().maybe_flow_control(process_queue)

    @property
    def claims(self) -> bool:
        """Whether queues are claimed: not those that were assigned, which others may read, too."""
        return self._assigned is None and super().claims

    async def _share(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        if self._assigned is None:
            return await super()._share(queues)
        wanted = sorted(queue for queue in self._assigned if queue.topic == queues[0].topic)
        unknown = [queue for queue in wanted if queue not in queues]
        if unknown:
            raise NoRoute(f"{unknown[0]} is no queue that can be read")
        return wanted

    def _heartbeat(self) -> HeartbeatData:
        data = super()._heartbeat()
        if self._assigned is not None:
            # Members with queues of their own have nothing that the whole group subscribes to.
            data.consumer_data_set[0].subscription_data_set = []
        return data

    async def _look_at_queues(self) -> None:
        """Tell those who want to know which topics have other queues than before."""
        for topic in list(self._watched):
            try:
                now = tuple(sorted((await self.routes.refresh(topic)).subscribe_queues))
            except RemotingError as error:
                _log.debug("topic=%s event=no_route error=%s", topic, error)
                continue
            listener, before = self._watched[topic]  # Somebody else may want to know by now.
            self._watched[topic] = (listener, now)
            if before is not None and now != before:
                _tell(listener, topic, now)


def _tell(listener: QueuesListener, topic: str, queues: Sequence[MessageQueue]) -> None:
    """Tell a function of the user's; one that fails keeps nobody else from being told."""
    try:
        listener(topic, list(queues))
    except Exception:  # noqa: BLE001 - logged, and the others are told
        _log.exception("topic=%s event=queues_listener_failed", topic)


def _ask_for(one: ProcessQueue, offsets: Mapping[MessageQueue, int] | None) -> None:
    """Have a queue committed, where that is the caller's to say."""
    if isinstance(one, ManualQueue):
        one.asked = one.position if offsets is None else offsets.get(one.queue, one.asked)


def _check_offset(offset: object, of: str = "") -> None:
    """Refuse what is no offset. Errors: ``ValueError``."""
    if type(offset) is not int:
        raise ValueError(f"offset {offset!r}{of} must be a whole number")
    if offset < 0:
        raise ValueError(f"offset {offset}{of} must not be negative")
