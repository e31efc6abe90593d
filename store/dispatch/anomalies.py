"""Entries that are not what dispatch expects, and what becomes of them: two ways.

`Quarantine` is the way of a group.
An entry of the group is what its leader wrote: the CRC of the entry says so. If what it wrote is no
whole record (`store.layout`), or one that no queue can take, every replica finds the same bytes,
and ending the process would end the group. Such an entry stays in the log, is in no queue and no
index, is never delivered, and is named once in the log line. Whatever is decided here follows from
the log and from what was dispatched before, so that all replicas, and every start, decide alike.

The leader that wrote it may have given it a queue offset, which the next message of that queue goes
on from. The missing offsets are *skipped* then: units that name no message (`SKIPPED_BYTES` in the
place of a size) lie in their place. That happens only if the log shows as many entries without a
message behind the last one of the queue; otherwise this replica has lost units, or the record lies.

`Unreplicated` is the way of a log whose records no CRC of ours covers and no replica has: RocketMQ
may have written it, and may go on with it. Damage that nobody can repair there ends the
process before anything is derived from it. `Copied` is that of a slave, which its master's word
alone does not end.
"""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from dledger.errors import DamagedEntry
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.layout import (
    FLAG_NOT_INDEXED,
    SKIPPED_BYTES,
    UNIT,
    UNIT_BYTES,
    CorruptRecord,
    record_is_sound,
    whole_record,
)
from store.limits import QUARANTINED_NAMED, SKIPPED_MAX

if TYPE_CHECKING:
    from store.ports import LogFiles, LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

_log = logging.getLogger(__name__)


_ALL: Final = 1 << 62
"""A walk has no other limit than its end."""
_LOST_MAX: Final = 1 << 20
"""Units of a queue that may be lost: three files of RocketMQ's."""


