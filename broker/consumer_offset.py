"""Consumer offsets: what groups have consumed, in two layers.

``applied`` is the state machine: values that came out of the replicated log, equal on all replicas
and the only ones that are saved. ``pending`` is what the leader accepted and has not yet seen
applied; it answers queries at once and is proposed coalesced, once a second. A leader that steps
down drops ``pending``: the group then reads again what it had acknowledged within that second, and
nothing is skipped.
Source: protocol.md 3.7 (14, 15), 5.6; architecture.md 5; RocketMQ ConsumerOffsetManager.
"""

from __future__ import annotations

import msgspec

from broker.limits import OFFSETS_MAX
from remoting.protocol.bodies import decode_body
from remoting.protocol.errors import InvalidHeader

OFFSET_MAX = 2**63 - 1
#: Largest number of offsets put into one log entry; about 60 bytes each.
PROPOSAL_OFFSETS_MAX = 4_096

#: topic@group -> queue id -> offset.
OffsetMap = dict[str, dict[int, int]]


class _Snapshot(msgspec.Struct, rename="camel"):
    offset_table: OffsetMap


class ConsumerOffsetTable:
    """Offsets of all groups. One per broker, touched only from the loop's thread."""

    def __init__(self) -> None:
        self._applied: OffsetMap = {}
        self._pending: OffsetMap = {}
        #: Pending offsets not yet in a proposal.
        self._dirty: dict[tuple[str, int], int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def has_pending(self) -> bool:
        """Whether anything accepted is not yet replicated."""
        return bool(self._pending)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Take a committed offset, a smaller one too, as RocketMQ does.

        Returns False if the table is full.

        Raises:
            InvalidHeader: no int64.
        """
        if not -OFFSET_MAX <= offset <= OFFSET_MAX:
            raise InvalidHeader(f"offset {offset} is no int64")
        key = topic + "@" + group
        queues = self._pending.get(key)
        if queues is None:
            if self._count + len(self._dirty) >= OFFSETS_MAX:
                return False
            queues = self._pending[key] = {}
        if self._applied_offset(key, queue_id) == offset and queue_id not in queues:
            if not queues:
                del self._pending[key]
            return True
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
        return self._applied_offset(key, queue_id)

    def take_proposals(self) -> list[bytes]:
        """Return what is to be replicated now, as payloads of bounded size."""
        payloads: list[bytes] = []
        items = list(self._dirty.items())
        self._dirty.clear()
        for start in range(0, len(items), PROPOSAL_OFFSETS_MAX):
            table: OffsetMap = {}
            for (key, queue_id), offset in items[start : start + PROPOSAL_OFFSETS_MAX]:
                table.setdefault(key, {})[queue_id] = offset
            payloads.append(msgspec.json.encode(table))
        return payloads

    def give_back(self, payload: bytes) -> None:
        """Make the offsets of a refused proposal due again, unless newer ones came."""
        for key, queues in msgspec.json.decode(payload, type=OffsetMap).items():
            pending = self._pending.get(key, {})
            for queue_id, offset in queues.items():
                if pending.get(queue_id) == offset:
                    self._dirty.setdefault((key, queue_id), offset)

    def apply(self, payload: bytes) -> None:
        """Apply replicated offsets."""
        for key, queues in msgspec.json.decode(payload, type=OffsetMap).items():
            applied = self._applied.setdefault(key, {})
            before = len(applied)
            applied.update(queues)
            self._count += len(applied) - before
            pending = self._pending.get(key)
            if pending is None:
                continue
            for queue_id, offset in queues.items():
                if pending.get(queue_id) == offset:
                    del pending[queue_id]
                    self._dirty.pop((key, queue_id), None)
            if not pending:
                del self._pending[key]

    def drop_pending(self) -> None:
        """Forget what is not replicated; called when leadership is lost."""
        self._pending.clear()
        self._dirty.clear()

    def snapshot(self) -> bytes:
        """Return the applied offsets as config/consumerOffset.json."""
        return msgspec.json.format(msgspec.json.encode(_Snapshot(self._applied)), indent=8)

    def restore(self, data: bytes) -> None:
        """Replace the table by a snapshot.

        Raises:
            RemoteProtocolError: the data is not a snapshot.
        """
        self._applied = decode_body(data, _Snapshot).offset_table
        self._count = sum(len(queues) for queues in self._applied.values())

    def _applied_offset(self, key: str, queue_id: int) -> int | None:
        queues = self._applied.get(key)
        return None if queues is None else queues.get(queue_id)
