"""A member of a consumer group: subscriptions, its share of the queues, what blocks it.

Each member computes its share from the same lists (`ledgermq.client.rebalance`) and holds it in an
`Assignment`, which pulls the queues and commits them. Who consumes what was pulled, a listener or a
caller who polls, is the subclass's matter. Source: RebalanceImpl, RebalancePushImpl,
RemoteBrokerOffsetStore.
"""

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ledgermq.client.assignment import Assignment
from ledgermq.client.background import Background
from ledgermq.client.config import ClientConfig, ConsumeOptions
from ledgermq.client.errors import NoRoute, NotJoined
from ledgermq.client.figures import Figures
from ledgermq.client.hindrances import Hindrances
from ledgermq.client.ids import lasting_client_id
from ledgermq.client.instance import ClientInstance
from ledgermq.client.leader import leader_may_have_moved
from ledgermq.client.lifecycle import StartStop
from ledgermq.client.limits import REBALANCES_IN_A_SECOND_MAX
from ledgermq.client.local_offsets import LocalOffsets
from ledgermq.client.message import ConsumeFrom, MessageModel, MessageQueue
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.pauses import Pauses
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.puller import MessageService
from ledgermq.client.stored_offset import StoredOffset
from ledgermq.client.strategies import share_of
from ledgermq.client.subscription import Sql92, Subscription, parse_subscription, retry_topic
from ledgermq.client.tools import ToolAnswers
from ledgermq.client.validation import check_group
from ledgermq.remoting.protocol.bodies import ConsumerData, HeartbeatData
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.headers import Claim
from ledgermq.remoting.transport.connection import Connection
from ledgermq.remoting.transport.dispatch import Handler
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock
from ledgermq.runtime.rng import Rng

if TYPE_CHECKING:
    from ledgermq.client.queue_locks import QueueLocks

_log = logging.getLogger(__name__)

T = TypeVar("T")

UNBALANCED_RETRY_MS = 1_000
"""When a rebalance that did not succeed wholly is tried again."""


