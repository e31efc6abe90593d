"""Calling the leader of a queue's broker, through a change of leader.

For requests that may be repeated without harm (reads, commits). Sends have
`ledgermq.client.delivery`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import NameServersUnreachable, NoRoute, NotRunning
from ledgermq.client.message import MessageQueue
from ledgermq.client.route import RouteCache
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
from ledgermq.runtime.clock import Clock

T = TypeVar("T")

_LOST_LEADER = (ConnectFailed, ConnectionLost, RequestTimeout, NoRoute, NameServersUnreachable)


def leader_may_have_moved(error: RemotingError) -> bool:
    """Return whether ``error`` can mean that the broker asked is not the leader (any more)."""
    if isinstance(error, ResponseError):
        return error.code in {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY}
    return isinstance(error, _LOST_LEADER)


class LeaderCalls:
    """Finds leaders by the routes and repeats a call until it works or its budget ends.

    Nothing is repeated once ``stopping`` has begun.
    """

    def __init__(
        self, routes: RouteCache, config: ClientConfig, clock: Clock, stopping: Stopping
    ) -> None:
        self._routes = routes
        self._config = config
        self._clock = clock
        self._stopping = stopping

    def backoff_ms(self, failures: int) -> int:
        """Return how long to wait after the ``failures``-th failure in a row (from 1)."""
        waits_ms = self._config.backoff_ms
        return waits_ms[min(failures, len(waits_ms)) - 1]

    def master(self, queue: MessageQueue) -> str:
        """Return the leader's address; raises ``NoRoute`` while none is known."""
        addr = self._routes.master(queue.broker_name)
        if addr is None:
            raise NoRoute(f"broker {queue.broker_name!r} has no leader at the moment")
        return addr

    async def refresh(self, topic: str, suspect: str | None) -> None:
        """Read the route of ``topic`` anew from all name servers; an error changes nothing."""
        suspects = frozenset({suspect}) if suspect else frozenset()
        try:
            await self._routes.refresh(
                topic, failed_at_ns=self._clock.monotonic_ns(), suspects=suspects
            )
        except RemotingError:
            return  # The caller's next try goes by the old route, or fails and tells why.

    async def call(
        self, queue: MessageQueue, ask: Callable[[str], Awaitable[T]], block_ms: int = 0
    ) -> T:
        """Return ``await ask(address of the leader)``, repeated within ``request_timeout_ms``.

        ``block_ms`` is how much longer the leader may take to answer. Errors: that of the last
        try; ``NotRunning`` when the client is stopped before there is an answer.
        """
        stopping = self._stopping
        limit_ms = self._clock.monotonic_ms() + self._config.request_timeout_ms + block_ms
        failures, outcome = 0, Outcome.FAILED
        while True:
            addr = None
            try:
                if self._routes.peek(queue.topic) is None:
                    async with stopping.waiting(outcome):
                        await self._routes.get(queue.topic)
                addr = self.master(queue)
                return await ask(addr)
            except RemotingError as error:
                if not leader_may_have_moved(error):
                    raise
                failures += 1
                if error.outcome is Outcome.UNKNOWN:
                    outcome = Outcome.UNKNOWN
                if stopping.begun:
                    raise NotRunning("the client was stopped", outcome) from error
                wait_ms = self.backoff_ms(failures)
                if self._clock.monotonic_ms() + wait_ms >= limit_ms:
                    raise
            async with stopping.waiting(outcome):
                await self.refresh(queue.topic, addr)
                if self._routes.master(queue.broker_name) in {None, addr}:
                    await asyncio.sleep(wait_ms / 1000)
                    await self.refresh(queue.topic, addr)
