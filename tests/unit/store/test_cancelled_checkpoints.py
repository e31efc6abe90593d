"""Who waits for a checkpoint may be cancelled; what is written goes on, one checkpoint at a time.

A stop of the server cancels an administrator's compaction amid its checkpoint.
"""

import asyncio
import threading
from contextlib import suppress

import pytest

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import IndexConfig
from store.index.marks import INDEX_FILE
from store.recovery.checkpoint import CHECKPOINT_FILE, CLEAN_FILE
from store.recovery.start import load_queues
from tests.unit.store.fakes import FakeDisk, FakeNode, World

LIMIT_S = 20


class HeldDisk(FakeDisk):
    """One small file is replaced when the test lets it be; counts who is at any."""

    def __init__(self, held=CHECKPOINT_FILE):
        super().__init__()
        self.held = held
        self.go_on, self.is_held = threading.Event(), threading.Event()
        self.at_it = self.most = 0
        self._lock = threading.Lock()

    def replace(self, path, data):
        if threading.current_thread() is threading.main_thread():
            super().replace(path, data)
            return
        with self._lock:
            self.at_it += 1
            self.most = max(self.most, self.at_it)
        if path.endswith(f"/{self.held}"):
            self.is_held.set()
            self.go_on.wait(LIMIT_S)
        super().replace(path, data)
        with self._lock:
            self.at_it -= 1


def led(disk, *, index):
    config = {"index": IndexConfig(slots=16, entries=100)} if index else {}
    world = World(disk=disk, node=FakeNode(), **config).begin()
    world.node.lead()
    put(world)
    return world


def put(world):
    world.put(properties=b"KEYS\x01k\x02")
    world.node.commit()
    world.store.tick()


async def held(world):
    """Return a task that waits for a checkpoint which is being written."""
    task = asyncio.ensure_future(world.store.checkpoints.write())
    while not world.disk.is_held.is_set():
        await asyncio.sleep(0)
    return task


async def stop_behind_a_cancelled_compaction(world, *, writers=1):
    """``writers``: so many are at it before the first of them may go on."""
    compaction = await held(world)
    compaction.cancel()
    await asyncio.wait((compaction,))
    put(world)
    stop = asyncio.ensure_future(world.store.stop())
    for _ in range(50):
        await asyncio.sleep(0.001)
    while world.disk.at_it < writers:
        await asyncio.sleep(0.001)
    world.disk.go_on.set()
    await stop


@pytest.mark.parametrize("held", [CHECKPOINT_FILE, INDEX_FILE])
def test_a_stop_waits_for_what_a_cancelled_compaction_has_begun(held):
    world = led(HeldDisk(held), index=held == INDEX_FILE)
    asyncio.run(stop_behind_a_cancelled_compaction(world))
    assert world.disk.most == 1, "two were written at once"
    again = World(disk=world.disk, node=world.node)
    assert load_queues("/s", world.disk, again.store._queues).clean


def test_the_planted_wait_ends_a_checkpoint():
    world = led(HeldDisk(), index=False)
    with planted(BY_TESTS["cancelled-wait-ends-a-checkpoint"]), suppress(FatalError):
        asyncio.run(stop_behind_a_cancelled_compaction(world, writers=2))
    assert world.disk.most == 2


async def stop_as_two_wait(world):
    first = await held(world)
    put(world)
    second = asyncio.ensure_future(world.store.checkpoints.write())
    stop = asyncio.ensure_future(world.store.stop())
    await asyncio.sleep(0)
    world.disk.go_on.set()
    await asyncio.gather(first, second, stop)


def test_of_two_who_wait_for_a_checkpoint_one_begins_the_next():
    world = led(HeldDisk(), index=False)
    begun = []
    checkpointer = world.store.checkpoints._queues
    begin = checkpointer._begin

    def note(picture, **options):
        begun.append(checkpointer._syncing is None)
        return begin(picture, **options)

    checkpointer._begin = note
    asyncio.run(stop_as_two_wait(world))
    assert all(begun)
    assert {f"/s/{name}" for name in (CHECKPOINT_FILE, CLEAN_FILE)} <= set(world.disk.files)
