"""What a disk does not give: it is told, it hides nothing else, and nothing is made without it."""

import errno
import os
from pathlib import Path

import pytest

from cli.main import run
from dledger.codec.snapshot import encode_snapshot
from dledger.core.configuration import ConfigEntry, Configuration
from ledgermq.runtime.clock import SystemClock
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from store.layout import UNIT
from store.offline.findings import Findings
from store.offline.folder import open_folder
from store.offline.messages import Dump, Selection
from store.offline.rebuild import Rebuild
from store.offline.small_files import read_promises
from store.offline.statistics import collect
from tests.unit.store.faults.stores import built
from tests.unit.store.offline.stores import SEGMENT, PlainStore, check, kinds, state, write


@pytest.fixture
def plain(tmp_path):
    write(tmp_path, PlainStore().files())
    return tmp_path


@pytest.fixture
def raft(tmp_path):
    files, _ = built(raft=True)
    write(tmp_path, {path.removeprefix("/store/"): data for path, data in files.items()})
    return tmp_path


@pytest.fixture
def fail(monkeypatch):
    """Return a function: from now on these files cannot be read."""
    failing = set()
    real = os.pread

    def pread(fd, size, offset):
        if str(Path(f"/proc/self/fd/{fd}").readlink()) in failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    return lambda *paths: failing.update(map(str, paths))


def offsets(root, **selection):
    dump = Dump(open_folder(str(root)), Selection(**selection))
    return [row["queueOffset"] for row in dump.message_rows()], dump


def rebuilding(root):
    return Rebuild(open_folder(str(root)), RealDisk(), SystemClock())


def test_end_of_a_log_that_cannot_be_read_is_not_taken_for_its_end(plain, fail, capsys):
    last = plain / f"commitlog/{SEGMENT * 4:020}"
    for name in ("checkpoint", "consumequeue", "index"):  # nothing else knows of these messages
        (plain / name).rename(plain / f"{name}.bak")
    fail(last)
    report = check(plain)
    assert ("log", "unreadable") in kinds(report, "damage")
    assert ("log", "tail") not in kinds(report)
    assert collect(open_folder(str(plain))).damaged == 1
    assert run(["store", "dump", str(plain)]) == 1
    told = capsys.readouterr().err
    assert f"damaged: {last} offset 0: cannot be read: Input/output error" in told


def test_nothing_is_rebuilt_of_a_log_whose_end_cannot_be_read(plain, fail):
    fail(plain / f"commitlog/{SEGMENT * 4:020}")
    before = state(plain)
    with pytest.raises(FatalError, match=rf"{SEGMENT * 4:020} offset 0: the log cannot be read"):
        rebuilding(plain).survey()
    assert state(plain) == before


def test_index_of_entries_that_cannot_be_read_hides_no_entry(raft, fail):
    every, _ = offsets(raft)
    messages = rebuilding(raft).survey().messages
    fail(*(raft / "dledger-n0/index").iterdir())
    found, dump = offsets(raft)
    assert found == every
    assert dump.damages == []
    assert rebuilding(raft).survey().messages == messages > 0
    assert {part for part, _ in kinds(check(raft), "damage")} == {"log index"}


def test_queue_that_cannot_be_read_is_dumped_from_the_log(plain, fail):
    fail(*(plain / "consumequeue/t0/0").iterdir())
    found, dump = offsets(plain, topic="t0", queue_id=0, first=5)
    assert found == list(range(5, 19))
    assert [reason for _, _, reason in dump.damages] == ["Input/output error"]


@pytest.mark.parametrize("of", [9, 3])
def test_unit_of_another_message_hides_no_message_from_a_dump(plain, of):
    """The dump begins where the queue says that the first message lies, if that is true."""
    queue = plain / f"consumequeue/t0/0/{0:020}"
    units = bytearray(queue.read_bytes())
    units[5 * 20 : 6 * 20] = units[of * 20 : of * 20 + 20]
    queue.write_bytes(units)
    assert offsets(plain, topic="t0", queue_id=0, first=5)[0] == list(range(5, 19))
    physical, size, code = UNIT.unpack_from(units, 20)
    units[5 * 20 : 6 * 20] = UNIT.pack(physical + 7, size, code)
    queue.write_bytes(units)
    found, dump = offsets(plain, topic="t0", queue_id=0, first=5)
    assert found == list(range(5, 19))
    assert dump.damages == []


