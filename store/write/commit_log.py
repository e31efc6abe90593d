"""Appending: messages and state records become entries of the replicated log.

The leader's half of the life of a message: encode the record where it will lie, give it its queue
offset, and remember who waits for it (`store.write.uncommitted`). Reading back and indexing are
`store.dispatch.dispatcher`'s; the log itself is the node's.

Queue offsets are provisional until committed: they are dropped with the leadership, and a new
leader counts on from what the committed log says (`CommitLog.become_writable`).
What is written is what `store.layout.read_record` reads back equal, whatever a message says of
itself: the host bits of sysFlag follow from the widths of the hosts in the record, and what no
record or unit can hold is refused (`store.layout`, "whole").
Source: spec/wire.md 4.1, 4.7; spec/disk.md 5.2, 6.2; RocketMQ CommitLog, DLedgerCommitLog,
MessageExtEncoder.
"""

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Final
from zlib import crc32

from dledger.errors import DamagedEntry, DiskFull, EntryTooLarge, NotLeader, PendingFull
from ledgermq.remoting.protocol.message import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    PROPERTIES_BYTES_MAX,
    RECORD_HEADS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)
from store.layout import (
    FLAG_NOT_INDEXED,
    FLAGS_HOSTS_V6,
    KIND_NOOP,
    KIND_RAFT_CONFIG,
    STATE_TOPIC_BYTES,
    TOPIC_BYTES_MAX,
    UNIT,
    delivery_code,
    looks_unwritten,
    state_kind,
    state_properties,
    stored_or_zero,
)
from store.origins import maybe_said, said_in
from store.results import (
    BatchCallback,
    PutBatch,
    PutCallback,
    PutMessage,
    PutStatus,
    StateCallback,
)
from store.write.hints import encode_hint
from store.write.stamps import Stamps
from store.write.uncommitted import OwnBatch, OwnCopy, OwnMessage, OwnState, Uncommitted

if TYPE_CHECKING:
    from ledgermq.runtime.clock import Clock
    from store.config import StoreConfig
    from store.layout import Row
    from store.origins import Said
    from store.ports import KeySink, LogWriter
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

_REFUSALS: Final = (NotLeader, PendingFull, DiskFull, EntryTooLarge, struct.error)
"""Nothing was appended; ``struct.error``: a value of the message does not fit its field."""
_NO_HOSTS: Final = ~FLAGS_HOSTS_V6
"""Of a message's sysFlag: all but what its record says of the width of hosts."""
_pack_short: Final = struct.Struct(">H").pack
_pack_int: Final = struct.Struct(">i").pack
_BODY_BYTES: Final = 4
"""The length of the body, with which the head of a record ends."""
_PLACE: Final = struct.Struct(">iIIiiqq")
"""How a record begins: what differs between the messages of a batch."""
_pack_place: Final = _PLACE.pack
_pack_unit: Final = UNIT.pack
_NO_HOST: Final = bytes(8)
_CODE_MIN: Final = -(1 << 63)
_CODE_MAX: Final = (1 << 63) - 1
"""What a unit of a consume queue can hold as a tags code."""


