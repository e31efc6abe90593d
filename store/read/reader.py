"""Reading: messages by queue offset, by time and by physical offset, out of the mapped log.

Only what was dispatched can be found in a queue, and only committed entries are dispatched, so that
nothing uncommitted is ever read. It changes nothing.

Each record is compared with its CRC in each read, although the one before may have done it: what is
in memory may be dropped and read from a corrupt disk again at any time, and nobody is told. It is a
quarter of what a read costs. A record must also be that of the queue and offset asked for, so that
a unit that was corrupted since it was checked never shows another message.

Units are read in pieces that serve several reads of a queue. What lies far behind the end of the
log is probably not in memory: fewer messages are read then, so that nobody else waits long for the
disk, and the kernel is asked for those of the next read.
Source: spec/wire.md 3.5 (statuses, next offsets, limits); spec/disk.md 5.3 (search by time);
RocketMQ DefaultMessageStore.getMessage, ConsumeQueue.getOffsetInQueueByTime.
"""

import logging
from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, Final

from dledger.errors import DamagedEntry
from store.layout import (
    FLAGS_HOSTS_V6,
    SKIPPED_BYTES,
    UNIT,
    UNIT_BYTES,
    CorruptRecord,
    read_record,
    record_size,
    store_timestamp,
    whole_record,
)
from store.queues.consume_queue import DamagedUnits
from store.read.key_query import KeyQuery, KeyResult
from store.results import Boundary, GetResult, GetStatus, RecordTest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.config import StoreConfig
    from store.index import IndexKeeper
    from store.ports import LogFiles, LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues
    from store.results import Wanted


PIECE_UNITS: Final = 512
"""Units read at once from a queue that has so many more; 10 KB."""
LACKING_MAX: Final = 1000
"""Lost messages that are told of."""
PIECES_MAX: Final = 128
"""Queues of which units are kept."""
AHEAD_BYTES: Final = 1 << 20
"""The kernel is asked for no more at a time."""
_LIGHT_QUEUE: Final = "%LMQ%"
"""Queues whose units name records of other topics (``enableLmq``)."""
_NO_PIECE: Final = (0, b"")
_UNREADABLE: Final = frozenset({GetStatus.DAMAGED, GetStatus.LOST})
_log = logging.getLogger(__name__)
_unpack_place = Struct(">i4xq8xi").unpack_from
"""Queue id, queue offset and sysFlag of a record, from byte 12 on."""
_unpack_physical = Struct(">q").unpack_from


class _NoMessage(LookupError):  # noqa: N818  # an outcome, no error
    """A unit names what an earlier version put into the queue, see `store.dispatch.anomalies`."""