def test_topic_that_is_no_text_is_none_of_the_store(plain):
    assert offsets(plain, topic="\udcff", queue_id=0, first=1)[0] == []


def test_file_that_a_rebuild_takes_over_is_named_if_it_cannot_be_read(tmp_path, fail):
    files = PlainStore(first_position=SEGMENT * 4).files()
    gone = bytearray(400)
    gone[:20] = UNIT.pack(100, 90, 0)
    files[f"consumequeue/gone/0/{0:020}"] = bytes(gone)
    root = write(tmp_path, files)
    work = rebuilding(root)
    plan = work.survey()
    assert [queue.name for queue in plan.kept] == ["gone/0"]
    path = tmp_path / f"consumequeue/gone/0/{0:020}"
    fail(path)
    with pytest.raises(FatalError, match=rf"{path} offset 0: .* cannot be read"):
        work.run(plan)
    assert path.exists()


def test_rows_of_files_without_bytes_are_no_damage_but_for_those_amid_them(tmp_path):
    files = {f"commitlog/{base:020}": b"" for base in (0, SEGMENT)}
    files |= {f"consumequeue/t0/0/{base:020}": b"" for base in (0, 400)}
    write(tmp_path, files)
    assert kinds(check(tmp_path), "damage") == {("log", "size"), ("consume queue", "size")}
    write(tmp_path / "new", {f"commitlog/{0:020}": b"", f"consumequeue/t0/0/{0:020}": b""})
    assert check(tmp_path / "new").findings.health == "harmless"


def test_file_system_that_knows_no_holes_hides_nothing(plain, monkeypatch):
    every, _ = offsets(plain)
    change = bytearray((plain / f"commitlog/{0:020}").read_bytes())
    change[90] ^= 1
    (plain / f"commitlog/{0:020}").write_bytes(change)

    def lseek(_fd, _offset, _whence):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "lseek", lseek)
    assert len(offsets(plain)[0]) == len(every) - 1


def test_snapshot_may_be_larger_than_the_other_small_files(raft, monkeypatch):
    configuration = ConfigEntry(0, 1, Configuration({"n0": "127.0.0.1:1"}))
    begin = 4096
    (raft / "dledger-n0/snapshot").write_bytes(
        encode_snapshot((9, 1, begin), 9, configuration, bytes(10_000))
    )
    monkeypatch.setattr("store.offline.small_files.SMALL_BYTES_MAX", 9_000)
    assert read_promises(open_folder(str(raft)), Findings()).begin == (begin, 10)


def test_small_file_that_is_not_small_is_told_and_not_read(plain):
    size = 1 << 40
    os.truncate(plain / "checkpoint", size)
    (found,) = [one for one in check(plain).findings.listed if one.severity == "damage"]
    assert (found.kind, found.path) == ("unreadable", str(plain / "checkpoint"))
    assert found.what == f"{size} bytes, more than it can have"


def test_directory_that_cannot_be_listed_is_damage_and_no_empty_one(plain, monkeypatch):
    """A queue in it may have lost all its messages: a rebuild would let it begin at 0 again."""
    topic = str(plain / "consumequeue/t1")
    real = os.listdir

    def listdir(path):
        if path == topic:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "access", lambda path, _mode: path != topic)
    found = check(plain).findings.listed
    assert (topic, "it cannot be listed") in {(one.path, one.what) for one in found}
    assert collect(open_folder(str(plain))).damaged == 1
    with pytest.raises(FatalError, match="t1 cannot be listed"):
        rebuilding(plain).survey()


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text("?")])
def test_nothing_is_rebuilt_where_nobody_knows_what_is_committed(raft, spoil):
    spoil(raft / "dledger-n0/checkpoint")
    before = state(raft)
    with pytest.raises(FatalError, match="dledger-n0/checkpoint is missing or damaged"):
        rebuilding(raft).survey()
    assert state(raft) == before
