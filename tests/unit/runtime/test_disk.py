"""What only a real file system can show; the contract itself is in test_disk_contract."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.runtime import disk as real
from ledgermq.runtime import process, regular
from ledgermq.runtime.disk import DirectoryInUse, RealDisk
from ledgermq.runtime.errors import EXIT_BAD_INPUT, EXIT_ENVIRONMENT, FatalError
from ledgermq.runtime.regular import READ_BYTES_MAX
from mutants.patches import BY_TESTS
from mutants.planting import planted


@pytest.fixture
def disk():
    return RealDisk()


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
        real._sync_directory(os.path.dirname(path))


@pytest.mark.parametrize(
    ("part", "bug"),
    [("_sync_directory", lambda path: None), ("_set_size", sync_after_size)],
    ids=["directories not synced", "size before the entry"],
)
def test_a_missing_sync_is_caught(monkeypatch, tmp_path, part, bug):
    monkeypatch.setattr(real, part, bug)
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


def test_a_lock_that_is_a_link_to_nothing_is_said_to_be_one(disk, tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "nowhere" / "lock")
    with pytest.raises(FatalError, match="is a link to nothing"):
        disk.lock(str(tmp_path / "lock"))


def test_lock_is_exclusive_between_processes(disk, tmp_path):
    path = str(tmp_path / "lock")
    script = (
        "import sys; sys.path.insert(0, '.'); from ledgermq.runtime.disk import RealDisk;"
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


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FatalError, match=name):
            RealDisk().read(str(tmp_path / name))
        with pytest.raises(FatalError, match=name):
            RealDisk().size(str(tmp_path / name))
    with pytest.raises(FatalError, match="pipe"):
        RealDisk().open(str(tmp_path / "pipe"), size=10)


def test_a_file_is_never_replaced_through_a_link_that_has_its_temporary_name(tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "file.tmp").symlink_to(tmp_path / "other")
    RealDisk().replace(str(tmp_path / "file"), b"new")
    assert (tmp_path / "other").read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()


def test_a_pipe_that_has_a_temporary_name_ends_no_save(tmp_path):
    os.mkfifo(tmp_path / "file.tmp")
    RealDisk().replace(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_huge_file_is_refused_and_not_read(disk, tmp_path):
    path = tmp_path / "topics.json"
    path.touch()
    os.truncate(path, READ_BYTES_MAX + 1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FatalError, match=f"topics.json has {READ_BYTES_MAX + 1} bytes"):
        disk.read(str(path))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    os.truncate(path, 5)
    assert disk.read(str(path)) == bytes(5)
    with planted(BY_TESTS["huge-file-read-whole"]):
        regular._check_size(READ_BYTES_MAX + 1, "x")


def exit_of(path, caplog) -> int:
    """Return how a process ends that opens a path at its start."""
    caplog.clear()

    async def main() -> None:
        RealDisk().open(str(path), size=10)

    code = process.run_main(main)
    (line,) = caplog.records
    assert (line.exc_info is None) == (code == EXIT_BAD_INPUT)
    assert str(path) in caplog.text
    return code


def test_a_path_that_cannot_be_used_is_one_line_without_a_trace(caplog, tmp_path):
    loop, folder, under = tmp_path / "loop", tmp_path / "folder", tmp_path / "file" / "x"
    loop.symlink_to(loop)
    folder.mkdir()
    (tmp_path / "file").touch()
    for path in (loop, folder, under):
        assert exit_of(path, caplog) == EXIT_BAD_INPUT
    with planted(BY_TESTS["bad-path-crashes"]):
        assert exit_of(loop, caplog) == EXIT_ENVIRONMENT
