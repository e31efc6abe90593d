"""The queues that a push consumer holds: taking them, giving them back, committing them.

A broker may acknowledge an offset and lose it: a leader that is deposed before it has replicated
it, a broker alone that is killed. So what was committed is sent again: all of it every few periods,
when another broker leads, and at the end. Source: RocketMQ RemoteBrokerOffsetStore.persistAll,
which sends all offsets each time.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ledgermq.client.background import Background
from ledgermq.client.local_offsets import LocalOffsets
from ledgermq.client.message import MessageQueue
from ledgermq.client.observer import ConsumerObserver
from ledgermq.client.process_queue import ProcessQueue
from ledgermq.client.puller import Puller, PullHost
from ledgermq.client.queue_locks import QueueLocks
from ledgermq.client.stored_offset import StoredOffset
from ledgermq.remoting.protocol.errors import RemotingError
from ledgermq.remoting.protocol.headers import Claim

_log = logging.getLogger(__name__)

QUERIES_AT_ONCE_MAX = 32
"""Queues of a broker whose offset is asked for, or committed, at the same time."""
HAND_OVER_MS = 1_000
"""How long a member waits for those that hold its queues still: one that does not go on must not
keep them."""
STUCK_MS = 10_000
"""For how long nobody waits again for a member that did not go on: there may be many topics, of
which one is taken after the other, and queues of healthy members would wait for their turn."""
HELD_AGAIN_MS = 20
"""When a queue that is held still is asked for again; each time after twice as long."""
HELD_AGAIN_MS_MAX = 160
COMMIT_ALL_PERIODS = 6
"""So often all offsets are committed, also those that were acknowledged before."""


class AssignmentHost(PullHost, Protocol):
    """The push consumer, as its assignment sees it."""

    locks: QueueLocks | None
    """For queues that are consumed in order."""
    local: LocalOffsets | None
    """For offsets that no broker keeps."""

    @property
    def background(self) -> Background:
        """The tasks of the consumer."""
        ...

    @property
    def claims(self) -> bool:
        """Whether queues are claimed, so that they are committed before they change hands."""
        ...

    async def stored_offset(self, queue: MessageQueue) -> int:
        """Return the group's committed offset, -1 if there is none; raises ``RemotingError``."""
        ...

    async def claim(self, queue: MessageQueue, claim: Claim) -> StoredOffset:
        """Claim a queue, or let go of it; raises ``RemotingError``."""
        ...

    def new_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        """Return the bookkeeping of a queue that is consumed from ``offset`` on."""
        ...

    async def settled(self, process_queue: ProcessQueue) -> bool:
        """Return whether a dropped queue may be given away: nothing of it must end before."""
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
        self._taking: set[MessageQueue] = set()
        self._fences: dict[MessageQueue, int] = {}
        """Where queues that were moved go on once they are taken anew."""
        self._slots: dict[str, asyncio.Semaphore] = {}
        """By broker name: one that stands still keeps nobody from asking the others."""
        self._periods = 0
        self._patient_until_ms = 0
        """Until when others are waited for that hold queues still."""
        self._stuck: set[str] = set()
        """Who was waited for in vain."""
        self._stuck_until_ms = 0

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues held, sorted."""
        return sorted(self._held)

    @property
    def held(self) -> "list[Held]":
        """What is held, in no particular order."""
        return list(self._held.values())

    async def change(self, topic: str, wanted: Sequence[MessageQueue]) -> bool:
        """Hold exactly ``wanted`` of ``topic``; returns False if that is not so in the end.

        Queues given away are committed first, so that their next consumer begins there.
        """
        mine = set(wanted)
        held = {
            queue: one.process_queue.dropped
            for queue, one in self._held.items()
            if queue.topic == topic
        }
        for queue in [one for one in self._fences if one.topic == topic and one not in mine]:
            del self._fences[queue]  # Others have it: where they go on counts, should it come back.
        lost = sorted(queue for queue, dropped in held.items() if dropped or queue not in mine)
        if not lost and held.keys() >= mine:
            return True
        self._taking.update(mine)  # From here on: they are to be released and locked at first.
        try:
            released = await asyncio.gather(*[self._give_away(self._held[one]) for one in lost])
            added = sorted(mine - self._held.keys())
            taken = await self._take_all(added)
        finally:
            self._taking.difference_update(mine)
        await self._flush()
        now = [queue for queue in self.queues if queue.topic == topic]
        _log.info(
            "topic=%s event=rebalanced held=%d added=%d lost=%d",
            topic, len(now), len(added), len(lost),
        )  # fmt: skip
        if self._observer is not None:
            self._observer.on_assignment(topic, now)
        # A seek that was ahead goes on with its queue, also with one that is another's by now.
        kept = [queue for queue in lost if queue not in mine and queue in self._held]
        return taken and all(released) and not kept

    async def commit_due(self) -> None:
        """Commit the queues whose offset has moved, or whose leader has; at times, all of them.

        Failures are logged and tried next time.
        """
        self._periods += 1
        if self._periods % COMMIT_ALL_PERIODS == 0:
            await self.commit_all()
            return
        routes = self._host.routes
        due = [
            held
            for held in self.held
            if held.is_due(routes.master(held.process_queue.queue.broker_name))
        ]
        await asyncio.gather(*[self._commit(held) for held in due])
        await self._flush()

    async def commit_all(self) -> None:
        """Commit all queues, also what was acknowledged before; failures are logged."""
        await self.commit_now()

    async def commit_now(self) -> list[RemotingError]:
        """Commit all queues and return the failures."""
        errors = await asyncio.gather(*[self._commit(held) for held in self.held])
        await self._flush()
        return [error for error in errors if error is not None]

    def has_committed(self, queue: MessageQueue, held: "Held | None", offset: int | None) -> bool:
        """Tell whether `commit_now` could send an offset: not if the queue went elsewhere."""
        if held is None or offset in {None, held.committed}:
            return held is not None
        return self._held.get(queue) is held and not held.process_queue.dropped

    async def stop_pulling(self) -> None:
        """End all pull loops; the queues stay held, so that they can be committed."""
        await _cancel(held.task for held in self._held.values())

    def pull_anew(self, topic: str) -> None:
        """Drop the pulls of a topic that wait for an answer, and pull again from where they did."""
        for queue, held in self._held.items():
            if queue.topic == topic:
                held.puller.pull_anew()

    def on_finished(self, process_queue: ProcessQueue) -> None:
        """Messages of a queue were finished."""
        held = self._held.get(process_queue.queue)
        if held is not None and held.process_queue is process_queue:
            held.maybe_consumed_ms = self._host.clock.monotonic_ms()
            held.puller.on_finished()

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets, forwards or backwards, where queues are held or being taken.

        From now on nothing that was pulled before is handed out, and no older offset is committed.
        The next `change` gives the queues away, with the new offset, and takes them again.
        """
        for queue, offset in offsets.items():
            held = self._held.get(queue)
            if held is not None:
                held.process_queue.move(offset)
            if held is not None or queue in self._taking:
                self._fences[queue] = offset

    def lose(self, queue: MessageQueue) -> None:
        """Another consumer may have ``queue``: consume nothing more of it and commit nothing."""
        held = self._held.get(queue)
        if held is not None:
            held.process_queue.dropped = held.process_queue.lost = True

    async def restart(self, queue: MessageQueue, offset: int) -> bool:
        """Go on at another offset; returns whether the queue is held or being taken.

        It stays held meanwhile. Nothing that was pulled before is handed out any more.
        """
        held = self._held.get(queue)
        if held is None or held.process_queue.dropped:
            return False
        held.process_queue.dropped = held.process_queue.lost = True
        self._fences[queue] = offset
        await _cancel([held.task])
        async with held.turn:  # A commit that is under way ends before one of the new offset.
            if self._held.get(queue) is held:
                if self._fences.pop(queue, None) is None:
                    return False  # It is going to another member.
                self._hold(queue, offset).process_queue.pulled = True
        return queue in self._held or queue in self._taking

    async def _take_all(self, queues: Sequence[MessageQueue]) -> bool:
        """Take queues, locked where they are consumed in order; returns whether all were."""
        locks = self._host.locks
        free = queues if locks is None else await locks.take(queues)
        self._patient_until_ms = self._host.clock.monotonic_ms() + HAND_OVER_MS
        taken = await asyncio.gather(*[self._take(queue) for queue in free])
        if locks is not None and not all(taken):
            await locks.give_back(
                queue for queue, is_taken in zip(free, taken, strict=True) if not is_taken
            )
        return len(free) == len(queues) and all(taken)

    async def _take(self, queue: MessageQueue) -> bool:
        host = self._host
        self._taking.add(queue)
        try:
            stored, offset = await self._beginning(queue)
        except RemotingError as error:
            _log.info("queue=%s event=no_first_offset error=%s", queue, error)
            return False
        finally:
            self._taking.discard(queue)
        if host.locks is not None and not host.locks.holds(queue):
            return False  # It was lost meanwhile, before there was anybody to tell.
        fence = self._fences.pop(queue, None)
        held = self._hold(queue, offset if fence is None else fence)
        if stored < 0 or fence not in {None, stored}:
            # 1. A new group begins at the end of a queue. 2. It stops before it consumed anything.
            # 3. Messages come. 4. It starts and would begin at the end again: commit at once.
            held.process_queue.begin()
            await self._commit(held)
        return True

    async def _beginning(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the offset that the group has committed and the one to begin at.

        A member that holds the queue still has something to commit: it is waited for.
        """
        wait_ms, holder = HELD_AGAIN_MS, ""
        while True:
            is_late = self._is_given_up(holder)
            async with self._slot(queue):
                stored = await self._stored_offset(
                    queue, Claim.ANYWAY if is_late else Claim.IF_FREE
                )
                if is_late or not stored.held_by:
                    offset = stored.offset
                    return offset, offset if offset >= 0 else await self._host.first_offset(queue)
            holder = stored.held_by
            if holder not in self._stuck:
                _log.debug("queue=%s event=queue_held by=%s", queue, holder)
                await asyncio.sleep(wait_ms / 1000)
                wait_ms = min(2 * wait_ms, HELD_AGAIN_MS_MAX)

    def _is_given_up(self, holder: str) -> bool:
        """Tell whether nobody, or not this holder, is waited for any more."""
        now_ms = self._host.clock.monotonic_ms()
        if now_ms >= self._stuck_until_ms:
            self._stuck.clear()
        if now_ms < self._patient_until_ms:
            return holder in self._stuck
        if holder:
            if not self._stuck:
                self._stuck_until_ms = now_ms + STUCK_MS
            self._stuck.add(holder)
        return True

    async def _stored_offset(self, queue: MessageQueue, claim: Claim) -> StoredOffset:
        host = self._host
        t_start_ns = host.clock.monotonic_ns()
        if host.claims:
            stored = await host.claim(queue, claim)
        else:
            stored = StoredOffset(await host.stored_offset(queue))
        if self._observer is not None:
            self._observer.on_fetch(queue, stored.offset, t_start_ns, host.clock.monotonic_ns())
        return stored

    def _hold(self, queue: MessageQueue, offset: int) -> "Held":
        host = self._host
        process_queue = host.new_queue(queue, offset)
        puller = Puller(host, process_queue)
        task = host.background.spawn(puller.run, f"pull-{queue}")
        held = self._held[queue] = Held(process_queue, puller, task)
        return held

    async def _give_away(self, seen: "Held") -> bool:
        """Release a queue, unless `restart` has gone on with it since it was seen.

        1. A seek drops what was pulled. 2. A rebalance takes the queue for one that was moved.
        3. The seek holds it at its offset. Were that released, the group's offset would count.
        """
        queue = seen.process_queue.queue
        return self._held.get(queue) is not seen or await self._release(queue)

    async def _release(self, queue: MessageQueue) -> bool:
        host, held = self._host, self._held[queue]
        await _cancel([held.task])
        held.process_queue.dropped = True  # No further listener call begins.
        if not await host.settled(held.process_queue):
            return False  # It stays ours, and locked, until its listener call has ended.
        era: int | None = None
        while era != held.process_queue.era and self._held.get(queue) is held:
            era = held.process_queue.era  # A tool that moves it meanwhile has the last word.
            await self._commit(held, Claim.NONE)
        if self._held.get(queue) is not held:
            return True  # `restart` was ahead, and goes on with the queue.
        del self._held[queue]
        if host.claims and held.process_queue.maybe_commit_offset() is None:
            await self._end_claim(queue)
        if host.locks is not None:
            await host.locks.give_back([queue])
        return True

    async def _end_claim(self, queue: MessageQueue) -> None:
        """Let go of a queue of which nothing was there to commit."""
        try:
            async with self._slot(queue):
                await self._host.claim(queue, Claim.NONE)
        except RemotingError as error:
            _log.info("queue=%s event=claim_not_ended error=%s", queue, error)

    def _slot(self, queue: MessageQueue) -> asyncio.Semaphore:
        return self._slots.setdefault(queue.broker_name, asyncio.Semaphore(QUERIES_AT_ONCE_MAX))

    async def _flush(self) -> None:
        if self._host.local is not None:
            await self._host.local.flush()

    async def _commit(self, held: "Held", claim: Claim = Claim.IF_FREE) -> RemotingError | None:
        async with held.turn:  # A commit from before a move never overtakes the one behind it.
            return await self._commit_now(held, claim)

    async def _commit_now(self, held: "Held", claim: Claim) -> RemotingError | None:
        one, host = held.process_queue, self._host
        queue, era, offset = one.queue, one.era, one.maybe_commit_offset()
        if offset is None:
            return None
        if host.local is not None:
            host.local.put(queue, offset)
            held.committed, held.era = offset, era
            if self._observer is not None:
                t_ns = host.clock.monotonic_ns()
                self._observer.on_commit(queue, offset, ok=True, t_start_ns=t_ns, t_end_ns=t_ns)
            return None

        ok = False

        async def ask(addr: str) -> None:
            nonlocal ok
            if one.era != era or one.lost:
                return  # It was moved, or went to another, before this was tried again.
            if self._held.get(queue) is not held:
                return  # It was given away, with a commit of its own, while this one waited.
            await host.api.commit_offset(addr, queue, offset, claim if host.claims else None)
            held.committed, held.taken_by, held.era = offset, addr, era
            ok = True

        t_start_ns = host.clock.monotonic_ns()
        try:
            async with self._slot(queue):
                await host.leaders.call(queue, ask, slaves=True)
        except RemotingError as error:
            _log.info("queue=%s event=commit_failed offset=%d error=%s", queue, offset, error)
            return error
        finally:
            if self._observer is not None:
                t_end_ns = host.clock.monotonic_ns()
                self._observer.on_commit(queue, offset, ok, t_start_ns, t_end_ns)
        return None


class Held:
    """One queue held."""

    __slots__ = (
        "committed", "era", "maybe_consumed_ms", "process_queue", "puller", "taken_by", "task",
        "turn",
    )  # fmt: skip

    def __init__(
        self, process_queue: ProcessQueue, puller: Puller, task: asyncio.Task[None]
    ) -> None:
        self.process_queue = process_queue
        self.puller = puller
        self.task = task
        self.committed: int | None = None
        """The offset that a broker took last; None before the first one."""
        self.taken_by = ""
        """The address of that broker."""
        self.era = 0
        """Whether the queue was sent elsewhere since: a broker that lost its end knows other
        offsets."""
        self.turn = asyncio.Lock()
        """One commit at a time."""
        self.maybe_consumed_ms: int | None = None
        """When messages were finished last, by the monotonic clock."""

    def is_due(self, leader: str | None) -> bool:
        """Tell whether ``leader`` may not have the offset that the group has come to."""
        offset = self.process_queue.maybe_commit_offset()
        if offset is None:
            return False
        if self.era != self.process_queue.era:
            return True
        return offset != self.committed or leader not in {None, self.taken_by}


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
