"""Bytes of a row of numbered files as one sequence, read in small blocks, a bounded number kept."""

from bisect import bisect_right
from collections import OrderedDict
from typing import Final

from store.offline.files import FileInfo, FileRow, OpenFiles

BLOCKS_MAX: Final = 512


class BlockCache:
    """Blocks of many files, the longest unused is forgotten."""

    def __init__(self, block_bytes: int, *, open_max: int = 128) -> None:
        self.block_bytes = block_bytes
        self._files = OpenFiles(open_max)
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return bytes of a file, fewer at its end. Errors: `ReadError`."""
        start = offset - offset % self.block_bytes
        block = self._block(path, start)
        at = offset - start
        if at + size <= len(block):
            return block[at : at + size]
        return block[at:] + self._block(path, start + self.block_bytes)[: at + size - len(block)]

    def _block(self, path: str, start: int) -> bytes:
        block = self._blocks.get((path, start))
        if block is not None:
            self._blocks.move_to_end((path, start))
            return block
        block = self._files.open(path).read_exact(start, self.block_bytes)
        self._blocks[path, start] = block
        if len(self._blocks) > BLOCKS_MAX:
            self._blocks.popitem(last=False)
        return block

    def nonzero_end(self, info: FileInfo) -> int:
        """Return the place behind the last byte of a file that is not zero. Errors: `ReadError`."""
        return self._files.open(info.path).nonzero_end()

    def forget(self) -> None:
        """Keep no block."""
        self._blocks.clear()

    def close(self) -> None:
        """Close the files."""
        self._files.close()
        self.forget()


class ByteRow:
    """The bytes of one row of files; positions count from the number 0."""

    __slots__ = ("_bases", "_cache", "row")

    def __init__(self, row: FileRow, cache: BlockCache) -> None:
        self.row = row
        self._cache = cache
        self._bases = [info.base for info in row.files]

    def read(self, position: int, size: int) -> bytes:
        """Return bytes that lie in one file, fewer if it ends; none where no file is."""
        info = self.file_at(position)
        if info is None:
            return b""
        return self._cache.read(info.path, position - info.base, size)

    def file_at(self, position: int) -> FileInfo | None:
        """Return the file that holds a position."""
        number = bisect_right(self._bases, position) - 1
        if number < 0:
            return None
        info = self.row.files[number]
        return info if position < info.base + info.size else None

    def place(self, position: int) -> tuple[str, int]:
        """Return file and offset of a position; the directory where no file is."""
        info = self.file_at(position)
        return (self.row.directory, position) if info is None else (info.path, position - info.base)

    def nonzero_end(self) -> int:
        """Return the position behind the last byte that is not zero. Errors: `ReadError`."""
        for info in reversed(self.row.files):
            end = self._cache.nonzero_end(info)
            if end:
                return info.base + end
        return self.row.start
