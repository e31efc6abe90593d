"""What a client of the simulation asks: reads, searches, queries, locks, offsets."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ledgermq.client import MessageQueue, PullStatus
from ledgermq.remoting.protocol.codes import RequestCode
from ledgermq.remoting.protocol.command import RemotingCommand
from sim.oracles.records import TAGS
from sim.workload import TOPIC, Kind, Op

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgermq.client import MessageExt, MessageFinder, PullConsumer
    from sim.faults.plan import Workload
    from sim.record import Record
    from sim.validators import Validators

MS_PER_S: Final = 1000
FOUND_MAX: Final = 64
HELD_MS_MAX: Final = 40_000
"""A lock that is taken last is given back before a run has to be at rest; others run out."""
RENEW_MS: Final = 3_000
RENEWALS_MAX: Final = 3
"""Who keeps a lock asks for it again, up to so often."""
QUERY_AGE_MAX: Final = 40
"""A query asks for one of the so many messages that were acknowledged last."""
_asked: ContextVar[set[str]] = ContextVar("asked")
"""Names of the brokers that the query of this task has asked so far."""


SPANS: Final = ((-3_000, 3_000), (3_000, 1 << 40), (-(1 << 40), -3_000))
"""From when to when a message is asked for, as seen from when it was stored (ms)."""


class Known:
    """Messages that a client knows of, to ask for them again."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, MessageQueue, str, str]] = []
        """Key, queue, unique key and broker's id of messages, in the order of their answers."""

    def add(self, key: int, queue: MessageQueue, unique: str, stored: str) -> None:
        """Take that a message was acknowledged."""
        self.acknowledged.append((key, queue, unique, stored))

    def choose(self, choice: int) -> tuple[int, MessageQueue, str, str] | None:
        """Return one of the last, None if there is none."""
        last = self.acknowledged[-QUERY_AGE_MAX:]
        return last[choice % len(last)] if last else None


