"""The simulated disk: steps, failpoints, errors, space, hangs, locks, damage."""

import errno
from random import Random

import pytest

from ledgermq.runtime.disk import DirectoryInUse
from ledgermq.runtime.errors import FatalError
from sim.context import SimCrash
from sim.disk import SimDisk
from sim.disk_rules import CHANGING, SYNCS, Action, Latency, Op, Rule
from sim.inode import Inode, PowerLossMode
from sim.loop import SimLoop
from sim.names import DIRECTORY, MISSING, Names
from sim.rng import SplitRng
from sim.trace import Trace

SIZE = 1 << 16


VERBS = {
    "sync": "fsync", "sync_directory": "fsync", "truncate": "ftruncate", "remove": "unlink",
    "rename": "rename", "mkdir": "mkdir",
}  # fmt: skip


class Steps:
    """A trace that keeps what is done to the file system, as test_disk of runtime writes it."""

    def __init__(self):
        self.paths = {}
        self.steps = []

    def event(self, kind, host, **columns):
        if kind == "disk_path":
            self.paths[columns["number"]] = columns["path"]

    def disk(self, _host, op, path, *_columns):
        if op in VERBS:
            name = self.paths[path].removeprefix("/r").lstrip("/") or "."
            self.steps.append(f"{VERBS[op]} {name}")


@pytest.fixture
def disk():
    disk = SimDisk(SplitRng(7))
    disk.make_directories("/r")
    return disk


def fail(error, *ops, **options):
    return Rule(action=Action.FAIL, ops=frozenset(ops), error=error, **options)


def test_steps_are_those_of_the_real_disk():
    """The same lines as in tests/unit/runtime/test_disk.py."""
    trace = Steps()
    disk = SimDisk(SplitRng(1), trace)
    disk.make_directories("/r")
    disk.crash()

    def done(*expected):
        assert trace.steps == list(expected)
        trace.steps.clear()

    trace.steps.clear()
    disk.make_directories("/r/a/b")
    done("fsync .", "fsync .", "mkdir a", "fsync .", "mkdir a/b", "fsync a")
    disk.make_directories("/r/a/b")
    done()
    disk.open("/r/a/f", size=100).close()
    done("fsync a", "ftruncate a/f", "fsync a/f")
    disk.open("/r/a/f", size=100).close()
    done()
    disk.replace("/r/a/s", b"x")
    done("fsync a/s.tmp", "rename a/s.tmp", "fsync a")
    disk.remove("/r/a/s")
    done("unlink a/s", "fsync a")
    disk.remove("/r/a/s")
    done("fsync a")
    disk.crash()
    disk.make_directories("/r/a")
    done("fsync a", "fsync .")


def test_every_operation_is_traced_and_equal_seeds_leave_equal_traces():
    def run(content):
        trace = Trace(keep_lines=True)
        disk = SimDisk(SplitRng(3), trace, host="n0")
        file = disk.open("/f", size=SIZE)
        file.pwrite(5, [content])
        file.fdatasync()
        disk.replace("/g", b"abc")
        disk.corrupt("/f", 5)
        disk.power_loss(PowerLossMode.TORN)
        return trace

    trace = run(b"hello")
    assert trace.digest() == run(b"hello").digest() != run(b"hallo").digest()
    ops = [line.split()[3] for line in trace.lines if line.split()[1] == "disk"]
    assert ops == [
        "op=create", "op=sync_directory", "op=truncate", "op=sync", "op=write", "op=sync",
        "op=create", "op=write", "op=sync", "op=rename", "op=sync_directory",
    ]  # fmt: skip


def test_lock_goes_with_its_process(disk):
    lock = disk.lock("/lock")
    with pytest.raises(DirectoryInUse, match="in use by another process"):
        disk.lock("/lock")
    disk.crash()
    again = disk.lock("/lock")
    lock.close()
    with pytest.raises(DirectoryInUse):
        disk.lock("/lock")
    again.close()
    disk.lock("/lock").close()


