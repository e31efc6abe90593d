"""The push consumer: the member of a group that hands messages to a listener.

It pulls its queues by long polls (`ledgermq.client.puller`), runs the listener
(`ledgermq.client.consume`, `ledgermq.client.orderly`) and commits the smallest unfinished offset of
each queue. Delivery is at least once: after a crash or a rebalance, messages whose commit had not
reached the broker come again. Source: DefaultMQPushConsumerImpl.
"""

import logging
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakValueDictionary

from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.consume import ConsumeService
from ledgermq.client.direct import DirectCalls
from ledgermq.client.group_member import GroupMember
from ledgermq.client.listening import Listener, WatchedListener, check_listener
from ledgermq.client.message import MessageQueue
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.orderly import OrderlyService
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.producer import Producer
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.send_back import SendBack
from ledgermq.client.subscription import ALL
from ledgermq.client.trace import hooks_of
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.transport.connection import Connection
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng, SystemRng

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)
_SYSTEM_CLOCK = SystemClock()

SETTLE_MS = 1_000
"""How long a rebalance waits for what an orderly listener has in hand; then the next one does."""


class PushConsumer(GroupMember):
    """Consumes topics as a member of a group; use it as an async context manager.

    ``listener`` gets a list of messages and a `ConsumeContext` and returns a `ConsumeStatus`, or an
    awaitable of one. A listener that raises has failed. Plain functions run in the event loop and
    must not block.
    """

    CONSUME_TYPE: ClassVar[str] = "CONSUME_PASSIVELY"

    def __init__(
        self,
        config: ClientConfig,
        listener: Listener,
        options: ConsumeOptions | None = None,
        *,
        observer: ConsumerObserver | None = None,
        clock: Clock = _SYSTEM_CLOCK,
        rng: Rng | None = None,
    ) -> None:
        check_listener(listener)
        super().__init__(
            config,
            options or ConsumeOptions(),
            clock,
            rng or SystemRng(),
            observer=observer,
            handlers={RequestCode.CONSUME_MESSAGE_DIRECTLY: self._on_consume_directly},
        )
        ids = self._instance.unique_ids
        hooks, self.tracing = hooks_of(config, Producer, clock, ids)
        if hooks is not None:
            listener = hooks.listener(listener)
        times_max = self.options.max_reconsume_times
        self._back = SendBack(self.api, self.routes, self.leaders, config, times_max)
        self._listener = WatchedListener(listener, clock, self.figures)
        self.service: ConsumeService | OrderlyService = self._make_service(self._listener)
        orderly = self.options.orderly
        self._direct = DirectCalls(listener, config.group, clock, orderly=orderly)

    async def start(self) -> None:
        """Join the group and begin consuming, in the background.

        Topics that do not exist yet are picked up once they do, and name servers that are down
        are asked again: what blocks is logged as a warning, told by `problems`, and raised by
        `wait_joined`. Errors: ``ValueError`` without any subscription; ``RuntimeError`` the second
        time; ``OffsetsUnusable`` when the folder of a broadcasting consumer is another's.
        """
        if not self._subscriptions:
            raise ValueError("subscribe to a topic before start()")
        self._instance.check_new()
        if self.local is None:
            self.subscribe(self._retry_topic, ALL)
        self._join()
        if self.tracing is not None:
            await self.tracing.start()
        self._warn_of_twin()
        self.background.every(self.config.persist_offset_ms, self._commit_due, "commit")

    async def stop(self) -> None:
        """Finish the listener calls in progress, commit, leave the group, close.

        Takes at most ``stop_timeout_ms`` for the listener, ``request_timeout_ms`` for the commits
        of all queues together, and a second for the farewell. Calling it again is harmless.
        """
        if self._instance.running:
            limit_ms = self.clock.monotonic_ms() + self.config.stop_timeout_ms
            self._direct.refuse()  # One that began while others are waited for had less time.
            await self.assignment.stop_pulling()
            await self.service.stop(self.config.stop_timeout_ms)
            await self._commit_last()
            await self._direct.stop(max(0, limit_ms - self.clock.monotonic_ms()))
            if self.locks is not None:
                await self._unlock_all(self.locks)
        await self._leave()
        if self.tracing is not None:
            await self.tracing.stop()

    async def settled(self, process_queue: ProcessQueue) -> bool:
        """Return whether a dropped queue may be given away: nothing of it must end before."""
        if isinstance(self.service, ConsumeService):
            return True
        return await self.service.settle(process_queue, SETTLE_MS)

    def on_full(self, queue: MessageQueue, reason: str) -> None:
        """Take that a queue is not pulled: a listener that goes on would end that."""
        self.hindrances.on_full(queue, reason)

    async def send_back(
        self, process_queue: ProcessQueue, message: MessageExt, delay_level: int
    ) -> None:
        """Have a message delivered again later; raises ``RemotingError`` if it must be kept."""
        await self._back.give(process_queue.queue, message, delay_level)

    def _make_service(self, listener: Listener) -> ConsumeService | OrderlyService:
        """Return who runs the listener; makes the locks of an orderly one."""
        send_back = self.send_back if self.local is None else self._drop
        if not self.options.orderly:
            return ConsumeService(listener, self.options, send_back, self._on_finished)
        may_begin: Callable[[MessageQueue], bool] = _always
        if self.local is None:
            self.locks = QueueLocks(self, self._on_lost)
            may_begin = self.locks.holds
        return OrderlyService(listener, self.options, send_back, self._on_finished, may_begin)

    async def _drop(self, process_queue: ProcessQueue, message: MessageExt, _level: int) -> None:
        """Give up a message that a broadcasting listener failed for, as RocketMQ does."""
        queue, offset = process_queue.queue, message.queue_offset
        _log.warning("queue=%s offset=%d event=broadcast_message_dropped", queue, offset)

    async def _unlock_all(self, locks: QueueLocks) -> None:
        """Unlock all queues but those that the listener has something of: their locks run out."""
        assert isinstance(self.service, OrderlyService)
        await self._within_request_time(locks.close(self.service.in_hand()), "unlocks")

    def _warn_of_twin(self) -> None:
        """Say that another consumer has this client id and group: both get the same queues."""
        me = (self.client_id, self.config.group)
        twin = _STARTED.get(me)
        if twin is not None and twin._instance.running:
            _log.warning("client_id=%s group=%s event=duplicate_instance", *me)
        _STARTED[me] = self

    async def _on_consume_directly(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        return await self._direct.handle(connection, request)

    async def _commit_due(self) -> None:
        self._listener.look()
        await self.assignment.commit_due()

    def _on_lost(self, queue: MessageQueue) -> None:
        """A lock is gone: end with the queue, and look who has it."""
        self.assignment.lose(queue)
        self._wanted.set()

    def _on_finished(self, process_queue: ProcessQueue) -> None:
        self.assignment.on_finished(process_queue)


_STARTED: WeakValueDictionary[tuple[str, str], PushConsumer] = WeakValueDictionary()
"""The consumers of this process by client id and group, the last one started of each."""


def _always(_queue: MessageQueue) -> bool:
    return True
