"""Consumer offsets: what groups have consumed, in two layers.

``applied`` is the state machine: values that came out of the replicated log, equal on all replicas
and the only ones that are saved. ``pending`` is what the leader accepted and has not yet seen
applied; it answers queries at once and is proposed coalesced, once a second. A leader that steps
down drops ``pending``: the group then reads again what it had acknowledged within that second, and
nothing is skipped.

The table is bounded in bytes (`FairShare`); only what a leader accepts is refused, never what the
log says. Names and queue ids are judged by whoever calls `commit`.
Source: spec/wire.md 3.7 (14, 15); spec/disk.md 5.6; docs/adr/0002; RocketMQ ConsumerOffsetManager.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from broker.fair_share import FairShare
from broker.limits import OFFSETS_BYTES_MAX, STATE_ENTRY_BYTES_MAX
from broker.state.kinds import StateKind
from broker.state.table import LargeTable
from broker.table_text import documents_of, text_in_steps
from ledgermq.remoting.protocol.bodies import decode_file
from ledgermq.remoting.protocol.errors import InvalidHeader
from ledgermq.remoting.protocol.limits import Int64

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from broker.state.table import Exchange, Gauge, Text

#: Under this name RocketMQ's check of transactions keeps how far it has come: the broker believes
#: what it finds of it in a store that RocketMQ wrote, so that no client may say it.
TRANSACTION_CHECK_GROUP = "CID_RMQ_SYS_TRANS"
OFFSET_MIN = -(2**63)
OFFSET_MAX = 2**63 - 1
#: What an encoder writes; earlier versions kept offsets of queue ids that are none.
QUEUE_ID_END = 2**64
#: What one key and one offset take in a log entry, at most and besides the names.
_KEY_BYTES = 8
_OFFSET_BYTES = 36
#: What a queue id takes in a removal, at most, and so does what stands around it.
_QUEUE_ID_BYTES = 22
_AROUND_BYTES = 64
#: What an offset takes in the snapshot besides the names, with its line's indent.
_ROOM_BYTES = 64

#: topic@group -> queue id -> offset.
OffsetMap = dict[str, dict[int, int]]


_Rows = dict[str, dict[int, Int64]]
"""The same in a record or a text: a number that no answer can hold is refused with all of it."""


class ForgottenOffsets(msgspec.Struct, frozen=True, rename="camel"):
    """A replicated removal: topic@group -> queue ids."""

    offsets: dict[str, list[int]]


class _Snapshot(msgspec.Struct, rename="camel"):
    offset_table: _Rows


class _Frozen:
    """What was applied when a snapshot began; alive while its text is being made."""

    __slots__ = ("__weakref__", "rows")

    def __init__(self, rows: OffsetMap) -> None:
        self.rows = rows

    def steps(self) -> Iterator[bytes]:
        """Return the parts of the text."""
        text = text_in_steps(lambda part: _Snapshot(dict(part)), self.rows.items(), weigh_offsets)
        yield from text


class ConsumerOffsetTable(LargeTable):
    """Offsets of all groups. One per broker, touched only from the loop's thread."""

    file = "consumerOffset.json"

    def __init__(self) -> None:
        self._applied: OffsetMap = {}
        #: Snapshots under way: they share the queues of a key until these change.
        self._frozen: WeakSet[_Frozen] = WeakSet()
        self._pending: OffsetMap = {}
        #: Pending offsets not yet in a proposal.
        self._dirty: dict[tuple[str, int], int] = {}
        #: What was proposed and is not applied yet, of each queue in the order of the log.
        self._proposed: dict[tuple[str, int], list[int]] = {}
        self.drops = 0
        """How often `drop_pending` was called: what was pending before is gone, not applied."""
        self.room = FairShare(OFFSETS_BYTES_MAX)

    def __len__(self) -> int:
        return sum(map(len, self._applied.values()))

    @property
    def has_pending(self) -> bool:
        """Whether anything accepted is not yet replicated."""
        return bool(self._pending)

    @property
    def has_proposals(self) -> bool:
        """Whether `take_proposals` would return any."""
        return bool(self._dirty)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take a committed offset, a smaller one too, as RocketMQ does.

        Returns False if the table has no room for another one of this group.

        Raises:
            InvalidHeader: no int64, or a group whose offsets no client has.
        """
        if group == TRANSACTION_CHECK_GROUP:
            raise InvalidHeader(f"the offsets of {group} are the broker's own")
        if not OFFSET_MIN <= offset <= OFFSET_MAX:
            raise InvalidHeader(f"offset {offset} is no int64")
        key = topic + "@" + group
        queues = self._pending.get(key)
        if queues is None or queue_id not in queues:
            applied = self.applied_offset(key, queue_id)
            if applied == offset and not self._is_followed(key, queue_id, offset):
                return True
            if applied is None:
                if not self.room.fits(group, room_of(key)):
                    return False
                self._take_room(key)
            if queues is None:
                queues = self._pending[key] = {}
        queues[queue_id] = offset
        self._dirty[(key, queue_id)] = offset
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a group in a queue, None when it never committed one."""
        key = topic + "@" + group
        queues = self._pending.get(key)
        if queues is not None:
            offset = queues.get(queue_id)
            if offset is not None:
                return offset
        return self.applied_offset(key, queue_id)

    def take_proposals(self, count_max: int | None = None) -> list[bytes]:
        """Return what is to be replicated now, as payloads of bounded size.

        ``count_max``: take no more offsets than so many, those first that have waited longest.
        """
        payloads: list[bytes] = []
        table: OffsetMap = {}
        size = 0
        items = list(islice(self._dirty.items(), count_max))
        for (key, queue_id), offset in items:
            queues = table.get(key)
            more = _OFFSET_BYTES if queues is not None else _OFFSET_BYTES + _KEY_BYTES + len(key)
            if size + more > STATE_ENTRY_BYTES_MAX:
                payloads.append(msgspec.json.encode(table))
                table, queues, size = {}, None, 0
                more = _OFFSET_BYTES + _KEY_BYTES + len(key)
            if queues is None:
                queues = table[key] = {}
            queues[queue_id] = offset
            self._proposed.setdefault((key, queue_id), []).append(offset)
            size += more
        if table:
            payloads.append(msgspec.json.encode(table))
        if len(items) == len(self._dirty):
            self._dirty.clear()
        else:
            for item, _ in items:
                del self._dirty[item]
        return payloads

    def give_back(self, payload: bytes, *, may_come: bool = False) -> None:
        """Make the offsets of a proposal due again, unless newer ones came.

        ``may_come``: it was not refused, and is in the log still.
        """
        for key, queues in msgspec.json.decode(payload, type=OffsetMap).items():
            pending = self._pending.get(key, {})
            for queue_id, offset in queues.items():
                if not may_come:
                    self._take_back(key, queue_id, offset)
                if pending.get(queue_id) == offset:
                    self._dirty.setdefault((key, queue_id), offset)

    def appliers(self) -> Mapping[str, Callable[[bytes], object]]:
        """See `ReplicatedTable`."""
        return {StateKind.OFFSET: self.apply, StateKind.FORGET_OFFSETS: self.apply_forget}

    def gauges(self) -> Iterable[Gauge]:
        """See `ReplicatedTable`."""
        yield OFFSETS_BYTES_MAX, lambda: self.room.used

    def apply(self, payload: bytes) -> None:
        """Apply replicated offsets."""
        rows = msgspec.json.decode(payload, type=_Rows)
        for queues in rows.values():
            if queues and not OFFSET_MIN <= min(queues) <= max(queues) < QUEUE_ID_END:
                raise ValueError("a queue id that no text can hold")
        for key, queues in rows.items():
            applied = self._own(key)
            pending = self._pending.get(key, {})
            for queue_id, offset in queues.items():
                if queue_id not in applied and queue_id not in pending:
                    self._take_room(key)
                applied[queue_id] = offset
                self._pass(key, queue_id, offset)
                if pending.get(queue_id) == offset and not self._is_followed(key, queue_id, offset):
                    del pending[queue_id]
                    self._dirty.pop((key, queue_id), None)
            if not pending:
                self._pending.pop(key, None)

    def apply_forget(self, payload: bytes) -> None:
        """Apply a replicated removal; what the leader has accepted since then stays pending."""
        for key, queue_ids in msgspec.json.decode(payload, type=ForgottenOffsets).offsets.items():
            applied = self._own(key) if key in self._applied else {}
            pending = self._pending.get(key, {})
            for queue_id in queue_ids:
                if applied.pop(queue_id, None) is not None and queue_id not in pending:
                    self._give_room(key)
            if not applied:
                self._applied.pop(key, None)

    def drop_pending(self) -> None:
        """Forget offsets that are not replicated; called when leadership is lost."""
        for key, queues in self._pending.items():
            applied = self._applied.get(key, {})
            for queue_id in queues:
                if queue_id not in applied:
                    self._give_room(key)
        self._pending.clear()
        self._dirty.clear()
        self._proposed.clear()
        self.drops += 1

    def withdraw(self, group: str) -> dict[str, list[int]]:
        """Forget what a group has committed and is not applied.

        Returns the queue ids by key of what is proposed, and will be applied unless it is refused:
        then it is not put again.
        """
        for key, queue_id in [one for one in self._dirty if _group_of(one[0]) == group]:
            self.drop(key, queue_id)
        found: dict[str, list[int]] = {}
        for key, queue_id in self._proposed:
            if _group_of(key) == group:
                found.setdefault(key, []).append(queue_id)
                self.drop(key, queue_id)
        return found

    def applied(self) -> Iterator[tuple[str, list[int]]]:
        """Walk over keys and queue ids of what is applied; survives changes meanwhile."""
        for key in list(self._applied):
            yield key, list(self._applied.get(key, ()))

    def applied_keys(self) -> frozenset[str]:
        """Return the keys of what is applied."""
        return frozenset(self._applied)

    def readers(self) -> Iterator[tuple[str, str]]:
        """Walk over topic and group of all that is kept or accepted; survives changes meanwhile."""
        for key in self._keys():
            topic, _, group = key.rpartition("@")
            yield topic, group

    def snapshot_steps(self) -> Iterator[bytes]:
        """Return the parts of config/consumerOffset.json as it is now."""
        frozen = _Frozen(self._applied.copy())
        self._frozen.add(frozen)
        return frozen.steps()

    def restore_steps(self, data: Text) -> Generator[None, None, Exchange]:
        """See `ReplicatedTable`."""
        applied: OffsetMap = {}
        room = FairShare(OFFSETS_BYTES_MAX)
        for number, document in enumerate(documents_of(data)):
            if number:
                yield
            for key, queues in decode_file(document, _Snapshot).offset_table.items():
                former = applied.get(key)
                applied[key] = queues
                more = len(queues) - (len(former) if former is not None else 0)
                room.take(_group_of(key), more * room_of(key))
        return partial(self._replace, applied, room)

    def _replace(self, applied: OffsetMap, room: FairShare) -> OffsetMap:
        former, self._applied, self.room = self._applied, applied, room
        for key, queues in self._pending.items():
            for queue_id in queues:
                if self.applied_offset(key, queue_id) is None:
                    self._take_room(key)
        return former

    def _is_followed(self, key: str, queue_id: int, offset: int) -> bool:
        """Tell whether the log is to say something else of a queue than it has said last."""
        return any(one != offset for one in self._proposed.get((key, queue_id), ()))

    def _pass(self, key: str, queue_id: int, offset: int) -> None:
        """Forget a proposal that is applied, and what was proposed before it."""
        proposed = self._proposed.get((key, queue_id))
        if proposed is not None and offset in proposed:
            del proposed[: proposed.index(offset) + 1]
            if not proposed:
                del self._proposed[key, queue_id]

    def _take_back(self, key: str, queue_id: int, offset: int) -> None:
        """Forget a proposal that was refused."""
        proposed = self._proposed.get((key, queue_id), [])
        if offset in proposed:
            proposed.remove(offset)
            if not proposed:
                del self._proposed[key, queue_id]

    def _own(self, key: str) -> dict[int, int]:
        """Return the applied offsets of a key, to be changed: not those of a snapshot's rows."""
        queues = self._applied.get(key)
        if queues is None:
            queues = self._applied[key] = {}
        elif any(frozen.rows.get(key) is queues for frozen in self._frozen):
            queues = self._applied[key] = queues.copy()
        return queues

    def _take_room(self, key: str) -> None:
        self.room.take(_group_of(key), room_of(key))

    def _give_room(self, key: str) -> None:
        self.room.take(_group_of(key), -room_of(key))

    def applied_offset(self, key: str, queue_id: int) -> int | None:
        """Return what was applied last under ``topic@group``."""
        queues = self._applied.get(key)
        return None if queues is None else queues.get(queue_id)

    def pending_offset(self, key: str, queue_id: int) -> int | None:
        """Return what was accepted under ``topic@group`` and is not applied yet."""
        return self._pending.get(key, {}).get(queue_id)

    def drop(self, key: str, queue_id: int) -> None:
        """Forget what was accepted and is not applied."""
        pending = self._pending.get(key, {})
        if pending.pop(queue_id, None) is None:
            return
        self._dirty.pop((key, queue_id), None)
        if self.applied_offset(key, queue_id) is None:
            self._give_room(key)
        if not pending:
            del self._pending[key]

    def _keys(self) -> list[str]:
        """Return all keys, in the order in which they came: files and answers have that one."""
        return [*self._applied, *(key for key in self._pending if key not in self._applied)]

    def rows(self, first: int = 0) -> Iterator[tuple[str, dict[int, int]]]:
        """Walk over the keys and all that is known under them; survives changes meanwhile."""
        for key in islice(self._keys(), first, None):
            yield key, {**self._applied.get(key, {}), **self._pending.get(key, {})}


