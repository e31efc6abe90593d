"""What a store holds, in numbers: queues, log, index, and what they take on the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from store.offline.files import FileInfo, FileRow, ReadError
from store.offline.findings import Findings
from store.offline.index_files import IndexReader, NoIndexError, index_files
from store.offline.log import LogEnd, LogWalk, Progress
from store.offline.queues import QueueKey, Queues
from store.offline.records import Record
from store.offline.small_files import read_promises

if TYPE_CHECKING:
    from store.offline.folder import StoreFolder

Row = dict[str, Any]


@dataclass(slots=True)
class QueueCount:
    """What the log has of one queue; offsets are queue offsets, times ms."""

    topic: str
    queue_id: int
    messages: int = 0
    size: int = 0
    low: int = -1
    """Offset of the first message in the log, -1 without one."""
    high: int = -1
    """Offset behind the last one."""
    first_ms: int = 0
    last_ms: int = 0
    units: int = 0
    """Where the queue's own files end."""
    disk: tuple[int, int] = (0, 0)
    """Bytes that its files have, and take."""

    def add(self, record: Record) -> None:
        """Count a message."""
        self.messages += 1
        self.size += record.size
        self.low = record.queue_offset if self.low < 0 else min(self.low, record.queue_offset)
        self.high = max(self.high, record.queue_offset + 1)
        self.first_ms = self.first_ms or record.stored
        self.last_ms = max(self.last_ms, record.stored)

    def as_row(self) -> Row:
        """Return it as JSON has it."""
        return {
            "topic": self.topic, "queueId": self.queue_id, "messages": self.messages,
            "bytes": self.size, "minOffset": self.units if self.low < 0 else self.low,
            "maxOffset": self.units if self.high < 0 else self.high,
            "queueEnd": self.units, "firstStored": self.first_ms, "lastStored": self.last_ms,
            "queueBytes": self.disk[0], "queueAllocated": self.disk[1],
        }  # fmt: skip


@dataclass(slots=True)
class Statistics:
    """All numbers of a store."""

    folder: StoreFolder
    in_use_by: int | None
    queues: dict[QueueKey, QueueCount] = field(default_factory=dict)
    logs: list[Row] = field(default_factory=list)
    index: list[Row] = field(default_factory=list)
    state_records: int = 0
    """Records that are in no queue: state of the broker, halves of transactions."""
    damaged: int = 0
    """Places of the log that could not be read; ``verify`` says where."""

    def as_row(self) -> Row:
        """Return them as JSON has them."""
        return {
            "path": self.folder.root,
            "kind": self.folder.kind,
            "abort": self.folder.was_aborted,
            "inUseBy": self.in_use_by,
            "logs": self.logs,
            "otherRecords": self.state_records,
            "damagedPlaces": self.damaged,
            "index": self.index,
            "queues": [count.as_row() for _, count in sorted(self.queues.items())],
        }


def collect(folder: StoreFolder, progress: Progress | None = None) -> Statistics:
    """Count everything: one walk over the log, CRCs not looked at. Errors: none of the store."""
    found = Statistics(folder, folder.locked_by())
    promises = read_promises(folder, Findings())
    for log in folder.logs:
        begin = promises.begin if log is folder.dledger else None
        walk = LogWalk(log, begin=begin, check=False, progress=progress)
        records = 0
        first_ms = 0
        for item in walk.run():
            if not isinstance(item, Record):
                found.damaged += 1
                continue
            records += 1
            found.damaged += bool(item.problem)
            first_ms = first_ms or item.stored
            if item.is_queued and item.topic:
                _count_of(found, (item.topic, item.queue_id)).add(item)
            else:
                found.state_records += 1
        found.damaged += bool(walk.end.unread)
        row = _log_row(log.segments, walk.end) | {
            "kind": log.kind, "directory": log.directory, "records": records,
            "begin": begin[0] if begin else log.segments.start,
            "firstStored": first_ms, "lastStored": walk.end.last_stored,
        }  # fmt: skip
        if log is folder.dledger:
            row |= {
                "firstIndex": walk.end.first_index, "lastIndex": walk.end.last_index,
                "lastTerm": walk.end.last_term, "syncedIndex": promises.synced_index,
                "committedIndex": promises.committed_index,
                "snapshotIndex": promises.begin[1] - 1 if promises.begin else None,
                "indexBytes": log.units.apparent, "indexAllocated": log.units.allocated,
            }  # fmt: skip
        found.logs.append(row)
    if not folder.is_lone:
        _add_queue_files(folder, found)
        found.index = [_index_row(info) for info in index_files(folder.path("index"))[0]]
    return found


def _count_of(found: Statistics, key: QueueKey) -> QueueCount:
    count = found.queues.get(key)
    if count is None:
        count = found.queues[key] = QueueCount(key[0].decode("utf-8", "replace"), key[1])
    return count


def _log_row(row: FileRow, end: LogEnd) -> Row:
    return {
        "segments": len(row.files),
        "segmentBytes": row.file_bytes,
        "end": end.position,
        "apparentBytes": row.apparent,
        "allocatedBytes": row.allocated,
        "tailBytes": end.tail_bytes,
        "files": [
            {"start": info.base, "bytes": info.size, "allocated": info.allocated,
             "modified": info.modified_ms}
            for info in row.files
        ],
    }  # fmt: skip


def _add_queue_files(folder: StoreFolder, found: Statistics) -> None:
    queues = Queues(folder.path("consumequeue"))
    found.damaged += len(queues.unlisted)
    try:
        for key, queue in queues.by_key.items():
            count = _count_of(found, key)
            count.disk = (queue.files.row.apparent, queue.files.row.allocated)
            try:
                count.units = queue.end
            except ReadError:
                found.damaged += 1
    finally:
        queues.close()


def _index_row(info: FileInfo) -> Row:
    row: Row = {"file": info.path, "bytes": info.size, "allocated": info.allocated}
    try:
        reader = IndexReader(info)
    except (ReadError, NoIndexError) as error:
        return row | {"error": str(error)}
    reader.close()
    head = reader.head
    return row | {
        "entries": head.count - 1, "capacity": max(1, head.capacity), "usedSlots": head.used_slots,
        "slots": head.slots, "firstStored": head.begin_ms, "lastStored": head.end_ms,
        "firstOffset": head.begin_physical, "lastOffset": head.end_physical,
    }  # fmt: skip
