"""Dispatch: committed entries, in log order, become consume queue units and applied state.

On a leader the entries are its own: what the unit needs is still in memory, and the entry is
dispatched in the same step that answers its sender. A follower has it from the leader, in notes
(`store.write.notes`). Everywhere else (restart, rebuild, spans that were sent again), and where a
note is not what is expected here, records are read back from the log. A bounded number in one turn
of the loop. Nobody waits for a follower's queues: it lets entries come together, until there are
many, or until the next tick of the store, and whoever becomes leader catches up first.

A unit's place is the queue offset that its record states. A queue that already reaches beyond it
has the unit, so that dispatching an entry again changes nothing and a restart may begin anywhere
at or below the first entry that is missing.
Source: spec/disk.md 5.2 (reput), 5.3; RocketMQ ReputMessageService, ConsumeQueue.
"""

import logging
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from dledger.codec.index import UNIT as LOG_UNIT
from dledger.errors import RottenEntry
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.dispatch.quarantine import Quarantine
from store.dispatch.read_back import NO_MESSAGE, light_part, read_back
from store.dispatch.sample import agrees, claim_about
from store.layout import (
    FLAG_NOT_INDEXED,
    KIND_NOOP,
    KIND_RAFT_CONFIG,
    STATE_TOPIC_BYTES,
    UNIT,
    delivery_code,
    record_body,
    record_is_sound,
    state_kind,
    tags_code,
)
from store.results import PutStatus
from store.write.notes import ALIKE, LOOKED_INTO, Note, Run, maybe_read_note, rows_of
from store.write.uncommitted import OwnBatch, OwnMessage

if TYPE_CHECKING:
    from dledger.storage.recent import Noted
    from store.config import StoreConfig
    from store.dispatch.read_back import ReadBack
    from store.layout import Keyed, Row
    from store.ports import KeySink, LogNode, StoreListener
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues
    from store.write.uncommitted import Uncommitted

_KINDS_OF_THE_LOG: Final = frozenset({KIND_NOOP, KIND_RAFT_CONFIG})

Places = list[tuple[int, int]]
"""``(physical offset, size)`` of records."""
TOGETHER_BYTES_MAX: Final = 512 * 1024
"""So many bytes of committed entries a follower lets come together before it dispatches them: less
than what the log keeps in memory of what it wrote last."""
FEW_ENTRIES: Final = 16
"""Fewer are not weighed."""
_NO_QUEUES: "Final[dict[int, ConsumeQueue]]" = {}
_log = logging.getLogger(__name__)
_pack_unit = UNIT.pack


