"""Entries that were acknowledged, and corruption before the checkpoint knows of them.

Without more than the checkpoint a start takes them for a torn write, cuts them, and votes for a
leader that never had them: then they are gone, although each was on two disks.
"""

import errno
import random

import pytest

from dledger.codec.properties import MARK_BYTES, Checkpoint
from dledger.core.messages import VoteRequest
from dledger.core.model import Role
from dledger.errors import DiskFull
from dledger.storage.state_files import CheckpointFile
from ledgermq.runtime.errors import FatalError
from sim.disk import SimDisk
from sim.disk_rules import Action, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng
from tests.unit.dledger.test_power_loss_group import Group

BODY, HEADER_SIZE, HEADER_INDEX, MAGIC = 60, 5, 15, 3
"""What is corrupted: an offset in the entry."""


def sync(node):
    """Have a sync return, and no checkpoint."""
    node.begin_sync()
    while node.syncs:
        node.driver.end_sync(node.syncs.pop(0))
        node.work()


def settle(group):
    """Let everybody hear everything."""
    for _ in range(30):
        while group.network:
            message = group.network.pop(0)
            node = group.nodes[message.receiver]
            if node.raft is not None:
                node.raft.step(message)
                node.work()
        for node in group.up:
            sync(node)
        if not group.network:
            return


def lead(group, node_id):
    node = group.nodes[node_id]
    while node.raft.state.role is not Role.LEADER:
        node.raft.tick()
        node.work()
        settle(group)
    return node


def acknowledged_by_two():
    """n0 leads; it and n1 have three entries that n2 lacks; then all are killed."""
    group = Group(0)
    leader = lead(group, "n0")
    for node in group.up:
        node.end_sync()
        file = node.replica.checkpoint_file
        file.save(node.driver.checkpoint(), file.cuts)
    group.nodes["n2"].stop(None, 0)
    before = len(group.acknowledged)
    for body in (b"one" * 30, b"two" * 30, b"three" * 30):
        leader.propose(body)
        settle(group)
    assert len(group.acknowledged) == before + 3
    return group


def corruption_of(node, index, at, mask=1):
    """Return what flips bits of an entry."""
    position, size, _ = node.store.entry(index)
    segment = node.config.data_segment_bytes
    path = f"{node.config.directory}/data/{position - position % segment:020}"
    return lambda: node.disk.corrupt(path, position % segment + at % size, mask)


def start(node):
    """Start a replica; False if it refuses."""
    try:
        node.start()
    except FatalError:
        node.raft = None
        return False
    if node.store.corruption.damaged:
        node.raft.block("corruption")  # as `DLedgerNode` does
    return True


@pytest.mark.parametrize("at", [BODY, HEADER_SIZE, HEADER_INDEX, MAGIC, -1])
@pytest.mark.parametrize("back", [0, 1, 2])
def test_who_lost_an_acknowledged_entry_elects_nobody_without_it(at, back):
    group = acknowledged_by_two()
    node = group.nodes["n1"]
    corrupt = corruption_of(node, node.store.last_index - back, at)
    for one in list(group.up):
        one.stop(None, 0)
    group.network.clear()
    assert corrupt()
    assert start(node)
    assert group.nodes["n2"].store.last_index < len(group.acknowledged) - 1
    group.nodes["n2"].start()
    for _ in range(200):
        group.tick()
        settle(group)
        assert all(one.raft.state.role is not Role.LEADER for one in group.up)
    group.nodes["n0"].start()
    lead(group, "n0").propose(b"more" * 20)
    settle(group)
    group.check()
    assert group.acknowledged[-1][1] == b"more" * 20
    assert group.nodes["n2"].entries() == group.nodes["n0"].entries()


def test_header_and_unit_both_corrupt_refuse_the_start():
    group = acknowledged_by_two()
    node = group.nodes["n1"]
    index = node.store.last_index
    corrupt = corruption_of(node, index, HEADER_SIZE, mask=255)
    node.stop(None, 0)
    corrupt()
    units = 32 * (index % 16)
    assert node.disk.corrupt(f"/n1/index/{32 * index - units:020}", units + 10, 255)
    assert not start(node)


def test_a_vote_is_refused_to_who_lacks_it():
    group = acknowledged_by_two()
    node = group.nodes["n1"]
    last, term = node.store.last_index, node.raft.state.term
    corrupt = corruption_of(node, last, BODY)
    node.stop(None, 0)
    corrupt()
    node.start()
    group.network.clear()
    node.raft.step(VoteRequest("n2", "n1", term + 1, last - 1, term, transfer=False))
    node.work()
    assert [message.granted for message in group.network] == [False]
    node.raft.step(VoteRequest("n0", "n1", term + 2, last, term, transfer=False))
    node.work()
    assert [message.granted for message in group.network] == [False, True]


