"""Queues and a loss of power: any mixture of what was not synced may be gone, at any moment.

The log keeps everything here; whatever becomes of queue files, directories and checkpoints, the
queues of the next start are what dispatching the log gives.
"""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mutants.patches import BY_TESTS
from mutants.planting import planted
from sim.disk import SimDisk
from sim.inode import PowerLossMode
from sim.rng import SplitRng
from store.queues import files as queue_files
from store.queues.files import QueueFiles
from store.recovery import start as recovery
from store.recovery.checkpoint import StoreTimes
from tests.unit.store.fakes import World

QUEUES = 12

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 40)),
        st.tuples(st.just("write"), st.integers(1, 80)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("half"), st.integers(0, 3)),
        st.tuples(st.just("stop"), st.just(0)),
        st.tuples(st.just("crash"), st.sampled_from([None, *PowerLossMode])),
    ),
    min_size=3,
    max_size=14,
)


def units(world):
    """What every queue holds, written or not."""
    return {
        name: (queue.min_offset, queue.read(queue.min_offset, queue.max_offset - queue.min_offset))
        for name, queue in world.store._queues.by_name.items()
        if queue.max_offset
    }


def write_half(world, count):
    """Begin a checkpoint, and get as far as ``count`` of its writes."""
    checkpointer = world.store.checkpoints._queues
    if not world.store._queues.flush() or checkpointer.is_busy:
        return
    work = checkpointer._work(
        checkpointer._picture_now(world.store._dispatcher.applied), is_last=False
    )
    if count:
        world.store._queues.files.sync(work.unsynced)
    if count > 1:
        checkpointer._sync(work)
    if count > 2:
        checkpointer._take(work)


def stop(world):
    """What `MessageStore.stop` does last, without a loop."""
    checkpointer = world.store.checkpoints._queues
    if world.store._queues.flush():
        applied = world.store._dispatcher.applied
        work = checkpointer._work(checkpointer._picture_now(applied), is_last=True)
        assert checkpointer._sync(work)


def run(steps, seed, queue_count=QUEUES):
    disk = SimDisk(SplitRng(seed))
    disk.make_directories("/s")
    world = World(disk=disk, queue_file_bytes=400).begin()
    world.node.lead()
    number = 0
    for step, argument in steps:
        if step == "put":
            for _ in range(argument):
                number += 7
                topic = f"t{number % queue_count}"
                world.put(topic=topic, queue_id=number % 2, body=b"%d" % number)
            world.node.commit()
        elif step == "write":
            world.store._queues.flush(argument)
        elif step == "checkpoint":
            assert world.store.checkpoints.write_now()
        elif step == "half":
            write_half(world, argument)
        else:
            if step == "stop":
                stop(world)
            if isinstance(argument, PowerLossMode):
                disk.power_loss(argument)
            else:
                disk.crash()
            world = World(disk=disk, node=world.node, queue_file_bytes=400).begin(10**6)
            model = World(node=world.node).begin(10**6)
            world.node.store = world.store
            assert units(world) == units(model)
            world.node.lead()


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@settings(max_examples=120)
@given(steps, st.integers(0, 99))
def test_queues_are_what_the_log_gives_after_any_loss(steps, seed):
    run([*steps, ("crash", PowerLossMode.REORDERED)], seed)


@settings(max_examples=60)
@given(steps, st.integers(0, 99), st.integers(1, 6))
def test_files_synced_one_by_one_are_as_good(steps, seed, count):
    limit, queue_files.SYNC_EACH_MAX = queue_files.SYNC_EACH_MAX, count
    searched, recovery.SEARCHED_QUEUES_MAX = recovery.SEARCHED_QUEUES_MAX, 0
    try:
        run([*steps, ("crash", PowerLossMode.LOST)], seed)
    finally:
        queue_files.SYNC_EACH_MAX = limit
        recovery.SEARCHED_QUEUES_MAX = searched


PLAN = [("put", 30), ("checkpoint", 0), ("put", 30), ("half", 3), ("put", 9)]


def lose_names(self, unsynced):
    """The planted bug: files that were made are synced, their directories are not."""
    for path in unsynced.paths:
        file = self.disk.open_unsynced(path, size=self.file_bytes)
        file.fdatasync()
    return True


def sync_nothing(self, unsynced):
    """The planted bug: the checkpoint promises what is in the page cache."""
    return True


@pytest.mark.parametrize("bug", [lose_names, sync_nothing])
def test_planted_bugs_are_caught_by_the_crcs_and_cost_a_rebuild(bug, monkeypatch):
    """Even then no unit is wrong; but the start has to dispatch the whole log again."""
    rebuilds = []

    def note(mark, recovered):
        rebuilds.append(mark.topic)
        recovered.rebuild = True

    monkeypatch.setattr(recovery, "_note_damaged", note)
    run([*PLAN, ("crash", PowerLossMode.LOST)], 1)
    assert not rebuilds
    monkeypatch.setattr(QueueFiles, "sync", bug)
    run([*PLAN, ("crash", PowerLossMode.LOST)], 1)
    assert rebuilds


def checkpoints_before_the_flush():
    """Return how many checkpoints begin before, and behind, the writing of what waits for it."""
    world = World(queue_file_bytes=400, checkpoint_ms=1_000).begin()
    world.node.lead()
    checkpointer, begun = world.store.checkpoints._queues, []
    checkpointer._begin = begun.append
    world.put()
    world.node.commit()
    world.turns()
    applied = world.store._dispatcher.applied
    checkpointer.tick(0, applied)
    checkpointer.tick(1_000, applied)
    before = len(begun)
    assert world.store._queues.flush()
    checkpointer.tick(2_000, applied)
    return before, len(begun) - before


def test_a_checkpoint_waits_for_the_queues_that_it_tells_of():
    assert checkpoints_before_the_flush() == (0, 1)
    with planted(BY_TESTS["checkpoint-of-unwritten-queues"]):
        assert checkpoints_before_the_flush()[0] == 1


def promised_after_the_sync():
    """Return what ``checkpoint`` promises of the log as it is made, and once the rest is synced."""
    world = World(queue_file_bytes=400, checkpoint_ms=1_000).begin()
    world.node.lead()
    world.put()
    world.node.commit()
    world.turns()
    synced, made = [5], []
    checkpointer = world.store.checkpoints._queues
    checkpointer._times = lambda _end, _stored: StoreTimes(synced[0], 9, 0)

    def begin(picture):
        made.append(checkpointer._work(picture, is_last=False))
        assert checkpointer._sync(made[-1])
        checkpointer._take(made[-1])

    checkpointer._begin = begin
    assert world.store._queues.flush()
    for now_ms in range(0, 10_000, 500):
        synced[0] = 5 if now_ms < 5_000 else 8
        checkpointer.tick(now_ms, world.store._dispatcher.applied)
    assert len({work.head.marks for work in made}) == 1, "nothing came"
    return [work.times.physic for work in made]


def test_what_is_synced_while_nothing_comes_is_promised_once():
    assert promised_after_the_sync() == [5, 8]


def test_a_checkpoint_that_stays_behind_for_ever_is_found():
    with planted(BY_TESTS["sync-of-the-rest-not-promised"]), pytest.raises(AssertionError):
        test_what_is_synced_while_nothing_comes_is_promised_once()
