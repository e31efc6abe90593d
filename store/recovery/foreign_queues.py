"""Queues that somebody else wrote: RocketMQ's, or ours that something happened to.

Files without a checkpoint that vouches for them are not thrown away: the log may be a thousand
times as large, and may have lost its beginning, without which queues cannot be counted again. They
are checked and cut to what the log says, and dispatch begins where they are complete.

1. Structure, every unit: messages of a queue lie behind each other in the log. A unit that
   breaks that is cut, with all behind it. A queue with files of another size, or with a gap
   between them, is removed altogether.
2. The log's end and beginning: units behind the end go, those before the beginning do not count.
3. Content: a unit names a record of this queue and offset. All units of small logs, and of queues
   that an old checkpoint of ours knows otherwise; else the last ones, and samples.
4. Completeness, the other way round: the first records of each segment are in their queues.
5. Where to begin: after a clean stop, behind the last record that any queue has; after a crash,
   with the segment that RocketMQ would begin with; with what was cut, if that comes before.

Nothing here needs to be finished to be begun again.
Source: spec/disk.md 5.3, 5.7; RocketMQ ConsumeQueue.recover, CommitLog.recoverAbnormally,
DefaultMessageStore.start.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from dledger.errors import DamagedEntry
from dledger.segments.places import is_segment_name
from ledgermq.runtime.errors import FatalError
from store.layout import (
    FLAG_NOT_INDEXED,
    GAP_UNIT,
    LIGHT_QUEUE_PREFIX,
    SKIPPED_BYTES,
    UNIT,
    UNIT_BYTES,
    CorruptRecord,
    RecordFields,
    read_record,
    store_timestamp,
    tags_code,
)
from store.queues.consume_queue import CRC_BYTES
from store.queues.start import offset_at
from store.recovery.beginnings import find_wrong_beginnings, keep_counts
from store.recovery.checkpoint import QueueMark, StoreTimes

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Disk
    from store.ports import LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

SMALL_LOG_BYTES: Final = 64 * 1024**2
"""A log up to this size is dispatched again as a whole, and every unit is compared with it."""
TAIL_UNITS: Final = 64
"""Units at the end of each queue that are compared with a larger log."""
TAILS_UNITS: Final = 200_000
"""Such units of all queues together."""
SAMPLE_UNITS: Final = 8192
"""Before these, one in so many is."""
PROBED: Final = 512
"""Records at the beginning of each segment of a larger log that must be in their queues."""
LOOKED_UP_MAX: Final = SMALL_LOG_BYTES
"""So many records no small log has."""
SAFETY_MS: Final = 3_000
"""RocketMQ believes its checkpoint only so far."""
EXT_ADDRESS_MAX: Final = -(1 << 31) - 1
"""Tags codes up to here are addresses of RocketMQ's ConsumeQueueExt, which we do not read: such
units are made again, with the hash, but for those of messages that are gone: they count."""

TIMER_QUEUE: Final = (b"rmq_sys_wheel_timer", 0)
"""Where RocketMQ 5 keeps messages that are to be delivered at a time."""

QueueKey = tuple[bytes, int]

_log = logging.getLogger(__name__)


class LeftBehind(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the directory besides the queue files."""

    clean: bool
    """Whether whoever worked on it stopped cleanly: then its queues are complete."""
    times: StoreTimes
    """What ``checkpoint`` promises."""
    segments: Sequence[int]
    """Positions at which the segments of the log begin, ascending."""
    segment_bytes: int
    last_start: int
    """Position of the last record in the log, -1 if there is none."""
    known: Mapping[QueueKey, QueueMark] = {}
    """Queues as a checkpoint of ours has them that does not count any more."""


class _Scan(msgspec.Struct):
    """What the structure of one queue's files says."""

    first: int = 0
    """Offset of the first unit that is no gap."""
    end: int = 0
    """Offset behind the last good unit."""
    broken: bool = False
    """Whether there is anything behind the last good unit."""


