"""Calling the leader of a queue's broker, through a change of leader.

For requests that may be repeated without harm (reads, commits). Sends have
`ledgermq.client.delivery`. What a slave may serve goes to one while its master is gone
(`ledgermq.client.stand_ins`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ledgermq.client.config import ClientConfig
from ledgermq.client.errors import NameServersUnreachable, NoRoute, NotRunning
from ledgermq.client.message import MessageQueue
from ledgermq.client.route import RouteCache
from ledgermq.client.stand_ins import StandIns
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

Probe = Callable[[str, MessageQueue], Awaitable[object]]

_LOST_LEADER = (ConnectFailed, ConnectionLost, RequestTimeout, NoRoute, NameServersUnreachable)


def leader_may_have_moved(error: RemotingError) -> bool:
    """Return whether ``error`` can mean that the broker asked is not the leader (any more)."""
    if isinstance(error, ResponseError):
        return error.code in {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY}
    return isinstance(error, _LOST_LEADER)


def master_is_gone(error: RemotingError) -> bool:
    """Return whether after ``error`` a slave may be asked in the place of who gave it.

    A master that has too much to do is not gone.
    """
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return isinstance(error, _LOST_LEADER)


class LeaderCalls:
    """Finds leaders by the routes and repeats a call until it works or its budget ends.

    Nothing is repeated once ``stopping`` has begun.

    Args:
        probe: asks a broker something that only one that serves reads answers.
    """

    def __init__(
        self,
        routes: RouteCache,
        config: ClientConfig,
        clock: Clock,
        stopping: Stopping,
        probe: Probe,
    ) -> None:
        self._routes = routes
        self._config = config
        self._clock = clock
        self._stopping = stopping
        self._probe = probe
        self._stand_ins = StandIns(routes)

    def backoff_ms(self, failures: int) -> int:
        """Return how long to wait after the ``failures``-th failure in a row (from 1)."""
        waits_ms = self._config.backoff_ms
        return waits_ms[min(failures, len(waits_ms)) - 1]

    def master(self, queue: MessageQueue) -> str:
        """Return the leader's address; raises ``NoRoute`` while none is known."""
        addr = self._routes.master(queue.broker_name)
        if addr is None:
            raise NoRoute(f"broker {queue.broker_name!r} has no master and no leader at the moment")
        return addr

    async def reader(self, queue: MessageQueue) -> str:
        """Return whom to ask for reads and commits: the leader, or a slave while it is gone.

        Errors: ``RemotingError``: no leader is known, and no slave serves in its place.
        """
        name, now_ms = queue.broker_name, self._clock.monotonic_ms()
        slave = self._stand_ins.choose(name, now_ms)
        if slave is None:
            return self.master(queue)
        master = self._stand_ins.take_probe(name, now_ms)
        if master is not None and await self._answers(master, queue):
            return master
        if self._stand_ins.is_proven(name, slave) or await self._answers(slave, queue):
            return slave
        return self.master(queue)

    async def _answers(self, addr: str, queue: MessageQueue) -> bool:
        """Find out whether ``addr`` serves reads."""
        began_ms = self._clock.monotonic_ms()
        try:
            await self._probe(addr, queue)
        except RemotingError:
            self._stand_ins.on_failure(queue.broker_name, addr, began_ms)
            return False
        self._stand_ins.on_success(queue.broker_name, addr)
        return True

    def on_served(self, queue: MessageQueue, addr: str) -> None:
        """Take that ``addr`` has answered."""
        self._stand_ins.on_success(queue.broker_name, addr)

    def on_failed(
        self, queue: MessageQueue, addr: str | None, error: RemotingError, t_start_ms: int
    ) -> None:
        """Take how a request failed that began then; ``addr`` None: no leader was known."""
        if master_is_gone(error):
            self._stand_ins.on_failure(queue.broker_name, addr, t_start_ms)

    def on_refused(self, queue: MessageQueue, addr: str) -> None:
        """Take that the slave at ``addr`` gives nothing to read."""
        now_ms = self._clock.monotonic_ms()
        self._stand_ins.on_failure(queue.broker_name, addr, now_ms)

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
        self,
        queue: MessageQueue,
        ask: Callable[[str], Awaitable[T]],
        block_ms: int = 0,
        *,
        slaves: bool = False,
    ) -> T:
        """Return ``await ask(address of the leader)``, repeated within ``request_timeout_ms``.

        ``block_ms`` is how much longer the leader may take to answer; ``slaves``: one of them may
        be asked while the leader is gone. Errors: that of the last try; ``NotRunning`` when the
        client is stopped before there is an answer.
        """
        stopping = self._stopping
        limit_ms = self._clock.monotonic_ms() + self._config.request_timeout_ms + block_ms
        failures, outcome = 0, Outcome.FAILED
        while True:
            addr, began_ms = None, self._clock.monotonic_ms()
            try:
                if self._routes.peek(queue.topic) is None:
                    async with stopping.waiting(outcome):
                        await self._routes.get(queue.topic)
                addr = await self.reader(queue) if slaves else self.master(queue)
                answer = await ask(addr)
            except RemotingError as error:
                if not leader_may_have_moved(error):
                    raise
                self.on_failed(queue, addr, error, began_ms)
                failures += 1
                if error.outcome is Outcome.UNKNOWN:
                    outcome = Outcome.UNKNOWN
                if stopping.begun:
                    raise NotRunning("the client was stopped", outcome) from error
                wait_ms = self.backoff_ms(failures)
                if self._clock.monotonic_ms() + wait_ms >= limit_ms:
                    raise
            else:
                self.on_served(queue, addr)
                return answer
            async with stopping.waiting(outcome):
                await self.refresh(queue.topic, addr)
                if self._routes.master(queue.broker_name) in {None, addr}:
                    await asyncio.sleep(wait_ms / 1000)
                    await self.refresh(queue.topic, addr)
