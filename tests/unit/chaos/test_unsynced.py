"""A loss of power: what no sync had reached is noted by the library, and taken away afterwards."""

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from chaos.generator import Stream
from chaos.nemesis.shimmed import STEPS
from chaos.shim.build import build, compiler
from chaos.shim.control import Control
from chaos.shim.unsynced import SECTOR, Loss, lose_power, unsynced_changes
from mutants.patches import HARNESS_BUGS
from mutants.planting import planted

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
SEEDS = range(200)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("shim") / "faults.so"
    build(path)
    return path


class Disk:
    """A directory in which processes with the library write."""

    def __init__(self, library: Path, path: Path) -> None:
        self.root = path / "data"
        self.root.mkdir()
        self.control = Control(path / "control")
        self._library = library

    def run(self, code: str) -> object:
        """Run code that has ``path`` and ``new(name)``; what it prints as JSON."""
        head = f"""
            import json, os
            path = {str(self.root)!r} + "/"
            def new(name, size=0):
                f = os.open(path + name, os.O_CREAT | os.O_RDWR)
                os.ftruncate(f, size)
                os.fsync(f)
                return f
        """
        done = subprocess.run(
            [sys.executable, "-I", "-c", textwrap.dedent(head) + textwrap.dedent(code)],
            env={
                "LD_PRELOAD": str(self._library),
                "LEDGERMQ_SHIM": str(self.control.path),
                "LEDGERMQ_SHIM_ROOT": str(self.root),
            },
            capture_output=True, check=True,
        )  # fmt: skip
        return json.loads(done.stdout or "null")

    def lose(self, loss: Loss = Loss.LOST, seed: int = 0) -> int:
        end = self.control.count("notes_end")
        return lose_power(self.root, self.control.journal, end, loss, Stream(seed))

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


@pytest.fixture
def disk(library, tmp_path) -> Disk:
    return Disk(library, tmp_path)


def test_what_was_synced_stays_and_what_was_not_is_as_before(disk):
    disk.control.begin_notes()
    disk.run("""
        f = new("x", 4096)
        os.pwrite(f, b"kept", 0)
        os.fdatasync(f)
        os.pwrite(f, b"lost", 2)
        os.pwritev(f, [b"lo", b"st"], 2000)
        os.lseek(f, 100, 0)
        os.write(f, b"lost")
    """)
    assert disk.read("x")[:6] == b"kelost"
    assert disk.lose() == 4 + 4 + 4
    assert disk.read("x") == b"kept" + bytes(4092)


def test_a_file_that_grew_or_was_cut_has_its_former_size(disk):
    disk.run("""
        f = new("cut", 0)
        os.write(f, b"0123456789")
        os.fsync(f)
    """)
    disk.control.begin_notes()
    disk.run("""
        f = os.open(path + "cut", os.O_RDWR)
        os.ftruncate(f, 4)
        g = new("grown")
        os.write(g, b"abc")
        os.fsync(g)
        a = os.open(path + "grown", os.O_WRONLY | os.O_APPEND)
        os.write(a, b"def")
    """)
    assert (disk.read("cut"), disk.read("grown")) == (b"0123", b"abcdef")
    disk.lose()
    assert (disk.read("cut"), disk.read("grown")) == (b"0123456789", b"abc")


def test_a_sync_of_one_file_says_nothing_of_another(disk):
    disk.control.begin_notes()
    disk.run("""
        f, g = new("f", 512), new("g", 512)
        os.pwrite(f, b"f", 0)
        os.pwrite(g, b"g", 0)
        os.fdatasync(g)
    """)
    disk.lose()
    assert (disk.read("f")[:1], disk.read("g")[:1]) == (b"\0", b"g")


def test_a_sync_of_the_whole_file_system_is_one_of_all_files(disk):
    disk.control.begin_notes()
    disk.run("""
        import ctypes
        f, g = new("f", 512), new("g", 512)
        os.pwrite(f, b"f", 0)
        os.pwrite(g, b"g", 0)
        os.mkdir(path + "in")
        assert ctypes.CDLL(None).syncfs(os.open(path + "in", os.O_RDONLY)) == 0
        os.pwrite(f, b"lost", 8)
    """)
    assert disk.lose() == 4
    assert (disk.read("f")[:9], disk.read("g")[:1]) == (b"f" + bytes(8), b"g")


