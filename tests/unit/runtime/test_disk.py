"""Files of fixed size on a real file system."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

import runtime.disk
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


def test_zeroed_tail_reads_as_zero(file, tmp_path):
    view = file.view()
    file.pwrite(0, [b"x" * SIZE])
    file.zero_from(5000)
    assert bytes(view) == b"x" * 5000 + bytes(SIZE - 5000)
    assert (tmp_path / "file").stat().st_size == SIZE


def test_zeroing_leaves_holes_alone(file, tmp_path):
    file.pwrite(0, [b"x" * 100])
    file.zero_from(10)
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


def record_steps(monkeypatch, root):
    """What is done to the file system, in order, as ``verb name``."""
    steps = []

    def name(where):
        path = Path(f"/proc/self/fd/{where}").readlink() if isinstance(where, int) else where
        return os.path.relpath(path, root)

    def wrap(verb):
        call = getattr(os, verb)

        def recorded(where, *rest, **options):
            said = name(where)
            result = call(where, *rest, **options)
            steps.append(f"{verb} {said}")
            return result

        monkeypatch.setattr(os, verb, recorded)

    for verb in ("fsync", "rename", "unlink", "mkdir", "ftruncate"):
        wrap(verb)
    return steps


def exercise(monkeypatch, root):
    """Do everything that changes a directory; fail unless each step is synced in its order."""
    disk = RealDisk()
    steps = record_steps(monkeypatch, root)

    def done(*expected):
        assert steps == list(expected)
        steps.clear()

    disk.make_directories(f"{root}/a/b")
    done("fsync .", "fsync ..", "mkdir a", "fsync .", "mkdir a/b", "fsync a")
    disk.make_directories(f"{root}/a/b")
    done()
    disk.open(f"{root}/a/f", size=100).close()
    done("fsync a", "ftruncate a/f", "fsync a/f")
    disk.open(f"{root}/a/f", size=100).close()
    done()
    disk.replace(f"{root}/a/s", b"x")
    done("fsync a/s.tmp", "rename a/s.tmp", "fsync a")
    disk.remove(f"{root}/a/s")
    done("unlink a/s", "fsync a")
    disk.remove(f"{root}/a/s")
    done("fsync a")
    # A process that did not live to sync what it did is followed by one that does.
    RealDisk().make_directories(f"{root}/a")
    done("fsync a", "fsync .")


def test_every_change_of_a_directory_is_synced_in_its_order(monkeypatch, tmp_path):
    exercise(monkeypatch, str(tmp_path))


def sync_after_size(fd, path, size):
    if os.fstat(fd).st_size == 0:
        os.ftruncate(fd, size)
        os.fsync(fd)
        runtime.disk._sync_directory(os.path.dirname(path))


@pytest.mark.parametrize(
    ("part", "bug"),
    [("_sync_directory", lambda path: None), ("_set_size", sync_after_size)],
    ids=["directories not synced", "size before the entry"],
)
def test_a_missing_sync_is_caught(monkeypatch, tmp_path, part, bug):
    monkeypatch.setattr(runtime.disk, part, bug)
    with pytest.raises(AssertionError):
        exercise(monkeypatch, str(tmp_path))


def test_failed_replacement_leaves_the_old_file_and_no_other(monkeypatch, disk, tmp_path):
    path = str(tmp_path / "small")
    disk.replace(path, b"one")

    def full(fd):
        raise OSError(errno.ENOSPC, "planted")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="planted"):
        disk.replace(path, b"two")
    assert disk.read(path) == b"one"
    assert disk.names(str(tmp_path)) == ["small"]


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
