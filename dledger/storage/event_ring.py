"""Two files written by turns: the last events of a replica, bounded on disk, never synced.

What was written survives the death of the process at any moment; a loss of power may cost the end.
That is enough for evidence, which nothing is decided by. See `dledger.codec.events` for the bytes.
"""

from dledger.codec.events import (
    FILE_HEAD,
    decode_file_head,
    encode_block,
    encode_file_head,
    find_end,
)
from ledgermq.runtime.disk import Disk, File
from ledgermq.runtime.errors import FatalError


class EventRing:
    """Two files of ``size_bytes`` each. Errors: an `OSError` of a write passes to the caller."""

    def __init__(self, disk: Disk, path: str, size_bytes: int) -> None:
        """Open both and find where the last process ended. Errors: `FatalError`, `OSError`."""
        self._size_bytes = size_bytes
        self._files: list[File] = []
        try:
            self._files = [_open(disk, f"{path}-{number}", size_bytes) for number in (0, 1)]
            self._find_end()
        except BaseException:
            self.close()
            raise

    def _find_end(self) -> None:
        heads = [decode_file_head(file.pread(0, FILE_HEAD.size)) or 0 for file in self._files]
        ends = [
            find_end(file.view(), generation) if generation else (0, 0, 0)
            for file, generation in zip(self._files, heads, strict=True)
        ]
        self._current = 0 if heads[0] > heads[1] else 1  # of two empty ones the first comes next
        self._generation = heads[self._current]
        self._at = ends[self._current][0] if self._generation else self._size_bytes
        self.last_boot = max(end[1] for end in ends)
        """The highest boot found, 0 for none."""
        self.last_seq = max(end[2] for end in ends)
        """The highest sequence number found, 0 for none."""

    def write(self, boot: int, records: bytes | bytearray, head: bytes) -> None:
        """Write one block; where a file begins, ``head`` comes before it."""
        block = encode_block(self._generation, boot, records)
        if self._at + len(block) > self._size_bytes:
            self._current = 1 - self._current
            self._generation += 1
            begin = encode_file_head(self._generation) + encode_block(self._generation, boot, head)
            block = begin + encode_block(self._generation, boot, records)
            self._at = 0
            assert len(block) <= self._size_bytes, (len(block), self._size_bytes)
        self._files[self._current].pwrite(self._at, (block,))
        self._at += len(block)

    def close(self) -> None:
        """Close both files."""
        for file in self._files:
            file.close()


def _open(disk: Disk, path: str, size_bytes: int) -> File:
    size = disk.size(path)
    if size not in {None, 0, size_bytes}:
        disk.remove(path)  # the configured size was changed
    try:
        return disk.open(path, size=size_bytes)
    except FatalError as error:
        raise OSError(str(error)) from error
