"""Files of one size, of many directories: a few are open at a time, the longest unused is closed.

For rows of files of which there are too many to keep even a list of the open ones each. It knows
paths, not what lies in the files.
"""

from ledgermq.runtime.disk import NO_FILES, Disk, File
from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError


def may_open_no_more(error: FatalError) -> bool:
    """Tell whether a removal met the limit of open files: it was not done, and may be later."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in NO_FILES


class OpenFiles:
    """The open ones, by path, and which were not synced."""

    def __init__(self, disk: Disk, *, file_bytes: int, open_max: int) -> None:
        self.disk = disk
        self.file_bytes = file_bytes
        self.unsynced: dict[str, None] = {}
        """Files with bytes that were not synced; whoever writes them says so."""
        self._open_max = open_max
        self._open: dict[str, File] = {}

    def open(self, path: str) -> File:
        """Return an open file; it is made if missing. Errors: `FatalError`, `OSError`."""
        file = self._open.pop(path, None)
        if file is None:
            file = self._make_or_swap(path)
            while len(self._open) >= self._open_max:
                self._open.pop(next(iter(self._open))).close()
        self._open[path] = file
        return file

    def _make_or_swap(self, path: str) -> File:
        """Open a file; where no more may be, the one that was unused for longest goes for it."""
        try:
            return self.make(path)
        except OSError as error:
            if error.errno not in NO_FILES or not self._open:
                raise
        self._open.pop(next(iter(self._open))).close()
        return self.make(path)

    def make(self, path: str) -> File:
        """Open a file, or make it; its directory as well, where that may be missing."""
        return self.disk.open(path, size=self.file_bytes)

    def remove(self, path: str) -> None:
        """Close and remove a file. Errors: `FatalError`, see `may_open_no_more`."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        self.unsynced.pop(path, None)
        try:
            self.disk.remove(path)
        except OSError as error:
            raise FatalError(f"cannot remove {path}: {error}", EXIT_ENVIRONMENT) from error

    def close(self) -> None:
        """Close all files; they open again when asked for."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def __len__(self) -> int:
        return len(self._open)
