"""The locks of an orderly consumer: which queues nobody else of the group may consume now.

A broker grants a queue for 60 s. This client believes in a lock for 30 s after it *asked* for it,
and asks again every 20 s, at once where another broker leads: so it has stopped consuming long
before the broker gives the queue to somebody else. A lock that was refused or that ran out is lost
for good: its queue has to be taken anew, from the offset that the group has committed then.
Source: RebalanceImpl.lockAll, ProcessQueue.isLockExpired (spec/wire.md 7.1).
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

from ledgermq.client.broker_api import BrokerApi
from ledgermq.client.leader import LeaderCalls
from ledgermq.client.message import MessageQueue
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.runtime.cancel import timeout
from ledgermq.runtime.clock import Clock

_log = logging.getLogger(__name__)

VALID_MS = 30_000
"""How long a lock counts here after it was asked for."""
RENEW_MS = 20_000
LOOK_MS = 1_000
"""How often what has run out is looked for, and a renewal that failed is tried again."""
QUEUES_AT_ONCE_MAX = 1_000
"""Queues in one request; a broker takes 10,000."""


class LockHost(Protocol):
    """The push consumer, as its locks see it."""

    api: BrokerApi
    clock: Clock
    leaders: LeaderCalls

    @property
    def client_id(self) -> str:
        """The id under which brokers know the consumer."""
        ...


class QueueLocks:
    """What one member has locked; ``on_lost`` is told of locks that ended by themselves."""

    def __init__(self, host: LockHost, on_lost: Callable[[MessageQueue], None]) -> None:
        self._host = host
        self._on_lost = on_lost
        self._until_ms: dict[MessageQueue, int] = {}
        self._asked_ms: dict[str, int] = {}
        """When the locks of a broker were renewed last, by its name."""
        self._turns: dict[str, asyncio.Lock] = {}
        """One request to a broker at a time: no renewal overtakes a release."""
        self._renewals: dict[str, asyncio.Task[None]] = {}
        """Those under way, by broker: one that hangs holds up none of the others."""
        self._wake = asyncio.Event()
        self._closed = False
        self._kept: Container[MessageQueue] = ()
        """What a listener still works at, once closed."""
        self.valid_ms, self.renew_ms = VALID_MS, RENEW_MS

    def holds(self, queue: MessageQueue) -> bool:
        """Return whether nobody else may consume ``queue`` now; a lock that ran out is lost."""
        until_ms = self._until_ms.get(queue)
        if until_ms is None:
            return False
        if self._host.clock.monotonic_ms() < until_ms:
            return True
        self._lose(queue, "it was not renewed in time")
        return False

    def maybe_locked_ms(self, queue: MessageQueue) -> int | None:
        """Return when the lock of ``queue`` was asked for last (monotonic), None without one."""
        until_ms = self._until_ms.get(queue)
        return None if until_ms is None else until_ms - self.valid_ms

    async def take(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues and return those that were granted; failures are logged."""
        if self._closed:
            return []
        by_broker = _by_broker(queues)
        await asyncio.gather(*[self._take(name, some) for name, some in by_broker.items()])
        return [queue for some in by_broker.values() for queue in some if queue in self._until_ms]

    async def give_back(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock what is held of ``queues``; where that fails the broker's lease runs out."""
        by_broker = _by_broker(queue for queue in queues if queue in self._until_ms)
        await asyncio.gather(*[self._give_back(name, some) for name, some in by_broker.items()])

    async def close(self, keep: Container[MessageQueue]) -> None:
        """Take no locks any more, and unlock all but ``keep``: those end with their lease.

        Also where a renewal of them is under way, and grants them once more.
        """
        self._closed, self._kept = True, keep
        for queue in [queue for queue in self._until_ms if queue in keep]:
            del self._until_ms[queue]
        await asyncio.gather(*[self._give_back(name, None) for name in list(self._turns)])

    def renew_soon(self, broker_names: Iterable[str]) -> None:
        """Renew the locks of brokers now: they have new leaders, who may know nothing of them."""
        for name in broker_names:
            self._asked_ms.pop(name, None)
        self._wake.set()

    async def run(self) -> None:
        """Renew for ever."""
        try:
            while True:
                try:
                    async with timeout(LOOK_MS / 1000):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self._wake.clear()
                await self._renew_due()
        finally:
            for task in self._renewals.values():
                task.cancel()
            await asyncio.gather(*self._renewals.values(), return_exceptions=True)

    async def _renew_due(self) -> None:
        """Begin the renewals that are due, and wait for them, but not for those that take long."""
        for name in [name for name, task in self._renewals.items() if task.done()]:
            self._renewals.pop(name).result()
        held = _by_broker(queue for queue in list(self._until_ms) if self.holds(queue))
        now_ms = self._host.clock.monotonic_ms()
        due = [
            name
            for name in held
            if name not in self._renewals
            and now_ms - self._asked_ms.get(name, -self.renew_ms) >= self.renew_ms
        ]
        if not due:
            return
        begun = [asyncio.ensure_future(self._renew(name)) for name in due]
        self._renewals.update(zip(due, begun, strict=True))
        await asyncio.wait(begun, timeout=LOOK_MS / 1000)
        for task in begun:
            if not task.done():  # Who leads next may have been heard of: it is asked at once then.
                task.add_done_callback(lambda _: self._wake.set())

    async def _take(self, name: str, queues: Sequence[MessageQueue]) -> None:
        async with self._turn(name):
            if self._closed:
                return
            try:
                refused = await self._ask(queues)
            except RemotingError as error:
                _log.info("broker=%s event=lock_failed error=%s", name, error)
                return
            if refused:
                _log.info("broker=%s event=lock_refused queues=%d", name, len(refused))

    async def _renew(self, name: str) -> None:
        async with self._turn(name):
            queues = _by_broker(self._until_ms).get(name)
            if not queues:
                return
            until_ms = {queue: self._until_ms.get(queue, 0) for queue in queues}
            # Noted first: who leads next while this is under way is asked at once, not in 20 s.
            self._asked_ms[name] = self._host.clock.monotonic_ms()
            try:
                refused = await self._ask(queues)
            except RemotingError as error:
                _log.info("broker=%s event=lock_renewal_failed error=%s", name, error)
                self._asked_ms.pop(name, None)
                return
            for queue in refused:
                self._lose(queue, "the broker refused to renew it")
            now_ms = self._host.clock.monotonic_ms()
            for queue in queues:  # What was granted too late was told as lost, or is now.
                if until_ms[queue] <= now_ms:
                    self._lose(queue, "it was renewed too late")

    async def _give_back(self, name: str, queues: Sequence[MessageQueue] | None) -> None:
        """Unlock queues of one broker (None: all) behind what is asked of it now."""
        host = self._host
        async with self._turn(name):
            if queues is None:
                held = (queue for queue in self._until_ms if queue not in self._kept)
                queues = _by_broker(held).get(name)
            if not queues:
                return
            for queue in queues:
                self._until_ms.pop(queue, None)
            try:
                await host.leaders.call(
                    queues[0], lambda addr: host.api.unlock(addr, host.client_id, queues)
                )
            except RemotingError as error:
                _log.info("broker=%s event=unlock_failed error=%s", name, error)

    async def _ask(self, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
        """Lock queues of one broker, keep what is granted, return the others.

        Errors: `RemotingError`; nothing is known then of those that were not asked for before.
        """
        host = self._host
        refused: list[MessageQueue] = []
        for start in range(0, len(queues), QUEUES_AT_ONCE_MAX):
            some = queues[start : start + QUEUES_AT_ONCE_MAX]
            t_asked_ms = 0

            async def ask(
                addr: str, some: Sequence[MessageQueue] = some
            ) -> frozenset[MessageQueue]:
                nonlocal t_asked_ms
                t_asked_ms = host.clock.monotonic_ms()
                return await host.api.lock(addr, host.client_id, some)

            granted = await host.leaders.call(some[0], ask)
            for queue in some:
                if queue in granted:
                    self._until_ms[queue] = t_asked_ms + self.valid_ms
                else:
                    refused.append(queue)
        return refused

    def _lose(self, queue: MessageQueue, why: str) -> None:
        if self._until_ms.pop(queue, None) is not None:
            _log.warning("queue=%s event=lock_lost reason=%s", queue, why)
            self._on_lost(queue)

    def _turn(self, name: str) -> asyncio.Lock:
        return self._turns.setdefault(name, asyncio.Lock())


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
