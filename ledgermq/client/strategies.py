"""More ways to share the queues of a topic: by configuration, machine room or consistent hash.

Pure. The same lists give the same shares as RocketMQ's strategies of these names, so that members
of both clients may be in one group. A custom strategy is any function like those of
`ledgermq.client.rebalance`; what it returns is looked at before it is believed.
Source: AllocateMessageQueueByConfig, AllocateMessageQueueByMachineRoom, AllocateMachineRoomNearby,
AllocateMessageQueueConsistentHash, ConsistentHashRouter.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ledgermq.client.errors import StrategyFailed
from ledgermq.client.message import MessageQueue
from ledgermq.client.rebalance import Allocate, allocate_averagely


@dataclass(frozen=True, slots=True)
class AllocateByConfig:
    """Queues that were chosen beforehand (strategy CONFIG).

    Each member needs a list of its own. A topic of which none is listed, such as the one of the
    group's retries, is shared averagely: otherwise nobody would consume it.
    """

    queues: Collection[MessageQueue]

    def __call__(
        self, consumer_id: str, queues: Sequence[MessageQueue], consumer_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the listed queues that there are."""
        topics = {queue.topic for queue in queues}
        if not any(queue.topic in topics for queue in self.queues):
            return allocate_averagely(consumer_id, queues, consumer_ids)
        return sorted(set(self.queues).intersection(queues))


@dataclass(frozen=True, slots=True)
class AllocateByMachineRoom:
    """Averagely, of brokers named ``room@name`` in some rooms only (strategy MACHINE_ROOM)."""

    rooms: Collection[str]

    def __call__(
        self, consumer_id: str, queues: Sequence[MessageQueue], consumer_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return a run of the queues in those rooms, and one of those that are left over."""
        ids = sorted(consumer_ids)
        if consumer_id not in ids:
            return []
        there = [queue for queue in sorted(queues) if self._has(queue.broker_name)]
        index = ids.index(consumer_id)
        size, over = divmod(len(there), len(ids))
        share = there[index * size : (index + 1) * size]
        if index < over:
            share.append(there[len(ids) * size + index])
        return share

    def _has(self, broker_name: str) -> bool:
        room, at, name = broker_name.partition("@")
        return bool(at and name) and "@" not in name and room in self.rooms


@dataclass(frozen=True, slots=True)
class AllocateNearby:
    """Queues to members in the same machine room (strategy MACHINE_ROOM_NEARBY).

    Those of a room without a member are shared by all. ``inner`` shares within a room; the two
    functions say where a queue and a member are, and may not return an empty text.
    """

    inner: Allocate
    room_of_queue: Callable[[MessageQueue], str]
    room_of_consumer: Callable[[str], str]

    def __call__(
        self, consumer_id: str, queues: Sequence[MessageQueue], consumer_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of the own room, then those of rooms without a member."""
        ids = sorted(consumer_ids)
        if consumer_id not in ids:
            return []
        members: dict[str, list[str]] = {}
        for one in ids:
            members.setdefault(_named(self.room_of_consumer(one), one), []).append(one)
        rooms: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            rooms.setdefault(_named(self.room_of_queue(queue), queue), []).append(queue)
        here = self.room_of_consumer(consumer_id)
        share: list[MessageQueue] = []
        if here in rooms:
            share += self.inner(consumer_id, rooms.pop(here), members[here])
        for room in sorted(rooms):
            if room not in members:
                share += self.inner(consumer_id, rooms[room], ids)
        return share


@dataclass(frozen=True, slots=True)
class AllocateByConsistentHash:
    """Each queue to the next member on a ring of hashes (strategy CONSISTENT_HASH).

    When a member comes or goes, few queues change hands. ``virtual_nodes`` is how often each
    member stands on the ring; all members of the group must say the same.
    """

    virtual_nodes: int = 10

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1:
            raise ValueError(f"virtual_nodes must be at least 1, not {self.virtual_nodes}")

    def __call__(
        self, consumer_id: str, queues: Sequence[MessageQueue], consumer_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues whose next member on the ring is ``consumer_id``."""
        ids = sorted(set(consumer_ids))
        if consumer_id not in ids:
            return []
        ring = {_md5(f"{one}-{number}"): one for one in ids for number in range(self.virtual_nodes)}
        places = sorted(ring)
        return [
            queue
            for queue in sorted(queues)
            if ring[places[bisect_left(places, _md5(_as_java(queue))) % len(places)]] == consumer_id
        ]


def share_of(
    allocate: Allocate,
    consumer_id: str,
    queues: Sequence[MessageQueue],
    consumer_ids: Sequence[str],
) -> list[MessageQueue]:
    """Return what a strategy gives to a member.

    Errors: ``StrategyFailed`` when it raises, or returns anything but queues of the topic, each at
    most once.
    """
    name = getattr(allocate, "__name__", type(allocate).__name__)
    try:
        share = list(allocate(consumer_id, queues, consumer_ids))
    except Exception as error:  # whatever a function of the user's raises
        raise StrategyFailed(f"strategy {name} failed: {error!r}") from error
    known = set(queues)
    for queue in share:
        # A plain tuple is equal to a queue; a list cannot even be looked for.
        if not isinstance(queue, MessageQueue) or queue not in known:
            raise StrategyFailed(f"strategy {name} returned {queue!r}, which is not to be shared")
    if len(set(share)) < len(share):
        raise StrategyFailed(f"strategy {name} returned a queue twice")
    return share


def _named(room: str, whose: object) -> str:
    if not room:
        raise ValueError(f"no machine room is known of {whose}")
    return room


def _as_java(queue: MessageQueue) -> str:
    topic, broker_name, queue_id = queue
    return f"MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]"


def _md5(text: str) -> int:
    """Return the hash of RocketMQ's ring: the first four bytes of the MD5."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
