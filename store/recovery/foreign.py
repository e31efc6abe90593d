"""Start in a directory that RocketMQ shares: does our own checkpoint count, or are queues adopted?

Our checkpoint counts if the record that it ends with is in the log, stored at the very millisecond
that it states: what precedes a record never changes. Then the queues are taken as it has them and
what follows is dispatched again, whoever wrote it. It does not count if RocketMQ wrote so much
since then that this would take long, or removed files that it names; nor if the log has lost its
end. Then the queues are adopted as they are (`store.recovery.foreign_queues`), and the checkpoint
is removed at once: the log may be written over up to the same positions before the next one is
written. Source: spec/disk.md 5.7.
"""

import logging
from typing import TYPE_CHECKING, Final
from zlib import crc32

from dledger.errors import DamagedEntry
from dledger.segments.places import segment_name
from store.layout import UNIT_BYTES, stored_or_zero
from store.queues.consume_queue import CRC_BYTES
from store.queues.start import LogStart
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CLEAN_FILE,
    Checkpoint,
    QueueMark,
    maybe_decode_checkpoint,
)
from store.recovery.foreign_queues import ForeignQueueRecovery, LeftBehind
from store.recovery.start import Recovered, load_queues

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Disk
    from store.plain import PlainLog
    from store.queues.consume_queue import ConsumeQueues
    from store.recovery.directory import StoreDirectory

BEHIND_BYTES_MAX: Final = 1 << 30
"""With more of the log behind our checkpoint, the queues are adopted."""

_log = logging.getLogger(__name__)


def take_over(
    directory: "StoreDirectory",
    disk: "Disk",
    queues: "ConsumeQueues",
    log: "PlainLog",
    *,
    is_foreign: bool = True,
) -> Recovered:
    """Fill the queues; the log is open, the directory entered and still as it was left.

    ``is_foreign``: RocketMQ may have written since our checkpoint. Errors: `FatalError`; `OSError`.
    """
    data = disk.read(f"{directory.path}/{CHECKPOINT_FILE}")
    checkpoint = maybe_decode_checkpoint(data) if data is not None else None
    counts = checkpoint is not None and _counts(checkpoint, disk, queues, log)
    is_ours = not directory.was_clean and not is_foreign
    if checkpoint is not None and counts and (is_ours or _are_as_left(checkpoint, queues, log)):
        if log.marks.maybe_end(checkpoint.head.marks[0]) != log.end_position:
            # Somebody wrote behind it: what the queues have of that goes, and is made again.
            directory.mark_unclean()
            directory.lower_times(checkpoint.head.store_timestamp)
            disk.remove(f"{directory.path}/{CLEAN_FILE}")
        recovered = load_queues(directory.path, disk, queues)
        recovered.marks = recovered.marks[:1]
        if recovered.rebuild:
            directory.mark_unclean()
            directory.lower_times()
    else:
        recovered = _adopt(directory, disk, queues, log, checkpoint)
    if log.first_position:
        LogStart(queues).advance_to(log.first_position)
    return recovered


def _adopt(
    directory: "StoreDirectory",
    disk: "Disk",
    queues: "ConsumeQueues",
    log: "PlainLog",
    checkpoint: Checkpoint | None,
) -> Recovered:
    known = () if checkpoint is None else checkpoint.queues
    segment_bytes = log.config.segment_bytes
    left = LeftBehind(
        clean=directory.was_clean,
        times=directory.times,
        segments=range(log.first_position, log.next_position, segment_bytes),
        segment_bytes=segment_bytes,
        last_start=log.written.last_start,
        known={(mark.topic.encode(), mark.queue_id): mark for mark in known},
    )

    def before_change() -> None:
        directory.mark_unclean()
        directory.lower_times()

    begin = ForeignQueueRecovery(disk, queues, log, left, before_change=before_change).run()
    for name in (CHECKPOINT_FILE, CLEAN_FILE):
        disk.remove(f"{directory.path}/{name}")
    return Recovered(rebuild=False, begin=begin)


def _are_as_left(checkpoint: Checkpoint, queues: "ConsumeQueues", log: "PlainLog") -> bool:
    """Tell whether the queues have what the checkpoint says, if RocketMQ wrote behind it.

    It makes the queues of a topic anew that was deleted, and counts from 0 again.
    """
    if log.marks.maybe_end(checkpoint.head.marks[0]) == log.end_position:
        return True
    return all(_is_as_left(mark, queues) for mark in checkpoint.queues)


def _is_as_left(mark: QueueMark, queues: "ConsumeQueues") -> bool:
    files = queues.files
    end = (mark.max_offset * UNIT_BYTES - 1) % files.file_bytes + 1
    start = (end - 1) // files.block_bytes * files.block_bytes
    first = mark.max_offset * UNIT_BYTES - end
    path = f"{queues.directory}/{mark.topic}/{mark.queue_id}/{segment_name(first)}"
    if files.disk.size(path) != files.file_bytes:
        return False
    whole = min(files.block_bytes, files.file_bytes - start) == end - start
    crc = int.from_bytes(mark.crcs[-CRC_BYTES:], "big") if whole else mark.crc
    return crc32(files.open(path).pread(start, end - start)) == crc


def _counts(checkpoint: Checkpoint, disk: "Disk", queues: "ConsumeQueues", log: "PlainLog") -> bool:
    """Tell whether our checkpoint is one of this log and these files."""
    head, files = checkpoint.head, queues.files
    if (head.file_bytes, head.block_bytes) != (files.file_bytes, files.block_bytes):
        return False
    if not head.marks:
        return False
    mark = head.marks[0]
    end = log.marks.maybe_end(mark)
    if mark.position < 0:
        return end is not None and not checkpoint.queues and log.end_position <= BEHIND_BYTES_MAX
    if end is None or log.end_position - end > BEHIND_BYTES_MAX or end <= log.first_position:
        return False
    try:
        stored = stored_or_zero(log.body_at(mark.position, end - mark.position))
    except (DamagedEntry, LookupError):
        return False
    if stored != head.store_timestamp:
        return False
    # With the beginning of the log, RocketMQ removes the first files of its queues.
    return not log.first_position or all(
        disk.size(
            f"{queues.directory}/{queue.topic}/{queue.queue_id}/{segment_name(queue.first_file)}"
        )
        for queue in checkpoint.queues
        if queue.max_offset * 20 > queue.first_file
    )
