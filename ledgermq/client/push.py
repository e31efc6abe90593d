"""The push consumer: members of a group share the queues and hand messages to a listener.

Each member computes its share from the same lists (`ledgermq.client.rebalance`), pulls its queues
by long polls (`ledgermq.client.puller`), runs the listener (`ledgermq.client.consume`) and commits
the smallest unfinished offset of each queue. Delivery is at least once: after a crash or a
rebalance, messages whose commit had not reached the broker come again. Source:
DefaultMQPushConsumerImpl, RebalanceImpl, RebalancePushImpl, RemoteBrokerOffsetStore.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ledgermq.client.assignment import Assignment
from ledgermq.client.background import Background
from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.consume import ConsumeService
from ledgermq.client.errors import NameServersUnreachable, NoRoute
from ledgermq.client.ids import lasting_client_id
from ledgermq.client.instance import ClientInstance
from ledgermq.client.leader import LeaderCalls
from ledgermq.client.lifecycle import StartStop
from ledgermq.client.listening import Listener, WatchedListener
from ledgermq.client.local_offsets import LocalOffsets
from ledgermq.client.message import ConsumeFrom, MessageModel, MessageQueue
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.orderly import OrderlyService
from ledgermq.client.pauses import Pauses
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.send_back import SendBack
from ledgermq.client.strategies import share_of
from ledgermq.client.subscription import ALL, Sql92, Subscription, parse_subscription, retry_topic
from ledgermq.client.validation import check_group
from ledgermq.remoting.protocol.bodies import ConsumerData, HeartbeatData
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.remoting.transport.connection import Connection
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock, SystemClock
from ledgermq.runtime.rng import Rng, SystemRng

if TYPE_CHECKING:
    from ledgermq.remoting.transport.dispatch import Handler

_log = logging.getLogger(__name__)
_SYSTEM_CLOCK = SystemClock()

UNBALANCED_RETRY_MS = 1_000
"""When a rebalance that did not succeed wholly is tried again."""
SETTLE_MS = 1_000
"""How long a rebalance waits for what an orderly listener has in hand; then the next one does."""


class PushConsumer(StartStop):
    """Consumes topics as a member of a group; use it as an async context manager.

    ``listener`` gets a list of messages and a `ConsumeContext` and returns a `ConsumeStatus`, or an
    awaitable of one. A listener that raises has failed. Plain functions run in the event loop and
    must not block.
    """

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
        check_group(config.group)
        self.config = config
        self.options = options or ConsumeOptions()
        self.clock = clock
        handlers: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_ids_changed
        }
        self._instance = ClientInstance(
            config, clock, rng or SystemRng(), handlers=handlers, greet_replicas=True
        )
        self.routes = self._instance.routes
        self.api = self._instance.api
        self.leaders = LeaderCalls(self.routes, config, clock, self._instance.stopping)
        times_max = self.options.max_reconsume_times
        self._back = SendBack(self.api, self.routes, self.leaders, config, times_max)
        self.locks: QueueLocks | None = None
        self.local = self._make_local()
        self.pauses = Pauses()
        self._listener = WatchedListener(listener, clock)
        self.service: ConsumeService | OrderlyService = self._make_service(self._listener)
        self.assignment = Assignment(self, observer)
        self._instance.add_route_listener(self._on_route_change)
        self._subscriptions: dict[str, Subscription] = {}
        self._former: dict[str, Subscription] = {}
        """Of topics whose queues are about to be given away."""
        self._checked: set[Subscription] = set()
        """Subscriptions whose expressions a broker has accepted."""
        self._retry_topic = retry_topic(config.group)
        self._masters: dict[str, str] = {}
        self._problems: dict[str, RemotingError] = {}
        self._joined = asyncio.Event()
        self._queues_at_first: dict[str, frozenset[MessageQueue]] = {}
        """The queues that a topic had when this consumer looked first: what a later one holds was
        sent since then, and none of it may be skipped."""
        self._wanted = asyncio.Event()

    @property
    def client_id(self) -> str:
        """The id under which brokers know this consumer."""
        return self._instance.client_id

    @property
    def background(self) -> Background:
        """The tasks of this consumer."""
        return self._instance.background

    @property
    def problems(self) -> dict[str, RemotingError]:
        """Why topics are not consumed now, by topic; empty while all is well.

        `NameServersUnreachable`, `NoRoute` for a topic that nobody knows, or what a broker said.
        """
        return dict(self._problems)

    def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """Subscribe to ``topic``; ``expression`` is ``*``, ``TagA || TagB`` or `Sql92`.

        All members of a group must subscribe to the same. Errors: ``InvalidMessage``.
        """
        self._subscriptions[topic] = parse_subscription(topic, expression, self.clock.wall_ms())
        self._tell_soon()

    def unsubscribe(self, topic: str) -> None:
        """Consume ``topic`` no more: what is in hand ends, and its queues are committed.

        Errors: ``ValueError`` without a subscription.
        """
        if topic not in self._subscriptions:
            raise ValueError(f"topic {topic!r} is not subscribed to")
        self._former[topic] = self._subscriptions.pop(topic)
        self._problems.pop(topic, None)
        self._tell_soon()

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of some queues, or of all; what was pulled is still consumed.

        The queues stay assigned. A pause outlasts a rebalance that takes them away and brings them
        back; ``None`` is for those that come later, too.
        """
        self.pauses.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with some paused queues, or with all."""
        self.pauses.resume(queues)

    async def start(self) -> None:
        """Join the group and begin consuming, in the background.

        Topics that do not exist yet are picked up once they do, and name servers that are down
        are asked again: what blocks is logged as a warning, told by `problems`, and raised by
        `wait_joined`. Errors: ``ValueError`` without any subscription; ``OffsetsUnusable`` when the
        folder of a broadcasting consumer is another's.
        """
        if not self._subscriptions:
            raise ValueError("subscribe to a topic before start()")
        if self.local is None:
            self.subscribe(self._retry_topic, ALL)
        else:
            self.local.open()
        self._warn_of_twin()
        config, background = self.config, self._instance.background
        self._instance.start(self._heartbeat)
        background.spawn(self._rebalance_loop, "rebalance")
        if self.locks is not None:
            background.spawn(self.locks.run, "locks")
        background.every(config.leader_check_ms, self._check_leaders, "leaders")
        background.every(config.persist_offset_ms, self._commit_due, "commit")

    async def wait_joined(self, timeout_s: float = 10.0) -> None:
        """Wait until this member has its share of every topic; raises what blocks it by then.

        Errors: ``NameServersUnreachable``, ``NoRoute`` for a topic that nobody knows, or what a
        broker said. The consumer goes on trying: call `stop` to give up.
        """
        try:
            async with timeout(timeout_s):
                await self._joined.wait()
        except TimeoutError:
            for _, error in sorted(self._problems.items()):
                raise error from None
            late = f"group {self.config.group} was not joined in {timeout_s:g} s"
            raise NameServersUnreachable(late) from None

    async def stop(self) -> None:
        """Finish the listener calls in progress, commit, leave the group, close.

        Takes at most ``stop_timeout_ms`` for the listener, ``request_timeout_ms`` for the commits
        of all queues together, and a second for the farewell. Calling it again is harmless.
        """
        if self._instance.running:
            await self.assignment.stop_pulling()
            await self.service.stop(self.config.stop_timeout_ms)
            await self._commit_last()
            if self.locks is not None:
                await self._unlock_all(self.locks)
        await self._instance.stop(consumer=True, drained=lambda: True)
        if self.local is not None:
            self.local.close()

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that this member consumes now, sorted."""
        return self.assignment.queues

    # What pull loops and the assignment need.

    def subscription(self, topic: str) -> Subscription:
        """Return the current subscription of ``topic``."""
        return self._subscriptions.get(topic) or self._former[topic]

    async def heartbeat(self, addr: str) -> None:
        """Tell one broker the subscriptions; a failure is logged."""
        await self._instance.heartbeat(addr)

    async def stored_offset(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none; raises ``RemotingError``."""
        if self.local is not None:
            return self.local.get(queue)
        return await self.leaders.call(queue, lambda addr: self.api.fetch_offset(addr, queue))

    async def settled(self, process_queue: ProcessQueue) -> bool:
        """Return whether a dropped queue may be given away: nothing of it must end before."""
        if isinstance(self.service, ConsumeService):
            return True
        return await self.service.settle(process_queue, SETTLE_MS)

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return where a group without a committed offset begins; raises ``RemotingError``."""
        api, call = self.api, self.leaders.call
        origin = self.options.consume_from
        if queue.topic == self._retry_topic:
            # Whatever was sent back is for this group: nothing of it may be skipped.
            return await call(queue, lambda addr: api.min_offset(addr, queue))
        is_old = queue in self._queues_at_first.get(queue.topic, ())
        if origin is ConsumeFrom.LAST_OFFSET and is_old:
            return await call(queue, lambda addr: api.max_offset(addr, queue))
        if origin is not ConsumeFrom.TIMESTAMP:
            return await call(queue, lambda addr: api.min_offset(addr, queue))
        when_ms = self.options.consume_timestamp_ms
        return await call(queue, lambda addr: api.search_offset(addr, queue, when_ms))

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

    def _make_local(self) -> LocalOffsets | None:
        """Return where a broadcasting consumer keeps its offsets, under an id that lasts."""
        if self.options.model is not MessageModel.BROADCASTING:
            return None
        self.options = replace(self.options, commit_on_pull=False)
        if self.config.instance_name in {"", "DEFAULT"}:
            self._instance.client_id = lasting_client_id(self.client_id)
        return LocalOffsets(self.options.local_offsets_dir, self.client_id, self.config.group)

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

    async def _commit_due(self) -> None:
        self._listener.look()
        await self.assignment.commit_due()

    async def _commit_last(self) -> None:
        await self._within_request_time(self.assignment.commit_all(), "commits")

    async def _within_request_time(self, work: Awaitable[None], what: str) -> None:
        try:
            async with timeout(self.config.request_timeout_ms / 1000):
                await work
        except TimeoutError:
            _log.warning("event=%s_unfinished group=%s", what, self.config.group)

    def _on_lost(self, queue: MessageQueue) -> None:
        """A lock is gone: end with the queue, and look who has it."""
        self.assignment.lose(queue)
        self._wanted.set()

    def _on_finished(self, process_queue: ProcessQueue) -> None:
        self.assignment.on_finished(process_queue)

    def _on_ids_changed(self, _connection: Connection, _command: RemotingCommand) -> None:
        self._wanted.set()

    def _on_route_change(self, broker_names: frozenset[str]) -> None:
        """Wake pulls that a former leader holds, and look at the queues again."""
        for name in sorted(broker_names):
            master = self.routes.master(name)
            former = self._masters.get(name)
            if master is None or master == former:
                continue
            self._masters[name] = master
            connection = self._instance.client.maybe_connection(former) if former else None
            if connection is not None:
                connection.close("no longer the leader")
        if self.locks is not None:
            self.locks.renew_soon(broker_names)
        self._wanted.set()

    async def _check_leaders(self) -> None:
        """Learn of new leaders and new topics between the polls of all routes."""
        unknown = [topic for topic in self._subscriptions if self.routes.peek(topic) is None]
        for topic in unknown:
            try:
                await self.routes.refresh(topic)
                self._wanted.set()
            except RemotingError as error:
                _log.debug("topic=%s event=no_route error=%s", topic, error)
        for topic in self.routes.representative_topics():
            await self.routes.refresh(topic)

    async def _rebalance_loop(self) -> None:
        while True:
            self._wanted.clear()
            balanced = await self._rebalance()
            wait_ms = self.config.rebalance_ms if balanced else UNBALANCED_RETRY_MS
            try:
                async with timeout(wait_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _rebalance(self) -> bool:
        """Bring the assignment in line with the group; returns whether all of it succeeded."""
        balanced = await self._give_up_former()
        for topic in sorted(self._subscriptions):
            try:
                route = await self.routes.get(topic)
            except NoRoute as error:
                self._queues_at_first.setdefault(topic, frozenset())
                self._blocked(topic, error)
                continue  # It does not exist yet; _check_leaders goes on looking.
            except RemotingError as error:
                self._blocked(topic, error)
                balanced = False
                continue
            queues = route.subscribe_queues
            self._queues_at_first.setdefault(topic, frozenset(queues))
            if not queues:
                self._blocked(topic, NoRoute(f"topic {topic} has no queue that can be read"))
                continue
            try:
                await self._check_filter(topic, queues[0])
                mine = await self._share(queues)
            except RemotingError as error:
                self._blocked(topic, error)
                balanced = False
                continue
            balanced &= await self.assignment.change(topic, mine)
            self._problems.pop(topic, None)
        if balanced and not self._problems:
            self._joined.set()
        return balanced

    async def _share(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Return which of the queues of a topic are this member's; raises ``RemotingError``."""
        if self.local is not None:
            return list(queues)
        ids = await self._group_members(queues[0])
        return share_of(self.options.allocate, self.client_id, queues, ids)

    async def _give_up_former(self) -> bool:
        """Give away the queues of topics that are not subscribed to any more."""
        given_up = True
        for topic in sorted(self._former):
            if topic in self._subscriptions or await self.assignment.change(topic, ()):
                del self._former[topic]
                self._queues_at_first.pop(topic, None)
            else:
                given_up = False
        return given_up

    def _tell_soon(self) -> None:
        if self._instance.running:
            self._instance.greet_soon()
            self._wanted.set()

    def _blocked(self, topic: str, error: RemotingError) -> None:
        """Keep why a topic is not consumed; each reason is a warning once."""
        if topic == self._retry_topic:  # made by the broker that counts this member
            _log.info("topic=%s event=not_consumed error=%s", topic, error)
            return
        before = self._problems.get(topic)
        self._problems[topic] = error
        level = logging.INFO if str(before) == str(error) else logging.WARNING
        _log.log(level, "topic=%s event=not_consumed error=%s", topic, error)

    async def _check_filter(self, topic: str, queue: MessageQueue) -> None:
        """Have the broker check an SQL92 expression once; raises ``RemotingError``."""
        wanted = self.subscription(topic)
        if wanted.expression_type == "TAG" or wanted in self._checked:
            return
        data = wanted.to_wire()
        await self.leaders.call(
            queue, lambda addr: self.api.check_client(addr, self.client_id, data)
        )
        self._checked.add(wanted)

    async def _group_members(self, queue: MessageQueue) -> list[str]:
        """Return the ids of the group's members, this one among them; raises ``RemotingError``."""
        for _ in range(2):
            try:
                ids = await self.leaders.call(queue, self.api.consumer_ids)
                if self.client_id in ids:
                    return ids
            except RemotingError as error:
                _log.info("queue=%s event=no_members error=%s", queue, error)
            await self.heartbeat(self.leaders.master(queue))
        ids = await self.leaders.call(queue, self.api.consumer_ids)
        if self.client_id not in ids:
            raise NoRoute(f"the broker of {queue} does not count {self.client_id} as a member yet")
        return ids

    def _heartbeat(self) -> HeartbeatData:
        group = ConsumerData(
            group_name=self.config.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.options.model.value,
            consume_from_where=self.options.consume_from.value,
            subscription_data_set=[one.to_wire() for one in self._subscriptions.values()],
        )
        return HeartbeatData(client_id=self.client_id, consumer_data_set=[group])


_STARTED: WeakValueDictionary[tuple[str, str], PushConsumer] = WeakValueDictionary()
"""The consumers of this process by client id and group, the last one started of each."""


def _always(_queue: MessageQueue) -> bool:
    return True
