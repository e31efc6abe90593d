"""The files of all consume queues: a few are open at a time, nothing is synced before it must be.

It knows paths and bytes, not what lies in them. A file or directory is made without a sync; the
next checkpoint syncs it (`QueueFiles.sync`), and no start trusts what no checkpoint vouches for.
Source: RocketMQ MappedFileQueue, which keeps a mapping of every file.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dledger.segments.open_files import OpenFiles
from ledgermq.runtime.disk import NO_FILES, Disk, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

BLOCK_BYTES: Final = 60_000
"""What has a CRC of its own; 3,000 units. The last block of a file may be shorter."""
SYNC_EACH_MAX: Final = 64
"""With more files to sync the whole file system is synced, in one call."""


class Unsynced(NamedTuple):
    """What a checkpoint has to sync."""

    paths: list[str]
    has_new: bool
    """Some of the files were made, so that directories must be synced, too."""


class QueueFiles(OpenFiles):
    """The open consume queue files, a bounded number of them."""

    def __init__(self, disk: Disk, directory: str, *, file_bytes: int, open_max: int) -> None:
        super().__init__(disk, file_bytes=file_bytes, open_max=open_max)
        self.directory = directory
        self.block_bytes = BLOCK_BYTES
        self.changes = 0
        """Writes and removals so far."""
        self._has_new = False

    @property
    def file_blocks(self) -> int:
        """Blocks of one file."""
        return -(-self.file_bytes // self.block_bytes)

    def make(self, path: str) -> File:
        """Open a file, or make it, with its directory; nothing is synced."""
        return self.disk.open_unsynced(path, size=self.file_bytes)

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write into a file and remember that it must be synced."""
        file = self.open(path)
        self.changes += 1
        self.unsynced[path] = None
        if offset == 0:
            self._has_new = True
        file.pwrite(offset, (data,))

    def remove(self, path: str) -> None:
        """Close and remove a file. Errors: `FatalError`."""
        self.changes += 1
        super().remove(path)

    def take_unsynced(self) -> Unsynced:
        """Return what was written since the last call."""
        unsynced = Unsynced(list(self.unsynced), self._has_new)
        self.unsynced.clear()
        self._has_new = False
        return unsynced

    def mark_unsynced(self, paths: Iterable[str], *, has_new: bool = False) -> None:
        """Remember that these files must be synced; take back what `take_unsynced` gave."""
        self.changes += 1
        self.unsynced.update(dict.fromkeys(paths))
        self._has_new = self._has_new or has_new

    def sync(self, unsynced: Unsynced) -> bool:
        """Sync what `take_unsynced` gave; in any thread. Errors: `FatalError`.

        False where no more files may be opened: nothing is promised of any, and it may be tried
        again. A sync itself is never tried again: what it has lost it does not tell twice.
        """
        path = self.directory
        try:
            if unsynced.has_new or len(unsynced.paths) > SYNC_EACH_MAX:
                self.disk.sync_all(self.directory)
                return True
            for path in unsynced.paths:
                file = self.disk.open(path, size=self.file_bytes)
                try:
                    file.fdatasync()
                finally:
                    file.close()
        except OSError as error:
            if error.errno in NO_FILES:
                return False
            message = f"cannot sync {path}: {error}"
            raise FatalError(message, EXIT_ENVIRONMENT) from error
        return True
