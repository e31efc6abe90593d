"""The open files of the index: a few at a time, the longest unused is closed.

It knows paths and one size. Source: the like of `store.queues.files`.
"""

from typing import TYPE_CHECKING, Final

from ledgermq.runtime.errors import EXIT_ENVIRONMENT, FatalError

if TYPE_CHECKING:
    from ledgermq.runtime.disk import Disk, File

OPEN_MAX: Final = 8


class Handles:
    """Files of one size in one directory."""

    def __init__(self, disk: "Disk", directory: str, file_bytes: int) -> None:
        self.disk = disk
        self.directory = directory
        self.file_bytes = file_bytes
        self.unsynced: dict[str, None] = {}
        """Files with entries that were not synced."""
        self._open: dict[str, File] = {}

    def open(self, path: str) -> "File":
        """Return an open file; it is made, with its directory, if missing. Errors: `OSError`."""
        file = self._open.pop(path, None)
        if file is None:
            try:
                file = self.disk.open(path, size=self.file_bytes)
            except FileNotFoundError:
                self.disk.make_directories(self.directory)
                file = self.disk.open(path, size=self.file_bytes)
            while len(self._open) >= OPEN_MAX:
                self._open.pop(next(iter(self._open))).close()
        self._open[path] = file
        return file

    def remove(self, path: str) -> None:
        """Close and remove a file. Errors: `FatalError`."""
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
