"""A process that may open no more files removes none either, and tries again: nothing is lost."""

import asyncio

from ledgermq.runtime.disk import RealDisk
from store.config import IndexConfig, StoreConfig
from store.index.key_index import KeyIndex
from store.layout import UNIT
from store.plain.config import PlainLogConfig
from store.plain.log import PlainLog
from store.queues.consume_queue import ConsumeQueues
from store.queues.start import LogStart
from tests.unit.store.fakes import HOST, FakeClock
from tests.unit.store.index.support import find, keyed
from tests.unit.store.plain.records import SEGMENT, record
from tests.unit.store.plain.test_syncs import User
from tests.unit.store.test_no_more_files import no_more_files

SEGMENTS = 8


def test_queue_files_wait(tmp_path):
    config = StoreConfig(directory=str(tmp_path), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    queue = queues.maybe_make(b"t", 0)
    for number in range(12):  # more than two files
        queues.take(queue, UNIT.pack(number * 1000, 10, -1), 1)
    assert queues.flush()
    queues.files.close()
    queue.min_offset = 11
    log_start = LogStart(queues)

    async def ask():
        with no_more_files():
            assert await log_start.drop_queue_files() == 0
            log_start.drop_what_waits()

    asyncio.run(ask())
    assert queue.names() == sorted(path.name for path in (tmp_path / "consumequeue/t/0").iterdir())
    assert len(queue.names()) == 3
    log_start.drop_what_waits()
    assert queue.names() == sorted(path.name for path in (tmp_path / "consumequeue/t/0").iterdir())
    assert len(queue.names()) == 1


def former_queues(path, *, begins=0):
    """Install a snapshot in which a queue is gone, or begins later, without any file to spare."""
    config = StoreConfig(directory=str(path), store_host=HOST, queue_file_bytes=100)
    queues = ConsumeQueues(config, RealDisk())
    for number in range(12):
        queues.take(queues.maybe_make(b"t", 0), UNIT.pack(number * 1000, 10, -1), 1)
    assert queues.flush()
    queues.files.close()
    log_start = LogStart(queues)
    starts = [("t", 0, begins)] if begins else []
    steps = log_start.settle(starts) if begins else log_start.install(())
    with no_more_files():
        assert [next(steps) for _ in range(3)] == [True] * 3, "waits, and is asked again"
        assert not log_start.is_whole
    assert True not in list(steps)
    assert queues.flush()
    return queues, sorted(file.name for file in (path / "consumequeue/t/0").iterdir())


def test_former_queues_wait(tmp_path):
    queues, names = former_queues(tmp_path)
    assert (list(queues.by_key), names) == ([], [])


def test_a_queue_that_begins_behind_its_files_waits(tmp_path):
    queues, names = former_queues(tmp_path, begins=27)
    assert queues.maybe_make(b"t", 0).min_offset == 27
    assert names == [f"{500:020}"]


def test_files_of_the_key_index_wait(tmp_path):
    index = KeyIndex(IndexConfig(slots=16, entries=5), str(tmp_path), RealDisk(), FakeClock())
    index.put_all([keyed(n, keys=f"k{n}") for n in range(12)])
    assert index.flush()
    index.close()
    paths = list((tmp_path / "index").iterdir())
    count = len(index.files)
    assert count == len(paths) > 2
    index.drop_before(index.files[-1].begin_physical)
    with no_more_files():
        index.flush()
        assert len(index.files) == count
        assert all(path.exists() for path in paths)
    assert index.flush()
    assert len(index.files) == sum(path.exists() for path in paths) < count
    assert find(index, "k11")
    index.close()


async def drop_segments(path, ended):
    """Let a log begin later that has closed its first files; return how many are left, twice."""
    config = PlainLogConfig(directory=str(path), segment_bytes=SEGMENT, open_segments_max=4)
    log = PlainLog(config, on_fatal=ended.append)
    await log.start(User())
    for _ in range(SEGMENTS):
        size = len(record(0, body=b"x" * 3000))
        log.append((record(log.reserve(size), body=b"x" * 3000),), size)
        await asyncio.sleep(0)
        log._flusher.begin()  # what waits for a sync stays open
        while log.synced_position < log.end_position:
            await asyncio.sleep(0.001)
    await log._worker.drain()
    left = []
    paths = list(path.iterdir())
    with no_more_files():
        for segment in (1, 2):
            assert log.drop_before(segment * SEGMENT) == SEGMENT
        await asyncio.sleep(0.3)
        left.append(sum(path.exists() for path in paths))
    while log._leaving and not ended:
        await asyncio.sleep(0.01)
    left.append(sum(path.exists() for path in paths))
    assert log.first_position == 2 * SEGMENT
    await log.stop()
    return left


def test_files_of_a_plain_log_wait(tmp_path):
    ended = []
    before, behind = asyncio.run(drop_segments(tmp_path / "log", ended))
    assert not ended
    assert before == behind + 2
