"""What a replica says is compared with what its disk would have after a loss of power now."""

from types import SimpleNamespace

import pytest

from dledger.codec.properties import (
    Checkpoint,
    encode_checkpoint,
    encode_hard_state,
    encode_mark,
)
from dledger.core.messages import AppendReply, Heartbeat, PreVoteRequest, VoteReply, VoteRequest
from dledger.core.model import HardState, Role
from sim.disk import SimDisk
from sim.oracles.base import Violation
from sim.oracles.durable import Durable
from sim.oracles.replica import Change, Mark, Replica
from sim.oracles.truth import Truth
from sim.rng import SplitRng

SEGMENT = 4096
VOTERS = ("n0", "n1", "n2")


class Store:
    """A log of entries of 100 bytes."""

    first_index, last_index, persisted_index = 0, 9, -1

    def entry(self, index):
        return 100 * index, 100, 1


def replica(name, bit=1):
    disk = SimDisk(SplitRng(1))
    disk.make_directories("/d/data")
    config = SimpleNamespace(directory="/d", data_segment_bytes=SEGMENT)
    made = Replica(name, bit)
    raft = SimpleNamespace(state=SimpleNamespace(log=Store(), voters={}))
    node = SimpleNamespace(_disk=disk, config=config, _store=Store(), _raft=raft)
    made.controller = SimpleNamespace(node=node)
    made.state = raft.state
    made.disk, made.checkpoint_path = disk, "/d/checkpoint"
    return made, disk


def test_a_disk_that_was_full_leaves_the_old_note():
    one, disk = replica("n0")
    one.node = one.controller.node
    one.node._driver = SimpleNamespace(synced_index=6)
    checked = validator(one)
    disk.writes_refused += 1
    checked.on_boot(one)
    with pytest.raises(Violation, match="synced up to 6, and notes -1"):
        checked.on_kill(one)  # it was full in an earlier life
    disk.writes_refused += 1
    checked.on_kill(one)


def test_a_snapshot_stands_for_what_was_synced_before():
    one, _ = replica("n0")
    one.node = one.controller.node
    one.node._driver = SimpleNamespace(synced_index=6)
    with pytest.raises(Violation, match="synced up to 6, and notes -1"):
        validator(one).on_kill(one)
    one.node._store.first_index = 7
    validator(one).on_kill(one)


def validator(*replicas, is_sync=True):
    return Durable(Truth(VOTERS), {one.name: one for one in replicas}, is_sync=is_sync)


def test_a_vote_that_is_on_disk_may_be_told():
    one, disk = replica("n0")
    disk.replace("/d/currterm", encode_hard_state(HardState(3, "n1")))
    durable = validator(one)
    durable.on_message(one, VoteReply("n0", "n1", 3, granted=True))
    durable.on_message(one, VoteReply("n0", "n2", 3, granted=False))
    durable.on_message(one, Heartbeat("n0", "n1", 2, -1, 1))


@pytest.mark.parametrize(
    "message",
    [
        VoteReply("n0", "n2", 3, granted=True),
        VoteRequest("n0", "n1", 3, -1, 0),
        VoteReply("n0", "n1", 4, granted=False),
        Heartbeat("n0", "n1", 4, -1, 1),
    ],
)
def test_a_term_or_vote_that_is_not_on_disk_must_not_be_told(message):
    one, disk = replica("n0")
    disk.replace("/d/currterm", encode_hard_state(HardState(3, "n1")))
    with pytest.raises(Violation, match="its disk is sure of term 3 and vote n1"):
        validator(one).on_message(one, message)


def test_a_plan_is_no_term():
    one, _ = replica("n0")
    validator(one).on_message(one, PreVoteRequest("n0", "n1", 9, -1, 0))


def write(disk, *, sync):
    file = disk.open("/d/data/00000000000000000000", size=SEGMENT)
    file.pwrite(0, [b"x" * 500])
    if sync:
        file.fdatasync()