def test_it_fails_and_lies_as_other_syncs_do(disk):
    code = """
        import ctypes
        f = os.open(path + "x", os.O_CREAT | os.O_RDWR)
        os.pwrite(f, b"x", 0)
        print(json.dumps(ctypes.CDLL(None).syncfs(f)))
    """
    disk.control.command(sync_errno=5, sync_fails=1)
    assert disk.run(code) == -1
    disk.control.lift()
    disk.control.command(lies=1)
    assert disk.run(code) == 0
    assert (disk.control.count("syncs_failed"), disk.control.count("syncs_lied")) == (1, 1)


def test_what_another_process_wrote_before_it_was_killed_counts_too(disk):
    disk.control.begin_notes()
    disk.run("""
        f = new("x", 512)
        os.pwrite(f, b"first", 0)
    """)
    disk.run("""
        f = os.open(path + "x", os.O_RDWR)
        os.pwrite(f, b"second", 0)
    """)
    disk.lose()
    assert disk.read("x") == bytes(512)


def test_what_is_not_ours_or_was_written_before_is_left_alone(disk):
    disk.run("""
        f = new("x", 512)
        os.pwrite(f, b"before", 0)
    """)
    disk.control.begin_notes()
    disk.run("""
        g = os.open(path + "../outside", os.O_CREAT | os.O_RDWR)
        os.pwrite(g, b"outside", 0)
    """)
    assert disk.control.count("notes_end") == 0
    assert disk.lose() == 0
    assert disk.read("x")[:6] == b"before"
    assert disk.read("../outside") == b"outside"


def test_notes_begin_anew_each_time(disk):
    disk.control.begin_notes()
    disk.run("""
        f = new("x", 512)
        os.pwrite(f, b"early", 0)
    """)
    disk.control.command(notes=0)
    disk.run("""
        f = os.open(path + "x", os.O_RDWR)
        os.pwrite(f, b"later", 0)
    """)
    disk.control.begin_notes()
    assert disk.lose() == 0
    assert disk.read("x")[:5] == b"later"


def test_a_second_lie_knows_nothing_of_what_was_synced_since_the_first(disk):
    disk.control.command(lies=1)
    disk.run("""
        f = new("x", 512)
        os.pwrite(f, b"lied", 0)
        os.fdatasync(f)
    """)
    disk.control.command(lies=0)
    disk.run("""
        f = os.open(path + "x", os.O_RDWR)
        os.pwrite(f, b"synced", 4)
        os.fdatasync(f)
    """)
    disk.control.command(lies=1)
    disk.run("""
        f = os.open(path + "x", os.O_RDWR)
        os.pwrite(f, b"lost", 10)
        os.fdatasync(f)
    """)
    disk.control.begin_notes()
    assert disk.lose() == 4
    assert disk.read("x") == b"liedsynced" + bytes(502)


def test_a_lie_that_remembers_the_one_before_is_found_out(disk):
    with planted(HARNESS_BUGS["second-lie-remembers-the-first"]), pytest.raises(AssertionError):
        test_a_second_lie_knows_nothing_of_what_was_synced_since_the_first(disk)


def test_after_a_loss_of_power_notes_begin_anew_though_syncs_lie_on(disk):
    code = """
        f = os.open(path + "x", os.O_CREAT | os.O_RDWR)
        os.pwrite(f, b"lost", os.fstat(f).st_size)
        os.fdatasync(f)
    """
    disk.control.command(lies=1)
    for _ in range(2):
        disk.control.begin_notes()
        disk.run(code)
        assert disk.lose() == 4
        disk.control.end_notes()
        disk.control.journal.unlink()
    assert disk.control.is_noting
    assert disk.read("x") == b""