class CommitLog:
    """The writing side of the store; usable while ``writable``."""

    def __init__(
        self,
        config: "StoreConfig",
        queues: "ConsumeQueues",
        clock: "Clock",
        log: "LogWriter",
        keys: "KeySink | None" = None,
    ) -> None:
        """Make one; ``keys``: the index of keys, if there is one."""
        self._log = log
        self._reserve = log.reserve
        self._header_bytes = log.header_bytes
        self._append = log.append
        self._queues = queues
        self._by_key = queues.by_key
        self._by_topic = queues.by_topic
        self._body_max = config.max_body_bytes
        self._max_wait_ms = config.max_wait_ack_ms
        self._late_status = config.late_status
        self._delays_ms = config.delay_levels_ms
        self._store_host = config.store_host
        self._heads = _heads_for(config.store_host)
        self.stamps = Stamps(clock)
        self._timestamp = self.stamps.now
        self.uncommitted = Uncommitted(log.header_bytes)
        self._add = self.uncommitted.add
        self.writable = False
        self._keys = keys

    def put(self, message: PutMessage, done: PutCallback) -> None:
        """Append one message; ``done`` hears how it ended.

        A refusal is told before this returns, with offsets -1; anything later from the loop.
        """
        queue: ConsumeQueue | None
        try:
            queue = self._by_topic[message.topic][message.queue_id]
        except KeyError:
            queue = self._maybe_queue(message.topic, message.queue_id)
        if not self.writable or queue is None or (size := self._size(message, queue)) < 0:
            done(self._refusal(message), -1, -1)
            return
        indexed = not message.sys_flag & FLAG_NOT_INDEXED
        queue_offset = queue.next_offset if indexed else 0
        now = self._timestamp()
        try:
            physical = self._reserve(size)
            record = self._record(message, queue, (size, queue_offset, physical, now))
        except _REFUSALS as error:
            done(_refused(error), -1, -1)
            return
        # A message may trip over its content only before the log has it.
        keyed = (message.topic, message.properties, physical, now, message.sys_flag)
        tags, said = message.tags_code, None
        if not queue.is_plain or message.prepared_offset or message.sys_flag & TRANSACTION_COMMIT:
            tags, said = self._meaning(message, queue, (queue_offset, physical, now))
        self._append((record,), size)
        if not indexed:
            self._add(OwnMessage(physical, None, 0, size, 0, keyed, done))
            return
        queue.next_offset = queue_offset + 1
        if said is not None:
            self._add(OwnCopy(physical, queue, queue_offset, size, tags, keyed, done, said))
            return
        self._add(OwnMessage(physical, queue, queue_offset, size, tags, keyed, done))

    def _meaning(
        self, message: PutMessage, queue: "ConsumeQueue", place: tuple[int, int, int]
    ) -> tuple[int, "Said | None"]:
        """Return the tags code of a message that is not like others, and what it stands for.

        ``place``: its queue offset, where it lies, and when it was stored.
        """
        if queue.says:
            said = said_in(queue.says, place, message.properties, message.body, message.born_host)
            return message.tags_code, said
        tags = message.tags_code
        if queue.is_schedule:
            tags = delivery_code(message.properties, place[2], self._delays_ms)
        return tags, maybe_said(message.prepared_offset, message.sys_flag)

    def put_batch(self, batch: PutBatch, done: BatchCallback) -> None:
        """Append messages of one queue side by side, with consecutive queue offsets.

        ``done`` is called once for all; see `put`. They are entries of their own: when leadership
        is lost meanwhile, the first ones may yet commit and the others not.
        """
        queue = self._maybe_queue(batch.topic, batch.queue_id)
        if queue is None or queue.says or not self.writable:  # what says state is put by `put_each`
            done(self._batch_refusal(batch), -1, [])
            return
        sizes = self._batch_sizes(batch, queue)
        if sizes is None:
            done(self._batch_refusal(batch), -1, [])
            return
        start = queue.next_offset
        now = self._timestamp()
        try:
            physicals = self._reserve_all(sizes)
            records = self._batch_records(batch, queue, (sizes, physicals, now))
        except _REFUSALS as error:
            done(_refused(error), -1, [])
            return
        properties, codes = batch.properties, batch.tags_codes
        if queue.is_schedule:
            codes = [delivery_code(text, now, self._delays_ms) for text in properties]
        rows: list[Row] = []
        if self._keys is not None:
            topic, flags = repeat(batch.topic), repeat(batch.sys_flag)
            rows = self._keys.rows_of(zip(topic, properties, physicals, repeat(now), flags))
        units = b"".join(map(_pack_unit, physicals, sizes, codes))
        self._log.append_batch(records)
        queue.next_offset = start + len(sizes)
        self._add(
            OwnBatch(
                physicals[0], queue, start, physicals, physicals[-1] + sizes[-1], units, codes,
                rows, _batch_end(done, start, physicals),
            )
        )  # fmt: skip

    def put_each(self, batch: PutBatch, dones: "Sequence[PutCallback]") -> None:
        """Append messages of a queue that says state side by side; each is answered by itself.

        ``dones`` hear how theirs ended, in the order of the messages. All are refused or none; see
        `put`.
        """
        queue = self._maybe_queue(batch.topic, batch.queue_id)
        if queue is None or not queue.says or not self.writable:
            _tell_each(dones, self._batch_refusal(batch))
            return
        sizes = self._batch_sizes(batch, queue)
        if sizes is None:
            _tell_each(dones, self._batch_refusal(batch))
            return
        offset, topic, flags = queue.next_offset, batch.topic, batch.sys_flag
        now = self._timestamp()
        try:
            physicals = self._reserve_all(sizes)
            records = self._batch_records(batch, queue, (sizes, physicals, now))
        except _REFUSALS as error:
            _tell_each(dones, _refused(error))
            return
        own: list[OwnCopy] = []
        for physical, size, body, text, code, done in zip(
            physicals, sizes, batch.bodies, batch.properties, batch.tags_codes, dones, strict=True
        ):
            said = said_in(queue.says, (offset, physical, now), text, body, batch.born_host)
            keyed = (topic, text, physical, now, flags)
            own.append(OwnCopy(physical, queue, offset, size, code, keyed, done, said))
            offset += 1
        for record, size in zip(records, sizes, strict=True):
            self._append((record,), size)
        queue.next_offset = offset
        for one in own:
            self._add(one)

    def _reserve_all(self, body_sizes: list[int]) -> list[int]:
        """Return the physical offsets of bodies that will lie side by side. Errors: `_REFUSALS`."""
        header_bytes = self._header_bytes
        first = self._reserve(sum(body_sizes) + header_bytes * (len(body_sizes) - 1))
        return list(accumulate((size + header_bytes for size in body_sizes[:-1]), initial=first))

    def _batch_sizes(self, batch: PutBatch, queue: "ConsumeQueue") -> list[int] | None:
        """Return the bytes of each record, None if one is outside the limits, or all together."""
        head = self._heads.get(len(batch.born_host))
        if head is None or batch.sys_flag & TRANSACTION_MASK:
            return None  # what stands for state by its flags is put by itself
        bodies = list(map(len, batch.bodies))
        texts = list(map(len, batch.properties))
        codes, count = batch.tags_codes, len(bodies)
        if not count == len(texts) == len(codes) == len(batch.flags) or not count:
            return None
        if not min(bodies) or sum(bodies) > self._body_max or max(texts) > PROPERTIES_BYTES_MAX:
            return None
        if min(codes) < _CODE_MIN or max(codes) > _CODE_MAX:
            return None
        if any(map(looks_unwritten, batch.properties)):
            return None
        fixed = head[0] + len(queue.topic_field) + 2
        return [fixed + body + text for body, text in zip(bodies, texts, strict=True)]

    def _batch_records(
        self, batch: PutBatch, queue: "ConsumeQueue", places: tuple[list[int], list[int], int]
    ) -> list[bytes]:
        """Return the records; ``places`` are (sizes, physical offsets, timestamp)."""
        _, pack, flags = self._heads[len(batch.born_host)]
        sizes, physicals, now = places
        common = pack(
            0, MAGIC_V1, 0, batch.queue_id, 0, 0, 0, batch.sys_flag & _NO_HOSTS | flags,
            batch.born_timestamp, batch.born_host, now, self._store_host, batch.reconsume_times,
            0, 0,
        )[_PLACE.size : -_BODY_BYTES]  # fmt: skip
        topic_field, queue_id, queue_offset = queue.topic_field, queue.queue_id, queue.next_offset
        body_bytes = text_bytes = -1
        middle = behind = b""
        records: list[bytes] = []
        for flag, body, text, size, physical in zip(
            batch.flags, batch.bodies, batch.properties, sizes, physicals, strict=True
        ):
            if len(body) != body_bytes:
                body_bytes = len(body)
                middle = common + _pack_int(body_bytes)
            if len(text) != text_bytes:
                text_bytes = len(text)
                behind = topic_field + _pack_short(text_bytes)
            crc = crc32(body) & 0x7FFFFFFF
            place = _pack_place(size, MAGIC_V1, crc, queue_id, flag, queue_offset, physical)
            records.append(b"".join((place, middle, body, behind, text)))
            queue_offset += 1
        return records

    def _batch_refusal(self, batch: PutBatch) -> PutStatus:
        """Say why a batch was refused, by its first message that is outside the limits."""
        if not self.writable:
            return PutStatus.NOT_LEADER
        for body, text in zip(batch.bodies, batch.properties, strict=False):
            if len(text) > PROPERTIES_BYTES_MAX:
                return PutStatus.PROPERTIES_SIZE_EXCEEDED
            if not 0 < len(body) <= self._body_max:
                break
        return PutStatus.MESSAGE_ILLEGAL

    def propose_state(self, kind: str, payload: bytes, done: StateCallback) -> None:
        """Append a state record; ``done`` is called once it is committed and applied here."""
        if not self.writable:
            done(PutStatus.NOT_LEADER)
            return
        properties = state_properties(kind)
        size = _state_size(self._store_host, payload, properties)
        if len(properties) > PROPERTIES_BYTES_MAX or state_kind(properties) != kind:
            done(PutStatus.MESSAGE_ILLEGAL)  # whoever reads it back would not know what it is
            return
        try:
            physical = self._reserve(size)
        except _REFUSALS as error:
            done(_refused(error))
            return
        record = self._state_record(physical, payload, properties)
        assert len(record) == size, (len(record), size)
        self._append((record,), size)
        self.uncommitted.add_state(OwnState(physical, size, kind, payload, done))

    def noop_body(self, physical_offset: int) -> bytes:
        """Return the record with which a leader opens its term (`DLedgerListener`).

        Its timestamp carries on from the last entry, so that timestamps never fall in a log.
        """
        self._carry_timestamp_on()
        return self._state_record(physical_offset, b"", state_properties(KIND_NOOP))

    def configuration_body(self, physical_offset: int, payload: bytes) -> bytes:
        """Return the record that holds a configuration of the group."""
        return self._state_record(physical_offset, payload, state_properties(KIND_RAFT_CONFIG))

    def write_hint(self, start: int, end: int) -> bytes:
        """Return the hint of own entries in ``[start, end)``, see `store.write.hints`.

        It is empty when what lies there was put together with what lies beside it.
        """
        items = self.uncommitted.between(start, end)
        return encode_hint(items, self._keys) if items else b""

    def become_writable(self) -> None:
        """Take sends: every committed entry of earlier terms is in the queues."""
        assert not self.uncommitted, len(self.uncommitted)
        self._carry_timestamp_on()
        for queue in self._by_key.values():
            queue.next_offset = queue.max_offset
        self.writable = True

    def expire(self, now_ms: int) -> None:
        """Answer ``late_status`` for what has waited longer than ``max_wait_ack_ms``."""
        self.stamps.tick()
        self.uncommitted.expire(now_ms, self._max_wait_ms, self._late_status)

    def abandon(self) -> None:
        """Leadership is lost: everything that waits ends UNKNOWN, in order."""
        self.writable = False
        self.uncommitted.abandon()

    def _carry_timestamp_on(self) -> None:
        with suppress(DamagedEntry):
            last = self._log.last_body()
            self.stamps.carry_on(0 if last is None else stored_or_zero(last))

    def _maybe_queue(self, topic: bytes, queue_id: int) -> "ConsumeQueue | None":
        """Return a queue, made if new; None if there can be none, or nothing is written to it."""
        return self._queues.maybe_make(topic, queue_id) if len(topic) <= TOPIC_BYTES_MAX else None

    def _size(self, message: PutMessage, queue: "ConsumeQueue") -> int:
        """Return the bytes of the record, -1 if the message is outside the limits."""
        body_bytes = len(message.body)
        properties_bytes = len(message.properties)
        head = self._heads.get(len(message.born_host))
        if head is None or not body_bytes:
            return -1
        if body_bytes > self._body_max and not _was_accepted(message):
            return -1
        if properties_bytes > PROPERTIES_BYTES_MAX or looks_unwritten(message.properties):
            return -1
        if message.sys_flag & FLAG_NOT_INDEXED:
            if message.topic == STATE_TOPIC_BYTES:
                return -1  # who reads it back would take it for replicated state
        elif not _CODE_MIN <= message.tags_code <= _CODE_MAX:
            return -1
        return head[0] + body_bytes + len(queue.topic_field) + 2 + properties_bytes

    def _record(
        self, message: PutMessage, queue: "ConsumeQueue", place: tuple[int, int, int, int]
    ) -> bytes:
        """Return the record; ``place`` is (size, queue offset, physical offset, timestamp)."""
        _, pack, flags = self._heads[len(message.born_host)]
        body = message.body
        properties = message.properties
        size, queue_offset, physical, now = place
        head = pack(
            size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, message.queue_id, message.flag, queue_offset,
            physical, message.sys_flag & _NO_HOSTS | flags, message.born_timestamp,
            message.born_host, now, self._store_host, message.reconsume_times,
            message.prepared_offset, len(body),
        )  # fmt: skip
        return b"".join((head, body, queue.topic_field, _pack_short(len(properties)), properties))

    def _state_record(self, physical: int, payload: bytes, properties: bytes) -> bytes:
        now = self._timestamp()
        host_flag = FLAG_STORE_HOST_V6 if len(self._store_host) == 20 else 0
        head = RECORD_HEADS[host_flag >> 4].pack(
            _state_size(self._store_host, payload, properties), MAGIC_V1,
            crc32(payload) & 0x7FFFFFFF, 0, 0, 0, physical, FLAG_NOT_INDEXED | host_flag, now,
            _NO_HOST, now, self._store_host, 0, 0, len(payload),
        )  # fmt: skip
        topic = bytes((len(STATE_TOPIC_BYTES),)) + STATE_TOPIC_BYTES
        return b"".join((head, payload, topic, _pack_short(len(properties)), properties))

    def _refusal(self, message: PutMessage) -> PutStatus:
        """Say why a put was refused before it reached the log."""
        if not self.writable:
            return PutStatus.NOT_LEADER
        if len(message.properties) > PROPERTIES_BYTES_MAX:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        return PutStatus.MESSAGE_ILLEGAL


