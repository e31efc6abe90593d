"""The pull loop of one assigned queue: long polls to the leader, flow control, failures.

Source: DefaultMQPushConsumerImpl.pullMessage (spec/wire.md 3.5, 7.6). Unlike it, the loop retries a
failure after 20/50/100 ms on a fresh route, not after 3 s, so that consumption follows a new
leader.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from ledgermq.client.broker_api import BrokerApi, PullRequest
from ledgermq.client.config import ConsumeOptions
from ledgermq.client.figures import Figures
from ledgermq.client.hindrances import NOT_REGISTERED, Hindrances
from ledgermq.client.leader import LeaderCalls, leader_may_have_moved
from ledgermq.client.message import MessageQueue, PullResult, PullStatus
from ledgermq.client.pauses import Pauses
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.route import MASTER_ID, RouteCache
from ledgermq.client.subscription import Subscription
from ledgermq.remoting.protocol.errors import RemotingError, ResponseError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.cancel import cancel_requests, timeout
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

EMPTY_PULL_MS_MIN = 20
"""A broker that answers an empty long poll sooner than this is asked again only after it."""
ILLEGAL_OFFSET_WAIT_MS = 500
"""How long an illegal offset must persist, since a new leader may still be catching up."""
OTHER_ERROR_WAIT_MS = 1_000
NO_SLAVE_MS = 10_000
"""How long no suggestion of a slave is followed once one was of no use."""


class MessageService(Protocol):
    """Who runs the listener."""

    def submit(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[MessageExt],
        pulled_ns: tuple[int, int],
    ) -> None:
        """Queue messages for the listener; ``pulled_ns`` is when their pull began and ended."""
        ...


class PullHost(Protocol):
    """The push consumer, as its pull loops see it."""

    api: BrokerApi
    clock: Clock
    expression_in_pull: ClassVar[bool]
    """Whether pulls carry the expression, rather than heartbeats alone."""
    figures: Figures
    hindrances: Hindrances
    leaders: LeaderCalls
    options: ConsumeOptions
    pauses: Pauses
    routes: RouteCache

    @property
    def service(self) -> MessageService:
        """Who runs the listener."""
        ...

    def maybe_flow_control(self, process_queue: ProcessQueue) -> str | None:
        """Return why pulling a queue must pause, None if it need not."""
        ...

    def on_full(self, queue: MessageQueue, reason: str) -> None:
        """Take that a queue is not pulled, for that reason."""
        ...

    def subscription(self, topic: str) -> Subscription:
        """Return the current subscription of ``topic``."""
        ...

    async def heartbeat(self, addr: str) -> None:
        """Tell one broker the subscriptions; a failure is logged."""
        ...

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets, soon, in the queues that are held or being taken."""
        ...


