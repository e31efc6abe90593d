"""The keeper: what waits for a checkpoint does not keep the loop from ending it."""

import asyncio
import errno

import pytest

from ledgermq.runtime.errors import FatalError
from store.config import IndexConfig
from store.index.keeper import IndexKeeper
from tests.unit.store.fakes import FakeClock, FakeDisk
from tests.unit.store.faults.world import no_hang
from tests.unit.store.index.support import find, keyed, log_mark


def make_keeper(fatal):
    config = IndexConfig(slots=16, entries=10, flush_ms=10, checkpoint_ms=10)
    return IndexKeeper(config, "/s", FakeDisk(), FakeClock(), on_fatal=fatal.append)


async def begin_a_checkpoint(keeper):
    """Begin one, and return as soon as it is done and before the loop has told the keeper."""
    keeper.index.put_all([keyed(0, keys="a"), keyed(1, keys="b")])
    keeper.tick(0, lambda: None)
    assert keeper.tick(20, lambda: log_mark(1))
    syncing = keeper._syncing
    assert syncing is not None
    while not syncing.done():
        await asyncio.sleep(0)
    assert keeper._syncing is syncing, "the keeper does not know yet"


def test_a_checkpoint_that_has_just_ended_is_not_waited_for_in_vain():
    fatal = []
    keeper = make_keeper(fatal)

    async def go():
        await begin_a_checkpoint(keeper)
        keeper.index.put_all([keyed(2, keys="c")])
        await keeper.finish(log_mark(2), is_last=True)

    with no_hang(20):
        asyncio.run(go())
    assert not fatal
    assert not keeper.index.is_busy
    assert not keeper.index.wants_slots
    assert find(keeper.index, "c")


def test_what_ended_a_checkpoint_is_told_to_who_waits_for_it():
    fatal = []
    keeper = make_keeper(fatal)
    disk = keeper.index.disk

    async def go():
        keeper.index.put_all([keyed(0, keys="a")])
        keeper.tick(0, lambda: None)
        disk.error, disk.writes_left = errno.EIO, len(disk.files) + 1
        await begin_a_checkpoint(keeper)
        await keeper.finish(log_mark(1), is_last=True)

    with no_hang(20), pytest.raises(FatalError) as found:
        asyncio.run(go())
    assert fatal == [found.value]
