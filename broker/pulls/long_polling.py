"""Held pulls: which requests wait for which queue, and until when.

They are counted by address and by connection, and the filters that they wait for are weighed: pulls
for the same tags share them, as those of a client for its many queues do.

A pure table. It knows neither connections nor the store: whoever calls it re-runs what it hands
back. Deadlines are kept in buckets of ``resolution_ms``, so that holding, waking and expiring cost
the same however many requests are held.
Source: spec/wire.md 7.2; RocketMQ PullRequestHoldService (which looks at all requests every 5 s).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from broker.fair_share import FairShare
from broker.serving_limits import HELD_MAX, HELD_OF_CONNECTION_MAX, HELD_TAGS_BYTES_MAX
from store.results import RecordTest, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESOLUTION_MS = 100
TAG_BYTES = 64
"""What a tags code takes in a set."""


class HeldPull(msgspec.Struct):
    """One pull that found nothing new."""

    connection: Any
    opaque: int
    serialize_type: int
    topic: str
    queue_id: int
    #: Next queue offset to read; moves on when messages arrived that the filter refused.
    offset: int
    max_count: int
    wanted: Wanted
    deadline_ms: int
    #: Ids of the broker to ask next: after a read near the end, and far behind it.
    suggestions: tuple[int, int] = (0, 0)
    #: The group that it consumes for.
    group: str = ""
    #: The address whose share of the table it takes.
    holder: str = ""
    #: By which it waits, None if it said itself what it wants.
    subscription: Any = None
    #: Where it began to read.
    asked_offset: int = 0
    #: Set by the table.
    token: int = 0
    bucket: int = 0


class _Filter:
    """What held pulls wait for, in the share of the address that held it first."""

    __slots__ = ("count", "holder", "wanted", "weight")

    def __init__(self, wanted: frozenset[int] | RecordTest, holder: str) -> None:
        self.wanted = wanted
        self.holder = holder
        self.weight = (
            wanted.size_bytes if isinstance(wanted, RecordTest) else TAG_BYTES * len(wanted)
        )
        self.count = 0


class HoldTable:
    """All held pulls of a broker."""

    def __init__(self, *, limit: int = HELD_MAX, resolution_ms: int = RESOLUTION_MS) -> None:
        self._room = FairShare(limit)
        self._filters_room = FairShare(HELD_TAGS_BYTES_MAX)
        self._filters: dict[frozenset[int] | RecordTest, _Filter] = {}
        self._by_connection: dict[int, dict[int, HeldPull]] = {}
        self._resolution_ms = resolution_ms
        self._by_queue: dict[tuple[str, int], dict[int, HeldPull]] = {}
        self._by_deadline: dict[int, dict[int, HeldPull]] = {}
        self._next_token = 1
        #: Every bucket before this one is empty.
        self._first_bucket = 0
        #: The bucket that whoever sweeps waits for; none before it is left alone.
        self._awaited: int | None = None
        #: Called when a pull is to expire before what was awaited, with the time to sweep at.
        self.on_earlier: Callable[[int], None] = lambda _due_ms: None

    def __len__(self) -> int:
        return self._room.used

    def hold(self, pull: HeldPull) -> bool:
        """Keep ``pull`` until it is woken or its deadline passes.

        False when its address or its connection has its share of the table, or it is full.
        """
        if not self._room.fits(pull.holder):
            return False
        mine = self._by_connection.setdefault(pull.connection.id, {})
        if len(mine) >= HELD_OF_CONNECTION_MAX:
            return False
        if pull.wanted is not None and not self._share_filter(pull, pull.wanted):
            if not mine:
                del self._by_connection[pull.connection.id]
            return False
        self._room.take(pull.holder, 1)
        mine[self._next_token] = pull
        pull.token = self._next_token
        self._next_token += 1
        self._by_queue.setdefault((pull.topic, pull.queue_id), {})[pull.token] = pull
        # A deadline in the past belongs to the first bucket that will still be looked at.
        pull.bucket = max(pull.deadline_ms // self._resolution_ms, self._first_bucket)
        self._by_deadline.setdefault(pull.bucket, {})[pull.token] = pull
        if self._awaited is None or pull.bucket < self._awaited:
            self._awaited = pull.bucket
            self.on_earlier((pull.bucket + 1) * self._resolution_ms)
        return True

    @property
    def filters_bytes(self) -> int:
        """What the tags and tests take that held pulls wait for."""
        return self._filters_room.used

    def next_due_ms(self) -> int | None:
        """Return when `expire` has something to hand out, None while nothing is held.

        Whoever sweeps waits until then; a pull that is held later and due earlier is announced.
        """
        self._awaited = min(self._by_deadline, default=None)
        return None if self._awaited is None else (self._awaited + 1) * self._resolution_ms

    def waits(self, topic: str, queue_id: int) -> bool:
        """Tell whether anything waits for this queue."""
        return (topic, queue_id) in self._by_queue

    def arrived(
        self, topic: str, queue_id: int, max_offset: int, limit: int = HELD_MAX
    ) -> list[HeldPull]:
        """Take out pulls of a queue that can now read below ``max_offset`` (exclusive).

        At most ``limit`` of them, those first that have waited longest.
        """
        waiting = self._by_queue.get((topic, queue_id))
        if waiting is None:
            return []
        ready = (pull for pull in waiting.values() if pull.offset < max_offset)
        woken = list(islice(ready, limit))
        for pull in woken:
            self._remove(pull)
        return woken

    def expire(self, now_ms: int, limit: int = HELD_MAX) -> list[HeldPull]:
        """Take out pulls whose deadline has passed; at most ``resolution_ms`` late.

        With ``limit`` of them there may be more, see `next_due_ms`.
        """
        last = now_ms // self._resolution_ms
        due = (
            pull
            for bucket in self._buckets_before(last)
            for pull in self._by_deadline[bucket].values()
        )
        expired = list(islice(due, limit))
        for pull in expired:
            self._remove(pull)
        if len(expired) < limit:
            self._first_bucket = max(self._first_bucket, last)
        return expired

    def drain(self, limit: int = HELD_MAX) -> list[HeldPull]:
        """Take out held pulls, every one or some (the broker stops or is no longer the leader)."""
        every = (pull for queue in self._by_queue.values() for pull in queue.values())
        pulls = list(islice(every, limit))
        for pull in pulls:
            self._remove(pull)
        return pulls

    def close(self, connection_id: int) -> None:
        """Forget the pulls of a closed connection: nobody waits for their answers."""
        for pull in list(self._by_connection.get(connection_id, {}).values()):
            self._remove(pull)

    def _buckets_before(self, last: int) -> Iterator[int]:
        if last - self._first_bucket <= len(self._by_deadline):
            return (b for b in range(self._first_bucket, last) if b in self._by_deadline)
        return (b for b in sorted(self._by_deadline) if b < last)

    def _share_filter(self, pull: HeldPull, wanted: frozenset[int] | RecordTest) -> bool:
        """Have a pull use the filter of those that wait for the same; False if it may have none."""
        shared = self._filters.get(wanted)
        if shared is None:
            shared = _Filter(wanted, pull.holder)
            if not self._filters_room.fits(pull.holder, shared.weight):
                return False
            self._filters_room.take(pull.holder, shared.weight)
            self._filters[wanted] = shared
        shared.count += 1
        pull.wanted = shared.wanted
        return True

    def _release_filter(self, wanted: frozenset[int] | RecordTest) -> None:
        shared = self._filters[wanted]
        shared.count -= 1
        if not shared.count:
            del self._filters[wanted]
            self._filters_room.take(shared.holder, -shared.weight)

    def _remove(self, pull: HeldPull) -> None:
        key = (pull.topic, pull.queue_id)
        waiting = self._by_queue[key]
        del waiting[pull.token]
        if not waiting:
            del self._by_queue[key]
        holder = self._by_deadline[pull.bucket]
        del holder[pull.token]
        if not holder:
            del self._by_deadline[pull.bucket]
        mine = self._by_connection[pull.connection.id]
        del mine[pull.token]
        if not mine:
            del self._by_connection[pull.connection.id]
        self._room.take(pull.holder, -1)
        if pull.wanted is not None:
            self._release_filter(pull.wanted)
