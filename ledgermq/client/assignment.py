"""The queues that a push consumer holds: taking them, giving them back, committing them."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from ledgermq.client.background import Background
from ledgermq.client.message import MessageQueue
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.puller import Puller, PullHost
from ledgermq.remoting.protocol.errors import RemotingError

_log = logging.getLogger(__name__)

QUERIES_AT_ONCE_MAX = 32
"""Queues whose first offset is asked, or whose offset is committed, at the same time."""


class AssignmentHost(PullHost, Protocol):
    """The push consumer, as its assignment sees it."""

    @property
    def background(self) -> Background:
        """The tasks of the consumer."""
        ...

    async def stored_offset(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none; raises ``RemotingError``."""
        ...

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return where a group without a committed offset begins; raises ``RemotingError``."""
        ...


class Assignment:
    """Queue by queue: its messages under way, its pull loop, and what was committed last."""

    def __init__(self, host: AssignmentHost, observer: ConsumerObserver | None) -> None:
        self._host = host
        self._observer = observer
        self._held: dict[MessageQueue, Held] = {}
        self._slots = asyncio.Semaphore(QUERIES_AT_ONCE_MAX)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held, sorted."""
        return sorted(self._held)

    @property
    def held(self) -> "list[Held]":
        """What is held, in no particular order."""
        return list(self._held.values())

    async def change(self, topic: str, wanted: Sequence[MessageQueue]) -> bool:
        """Hold exactly ``wanted`` of ``topic``; returns False if a queue could not be taken.

        Queues given away are committed first, so that their next consumer begins there.
        """
        held = {queue for queue in self._held if queue.topic == topic}
        lost = sorted(held.difference(wanted))
        added = sorted(set(wanted) - held)
        if not lost and not added:
            return True
        await asyncio.gather(*[self._release(queue) for queue in lost])
        taken = await asyncio.gather(*[self._take(queue) for queue in added])
        mine = [queue for queue in self.queues if queue.topic == topic]
        _log.info(
            "topic=%s event=rebalanced held=%d added=%d lost=%d",
            topic, len(mine), len(added), len(lost),
        )  # fmt: skip
        if self._observer is not None:
            self._observer.on_assignment(topic, mine)
        return all(taken)

    async def commit_all(self) -> None:
        """Commit the queues whose offset has moved; failures are logged and tried next time."""
        moved = [held for held in self.held if held.maybe_offset_to_commit() is not None]
        await asyncio.gather(*[self._commit(held) for held in moved])

    async def stop_pulling(self) -> None:
        """End all pull loops; the queues stay held, so that they can be committed."""
        await _cancel(held.task for held in self._held.values())

    def on_finished(self, process_queue: ProcessQueue) -> None:
        """Messages of a queue were finished."""
        held = self._held.get(process_queue.queue)
        if held is not None and held.process_queue is process_queue:
            held.puller.on_finished()

    async def _take(self, queue: MessageQueue) -> bool:
        host = self._host
        try:
            async with self._slots:
                stored = await host.stored_offset(queue)
                offset = stored if stored >= 0 else await host.first_offset(queue)
        except RemotingError as error:
            _log.info("queue=%s event=no_first_offset error=%s", queue, error)
            return False
        process_queue = ProcessQueue(queue, offset)
        puller = Puller(host, process_queue)
        task = host.background.spawn(puller.run, f"pull-{queue}")
        held = self._held[queue] = Held(process_queue, puller, task, stored)
        if stored < 0:
            # 1. A new group begins at the end of a queue. 2. It stops before it consumed anything.
            # 3. Messages come. 4. It starts and would begin at the end again: commit at once.
            process_queue.pulled = True
            await self._commit(held)
        return True

    async def _release(self, queue: MessageQueue) -> None:
        held = self._held[queue]
        await _cancel([held.task])
        held.process_queue.dropped = True  # No further listener call begins.
        await self._commit(held)
        del self._held[queue]

    async def _commit(self, held: "Held") -> None:
        queue = held.process_queue.queue
        offset = held.maybe_offset_to_commit()
        if offset is None:
            return
        host = self._host
        t_start_ns = host.clock.monotonic_ns()
        ok = False
        try:
            async with self._slots:
                await host.leaders.call(
                    queue, lambda addr: host.api.commit_offset(addr, queue, offset)
                )
            held.committed = offset
            ok = True
        except RemotingError as error:
            _log.info("queue=%s event=commit_failed offset=%d error=%s", queue, offset, error)
        finally:
            if self._observer is not None:
                t_end_ns = host.clock.monotonic_ns()
                self._observer.on_commit(queue, offset, ok, t_start_ns, t_end_ns)


class Held:
    """One queue held."""

    __slots__ = ("committed", "process_queue", "puller", "task")

    def __init__(
        self, process_queue: ProcessQueue, puller: Puller, task: asyncio.Task[None], committed: int
    ) -> None:
        self.process_queue = process_queue
        self.puller = puller
        self.task = task
        self.committed = committed

    def maybe_offset_to_commit(self) -> int | None:
        """Return the offset that the group has come to, None where it is committed already."""
        offset = self.process_queue.maybe_commit_offset()
        return None if offset == self.committed else offset


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
