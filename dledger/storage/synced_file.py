"""The file ``synced``: how far the log was synced, of later than the ``checkpoint``.

The checkpoint costs a sync, and is up to a second old. Entries that were synced since, and then
acknowledged, would pass for a torn write if they were corrupted, and be cut at the next start. So
whenever a sync of the log has returned this file is written, and not synced: one small write.
When the process is killed the file is true to the last sync. When the power goes it is as old as
the disk has it, and never ahead of the truth: before the log is cut, it is lowered and synced.

It names the checkpoint that it goes with, and counts with no other: whoever writes that file and
does not know this one (DLedger) has made it void.
"""

from dledger.codec.properties import MARK_BYTES, Checkpoint, decode_mark, encode_mark
from dledger.core.model import NO_INDEX, LogIndex
from ledgermq.runtime.disk import NO_SPACE, Disk, File


class SyncedFile:
    """One such file. Not for two threads at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/synced"
        self._file: File | None = None

    def load(self, checkpoint: Checkpoint) -> LogIndex:
        """Return how far the log was synced; `NO_INDEX` for a file that says nothing here.

        Errors: `OSError`.
        """
        data = self._disk.read(self.path)
        if data is None:
            return NO_INDEX
        index = decode_mark(data, checkpoint)
        if index == NO_INDEX:
            self._disk.remove(self.path)  # it would count again with another such checkpoint
        return index

    def write(self, checkpoint: Checkpoint, index: LogIndex) -> bool:
        """Note that entries up to ``index`` are synced; False if the disk is full.

        Errors: `OSError` for anything else.
        """
        try:
            if self._file is None:
                self._file = self._disk.open(self.path, size=MARK_BYTES)
            self._file.pwrite(0, (encode_mark(checkpoint, index),))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            return False
        return True

    def sync(self) -> None:
        """Make last what was written. Errors: `OSError`."""
        if self._file is not None:
            self._file.fdatasync()

    def close(self) -> None:
        """Close it."""
        if self._file is not None:
            self._file.close()
            self._file = None
