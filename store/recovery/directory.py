"""The duties of a store directory, as RocketMQ has them: ``lock``, ``abort``, ``checkpoint``.

``lock`` is held by whoever works on the directory, a broker of RocketMQ's included. ``abort`` is
there while the files may be ahead of each other: whoever finds it at a start must look for what a
crash left behind. So it is made before recovery changes anything, and goes last of all at a stop.
``checkpoint`` says up to which store time log, queues and index are surely on disk; with ``abort``
there, RocketMQ dispatches again from the segment before that time and no earlier, so that it must
never promise more than is true. RocketMQ looks at the times of log and queues only, and removes
index files that are younger than that of the index: keys would be lost. So the queues are never
said to be further than the index.
It knows neither log nor queues.
Source: spec/disk.md 5.1, 5.5, 5.7; RocketMQ DefaultMessageStore, StoreCheckpoint.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ledgermq.runtime.disk import FULL, DirectoryInUse
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError
from store.recovery.checkpoint import (
    NO_TIMES,
    ROCKETMQ_FILE,
    StoreTimes,
    decode_times,
    encode_times,
)

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Closeable, Disk

ABORT_FILE: Final = "abort"
LOCK_FILE: Final = "lock"

_log = logging.getLogger(__name__)


class StoreDirectory:
    """One directory in RocketMQ's layout (``storePathRootDir``)."""

    def __init__(self, path: str, disk: "Disk", mark: bytes = b"") -> None:
        """Name the directory; nothing is touched before `enter`.

        ``mark``: what ``abort`` is to hold, for `read_mark`; RocketMQ looks at its name only.
        """
        self.path = path
        self._disk = disk
        self._mark = mark
        self._lock: Closeable | None = None
        self.was_clean = True
        """Whether it was left by a clean stop, or is new."""
        self.times: StoreTimes = NO_TIMES
        """What ``checkpoint`` promised when the directory was entered."""

    def enter(self) -> None:
        """Lock the directory and read how it was left.

        Errors: `FatalError`: another process works on it, or it cannot be made or read.
        """
        self._lock = lock_directory(self._disk, self.path)
        self.was_clean = ABORT_FILE not in self._disk.names(self.path)
        data = self._disk.read(f"{self.path}/{ROCKETMQ_FILE}")
        self.times = NO_TIMES if data is None else decode_times(data)
        if not self.was_clean:
            _log.warning(
                "event=abort_found directory=%s physic_time=%d queue_time=%d index_time=%d",
                self.path, self.times.physic, self.times.logics, self.times.index,
            )  # fmt: skip

    def mark_unclean(self) -> None:
        """Make ``abort``: from now on, until `leave`, a crash is known as one."""
        self._replace(ABORT_FILE, self._mark)

    def read_mark(self) -> bytes:
        """Return what ``abort`` holds, nothing where it is not there. Errors: `OSError`."""
        return self._disk.read(f"{self.path}/{ABORT_FILE}") or b""

    def lower_times(self, limit: int = 0) -> None:
        """Promise no more than ``limit`` (ms): units behind it are about to be cut, or made again.

        0 promises nothing: RocketMQ, too, would dispatch the whole log again.
        """
        if self.times.logics > limit:
            self.times = (
                NO_TIMES
                if not limit
                else StoreTimes(min(self.times.physic, limit), limit, min(self.times.index, limit))
            )
            self._replace(ROCKETMQ_FILE, encode_times(self.times))

    def leave(self, *, clean: bool, times: StoreTimes | None = None) -> None:
        """Give the directory up.

        Args:
            clean: everything is on disk and agrees, so that ``abort`` goes.
            times: what ``checkpoint`` shall promise from now on, if that is more than before.
        """
        if self._lock is None:
            return
        if clean:
            try:
                if times is not None:
                    self._disk.replace(f"{self.path}/{ROCKETMQ_FILE}", encode_times(times))
                self._disk.remove(f"{self.path}/{ABORT_FILE}")
            except OSError as error:
                # It stays: the next start looks twice at files that are in order.
                _log.warning("event=abort_not_removed directory=%s error=%s", self.path, error)
        self._lock.close()
        self._lock = None

    def _replace(self, name: str, data: bytes) -> None:
        try:
            self._disk.replace(f"{self.path}/{name}", data)
        except OSError as error:
            full = error.errno in FULL
            message = f"{self.path}/{name} cannot be written: {error}" + (
                "; a start needs a few free kilobytes" if full else ""
            )
            raise FatalError(message, EXIT_ENVIRONMENT) from error


def lock_directory(disk: "Disk", path: str) -> "Closeable":
    """Make ``storePathRootDir`` if it is missing, and lock it until what is returned is closed.

    Errors: `FatalError`: another process works on it, or it cannot be made.
    """
    try:
        disk.make_directories(path)
        return disk.lock(f"{path}/{LOCK_FILE}")
    except DirectoryInUse as error:
        message = (
            f"storePathRootDir={path} is in use: another broker, LedgerMQ's or RocketMQ's,"
            f" holds the lock of {path}/{LOCK_FILE}. Stop that broker, or give this one a"
            " directory of its own"
        )
        raise FatalError(message) from error
    except OSError as error:
        raise FatalError(f"storePathRootDir={path} cannot be used: {error}") from error


class SyncedTimes:
    """What ``checkpoint`` may promise of a log that is synced by itself (`checkpointer.Times`).

    Args:
        log_time: store timestamp of the last record that is on disk for sure.
        log_end: where that record ends.
        index_time: store timestamp up to which the index files are; None: there is no index.
    """

    def __init__(
        self,
        log_time: Callable[[], int],
        log_end: Callable[[], int],
        index_time: Callable[[], int] | None = None,
    ) -> None:
        self._log_time = log_time
        self._log_end = log_end
        self._index_time = index_time
        self.last = NO_TIMES
        """What was promised last; at a start, what ``checkpoint`` promises."""
        self._stored = 0

    def __call__(self, end: int, stored: int) -> StoreTimes:
        """Return the times of queues that are synced up to a record stored at ``stored``.

        The log is said to be as far as that only if the record, which ends at ``end``, is on disk:
        of those of one millisecond the last ones may not be, see `store.recovery.known`.
        """
        self._stored = stored
        is_synced = end <= self._log_end()
        self.last = self._of(min(self._log_time(), stored if is_synced else max(0, stored - 1)))
        return self.last

    def when_all_is_synced(self) -> StoreTimes:
        """Return the times of queues as they were told last, with all of the log on disk."""
        return self._of(self._stored) if self._stored else self.last

    def _of(self, physic: int) -> StoreTimes:
        if self._index_time is None:
            return StoreTimes(physic, self._stored, 0)
        indexed = min(self._index_time(), self._stored)
        return StoreTimes(physic, indexed, indexed)