class Reader:
    """Answers questions about stored messages."""

    def __init__(
        self,
        config: "StoreConfig",
        queues: "ConsumeQueues",
        log: "LogReader",
        files: "LogFiles",
        index: "IndexKeeper | None" = None,
    ) -> None:
        self._by_name = queues.by_name
        self._log = log
        self._files = files
        self._is_replicated = config.is_replicated
        self._keys = None if index is None else KeyQuery(index.config, index.index, self.message_at)
        self._count_max = config.get_messages_max
        self._bytes_max = config.get_bytes_max
        self._units_max = config.get_units_max
        self._units_per_file = config.queue_file_bytes // UNIT_BYTES
        self._cold_behind = config.cold_behind_bytes
        self._cold_count_max = config.get_cold_messages_max
        self._cold_bytes_max = config.get_cold_bytes_max
        self._lacking: set[int] = set()
        """Places where units of queues say that messages lie, and none do; each had a log line."""
        self._lost: set[int] = set()
        """Places of messages that are damaged for good; each had a log line, too."""
        self._pieces: dict[ConsumeQueue, tuple[int, bytes]] = {}
        """Units read last from a queue, and the offset of the first; the longest unused first."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        wanted: "Wanted",
    ) -> GetResult:
        """Return messages from queue offset ``offset`` on, as spec/wire.md 3.5 says.

        ``max_count`` and ``max_bytes`` count up to the limits of the configuration; the first
        message is returned whatever its size.
        Records are views of the mapped log, each with the CRC of its entry; the answer ends before
        one that is damaged.
        """
        queue = self._by_name.get((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            return _out_of_range(offset, low, high)
        max_count = min(max_count, self._count_max) or 1
        max_bytes = min(max_bytes, self._bytes_max)
        scan = self._units_max
        if wanted is None:
            scan = min(max_count, scan)
        elif isinstance(wanted, RecordTest):
            scan = min(wanted.records_max, scan)
        try:
            units = self._units(queue, offset, min(scan, high - offset))
        except DamagedUnits:
            return GetResult(GetStatus.DAMAGED, offset, low, high, [], 0, 0)
        behind = self._log.committed_position - _unpack_physical(units)[0]
        is_cold = 0 < self._cold_behind < behind
        if is_cold:
            max_count = min(max_count, self._cold_count_max)
            max_bytes = min(max_bytes, self._cold_bytes_max)
            self._read_ahead(units, 2 * max_count)
        limits = (max_count, max_bytes)
        buffers, size_bytes, scanned, status = self._collect(queue, offset, units, limits, wanted)
        return GetResult(
            status, offset + scanned, low, high, buffers, len(buffers), size_bytes, is_cold
        )

    def _units(self, queue: "ConsumeQueue", offset: int, count: int) -> bytes:
        """Return units; more of them are read at a time where more reads are to be expected.

        Errors: `DamagedUnits`.
        """
        if queue.max_offset - offset < PIECE_UNITS:
            return queue.read(offset, count)
        first, piece = self._pieces.pop(queue, _NO_PIECE)
        at = (offset - first) * UNIT_BYTES
        if at < 0 or at + count * UNIT_BYTES > len(piece):
            first, at = offset, 0
            piece = queue.read(offset, max(count, PIECE_UNITS))
            if len(self._pieces) >= PIECES_MAX:
                del self._pieces[next(iter(self._pieces))]
        self._pieces[queue] = (first, piece)
        return piece[at : at + count * UNIT_BYTES]

    def _read_ahead(self, units: bytes, count: int) -> None:
        """Ask for the records of the first units, together if they lie close to each other."""
        places = [place[:2] for place in UNIT.iter_unpack(units[: count * UNIT_BYTES])]
        begin = places[0][0]
        span = sum(places[-1]) - begin
        if 0 < span <= AHEAD_BYTES:
            self._files.read_ahead(begin, span)
        else:
            for physical, size in places:
                self._files.read_ahead(physical, min(size, AHEAD_BYTES))

    def _collect(
        self,
        queue: "ConsumeQueue",
        offset: int,
        units: bytes,
        limits: tuple[int, int],
        wanted: "Wanted",
    ) -> tuple[list[memoryview], int, int, GetStatus]:
        """Return (views, bytes, units scanned, status) for these units."""
        max_count, max_bytes = limits
        test, codes = (wanted, None) if isinstance(wanted, RecordTest) else (None, wanted)
        body_at = self._log.body_at
        removed_below = self._log.first_position
        buffers: list[memoryview] = []
        count = scanned = total = 0
        status = GetStatus.NO_MATCHED_MESSAGE
        places = UNIT.iter_unpack(units) if test is None else _looked_into(units, test.bytes_max)
        for physical, size, tags in places:
            if count and (count >= max_count or total + size > max_bytes):
                break
            scanned += 1
            if codes is not None and tags not in codes:
                continue
            if physical < removed_below:
                status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            try:
                record = body_at(physical, size)
                queue_id, queue_offset, flags = _unpack_place(record, 12)
                at_place = (queue_offset, queue_id) == (offset + scanned - 1, queue.queue_id)
                if not at_place or flags & FLAGS_HOSTS_V6:
                    _check_record(queue, record, physical, at_place=at_place)
            except (DamagedEntry, LookupError) as error:
                if size == SKIPPED_BYTES or isinstance(error, _NoMessage):
                    continue
                scanned -= 1
                self._note(queue, offset + scanned, physical, error)
                status = status if scanned else self._judge(queue, offset, physical)
                break
            if test is not None and not test.matches(record):
                continue
            buffers.append(record)
            count += 1
            total += size
        if not scanned and status not in _UNREADABLE:
            status = GetStatus.OFFSET_FOUND_NULL
        return buffers, total, scanned, GetStatus.FOUND if count else status

    def _note(self, queue: "ConsumeQueue", offset: int, physical: int, error: Exception) -> None:
        """Look again at units that name no message of their queue: they may be corrupt.

        If not, what they name has, and nobody knows it for a message any more.
        """
        if not isinstance(error, LookupError):
            return
        self._pieces.pop(queue, None)
        queue.distrust(offset)
        if physical not in self._lacking and len(self._lacking) < LACKING_MAX:
            self._lacking.add(physical)
            _log.error(
                "event=message_not_found topic=%s queue=%d queue_offset=%d %s",
                queue.topic, queue.queue_id, offset, self._files.describe(physical),
            )  # fmt: skip

    def _judge(self, queue: "ConsumeQueue", offset: int, physical: int) -> GetStatus:
        """Tell whether a message that cannot be read will be there later.

        It will in a group; and anywhere if the unit is what is wrong, which the log makes good.
        """
        if self._is_replicated:
            return GetStatus.DAMAGED
        self._pieces.pop(queue, None)
        queue.distrust(offset)
        try:
            unit = queue.read(offset, 1)
        except DamagedUnits:
            return GetStatus.DAMAGED
        if _unpack_physical(unit)[0] != physical:
            return GetStatus.DAMAGED
        if physical not in self._lost and len(self._lost) < LACKING_MAX:
            self._lost.add(physical)
            _log.error(
                "event=message_lost topic=%s queue=%d queue_offset=%d %s",
                queue.topic, queue.queue_id, offset, self._files.describe(physical),
            )  # fmt: skip
        return GetStatus.LOST

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return one past the last readable queue offset; 0 for a queue that does not exist."""
        queue = self._by_name.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first readable queue offset; 0 for a queue that does not exist."""
        queue = self._by_name.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def begins_recently(self, topic: str, queue_id: int) -> bool:
        """Tell whether a queue holds all it ever got, none of it far behind the log's end.

        Source: RocketMQ DefaultMessageStore.checkInDiskByConsumeOffset.
        """
        queue = self._by_name.get((topic, queue_id))
        if queue is None or queue.min_offset > 0:
            return queue is None
        if queue.max_offset == 0 or self._cold_behind == 0:
            return True
        try:
            begin = _unpack_physical(self._units(queue, 0, 1))[0]
        except DamagedUnits:
            return True  # nothing is skipped then
        return bool(self._log.committed_position - begin <= self._cold_behind)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store timestamp (ms) of the queue's first message, -1 if it has none."""
        queue = self._by_name.get((topic, queue_id))
        if queue is None or queue.max_offset == queue.min_offset:
            return -1
        return self._stored_at(queue, queue.min_offset)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when the message at a queue offset was stored (ms), -1 if there is none.

        Errors: `DamagedEntry`, `DamagedUnits`.
        """
        queue = self._by_name.get((topic, queue_id))
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        return self._stored_at(queue, offset)

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]] | None:
        """Return up to ``count`` units of a queue from ``offset`` on; None for no such queue.

        A unit is the place of a message in the log, its size, and the code of its tags.
        Errors: `DamagedUnits`.
        """
        queue = self._by_name.get((topic, queue_id))
        if queue is None:
            return None
        count = min(count, queue.max_offset - offset)
        if count <= 0 or offset < queue.min_offset:
            return []
        return list(UNIT.iter_unpack(queue.read(offset, count)))

    def log_range(self) -> tuple[int, int]:
        """Return where the log begins and where its last committed entry ends."""
        return self._log.first_position, self._log.committed_position

    def begin_time(self) -> int:
        """Return when the first entry that the log holds was stored (ms).

        -1 where there is none, or it cannot be read.
        """
        log = self._log
        first = log.first_position + log.header_bytes
        if first >= log.committed_position:
            return -1
        try:
            size = log.maybe_size(first)
            return -1 if size is None else store_timestamp(log.body_at(first, size))
        except (DamagedEntry, LookupError):
            return -1

    def messages_of_key(self, topic: str, key: str, limit: int, span: tuple[int, int]) -> KeyResult:
        """Return messages by key, see `KeyQuery.find`; none without an index."""
        return KeyResult([]) if self._keys is None else self._keys.find(topic, key, limit, span)

    def message_at(self, physical_offset: int) -> memoryview | None:
        """Return the committed record at ``physical_offset``, None if no record begins there.

        Errors: `DamagedEntry` when it is damaged on this disk.
        """
        log = self._log
        first = log.first_position + log.header_bytes
        if not first <= physical_offset < log.committed_position:
            return None
        size = log.maybe_size(physical_offset)
        if size is None:
            return None
        record = log.body_at(physical_offset, size)
        if record_size(record, physical_offset) != len(record):
            return None
        if not self._is_replicated and not self._is_in_its_queue(record, physical_offset):
            return None  # such a log has no index: these may be bytes that a sender made up
        return record

    def _is_in_its_queue(self, record: memoryview, physical_offset: int) -> bool:
        """Tell whether the queue that a record names has a message there. Errors: as `units`."""
        try:
            _, queue_id, offset, _, _, topic, _ = read_record(record)
        except CorruptRecord:
            return False
        units = self.units(topic.decode("utf-8", "replace"), queue_id, offset, 1)
        return [unit[:2] for unit in units or ()] == [(physical_offset, len(record))]

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary | None = None
    ) -> int:
        """Return the queue offset that belongs to a time (ms); 0 for a queue without messages.

        Without a boundary as RocketMQ 4.9 does it: the message stored nearest to ``timestamp``
        within the first file that reaches it. With one as RocketMQ 5 does, see `Boundary`.
        """
        queue = self._by_name.get((topic, queue_id))
        if queue is None or queue.max_offset == queue.min_offset:
            return 0
        if boundary is None:
            return self._nearest(queue, timestamp)
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            stored = self._stored_at(queue, middle)
            if stored < timestamp or (boundary is Boundary.UPPER and stored == timestamp):
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.LOWER:
            return low
        return low - 1 if low > queue.min_offset else 0

    def _nearest(self, queue: "ConsumeQueue", timestamp: int) -> int:
        """Search one file, as 4.9 does: with its midpoints, so that equal times give its choice."""
        first, end = self._file_reaching(queue, timestamp)
        low, high = max(first, queue.min_offset), end - 1
        left = right = -1
        left_time = right_time = -1
        while low <= high:
            middle = first + (low - first + high - first) // 2
            stored = self._stored_at(queue, middle)
            if stored == timestamp:
                return middle
            if stored > timestamp:
                high, right, right_time = middle - 1, middle, stored
            else:
                low, left, left_time = middle + 1, middle, stored
        if left < 0:
            return right
        if right < 0:
            return left
        return right if timestamp - left_time > right_time - timestamp else left

    def _file_reaching(self, queue: "ConsumeQueue", timestamp: int) -> tuple[int, int]:
        """Return the units [first, end) of the first file that ends at or after ``timestamp``.

        RocketMQ takes files by when they were last changed, which is when their last message was
        stored; that is asked of the message, since a rebuilt file is younger than its messages.
        Each may lie on the disk alone, so that not all of them are asked.
        """
        count = self._units_per_file
        files = range(queue.min_offset // count, (queue.max_offset - 1) // count)  # but the last
        first = count * (
            files.start
            + bisect_left(
                files, timestamp, key=lambda n: self._stored_at(queue, (n + 1) * count - 1)
            )
        )
        return first, min(first + count, queue.max_offset)

    def _stored_at(self, queue: "ConsumeQueue", offset: int) -> int:
        """Return when a message was stored (ms). Errors: `DamagedEntry`."""
        physical, size, _ = UNIT.unpack(queue.read(offset, 1))
        while size == SKIPPED_BYTES and offset + 1 < queue.max_offset:
            offset += 1  # the message behind stands for what was skipped before it
            physical, size, _ = UNIT.unpack(queue.read(offset, 1))
        try:
            record = self._log.body_at(physical, size)
            if record[39] & FLAGS_HOSTS_V6 and not _is_whole(record, physical):
                return int.from_bytes(record[40:48], "big")  # born then, at least
            return store_timestamp(record)
        except LookupError as error:
            raise DamagedEntry(-1, self._files.describe(physical)) from error


def _looked_into(units: bytes, bytes_max: int) -> "Iterator[tuple[int, int, int]]":
    """Return the first of some units: what they name is no larger together, but for the first."""
    left = bytes_max
    for place in UNIT.iter_unpack(units):
        left -= place[1]
        if left < 0 and left + place[1] < bytes_max:
            return
        yield place


def _check_record(
    queue: "ConsumeQueue", record: memoryview, physical: int, *, at_place: bool
) -> None:
    """Take a record of another queue or offset as none, unless RocketMQ puts such there.

    Errors: `LookupError`; `_NoMessage`.
    """
    if not at_place and not queue.topic.startswith(_LIGHT_QUEUE):
        raise LookupError(queue.topic, len(record))
    if not _is_whole(record, physical):
        raise _NoMessage(physical)


def _is_whole(record: memoryview, physical: int) -> bool:
    try:
        whole_record(record, 0, len(record), physical)
    except CorruptRecord:
        return False
    return True


def _out_of_range(offset: int, low: int, high: int) -> GetResult:
    if high == 0:
        status, following = GetStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < low:
        status, following = GetStatus.OFFSET_TOO_SMALL, low
    elif offset == high:
        status, following = GetStatus.OFFSET_OVERFLOW_ONE, offset
    else:
        status, following = GetStatus.OFFSET_OVERFLOW_BADLY, high
    return GetResult(status, following, low, high, [], 0, 0)
