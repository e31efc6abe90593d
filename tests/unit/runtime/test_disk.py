"""Files of fixed size on a real file system."""

import os
import subprocess
import sys

import pytest

from runtime.disk import DirectoryInUse, RealDisk
from runtime.errors import FatalError

SIZE = 1 << 16


@pytest.fixture
def disk():
    return RealDisk()


@pytest.fixture
def file(disk, tmp_path):
    file = disk.open(str(tmp_path / "file"), size=SIZE)
    yield file
    file.close()


def test_new_file_is_sparse_and_zero(file, tmp_path):
    status = (tmp_path / "file").stat()
    assert (status.st_size, status.st_blocks) == (SIZE, 0)
    assert file.pread(0, SIZE) == bytes(SIZE)


def test_written_bytes_are_read_by_call_and_by_map(file):
    view = file.view()
    file.pwrite(100, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    assert file.pread(99, 11) == b"\0abcdefghi\0"
    assert bytes(view[100:109]) == b"abcdefghi"
    assert file.view() is view
    file.fdatasync()


def test_more_buffers_than_one_call_takes(file):
    file.pwrite(0, [b"%04d" % number for number in range(3000)])
    assert file.pread(4 * 2999, 4) == b"2999"


def test_write_beyond_the_end_is_a_bug(file):
    with pytest.raises(AssertionError):
        file.pwrite(SIZE - 1, [b"ab"])


def test_zeroed_tail_reads_as_zero_and_takes_no_space(file, tmp_path):
    view = file.view()
    file.pwrite(0, [b"x" * SIZE])
    file.zero_from(5000)
    assert bytes(view) == b"x" * 5000 + bytes(SIZE - 5000)
    assert (tmp_path / "file").stat().st_size == SIZE
    assert (tmp_path / "file").stat().st_blocks * 512 <= 8192


def test_end_of_data_is_found_behind_holes(file):
    assert file.nonzero_end(0) == 0
    assert file.nonzero_end(10) == 10
    file.pwrite(40_000, [b"x"])
    file.pwrite(100, [b"y\0\0"])
    assert file.nonzero_end(0) == 40_001
    assert file.nonzero_end(40_001) == 40_001
    file.zero_from(40_000)
    assert file.nonzero_end(0) == 101
    assert file.nonzero_end(200) == 200


def test_view_outlives_the_file(disk, tmp_path):
    file = disk.open(str(tmp_path / "f"), size=100)
    file.pwrite(0, [b"abc"])
    view = file.view()
    file.close()
    file.close()
    assert bytes(view[:3]) == b"abc"


def test_file_of_another_size_is_refused(disk, tmp_path):
    path = str(tmp_path / "f")
    disk.open(path, size=100).close()
    disk.open(path, size=100).close()
    with pytest.raises(FatalError, match=r"f has 100 bytes, the configured size is 200"):
        disk.open(path, size=200)


def test_interrupted_creation_is_completed(disk, tmp_path):
    (tmp_path / "f").touch()
    file = disk.open(str(tmp_path / "f"), size=100)
    assert file.pread(0, 200) == bytes(100)
    file.close()


def test_small_file_is_replaced_as_a_whole(disk, tmp_path):
    path = str(tmp_path / "small")
    assert disk.read(path) is None
    disk.replace(path, b"one")
    disk.replace(path, b"two")
    assert disk.read(path) == b"two"
    assert disk.names(str(tmp_path)) == ["small"]
    assert disk.size(path) == 3
    disk.remove(path)
    disk.remove(path)
    assert disk.size(path) is None
    assert disk.names(str(tmp_path / "missing")) == []


def test_lock_is_exclusive_between_processes(disk, tmp_path):
    path = str(tmp_path / "lock")
    script = (
        "import sys; sys.path.insert(0, '.'); from runtime.disk import RealDisk;"
        f" RealDisk().lock({path!r}); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            disk.lock(path)
        holder.stdin.close()
    lock = disk.lock(path)
    lock.close()
    lock.close()


def test_directories_are_made(disk, tmp_path):
    path = str(tmp_path / "a" / "b")
    disk.make_directories(path)
    disk.make_directories(path)
    assert os.path.isdir(path)
    assert 0 < disk.free_ratio(path) <= 1


def test_directory_that_cannot_be_made_is_fatal(disk, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FatalError):
        disk.make_directories(str(tmp_path / "file" / "sub"))
