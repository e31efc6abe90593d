"""Queues of a log without its beginning that do not begin with their first message in it.

Their files were lost or zeroed at the front: dispatch would take messages before the first unit for
known, or end at one that leaves offsets out. Such a queue has nothing left, or begins with a file
whose very first unit is of a message in the log; all others begin somewhere within a file. What is
found is to be made anew.

What the log does not contradict counts on, also where only the name of a file says how far.
"""

import logging
from typing import TYPE_CHECKING, Final

from dledger.errors import DamagedEntry
from store.layout import FLAG_NOT_INDEXED, UNIT_BYTES, CorruptRecord, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store.ports import LogReader
    from store.queues.consume_queue import ConsumeQueue, ConsumeQueues

ALL: Final = 1 << 62
"""The walk has no other limit than its end."""

_log = logging.getLogger(__name__)


def find_wrong_beginnings(
    queues: "Mapping[tuple[bytes, int], ConsumeQueue]",
    file_bytes: int,
    log: "LogReader",
    *,
    is_small: bool,
) -> "list[ConsumeQueue]":
    """Return the queues that are to be made anew from the beginning of the log.

    ``file_bytes``: of the files of queues. ``is_small``: whether all of the log may be read, which
    those that have nothing left ask for. All of a larger one is read for those whose count no unit
    bears out, but only the name of a file.
    """
    ends = {
        key: _end_of_search(queue, file_bytes, log.end_position, is_small=is_small)
        for key, queue in queues.items()
        if queue.min_offset
    }
    end = max(ends.values(), default=0)
    found: list[ConsumeQueue] = []
    try:
        for physical, chunk, at, _ in log.walk(log.first_position, end, ALL):
            try:
                _, queue_id, offset, flags, _, topic, _ = read_record(chunk, at)
            except CorruptRecord:
                continue
            if physical < ends.get((topic, queue_id), 0) and not flags & FLAG_NOT_INDEXED:
                del ends[topic, queue_id]
                queue = queues[topic, queue_id]
                if offset < queue.min_offset or _lacks(queue, offset):
                    _log.warning(
                        "event=queue_begins_elsewhere topic=%s queue=%d at=%d log_has=%d",
                        queue.topic, queue_id, queue.min_offset, offset,
                    )  # fmt: skip
                    found.append(queue)
    except DamagedEntry as error:
        _log.warning("event=beginnings_not_looked_up reason=%s", error)
    return found


def keep_counts(queues: "ConsumeQueues") -> None:
    """Have units bear out how far a queue has counted of which only a file's name is left.

    No checkpoint of ours keeps a queue without units: it would count from 0 again. They lie in the
    file before: the log may have the very next message, which is to be dispatched yet.
    """
    for queue in queues.by_key.values():
        offset = queue.max_offset
        if offset and not _is_borne_out(queue):
            _log.warning(
                "event=queue_counts_on topic=%s queue=%d behind=%d",
                queue.topic, queue.queue_id, offset,
            )  # fmt: skip
            queue.reset()
            queues.begin(queue, offset - 1)
            queues.fill(queue, 1)


def _end_of_search(queue: "ConsumeQueue", file_bytes: int, log_end: int, *, is_small: bool) -> int:
    """Return up to where in the log an earlier message of a queue may lie; 0: nowhere."""
    if queue.min_offset == queue.max_offset:
        return 0 if _is_borne_out(queue) and not is_small else log_end
    if queue.min_offset * UNIT_BYTES % file_bytes:
        return 0
    return int.from_bytes(queue.read(queue.min_offset, 1)[:8], "big")


def _lacks(queue: "ConsumeQueue", offset: int) -> bool:
    """Tell whether a queue with nothing left should not go on with a message that the log has.

    One of which only a file's name is left does not: nobody knows that its units come yet.
    """
    if queue.min_offset < queue.max_offset:
        return False
    return offset > queue.min_offset or (offset == queue.min_offset and not _is_borne_out(queue))


def _is_borne_out(queue: "ConsumeQueue") -> bool:
    """Tell whether there is a unit, of whatever, before the end of a queue."""
    return queue.max_offset * UNIT_BYTES > queue.first_file
