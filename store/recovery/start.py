"""Start: which consume queue units on disk can be trusted, and from which entry to dispatch again.

1. `load_queues`, before the log is open: queues are taken as the checkpoint has them, if their
   files are there. Blocks are compared with their CRC, up to a number that takes no time worth
   naming; the others before they are first read (`ConsumeQueue.check`), so that a start takes as
   long with many messages as with few. A queue that fails here is made again from the start of the
   log. Unless the last stop was clean, what lies behind the checkpoint is zeroed, since it will be
   dispatched again, and queue files that it does not name are removed.
2. `agree_with_log`, once it is open: the newest mark that names an entry of this very log counts,
   and the queues are cut back to it. An older one counts if the log has lost its end (power cut
   under asynchronous flush).

So after a start the queues hold what dispatching the log gives, whatever happened to the files.
Source: spec/disk.md 5.7 has RocketMQ's own way, which trusts the files and walks the last ones.
"""

import logging
from typing import TYPE_CHECKING, Final

import msgspec

from dledger.mark import LogMark
from dledger.segments.places import is_segment_name
from store.layout import LIGHT_QUEUE_PREFIX, UNIT, UNIT_BYTES
from store.queues.consume_queue import CRC_BYTES, DamagedUnits
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    CLEAN_FILE,
    QueueMark,
    checkpoint_id,
    maybe_decode_checkpoint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledgermq.runtime.disk import Disk
    from store.ports import LogMarks, LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues
    from store.queues.files import QueueFiles
    from store.queues.start import QueueStart