def test_files_outlive_a_crash_and_handles_do_not(disk):
    file = disk.open("/r/f", size=SIZE)
    file.pwrite(0, [b"abc"])
    disk.crash()
    with pytest.raises(SimCrash):
        file.pwrite(0, [b"x"])
    assert disk.open("/r/f", size=SIZE).pread(0, 3) == b"abc"


# Failpoints


@pytest.mark.parametrize(
    ("action", "op", "seen"),
    [
        (Action.CRASH_BEFORE, Op.CREATE, b"old"),
        (Action.CRASH_BEFORE, Op.WRITE, b"old"),
        (Action.CRASH_BEFORE, Op.SYNC, b"old"),
        (Action.CRASH_BEFORE, Op.RENAME, b"old"),
        (Action.CRASH_AFTER, Op.RENAME, b"new"),
        (Action.CRASH_BEFORE, Op.SYNC_DIRECTORY, b"new"),
    ],
)
def test_crash_at_each_step_of_a_replacement(disk, action, op, seen):
    disk.replace("/r/currterm", b"old")
    disk.add_rule(Rule(action=action, ops=frozenset({op}), glob="*/r*", count=1))
    with pytest.raises(SimCrash):
        disk.replace("/r/currterm", b"new")
    with pytest.raises(SimCrash):
        disk.read("/r/currterm")
    disk.crash()
    assert disk.read("/r/currterm") == seen
    disk.power_loss(PowerLossMode.LOST)
    assert disk.read("/r/currterm") == b"old"
    disk.replace("/r/currterm", b"newer")
    assert disk.power_loss(PowerLossMode.LOST) == (0, 0)
    assert disk.read("/r/currterm") == b"newer"


def test_crash_comes_at_the_kth_matching_step(disk):
    file = disk.open("/r/f", size=SIZE)
    rule = Rule(action=Action.CRASH_AFTER, ops=frozenset({Op.WRITE}), glob="*/f", skip=2, count=1)
    disk.add_rule(rule)
    disk.replace("/r/other", b"does not count")
    file.pwrite(0, [b"1"])
    file.pwrite(1, [b"2"])
    assert rule.hits == 0
    with pytest.raises(SimCrash):
        file.pwrite(2, [b"3"])
    disk.crash()
    assert disk.open("/r/f", size=SIZE).pread(0, 4) == b"123\0"
    assert rule.hits == 1


def test_creation_interrupted_anywhere_is_completed_or_never_was(disk):
    for op in (Op.CREATE, Op.SYNC_DIRECTORY, Op.TRUNCATE, Op.SYNC):
        for action in (Action.CRASH_BEFORE, Action.CRASH_AFTER):
            for mode in PowerLossMode:
                rule = disk.add_rule(Rule(action=action, ops=frozenset({op}), count=1))
                with pytest.raises(SimCrash):
                    disk.open("/r/f", size=SIZE)
                disk.power_loss(mode)
                disk.drop_rule(rule)
                assert disk.size("/r/f") in {None, 0, SIZE}
                file = disk.open("/r/f", size=SIZE)
                file.pwrite(0, [b"x"])
                file.fdatasync()
                disk.power_loss(PowerLossMode.LOST)
                assert disk.open("/r/f", size=SIZE).pread(0, 1) == b"x"
                disk.remove("/r/f")


# Errors


def test_failed_write_leaves_a_part_at_most(disk):
    lengths = set()
    for _ in range(40):
        file = disk.open("/r/f", size=SIZE)
        rule = disk.add_rule(fail(errno.EIO, Op.WRITE, count=1))
        with pytest.raises(OSError, match="fault of the simulated disk") as failure:
            file.pwrite(10, [b"abcdefgh"])
        assert failure.value.errno == errno.EIO
        written = file.pread(10, 8).rstrip(b"\0")
        assert b"abcdefgh".startswith(written)
        lengths.add(len(written))
        assert rule.hits == 1
        file.pwrite(10, [bytes(8)])
    assert len(lengths) > 4