def _heads_for(store_host: bytes) -> dict[int, tuple[int, Callable[..., bytes], int]]:
    """Return by width of the born host: bytes and packer of the head, and its sysFlag bits."""
    heads: dict[int, tuple[int, Callable[..., bytes], int]] = {}
    for width, born_flag in ((8, 0), (20, FLAG_BORN_HOST_V6)):
        flags = born_flag | (FLAG_STORE_HOST_V6 if len(store_host) == 20 else 0)
        layout = RECORD_HEADS[flags >> 4]
        heads[width] = (layout.size, layout.pack, flags)
    return heads


def _state_size(store_host: bytes, payload: bytes, properties: bytes) -> int:
    head = RECORD_HEADS[2 if len(store_host) == 20 else 0].size
    return head + len(payload) + 1 + len(STATE_TOPIC_BYTES) + 2 + len(properties)


def _batch_end(done: BatchCallback, start: int, physicals: list[int]) -> PutCallback:
    def finish(status: PutStatus, _queue_offset: int, _physical: int) -> None:
        done(status, start, physicals)

    return finish


def _tell_each(dones: "Sequence[PutCallback]", status: PutStatus) -> None:
    for done in dones:
        done(status, -1, -1)


def _was_accepted(message: PutMessage) -> bool:
    """Tell whether a message is a copy of one that waited: the limit may have been another then."""
    return maybe_said(message.prepared_offset, message.sys_flag) is not None


def _refused(error: Exception) -> PutStatus:
    if isinstance(error, NotLeader):
        return PutStatus.NOT_LEADER
    if isinstance(error, PendingFull):
        return PutStatus.FULL
    return PutStatus.DISK_FULL if isinstance(error, DiskFull) else PutStatus.MESSAGE_ILLEGAL