class Reads:
    """Reads, searches, queries, locks and commits of one client."""

    def __init__(
        self,
        name: str,
        clients: tuple[PullConsumer, MessageFinder],
        record: Record,
        validators: Validators,
        workload: Workload,
    ) -> None:
        self._name = name
        self._puller, self._finder = clients
        leaders = self._finder._leaders
        leaders.call = _noted(leaders.call)  # type: ignore[method-assign,assignment]  # the tap
        self._record = record
        self._validators = validators
        self._workload = workload
        self._positions: dict[MessageQueue, int] = {}
        self._queues: dict[str, list[MessageQueue]] = {}
        """By topic, as the name servers told; asked again once something has failed."""
        self.known = Known()

    def forget_queues(self) -> None:
        """Ask the name servers again, the next time."""
        self._queues.clear()

    async def queue(self, topic: str, choice: int) -> MessageQueue:
        """Return a queue of a topic."""
        queues = self._queues.get(topic)
        if not queues:
            queues = self._queues[topic] = await self._puller.fetch_subscribe_queues(topic)
        return queues[choice % len(queues)]

    async def perform(self, op: Op) -> None:
        """Carry out an operation."""
        match op.kind:
            case Kind.PULL:
                await self._pull(op)
            case Kind.COMMIT:
                await self._commit(op)
            case Kind.SEARCH:
                await self._search(op)
            case Kind.LOCK:
                await self._lock(op)
            case Kind.QUERY:
                await self._query(op)

    async def _pull(self, op: Op) -> None:
        queue = await self.queue(TOPIC, op.choice)
        place, validator = (queue.topic, queue.queue_id), self._validators.of(queue)
        offset = self._positions.get(queue)
        if offset is None:
            stored = await self._puller.fetch_offset(queue)
            validator.on_fetched(place, stored)
            offset = max(stored, 0)
        elif op.choice % 1000 < self._workload.seek_p * 1000:
            offset = op.choice % (offset + 3)
        tag = self._record.tag_of(op.size_bytes)
        counts, suspends = self._workload.pull_counts, self._workload.suspend_ms
        result = await self._puller.pull(
            queue,
            tag or "*",
            offset=offset,
            max_count=counts[op.choice % len(counts)],
            block_ms=suspends[op.size_bytes % len(suspends)],
        )
        if result.status in {PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE}:
            passed = range(max(offset, result.min_offset), result.next_offset)
            validator.on_pulled(place, passed, tag, {m.queue_offset for m in result.messages})
        expected = offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            expected = result.next_offset  # what was there has been dropped from the log
        for message in result.messages:
            self._validators.note(message, queue, self._validators.pull_group, self._name)
            told = message.maybe_property(TAGS)
            self._validators.answers(queue).on_filtered(
                place, message.queue_offset, told, tag or "*"
            )
            expected = max(expected, message.queue_offset + 1)
        self._positions[queue] = max(expected, self._positions.get(queue, 0))
        self._record.count("pulls")

    async def _commit(self, op: Op) -> None:
        queue = await self.queue(TOPIC, op.choice)
        offset = self._positions.get(queue)
        if offset is not None:
            self._validators.of(queue).on_offered((queue.topic, queue.queue_id), offset)
            if op.size_bytes % 100 < 100 * self._workload.oneway_p:
                await self._commit_oneway(queue, offset)
            else:
                await self._puller.commit_offset(queue, offset)
            self._record.count("commits")

    async def _commit_oneway(self, queue: MessageQueue, offset: int) -> None:
        """Commit as RocketMQ's consumers do: nobody answers."""
        puller = self._puller
        api = puller._instance.api
        fields = api._queue_fields(queue) | {"commitOffset": str(offset)}
        command = RemotingCommand(code=RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        await puller._instance.client.oneway(puller._leaders.master(queue), command)

    async def _search(self, op: Op) -> None:
        """Ask for the first message stored at or after a time, while none is added or dropped."""
        queue = await self.queue(TOPIC, op.choice)
        place, puller = (queue.topic, queue.queue_id), self._puller
        validator = self._validators.of(queue)
        stored_ms = validator.choose_time(place, op.size_bytes)
        if stored_ms is None:
            return
        end = await puller.max_offset(queue)
        found = await puller.search_offset(queue, stored_ms)
        end = min(end, await puller.max_offset(queue))
        begin = await puller.min_offset(queue)
        validator.on_searched(place, stored_ms, found, (begin, end))
        self._record.count("searches")

    async def _lock(self, op: Op) -> None:
        """Lock a queue under a name of its own, and perhaps give it back."""
        queue = await self.queue(TOPIC, op.choice)
        place, owner = (queue.topic, queue.queue_id), f"{self._name}-{op.number}"
        validator = self._validators.of(queue)
        api, call = self._puller._instance.api, self._puller._leaders.call
        is_mine = queue in await call(queue, lambda addr: api.lock(addr, owner, [queue]))
        self._record.count("locks" if is_mine else "locks_refused")
        if is_mine:
            validator.on_locked(place, owner, self._record.now_ns)
        if op.messages % 2:  # who was refused gives back, too: nothing comes of it
            await asyncio.sleep(min(op.size_bytes, HELD_MS_MAX) / MS_PER_S)
            validator.on_unlocking(place, owner)
            await call(queue, lambda addr: api.unlock(addr, owner, [queue]))
            return
        for _ in range(op.choice % (RENEWALS_MAX + 1) if is_mine else 0):
            await asyncio.sleep(RENEW_MS / MS_PER_S)
            is_mine = queue in await call(queue, lambda addr: api.lock(addr, owner, [queue]))
            validator.on_renewed(place, owner, self._record.now_ns, is_granted=is_mine)
            self._record.count("locks_renewed", is_mine)

    async def _query(self, op: Op) -> None:
        """Ask for a message that this client knows of: by key, by unique key, or by id."""
        known = self.known.choose(op.choice)
        if known is None:
            return
        key, queue, unique, stored = known
        answers = self._validators.answers(queue)
        before = answers.places_of(key, queue.topic)
        how = op.size_bytes % 3
        found: list[MessageExt]
        asked: set[str] = set()
        _asked.set(asked)
        if how == 0:
            question = f"key {key}"
            found = await self._finder.by_key(queue.topic, str(key), FOUND_MAX)
            await self._ask_within_spans(op, str(key), found)
        elif how == 1:
            question = f"unique key {unique} of {key}"
            found = await self._finder.by_unique_key(queue.topic, unique)
        else:
            question = f"id {stored} of {key}"
            one = await self._finder.by_id(stored)
            # It names a broker, which may not have it (yet): found is what is judged.
            found, before = ([] if one is None else [one]), []
        mine = [one for one in found if self._validators.is_of(one, queue)]
        self._validators.questions.append((question, tuple(before), tuple(mine)))
        for one in mine:
            self._validators.check_content(one, queue, key)
        # The route may have lacked the broker when the finder asked, and have it by now.
        if queue.broker_name in asked:
            answers.on_found(question, before, mine, FOUND_MAX)
            self._record.count("queries")

    async def _ask_within_spans(self, op: Op, key: str, found: list[MessageExt]) -> None:
        """Ask for one of the messages again, by the time at which it was stored.

        What comes of it is judged where it is answered.
        """
        strain = self._workload.strain
        if strain is None or not strain.spans or not found:
            return
        one = found[op.choice % len(found)]
        for begin, end in SPANS:
            begin_ms, end_ms = one.store_timestamp + begin, one.store_timestamp + end
            await self._finder.by_key(one.topic, key, FOUND_MAX, max(0, begin_ms), end_ms)
        self._record.count("queries_of_spans")


def _noted(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Have each call to a leader noted among those whom the query of its task has asked."""

    def noted(queue: MessageQueue, *rest: Any, **more: Any) -> Awaitable[Any]:  # noqa: ANN401 - as it is called
        asked = _asked.get(None)
        if asked is not None:
            asked.add(queue.broker_name)
        return call(queue, *rest, **more)

    return noted