def test_error_meets_only_its_operation_and_glob(disk):
    disk.add_rule(fail(errno.EIO, Op.SYNC, glob="*/data/*"))
    disk.make_directories("/r/data")
    disk.replace("/r/s", b"x")
    file = disk.open("/r/f", size=SIZE)
    file.fdatasync()
    with pytest.raises(OSError, match="fault"):
        disk.open("/r/data/0", size=SIZE)
    assert disk.open("/r/f", size=SIZE).pread(0, 1) == b"\0"


def test_failed_replacement_leaves_the_old_file_and_no_other(disk):
    disk.replace("/r/small", b"one")
    disk.add_rule(fail(errno.ENOSPC, Op.SYNC, count=1))
    with pytest.raises(OSError, match="fault"):
        disk.replace("/r/small", b"two")
    assert disk.read("/r/small") == b"one"
    assert disk.names("/r") == ["small"]


def test_sync_that_failed_once_loses_what_it_was_to_save(disk):
    """The kernel counts the pages as clean: the next sync succeeds and does nothing for them."""
    file = disk.open("/r/f", size=SIZE)
    file.pwrite(0, [b"lost!"])
    disk.add_rule(fail(errno.EIO, Op.SYNC, count=1))
    with pytest.raises(OSError, match="fault"):
        file.fdatasync()
    file.pwrite(2, [b"SAVED"])
    file.fdatasync()
    assert file.pread(0, 7) == b"loSAVED"
    assert disk.power_loss(PowerLossMode.LOST).changes == 1
    assert disk.open("/r/f", size=SIZE).pread(0, 8) == b"\0\0SAVED\0"


def test_sync_that_lies_saves_nothing(disk):
    file = disk.open("/r/f", size=SIZE)
    rule = disk.add_rule(Rule(action=Action.LIE, ops=SYNCS))
    file.pwrite(0, [b"abc"])
    file.fdatasync()
    assert rule.hits == 1
    disk.power_loss(PowerLossMode.LOST)
    assert disk.open("/r/f", size=SIZE).pread(0, 3) == bytes(3)


def test_probable_rule_meets_some():
    disk = SimDisk(SplitRng(3))
    file = disk.open("/f", size=SIZE)
    rule = disk.add_rule(fail(errno.EIO, Op.READ, probability=0.3))
    failed = 0
    for _ in range(200):
        try:
            file.pread(0, 1)
        except OSError:
            failed += 1
    assert failed == rule.hits
    assert 30 < failed < 90


# Space


def test_full_disk_refuses_what_needs_a_block_and_is_freed(disk):
    file = disk.open("/r/f", size=SIZE)
    file.pwrite(0, [b"x"])
    disk.limit(8192)
    assert 0 < disk.space("/r").free_ratio < 1
    with pytest.raises(OSError, match="no space") as failure:
        file.pwrite(100, [b"y" * 3 * 8192])
    assert failure.value.errno == errno.ENOSPC
    assert file.nonzero_end(0) == 3 * 4096, "what there was room for was written"
    file.pwrite(200, [b"z"])
    file.zero_from(0)
    with pytest.raises(OSError, match="no space"):
        disk.replace("/r/currterm", b"x")
    assert disk.names("/r") == ["f"]
    disk.limit(None)
    disk.replace("/r/currterm", b"x")
    disk.limit(0)
    with pytest.raises(OSError, match="no space"):
        disk.replace("/r/currterm", b"y")
    disk.remove("/r/f")
    disk.replace("/r/currterm", b"y")
    assert disk.read("/r/currterm") == b"y"


# Time


@pytest.fixture
def process():
    """A process on a machine with the disk."""
    loop = SimLoop(1)
    host = loop.add_host("n0", "10.0.0.1")
    host.disk = SimDisk(SplitRng(7))
    yield loop.boot(host)
    loop.close()


def run_in(process, function, *, in_thread=False):
    """Call; returns what it cost and what it left to be settled."""
    process.settling = [] if in_thread else None
    process.context.run(function)
    settling, process.settling = process.settling, None
    return process.take_charge(), settling