def test_what_was_never_synced_is_a_torn_write_still():
    group = acknowledged_by_two()
    node = group.nodes["n0"]
    last = node.store.last_index
    node.propose(b"of which nobody heard")
    assert node.store.last_index == last + 1
    node.stop(PowerLossMode.LOST, 0)
    node.start()
    assert node.store.last_index == last


# The file


def checkpoints(disk, noted=None):
    file = CheckpointFile(disk, "/d")
    file.load()
    if noted is not None:
        file.save(noted, file.cuts)
    return file


@pytest.fixture
def disk():
    disk = SimDisk(SplitRng(1))
    disk.make_directories("/d")
    return disk


def loaded(disk):
    return CheckpointFile(disk, "/d").load()


def test_a_mark_outlives_the_process_and_the_checkpoint_it_went_with(disk):
    file = checkpoints(disk, Checkpoint(5, 4))
    file.mark(9)
    assert loaded(disk) == Checkpoint(9, 4)
    file.mark(8)
    assert loaded(disk) == Checkpoint(9, 4), "a late one"
    file.save(Checkpoint(7, 6), file.cuts)
    assert loaded(disk) == Checkpoint(9, 6)
    file.save(Checkpoint(12, 6), file.cuts)
    file.mark(11)
    assert loaded(disk) == Checkpoint(12, 6)
    file = checkpoints(disk)
    file.mark(13)
    assert loaded(disk) == Checkpoint(13, 6)


def test_a_mark_is_nothing_to_another_checkpoint(disk):
    checkpoints(disk, Checkpoint(5, 4)).mark(9)
    disk.replace("/d/checkpoint", b"committedIndex=3\nendIndex=6\n")
    assert loaded(disk) == Checkpoint(6, 3)
    disk.replace("/d/checkpoint", b"committedIndex=4\nendIndex=5\n")
    assert loaded(disk) == Checkpoint(5, 4), "it counts no more if such a one comes again"


@pytest.mark.parametrize(
    "damage", [b"", b"\0" * MARK_BYTES, b"x" * MARK_BYTES, b"short", b"l" * 99]
)
def test_a_damaged_mark_says_nothing_and_is_made_again(disk, damage):
    file = checkpoints(disk, Checkpoint(5, 4))
    file.mark(9)
    content = disk.read("/d/synced")
    for offset in range(MARK_BYTES):
        broken = bytearray(content)
        broken[offset] ^= 1
        disk.replace("/d/synced", bytes(broken))
        assert loaded(disk) == Checkpoint(5, 4), offset
    disk.replace("/d/synced", damage)
    file = checkpoints(disk)
    assert loaded(disk) == Checkpoint(5, 4)
    file.mark(10)
    assert loaded(disk) == Checkpoint(10, 4)


@pytest.mark.parametrize("mode", PowerLossMode)
def test_a_cut_lowers_the_mark_for_good(disk, mode):
    file = checkpoints(disk, Checkpoint(5, 4))
    file.mark(9)
    file.lower(7)
    file.mark(6)
    disk.power_loss(mode, 1)
    assert loaded(disk) in {Checkpoint(7, 4), Checkpoint(5, 4)}
    file = checkpoints(disk)
    file.mark(20)
    file.lower(3)
    disk.power_loss(mode, 1)
    assert loaded(disk) == Checkpoint(3, 3)


def test_a_full_disk_keeps_the_old_mark_and_forbids_the_cut(disk):
    file = checkpoints(disk, Checkpoint(5, 4))
    file.mark(9)
    rule = disk.add_rule(Rule(action=Action.FAIL, error=errno.ENOSPC))
    file.mark(11)
    assert loaded(disk).end_index in {5, 9}, "a failed write may have written a part"
    with pytest.raises(DiskFull):
        file.lower(7)
    disk.drop_rule(rule)
    file.lower(7)
    assert loaded(disk) == Checkpoint(7, 4)


def test_random_marks_are_never_ahead_of_the_truth():
    for seed in range(300):
        chance = random.Random(seed)
        disk = SimDisk(SplitRng(seed))
        disk.make_directories("/d")
        file, synced = checkpoints(disk), -1
        for _ in range(chance.randint(1, 40)):
            what = chance.random()
            if what < 0.5:
                synced += chance.randint(0, 3)
                file.mark(synced)
            elif what < 0.7:
                file.save(Checkpoint(synced, min(synced, 2)), file.cuts)
            elif what < 0.85 and synced > 2:
                synced -= chance.randint(0, synced - 2)
                file.lower(synced)
            else:
                disk.power_loss(chance.choice(list(PowerLossMode)), seed)
                file = checkpoints(disk)
                assert loaded(disk).end_index <= synced, seed


def test_a_failing_disk_ends_the_process_and_names_the_file(disk):
    file = checkpoints(disk, Checkpoint(5, 4))
    file.mark(9)
    disk.add_rule(Rule(action=Action.FAIL, error=errno.EIO, glob="/d/synced"))
    with pytest.raises(FatalError, match="/d/synced"):
        file.mark(10)
    with pytest.raises(FatalError, match="/d/synced"):
        file.lower(3)
