"""What the files beside a log say of it: that there was one, and how much of it is synced for sure.

A log whose files are all missing, though messages were dispatched from it, is on a disk that is
not mounted, or lost. A start that took it for a new one would count from 0 again, and remove the
queues of what is there after all. The first file of a log is on disk, by name, before anything is
dispatched, so that no crash looks like this; and neither retention nor a cut takes the last one.

After a crash, ``checkpoint`` has the store time of a record that was synced. Those of the same
millisecond may not have been, but for the one with which our own checkpoint of the queues ends, and
what precedes it: `SyncedTimes` says that very time only if that record is synced, and
``checkpoint`` is written first. It does not know what a start makes of it.
"""

from typing import TYPE_CHECKING

import msgspec

from dledger.segments.places import is_segment_name
from ledgermq.runtime.errors import FatalError
from store.plain.recovery import Synced
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    ROCKETMQ_FILE,
    CheckpointHead,
    decode_times,
    maybe_decode_head,
)

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Disk
    from store.recovery.directory import StoreDirectory


def check_log_is_there(disk: "Disk", directory: str, log: str, anew: str) -> None:
    """Refuse to begin anew where a log was. Errors: `FatalError`.

    Args:
        disk: where all of it lies.
        directory: has the checkpoints.
        log: the directory of the files of the log.
        anew: what to do for a log that is lost.
    """
    try:
        if any(map(is_segment_name, disk.names(log))):
            return
    except OSError as error:
        raise FatalError(f"{log} cannot be read: {error}") from error
    times = _read(disk, f"{directory}/{ROCKETMQ_FILE}")
    head = _read_head(disk, directory)
    if times is not None and any(msgspec.structs.astuple(decode_times(times))):
        name = ROCKETMQ_FILE
    elif head is not None and head.marks and head.marks[0].position >= 0:
        name = CHECKPOINT_FILE
    else:
        return
    raise FatalError(
        f"{log} holds no log, and {directory}/{name} says that there was one. Is the disk mounted"
        f" that it lies on? If the log is lost, {anew}"
    )


def known_synced(directory: "StoreDirectory", disk: "Disk") -> Synced:
    """Return what is known of the log in a directory that was entered. Errors: `FatalError`."""
    physic = directory.times.physic
    if directory.was_clean or not physic:
        return Synced(physic)
    return synced_by(physic, _read_head(disk, directory.path))


def synced_by(physic: int, head: CheckpointHead | None) -> Synced:
    """Return what ``checkpoint`` and our own say together."""
    if not physic or head is None or not head.marks or head.store_timestamp != physic:
        return Synced(physic)
    mark = head.marks[0]
    return Synced(physic, mark.index + 1 if mark.position >= 0 else 0)


def _read_head(disk: "Disk", directory: str) -> CheckpointHead | None:
    data = _read(disk, f"{directory}/{CHECKPOINT_FILE}")
    return None if data is None else maybe_decode_head(data)


def _read(disk: "Disk", path: str) -> bytes | None:
    try:
        return disk.read(path)
    except OSError as error:
        raise FatalError(f"{path} cannot be read: {error}") from error
