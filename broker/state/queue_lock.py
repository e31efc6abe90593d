"""Locks of orderly consumers: which client owns which queue of a group, on a lease of 60 s.

The leader decides against its table and has the grant replicated before it answers. Every replica
starts the lease when it applies the grant, on its own monotonic clock: never earlier than the old
leader did, so a new leader inherits every lease and grants nothing that may still be held. No wall
clock, no clock agreement. A restored lease starts anew at the restart.

A client that has left its group (35) is waited for no longer, see `QueueLockTable.leave`.

Leases stand in the order in which they run out, so that those that have are found without a walk.
The table is shared fairly among groups; only a leader refuses, never the log.

Pure: times are passed in. Source: spec/wire.md 3.7 (41, 42), 7.1; RocketMQ RebalanceLockManager
(whose table dies with the master).
"""

from __future__ import annotations

from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING

import msgspec

from broker.fair_share import FairShare
from broker.limits import LOCKS_MAX, STATE_ENTRY_BYTES_MAX
from broker.state.kinds import StateKind
from broker.state.table import LargeTable
from broker.table_text import documents_of, text_in_steps
from ledgermq.remoting.protocol.bodies import QueueKey, decode_file

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from broker.state.table import Exchange, Gauge, Text

LEASE_MS = 60_000
EXPIRED_PER_TURN = 2_000
"""Leases that are dropped in one turn of the loop: all those of a group end together."""
LEFT_MAX = 4_096
"""Clients that have left and are remembered; the leases of others just run out."""
#: What a queue takes in an entry besides its topic, at most.
_QUEUE_BYTES = 64


class LockChange(msgspec.Struct, frozen=True, rename="camel"):
    """A replicated grant or release."""

    group: str
    client_id: str
    queues: list[QueueKey]


class _Lease(msgspec.Struct):
    client_id: str
    until_ms: int


class _Saved(msgspec.Struct, rename="camel"):
    lock_table: list[LockChange]


_Key = tuple[str, str, int]


