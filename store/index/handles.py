"""The open files of the index, which lie in one directory. See `dledger.segments.open_files`."""

from typing import Final

from dledger.segments.open_files import OpenFiles
from ledgermq.runtime.disk import Disk, File

OPEN_MAX: Final = 8


class Handles(OpenFiles):
    """Files of one size in one directory."""

    def __init__(self, disk: Disk, directory: str, file_bytes: int) -> None:
        super().__init__(disk, file_bytes=file_bytes, open_max=OPEN_MAX)
        self.directory = directory

    def make(self, path: str) -> File:
        """Open a file, or make it and its directory. Errors: `OSError`."""
        try:
            return super().make(path)
        except FileNotFoundError:
            self.disk.make_directories(self.directory)
            return super().make(path)
