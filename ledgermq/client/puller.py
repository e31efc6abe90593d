"""The pull loop of one assigned queue: long polls to the leader, flow control, failures.

Source: DefaultMQPushConsumerImpl.pullMessage (spec/wire.md 3.5, 7.6). Unlike it, the loop retries a
failure after 20/50/100 ms on a fresh route, not after 3 s, so that consumption follows a new
leader.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from ledgermq.client.broker_api import BrokerApi, PullRequest
from ledgermq.client.config import ConsumeOptions
from ledgermq.client.leader import LeaderCalls, leader_may_have_moved
from ledgermq.client.message import PullResult, PullStatus
from ledgermq.client.pauses import Pauses
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.route import MASTER_ID, RouteCache
from ledgermq.client.subscription import Subscription
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import RemotingError, ResponseError
from ledgermq.remoting.protocol.message import MessageExt
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

EMPTY_PULL_MS_MIN = 20
"""A broker that answers an empty long poll sooner than this is asked again only after it."""
ILLEGAL_OFFSET_WAIT_MS = 500
"""How long an illegal offset must persist, since a new leader may still be catching up."""
OTHER_ERROR_WAIT_MS = 1_000

_NOT_REGISTERED = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
}


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
    leaders: LeaderCalls
    options: ConsumeOptions
    pauses: Pauses
    routes: RouteCache

    @property
    def service(self) -> MessageService:
        """Who runs the listener."""
        ...

    def subscription(self, topic: str) -> Subscription:
        """Return the current subscription of ``topic``."""
        ...

    async def heartbeat(self, addr: str) -> None:
        """Tell one broker the subscriptions; a failure is logged."""
        ...


class Puller:
    """Pulls one queue until it is cancelled."""

    def __init__(self, host: PullHost, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self._host = host
        self._room = asyncio.Event()
        self._failures = 0
        self._broker_id = MASTER_ID
        self._illegal_offset_seen = False

    def on_finished(self) -> None:
        """Messages were finished: flow control may end."""
        self._room.set()

    async def run(self) -> None:
        """Pull for ever."""
        host, queue = self._host, self.process_queue.queue
        while True:
            if queue in host.pauses:
                await host.pauses.passed(queue)
            if self.process_queue.maybe_flow_control(host.options) is not None:
                await self._wait_for_room()
                continue
            addr = self._address()
            t_start_ns = host.clock.monotonic_ns()
            try:
                if addr is None:
                    addr = host.leaders.master(self.process_queue.queue)
                request = self._request()
                result = await host.api.pull(addr, request, host.options.pull_timeout_ms)
            except RemotingError as error:
                await self._after_error(error, addr)
                continue
            self._failures = 0
            if queue not in host.pauses:  # What came meanwhile is pulled again later.
                await self._take(result, t_start_ns)

    def _address(self) -> str | None:
        name = self.process_queue.queue.broker_name
        return self._host.routes.address(name, self._broker_id) or self._host.routes.master(name)

    def _request(self) -> PullRequest:
        host, process_queue = self._host, self.process_queue
        subscription = host.subscription(process_queue.queue.topic)
        commit_offset = None
        if host.options.commit_on_pull and self._broker_id == MASTER_ID:
            commit_offset = process_queue.maybe_commit_offset() or None
        return PullRequest(
            queue=process_queue.queue,
            offset=process_queue.next_offset,
            max_count=host.options.pull_batch_count,
            suspend_ms=host.options.suspend_ms,
            commit_offset=commit_offset,
            expression_type=subscription.expression_type,
            sub_version=subscription.version,
        )

    async def _take(self, result: PullResult, t_start_ns: int) -> None:
        host, process_queue = self._host, self.process_queue
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._on_illegal_offset(result)
            return
        self._illegal_offset_seen = False
        self._broker_id = result.suggested_broker_id
        t_end_ns = host.clock.monotonic_ns()
        if result.messages:
            messages = host.subscription(process_queue.queue.topic).select(result.messages)
            process_queue.put(messages, result.next_offset)
            host.service.submit(process_queue, messages, (t_start_ns, t_end_ns))
            return
        moved = result.next_offset != process_queue.next_offset
        process_queue.put([], max(result.next_offset, process_queue.next_offset))
        if not moved and t_end_ns - t_start_ns < EMPTY_PULL_MS_MIN * 1_000_000:
            await asyncio.sleep(EMPTY_PULL_MS_MIN / 1000)

    async def _on_illegal_offset(self, result: PullResult) -> None:
        """Jump to where the broker says, if it says so twice.

        1. A leader dies. 2. The next one is asked before its queue index has caught up, and calls
        our offset illegal. 3. Half a second later it is legal. Jumping at once would redeliver
        everything from the end that the leader knew.
        """
        process_queue = self.process_queue
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

    async def _after_error(self, error: RemotingError, addr: str | None) -> None:
        host = self._host
        self._failures += 1
        self._broker_id = MASTER_ID
        queue = self.process_queue.queue
        _log.info("queue=%s broker=%s event=pull_failed error=%s", queue, addr, error)
        wait_ms = host.leaders.backoff_ms(self._failures)
        if leader_may_have_moved(error):
            await host.leaders.refresh(queue.topic, addr)
            if host.routes.master(queue.broker_name) not in {None, addr}:
                return
        elif addr and isinstance(error, ResponseError) and error.code in _NOT_REGISTERED:
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