class QueueLockTable(LargeTable):
    """All leases of a broker group.

    Args:
        now_ms: this replica's monotonic clock, for what comes from the log or a snapshot.
    """

    file = "queueLock.json"

    def __init__(self, now_ms: Callable[[], int], lease_ms: int = LEASE_MS) -> None:
        self._now_ms = now_ms
        self._lease_ms = lease_ms
        self._leases: dict[_Key, _Lease] = {}
        self._room = FairShare(LOCKS_MAX)
        #: Grants proposed by this leader and not yet applied: they already exclude other clients.
        self._proposed: dict[_Key, tuple[str, int]] = {}
        #: When clients have left, by group and client id; who left last stands last.
        self._left: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def has_some(self, group: str) -> bool:
        """Tell whether a group has locked queues, or had some seconds ago."""
        return self._room.of(group) > 0

    def grantable(self, change: LockChange, now_ms: int) -> list[QueueKey]:
        """Return the queues of a request that its client may have now."""
        granted: list[QueueKey] = []
        more = len(self._proposed)
        for queue in change.queues:
            key = (change.group, queue.topic, queue.queue_id)
            owner = self._owner(key, now_ms)
            known = owner is not None or key in self._leases
            if owner in (None, change.client_id) and (
                known or self._room.fits(change.group, more + 1)
            ):
                more += not known
                granted.append(queue)
        return granted

    def releasable(self, change: LockChange) -> list[QueueKey]:
        """Return the queues of a request that its client holds, by a grant on its way, too."""
        return [
            queue
            for queue, key in zip(change.queues, _keys(change), strict=True)
            if change.client_id in self._holders(key)
        ]

    def leave(self, group: str, client_id: str, now_ms: int) -> None:
        """Note that a client is done with its queues and has left: others may have them now.

        It gives them back before it leaves. But who has not heard of a new leader asks the former
        one, which refuses, and nobody asks again; all brokers hear that it leaves. This is memory
        of this replica: where it is lost, the lease runs out.
        """
        if not self._room.of(group):
            return
        self._left.pop((group, client_id), None)
        self._left[group, client_id] = now_ms
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def come_back(self, group: str, client_id: str) -> None:
        """Note that a client is in its group, so that what it has locked holds.

        Where this replica stood still, it hears of the leaving after it has applied what the client
        locked once it was back.
        """
        self._left.pop((group, client_id), None)

    def propose(self, change: LockChange) -> None:
        """Reserve a grant that is on its way through the log."""
        for key in _keys(change):
            _, count = self._proposed.get(key, ("", 0))
            self._proposed[key] = (change.client_id, count + 1)

    def settle(self, change: LockChange) -> None:
        """End the reservation of a proposal, whatever became of it."""
        for key in _keys(change):
            owner, count = self._proposed.get(key, ("", 0))
            if count > 1:
                self._proposed[key] = (owner, count - 1)
            else:
                self._proposed.pop(key, None)

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`."""
        return {
            StateKind.LOCK: lambda payload: self.apply_lock(payload, self._now_ms()),
            StateKind.UNLOCK: self.apply_unlock,
        }

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`."""
        yield LOCKS_MAX, self.__len__

    def apply_lock(self, payload: bytes, now_ms: int) -> None:
        """Apply a replicated grant: the lease runs from now."""
        change = msgspec.json.decode(payload, type=LockChange)
        for key in _keys(change):
            if self._leases.pop(key, None) is None:
                self._room.take(change.group, 1)
            self._leases[key] = _Lease(change.client_id, now_ms + self._lease_ms)

    def apply_unlock(self, payload: bytes) -> None:
        """Apply a replicated release; only the owner's counts."""
        change = msgspec.json.decode(payload, type=LockChange)
        for key in _keys(change):
            lease = self._leases.get(key)
            if lease is not None and lease.client_id == change.client_id:
                self._drop(key)

    def expire(self, now_ms: int) -> bool:
        """Drop leases that have run out, to bound the table; return whether there may be more."""
        first = islice(self._leases.items(), EXPIRED_PER_TURN)
        gone = [key for key, _ in takewhile(lambda row: row[1].until_ms <= now_ms, first)]
        for key in gone:
            self._drop(key)
        return len(gone) == EXPIRED_PER_TURN

    def owner(self, group: str, topic: str, queue_id: int, now_ms: int) -> str | None:
        """Return the client that holds a queue, or None."""
        return self._owner((group, topic, queue_id), now_ms)

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the parts of config/queueLock.json as it is now."""
        return text_in_steps(_saved, self._leases.copy().items())

    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """See `ReplicatedTable`; every lease starts anew."""
        leases: dict[_Key, _Lease] = {}
        room = FairShare(LOCKS_MAX)
        until_ms = self._now_ms() + self._lease_ms
        for number, document in enumerate(documents_of(data)):
            if number:
                yield
            for row in decode_file(document, _Saved).lock_table:
                for key in _keys(row):
                    if key not in leases:
                        room.take(row.group, 1)
                    leases[key] = _Lease(row.client_id, until_ms)
        return partial(self._replace, leases, room)

    def _replace(self, leases: dict[_Key, _Lease], room: FairShare) -> dict[_Key, _Lease]:
        former, self._leases, self._room = self._leases, leases, room
        return former

    def _drop(self, key: _Key) -> None:
        del self._leases[key]
        self._room.take(key[0], -1)

    def _holders(self, key: _Key) -> set[str]:
        """Return who has a lease, run out or not, and who is about to have one."""
        lease, proposed = self._leases.get(key), self._proposed.get(key)
        holders = {lease.client_id} if lease is not None else set()
        return holders | {proposed[0]} if proposed is not None else holders

    def _owner(self, key: _Key, now_ms: int) -> str | None:
        proposed = self._proposed.get(key)
        if proposed is not None:
            return proposed[0]
        lease = self._leases.get(key)
        if lease is None or lease.until_ms <= now_ms:
            return None
        left_ms = self._left.get((key[0], lease.client_id), -1)
        return lease.client_id if lease.until_ms - self._lease_ms >= left_ms else None


def _saved(leases: list[tuple[_Key, _Lease]]) -> _Saved:
    return _Saved(
        [
            LockChange(group, lease.client_id, [QueueKey("", queue_id, topic)])
            for (group, topic, queue_id), lease in leases
        ]
    )


def _keys(change: LockChange) -> list[_Key]:
    return [(change.group, queue.topic, queue.queue_id) for queue in change.queues]


def split_change(change: LockChange) -> Iterator[bytes]:
    """Return the payloads of a change, each of bounded size; brokers' names are left out."""
    queues: list[QueueKey] = []
    begin = len(msgspec.json.encode(LockChange(change.group, change.client_id, [])))
    size = begin
    for queue in change.queues:
        more = _QUEUE_BYTES + len(queue.topic)
        if queues and size + more > STATE_ENTRY_BYTES_MAX:
            yield msgspec.json.encode(LockChange(change.group, change.client_id, queues))
            queues, size = [], begin
        queues.append(QueueKey("", queue.queue_id, queue.topic))
        size += more
    if queues:
        yield msgspec.json.encode(LockChange(change.group, change.client_id, queues))
