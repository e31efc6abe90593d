"""The contract of `ledgermq.runtime.disk`, to which the real and the simulated disk are held."""

import errno
from pathlib import Path

import pytest

from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from sim.disk import SimDisk
from sim.rng import SplitRng

SIZE = 1 << 16


class Real:
    def __init__(self, directory):
        self.disk = RealDisk()
        self.root = str(directory)

    def space(self, path):
        return Path(path).stat().st_blocks * 512

    def touch(self, path):
        Path(path).touch()


class Simulated:
    def __init__(self):
        self.disk = SimDisk(SplitRng(1))
        self.root = "/var/store"
        self.disk.make_directories(self.root)

    def space(self, path):
        return self.disk.used_by(path)

    def touch(self, path):
        self.disk.lock(path).close()


@pytest.fixture(params=["real", "simulated"])
def machine(request, tmp_path):
    return Real(tmp_path) if request.param == "real" else Simulated()


@pytest.fixture
def disk(machine):
    return machine.disk


@pytest.fixture
def root(machine):
    return machine.root


@pytest.fixture
def file(disk, root):
    file = disk.open(f"{root}/file", size=SIZE)
    yield file
    file.close()


def test_new_file_is_sparse_and_zero(file, machine):
    path = f"{machine.root}/file"
    assert (machine.disk.size(path), machine.space(path)) == (SIZE, 0)
    assert file.pread(0, SIZE) == bytes(SIZE)


def test_new_file_needs_its_directory(disk, root):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/missing/file", size=SIZE)
    with pytest.raises(FileNotFoundError):
        disk.replace(f"{root}/missing/file", b"x")
    disk.remove(f"{root}/missing/file")
    assert disk.size(f"{root}/missing") is None


def test_directory_is_no_file(disk, root, file):
    assert file.size == SIZE
    with pytest.raises(IsADirectoryError):
        disk.open(root, size=SIZE)
    with pytest.raises((IsADirectoryError, FatalError)):
        disk.read(root)
    with pytest.raises(NotADirectoryError):
        disk.names(f"{root}/file")


def test_two_handles_see_the_same_bytes(disk, root, file):
    other = disk.open(f"{root}/file", size=SIZE)
    view = file.view()
    other.pwrite(10, [b"abc"])
    assert file.pread(10, 3) == bytes(view[10:13]) == b"abc"
    other.close()
    assert file.pread(10, 3) == b"abc"
    with pytest.raises(OSError, match=r"Bad file descriptor|closed") as failure:
        other.pread(0, 1)
    assert failure.value.errno == errno.EBADF


def test_map_cannot_be_written(file):
    assert file.view().readonly
    assert len(file.view()) == SIZE


def test_removed_file_stays_readable_while_it_is_open(disk, root, file):
    file.pwrite(0, [b"abc"])
    disk.remove(f"{root}/file")
    assert disk.names(root) == []
    assert file.pread(0, 3) == b"abc"
    again = disk.open(f"{root}/file", size=SIZE)
    assert again.pread(0, 3) == bytes(3)
    again.close()


def test_read_ends_with_the_file(file):
    file.pwrite(SIZE - 2, [b"ab"])
    assert file.pread(SIZE - 2, 10) == b"ab"
    assert file.pread(SIZE + 10, 10) == b""


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


def test_zeroed_tail_reads_as_zero(file, machine):
    view = file.view()
    file.pwrite(0, [b"x" * SIZE])
    file.zero_from(5000)
    assert bytes(view) == b"x" * 5000 + bytes(SIZE - 5000)
    assert machine.disk.size(f"{machine.root}/file") == SIZE


def test_zeroing_leaves_holes_alone(file, machine):
    file.pwrite(0, [b"x" * 100])
    file.zero_from(10)
    assert machine.space(f"{machine.root}/file") <= 8192


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


def test_view_outlives_the_file(disk, root):
    file = disk.open(f"{root}/f", size=100)
    file.pwrite(0, [b"abc"])
    view = file.view()
    file.close()
    file.close()
    assert bytes(view[:3]) == b"abc"


def test_file_of_another_size_is_refused(disk, root):
    path = f"{root}/f"
    disk.open(path, size=100).close()
    disk.open(path, size=100).close()
    with pytest.raises(FatalError, match=r"f has 100 bytes, the configured size is 200"):
        disk.open(path, size=200)


def test_interrupted_creation_is_completed(disk, root, machine):
    machine.touch(f"{root}/f")
    file = disk.open(f"{root}/f", size=100)
    assert file.pread(0, 200) == bytes(100)
    file.close()


def test_small_file_is_replaced_as_a_whole(disk, root):
    path = f"{root}/small"
    assert disk.read(path) is None
    disk.replace(path, b"one")
    disk.replace(path, b"two")
    assert disk.read(path) == b"two"
    assert disk.names(root) == ["small"]
    assert disk.size(path) == 3
    disk.remove(path)
    disk.remove(path)
    assert disk.size(path) is None
    assert disk.names(f"{root}/missing") == []


def test_directories_are_made(disk, root):
    path = f"{root}/a/b"
    disk.make_directories(path)
    disk.make_directories(path)
    assert disk.names(f"{root}/a") == ["b"]
    assert disk.names(path) == []
    space = disk.space(path)
    assert 0 < space.free <= space.usable
    assert space.free_ratio == space.free / space.usable


def test_directory_that_cannot_be_made_is_fatal(disk, root, file):
    assert file.size == SIZE
    with pytest.raises(FatalError, match="cannot be made"):
        disk.make_directories(f"{root}/file/sub")


def test_a_file_that_nobody_waits_for_is_made_with_its_directories(disk, root, machine):
    path = f"{root}/a/b/file"
    made = disk.open_unsynced(path, size=SIZE)
    made.pwrite(5, (b"x",))
    made.close()
    assert (disk.size(path), disk.names(f"{root}/a")) == (SIZE, ["b"])
    again = disk.open_unsynced(path, size=SIZE)
    assert again.pread(4, 3) == b"\0x\0"
    again.close()
    disk.sync_all(f"{root}/a")
    disk.sync_all(f"{root}/a")
    with pytest.raises(FatalError, match="configured size"):
        disk.open_unsynced(path, size=SIZE + 1)
    machine.touch(f"{root}/empty")
    disk.open_unsynced(f"{root}/empty", size=SIZE).close()
    assert disk.size(f"{root}/empty") == SIZE


def test_a_file_in_the_way_of_a_directory_is_fatal(disk, root, file):
    with pytest.raises((FatalError, NotADirectoryError)):
        disk.open_unsynced(f"{root}/file/below/it", size=SIZE)