def weigh_offsets(row: tuple[str, dict[int, int]]) -> int:
    """Return what the offsets of a group in a topic are in work, compared with other rows."""
    return 1 + len(row[1]) // 8


def split_removal(found: Mapping[str, list[int]]) -> Iterator[bytes]:
    """Return the payloads of a removal (topic@group -> queue ids), each of bounded size."""
    part: dict[str, list[int]] = {}
    whole = room = STATE_ENTRY_BYTES_MAX - _AROUND_BYTES
    ids_max = (room - _AROUND_BYTES) // _QUEUE_ID_BYTES // 2
    for key, queue_ids in found.items():
        for first in range(0, len(queue_ids), ids_max):
            ids = queue_ids[first : first + ids_max]
            more = len(msgspec.json.encode(key)) + _QUEUE_ID_BYTES * (len(ids) + 1)
            if part and (more > room or key in part):
                yield msgspec.json.encode(ForgottenOffsets(part))
                part, room = {}, whole
            part[key] = ids
            room -= more
    if part:
        yield msgspec.json.encode(ForgottenOffsets(part))


def _group_of(key: str) -> str:
    return key.rpartition("@")[2]


def room_of(key: str) -> int:
    """Return what one offset under a key ``topic@group`` takes."""
    return _ROOM_BYTES + len(key)
