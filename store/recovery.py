"""Start: which consume queue units on disk can be trusted, and from which entry to dispatch again.

1. `load_queues`, before the log is open: each queue file that the checkpoint names is compared with
   its CRC. Good queues are taken as the checkpoint has them; what lies behind is zeroed, since it
   will be dispatched again. All other queue files are removed, and a queue that fails is made again
   from the start of the log.
2. `agree_with_log`, once it is open: the newest mark that names an entry of this very log counts,
   and the queues are cut back to it. An older one counts if the log has lost its end (power cut
   under asynchronous flush).

So after a start the queues hold what dispatching the log gives, whatever happened to the files.
Source: protocol.md 5.7 has RocketMQ's own way, which trusts the files and walks the last ones.
"""

import logging
import zlib
from typing import TYPE_CHECKING

import msgspec

from store.checkpoint import CHECKPOINT_FILE, LogMark, QueueMark, maybe_decode_checkpoint
from store.layout import UNIT, UNIT_BYTES, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runtime.disk import Disk
    from store.beginning import QueueBase
    from store.consume_queue import ConsumeQueue, ConsumeQueues
    from store.ports import LogNode

_log = logging.getLogger(__name__)


class Recovered(msgspec.Struct):
    """What `load_queues` found."""

    marks: tuple[LogMark, ...] = ()
    """Newest first; empty when dispatch begins at the start of the log."""
    rebuild: bool = True
    """Some queue must be made again from the start of the log."""


def load_queues(
    directory: str, disk: "Disk", queues: "ConsumeQueues", bases: "Iterable[QueueBase]" = ()
) -> Recovered:
    """Fill ``queues`` with what the checkpoint vouches for; remove all other queue files.

    ``bases``: where queues begin, so that files before that may be gone.
    Errors: `OSError` of the disk. Names that are no queue's are left alone.
    """
    data = disk.read(f"{directory}/{CHECKPOINT_FILE}")
    checkpoint = maybe_decode_checkpoint(data) if data is not None else None
    recovered = Recovered()
    if checkpoint is None:
        if data is not None:
            _log.warning("event=checkpoint_unreadable file=%s/%s", directory, CHECKPOINT_FILE)
    elif checkpoint.file_bytes != queues.files.file_bytes:
        _log.warning("event=queue_file_size_changed was=%d", checkpoint.file_bytes)
    else:
        recovered = Recovered(marks=checkpoint.marks, rebuild=False)
        begins = {(topic, queue_id): offset for topic, queue_id, offset in bases}
        for whole in checkpoint.queues:
            begin = begins.get((whole.topic, whole.queue_id), 0)
            if begin and begin >= whole.max_offset:
                continue  # nothing of it is left: it will begin, empty, where the log begins
            mark = _without_files_below(whole, begin * UNIT_BYTES, queues.files.file_bytes)
            if not _restore(mark, disk, queues):
                _log.warning("event=queue_damaged topic=%s queue=%d", mark.topic, mark.queue_id)
                recovered.rebuild = True
    _remove_strangers(disk, queues)
    return recovered


def agree_with_log(recovered: Recovered, queues: "ConsumeQueues", node: "LogNode") -> int:
    """Cut the queues to the log; return the index of the first entry to dispatch.

    Marks that are not of this log are dropped from ``recovered``.
    """
    if not recovered.marks:
        return node.first_index
    for number, mark in enumerate(recovered.marks):
        if _is_in_log(mark, node):
            if number > 0:
                _log.warning("event=queues_ahead_of_the_log cut_to_index=%d", mark.index)
                recovered.marks = recovered.marks[number:]
            _cut_all(queues, mark.position + node.header_bytes)
            return node.first_index if recovered.rebuild else node.following(mark.index)
    _log.warning("event=queues_are_of_another_log rebuild_from=%d", node.first_index)
    _cut_all(queues, -1)
    recovered.marks = ()
    return node.first_index


def _without_files_below(mark: QueueMark, begin: int, file_bytes: int) -> QueueMark:
    """Return a mark without the files that end at or before byte ``begin``, nor their units."""
    gone = min(max(0, (begin - mark.first_file) // file_bytes), len(mark.crcs))
    first_file = mark.first_file + gone * file_bytes
    return msgspec.structs.replace(
        mark,
        first_file=first_file,
        crcs=mark.crcs[gone:],
        min_offset=max(mark.min_offset, first_file // UNIT_BYTES),
    )


def _restore(mark: QueueMark, disk: "Disk", queues: "ConsumeQueues") -> bool:
    """Take over one queue if its files are as ``mark`` says."""
    queue = queues.maybe_make(mark.topic.encode(), mark.queue_id)
    if queue is None:
        return False
    file_bytes = queues.files.file_bytes
    end = mark.max_offset * UNIT_BYTES
    for number, crc in enumerate(mark.crcs):
        start = mark.first_file + number * file_bytes
        used = min(end - start, file_bytes)
        path = queue.path(start)
        if used <= 0 or disk.size(path) != file_bytes:
            return False
        file = queues.files.open(path)
        if zlib.crc32(file.pread(0, used)) != crc:
            return False
        if start + file_bytes > end and file.nonzero_end(used) > used:
            file.zero_from(used)
    if mark.first_file + len(mark.crcs) * file_bytes < end:
        return False
    queue.min_offset = mark.min_offset
    queue.max_offset = mark.max_offset
    queue.first_file = mark.first_file
    queue.written = end
    queue.crcs = list(mark.crcs)
    return True


def _remove_strangers(disk: "Disk", queues: "ConsumeQueues") -> None:
    """Remove the queue files that no restored queue claims."""
    for topic in disk.names(queues.directory):
        for queue_id in _names(disk, f"{queues.directory}/{topic}"):
            if not queue_id.isascii() or not queue_id.isdigit():
                continue
            directory = f"{queues.directory}/{topic}/{queue_id}"
            queue = queues.by_name.get((topic, int(queue_id)))
            kept: set[str] = set()
            if queue is not None and queue.directory == directory:
                kept = {
                    file_name(queue.first_file + number * queues.files.file_bytes)
                    for number in range(len(queue.crcs))
                }
            for name in _names(disk, directory):
                if name not in kept and len(name) == 20 and name.isascii() and name.isdigit():
                    queues.files.remove(f"{directory}/{name}")


def _names(disk: "Disk", directory: str) -> list[str]:
    """Return the names in a directory; none if a stray file has its name."""
    try:
        return disk.names(directory)
    except NotADirectoryError:
        return []


def _is_in_log(mark: LogMark, node: "LogNode") -> bool:
    return mark.index < 0 or node.holds(mark.index, mark.term, mark.position)


def _cut_all(queues: "ConsumeQueues", physical_last: int) -> None:
    """Drop all units of messages that lie behind ``physical_last``."""
    for queue in queues.by_key.values():
        low, high = queue.min_offset, queue.max_offset
        if low < high and _physical_at(queue, high - 1) <= physical_last:
            continue
        while low < high:
            middle = (low + high) // 2
            if _physical_at(queue, middle) <= physical_last:
                low = middle + 1
            else:
                high = middle
        if low < queue.max_offset:
            queue.cut(low)


def _physical_at(queue: "ConsumeQueue", offset: int) -> int:
    return int(UNIT.unpack(queue.read(offset, 1))[0])
