"""Restarts that are tried on copies of a disk: they harm nobody, and what they lack is found."""

import pytest

from sim.detect import run_mutant
from sim.disk import SimDisk
from sim.disk_copy import copy_below
from sim.disk_rules import Op
from sim.inode import PowerLossMode
from sim.oracles import restarting, restarting_plain
from sim.rng import SplitRng
from sim.run import VALID, VIOLATED

SIZE = 100_000


def written() -> SimDisk:
    """Return a disk with a synced byte, an unsynced one, and a file that is not in its folder."""
    disk = SimDisk(SplitRng(1))
    disk.make_directories("/a/b")
    file = disk.open("/a/b/log", size=SIZE)
    file.pwrite(0, (b"1",))
    file.fdatasync()
    file.pwrite(70_000, (b"2",))
    disk.replace("/a/b/vote", b"old")
    disk.replace("/outside", b"kept out")
    return disk


def test_a_copy_has_what_lies_there_and_goes_its_own_way():
    disk = written()
    copy = copy_below(disk, "/a", "seed")
    assert copy.paths() == ["/a/b/log", "/a/b/vote"]
    assert bytes(copy.look("/a/b/log")) == bytes(disk.look("/a/b/log"))
    copy.replace("/a/b/vote", b"new")
    copy.open("/a/b/log", size=SIZE).pwrite(5, (b"x",))
    disk.open("/a/b/log", size=SIZE).pwrite(6, (b"y",))
    assert (disk.read("/a/b/vote"), disk.look("/a/b/log")[5]) == (b"old", 0)
    assert copy.look("/a/b/log")[6] == 0


def test_power_that_a_copy_loses_is_lost_there_alone():
    disk = written()
    before = disk.unsynced()
    copy = copy_below(disk, "/a", "seed")
    assert copy.unsynced() == before
    copy.power_loss(PowerLossMode.LOST)
    assert (copy.look("/a/b/log")[0], copy.look("/a/b/log")[70_000]) == (ord("1"), 0)
    assert disk.look("/a/b/log")[70_000] == ord("2")
    assert disk.unsynced() == before


def test_a_file_without_its_entry_goes_with_the_power_of_the_copy():
    disk = written()
    disk.open_unsynced("/a/b/late", size=4_096)
    for mode, is_there in ((None, True), (PowerLossMode.LOST, False)):
        copy = copy_below(disk, "/a", "seed")
        if mode is not None:
            copy.power_loss(mode)
        assert ("/a/b/late" in copy.paths()) is is_there


def test_steps_of_a_copy_are_heard_by_nobody():
    disk, heard = written(), list[tuple[Op, str]]()
    disk.on_step = lambda op, path: heard.append((op, path))
    copy_below(disk, "/a", "seed").replace("/a/b/vote", b"new")
    assert heard == []


@pytest.mark.parametrize(
    ("bug", "seed", "mode", "oracle"),
    [
        ("torn-tail-kept", 1, "raft", restarting.Restarting.name),
        ("vote-file-deleted-first", 1, "raft", restarting.Restarting.refused_name),
        ("plain-sync-lies", 3, "alone", restarting_plain.PlainRestarts.name),
    ],
)
def test_what_a_restart_would_lack_is_found_without_one(
    bug: str, seed: int, mode: str, oracle: str
):
    found = run_mutant(bug, seed, mode=mode)
    assert (found.verdict, found.oracle) == (VIOLATED, oracle)
    assert run_mutant("", seed, mode=mode).verdict == VALID