def test_syncs_cost_time_and_writes_do_not(process):
    disk = process.host.disk
    file = disk.open("/f", size=SIZE)
    assert run_in(process, lambda: file.pwrite(0, [b"x"])) == (0, None)
    low, high = disk.sync_latency
    cost, _ = run_in(process, file.fdatasync)
    assert low <= cost <= high
    slow = Rule(action=Action.SLOW, ops=frozenset({Op.WRITE}), latency=Latency(5, 5))
    disk.add_rule(slow)
    assert run_in(process, lambda: file.pwrite(0, [b"x"])) == (5, None)
    assert slow.hits == 1


def test_sync_of_a_thread_takes_effect_when_its_work_is_over(process):
    disk = process.host.disk
    file = disk.open("/f", size=SIZE)
    file.pwrite(0, [b"a"])
    cost, (settle,) = run_in(process, file.fdatasync, in_thread=True)
    assert cost > 0
    file.pwrite(1, [b"b"])
    assert disk.unsynced() == (2, 0)
    settle()
    assert disk.unsynced() == (1, 0)
    disk.power_loss(PowerLossMode.LOST)
    settle()
    assert disk.open("/f", size=SIZE).pread(0, 2) == b"a\0"


def test_replacement_in_a_thread_that_never_ends_may_be_undone(process):
    disk = process.host.disk
    disk.replace("/s", b"old")
    _, settling = run_in(process, lambda: disk.replace("/s", b"new"), in_thread=True)
    assert disk.read("/s") == b"new"
    assert disk.power_loss(PowerLossMode.LOST) == (0, 2), "its bytes were synced before the rename"
    for settle in settling:
        settle()
    assert disk.read("/s") == b"old"


@pytest.mark.parametrize("mode", PowerLossMode)
def test_steps_of_a_thread_happen_in_their_order(process, mode):
    """A name never means a file whose sync came before the rename and is not done."""
    disk = process.host.disk
    for seed in range(20):
        disk.replace("/s", b"old")
        run_in(process, lambda: disk.replace("/s", b"new"), in_thread=True)
        disk.crash()
        disk.power_loss(mode, seed)
        assert disk.read("/s") in {b"old", b"new"}


def test_hung_sync_of_a_thread_shuts_the_gate_until_the_disk_is_healed(process):
    disk = process.host.disk
    file = disk.open("/f", size=SIZE)
    file.pwrite(0, [b"a"])
    rule = disk.add_rule(Rule(action=Action.HANG, ops=frozenset({Op.SYNC})))
    run_in(process, file.fdatasync, in_thread=True)
    assert (process.gate_shut, process.is_blocked, disk.blocked) == (True, False, False)
    disk.drop_rule(rule)
    assert not process.gate_shut


def test_who_resumes_an_earlier_process_does_not_free_one_that_its_disk_holds():
    loop = SimLoop(1)
    host = loop.add_host("n0", "10.0.0.1")
    host.disk = SimDisk(SplitRng(7))
    process = loop.boot(host)
    file = host.disk.open("/f", size=SIZE)
    rule = host.disk.add_rule(Rule(action=Action.HANG, ops=frozenset({Op.SYNC})))
    run_in(process, file.fdatasync)
    loop.resume(host)
    assert host.paused
    assert not host.stopped
    loop.pause(host)
    assert host.stopped
    loop.resume(host)
    assert host.paused
    host.disk.drop_rule(rule)
    assert not host.paused
    loop.close()


def test_hung_sync_of_the_loop_holds_the_process_and_takes_effect_when_healed(process):
    disk = process.host.disk
    file = disk.open("/f", size=SIZE)
    file.pwrite(0, [b"a"])
    rule = disk.add_rule(Rule(action=Action.HANG, ops=frozenset({Op.SYNC})))
    run_in(process, file.fdatasync)
    assert process.is_blocked
    assert process.host.paused
    assert disk.unsynced() == (1, 0)
    disk.drop_rule(rule)
    assert not process.is_blocked
    assert disk.unsynced() == (0, 0)
    disk.drop_rule(rule)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", [PowerLossMode.TORN, PowerLossMode.REORDERED])
