"""What replicas make of the committed log: A33 (nothing applied is taken back) and A39.

A39: a consume queue holds exactly the committed messages of its queue that the log still has, in
the order of the log. Where it begins and ends is counted in the log.
Source: spec/proof.md 3.6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from dledger.core.model import LEADER
from sim.oracles.base import Violation
from sim.oracles.delays import DELAYS_MS, SCHEDULE_TOPIC
from sim.oracles.records import properties_of, tags_code
from sim.oracles.replica import HEADER_BYTES
from store.layout import UNIT
from store.queues.consume_queue import DamagedUnits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.history.segment import EntryRow
    from sim.oracles.replica import Change, Replica
    from sim.oracles.truth import Truth
    from store.queues.consume_queue import ConsumeQueue

KEYS_STEP: Final = 4
"""The oracle asks each replica for every fourth message of a queue by its key."""
BEGIN_TICKS: Final = 20
"""How long queues may begin before the log after its beginning has been dropped."""
NEVER: Final = 1 << 62
ALL_TIMES: Final = (0, (1 << 63) - 1)
_entry_index: Final = attrgetter("entry_index")
_place: Final = Struct(">i4xq").unpack_from
"""Queue id and queue offset of a record, from byte 12 on."""


class Monotonic:
    """A33: within a life, commit and applied index never fall.

    A follower that took a peer's snapshot for the damaged beginning of its log applies anew what
    follows, as after a restart.
    """

    name = "A33 applied regress"

    def __init__(self) -> None:
        self._bases: dict[str, int] = {}
        """By replica, where its log began at the last look."""

    def on_boot(self, replica: Replica) -> None:
        """A new life may begin below where the last one ended."""
        self._bases[replica.name] = replica.base

    def on_change(self, replica: Replica, change: Change) -> None:
        """Compare with the last look."""
        _, _, _, _, _, applied, told = change.before
        now = change.now
        base = self._bases.get(replica.name, replica.base)
        self._bases[replica.name] = replica.base
        begins_anew = now[0] is not LEADER and replica.base > base
        if now[6] < told or (now[5] < applied and not begins_anew):
            raise Violation(
                self.name,
                f"{replica.name}: applied went from {applied} to {now[5]}, told commit from {told} "
                f"to {now[6]}",
                node=replica.name,
            )


class Applied:
    """A39: consume queues and tables are what the committed log says."""

    name = "A39 applied differs from the log"
    begin_name = "A39 beginning of a queue"
    forgotten_name = "A39 queue whose messages are gone is forgotten"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.delays_ms = DELAYS_MS
        """How long messages wait in each queue of the schedule topic; units say until when."""
        self._seen: dict[str, int] = {}
        self._highest: dict[str, int] = {}
        """By replica, the last entry applied in any of its lives."""
        self._begun: dict[str, tuple[int, int]] = {}
        """By replica, where its log begins, and at which tick its queues do so, too."""

    def on_boot(self, replica: Replica) -> None:
        """Look at everything again."""
        self._seen[replica.name] = -1
        self._begun[replica.name] = (-1, NEVER)

    def on_change(self, replica: Replica, change: Change) -> None:
        """Check what was applied since the last look."""
        applied = change.now[5]
        seen = self._seen[replica.name]
        base, looked = self._begun[replica.name]
        if base != replica.base:
            self._begun[replica.name] = (replica.base, replica.state.tick + BEGIN_TICKS)
            self._check_begins(replica, is_late=False)
        elif looked <= replica.state.tick:
            self._begun[replica.name] = (base, NEVER)
            self._check_begins(replica, is_late=True)
        if applied <= seen:
            return
        truth = self._truth
        if applied > truth.commit_index:
            raise Violation(
                self.name,
                f"{replica.name} applied {applied}, only {truth.commit_index} is committed",
                node=replica.name,
            )
        self._check_units(replica, seen + 1, applied)
        self._seen[replica.name] = applied
        self._highest[replica.name] = max(applied, self._highest.get(replica.name, -1))

    def _check_begins(self, replica: Replica, *, is_late: bool) -> None:
        """Queues begin with the first message that the log still has, or before, for a moment."""
        by_name = replica.controller.store._queues.by_name
        for (topic, queue_id), begin in begins(self._truth, replica.base).items():
            queue = by_name.get((topic, queue_id))
            if queue is None and is_late and begin:
                self._check_forgotten(replica, topic, queue_id, begin)
            if queue is None or replica.is_corrupt:
                continue
            if queue.min_offset > begin or (is_late and queue.min_offset < begin):
                raise Violation(
                    self.begin_name,
                    f"{replica.name}: {topic}/{queue_id} begins at {queue.min_offset}, the log "
                    f"begins with entry {replica.base} and so the queue at {begin}",
                    node=replica.name,
                )

    def _check_forgotten(self, replica: Replica, topic: str, queue_id: int, begin: int) -> None:
        """A queue all of whose messages were dropped is there, or offsets are given out twice."""
        truth = self._truth
        if replica.disk.damages or topic not in replica.controller.tables.topics.configs():
            return
        if truth.queues[topic, queue_id][begin - 1].entry_index <= replica.applied_index:
            raise Violation(
                self.forgotten_name,
                f"{replica.name}: {topic}/{queue_id} had {begin} messages before entry "
                f"{replica.base}, with which the log begins, and there is no such queue",
                node=replica.name,
            )

    def _check_units(self, replica: Replica, first: int, last: int) -> None:
        truth = self._truth
        by_name = replica.controller.store._queues.by_name
        ends: dict[ConsumeQueue, int] = {}
        for index in range(max(first, replica.base), last + 1):
            mark = truth.committed[index]
            row = truth.rows.get((index, mark.term))
            if row is None or row.type != "message":
                continue
            assert row.topic is not None
            assert row.queue_id is not None
            assert row.queue_offset is not None
            queue = by_name.get((row.topic, row.queue_id))
            found = None
            if queue is not None:
                try:
                    found = _unit_at(queue, row.queue_offset)
                except DamagedUnits as error:
                    self._check_damage(replica, error)
                    continue  # the broker repairs it when it reads it itself
                ends[queue] = row.queue_offset + 1
            expected = (mark.position + HEADER_BYTES, row.size)
            tags = tags_code(truth.tags.get((index, mark.term), ""))
            if row.topic == SCHEDULE_TOPIC:
                tags = truth.times[index, mark.term] + self.delays_ms[row.queue_id]
            if found is None or found != (*expected, tags):
                raise Violation(
                    self.name,
                    f"{replica.name}: {row.topic}/{row.queue_id}@{row.queue_offset} of entry "
                    f"{index} is {found} in the consume queue, expected {expected}",
                    node=replica.name,
                    index=index,
                )
        self._check_ends(replica, ends, last)

    def _check_damage(self, replica: Replica, error: DamagedUnits) -> None:
        """Units are damaged only where a fault has changed what lies on the disk."""
        if not replica.disk.damages:
            text = f"{replica.name} finds damage that no fault has done: {error}"
            raise Violation(self.name, text, node=replica.name) from error

    def _check_ends(self, replica: Replica, ends: dict[ConsumeQueue, int], last: int) -> None:
        """No queue ends before what is applied up to ``last``, or behind what any life applied."""
        truth = self._truth
        highest = self._highest.get(replica.name, -1)
        for queue, end in ends.items():
            # A recovered queue may hold what was applied before; the log is then applied anew.
            known = bisect_right(
                truth.queues[queue.topic, queue.queue_id], max(last, highest), key=_entry_index
            )
            if not end <= queue.max_offset <= known:
                raise Violation(
                    self.name,
                    f"{replica.name}: {queue.topic}/{queue.queue_id} ends at {queue.max_offset}, "
                    f"the log up to entry {last} makes it end at {end}",
                    node=replica.name,
                )


def _unit_at(queue: ConsumeQueue, offset: int) -> tuple[int, ...] | None:
    """Return a unit of a queue, None where there is none. Errors: `DamagedUnits`."""
    if not queue.min_offset <= offset < queue.max_offset:
        return None
    return UNIT.unpack(queue.read(offset, 1))


def begins(truth: Truth, first_index: int) -> dict[tuple[str, int], int]:
    """Return where each queue begins in a log that begins with an entry."""
    return {
        place: bisect_left(rows, first_index, key=_entry_index)
        for place, rows in truth.queues.items()
    }


def ends_at(
    truth: Truth, replica: Replica, index: int, term: int
) -> Iterator[tuple[str, int, int]]:
    """Return topic, queue id and end of each queue as a committed entry leaves them.

    Of those whose last message until then the replica's log still has.
    """
    if not 0 <= index <= truth.commit_index or truth.committed[index].term != term:
        return
    if replica.disk.damages:
        return  # who has repaired what a fault took of a queue may not have all of it yet
    by_name = replica.controller.store._queues.by_name
    for (topic, queue_id), rows in truth.queues.items():
        end = bisect_right(rows, index, key=_entry_index)
        if end and rows[end - 1].entry_index >= replica.base and (topic, queue_id) in by_name:
            yield topic, queue_id, end


def check_keys(truth: Truth, replica: Replica) -> None:
    """Ask a replica for messages by key that it has dispatched. Errors: `Violation`."""
    store = replica.controller.store
    if replica.is_corrupt or store._index is None:
        return
    # A removed member that starts again knows nothing to be committed but what its checkpoint says.
    readable = min(replica.applied_index, replica.controller.node.commit_index)
    for (topic, queue_id), rows in truth.queues.items():
        queue = store._queues.by_name.get((topic, queue_id))
        if queue is None:
            continue
        first = bisect_left(rows, replica.base, key=_entry_index)
        for number, row in enumerate(rows[first::KEYS_STEP]):
            if row.msg_key is None or row.entry_index > readable:
                continue
            for key in (str(row.msg_key), *([] if number else _ids_of(replica, row))):
                found = store.reader.messages_of_key(topic, key, 64, ALL_TIMES).records
                places = [_place(record, 12) for record in found]
                if (queue_id, row.queue_offset) not in places and _has_key(replica, row, key):
                    raise Violation(
                        "A39 key index",
                        f"{replica.name}: {topic}/{queue_id}@{row.queue_offset} of entry "
                        f"{row.entry_index} is not found by its key {key}",
                        node=replica.name,
                        index=row.entry_index,
                    )


def _ids_of(replica: Replica, row: EntryRow) -> list[str]:
    """Return the unique id of a message: its key comes first into the file of an index."""
    properties = _properties(replica, row)
    return [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []


def _has_key(replica: Replica, row: EntryRow, key: str) -> bool:
    """Tell whether a message has a key; one that a client has garbled has that of its body only."""
    properties = _properties(replica, row)
    return not properties or key in {
        *properties.get("KEYS", "").split(),
        properties.get("UNIQ_KEY"),
    }


def _properties(replica: Replica, row: EntryRow) -> dict[str, str]:
    mark = replica.mark(row.entry_index)
    return {} if mark is None else properties_of(replica.entry_bytes(mark))