class Anomalies(Protocol):
    """What dispatch asks when an entry is not what it expects."""

    count: int
    """Entries that were left aside since the start, each once."""
    foreign: "set[ConsumeQueue]"
    """Queues that somebody else may have begun anew, behind which nothing was dispatched yet."""

    @property
    def has_whole_queues(self) -> bool:
        """Whether a queue without messages begins with 0, since nothing was dropped."""
        ...

    def begin(self, queues_end: int | None) -> None:
        """Take that dispatch begins; no unit of a queue is of a message from ``queues_end`` on."""
        ...

    def on_damage(self, error: DamagedEntry) -> None:
        """Take that an entry is damaged, and dispatch waits before it. Errors: `FatalError`."""
        ...

    def check_state(self, physical: int, record: bytes | memoryview) -> None:
        """Look at a state record before it is applied. Errors: `FatalError`."""
        ...

    def add(self, physical: int, reason: str) -> None:
        """Name an entry that is left aside."""
        ...

    def on_no_queue(self, physical: int, reason: str) -> None:
        """Leave a message aside that no queue can take. Errors: `FatalError`."""
        ...

    def is_outlived(self, queue: "ConsumeQueue", physical: int) -> bool:
        """Tell whether a record is older than its queue, which was begun anew."""
        ...

    def replaces(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """Tell whether a message takes an offset that its queue has already; None: left aside."""
        ...

    def skips(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """Tell whether a message takes an offset behind the queue's end; None: left aside."""
        ...


class Quarantine:
    """Names what is not dispatched, and finds room for what lies behind it."""

    def __init__(self, log: "LogReader", files: "LogFiles", queues: "ConsumeQueues") -> None:
        self._log = log
        self._files = files
        self._queues = queues
        self.foreign: set[ConsumeQueue] = set()
        """None: a group's directory is its own."""
        self._named: dict[int, None] = {}
        self._ends: dict[ConsumeQueue, tuple[int, int]] = {}
        """Of queues that were asked for: an end, and where the message before it lies."""
        self._walked: dict[ConsumeQueue, tuple[int, int, int]] = {}
        """Of queues with a gap: an end, up to where holes were looked for, how many were found."""
        self.count = 0
        """Entries that were met since the start, each once."""

    @property
    def has_whole_queues(self) -> bool:
        """No: a queue begins where a snapshot says, or where its first message is."""
        return False

    def begin(self, queues_end: int | None) -> None:
        """Nothing follows from it."""

    def on_damage(self, error: DamagedEntry) -> None:
        """Wait: the log fetches the entry from a peer."""

    def check_state(self, physical: int, record: bytes | memoryview) -> None:
        """Nothing is left to check: the CRC of the entry covers the record."""

    def is_outlived(self, queue: "ConsumeQueue", physical: int) -> bool:
        """No: queues are begun once."""
        del queue, physical
        return False

    def on_no_queue(self, physical: int, reason: str) -> None:
        """Leave it aside, as every replica does."""
        self.add(physical, reason)

    def add(self, physical: int, reason: str) -> None:
        """Name an entry that is not dispatched; one that was met before is not named again."""
        if physical in self._named:
            return
        if len(self._named) < QUARANTINED_NAMED:
            self._named[physical] = None
        self.count += 1
        _log.error(
            "event=record_quarantined position=%d reason=%r %s",
            physical, reason, self._files.describe(physical),
        )  # fmt: skip

    def replaces(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """Tell whether a message states a queue offset at which the queue has no message.

        It does when an earlier version gave that offset to what is no message: what the queue has
        from there on is dropped. Otherwise the queue has this message already; None: the record
        lies, and is quarantined.
        """
        if queue.max_offset == queue.min_offset:
            return False
        end, last = self._ends.get(queue, (-1, -1))
        if end != queue.max_offset:
            try:
                last = UNIT.unpack(queue.read(queue.max_offset - 1, 1))[0]
            except DamagedEntry:
                return False  # it is repaired
            self._ends[queue] = (queue.max_offset, last)
        if physical <= last:
            return False
        if offset < queue.min_offset or self._has_message(queue, offset):
            self.add(physical, f"queue offset {offset} is that of an earlier message")
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
            fields = whole_record(self._log.body_at(physical, size), 0, size, physical)
        except (CorruptRecord, LookupError):
            return False
        except DamagedEntry as error:
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

    def skips(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """Skip the queue offsets before that of a message, if the log shows why they are missing.

        If it does not, the record lies, and is quarantined; None. Errors: `FatalError` if the
        messages are there: this replica lost their units.
        """
        missing = offset - queue.max_offset
        found = self._holes_behind(queue, physical)
        if found is None:
            raise self._lost_units(queue, offset, physical)
        if found < missing or missing > SKIPPED_MAX:
            reason = f"queue offset {offset} where {queue.max_offset} comes next"
            self.add(physical, reason)
            return None
        _log.warning(
            "event=queue_offsets_skipped topic=%s queue=%d from=%d to=%d",
            queue.topic, queue.queue_id, queue.max_offset, offset,
        )  # fmt: skip
        self._queues.take(queue, UNIT.pack(physical, SKIPPED_BYTES, 0) * missing, missing)
        self._walked.pop(queue, None)
        return True

    def _lost_units(self, queue: "ConsumeQueue", offset: int, physical: int) -> FatalError:
        message = (
            f"{queue.topic} queue {queue.queue_id} ends at {queue.max_offset}, the message at "
            f"{physical} has queue offset {offset}: {self._files.describe(physical)}"
        )
        return FatalError(message, EXIT_ENVIRONMENT)

    def _is_explained_by_what_was_dropped(self) -> bool:
        """Whether offsets may be missing since what shows why was dropped from the log."""
        return True

    def _holes_behind(self, queue: "ConsumeQueue", upto: int) -> int | None:
        """Count entries without a message between the last one of a queue and what is at ``upto``.

        None if the queue has messages there that it lacks.
        """
        log, count = self._log, 0
        wanted = (queue.topic_field[1:], queue.queue_id, queue.max_offset)
        last = -1
        if queue.max_offset:  # one that begins with a file has no unit before that, nor a gap
            has_unit = queue.max_offset * UNIT_BYTES > queue.first_file
            last = UNIT.unpack(queue.read(queue.max_offset - 1, 1))[0] if has_unit else 0
        known = log.maybe_size(last) if last >= 0 else None
        start = log.first_position if known is None else last + known
        if known is None and last >= 0 and self._is_explained_by_what_was_dropped():
            count = SKIPPED_MAX  # what would show why was dropped from the log, with the last one
        else:  # each message behind a gap asks again
            end, walked, found = self._walked.get(queue, (-1, 0, 0))
            if end == queue.max_offset and start <= walked < upto:
                start, count = walked, found
        try:
            for physical, chunk, at, size in log.walk(start, upto - log.header_bytes, _ALL):
                try:
                    fields = whole_record(chunk, at, size, physical)
                except CorruptRecord:
                    count += size > 0
                    continue
                is_queued = not fields[3] & FLAG_NOT_INDEXED
                if is_queued and (fields[5], fields[1], fields[2]) == wanted:
                    return None
        except DamagedEntry as error:
            message = f"the entry at {upto} cannot be dispatched: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        self._walked[queue] = (queue.max_offset, upto - log.header_bytes, count)
        return count


class Unreplicated(Quarantine):
    """Ends the process at what no CRC vouches for and no replica can repair."""

    def __init__(self, log: "LogReader", files: "LogFiles", queues: "ConsumeQueues") -> None:
        super().__init__(log, files, queues)
        self._queues_end: int | None = None

    @property
    def has_whole_queues(self) -> bool:
        """Whether the log still has its beginning."""
        return self._log.first_position == 0

    def begin(self, queues_end: int | None) -> None:
        """Take the queues that have messages for such that RocketMQ may have begun anew."""
        self._queues_end = queues_end
        queues = self._queues.by_key.values()
        self.foreign = {one for one in queues if one.max_offset > one.min_offset}

    def on_damage(self, error: DamagedEntry) -> None:
        """End. Errors: `FatalError`."""
        message = f"{error}; no replica has it: restore the file from a copy"
        raise FatalError(message, EXIT_ENVIRONMENT) from error

    def check_state(self, physical: int, record: bytes | memoryview) -> None:
        """Compare the record with the CRC that it states. Errors: `FatalError`."""
        if not record_is_sound(record):
            message = f"the state record at {physical} is damaged: {self._files.describe(physical)}"
            raise FatalError(message, EXIT_ENVIRONMENT)

    def on_no_queue(self, physical: int, reason: str) -> None:
        """End: no CRC covers what the record says. Errors: `FatalError`."""
        message = f"{reason}: {self._files.describe(physical)}"
        raise FatalError(message, EXIT_ENVIRONMENT)

    def is_outlived(self, queue: "ConsumeQueue", physical: int) -> bool:
        """Tell whether a record is older than a queue that was begun anew with its offset.

        RocketMQ does so when a topic is deleted and made again.
        """
        end = self._queues_end
        if queue not in self.foreign or (end is not None and physical >= end):
            return False
        with suppress(DamagedEntry):
            if physical < UNIT.unpack(queue.read(queue.max_offset - 1, 1))[0]:
                return True
        self.foreign.discard(queue)
        return False

    def replaces(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """No: the queue has this message already."""
        del queue, offset, physical
        return False

    def skips(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """Skip offsets as a group does, but for a record that lies. Errors: `FatalError`.

        A queue with nothing in the log goes on with the offset of what comes.
        """
        found = self._holes_behind(queue, physical)
        if found is None:
            raise self._lost_units(queue, offset, physical)
        missing = offset - queue.max_offset
        if found >= missing:
            return super().skips(queue, offset, physical)
        if missing > _LOST_MAX or self._has_messages(queue, physical):
            return self._on_gap(queue, offset, physical)
        # Its last units are lost, with messages that the log has no more.
        _log.warning(
            "event=queue_units_lost topic=%s queue=%d from=%d to=%d",
            queue.topic, queue.queue_id, queue.max_offset, offset,
        )  # fmt: skip
        self._queues.fill(queue, missing)
        return True

    def _on_gap(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """End: the log does not show why offsets are missing. Errors: `FatalError`."""
        raise self._lost_units(queue, offset, physical)

    def _has_messages(self, queue: "ConsumeQueue", upto: int) -> bool:
        """Tell whether a queue has messages, or the log has some of it before ``upto``."""
        log, of_queue = self._log, (queue.topic_field[1:], queue.queue_id)
        if queue.min_offset < queue.max_offset or not log.first_position:
            return True
        for physical, chunk, at, size in log.walk(log.first_position, upto, _ALL):
            with suppress(CorruptRecord):
                fields = whole_record(chunk, at, size, physical)
                if (fields[5], fields[1]) == of_queue and not fields[3] & FLAG_NOT_INDEXED:
                    return True
        return False

    def _is_explained_by_what_was_dropped(self) -> bool:
        return False


class Copied(Unreplicated):
    """Leaves aside what a slave's master says of queues and no CRC vouches for.

    The log has to stay the master's, and one record that lies must not end a slave for good. What
    the own disk has damaged or lost ends the process here as well: left aside, acknowledged
    messages of a queue would be read by nobody once this is the master.
    """

    def __init__(self, log: "LogReader", files: "LogFiles", queues: "ConsumeQueues") -> None:
        super().__init__(log, files, queues)
        self._gaps: dict[ConsumeQueue, int] = {}
        """Queues behind whose end, which is here, offsets are missing: looked for once each."""

    def on_no_queue(self, physical: int, reason: str) -> None:
        """Leave it aside."""
        self.add(physical, reason)

    def skips(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        """Skip offsets as a broker on its own does, but leave aside what is not explained."""
        if self._gaps.get(queue) == queue.max_offset:
            return self._on_gap(queue, offset, physical)
        return super().skips(queue, offset, physical)

    def _on_gap(self, queue: "ConsumeQueue", offset: int, physical: int) -> bool | None:
        self._gaps[queue] = queue.max_offset
        self.add(physical, f"queue offset {offset} where {queue.max_offset} comes next")
        return None