@pytest.mark.parametrize("sync", [True, False])
def test_an_acknowledgement_waits_for_the_sync(sync):
    one, disk = replica("n0")
    disk.replace("/d/currterm", encode_hard_state(HardState(1, "n1")))
    write(disk, sync=sync)
    reply = AppendReply("n0", "n1", 1, 4)
    validator(one, is_sync=False).on_message(one, reply)
    if sync:
        validator(one).on_message(one, reply)
    else:
        with pytest.raises(Violation, match="acknowledges entry 4 and has not synced it"):
            validator(one).on_message(one, reply)


@pytest.mark.parametrize("synced", [0, 1, 2, 3])
def test_a_commit_needs_a_majority_of_disks(synced):
    replicas = []
    for number, name in enumerate(VOTERS):
        one, disk = replica(name, 1 << number)
        one.marks = [Mark(1, 100 * index, 100, 7) for index in range(10)]
        write(disk, sync=number < synced)
        replicas.append(one)
    change = Change((Role.LEADER, 1, 3, 4, 1, 3, 3), (Role.LEADER, 1, 4, 4, 1, 3, 3), 4, 4)
    if synced >= 2:
        validator(*replicas).on_change(replicas[0], change)
    else:
        with pytest.raises(Violation, match="committed up to 4"):
            validator(*replicas).on_change(replicas[0], change)


@pytest.mark.parametrize("sync", [True, False])
def test_a_checkpoint_says_what_the_disk_is_sure_of(sync):
    one, disk = replica("n0")
    write(disk, sync=sync)
    disk.replace("/d/checkpoint", encode_checkpoint(Checkpoint(4, 3)))
    change = Change((Role.FOLLOWER, 1, 3, 4, 1, 3, 3), (Role.FOLLOWER, 1, 4, 4, 1, 3, 3), 4, 4)
    if sync:
        validator(one).on_change(one, change)
    else:
        with pytest.raises(Violation, match="notes entry 4 as synced"):
            validator(one).on_change(one, change)


@pytest.mark.parametrize(
    ("end", "mark", "synced", "before", "is_fine"),
    [
        (4, -1, 4, -1, True),
        (4, 6, 6, -1, True),
        (-1, 6, 6, -1, True),  # in the first second of a life
        (-1, -1, 6, -1, False),
        (4, -1, 6, -1, False),
        (4, 5, 6, -1, False),
        (4, -1, 6, 6, True),  # nothing was synced in this life
    ],
)
def test_a_killed_process_leaves_a_note_of_what_it_has_synced(end, mark, synced, before, is_fine):
    one, disk = replica("n0")
    one.node = one.controller.node
    one.node._driver = SimpleNamespace(synced_index=synced)
    one.synced_before = before
    checkpoint = Checkpoint() if end < 0 else Checkpoint(end, 3)
    if end >= 0:
        disk.replace("/d/checkpoint", encode_checkpoint(checkpoint))
    if mark >= 0:
        disk.replace("/d/synced", encode_mark(checkpoint, mark))
    if is_fine:
        validator(one).on_kill(one)
    else:
        with pytest.raises(Violation, match=f"synced up to {synced}, and notes"):
            validator(one).on_kill(one)


@pytest.mark.parametrize(
    ("persisted", "sync", "is_sync", "is_fine"),
    [
        (4, True, True, True),
        (4, False, True, False),
        (4, False, False, True),
        (9, False, True, True),
    ],
    ids=["it is", "it is not", "need not be", "not held any more"],
)
def test_what_a_replica_counts_as_synced_would_survive(persisted, sync, is_sync, is_fine):
    one, disk = replica("n0")
    one.marks = [Mark(1, 100 * index, 100, 7) for index in range(5)]
    one.state.log = SimpleNamespace(persisted_index=persisted)
    write(disk, sync=sync)
    change = Change((Role.FOLLOWER, 1, 3, 4, 1, 3, 3), (Role.FOLLOWER, 1, 4, 4, 1, 3, 3), 4, 4)
    checked = validator(one, is_sync=is_sync)
    if is_fine:
        checked.on_change(one, change)
    else:
        with pytest.raises(Violation, match="counts entry 4 as synced"):
            checked.on_change(one, change)
