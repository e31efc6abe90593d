"""A plain log keeps its beginning while units are repaired from it: nothing else has them."""

import errno

import pytest

from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.queues import files as queue_files
from store.queues import start
from store.queues.consume_queue import ConsumeQueue
from store.queues.start import maybe_offset_past_damage, offset_at
from store.results import GetStatus, PutStatus
from tests.unit.store.faults.damage import disk_of
from tests.unit.store.faults.world import QUEUE_FILE, ROOT, SEGMENT, Cluster

BLOCK = 60
"""Bytes: three units."""


@pytest.fixture
def plain(monkeypatch):
    """A broker on its own with a log of several segments, all of one queue."""
    monkeypatch.setattr(queue_files, "BLOCK_BYTES", BLOCK)
    cluster = Cluster({"n0": disk_of({})}, raft=False)
    assert cluster.start() is None
    for number in range(120):
        assert cluster.put("t0", 0, b"%d" % number * 30) is PutStatus.OK
    cluster.run_for(1_000)
    yield cluster
    cluster.close()


def damage(cluster, offset):
    """Damage a unit on disk; nobody notices it yet."""
    place = offset * 20
    path = f"{ROOT}/consumequeue/t0/0/{place - place % QUEUE_FILE:020}"
    file = cluster.disks["n0"].open(path, size=QUEUE_FILE)
    file.pwrite(place % QUEUE_FILE + 3, (b"?",))
    cluster.store()._queues.by_name["t0", 0].distrust(offset)


def retain(cluster):
    """Let two rounds of retention come, with the time between that they have."""
    retained = cluster.brokers["n0"]._mode.retained
    for _ in range(2):
        cluster.do(lambda: cluster.loop.create_task(retained.drop_before(2 * SEGMENT)))
        cluster.run_for(10_000)


def read_at_the_beginning(cluster, *, is_there=False):
    """Return where the queue begins after retention, and what is there, or at the damaged unit.

    That is its first unit but one, or the one of the message with which the log begins then.
    """
    damaged = offset_at(cluster.store()._queues.by_name["t0", 0], 2 * SEGMENT) if is_there else 1
    damage(cluster, damaged)
    retain(cluster)
    assert cluster.log().first_position == 2 * SEGMENT
    reader = cluster.store().reader
    first = reader.min_offset("t0", 0)
    return first, reader.get("t0", 0, max(first, damaged), 32, 1 << 20, None).status


@pytest.mark.parametrize("is_there", [True, False])
def test_a_queue_begins_where_the_log_does_though_its_units_were_damaged(plain, is_there):
    first, status = read_at_the_beginning(plain, is_there=is_there)
    assert first > QUEUE_FILE // 20
    assert status is GetStatus.FOUND


def test_the_planted_retention_leaves_nothing_to_repair_from(plain):
    with planted(BY_TESTS["retention-before-a-repair"]):
        assert read_at_the_beginning(plain, is_there=True) == (0, GetStatus.DAMAGED)


def test_what_cannot_be_repaired_holds_up_no_retention(plain, monkeypatch):
    def full(_queue, _block, _units):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(ConsumeQueue, "replace_block", full)
    first, status = read_at_the_beginning(plain)
    # What is damaged is of messages that are gone: nobody has to read past it.
    assert first > QUEUE_FILE // 20
    assert status is GetStatus.FOUND


def test_damage_where_the_log_begins_is_not_passed_over(plain, monkeypatch):
    queue = plain.store()._queues.by_name["t0", 0]
    begins = offset_at(queue, 2 * SEGMENT)
    damage(plain, begins)
    assert maybe_offset_past_damage(queue, 2 * SEGMENT) is None
    with planted(BY_TESTS["damage-passed-over"]):
        assert start.maybe_offset_past_damage(queue, 2 * SEGMENT) > begins
    damage(plain, begins - 3)  # the block before that one
    assert maybe_offset_past_damage(queue, 2 * SEGMENT) is None
    damage(plain, 119)
    assert maybe_offset_past_damage(queue, 1 << 40) is None
