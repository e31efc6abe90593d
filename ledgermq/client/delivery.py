"""The retries of one send: what to do after a failure, until success or the end of the budget.

The first, usually only, attempt of a send does not come here (see `ledgermq.client.producer`).

- Not leader (14), connection refused, no route or no leader known: certainly failed. The route is
  read anew at once; if it names the same leader, wait 20/50/100 ms. As often as the budget allows.
- Back-pressure (2): certainly failed. Wait likewise, on the same route.
- Connection lost, no answer, codes 1 16 17 204 205, or 2 with an unknown outcome: the outcome is as
  the error says. New route, another broker if there is one; at most ``retry_times``.
- Anything else: give up.
- The producer is being stopped: no further attempt, and no wait for one.

Source: DefaultMQProducerImpl.sendDefaultImpl (spec/wire.md 2.2); waiting for a leader is ours.
"""

import asyncio
from collections.abc import Awaitable
from enum import Enum
from typing import Protocol

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import (
    NameServersUnreachable,
    NoRoute,
    NotRunning,
    SelectorFailed,
    SendFailed,
)
from ledgermq.client.links import Link, Links
from ledgermq.client.message import Attempt, MessageQueue, SendResult
from ledgermq.client.route import RouteCache
from ledgermq.client.selectors import Choice
from ledgermq.client.send_codec import Outgoing, SendTarget
from ledgermq.client.slow_brokers import FAILED_MS, SlowBrokers
from ledgermq.client.stopping import Stopping
from ledgermq.remoting.protocol.codes import ResponseCode
from ledgermq.remoting.protocol.errors import (
    ConnectFailed,
    ConnectionLost,
    Outcome,
    RemotingError,
    RequestTimeout,
    ResponseError,
)
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock

ATTEMPTS_RECORDED_MAX = 100
"""Beyond it, an attempt like the one before it (all certain failures) is merged into that one."""

NS_PER_MS = 1_000_000
ATTEMPT_MS_MIN = 20
"""With less time left no further attempt begins: if its answer came too late, the outcome of a send
that was refused each time would be unknown."""


class Reaction(Enum):
    """What to do after a failed attempt."""

    NEW_LEADER = "wait for a leader"
    WAIT = "wait"
    AGAIN = "again"
    GIVE_UP = "give up"


_AGAIN_CODES = frozenset({
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    204,  # NO_BUYER_ID
    205,  # NOT_IN_CURRENT_UNIT
})  # fmt: skip


def reaction_to(error: RemotingError) -> Reaction:
    """Return what to do after ``error``; see the table of the module."""
    if isinstance(error, ResponseError):
        if error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return Reaction.NEW_LEADER
        if error.code == ResponseCode.SYSTEM_BUSY and error.outcome is Outcome.FAILED:
            return Reaction.WAIT
        return Reaction.AGAIN if error.code in _AGAIN_CODES else Reaction.GIVE_UP
    if isinstance(error, ConnectFailed | NoRoute | NameServersUnreachable):
        return Reaction.NEW_LEADER
    if isinstance(error, ConnectionLost | RequestTimeout):
        return Reaction.AGAIN
    return Reaction.GIVE_UP


_OTHERS_FAULT_CODES = frozenset({
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ResponseCode.MESSAGE_ILLEGAL,
})  # fmt: skip
"""Refusals of a batch that say nothing of most of its messages sent alone."""


class Sender(Protocol):
    """The producer, as its retries see it."""

    config: ClientConfig
    clock: Clock
    routes: RouteCache
    links: Links
    stopping: Stopping
    slow: SlowBrokers | None

    def select(self, topic: str, queue: MessageQueue | None, avoid: frozenset[str]) -> SendTarget:
        """Return the next queue to use, of a broker not in ``avoid`` if there is one."""
        ...

    def choose(self, topic: str, choice: Choice) -> MessageQueue:
        """Return the queue that a selector chooses; raises ``NoRoute``, ``SelectorFailed``."""
        ...

    async def attempt(
        self,
        link: Link,
        target: SendTarget,
        outgoing: Outgoing,
        t_limit_ns: int,
        earlier: tuple[Attempt, ...],
    ) -> SendResult:
        """Send once and return the result; raises ``RemotingError``."""
        ...


