"""Quarantine: committed entries that are what was written and yet no message, and who is behind it.

An entry of the group is what its leader wrote: the CRC of the entry says so. If what it wrote is no
whole record (`store.layout`), or one that no queue can take, every replica finds the same bytes,
and ending the process would end the group. Such an entry stays in the log, is in no queue and no
index, is never delivered, and is named once in the log line. Whatever is decided here follows from
the log and from what was dispatched before, so that all replicas, and every start, decide alike.

The leader that wrote it may have given it a queue offset, which the next message of that queue goes
on from. The missing offsets are *skipped* then: units that name no message (`SKIPPED_BYTES` in the
place of a size) lie in their place. That happens only if the log shows as many entries without a
message behind the last one of the queue; otherwise this replica has lost units, or the record lies.
"""

import logging
from typing import TYPE_CHECKING

from dledger.errors import RottenEntry
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import (
    FLAG_NOT_INDEXED,
    SKIPPED_BYTES,
    UNIT,
    UNIT_BYTES,
    CorruptRecord,
    whole_record,
)
from store.limits import QUARANTINED_NAMED, SKIPPED_MAX

if TYPE_CHECKING:
    from store.ports import LogNode
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

_log = logging.getLogger(__name__)


class Quarantine:
    """Names what is not dispatched, and finds room for what lies behind it."""

    def __init__(self, node: "LogNode", queues: "ConsumeQueues") -> None:
        self._node = node
        self._queues = queues
        self._named: dict[int, None] = {}
        self._ends: dict[ConsumeQueue, tuple[int, int]] = {}
        """Of queues that were asked for: an end, and where the message before it lies."""
        self.count = 0
        """Entries that were met since the start, each once."""

    def add(self, index: int, physical: int, reason: str) -> None:
        """Name an entry that is not dispatched; one that was met before is not named again."""
        if index in self._named:
            return
        if len(self._named) < QUARANTINED_NAMED:
            self._named[index] = None
        self.count += 1
        _log.error(
            "event=record_quarantined index=%d position=%d reason=%r %s",
            index, physical, reason, self._node.describe(physical),
        )  # fmt: skip

    def replaces(
        self, queue: "ConsumeQueue", index: int, offset: int, physical: int
    ) -> bool | None:
        """Tell whether a message states a queue offset at which the queue has no message.

        It does when an earlier version gave that offset to what is no message: what the queue has
        from there on is dropped. Otherwise the queue has this message already; None: the record
        lies, and is quarantined.
        """
        if not self._node.counts_entries or queue.max_offset == queue.min_offset:
            return False
        end, last = self._ends.get(queue, (-1, -1))
        if end != queue.max_offset:
            try:
                last = UNIT.unpack(queue.read(queue.max_offset - 1, 1))[0]
            except RottenEntry:
                return False  # it is mended
            self._ends[queue] = (queue.max_offset, last)
        if physical <= last:
            return False
        if offset < queue.min_offset or self._has_message(queue, offset):
            self.add(index, physical, f"queue offset {offset} is that of an earlier message")
            return None
        _log.warning(
            "event=queue_cut topic=%s queue=%d from=%d to=%d",
            queue.topic, queue.queue_id, queue.max_offset, offset,
        )  # fmt: skip
        self._cut(queue, offset)
        return True

    def _has_message(self, queue: "ConsumeQueue", offset: int) -> bool:
        """Tell whether the unit at ``offset`` names a message of that queue and offset."""
        physical, size, _ = UNIT.unpack(queue.read(offset, 1))
        try:
            fields = whole_record(self._node.body_at(physical, size), 0, size, physical)
        except (CorruptRecord, LookupError):
            return False
        except RottenEntry as error:
            message = f"what the unit {offset} of {queue.topic}/{queue.queue_id} names: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return fields[1:3] == (queue.queue_id, offset) and not fields[3] & FLAG_NOT_INDEXED

    def _cut(self, queue: "ConsumeQueue", offset: int) -> None:
        queues = self._queues
        kept = max(0, offset * UNIT_BYTES - queue.written)
        queues.unwritten_units -= (len(queue.tail) - kept) // UNIT_BYTES
        del queue.tail[kept:]
        queue.max_offset = (queue.written + kept) // UNIT_BYTES
        if not kept and queue in queues.unwritten:
            queues.unwritten.remove(queue)
        if offset < queue.max_offset:
            queue.cut(offset)

    def skips(self, queue: "ConsumeQueue", index: int, offset: int, physical: int) -> bool | None:
        """Skip the queue offsets before that of a message, if the log shows why they are missing.

        If it does not, the record lies, and is quarantined; None. Errors: `FatalError` if the
        messages are there: this replica lost their units; or in a log without a group, in which no
        CRC says that the record is what was written.
        """
        missing = offset - queue.max_offset
        found = self._holes_behind(queue, index)
        if found is None or (found < missing and not self._node.counts_entries):
            message = (
                f"entry {index}: {queue.topic} queue {queue.queue_id} ends at {queue.max_offset}, "
                f"the message of the entry has queue offset {offset}:"
                f" {self._node.describe(physical)}"
            )
            raise FatalError(message, EXIT_ENVIRONMENT)
        if found < missing or missing > SKIPPED_MAX:
            reason = f"queue offset {offset} where {queue.max_offset} comes next"
            self.add(index, physical, reason)
            return None
        _log.warning(
            "event=queue_offsets_skipped topic=%s queue=%d from=%d to=%d",
            queue.topic, queue.queue_id, queue.max_offset, offset,
        )  # fmt: skip
        self._queues.take(queue, UNIT.pack(physical, SKIPPED_BYTES, 0) * missing, missing)
        return True

    def _holes_behind(self, queue: "ConsumeQueue", index: int) -> int | None:
        """Count entries without a message between the last one of a queue and entry ``index``.

        None if the queue has messages there that it lacks.
        """
        node, count = self._node, 0
        wanted = (queue.topic_field[1:], queue.queue_id, queue.max_offset)
        last = UNIT.unpack(queue.read(queue.max_offset - 1, 1))[0] if queue.max_offset else -1
        known = node.find(last) if last >= 0 else None
        start = node.first_index if known is None else node.following(known)
        if known is None and last >= 0 and node.counts_entries:
            count = SKIPPED_MAX  # what would show why was dropped from the log, with the last one
        try:
            for found, physical, chunk, at, size in node.bodies(start, index, index - start + 1):
                if found >= index:
                    break
                try:
                    fields = whole_record(chunk, at, size, physical)
                except CorruptRecord:
                    count += size > 0
                    continue
                is_queued = not fields[3] & FLAG_NOT_INDEXED
                if is_queued and (fields[5], fields[1], fields[2]) == wanted:
                    return None
        except RottenEntry as error:
            message = f"entry {index} cannot be dispatched: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return count
