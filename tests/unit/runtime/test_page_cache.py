"""What of a mapped file is in memory."""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING

import pytest

from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.page_cache import is_in_memory, read_ahead

if TYPE_CHECKING:
    from pathlib import Path

    from ledgermq.runtime.disk import RealFile

PAGES = 256
SIZE = PAGES * mmap.PAGESIZE


def cold_file(path: Path) -> RealFile:
    """Return a file of which nothing is in memory; skip where the kernel keeps it."""
    file = RealDisk().open(str(path / "file"), size=SIZE)
    file.pwrite(0, (b"x" * SIZE,))
    file.fdatasync()
    os.posix_fadvise(file._fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if is_in_memory(file.view(), 0, mmap.PAGESIZE):
        pytest.skip("this file system keeps all in memory")
    return file


def test_it_is_known_what_can_be_read_without_waiting(tmp_path: Path) -> None:
    file = cold_file(tmp_path)
    view = file.view()
    file.pread(SIZE - mmap.PAGESIZE, mmap.PAGESIZE)
    assert is_in_memory(view, SIZE - 5, 5)
    assert is_in_memory(view, SIZE - 5, 1_000_000), "nothing lies behind the end"
    assert not is_in_memory(view, 0, SIZE)
    file.close()


def test_what_was_asked_for_comes_without_being_touched(tmp_path: Path) -> None:
    file = cold_file(tmp_path)
    view = file.view()
    read_ahead(view, 5000, SIZE - 5000)
    deadline = time.monotonic() + 5
    while not is_in_memory(view, 5000, SIZE - 5000) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert is_in_memory(view, 5000, SIZE - 5000)
    file.close()


def test_what_is_no_map_is_there() -> None:
    assert is_in_memory(memoryview(bytes(9)), 0, 9)
    read_ahead(memoryview(bytes(9)), 0, 9)
