"""Where queues begin: trimming, what is kept of a queue, and a start from a snapshot."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.config import StoreConfig
from store.layout import UNIT, UNIT_BYTES
from store.queues import start as beginning
from store.queues.consume_queue import ConsumeQueues
from store.queues.start import LogStart
from store.recovery.start import load_queues
from tests.unit.store.fakes import FakeDisk

FILE_UNITS = 10


@pytest.fixture
def queues(config):
    return make(config, FakeDisk())


def make(config, disk):
    return ConsumeQueues(config, disk)


@pytest.fixture
def config():
    return StoreConfig(
        directory="/s", store_host=bytes(8), queue_file_bytes=FILE_UNITS * UNIT_BYTES
    )


def fill(queues, topic, count, step=100, start=0):
    """A queue whose message i lies at ``start + i * step``."""
    queue = queues.maybe_make(topic.encode(), 0)
    for number in range(count):
        queue.tail += UNIT.pack(start + number * step, step, 0)
    queue.max_offset += count
    queue.flush()
    return queue


def test_offset_at_a_place_in_the_log(queues):
    queue = fill(queues, "T", 25)
    assert [beginning.offset_at(queue, at) for at in (0, 1, 100, 101, 2400, 2401, 9999)] == [
        0, 1, 1, 2, 24, 25, 25,
    ]  # fmt: skip
    fill(queues, "Later", 3, start=5000)
    assert LogStart(queues).queue_starts_at(1000) == [("T", 0, 10)]
    assert LogStart(queues).queue_starts_at(9999) == [("Later", 0, 3), ("T", 0, 25)]


def test_trimmed_queue_keeps_counting_and_loses_whole_files(queues):
    queue = fill(queues, "T", 25)
    LogStart(queues).advance_to(1500)
    assert (queue.min_offset, queue.max_offset) == (15, 25)
    queue.drop_files()
    assert queue.first_file == FILE_UNITS * UNIT_BYTES
    assert queues.files.disk.names("/s/consumequeue/T/0") == [f"{n * 200:020}" for n in (1, 2)]
    assert UNIT.unpack(queue.read(15, 1))[0] == 1500
    LogStart(queues).advance_to(9999)
    queue.drop_files()
    assert (queue.min_offset, queue.max_offset, queue.file_count) == (25, 25, 1)
    queue.tail += UNIT.pack(2500, 100, 0)
    queue.max_offset += 1
    queue.flush()
    assert UNIT.unpack(queue.read(25, 1))[0] == 2500


def test_offsets_of_many_queues_are_found_while_messages_come(queues, monkeypatch):
    monkeypatch.setattr(beginning, "SLICE_QUEUES", 2)
    log_start = LogStart(queues)
    made = [fill(queues, f"T{number}", 25) for number in range(5)]

    async def scenario():
        looking = asyncio.create_task(log_start.resolve(1500))
        turns = 0
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
            made[turns % 5].tail += UNIT.pack(2500 + turns * 100, 100, 0)
            made[turns % 5].max_offset += 1
        return turns

    assert asyncio.run(scenario()) > 2, "the loop had its turns"
    late = fill(queues, "Late", 3, start=9000)
    monkeypatch.setattr(beginning, "offset_at", lambda queue, position: queue.min_offset)
    assert log_start.queue_starts_at(1500) == [(f"T{number}", 0, 15) for number in range(5)]
    log_start.advance_to(1500)
    assert [queue.min_offset for queue in (*made, late)] == [15] * 5 + [0]
    log_start.advance_to(1500)
    assert made[0].min_offset == 15
    assert log_start.queue_starts_at(2000) == [(f"T{number}", 0, 15) for number in range(5)], (
        "nothing is known of another position"
    )


def test_snapshot_replaces_all_queues(queues):
    fill(queues, "Old", 5)
    queue = fill(queues, "T", 3)
    assert list(LogStart(queues).install([("T", 0, 17), ("New", 2, 20)])) == []
    assert sorted(queues.by_name) == [("New", 2), ("T", 0)]
    queue = queues.by_name["T", 0]
    assert (queue.min_offset, queue.max_offset, queue.first_file) == (17, 17, 200)
    assert queues.flush()
    queue = queues.by_name["New", 2]
    assert (queue.min_offset, queue.max_offset, queue.first_file) == (20, 20, 400)
    assert queues.files.disk.names("/s/consumequeue/Old/0") == []


@pytest.mark.parametrize("held", [0, 4, 17, 25])
def test_queue_never_falls_below_its_base(queues, held):
    queue = fill(queues, "T", held)
    assert list(LogStart(queues).settle([("T", 0, 17)])) == []
    assert (queue.min_offset, queue.max_offset) == (17, max(17, held))


def test_name_of_no_queue_is_left_out(queues):
    assert list(LogStart(queues).settle([("../x", 0, 5), ("T", 0, 1)])) == []
    assert sorted(queues.by_name) == [("T", 0)]


def test_nothing_on_disk_begins_where_the_log_does(config):
    disk = FakeDisk()
    queues = make(config, disk)
    recovered = load_queues("/s", disk, queues, [("T", 0, 9)])
    assert list(LogStart(queues).settle([("T", 0, 9)])) == []
    assert recovered.rebuild
    assert queues.by_name["T", 0].max_offset == 9


@settings(max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 40), st.integers(0, 400), st.integers(0, 3000))
def test_the_first_message_at_a_position_is_found_wherever_it_is(count, begin, piece, target):
    config = StoreConfig(directory="/s", store_host=bytes(8), queue_file_bytes=FILE_UNITS * 20)
    queues = make(config, FakeDisk())
    queue = queues.maybe_make(b"T", 0)
    if begin:
        queues.begin(queue, begin)
    physicals = [number * 10 for number in range(begin, begin + count)]
    for physical in physicals:
        queue.tail += UNIT.pack(physical, 10, 0)
        queue.max_offset += 1
    beginning.PIECE_UNITS = 1 + piece
    try:
        for position in (target * 10, target * 10 + 1):
            model = sum(physical < position for physical in physicals)
            assert beginning.offset_at(queue, position) == begin + model
    finally:
        beginning.PIECE_UNITS = 512