CHECKED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of queue files that a start compares with their CRCs."""
BLOCK_COST_BYTES: Final = 16 * 1024
"""A block costs at least as much time as so many bytes."""
SEARCHED_QUEUES_MAX: Final = 2000
"""With more queues, a clean stop is believed that nothing lies behind their ends or beside them."""

_log = logging.getLogger(__name__)


class Recovered(msgspec.Struct):
    """What `load_queues` found."""

    marks: tuple[LogMark, ...] = ()
    """Newest first; empty when dispatch begins at the start of the log."""
    rebuild: bool = True
    """Some queue must be made again from the start of the log."""
    clean: bool = False
    """The files hold exactly what the newest mark says."""
    begin: int | None = None
    """Where to begin without marks, if not at the start of the log; see
    `store.recovery.foreign_queues`.
    """
    ends: "dict[ConsumeQueue, int]" = {}
    """Where the messages of the last units lie, of queues with their last blocks compared."""


def load_queues(
    directory: str, disk: "Disk", queues: "ConsumeQueues", bases: "Iterable[QueueStart]" = ()
) -> Recovered:
    """Fill ``queues`` with what the checkpoint vouches for; remove all other queue files.

    ``bases``: where queues begin, so that files before that may be gone.
    Errors: `OSError` of the disk. Names that are no queue's are left alone.
    """
    data = disk.read(f"{directory}/{CHECKPOINT_FILE}")
    checkpoint = maybe_decode_checkpoint(data) if data is not None else None
    last = disk.read(f"{directory}/{CLEAN_FILE}")
    is_clean = data is not None and last == checkpoint_id(data)
    recovered = Recovered()
    files = queues.files
    leaves = False
    if checkpoint is None:
        if data is not None:
            _log.warning("event=checkpoint_unreadable file=%s/%s", directory, CHECKPOINT_FILE)
    elif checkpoint.head.file_bytes != files.file_bytes:
        _log.warning("event=queue_file_size_changed was=%d", checkpoint.head.file_bytes)
    elif checkpoint.head.block_bytes == files.block_bytes:
        recovered = Recovered(checkpoint.head.marks, rebuild=False, clean=is_clean)
        leaves = _restore_all(checkpoint.queues, recovered, queues, bases)
        recovered.clean = is_clean and not recovered.rebuild
    if leaves or not recovered.clean or len(queues.by_key) <= SEARCHED_QUEUES_MAX:
        _remove_strangers(disk, queues)
    if last is not None:
        disk.remove(f"{directory}/{CLEAN_FILE}")  # before anything is written behind it
    return recovered


def _restore_all(
    marks: "Sequence[QueueMark]",
    recovered: Recovered,
    queues: "ConsumeQueues",
    bases: "Iterable[QueueStart]",
) -> bool:
    """Take over the queues of a checkpoint; returns whether files are left that nobody needs."""
    begins = {(topic, queue_id): offset for topic, queue_id, offset in bases}
    budget = CHECKED_BYTES
    is_searched = not recovered.clean or len(marks) <= SEARCHED_QUEUES_MAX
    leaves = False
    for whole in marks:
        begin = begins.get((whole.topic, whole.queue_id), 0)
        leaves = leaves or begin * UNIT_BYTES >= whole.first_file + queues.files.file_bytes
        if begin and begin >= whole.max_offset:
            leaves = True
            continue  # nothing of it is left: it will begin, empty, where the log begins
        mark = _without_files_below(whole, begin * UNIT_BYTES, queues) if begin else whole
        queue = queues.maybe_make(mark.topic.encode(), mark.queue_id)
        if queue is None or not _restore(mark, queue, queues):
            _note_damaged(mark, recovered)
            continue
        try:
            if is_searched:
                _zero_behind(queue, queues.files)
            if not recovered.clean:  # while its last file is open
                recovered.ends[queue] = queue.last_physical()
            if budget > 0:
                budget -= _check(queue, budget)
        except DamagedUnits:
            _note_damaged(mark, recovered)
            queues.files.forget_damage(queue)
            recovered.ends.pop(queue, None)
            queue.reset()
    return leaves


def _note_damaged(mark: QueueMark, recovered: Recovered) -> None:
    _log.warning("event=queue_damaged topic=%s queue=%d", mark.topic, mark.queue_id)
    recovered.rebuild = True


def agree_with_log(
    recovered: Recovered, queues: "ConsumeQueues", log: "LogReader", marks: "LogMarks"
) -> int:
    """Cut the queues to the log; return the position at which to begin to dispatch.

    Marks that are not of this log are dropped from ``recovered``.
    """
    if not recovered.marks:
        return log.first_position if recovered.begin is None else recovered.begin
    for number, mark in enumerate(recovered.marks):
        end = marks.maybe_end(mark)
        if end is not None:
            if number > 0:
                _log.warning("event=queues_ahead_of_the_log cut_to=%d", end)
                recovered.marks = recovered.marks[number:]
            if not recovered.clean or number > 0:
                _cut_all(recovered, queues, end if mark.position >= 0 else 0)
            return log.first_position if recovered.rebuild else end
    _log.warning("event=queues_are_of_another_log rebuild_from=%d", log.first_position)
    _cut_all(recovered, queues, 0)
    recovered.marks = ()
    return log.first_position


def _without_files_below(mark: QueueMark, begin: int, queues: "ConsumeQueues") -> QueueMark:
    """Return a mark without the files that end at or before byte ``begin``, nor their units."""
    files = queues.files
    filled = (mark.max_offset * UNIT_BYTES - mark.first_file) // files.file_bytes
    gone = min(max(0, (begin - mark.first_file) // files.file_bytes), filled)
    first_file = mark.first_file + gone * files.file_bytes
    return msgspec.structs.replace(
        mark,
        first_file=first_file,
        crcs=mark.crcs[gone * files.file_blocks * CRC_BYTES :],
        min_offset=max(mark.min_offset, first_file // UNIT_BYTES),
    )


def _restore(mark: QueueMark, queue: "ConsumeQueue", queues: "ConsumeQueues") -> bool:
    """Take over one queue if its files are there."""
    files = queues.files
    end = mark.max_offset * UNIT_BYTES
    if not 0 <= mark.first_file < end or mark.first_file % files.file_bytes:
        return False
    queue.min_offset = mark.min_offset
    queue.max_offset = mark.max_offset
    queue.first_file = mark.first_file
    queue.written = end
    queue.crcs = mark.crcs
    queue.crc = mark.crc
    blocks = queue.block_count
    queue.unchecked = (1 << blocks) - 1
    paths = queue.paths()
    is_partial = len(mark.crcs) < blocks * CRC_BYTES
    fits = len(mark.crcs) // CRC_BYTES + is_partial == blocks and not len(mark.crcs) % CRC_BYTES
    if not fits or any(files.disk.size(path) != files.file_bytes for path in paths):
        queue.reset()
        return False
    return True


def _zero_behind(queue: "ConsumeQueue", files: "QueueFiles") -> None:
    """Zero what lies behind the end of a queue."""
    used = (queue.written - 1) % files.file_bytes + 1
    path = queue.path(queue.written - used)
    if used < files.file_bytes:
        file = files.open(path)
        if file.nonzero_end(used) > used:
            file.zero_from(used)
            files.mark_unsynced((path,))


def _check(queue: "ConsumeQueue", budget: int) -> int:
    """Compare blocks with their CRCs as long as ``budget`` lasts; return what of it was used.

    Errors: `DamagedUnits`.
    """
    used = 0
    for block in range(queue.block_count):
        start, end = queue.block_range(block)
        used += max(BLOCK_COST_BYTES, end - start)
        queue.check(start, end)
        if used >= budget:
            break
    return used


def _remove_strangers(disk: "Disk", queues: "ConsumeQueues") -> None:
    """Remove the queue files that no restored queue claims."""
    for topic in disk.names(queues.directory):
        if topic.startswith(LIGHT_QUEUE_PREFIX):
            continue
        for queue_id in _names(disk, f"{queues.directory}/{topic}"):
            if not queue_id.isascii() or not queue_id.isdigit():
                continue
            directory = f"{queues.directory}/{topic}/{queue_id}"
            queue = queues.by_name.get((topic, int(queue_id)))
            kept = [] if queue is None or queue_id != str(queue.queue_id) else queue.names()
            names = _names(disk, directory)
            for name in names if names != kept else ():
                if name not in kept and is_segment_name(name):
                    queues.files.remove(f"{directory}/{name}")


def _names(disk: "Disk", directory: str) -> list[str]:
    """Return the names in a directory; none if a stray file has its name."""
    try:
        return disk.names(directory)
    except NotADirectoryError:
        return []


def _cut_all(recovered: Recovered, queues: "ConsumeQueues", end: int) -> None:
    """Drop all units of messages that lie at ``end`` or behind."""
    for queue in queues.by_key.values():
        if recovered.ends.get(queue, end) < end:
            continue
        try:
            _cut(queue, end)
        except DamagedUnits:
            _log.warning("event=queue_damaged topic=%s queue=%d", queue.topic, queue.queue_id)
            recovered.rebuild = True
            queue.remove_files()


def _cut(queue: "ConsumeQueue", end: int) -> None:
    low, high = queue.min_offset, queue.max_offset
    if low < high and _physical_at(queue, high - 1) < end:
        return
    while low < high:
        middle = (low + high) // 2
        if _physical_at(queue, middle) < end:
            low = middle + 1
        else:
            high = middle
    if low < queue.max_offset:
        queue.cut(low)


def _physical_at(queue: "ConsumeQueue", offset: int) -> int:
    return int(UNIT.unpack(queue.read(offset, 1))[0])