class Delivery:
    """One send beyond its first attempt; ``choice`` is made once, when there is a route."""

    def __init__(
        self,
        sender: Sender,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        t_limit_ns: int,
        choice: Choice | None = None,
    ) -> None:
        self._sender = sender
        self._outgoing = outgoing
        self._queue = queue
        self._choice = choice
        self._t_limit_ns = t_limit_ns
        self._attempts: list[Attempt] = []
        self._suspects: frozenset[str] = frozenset()
        self._avoid: frozenset[str] = frozenset()
        self._retries = 0
        self._waits = 0
        self._last_error: RemotingError | None = None

    async def run(self) -> SendResult:
        """Try until it succeeds; raises ``SendFailed``."""
        while True:
            if self._last_error is not None and self._left_ms() < ATTEMPT_MS_MIN:
                raise self._failure(self._last_error) from self._last_error
            t_start_ns = self._sender.clock.monotonic_ns()
            broker_name, link = "", None
            try:
                async with self._sender.stopping.waiting():
                    await self._within_budget(self._ensure_route())
                    if self._choice is not None:
                        self._queue = self._sender.choose(self._outgoing.topic, self._choice)
                        self._choice = None  # However often it is tried, it keeps its queue.
                    target = self._sender.select(self._outgoing.topic, self._queue, self._avoid)
                    broker_name = target.broker_name
                    link = await self._sender.links.connect(
                        broker_name, min(self._sender.config.connect_timeout_ms, self._left_ms())
                    )
                return await self._sender.attempt(
                    link, target, self._outgoing, self._t_limit_ns, tuple(self._attempts)
                )
            except NotRunning as stopped:
                raise self._stopped() from self._last_error or stopped
            except SelectorFailed:
                raise
            except RemotingError as error:
                addr = self._sender.routes.master(broker_name) if link is None else link.addr
                await self.after(error, broker_name, addr or "", t_start_ns)

    async def after(
        self, error: RemotingError, broker_name: str, addr: str, t_start_ns: int
    ) -> None:
        """Record a failed attempt and wait until the next one; raises ``SendFailed``."""
        now_ns = self._sender.clock.monotonic_ns()
        self._last_error = error
        self._record(error, addr, t_start_ns, now_ns)
        reaction = reaction_to(error)
        if reaction is Reaction.AGAIN:
            self._retries += 1
        if self._sender.stopping.begun and reaction is not Reaction.GIVE_UP:
            raise self._stopped() from error
        if (
            reaction is Reaction.GIVE_UP
            or self._retries > self._sender.config.retry_times
            or self._left_ms() <= 0
        ):
            raise self._failure(error) from error
        if addr and reaction is not Reaction.WAIT:
            self._suspects |= {addr}
        if broker_name and reaction is not Reaction.WAIT:
            self._avoid = frozenset({broker_name})
            if self._sender.slow is not None:
                took_ms = (now_ns - t_start_ns) // NS_PER_MS
                self._sender.slow.note(broker_name, max(took_ms, FAILED_MS))
        try:
            async with self._sender.stopping.waiting():
                if reaction is Reaction.WAIT:
                    await self._back_off(error)
                else:
                    await self._find_leader(error, now_ns)
        except NotRunning:
            raise self._stopped() from error

    async def after_group(
        self, error: RemotingError, broker_name: str, addr: str, t_start_ns: int
    ) -> None:
        """As `after`, of an attempt in which the message was one of several.

        A refusal that another of them may have earned, or that the batch itself earned, is no
        reason to give up: the next attempt, which the message makes alone, will tell.
        """
        if isinstance(error, ResponseError) and error.code in _OTHERS_FAULT_CODES:
            self._last_error = error
            self._record(error, addr, t_start_ns, self._sender.clock.monotonic_ns())
            return
        await self.after(error, broker_name, addr, t_start_ns)

    async def _find_leader(self, error: RemotingError, failed_at_ns: int) -> None:
        """Refresh the route; if it still names a suspect or nobody, wait and refresh again."""
        await self._refresh(failed_at_ns)
        if self._has_live_leader():
            return
        await self._back_off(error)
        await self._refresh(self._sender.clock.monotonic_ns())

    async def _refresh(self, failed_at_ns: int) -> None:
        try:
            await self._within_budget(
                self._sender.routes.refresh(
                    self._outgoing.topic, failed_at_ns=failed_at_ns, suspects=self._suspects
                )
            )
        except RemotingError:
            return  # The next attempt goes by the old route, or fails and tells why.

    def _has_live_leader(self) -> bool:
        routes = self._sender.routes
        if self._queue is not None:
            names = {self._queue.broker_name}
        else:
            route = routes.peek(self._outgoing.topic)
            names = {queue.broker_name for queue in route.publish_queues} if route else set()
        masters = {routes.master(name) for name in names}
        return bool(masters - self._suspects - {None})

    async def _back_off(self, error: RemotingError) -> None:
        waits_ms = self._sender.config.backoff_ms
        wait_ms = waits_ms[min(self._waits, len(waits_ms) - 1)]
        self._waits += 1
        if wait_ms + ATTEMPT_MS_MIN > self._left_ms():
            raise self._failure(error) from error
        await asyncio.sleep(wait_ms / 1000)

    async def _ensure_route(self) -> object:
        return await self._sender.routes.get(self._outgoing.topic)

    async def _within_budget(self, work: Awaitable[object]) -> None:
        left_ms = self._left_ms()
        try:
            async with timeout(max(left_ms, 1) / 1000):
                await work
        except TimeoutError as error:
            text = f"no route of {self._outgoing.topic!r} in the time allowed"
            if self._last_error is not None:
                text = f"{text}; before: {self._last_error}"
            raise NoRoute(text) from error

    def _left_ms(self) -> int:
        return (self._t_limit_ns - self._sender.clock.monotonic_ns()) // NS_PER_MS

    def _record(self, error: RemotingError, addr: str, t_start_ns: int, t_end_ns: int) -> None:
        attempt = Attempt(
            addr,
            t_start_ns,
            t_end_ns,
            error.code if isinstance(error, ResponseError) else None,
            type(error).__name__,
            error.outcome,
        )
        last = self._attempts[-1] if self._attempts else None
        if last is not None and len(self._attempts) >= ATTEMPTS_RECORDED_MAX:
            same = (last.broker_addr, last.code, last.error_class, Outcome.FAILED)
            if same == (addr, attempt.code, attempt.error_class, attempt.outcome):
                self._attempts[-1] = Attempt(
                    addr, last.t_start_ns, t_end_ns, last.code, last.error_class, last.outcome
                )
                return
        self._attempts.append(attempt)

    def _failure(self, error: RemotingError) -> SendFailed:
        count = len(self._attempts)
        message = f"{self._outgoing.topic}: {count} attempts, the last: {error}"
        return SendFailed(message, tuple(self._attempts))

    def _stopped(self) -> SendFailed:
        message = f"{self._outgoing.topic}: the producer was stopped"
        if self._last_error is None:
            return SendFailed(f"{message} before the message was sent", ())
        failure = self._failure(self._last_error)
        known = "may be" if failure.outcome is Outcome.UNKNOWN else "is certainly not"
        return SendFailed(f"{message}; the message {known} stored; {failure}", failure.attempts)