class ForeignQueueRecovery:
    """Takes the queue files of a directory over.

    Args:
        before_change: called once, before anything that was there is cut or removed.
    """

    def __init__(
        self,
        disk: "Disk",
        queues: "ConsumeQueues",
        log: "LogReader",
        left: LeftBehind,
        *,
        before_change: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._queues = queues
        self._log = log
        self._left = left
        self._before_change: Callable[[], None] | None = before_change
        self._segment_bytes = left.segment_bytes
        self._log_begin = log.first_position
        self._log_end = log.end_position
        self._is_small = self._log_end - self._log_begin <= SMALL_LOG_BYTES
        self._begin_max = self._log_end
        self._light = 0
        """Topics of RocketMQ's that it fills with messages of other topics."""

    def run(self) -> int:
        """Fill the queues; return the position at which dispatch begins.

        Errors: `FatalError` if no file has the configured size; `OSError` of the disk.
        """
        self._take_files()
        complete = self._log_begin
        for queue in self._queues.by_key.values():
            self._fit_log(queue)
            if queue.max_offset > queue.min_offset:
                complete = max(complete, sum(_place(queue, queue.max_offset - 1)))
        by_key, size = self._queues.by_key, self._queues.files.file_bytes
        for queue in find_wrong_beginnings(by_key, size, self._log, is_small=self._is_small):
            self._change()
            queue.remove_files()
            self._begin_max = self._log_begin
        tail = max(4, min(TAIL_UNITS, TAILS_UNITS // max(1, len(self._queues.by_key))))
        for key, queue in self._queues.by_key.items():
            self._compare(key, queue, tail)
        begin = complete if self._left.clean else min(complete, self._safe_segment())
        # The last record is dispatched in any case, so that its place is known.
        begin = max(self._log_begin, min(begin, self._begin_max, self._left.last_start))
        lack = self._log_begin if self._misses_a_queue() else self._first_lack(begin)
        if lack < begin:
            self._change()
            begin = lack
        keep_counts(self._queues)
        _log.info(
            "event=queues_adopted queues=%d begin=%d complete=%d log_end=%d clean=%s",
            len(self._queues.by_key), begin, complete, self._log_end, self._left.clean,
        )  # fmt: skip
        self._tell_what_is_not_served()
        return begin

    def _tell_what_is_not_served(self) -> None:
        """Name what stays as it is until RocketMQ has the directory again."""
        if self._light:
            _log.warning("event=light_queues_not_served topics=%d", self._light)
        timed = self._queues.by_key.get(TIMER_QUEUE)
        if timed is not None and timed.max_offset > timed.min_offset:
            _log.warning(
                "event=timers_not_served messages_at_most=%d",
                timed.max_offset - timed.min_offset,
            )

    # 1. Structure

    def _take_files(self) -> None:
        found = self._directories()
        for where, _, names in found:
            self._drop_unmade(where, names)
        size = self._queues.files.file_bytes
        sizes = [self._disk.size(f"{where}/{name}") for where, _, names in found for name in names]
        if sizes and size not in sizes:
            where, _, names = next(entry for entry in found if entry[2])
            message = (
                f"{where}/{names[0]} has {sizes[0]} bytes, mappedFileSizeConsumeQueue says {size}:"
                f" set it to {sizes[0]}, or remove the directory consumequeue, and the queues are"
                " rebuilt from the log"
            )
            raise FatalError(message)
        for where, key, names in found:
            queue = self._queues.maybe_make(*key) if names else None
            if queue is not None and queue.directory == where:
                self._take_queue(queue, key, names)

    def _drop_unmade(self, where: str, names: list[str]) -> None:
        """Remove empty files: a crash came between a file's making and its getting a size."""
        for name in list(names):
            if self._disk.size(f"{where}/{name}") == 0:
                self._change()
                self._queues.files.remove(f"{where}/{name}")
                names.remove(name)

    def _directories(self) -> "list[tuple[str, QueueKey, list[str]]]":
        """Return (directory, queue, file names) of everything that looks like a queue."""
        root = self._queues.directory
        found = []
        for topic in names_in(self._disk, root):
            if topic.startswith(LIGHT_QUEUE_PREFIX):
                self._light += 1
                continue
            for queue_id in names_in(self._disk, f"{root}/{topic}"):
                if not (queue_id.isascii() and queue_id.isdigit()) or len(queue_id) > 10:
                    continue
                where = f"{root}/{topic}/{queue_id}"
                names = list(filter(is_segment_name, names_in(self._disk, where)))
                if names:
                    found.append((where, (topic.encode("utf-8", "replace"), int(queue_id)), names))
        return found

    def _take_queue(self, queue: "ConsumeQueue", key: QueueKey, names: list[str]) -> None:
        """Take what is sound of one queue's files; the rest is removed."""
        files = self._queues.files
        size = files.file_bytes
        starts = [int(name) for name in names]
        run = [start for number, start in enumerate(starts) if start == starts[0] + number * size]
        # Files go from the front only as the log does: of a whole log, queues are whole.
        fits = starts[0] % size == 0 and run == starts and (self._log_begin > 0 or starts[0] == 0)
        if not fits or any(self._disk.size(queue.path(start)) != size for start in starts):
            self._drop_files(queue, starts)
            return
        scan = self._scan(queue, starts)
        end = scan.end * UNIT_BYTES
        if scan.broken and 0 < end <= starts[0]:
            self._drop_files(queue, starts)  # nothing of it counts, so it begins where the log says
            return
        if scan.broken:
            _log.warning("event=queue_cut topic=%s queue=%d at=%d", *_name(key), scan.end)
            self._change()
            for start in starts:
                if start < end < start + size:
                    files.open(queue.path(start)).zero_from(end - start)
        queue.adopt(min(scan.first, scan.end), scan.end, starts[0])
        if scan.broken:
            self._lack_from(queue)
        for start in starts:
            if start >= end and (start > starts[0] or not start):  # one alone still counts
                files.remove(queue.path(start))
        if not self._left.clean:
            files.mark_unsynced(queue.paths()[-2:])

    def _drop_files(self, queue: "ConsumeQueue", starts: list[int]) -> None:
        _log.warning("event=queue_files_do_not_fit directory=%s", queue.directory)
        self._change()
        for start in starts:
            self._queues.files.remove(queue.path(start))
        self._begin_max = self._log_begin

    def _scan(self, queue: "ConsumeQueue", starts: list[int]) -> _Scan:
        """Walk the units of files that follow each other."""
        size = self._queues.files.file_bytes
        scan = _Scan(end=starts[0] // UNIT_BYTES)
        scan.first = scan.end
        physical_end = 0
        for start in starts:
            file = self._queues.files.open(queue.path(start))
            data = file.pread(0, file.nonzero_end(0))
            data += bytes(-len(data) % UNIT_BYTES)
            if scan.end * UNIT_BYTES < start:
                scan.broken = scan.broken or bool(data)
                continue
            at = 0
            if start == starts[0]:
                while data[at : at + UNIT_BYTES] == GAP_UNIT:
                    at += UNIT_BYTES
                scan.first = (start + at) // UNIT_BYTES
            count, physical_end = _good_units(data, at, physical_end, self._log_begin)
            good = at + count * UNIT_BYTES
            scan.end = (start + good) // UNIT_BYTES
            scan.broken = good < min(len(data), size)
        return scan

    # 2. The log's end and beginning

    def _fit_log(self, queue: "ConsumeQueue") -> None:
        low, high = queue.min_offset, queue.max_offset
        if low < high and sum(_place(queue, high - 1)) > self._log_end:
            end = bisect_left(
                range(low, high),
                self._log_end + 1,
                key=lambda offset: sum(_place(queue, offset)),
            )
            _log.warning(
                "event=queue_ahead_of_the_log topic=%s queue=%d cut_to=%d was=%d",
                queue.topic, queue.queue_id, low + end, high,
            )  # fmt: skip
            self._change()
            queue.cut(low + end)
        if self._log_begin:
            queue.min_offset = offset_at(queue, self._log_begin)

    # 3. Content

    def _compare(self, key: QueueKey, queue: "ConsumeQueue", tail: int) -> None:
        """Compare units with the log; cut the queue before the first that is wrong."""
        checked, high = queue.min_offset, queue.max_offset
        for offset in self._chosen(key, queue, tail):
            if self._is_right(key, queue, offset):
                checked = offset + 1
                continue
            wrong = next(n for n in range(checked, high) if not self._is_right(key, queue, n))
            _log.warning("event=queue_cut topic=%s queue=%d at=%d", *_name(key), wrong)
            self._change()
            queue.cut(wrong)
            self._lack_from(queue)
            return

    def _chosen(self, key: QueueKey, queue: "ConsumeQueue", tail: int) -> Sequence[int]:
        low, high = queue.min_offset, queue.max_offset
        if self._is_small or high - low <= tail or _differs(queue, self._left.known.get(key)):
            return range(low, high)
        return [*range(low, high - tail, SAMPLE_UNITS), *range(high - tail, high)]

    def _is_right(self, key: QueueKey, queue: "ConsumeQueue", offset: int) -> bool:
        """Tell whether the unit at ``offset`` names the record that states this queue and offset.

        A record that is damaged says nothing: the unit stays, and a read will tell.
        """
        physical, size, tags = UNIT.unpack(queue.read(offset, 1))
        if size == SKIPPED_BYTES:  # ours: it stands for what is no message, before the next one
            return offset + 1 < queue.max_offset and _place(queue, offset + 1)[0] == physical
        try:
            record = read_record(self._log.body_at(physical, size))
        except DamagedEntry:
            return True
        except (LookupError, CorruptRecord):
            return False
        return _states(record, key, offset) and (queue.is_schedule or tags == tags_code(record[6]))

    # 4. Completeness

    def _first_lack(self, begin: int) -> int:
        """Return where the first record before ``begin`` lies that its queue lacks, or ``begin``.

        All records of a small log are looked up. Of a larger one it is the first ones of each
        segment; if one of these is missing, nobody knows since when.
        """
        for start in self._left.segments:
            if start >= begin:
                break
            lack = self._lack_in(max(start, self._log_begin), begin)
            if lack is not None:
                return lack if self._is_small else self._log_begin
        return begin

    def _lack_in(self, start: int, begin: int) -> int | None:
        """Look up records from the beginning of a segment on; return where one is missing."""
        try:
            walk = self._log.walk(start, begin, LOOKED_UP_MAX if self._is_small else PROBED)
            for physical, chunk, at, _ in walk:
                if physical >= start + self._segment_bytes:
                    return None
                try:
                    record = read_record(chunk, at)
                except CorruptRecord:  # an earlier version wrote it so; it is in no queue
                    continue
                if not record[3] & FLAG_NOT_INDEXED and not self._is_in_queue(record, physical):
                    return physical
        except DamagedEntry as error:
            _log.warning("event=records_not_looked_up from=%d reason=%s", start, error)
        return None

    def _is_in_queue(self, record: RecordFields, physical: int) -> bool:
        key, offset = (record[5], record[1]), record[2]
        queue = self._queues.by_key.get(key)
        if queue is not None and self._was_begun_anew(key, queue, offset, physical):
            return True
        if queue is None or offset >= queue.max_offset:
            _log.warning("event=queue_lacks_a_message topic=%s queue=%d offset=%d", *_name(key),
                         offset)  # fmt: skip
            if queue is not None and queue.min_offset == queue.max_offset < offset:
                self._change()
                queue.remove_files()  # what it had is gone: it begins where the log says
            return False
        if offset < queue.min_offset or _place(queue, offset)[0] != physical:
            _log.warning("event=queue_cut topic=%s queue=%d at=%d", *_name(key), offset)
            self._change()
            if offset <= queue.min_offset:
                queue.remove_files()
            else:
                queue.cut(offset)
            return False
        return True

    def _was_begun_anew(
        self, key: QueueKey, queue: "ConsumeQueue", offset: int, physical: int
    ) -> bool:
        """Tell whether a queue began behind a record of its own: its topic was deleted meanwhile.

        RocketMQ counts from 0 again then. What the log still has of before belongs to no queue.
        """
        low = queue.min_offset
        if not low <= offset or low == queue.max_offset or _place(queue, low)[0] <= physical:
            return False
        return self._is_right(key, queue, low)

    # 5. Where to begin

    def _safe_segment(self) -> int:
        """Return where the last segment begins whose first message the checkpoint covers."""
        promised = min(self._left.times.physic, self._left.times.logics) - SAFETY_MS
        for start in reversed(self._left.segments):
            try:
                walk = self._log.walk(max(start, self._log_begin), self._log_end, 1)
                first = next(walk, None)
            except DamagedEntry:
                continue
            if first is not None and 0 < store_timestamp(first[1][first[2] :]) <= promised:
                return start
        return self._log_begin

    def _misses_a_queue(self) -> bool:
        """Tell whether the files of a queue are gone that had messages."""
        for key, mark in self._left.known.items():
            queue = self._queues.by_key.get(key)
            if mark.max_offset > mark.min_offset and (queue is None or not queue.max_offset):
                _log.warning("event=queue_missing topic=%s queue=%d", *_name(key))
                return True
        return False

    def _lack_from(self, queue: "ConsumeQueue") -> None:
        """Dispatch must begin no later than with what follows the last unit of ``queue``."""
        end = self._log_begin
        if queue.max_offset > queue.min_offset:
            end = sum(_place(queue, queue.max_offset - 1))
        self._begin_max = min(self._begin_max, end)

    def _change(self) -> None:
        """Something is about to be cut or removed."""
        if self._before_change is not None:
            self._before_change()
            self._before_change = None


def _differs(queue: "ConsumeQueue", mark: QueueMark | None) -> bool:
    """Tell whether a queue's full blocks are others than those of ``mark``."""
    if mark is None or mark.first_file != queue.first_file:
        return False
    common = min(len(mark.crcs), len(queue.crcs)) // CRC_BYTES * CRC_BYTES
    return mark.crcs[:common] != queue.crcs[:common]


def names_in(disk: "Disk", directory: str) -> list[str]:
    """Return the names in a directory; none if a stray file has its name."""
    try:
        return disk.names(directory)
    except NotADirectoryError:
        return []


def _good_units(data: bytes, at: int, physical_end: int, log_begin: int) -> tuple[int, int]:
    """Count the units from ``at`` on that lie behind each other in the log.

    Returns that, and where in the log the last of them ends.
    """
    count = 0
    for physical, size, tags in UNIT.iter_unpack(memoryview(data)[at:]):
        if size <= 0 or physical < physical_end:
            break
        if tags <= EXT_ADDRESS_MAX and physical >= log_begin:
            break
        physical_end = physical + (size if size != SKIPPED_BYTES else 0)
        count += 1
    return count, physical_end


def _place(queue: "ConsumeQueue", offset: int) -> tuple[int, int]:
    """Return physical offset and size of the message at a queue offset; of what is none, 0."""
    physical, size, _ = UNIT.unpack(queue.read(offset, 1))
    return physical, size if size != SKIPPED_BYTES else 0


def _states(record: RecordFields, key: QueueKey, offset: int) -> bool:
    _, queue_id, queue_offset, flags, _, topic, _ = record
    return (topic, queue_id) == key and queue_offset == offset and not flags & FLAG_NOT_INDEXED


def _name(key: QueueKey) -> tuple[str, int]:
    return key[0].decode("utf-8", "replace"), key[1]