def test_what_comes_after_a_call_that_hangs_was_never_done_if_the_power_goes(disk, mode, seed):
    file, other = disk.open("/r/f", size=SIZE), disk.open("/r/g", size=SIZE)
    disk.sync_all("/r")
    rule = disk.add_rule(Rule(action=Action.HANG, ops=frozenset({Op.SYNC})))
    file.pwrite(0, [b"a"])
    file.fdatasync()
    other.pwrite(0, [b"says that it is synced"])
    disk.replace("/r/h", b"likewise")
    disk.crash()
    disk.power_loss(mode, seed)
    assert disk.nonzero_end("/r/g") == 0
    assert "/r/h" not in disk.paths()
    disk.drop_rule(rule)


def test_what_a_later_process_wrote_was_done_though_one_before_stood_still(disk):
    file = disk.open("/r/f", size=SIZE)
    rule = disk.add_rule(Rule(action=Action.HANG, ops=frozenset({Op.SYNC})))
    file.fdatasync()
    disk.crash()
    disk.drop_rule(rule)
    disk.open("/r/f", size=SIZE).pwrite(0, [b"a"])
    disk.sync_all("/r")
    disk.crash()
    disk.power_loss(PowerLossMode.LOST)
    assert disk.nonzero_end("/r/f") == 1


def test_process_killed_while_the_disk_hangs_leaves_its_sync_undone(disk):
    file = disk.open("/r/f", size=SIZE)
    file.pwrite(0, [b"a"])
    disk.add_rule(Rule(action=Action.HANG, ops=frozenset({Op.SYNC})))
    file.fdatasync()
    assert disk.blocked
    disk.crash()
    disk.heal()
    assert (disk.blocked, disk.unsynced()) == (False, (1, 0))


# Damage


def test_corruption_meets_synced_bytes_only(disk):
    file = disk.open("/r/f", size=SIZE)
    file.pwrite(0, [b"abc"])
    file.fdatasync()
    file.pwrite(2, [b"C"])
    view = file.view()
    assert disk.corrupt("/r/f", 1, 0x20)
    assert bytes(view[:3]) == b"aBC"
    assert not disk.corrupt("/r/f", 2)
    assert not disk.corrupt("/r/f", SIZE)
    assert not disk.corrupt("/r/missing", 0)
    disk.power_loss(PowerLossMode.LOST)
    assert disk.open("/r/f", size=SIZE).pread(0, 3) == b"aBc"


def test_wiped_disk_is_empty_for_good(disk):
    disk.make_directories("/r/a")
    disk.replace("/r/a/s", b"x")
    disk.wipe()
    assert disk.paths() == []
    assert disk.names("/") == []
    disk.power_loss(PowerLossMode.REORDERED)
    assert disk.read("/r/a/s") is None
    with pytest.raises(FileNotFoundError):
        disk.open("/r/a/s", size=SIZE)


def test_heal_takes_everything_away(disk):
    file = disk.open("/r/f", size=SIZE)
    disk.add_rule(fail(errno.EIO, *CHANGING))
    disk.add_rule(fail(errno.EIO, Op.READ))
    disk.limit(0)
    disk.heal()
    file.pwrite(0, [b"x" * SIZE])
    file.fdatasync()
    assert not disk.is_watched


def test_another_size_is_refused_after_a_crash_too(disk):
    disk.open("/r/f", size=SIZE)
    disk.crash()
    with pytest.raises(FatalError, match="has 65536 bytes"):
        disk.open("/r/f", size=SIZE * 2)


def test_what_a_path_durably_names_changes_with_every_sync_and_loss():
    names, (first, second) = Names(), (Inode(), Inode())
    names.link(("/d", DIRECTORY))
    names.link(("/d/file", first))
    assert names.durable("/d/file") is MISSING
    names.sync_below("/d", names.operations_made)
    assert names.durable("/d/file") is first
    names.link(("/d/file", second))
    assert names.durable("/d/file") is first
    names.sync_up_to("/d", names.operations_made)
    assert names.durable("/d/file") is second
    names.link(("/d/other", first))
    assert names.durable("/d/other") is MISSING
    names.lose_power(PowerLossMode.TORN, Random(0))  # with which it keeps the one operation
    assert names.find("/d/other") is names.durable("/d/other") is first
    names.clear()
    assert names.durable("/d/file") is MISSING