class GroupMember(StartStop):
    """What every kind of consumer that shares queues has; not for applications."""

    CONSUME_TYPE: ClassVar[str]
    """What heartbeats say of it."""
    expression_in_pull: ClassVar[bool] = False
    """Whether pulls carry the expression, rather than heartbeats alone."""
    service: MessageService
    """Who consumes what is pulled."""

    def __init__(
        self,
        config: ClientConfig,
        options: ConsumeOptions,
        clock: Clock,
        rng: Rng,
        *,
        observer: ConsumerObserver | None = None,
        handlers: Mapping[int, Handler] | None = None,
    ) -> None:
        check_group(config.group)
        self.config = config
        self.options = options
        self.clock = clock
        self.figures = Figures()
        self._retry_topic = retry_topic(config.group)
        self.hindrances = Hindrances(clock, self._retry_topic)
        self.started_wall_ms = 0
        served: dict[int, Handler] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_ids_changed,
            **ToolAnswers(self).handlers,
            **(handlers or {}),
        }
        self._instance = ClientInstance(config, clock, rng, handlers=served, greet_replicas=True)
        self.routes = self._instance.routes
        self.api = self._instance.api
        self.leaders = self._instance.leader_calls()
        self.locks: QueueLocks | None = None
        self.local = self._make_local()
        self.pauses = Pauses()
        self.assignment = Assignment(self, observer)
        self._instance.add_route_listener(self._on_route_change)
        self._subscriptions: dict[str, Subscription] = {}
        self._versions: dict[str, int] = {}
        """Of the last subscription to each topic, those that were given up among them."""
        self._former: dict[str, Subscription] = {}
        """Of topics whose queues are about to be given away."""
        self._checked: dict[str, Subscription] = {}
        """The last subscription to each topic whose expression a broker has accepted."""
        self._masters: dict[str, str] = {}
        self._joined = asyncio.Event()
        self._orders = 0
        """How often it was said what to consume: a rebalance is of one of these."""
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
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What this consumer subscribes to, by topic."""
        return self._subscriptions

    @property
    def problems(self) -> dict[str, RemotingError]:
        """Why topics are not consumed now, by topic; empty while all is well.

        `NameServersUnreachable`, `NoRoute` for a topic that nobody knows, `NotTaken` for queues
        that cannot be had, `Unfinished` for some whose messages a listener does not finish, or what
        a broker said, to pulls, too.
        """
        return self.hindrances.problems(self.assignment.queues)

    def subscribe(self, topic: str, expression: str | Sql92 = "*") -> None:
        """Subscribe to ``topic``; ``expression`` is ``*``, ``TagA || TagB`` or `Sql92`.

        All members of a group must subscribe to the same. Errors: ``InvalidMessage``.
        """
        former = self._subscriptions.get(topic) or self._former.get(topic)
        # A broker believes the newer one, also where the clock was put back since the former one.
        version = max(self.clock.wall_ms(), self._versions.get(topic, -1) + 1)
        self._versions[topic] = version
        self._subscriptions[topic] = parse_subscription(topic, expression, version)
        if former is not None:
            # A pull that waits at a broker passes over what the former expression refuses.
            self.assignment.pull_anew(topic)
        self._tell_soon()

    def unsubscribe(self, topic: str) -> None:
        """Consume ``topic`` no more: what is in hand ends, and its queues are committed.

        Errors: ``ValueError`` without a subscription.
        """
        if topic not in self._subscriptions:
            raise ValueError(f"topic {topic!r} is not subscribed to")
        self._former[topic] = self._subscriptions.pop(topic)
        self.hindrances.forget(topic)
        self._tell_soon()

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more of some queues, or of all; what was pulled is still consumed.

        The queues stay assigned. A pause outlasts a rebalance that takes them away and brings them
        back; ``None`` is for those that come later, too. Errors: ``TypeError``: this is no queue.
        """
        self.pauses.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with some paused queues, or with all.

        A pause of all holds until all are resumed: to resume some of them is a warning till then.
        """
        self.pauses.resume(queues)
        if self.pauses.of_all:
            _log.warning("group=%s event=still_paused reason=all_are_paused", self.config.group)

    async def wait_joined(self, timeout_s: float = 10.0) -> None:
        """Wait until this member has its share of every topic; raises what blocks it by then.

        Errors: ``NameServersUnreachable``, ``NoRoute`` for a topic that nobody knows, what a broker
        said, or ``NotJoined`` where nothing is known to block it. The consumer goes on trying: call
        `stop` to give up.
        """
        try:
            async with timeout(timeout_s):
                await self._joined.wait()
        except TimeoutError:
            for _, error in sorted(self.problems.items()):
                raise error from None
            late = f"group {self.config.group} was not joined in {timeout_s:g} s"
            raise NotJoined(late) from None

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that this member consumes now, sorted."""
        return self.assignment.queues

    # What pull loops, the assignment and tools need.

    def new_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        """Return the bookkeeping of a queue that is consumed from ``offset`` on."""
        return ProcessQueue(queue, offset)

    def maybe_flow_control(self, process_queue: ProcessQueue) -> str | None:
        """Return why pulling a queue must pause, None if it need not."""
        return process_queue.maybe_flow_control(self.options)

    def on_full(self, queue: MessageQueue, reason: str) -> None:
        """Take that a queue is not pulled: no news where the caller polls when it likes."""

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets, soon, in the queues that are held or being taken."""
        self.assignment.move(offsets)
        self._wanted.set()

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
        return await self.leaders.call(
            queue, lambda addr: self.api.fetch_offset(addr, queue), slaves=True
        )

    @property
    def claims(self) -> bool:
        """Whether queues are claimed, so that they are committed before they change hands.

        Locks see to that where there are any.
        """
        return self.local is None and self.locks is None

    async def claim(self, queue: MessageQueue, claim: Claim) -> StoredOffset:
        """Claim a queue, or let go of it. Errors: ``RemotingError``."""
        return await self.leaders.call(
            queue, lambda addr: self.api.claim(addr, queue, claim), slaves=True
        )

    @abstractmethod
    async def settled(self, process_queue: ProcessQueue) -> bool:
        """Return whether a dropped queue may be given away: nothing of it must end before."""

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return where a group without a committed offset begins; raises ``RemotingError``."""
        api, call = self.api, partial(self.leaders.call, slaves=True)
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

    def _join(self) -> None:
        """Begin to work in the background. Errors: ``OffsetsUnusable``; ``RuntimeError`` again."""
        self._instance.check_new()  # Before a folder is taken that nobody would let go.
        if self.local is not None:
            self.local.open()
        self.started_wall_ms = self.clock.wall_ms()
        config, background = self.config, self._instance.background
        self._instance.start(self._heartbeat)
        background.spawn(self._rebalance_loop, "rebalance")
        if self.locks is not None:
            background.spawn(self.locks.run, "locks")
        background.every(config.leader_check_ms, self._check_leaders, "leaders")

    async def _leave(self) -> None:
        """Leave the group and close; what is held was committed before."""
        await self._instance.stop(consumer=True, drained=lambda: True)
        if self.local is not None:
            self.local.close()

    def _make_local(self) -> LocalOffsets | None:
        """Return where a broadcasting consumer keeps its offsets, under an id that lasts."""
        if self.options.model is not MessageModel.BROADCASTING:
            return None
        self.options = replace(self.options, commit_on_pull=False)
        if self.config.instance_name in {"", "DEFAULT"}:
            self._instance.client_id = lasting_client_id(self.client_id)
        return LocalOffsets(self.options.local_offsets_dir, self.client_id, self.config.group)

    async def _commit_last(self) -> None:
        await self._within_request_time(self.assignment.commit_all(), "commits")

    async def _within_request_time(self, work: Awaitable[None], what: str) -> None:
        try:
            async with timeout(self.config.request_timeout_ms / 1000):
                await work
        except TimeoutError:
            _log.warning("event=%s_unfinished group=%s", what, self.config.group)

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
            try:
                await self.routes.refresh(topic)
            except RemotingError as error:
                _log.info("topic=%s event=leader_unasked error=%s", topic, error)

    async def _rebalance_loop(self) -> None:
        """Rebalance when something changed, and now and then; orders without end wait."""
        latest_ms: deque[int] = deque(maxlen=REBALANCES_IN_A_SECOND_MAX)
        while True:
            if len(latest_ms) == latest_ms.maxlen:
                early_ms = latest_ms[0] + 1_000 - self.clock.monotonic_ms()
                await asyncio.sleep(max(0, early_ms) / 1000)
            latest_ms.append(self.clock.monotonic_ms())
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
        orders = self._orders
        balanced, unknown = await self._give_up_former(), dict[str, NoRoute]()
        for topic in sorted(self._subscriptions):
            try:
                route = await self.routes.get(topic)
            except NoRoute as error:
                unknown[topic] = error
                continue  # It does not exist yet; _check_leaders goes on looking.
            except RemotingError as error:
                self.hindrances.on_blocked(topic, error)
                balanced = False
                continue
            queues = route.subscribe_queues
            self._queues_at_first.setdefault(topic, frozenset(queues))
            if not queues:
                unread = NoRoute(f"topic {topic} has no queue that can be read")
                self.hindrances.on_blocked(topic, unread)
                continue
            try:
                await self._check_filter(topic, queues)
                mine = await self._share(queues)
            except RemotingError as error:
                self.hindrances.on_blocked(topic, error)
                balanced = False
                continue
            taken = await self.assignment.change(topic, mine)
            self.hindrances.on_share(topic, taken=taken, empty=not mine)
            balanced &= taken
        balanced &= await self._on_unknown(unknown)
        if balanced and not self.hindrances and orders == self._orders:
            self._joined.set()
        return balanced

    async def _on_unknown(self, unknown: Mapping[str, NoRoute]) -> bool:
        """Take topics for new, behind all others: a group that skips the old asks everywhere."""
        skips = self.options.consume_from is ConsumeFrom.LAST_OFFSET
        seen = self._queues_at_first.keys() | {self._retry_topic}
        left = await self.routes.maybe_known([one for one in unknown if skips and one not in seen])
        for topic in [one for one in unknown if one not in left]:
            self._queues_at_first.setdefault(topic, frozenset())
            self.hindrances.on_blocked(topic, unknown[topic])
        if left:
            self._wanted.set()
        return not left

    async def _share(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Return which of the queues of a topic are this member's; raises ``RemotingError``."""
        if self.local is not None:
            return list(queues)
        ids = await self._ask_any(queues, self._group_members)
        return share_of(self.options.allocate, self.client_id, queues, ids)

    async def _give_up_former(self) -> bool:
        """Give away the queues of topics that are not subscribed to any more."""
        given_up = True
        for topic in sorted(self._former):
            if topic in self._subscriptions or await self.assignment.change(topic, ()):
                del self._former[topic]
                if topic not in self._subscriptions:
                    self._queues_at_first.pop(topic, None)
                    self._checked.pop(topic, None)
                    # A rebalance that was under way has said since then what blocks it.
                    self.hindrances.forget(topic)
            else:
                given_up = False
        return given_up

    def _tell_soon(self) -> None:
        self._orders += 1
        self._joined.clear()
        if self._instance.running:
            self._instance.greet_soon()
            self._wanted.set()

    async def _ask_any(
        self, queues: Sequence[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> T:
        """Return what a broker of these queues says: of the first one that answers.

        One that stands still keeps nobody from the queues of the others. RocketMQ's clients ask
        any. Errors: ``RemotingError``, of the last one.
        """
        first_of: dict[str, MessageQueue] = {}
        for queue in queues:
            first_of.setdefault(queue.broker_name, queue)
        *others, last = first_of.values()
        for queue in others:
            try:
                return await ask(queue)
            except RemotingError as error:
                if not leader_may_have_moved(error):
                    raise
                _log.info("queue=%s event=another_broker_asked error=%s", queue, error)
        return await ask(last)

    async def _check_filter(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Have a broker check an SQL92 expression once; raises ``RemotingError``."""
        wanted = self.subscription(topic)
        if wanted.expression_type == "TAG" or self._checked.get(topic) == wanted:
            return
        api, data = self.api, wanted.to_wire()

        async def check(queue: MessageQueue) -> None:
            await self.leaders.call(
                queue, lambda addr: api.check_client(addr, self.client_id, data), slaves=True
            )

        await self._ask_any(queues, check)
        self._checked[topic] = wanted

    async def _group_members(self, queue: MessageQueue) -> list[str]:
        """Return the ids of the group's members, this one among them; raises ``RemotingError``."""
        for _ in range(2):
            try:
                ids = await self.leaders.call(queue, self.api.consumer_ids, slaves=True)
                if self.client_id in ids:
                    self.hindrances.on_listed(self.client_id, ids)
                    return ids
            except RemotingError as error:
                _log.info("queue=%s event=no_members error=%s", queue, error)
            await self.heartbeat(await self.leaders.reader(queue))
        ids = await self.leaders.call(queue, self.api.consumer_ids, slaves=True)
        if self.client_id not in ids:
            raise NoRoute(f"the broker of {queue} does not count {self.client_id} as a member yet")
        return ids

    def _heartbeat(self) -> HeartbeatData:
        group = ConsumerData(
            group_name=self.config.group,
            consume_type=self.CONSUME_TYPE,
            message_model=self.options.model.value,
            consume_from_where=self.options.consume_from.value,
            subscription_data_set=[one.to_wire() for one in self._subscriptions.values()],
        )
        return HeartbeatData(client_id=self.client_id, consumer_data_set=[group])