def test_a_sync_that_lies_is_counted_and_what_it_was_for_is_lost(disk):
    disk.control.command(lies=1)
    disk.run("""
        f = new("x", 512)
        os.pwrite(f, b"promised", 0)
        os.fdatasync(f)
    """)
    disk.control.begin_notes()
    assert disk.control.count("syncs_lied") == 2
    disk.lose()
    assert disk.read("x") == b""


def test_a_file_with_the_inode_of_one_that_is_gone_is_not_mixed_up_with_it(disk):
    disk.control.begin_notes()
    same = disk.run("""
        f = new("old", 512)
        os.pwrite(f, b"unsynced", 0)
        inode = os.fstat(f).st_ino
        os.close(f)
        os.remove(path + "old")
        g = os.open(path + "new", os.O_CREAT | os.O_RDWR)
        os.write(g, b"whole")
        os.fsync(g)
        print(json.dumps(os.fstat(g).st_ino == inode))
    """)
    disk.lose()
    assert disk.read("new") == b"whole", f"the inode was used again: {same}"


def test_torn_writes_end_in_order_and_at_a_sector(disk):
    disk.control.begin_notes()
    disk.run("""
        f = new("x", 8 * 512)
        for at in range(3):
            os.pwrite(f, bytes([at + 1]) * 1024, at * 1024)
    """)
    whole = disk.read("x")
    found = set()
    for seed in SEEDS:
        (disk.root / "x").write_bytes(whole)
        disk.lose(Loss.TORN, seed)
        left = disk.read("x")
        size = len(left.rstrip(b"\0"))
        assert size % SECTOR == 0
        assert left[:size] == whole[:size]
        found.add(size)
    assert found == {0, 512, 1024, 1536, 2048, 2560, 3072}


def test_reordered_writes_leave_each_sector_as_some_of_them_in_order_made_it(disk):
    disk.control.begin_notes()
    disk.run("""
        f = new("x", 1024)
        for what in b"abc":
            os.pwrite(f, bytes([what]) * 1024, 0)
    """)
    whole = disk.read("x")
    found = set()
    for seed in SEEDS:
        (disk.root / "x").write_bytes(whole)
        disk.lose(Loss.REORDERED, seed)
        left = disk.read("x")
        for sector in (left[:SECTOR], left[SECTOR:]):
            assert len(set(sector)) == 1
        found.add((left[0], left[SECTOR]))
    assert found == {(a, b) for a in b"\0abc" for b in b"\0abc"}


def test_a_note_that_a_killed_process_left_half_written_does_not_count(disk):
    disk.control.begin_notes()
    disk.run("""
        f = new("x", 512)
        os.pwrite(f, b"first", 0)
    """)
    with disk.control.journal.open("ab") as file:
        file.write(b"half a note")
    disk.run("""
        f = os.open(path + "x", os.O_RDWR)
        os.pwrite(f, b"second", 100)
    """)
    changes = unsynced_changes(disk.control.journal, disk.control.count("notes_end"))
    assert [len(of_one) for of_one in changes.values()] == [2]
    disk.lose()
    assert disk.read("x") == bytes(512)


def test_what_is_no_journal_is_said(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(b"\xff" * 48)
    with pytest.raises(ValueError, match="holds no note"):
        unsynced_changes(path, 48)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="ends at 0, before 96"):
        unsynced_changes(path, 96)


@pytest.mark.parametrize(
    ("at", "kept"), [("write", 2), ("written", 3), ("sync", 3), ("synced", 3)], ids=str
)
def test_a_process_ends_at_the_step_that_is_named(disk, at, kept):
    disk.control.command(crash_of=STEPS[at], crash_in=3)
    with pytest.raises(subprocess.CalledProcessError) as ended:
        disk.run("""
            f = os.open(path + "x", os.O_CREAT | os.O_RDWR)
            for number in range(9):
                os.pwrite(f, b"x", number)
                os.fdatasync(f)
        """)
    assert ended.value.returncode == -signal.SIGKILL
    assert disk.control.count("crashes") == 1
    assert len(disk.read("x")) == kept
