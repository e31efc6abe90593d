"""Dispatch: committed entries, in log order, become consume queue units and applied state.

On a leader the entries are its own: what the unit needs is still in memory, and the entry is
dispatched in the same step that answers its sender. A follower has it from the leader, in hints
(`store.write.hints`). Everywhere else (restart, rebuild, spans that were sent again), and where a
hint is not what is expected here, records are read back from the log. A bounded number in one turn
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
from dledger.errors import DamagedEntry
from ledgermq.remoting.protocol.message import TRANSACTION_COMMIT
from store.dispatch.read_back import LONG_TEXTS_BYTES, NO_MESSAGE, light_part, read_back
from store.dispatch.sample import agrees, claim_about
from store.layout import (
    FIRST_OFFSET_MAX,
    FLAG_NOT_INDEXED,
    FLAGS_HOSTS_V6,
    KIND_NOOP,
    KIND_RAFT_CONFIG,
    LONG_TEXT_BYTES,
    STATE_TOPIC_BYTES,
    UNIT,
    delivery_code,
    record_body,
    state_kind,
    tags_code,
)
from store.origins import MARK_BYTE, PREPARED_AT, maybe_said_by, said_in_by
from store.results import PutStatus
from store.write.hints import ALIKE, LOOKED_INTO, DispatchHint, Run, maybe_decode_hint, rows_of
from store.write.uncommitted import OwnBatch, OwnCopy, OwnMessage

if TYPE_CHECKING:
    from dledger.storage.recent import HintedSpan
    from store.config import StoreConfig
    from store.dispatch.anomalies import Anomalies
    from store.dispatch.read_back import ReadBack
    from store.layout import Keyed, Row
    from store.origins import Said
    from store.ports import KeySink, LogFeed, LogParts, LogReader, StoreListener
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues
    from store.write.uncommitted import Uncommitted

_LOOKED_AT: Final = FLAGS_HOSTS_V6 | TRANSACTION_COMMIT
"""Bits of sysFlag with which a message may stand for state."""
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
        parts: "LogParts",
        queues: "ConsumeQueues",
        uncommitted: "Uncommitted",
        listener: "StoreListener",
        anomalies: "Anomalies",
    ) -> None:
        self._log: LogReader = parts.entries
        self._feed: LogFeed = parts.feed
        self._queues = queues
        self._uncommitted = uncommitted
        self._listener = listener
        self._batch = config.dispatch_batch
        self._together_max = config.follower_batch
        self._unwritten_max = config.unflushed_units_max
        self._flush_max = config.flush_queues_max
        self._delays_ms = config.delay_levels_ms
        self._header_bytes = self._log.header_bytes
        self.keys: KeySink | None = None
        """The index of keys, if there is one."""
        self._rows: list[Row] = []
        """Those that it was not told of yet: never any between two turns."""
        self.applied_end = 0
        """Where the last entry ends that was dispatched."""
        self._applied_start = -1
        self.state_end = 0
        """State records before are in the listener's snapshot already."""
        self._is_over = False
        """Whether enough was done in this turn."""
        self._is_waiting = False
        """Whether an entry is damaged and dispatch stands before it."""
        self._anomalies = anomalies
        """What becomes of entries that are not what is expected."""

    @property
    def applied(self) -> tuple[int, int]:
        """Where the last entry dispatched starts and ends; -1 for the start: not known."""
        return self._applied_start, self.applied_end

    def begin(self, start: int, end: int, queues_end: int | None = None) -> None:
        """Begin at ``end``, behind the entry that starts at ``start``, -1 where that is unknown.

        ``queues_end``: no unit of a queue is of a message from there on; None: not known.
        """
        self._applied_start, self.applied_end = start, end
        self._anomalies.begin(queues_end)

    def restart(self, position: int) -> None:
        """Go on at ``position``: a snapshot brought all that was dispatched before."""
        self._uncommitted.forget_before(position)
        self._queues.touched.clear()
        self._rows.clear()
        self.begin(-1, position)
        self.state_end = position

    def may_wait(self) -> bool:
        """Tell whether nobody waits for what is committed, and it is not much yet.

        A follower answers nobody: it dispatches many entries at once, or what has come at a tick.
        """
        if self._uncommitted:
            return False
        start, least = self._applied_start, self._together_max
        if start < 0 or self._log.committed_position - start >= TOGETHER_BYTES_MAX:
            least = min(least, FEW_ENTRIES)
        return not self._feed.next_batch(self.applied_end, 1, least)

    def run(self, committed: int) -> bool:
        """Dispatch what lies before ``committed``, within the bounds of one turn.

        Own entries of those are answered in any case. Returns whether there is more to do now;
        with the disk full there is not.
        """
        budget = self._feed.next_batch(self.applied_end, self._batch)
        self._is_over = False
        while self.applied_end < committed and budget > 0 and self._has_room():
            first, last = self.applied_end, committed
            own = self._uncommitted.start
            if own is not None and own < committed:
                if own == first or own == self._feed.following(first):
                    self._dispatch_own(own, committed)
                    continue
                last = own
            try:
                budget -= self._dispatch_next(first, last, budget)
            except DamagedEntry as error:
                self._wait_for_repair(error)
                break
        else:
            self._is_waiting = False
        if self._rows and self.keys is not None:
            rows, self._rows = self._rows, []
            self.keys.put_rows(rows)
        self._notify()
        if self.applied_end < committed:
            self._uncommitted.acknowledge(committed)
            return self._queues.has_space and not self._is_waiting and self._keys_have_room()
        return False

    def acknowledge(self, committed: int) -> None:
        """Answer what is committed although dispatch has not come to it."""
        self._uncommitted.acknowledge(committed)

    def _wait_for_repair(self, error: DamagedEntry) -> None:
        """Go no further: the log fetches the entry from a peer, and the store tries again.

        Errors: `FatalError` when there is no peer.
        """
        self._anomalies.on_damage(error)
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

    def _dispatch_own(self, start: int, committed: int) -> None:
        """Dispatch own entries from memory; their senders are answered meanwhile.

        What is left after long properties is answered, and read back in later turns.
        """
        take, header_bytes = self._queues.take, self._header_bytes
        keyed: list[Keyed] = []
        cost = 0
        for own in self._uncommitted.commit(start, committed):
            physical = own.physical
            if isinstance(own, OwnMessage):
                queue = own.queue
                if queue is not None:
                    assert queue.max_offset == own.queue_offset, (queue.topic, own)
                    take(queue, _pack_unit(physical, own.size, own.code), 1)
                keyed.append(own.keyed)
                end = physical + own.size
            elif isinstance(own, OwnBatch):
                queue = own.queue
                assert queue.max_offset == own.queue_offset, (queue.topic, own)
                take(queue, own.units, len(own.physicals))
                self._add_keys(keyed)
                self._rows += own.rows
                physical, end = own.physicals[-1], own.end
            elif isinstance(own, OwnCopy):
                queue, end = own.queue, own.end
                assert queue.max_offset == own.queue_offset, (queue.topic, own)
                take(queue, _pack_unit(physical, own.size, own.code), 1)
                keyed.append(own.keyed)
                self._listener.apply_state(end, *own.said)
            else:
                end = own.end
                self._listener.apply_state(end, own.kind, own.payload)
            self.applied_end = end
            self._applied_start = physical - header_bytes
            if keyed and len(keyed[-1][1]) > LONG_TEXT_BYTES:
                cost += len(keyed[-1][1])
                if cost > LONG_TEXTS_BYTES:
                    self._is_over = True
                    own.answer(PutStatus.OK)
                    break
        self._add_keys(keyed)

    def _add_keys(self, keyed: "list[Keyed]") -> None:
        """Make the rows of messages that were dispatched; hundreds of them cost less each."""
        if keyed and self.keys is not None:
            self._rows += self.keys.rows_of(keyed)
        keyed.clear()

    def _dispatch_next(self, first: int, last: int, limit: int) -> int:
        """Dispatch entries in ``[first, last)`` that are not waited for here; return how many.

        Errors: as `_dispatch_log`.
        """
        hinted = self._feed.maybe_hint(first)
        if hinted is not None and (start := hinted.start) < last:
            end = hinted.end
            is_before = first < start and self._feed.following(first) < start
            if not is_before and start >= first and end <= last:
                return self._dispatch_hinted(hinted, limit)
            # A hint is about a whole span: one that is cut by either end is looked into.
            last = min(last, start if is_before else end)
        return self._dispatch_log(first, last, limit)

    def _dispatch_hinted(self, hinted: "HintedSpan", limit: int) -> int:
        """Dispatch a span by its hint; return how many entries.

        From where the hint does not fit on what is here, at most ``limit`` entries are looked into.
        """
        begin = done = 0
        entries = len(hinted.units) // LOG_UNIT.size
        hint = maybe_decode_hint(hinted.hint)
        if hint is not None and not (hint.has_keys or self.keys is None):
            hint = None
        if hint is not None and not self._bears_out(hinted, hint):
            _log.warning("event=dispatch_hint_refused start=%d end=%d", hinted.start, hinted.end)
            hint = None
        if hint is not None:
            queues = self._queues_of(hint)
            header, units = self._header_bytes, LOG_UNIT.iter_unpack(hinted.units)
            for run in hint.runs:
                places = [
                    (position + header, size - header)
                    for _, position, size, _, _ in islice(units, run.entries)
                ]
                if run.kind == LOOKED_INTO:
                    start, end = places[0][0] - header, sum(places[-1])
                    done = self._dispatch_log(start, end, limit)
                    limit -= done
                    queues = self._queues_of(hint)  # what was applied may have changed them
                elif run.kind == ALIKE:
                    done = self._dispatch_alike(run, queues[run.queue], places)
                else:
                    done = self._dispatch_each(run, queues, places)
                begin += done
                if done < run.entries or limit <= 0:
                    break
        if begin < entries and limit > 0:
            begin += self._dispatch_log(self.applied_end, hinted.end, limit)
        return begin

    def _bears_out(self, hinted: "HintedSpan", hint: DispatchHint) -> bool:
        """Tell whether one entry of the span, another in each, is what its hint says of it."""
        number, start, end = hinted.sample
        claim = claim_about(hint, number)
        if claim is None:
            return True
        found: list[ReadBack] = []
        with suppress(DamagedEntry):
            read_back(self._log.walk(start, end, 1), found)
        return not found or agrees(hint, claim, found[0], self.keys)

    def _queues_of(self, hint: DispatchHint) -> "list[ConsumeQueue | None]":
        by_topic = self._queues.by_topic
        return [by_topic.get(topic, _NO_QUEUES).get(queue_id) for topic, queue_id in hint.queues]

    def _dispatch_alike(self, run: Run, queue: "ConsumeQueue | None", places: "Places") -> int:
        """Dispatch a run of one queue; return its length, or 0 if the queue does not expect it."""
        if queue is None or queue.max_offset != run.queue_offset or not queue.is_plain:
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
            if queue is None or queue.max_offset != offset or not queue.is_plain:
                break
            take(queue, _pack_unit(physical, size, code), 1)
            done += 1
        self._end_run(run, places[:done])
        return done

    def _end_run(self, run: Run, places: "Places") -> None:
        """Note that messages were put into their queues: the first of a run, or all."""
        if places:
            physical, size = places[-1]
            self.applied_end = physical + size
            self._applied_start = physical - self._header_bytes
            if self.keys is not None and run.hashes:
                self._rows += rows_of(run, [physical for physical, _ in places])

    def _dispatch_log(self, first: int, last: int, limit: int) -> int:
        """Read entries in ``[first, last)`` back from the log and dispatch them; return how many.

        Errors: `DamagedEntry`, what comes before it is dispatched; `FatalError` if a queue lacks
        what comes before.
        """
        found: list[ReadBack] = []
        try:
            read_back(self._log.walk(first, last, limit), found)
        except DamagedEntry:
            self._dispatch_records(found)
            raise
        assert found, (first, last, limit)
        if self.keys is not None and (count := light_part(found)) < len(found):
            del found[count:]
            self._is_over = True
        self._dispatch_records(found)
        return len(found)

    def _dispatch_records(self, found: "list[ReadBack]") -> None:
        """Dispatch records that were read back."""
        take, by_topic = self._queues.take, self._queues.by_topic
        keyed: list[Keyed] = []
        foreign = self._anomalies.foreign
        for record in found:
            physical, size, queue_id, offset, flags, stored, topic, text, chunk, at = record
            self.applied_end = physical + size
            self._applied_start = physical - self._header_bytes
            if flags & FLAG_NOT_INDEXED:
                self._dispatch_unindexed(record, keyed)
                continue
            if chunk[at + PREPARED_AT] == MARK_BYTE or flags & _LOOKED_AT:
                self._apply_said(maybe_said_by(chunk, at))
            queue = by_topic.get(topic, _NO_QUEUES).get(queue_id)
            queue = queue or self._maybe_queue_of(topic, queue_id, physical)
            if queue is None:
                continue
            keyed.append((topic, text, physical, stored, flags))
            if queue.says:
                place, view = (offset, physical, stored), chunk[at : at + size]
                self._apply_said(said_in_by(queue.says, view, place, text))
                self._answer_applied(physical)
            is_known = offset < queue.max_offset
            if foreign and not is_known and self._anomalies.is_outlived(queue, physical):
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
        physical, size, _, _, flags, stored, topic, text, chunk, at = record
        if topic is NO_MESSAGE:
            if size:  # RocketMQ has entries without anything
                self._anomalies.add(physical, text.decode())
        elif topic == STATE_TOPIC_BYTES:
            self._apply_state(physical, text, chunk[at : at + size])
        else:
            keyed.append((topic, text, physical, stored, flags))

    def _apply_state(self, physical: int, properties: bytes, record: bytes | memoryview) -> None:
        kind = state_kind(properties)
        if self.applied_end > self.state_end and kind not in _KINDS_OF_THE_LOG:
            payload = record_body(record)
            self._anomalies.check_state(physical, record)
            self._listener.apply_state(self.applied_end, kind, bytes(payload))
        self._answer_applied(physical)

    def _answer_applied(self, physical: int) -> None:
        own = self._uncommitted.take_state(physical)
        if own is not None:
            own.answer(PutStatus.OK)

    def _apply_said(self, said: "Said | None") -> None:
        """Apply the state that a message stands for, if it does."""
        if said is not None and self.applied_end > self.state_end:
            self._listener.apply_state(self.applied_end, *said)

    def _maybe_queue_of(self, topic: bytes, queue_id: int, physical: int) -> "ConsumeQueue | None":
        """Return a queue; None, and the record is left aside, if there can be none."""
        queue = self._queues.maybe_make(topic, queue_id)
        if queue is None:
            reason = f"topic {topic!r} queue {queue_id} cannot name a queue"
            self._anomalies.on_no_queue(physical, reason)
        return queue

    def _has_place(self, queue: "ConsumeQueue", record: "ReadBack", keyed: "list[Keyed]") -> bool:
        """Tell whether a message belongs where its queue ends although it states another offset.

        A queue begins above 0 when the log's head was removed. Otherwise it has the message, or the
        log must show what became of the offsets before it; see `Anomalies`. Errors: as there.
        """
        physical, _, _, offset = record[:4]
        has_place: bool | None
        if offset < queue.max_offset:
            has_place = self._anomalies.replaces(queue, offset, physical)
        elif queue.max_offset or self._anomalies.has_whole_queues:
            has_place = self._anomalies.skips(queue, offset, physical)
        elif offset > FIRST_OFFSET_MAX:
            has_place = None  # no file could be named by where its unit would lie
            self._anomalies.on_no_queue(physical, f"a queue cannot begin at {offset}")
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
