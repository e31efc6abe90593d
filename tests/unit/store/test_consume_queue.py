"""One queue's units in memory and on disk, against a list."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.runtime.errors import FatalError
from store.config import StoreConfig
from store.layout import GAP_UNIT, UNIT
from store.queues.consume_queue import NEW_FILE_WORK, TURN_TICKS, ConsumeQueues, DamagedUnits
from tests.unit.store.fakes import HOST, FakeDisk, World


def make_queues(disk, *, block_bytes=60_000, **config):
    queues = ConsumeQueues(
        StoreConfig(directory="/s", store_host=HOST, **{"queue_file_bytes": 100, **config}), disk
    )
    queues.files.block_bytes = block_bytes
    return queues


def add(queues, queue, count):
    for _ in range(count):
        queues.take(queue, UNIT.pack(queue.max_offset * 1000, 10, -1), 1)


def test_files_are_rocketmq_s():
    disk = FakeDisk()
    queues = make_queues(disk)
    queue = queues.maybe_make(b"%RETRY%g", 2)
    add(queues, queue, 7)
    assert queues.flush()
    base = "/s/consumequeue/%RETRY%g/2/"
    units = b"".join(UNIT.pack(n * 1000, 10, -1) for n in range(7))
    assert disk.files == {
        base + "00000000000000000000": bytearray(units[:100]),
        base + "00000000000000000100": bytearray(units[100:] + bytes(60)),
    }
    assert units[:20].hex() == "0000000000000000" + "0000000a" + "ffffffffffffffff"


@given(
    st.lists(st.one_of(st.integers(1, 12), st.just("flush"), st.just("fail")), max_size=20),
    st.integers(0, 13),
    st.sampled_from([20, 40, 60_000]),
    st.data(),
)
def test_reading_gives_what_was_added_wherever_it_lies(steps, begin, block_bytes, data):
    disk = FakeDisk()
    queues = make_queues(disk, block_bytes=block_bytes)
    queue = queues.maybe_make(b"t", 0)
    if begin:
        queue.begin_at(begin)
        if queue.tail:
            queues.unwritten.append(queue)
    for step in steps:
        if step == "flush":
            disk.writes_left = None
            assert queues.flush()
            assert not queue.tail
        elif step == "fail":
            disk.writes_left = 1
            assert queues.flush() == (not queue.tail)
        else:
            add(queues, queue, step)
    assert queue.written + len(queue.tail) == queue.max_offset * 20
    model = [UNIT.pack(n * 1000, 10, -1) for n in range(queue.max_offset)]
    offset = data.draw(st.integers(begin, queue.max_offset))
    count = data.draw(st.integers(0, queue.max_offset - offset))
    expected = b"".join(model[offset : offset + count])
    assert queue.read(offset, count) == expected
    queue.unchecked = (1 << queue.block_count) - 1
    assert queue.read(offset, count) == expected
    again = make_queues(disk, block_bytes=block_bytes).maybe_make(b"t", 0)
    if queue.written > queue.first_file:
        again.adopt(queue.min_offset, queue.written // 20, queue.first_file)
        assert (again.crcs, again.crc, again.written) == (queue.crcs, queue.crc, queue.written)
        assert again.paths() == queue.paths()
        unsynced = again._files.take_unsynced()
        assert (unsynced.paths, unsynced.has_new) == (again.paths(), True), "nobody synced them"


@given(st.integers(1, 30), st.integers(0, 30), st.sampled_from([20, 40, 60]), st.data())
def test_a_damaged_block_is_refused_until_it_is_written_anew(count, drop, block_bytes, data):
    disk = FakeDisk()
    queues = make_queues(disk, block_bytes=block_bytes)
    queue = queues.maybe_make(b"t", 0)
    add(queues, queue, count)
    queues.flush()
    queue.min_offset = min(drop, count)
    queue.drop_files()
    first = queue.first_file // 20
    if first == count:
        return
    hurt = data.draw(st.integers(first, count - 1))
    content = disk.files[queue.path(hurt * 20 // 100 * 100)]
    content[hurt * 20 % 100 + 5] ^= 1
    queue.unchecked = (1 << queue.block_count) - 1
    blocks = [queue.block_range(block) for block in range(queue.block_count)]
    assert [start for start, _ in blocks] == [queue.first_file, *[end for _, end in blocks[:-1]]]
    for block, (start, end) in enumerate(blocks):
        units = b"".join(UNIT.pack(n * 1000, 10, -1) for n in range(start // 20, end // 20))
        if start <= hurt * 20 < end:
            with pytest.raises(DamagedUnits, match="t queue 0"):
                queue.read(start // 20, 1)
            if start // 20 >= queue.min_offset and start < end - 20:
                with pytest.raises(DamagedUnits):
                    queue.cut(end // 20 - 1)
            assert list(queues.files.damaged) == [(queue, block)]
            queue.replace_block(block, units)
            assert not queues.files.damaged
        assert queue.read(start // 20, (end - start) // 20) == units
    assert queue.unchecked == 0


def test_a_queue_that_begins_late_is_filled_with_gap_units():
    disk = FakeDisk()
    queues = make_queues(disk)
    queue = queues.maybe_make(b"t", 0)
    queue.begin_at(7)
    queues.unwritten.append(queue)
    add(queues, queue, 1)
    queues.flush()
    name = "/s/consumequeue/t/0/00000000000000000100"
    assert disk.files == {name: bytearray(GAP_UNIT * 2 + UNIT.pack(7000, 10, -1) + bytes(40))}
    assert (queue.min_offset, queue.max_offset) == (7, 8)


@given(
    st.integers(0, 12), st.integers(0, 23), st.integers(0, 25), st.sampled_from([20, 40, 60_000])
)
def test_cut_leaves_what_was_before_and_zeros_behind(begin, count, keep, block_bytes):
    disk = FakeDisk()
    queues = make_queues(disk, block_bytes=block_bytes)
    queue = queues.maybe_make(b"t", 0)
    if begin:
        queue.begin_at(begin)
        if queue.tail:
            queues.unwritten.append(queue)
    add(queues, queue, count)
    queues.flush()
    keep = min(begin + keep, queue.max_offset)
    queue.cut(keep)
    other_disk = FakeDisk()
    other = make_queues(other_disk).maybe_make(b"t", 0)
    if keep > begin:
        rest = make_queues(other_disk, block_bytes=block_bytes)
        other = rest.maybe_make(b"t", 0)
        if begin:
            other.begin_at(begin)
            if other.tail:
                rest.unwritten.append(other)
        add(rest, other, keep - begin)
        rest.flush()
    if count or keep == begin:
        assert disk.files == other_disk.files
        assert (queue.crcs, queue.crc) == (other.crcs, other.crc)
        assert (queue.min_offset, queue.max_offset) == (other.min_offset, other.max_offset)


def test_open_files_are_bounded_and_open_again():
    disk = FakeDisk()
    queues = make_queues(disk, open_files_max=3)
    for number in range(10):
        add(queues, queues.maybe_make(b"t", number), 1)
    assert queues.flush()
    assert len(queues.files) == 3
    assert sum(not file.closed for file in disk.opened) == 3
    assert [queues.by_name["t", n].read(0, 1) for n in range(10)] == [UNIT.pack(0, 10, -1)] * 10
    queues.files.close()
    assert all(file.closed for file in disk.opened)


def test_a_bounded_number_of_queues_is_written_at_a_time():
    disk = FakeDisk()
    queues = make_queues(disk)
    for number in range(5):
        add(queues, queues.maybe_make(b"t", number), 1)
    assert queues.flush()
    for number in range(5):
        add(queues, queues.by_name["t", number], 3)
    assert queues.flush(2)
    assert (queues.unwritten_units, queues.flushed_count) == (9, 7)
    assert [len(queue.tail) for queue in queues.by_key.values()] == [0, 0, 60, 60, 60]
    add(queues, queues.by_name["t", 0], 1)
    assert queues.flush(4)
    assert (queues.unwritten_units, queues.flushed_count) == (0, 11)


def test_a_file_that_must_be_made_counts_as_many_writes():
    queues = make_queues(FakeDisk())
    for number in range(50):
        add(queues, queues.maybe_make(b"t", number), 1)
    assert queues.flush(NEW_FILE_WORK * 3)
    assert queues.flushed_count == 3


def test_of_very_many_queues_fewer_are_written_in_a_tick():
    queues = make_queues(FakeDisk())
    for number in range(2000):
        queues.begin(queues.maybe_make(b"t", number), 1)
    assert queues.flush()
    for queue in queues.by_key.values():
        add(queues, queue, 1)
    before = queues.flushed_count
    assert queues.flush_some(1000)
    assert queues.flushed_count == before + 500
    assert queues.flush_some(2)
    assert queues.flushed_count == before + 500 + 1500 // TURN_TICKS
    assert queues.flush_some(1498)
    assert not queues.unwritten


def test_many_units_leave_in_one_write():
    disk = FakeDisk()
    queues = make_queues(disk, queue_file_bytes=6_000_000)
    disk.writes_left = 1
    add(queues, queues.maybe_make(b"t", 0), 5000)
    assert queues.flush()


def test_another_error_than_a_full_disk_is_fatal():
    disk = FakeDisk()
    queues = make_queues(disk)
    add(queues, queues.maybe_make(b"t", 0), 1)
    disk.writes_left, disk.error = 0, errno.EIO
    with pytest.raises(FatalError, match="consume queue /s/consumequeue/t/0") as caught:
        queues.flush()
    assert caught.value.exit_code == 3


def test_a_directory_that_finds_no_space_waits_like_a_write():
    class FullDisk(FakeDisk):
        def make_directories(self, path):
            raise FatalError("cannot be made") from OSError(self.error, "no space")

    disk = FullDisk()
    queues = make_queues(disk)
    add(queues, queues.maybe_make(b"t", 0), 1)
    assert not queues.flush()
    assert queues.unwritten_units == 1
    disk.error = errno.EACCES
    with pytest.raises(FatalError, match="cannot be made"):
        queues.flush()


def test_settings_are_checked():
    with pytest.raises(ValueError, match="multiple of 20"):
        World(queue_file_bytes=99)
    with pytest.raises(ValueError, match="store_host"):
        World(store_host=b"x")


def test_a_queue_is_found_by_its_topic_until_all_are_forgotten():
    queues = make_queues(FakeDisk())
    made = [queues.maybe_make(topic, number) for topic in (b"a", b"b") for number in (0, 7)]
    by_topic = {topic: {0: made[at], 7: made[at + 1]} for at, topic in ((0, b"a"), (2, b"b"))}
    assert queues.by_topic == by_topic
    queues.clear()
    assert queues.by_topic == {}
    again = queues.maybe_make(b"a", 0)
    assert again is not made[0]
    assert queues.by_topic == {b"a": {0: again}}
