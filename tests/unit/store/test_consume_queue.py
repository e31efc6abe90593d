"""One queue's units in memory and on disk, against a list."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import FatalError
from store.config import StoreConfig
from store.consume_queue import ConsumeQueues
from store.layout import GAP_UNIT, UNIT
from tests.unit.store.fakes import HOST, FakeDisk, World


def make_queues(disk, **config):
    return ConsumeQueues(
        StoreConfig(directory="/s", store_host=HOST, **{"queue_file_bytes": 100, **config}), disk
    )


def add(queues, queue, count):
    for _ in range(count):
        if not queue.tail:
            queues.unwritten.append(queue)
        queues.unwritten_units += 1
        queue.tail += UNIT.pack(queue.max_offset * 1000, 10, -1)
        queue.max_offset += 1


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
    st.data(),
)
def test_reading_gives_what_was_added_wherever_it_lies(steps, begin, data):
    disk = FakeDisk()
    queues = make_queues(disk)
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
    assert queue.read(offset, count) == b"".join(model[offset : offset + count])


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


@given(st.integers(0, 12), st.integers(0, 23), st.integers(0, 25))
def test_cut_leaves_what_was_before_and_zeros_behind(begin, count, keep):
    disk = FakeDisk()
    queues = make_queues(disk)
    queue = queues.maybe_make(b"t", 0)
    if begin:
        queue.begin_at(begin)
        if queue.tail:
            queues.unwritten.append(queue)
    add(queues, queue, count)
    queues.flush()
    keep = min(begin + keep, queue.max_offset)
    queue.cut(keep)
    other = make_queues(other_disk := FakeDisk()).maybe_make(b"t", 0)
    if keep > begin:
        rest = make_queues(other_disk)
        other = rest.maybe_make(b"t", 0)
        if begin:
            other.begin_at(begin)
            if other.tail:
                rest.unwritten.append(other)
        add(rest, other, keep - begin)
        rest.flush()
    if count or keep == begin:
        assert disk.files == other_disk.files
        assert queue.crcs == other.crcs
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
        add(queues, queues.maybe_make(b"t", number), 3)
    assert queues.flush(2)
    assert (queues.unwritten_units, queues.flushed_count) == (9, 2)
    assert [len(queue.tail) for queue in queues.by_key.values()] == [0, 0, 60, 60, 60]
    add(queues, queues.by_name["t", 0], 1)
    assert queues.flush(4)
    assert (queues.unwritten_units, queues.flushed_count) == (0, 6)


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