class Dispatcher:
    """Carries committed entries into the queues and to the listener."""

    def __init__(
        self,
        config: "StoreConfig",
        node: "LogNode",
        queues: "ConsumeQueues",
        uncommitted: "Uncommitted",
        listener: "StoreListener",
    ) -> None:
        self._node = node
        self._queues = queues
        self._uncommitted = uncommitted
        self._listener = listener
        self._batch = config.dispatch_batch
        self._together_max = config.follower_batch
        self._unwritten_max = config.unflushed_units_max
        self._flush_max = config.flush_queues_max
        self._delays_ms = config.delay_levels_ms
        self._header_bytes = node.header_bytes
        self.keys: KeySink | None = None
        """The index of keys, if there is one."""
        self._rows: list[Row] = []
        """Those that it was not told of yet: never any between two turns."""
        self.applied_index = -1
        """Last entry dispatched."""
        self._applied_position = -1
        self.state_applied_index = -1
        """State records up to here are in the listener's snapshot already."""
        self._is_over = False
        """Whether enough was done in this turn."""
        self._is_waiting = False
        """Whether an entry is damaged and dispatch stands before it."""
        self.applied_term = 0
        """Term of the last entry read back; 0 before the first."""
        self.quarantine = Quarantine(node, queues)
        """Entries that hold no message."""
        self._taken_over: set[ConsumeQueue] = set()
        """Queues with units of an earlier process, behind which nothing was dispatched yet."""
        self._queues_end: int | None = None

    @property
    def applied(self) -> tuple[int, int]:
        """Index and position of the last entry dispatched; position -1: not known."""
        return self.applied_index, self._applied_position

    def begin(self, applied_index: int, position: int, queues_end: int | None = None) -> None:
        """Begin behind the entry ``applied_index``; its position is -1 where it is not known.

        ``queues_end``: no unit of a queue is of a message behind it; None: not known.
        """
        self.applied_index = applied_index
        self._applied_position = position
        self._queues_end = queues_end
        if not self._node.counts_entries:
            queues = self._queues.by_key.values()
            self._taken_over = {one for one in queues if one.max_offset > one.min_offset}

    def restart(self, applied_index: int, state_applied_index: int) -> None:
        """Go on behind ``applied_index``: a snapshot brought all that was dispatched before."""
        self._queues.touched.clear()
        self._rows.clear()
        self.begin(applied_index, -1)
        self.state_applied_index = state_applied_index
        self.applied_term = 0

    def may_wait(self, commit_index: int) -> bool:
        """Tell whether nobody waits for what is committed, and it is not much yet.

        A follower answers nobody: it dispatches many entries at once, or what has come at a tick.
        """
        behind, node = commit_index - self.applied_index, self._node
        if behind >= self._together_max or node.is_leader or self._uncommitted:
            return False
        if behind < FEW_ENTRIES:
            return True
        position = self._applied_position
        return position >= 0 and node.committed_position - position < TOGETHER_BYTES_MAX

    def run(self, commit_index: int) -> bool:
        """Dispatch up to ``commit_index``, within the bounds of one turn.

        Own entries up to ``commit_index`` are answered in any case. Returns whether there is more
        to do now; with the disk full there is not.
        """
        budget = self._batch
        self._is_over = False
        while self.applied_index < commit_index and budget > 0 and self._has_room():
            first = self._node.following(self.applied_index)
            own = self._uncommitted.start
            if own == first:
                self._dispatch_own(first, commit_index)
                continue
            last = commit_index if own is None else min(commit_index, own - 1)
            try:
                budget -= self._dispatch_next(first, last, budget)
            except RottenEntry as error:
                self._wait_for_repair(error)
                break
        else:
            self._is_waiting = False
        if self._rows and self.keys is not None:
            rows, self._rows = self._rows, []
            self.keys.put_rows(rows)
        self._node.release(self.applied_index + 1)
        self._notify()
        if self.applied_index < commit_index:
            self._uncommitted.acknowledge(commit_index)
            return self._queues.has_space and not self._is_waiting and self._keys_have_room()
        return False

    def _wait_for_repair(self, error: RottenEntry) -> None:
        """Go no further: the log fetches the entry from a peer, and the store tries again.

        Errors: `FatalError` when there is no peer.
        """
        if not self._node.counts_entries:
            message = f"{error}; no replica has it: restore the file from a copy"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        if not self._is_waiting:
            _log.warning("event=dispatch_waits index=%d reason=%s", error.index, error)
        self._is_waiting = True

    def _has_room(self) -> bool:
        """Whether units may be added; when too many are unwritten, the oldest are written first."""
        queues = self._queues
        while queues.unwritten_units >= self._unwritten_max:
            if not queues.flush(self._flush_max):
                return queues.unwritten_units < self._unwritten_max
        return self._keys_have_room() and not self._is_over

    def _keys_have_room(self) -> bool:
        keys = self.keys
        return keys is None or keys.has_room or keys.flush()

    def _dispatch_own(self, following: int, commit_index: int) -> None:
        """Dispatch own entries from memory; their senders are answered meanwhile."""
        take, header_bytes = self._queues.take, self._header_bytes
        for own in self._uncommitted.commit(following, commit_index):
            physical = own.physical
            if isinstance(own, OwnMessage):
                queue = own.queue
                if queue is not None:
                    assert queue.max_offset == own.queue_offset, (queue.topic, own)
                    take(queue, _pack_unit(physical, own.size, own.code), 1)
                self._rows += own.rows
            elif isinstance(own, OwnBatch):
                queue = own.queue
                assert queue.max_offset == own.queue_offset, (queue.topic, own)
                take(queue, own.units, len(own.indexes))
                self._rows += own.rows
                physical = own.physicals[-1]
            else:
                self._listener.apply_state(own.index, own.kind, own.payload)
            self.applied_index = own.last_index
            self._applied_position = physical - header_bytes

    def _dispatch_next(self, first: int, last: int, limit: int) -> int:
        """Dispatch entries from ``first`` on that are not waited for here; return how many.

        Errors: as `_dispatch_log`.
        """
        noted = self._node.maybe_noted(first)
        if noted is not None and noted.first_index <= last:
            if noted.first_index == first and noted.last_index <= last:
                return self._dispatch_noted(noted, limit)
            # A note is about a whole span: one that is cut by either end is looked into.
            is_before = first < noted.first_index
            last = min(last, noted.first_index - 1 if is_before else noted.last_index)
        return self._dispatch_log(first, last, limit)

    def _dispatch_noted(self, noted: "Noted", limit: int) -> int:
        """Dispatch a span by its note; return how many entries.

        From where the note does not fit on what is here, at most ``limit`` entries are looked into.
        """
        first, last = noted.first_index, noted.last_index
        begin = first
        note = maybe_read_note(noted.note)
        if note is not None and not (note.has_keys or self.keys is None):
            note = None
        if note is not None and not self._bears_out(noted, note):
            _log.warning("event=dispatch_hint_refused first=%d last=%d", first, last)
            note = None
        if note is not None:
            queues = self._queues_of(note)
            header, units = self._header_bytes, LOG_UNIT.iter_unpack(noted.units)
            for run in note.runs:
                places = [
                    (position + header, size - header)
                    for _, position, size, _, _ in islice(units, run.entries)
                ]
                if run.kind == LOOKED_INTO:
                    done = self._dispatch_log(begin, begin + run.entries - 1, limit)
                    limit -= done
                    queues = self._queues_of(note)  # what was applied may have changed them
                elif run.kind == ALIKE:
                    done = self._dispatch_alike(run, queues[run.queue], places)
                else:
                    done = self._dispatch_each(run, queues, places)
                begin += done
                if done < run.entries or limit <= 0:
                    break
        if begin <= last and limit > 0:
            begin += self._dispatch_log(begin, last, limit)
        self.applied_term = noted.term
        return begin - first

    def _bears_out(self, noted: "Noted", note: Note) -> bool:
        """Tell whether one entry of the span, another in each, is what its note says of it."""
        number = noted.first_index % (noted.last_index + 1 - noted.first_index)
        claim, index = claim_about(note, number), noted.first_index + number
        if claim is None:
            return True
        found: list[ReadBack] = []
        with suppress(RottenEntry):
            read_back(self._node.bodies(index, index, 1), found)
        return not found or agrees(note, claim, found[0], self.keys)

    def _queues_of(self, note: Note) -> "list[ConsumeQueue | None]":
        by_topic = self._queues.by_topic
        return [by_topic.get(topic, _NO_QUEUES).get(queue_id) for topic, queue_id in note.queues]

    def _dispatch_alike(self, run: Run, queue: "ConsumeQueue | None", places: "Places") -> int:
        """Dispatch a run of one queue; return its length, or 0 if the queue does not expect it."""
        if queue is None or queue.max_offset != run.queue_offset or queue.is_schedule:
            return 0
        code = run.code
        units = b"".join([_pack_unit(physical, size, code) for physical, size in places])
        self._queues.take(queue, units, run.entries)
        self._end_run(run, places)
        return run.entries

    def _dispatch_each(
        self, run: Run, queues: "list[ConsumeQueue | None]", places: "Places"
    ) -> int:
        """Dispatch a run of several queues; return how far they expect it."""
        take = self._queues.take
        done = 0
        for number, offset, code, (physical, size) in zip(
            run.queues, run.queue_offsets, run.codes, places, strict=True
        ):
            queue = queues[number]
            if queue is None or queue.max_offset != offset or queue.is_schedule:
                break
            take(queue, _pack_unit(physical, size, code), 1)
            done += 1
        self._end_run(run, places[:done])
        return done

    def _end_run(self, run: Run, places: "Places") -> None:
        """Note that messages were put into their queues: the first of a run, or all."""
        if places:
            self.applied_index += len(places)
            self._applied_position = places[-1][0] - self._header_bytes
            if self.keys is not None and run.hashes:
                self._rows += rows_of(run, [physical for physical, _ in places])

    def _dispatch_log(self, first: int, last: int, limit: int) -> int:
        """Read entries back from the log and dispatch them; return how many.

        Errors: `RottenEntry`, what comes before it is dispatched; `FatalError` if a queue lacks
        what comes before.
        """
        found: list[ReadBack] = []
        try:
            read_back(self._node.bodies(first, last, limit), found)
        except RottenEntry:
            self._dispatch_records(found)
            raise
        assert found, (first, last, limit)
        if self.keys is not None and (count := light_part(found)) < len(found):
            del found[count:]
            self._is_over = True
        self._dispatch_records(found)
        self.applied_term = self._node.term_at(self.applied_index)
        return len(found)

    def _dispatch_records(self, found: "list[ReadBack]") -> None:
        """Dispatch records that were read back."""
        take, by_topic = self._queues.take, self._queues.by_topic
        keyed: list[Keyed] = []
        taken_over = self._taken_over
        for record in found:
            index, physical, size, queue_id, offset, flags, stored, topic, text, _, _ = record
            self.applied_index = index
            self._applied_position = physical - self._header_bytes
            if flags & FLAG_NOT_INDEXED:
                self._dispatch_unindexed(record, keyed)
                continue
            queue = by_topic.get(topic, _NO_QUEUES).get(queue_id)
            queue = queue or self._maybe_queue_of(topic, queue_id, record)
            if queue is None:
                continue
            keyed.append((topic, text, physical, stored, flags))
            is_known = offset < queue.max_offset
            if taken_over and not is_known and self._is_of_a_queue_before(queue, physical):
                continue
            if offset != queue.max_offset and not self._has_place(queue, record, keyed):
                continue
            tags = tags_code(text) if b"TAGS\x01" in text else 0
            if queue.is_schedule:
                tags = delivery_code(text, stored, self._delays_ms)
            take(queue, _pack_unit(physical, size, tags), 1)
        if self.keys is not None and keyed:
            self._rows += self.keys.rows_of(keyed)

    def _dispatch_unindexed(self, record: "ReadBack", keyed: "list[Keyed]") -> None:
        """Dispatch what is in no queue: replicated state, half a transaction, no message at all."""
        index, physical, size, _, _, flags, stored, topic, text, chunk, at = record
        if topic is NO_MESSAGE:
            if size:  # RocketMQ has entries without anything
                self.quarantine.add(index, physical, text.decode())
        elif topic == STATE_TOPIC_BYTES:
            self._apply_state(index, text, chunk[at : at + size])
        else:
            keyed.append((topic, text, physical, stored, flags))

    def _apply_state(self, index: int, properties: bytes, record: bytes | memoryview) -> None:
        kind = state_kind(properties)
        if index > self.state_applied_index and kind not in _KINDS_OF_THE_LOG:
            payload = record_body(record)
            if not self._node.counts_entries and not record_is_sound(record):
                where = self._node.describe(self._applied_position)
                message = f"the state record of entry {index} is damaged: {where}"
                raise FatalError(message, EXIT_ENVIRONMENT)
            self._listener.apply_state(index, kind, bytes(payload))
        own = self._uncommitted.take_state(index)
        if own is not None:
            own.end(PutStatus.OK)

    def _maybe_queue_of(
        self, topic: bytes, queue_id: int, record: "ReadBack"
    ) -> "ConsumeQueue | None":
        """Return a queue; None, and the record is quarantined, if there can be none.

        Errors: `FatalError` in a log without a group: there no CRC covers what a record says.
        """
        queue = self._queues.maybe_make(topic, queue_id)
        if queue is None:
            index, physical = record[:2]
            reason = f"topic {topic!r} queue {queue_id} cannot name a queue"
            if not self._node.counts_entries:
                message = f"entry {index}: {reason}: {self._node.describe(physical)}"
                raise FatalError(message, EXIT_ENVIRONMENT)
            self.quarantine.add(index, physical, reason)
        return queue

    def _is_of_a_queue_before(self, queue: "ConsumeQueue", physical: int) -> bool:
        """Tell whether a record is older than a queue that was begun anew with its offset.

        RocketMQ does so when a topic is deleted and made again.
        """
        end = self._queues_end
        if queue not in self._taken_over or (end is not None and physical > end):
            return False
        with suppress(RottenEntry):
            if physical < UNIT.unpack(queue.read(queue.max_offset - 1, 1))[0]:
                return True
        self._taken_over.discard(queue)
        return False

    def _has_place(self, queue: "ConsumeQueue", record: "ReadBack", keyed: "list[Keyed]") -> bool:
        """Tell whether a message belongs where its queue ends although it states another offset.

        A queue begins above 0 when the log's head was removed. Otherwise it has the message, or the
        log must show what became of the offsets before it; see `Quarantine`. Errors: as there.
        """
        node = self._node
        index, physical, _, _, offset = record[:5]
        has_place: bool | None
        if offset < queue.max_offset:
            has_place = self.quarantine.replaces(queue, index, offset, physical)
        elif queue.max_offset or (not node.counts_entries and node.first_position == 0):
            has_place = self.quarantine.skips(queue, index, offset, physical)
        else:
            self._queues.begin(queue, offset)
            return True
        if has_place is None:
            keyed.pop()
        return bool(has_place)

    def _notify(self) -> None:
        """Tell the listener once per queue that it has more messages."""
        queues = self._queues
        touched, queues.touched = queues.touched, []
        for queue in touched:
            queue.touched = False
            self._listener.on_message(queue.topic, queue.queue_id, queue.max_offset)