class Puller:
    """Pulls one queue until it is cancelled."""

    def __init__(self, host: PullHost, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self._host = host
        self._room = asyncio.Event()
        self._is_full = False
        self._failures = 0
        self._broker_id = MASTER_ID
        self._illegal_offset_seen = False
        self._no_slave_until_ns = 0
        """Until then no slave is asked, whoever suggests it: one was of no use."""
        self._asks: asyncio.Task[object] | None = None
        """The task of this loop while it waits for the answer to a pull."""
        self._asks_anew = False
        self.maybe_pulled_ms: int | None = None
        """When the last pull began, by the monotonic clock."""

    def pull_anew(self) -> None:
        """Drop the pull that waits for an answer, and pull again from where it did."""
        if self._asks is not None and not self._asks_anew:
            self._asks_anew = True
            self._asks.cancel()

    def on_finished(self) -> None:
        """Messages were finished: flow control may end."""
        self._room.set()

    async def run(self) -> None:
        """Pull until the queue is dropped."""
        host, queue = self._host, self.process_queue.queue
        host.hindrances.on_held(queue)
        while not self.process_queue.dropped:
            if queue in host.pauses:
                await host.pauses.passed(queue)
            full = host.maybe_flow_control(self.process_queue)
            if full is not None:
                self._is_full = True
                host.on_full(queue, full)
                await self._wait_for_room()
                continue
            if self._is_full:
                self._is_full = False
                host.hindrances.on_pulled(queue)
            addr = None
            t_start_ns = host.clock.monotonic_ns()
            self.maybe_pulled_ms = t_start_ns // 1_000_000
            try:
                addr = await self._address()
                request = self._request(is_master=addr == host.routes.master(queue.broker_name))
                result = await self._pull(addr, request)
            except RemotingError as error:
                host.leaders.on_failed(queue, addr, error, self.maybe_pulled_ms)
                host.hindrances.on_pull_failed(queue, error)
                await self._after_error(error, addr)
                continue
            if result is None:
                continue
            if self._failures:
                self._failures = 0
                host.hindrances.on_pulled(queue)
            host.leaders.on_served(queue, addr)
            if queue not in host.pauses and not self.process_queue.dropped:
                # Otherwise what came is pulled again, later or elsewhere.
                await self._take(result, t_start_ns, addr)

    async def _pull(self, addr: str, request: PullRequest) -> PullResult | None:
        """Return the answer to a pull, or None if `pull_anew` dropped it."""
        host, known = self._host, cancel_requests()
        task = self._asks = asyncio.current_task()
        assert task is not None
        try:
            return await host.api.pull(addr, request, host.options.pull_timeout_ms)
        except asyncio.CancelledError:
            if not self._asks_anew or task.uncancel() > known:
                raise
            return None
        finally:
            self._asks, self._asks_anew = None, False

    async def _address(self) -> str:
        """Return whom to ask: who was suggested, else the leader or who stands in for it."""
        queue, routes = self.process_queue.queue, self._host.routes
        if self._broker_id != MASTER_ID:
            suggested = routes.address(queue.broker_name, self._broker_id)
            if suggested is not None:
                return suggested
        return await self._host.leaders.reader(queue)

    def _request(self, *, is_master: bool) -> PullRequest:
        host, process_queue = self._host, self.process_queue
        subscription = host.subscription(process_queue.queue.topic)
        commit_offset = None
        if host.options.commit_on_pull and is_master:
            commit_offset = process_queue.maybe_commit_offset() or None
        return PullRequest(
            queue=process_queue.queue,
            offset=process_queue.next_offset,
            max_count=host.options.pull_batch_count,
            suspend_ms=host.options.suspend_ms,
            commit_offset=commit_offset,
            expression=subscription.expression if host.expression_in_pull else None,
            expression_type=subscription.expression_type,
            sub_version=subscription.version,
        )

    async def _take(self, result: PullResult, t_start_ns: int, addr: str) -> None:
        host, process_queue = self._host, self.process_queue
        is_master = addr == host.routes.master(process_queue.queue.broker_name)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await (self._on_illegal_offset(result) if is_master else self._on_no_use(addr))
            return
        self._illegal_offset_seen = False
        t_end_ns = host.clock.monotonic_ns()
        if t_end_ns >= self._no_slave_until_ns:
            self._broker_id = result.suggested_broker_id
        if result.messages:
            topic = process_queue.queue.topic
            host.figures.on_pulled(topic, len(result.messages), t_start_ns, t_end_ns)
            messages = host.subscription(process_queue.queue.topic).select(result.messages)
            process_queue.put(messages, result.next_offset)
            host.service.submit(process_queue, messages, (t_start_ns, t_end_ns))
            return
        moved = result.next_offset > process_queue.next_offset
        if result.status is PullStatus.NO_MATCHED_MESSAGE and not moved and not is_master:
            await self._on_no_use(addr)
            return
        process_queue.put([], max(result.next_offset, process_queue.next_offset))
        if not moved and t_end_ns - t_start_ns < EMPTY_PULL_MS_MIN * 1_000_000:
            await asyncio.sleep(EMPTY_PULL_MS_MIN / 1000)

    async def _on_illegal_offset(self, result: PullResult) -> None:
        """Jump to where the broker says, if it says so twice.

        1. A leader dies. 2. The next one is asked before its queue index has caught up, and calls
        our offset illegal. 3. Half a second later it is legal. Jumping at once would redeliver
        everything from the end that the leader knew.

        An offset within the limits that the same answer names is not illegal: somebody has reset
        the group. RocketMQ 5 says that once, to whoever pulls next. A queue that moves is given
        away and taken again: so a broker that says it for ever is not asked again at once.
        """
        process_queue = self.process_queue
        offset = process_queue.next_offset
        is_legal = result.min_offset <= offset <= result.max_offset
        if is_legal and result.next_offset != offset:
            await asyncio.sleep(ILLEGAL_OFFSET_WAIT_MS / 1000)
            if not process_queue.dropped:  # Else a tool, or another member, has come later.
                self._host.move({process_queue.queue: result.next_offset})
            return
        if not self._illegal_offset_seen:
            self._illegal_offset_seen = True
            await self._host.leaders.refresh(process_queue.queue.topic, None)
            await asyncio.sleep(ILLEGAL_OFFSET_WAIT_MS / 1000)
            return
        self._illegal_offset_seen = False
        _log.warning(
            "queue=%s event=offset_illegal offset=%d next=%d min=%d max=%d",
            process_queue.queue, process_queue.next_offset, result.next_offset,
            result.min_offset, result.max_offset,
        )  # fmt: skip
        process_queue.reset(result.next_offset)

    async def _on_no_use(self, addr: str) -> None:
        """Ask the slave at ``addr`` no more for a while: it has nothing for this queue.

        It may lie behind what its master gave out, so that an offset that it calls illegal is not;
        or it answers "nothing matches" to whatever is asked, as one that does not serve reads.
        """
        host, queue = self._host, self.process_queue.queue
        _log.info("queue=%s broker=%s event=slave_of_no_use", queue, addr)
        self._avoid_slaves()
        host.leaders.on_refused(queue, addr)
        await asyncio.sleep(ILLEGAL_OFFSET_WAIT_MS / 1000)

    def _avoid_slaves(self) -> None:
        self._broker_id = MASTER_ID
        self._no_slave_until_ns = self._host.clock.monotonic_ns() + NO_SLAVE_MS * 1_000_000

    async def _after_error(self, error: RemotingError, addr: str | None) -> None:
        host = self._host
        self._failures += 1
        queue = self.process_queue.queue
        if self._broker_id != MASTER_ID:
            self._avoid_slaves()
        _log.info("queue=%s broker=%s event=pull_failed error=%s", queue, addr, error)
        wait_ms = host.leaders.backoff_ms(self._failures)
        if leader_may_have_moved(error):
            await host.leaders.refresh(queue.topic, addr)
            if host.routes.master(queue.broker_name) not in {None, addr}:
                return
        elif addr and isinstance(error, ResponseError) and error.code in NOT_REGISTERED:
            await host.heartbeat(addr)
        else:
            wait_ms = OTHER_ERROR_WAIT_MS
        await asyncio.sleep(wait_ms / 1000)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        try:
            async with timeout(self._host.options.flow_control_wait_ms / 1000):
                await self._room.wait()
        except TimeoutError:
            return
