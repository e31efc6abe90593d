"""Offsets of groups, and locks of queues, as a broker keeps them: what is asked, told and applied.

The log and the wire show what becomes of it (`sim.oracles.tables`, `sim.oracles.brokers`); here is
what a broker makes of each call, on a broker of any kind. How much room there is for whom others
say (`sim.oracles.shares`): what is refused for want of room is not judged.

Source: docs/consumption.md; docs/adr/0002; RocketMQ ConsumerOffsetManager, RebalanceLockManager.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sim.oracles.twice import ANY

if TYPE_CHECKING:
    from broker.state.consumer_offset import ConsumerOffsetTable
    from broker.state.queue_lock import LockChange, QueueLockTable

PAYLOAD_BYTES_MAX: Final = 8 * 1024
"""No record of state is as large."""
Place = tuple[str, int]
"""``topic@group`` and queue id."""
Queue = tuple[str, str, int]
"""Group, topic and queue id."""


class OffsetsModel:
    """The offsets of one broker."""

    METHODS = (
        "commit", "query", "take_proposals", "give_back", "apply", "apply_forget", "drop_pending",
        "withdraw", "drop", "applied_offset", "pending_offset", "_replace",
    )  # fmt: skip

    def __init__(self, one: ConsumerOffsetTable) -> None:
        self._one = one
        self._applied: dict[Place, int] = {}
        self._pending: dict[Place, int] = {}
        self._due: dict[Place, int] = {}
        """What is to be put into the log, first what waits longest."""
        self._put: dict[Place, list[int]] = {}
        """What is on its way through the log."""
        self._touched: list[Place] = []
        self._taken: dict[Place, int] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> object:
        """The last one counts, and is put, unless the log says so already."""
        place = (f"{topic}@{group}", queue_id)
        self._touched = [place]
        if place not in self._pending:
            is_said = self._applied.get(place) == offset and not self._is_followed(place, offset)
            if is_said:
                return True
            has_room = (
                place in self._applied
                or self._one._pending.get(place[0], {}).get(queue_id) == offset
            )
            if not has_room:
                return False
        self._pending[place] = self._due[place] = offset
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """What was taken last."""
        place = (f"{topic}@{group}", queue_id)
        return self._pending.get(place, self._applied.get(place))

    def take_proposals(self, count_max: int | None = None) -> object:
        """All that is due, or what has waited longest."""
        self._touched = list(self._due)[:count_max]
        self._taken = {place: self._due.pop(place) for place in self._touched}
        for place, offset in self._taken.items():
            self._put.setdefault(place, []).append(offset)
        return Payloads(self._taken)

    def give_back(self, payload: bytes, *, may_come: bool = False) -> None:
        """What was refused is due again, unless a newer one came."""
        self._touched = []
        for place, offset in _rows(payload):
            self._touched.append(place)
            if not may_come:
                self._take(place, offset)
            if self._pending.get(place) == offset and place not in self._due:
                self._due[place] = offset

    def apply(self, payload: bytes) -> None:
        """The log says so: what is as new is pending no more."""
        self._touched = []
        for place, offset in _rows(payload):
            self._touched.append(place)
            self._applied[place] = offset
            put = self._put.get(place, [])
            if offset in put:
                del put[: put.index(offset) + 1]
            if not put:
                self._put.pop(place, None)
            if self._pending.get(place) == offset and not self._is_followed(place, offset):
                del self._pending[place]
                self._due.pop(place, None)

    def apply_forget(self, payload: bytes) -> None:
        """What was applied is gone, what was taken since is not."""
        gone = json.loads(payload)["offsets"]
        self._touched = [(key, queue_id) for key, ids in gone.items() for queue_id in ids]
        for place in self._touched:
            self._applied.pop(place, None)

    def drop_pending(self) -> None:
        """Who leads no more has what the log says."""
        self._touched = list(self._pending)
        for known in (self._pending, self._due, self._put):
            known.clear()

    def withdraw(self, group: str) -> dict[str, list[int]]:
        """Nothing of a group is due; what is on its way is told."""
        mine = [place for place in self._put if place[0].rpartition("@")[2] == group]
        due = [place for place in self._due if place[0].rpartition("@")[2] == group]
        self._touched = [*due, *mine]
        for place in self._touched:
            self._forget(place)
        told: dict[str, list[int]] = {}
        for key, queue_id in mine:
            told.setdefault(key, []).append(queue_id)
        return told

    def drop(self, key: str, queue_id: int) -> None:
        """What was taken and is not applied is gone."""
        self._touched = [(key, queue_id)]
        self._forget((key, queue_id))

    def applied_offset(self, key: str, queue_id: int) -> int | None:
        """What the log says."""
        return self._applied.get((key, queue_id))

    def pending_offset(self, key: str, queue_id: int) -> int | None:
        """What was taken since."""
        return self._pending.get((key, queue_id))

    def _replace(self, applied: dict[str, dict[int, int]], room: object) -> object:
        """Another table takes its place, as of a file or a snapshot."""
        del room
        self._applied = {
            (key, queue_id): offset
            for key, queues in applied.items()
            for queue_id, offset in queues.items()
        }
        return ANY

    def differs(self, one: ConsumerOffsetTable) -> str | None:
        """Say how, at the places of the last call."""
        touched, self._touched = self._touched, []
        for place in touched:
            key, queue_id = place
            now = (
                one._applied.get(key, {}).get(queue_id), one._pending.get(key, {}).get(queue_id),
                one._dirty.get(place), one._proposed.get(place, []),
            )  # fmt: skip
            want = (
                self._applied.get(place), self._pending.get(place), self._due.get(place),
                self._put.get(place, []),
            )  # fmt: skip
            if now != want:
                return f"{place}: applied, taken, due and put are {now}, and not {want}"
        return None

    def _is_followed(self, place: Place, offset: int) -> bool:
        return any(one != offset for one in self._put.get(place, ()))

    def _take(self, place: Place, offset: int) -> None:
        put = self._put.get(place, [])
        if offset in put:
            put.remove(offset)
        if not put:
            self._put.pop(place, None)

    def _forget(self, place: Place) -> None:
        if self._pending.pop(place, None) is not None:
            self._due.pop(place, None)


class Payloads:
    """Equal to what has these offsets, each once, and is of bounded size."""

    def __init__(self, rows: dict[Place, int]) -> None:
        self._rows = rows

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __eq__(self, other: object) -> bool:
        """Compare with payloads."""
        if not isinstance(other, list) or any(len(one) > PAYLOAD_BYTES_MAX for one in other):
            return False
        rows = [row for payload in other for row in _rows(payload)]
        return len(rows) == len(self._rows) and dict(rows) == self._rows

    def __repr__(self) -> str:
        """Render as the offsets."""
        return repr(self._rows)


def _rows(payload: bytes) -> list[tuple[Place, int]]:
    table = json.loads(payload)
    return [
        ((key, int(queue_id)), offset)
        for key, queues in table.items()
        for queue_id, offset in queues.items()
    ]


class LocksModel:
    """The locks of one broker; leases by its own clock."""

    METHODS: Final = (
        "grantable", "releasable", "leave", "come_back", "propose", "settle", "apply_lock",
        "apply_unlock", "expire", "owner", "_replace",
    )  # fmt: skip
    FEW = 100
    """So many locks have room anywhere."""
    LEFT_MAX = 4_096
    EXPIRED_MAX = 2_000

    def __init__(self, one: QueueLockTable) -> None:
        self._one = one
        self._leases: dict[Queue, tuple[str, int]] = {}
        """Who has it, and until when."""
        self._on_way: dict[Queue, list[str]] = {}
        """Who is about to have it, by each grant on its way."""
        self._left: dict[tuple[str, str], int] = {}
        self._granted: list[Any] | None = None

    def grantable(self, change: LockChange, now_ms: int) -> object:
        """What nobody else has, or is about to have."""
        free = [
            queue
            for queue, place in zip(change.queues, _places(change), strict=True)
            if self._owner(place, now_ms) in (None, change.client_id)
        ]
        if len(self._leases) + len(self._on_way) + len(free) > self.FEW:
            return ANY
        return free

    def releasable(self, change: LockChange) -> list[Any]:
        """What the client has, run out or not, or is about to have."""
        found = []
        for queue, place in zip(change.queues, _places(change), strict=True):
            holder, _ = self._leases.get(place, ("", 0))
            if change.client_id in (holder, *self._on_way.get(place, [])[-1:]):
                found.append(queue)
        return found

    def leave(self, group: str, client_id: str, now_ms: int) -> None:
        """Who is done with its queues is waited for no more; where a group has locks."""
        if not any(place[0] == group for place in self._leases):
            return
        self._left.pop((group, client_id), None)
        self._left[group, client_id] = now_ms
        while len(self._left) > self.LEFT_MAX:
            del self._left[next(iter(self._left))]

    def come_back(self, group: str, client_id: str) -> None:
        """It is there."""
        self._left.pop((group, client_id), None)

    def propose(self, change: LockChange) -> None:
        """A grant is on its way: nobody else gets it."""
        for place in _places(change):
            count = len(self._on_way.get(place, ()))
            self._on_way[place] = [change.client_id] * (count + 1)

    def settle(self, change: LockChange) -> None:
        """It has come, or not."""
        for place in _places(change):
            on_way = self._on_way.get(place, [])
            if len(on_way) > 1:
                on_way.pop()
            else:
                self._on_way.pop(place, None)

    def apply_lock(self, payload: bytes, now_ms: int) -> None:
        """It is the client's from now on, whoever had it."""
        change = json.loads(payload)
        for place in _places_in(change):
            self._leases.pop(place, None)
            self._leases[place] = change["clientId"], now_ms + self._one._lease_ms

    def apply_unlock(self, payload: bytes) -> None:
        """It is nobody's, if it was the client's."""
        change = json.loads(payload)
        for place in _places_in(change):
            if self._leases.get(place, ("", 0))[0] == change["clientId"]:
                del self._leases[place]

    def expire(self, now_ms: int) -> bool:
        """What has run out goes."""
        gone = [place for place, (_, until_ms) in self._leases.items() if until_ms <= now_ms]
        if len(gone) < self.EXPIRED_MAX:
            for place in gone:
                del self._leases[place]
            return False
        self._leases = _leases_of(self._one)
        return True

    def owner(self, group: str, topic: str, queue_id: int, now_ms: int) -> str | None:
        """Who has it."""
        return self._owner((group, topic, queue_id), now_ms)

    def _replace(self, leases: object, room: object) -> object:
        """Another table takes its place, as of a file or a snapshot."""
        del leases, room
        self._leases = _leases_of(self._one)
        return ANY

    def differs(self, one: QueueLockTable) -> str | None:
        """Say how."""
        if len(one._leases) != len(self._leases):
            return f"it has {len(one._leases)} locks, and not {len(self._leases)}"
        if len(self._leases) <= self.FEW and (leases := _leases_of(one)) != self._leases:
            return f"its locks are {leases}, and not {self._leases}"
        on_way = {place: (owners[-1], len(owners)) for place, owners in self._on_way.items()}
        if one._proposed != on_way:
            return f"on their way are {one._proposed}, and not {on_way}"
        return None if one._left == self._left else f"who left is {one._left}, not {self._left}"

    def _owner(self, place: Queue, now_ms: int) -> str | None:
        if self._on_way.get(place):
            return self._on_way[place][-1]
        owner, until_ms = self._leases.get(place, ("", -1))
        if until_ms <= now_ms:
            return None
        left_ms = self._left.get((place[0], owner))
        is_gone = left_ms is not None and until_ms - self._one._lease_ms < left_ms
        return None if is_gone else owner


def _places(change: LockChange) -> list[Queue]:
    return [(change.group, queue.topic, queue.queue_id) for queue in change.queues]


def _places_in(change: dict[str, Any]) -> list[Queue]:
    return [(change["group"], queue["topic"], queue["queueId"]) for queue in change["queues"]]


def _leases_of(one: QueueLockTable) -> dict[Queue, tuple[str, int]]:
    return {place: (lease.client_id, lease.until_ms) for place, lease in one._leases.items()}
