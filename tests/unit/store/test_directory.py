"""The directory's duties: one owner, a crash that is known as one, and no promise too much."""

import struct

import pytest

from ledgermq.runtime.disk import DirectoryInUse, RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.recovery.checkpoint import (
    NO_TIMES,
    ROCKETMQ_BYTES,
    StoreTimes,
    decode_times,
    encode_times,
)
from store.recovery.directory import StoreDirectory, SyncedTimes
from tests.unit.store.fakes import FakeDisk


def entered(path, disk=None):
    directory = StoreDirectory(str(path), disk or RealDisk())
    directory.enter()
    return directory


def test_new_directory_is_clean_and_promises_nothing(tmp_path):
    directory = entered(tmp_path / "a" / "b")
    assert directory.was_clean
    assert directory.times == NO_TIMES
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["lock"]


def test_abort_is_there_from_the_mark_to_a_clean_leave(tmp_path):
    directory = entered(tmp_path)
    directory.mark_unclean()
    assert (tmp_path / "abort").read_bytes() == b""
    directory.leave(clean=True)
    assert not (tmp_path / "abort").exists()
    assert entered(tmp_path).was_clean


@pytest.mark.parametrize("marked", [True, False])
def test_an_unclean_leave_keeps_abort(tmp_path, marked):
    (tmp_path / "abort").touch()
    directory = entered(tmp_path)
    assert not directory.was_clean
    if marked:
        directory.mark_unclean()
    directory.leave(clean=False)
    directory.leave(clean=True)  # it has left: nothing happens any more
    assert (tmp_path / "abort").exists()


def test_a_second_owner_is_told_what_to_do(tmp_path):
    class Taken(FakeDisk):
        def lock(self, path):
            raise DirectoryInUse(path)

    with pytest.raises(FatalError) as caught:
        entered("/s", Taken())
    assert "storePathRootDir=/s" in caught.value.message
    assert "Stop that broker" in caught.value.message
    assert caught.value.exit_code == 2


def test_times_are_those_that_rocketmq_wrote(tmp_path):
    (tmp_path / "checkpoint").write_bytes(
        struct.pack(">qqq", 7, 5, -1).ljust(ROCKETMQ_BYTES, b"\0")
    )
    assert entered(tmp_path).times == StoreTimes(7, 5, 0)


def test_lowered_times_promise_nothing(tmp_path):
    (tmp_path / "checkpoint").write_bytes(encode_times(StoreTimes(7, 5, 3)))
    directory = entered(tmp_path)
    directory.lower_times()
    data = (tmp_path / "checkpoint").read_bytes()
    assert len(data) == ROCKETMQ_BYTES
    assert decode_times(data) == NO_TIMES == directory.times


@pytest.mark.parametrize("data", [b"", b"x" * 23, bytes(24)])
def test_garbage_promises_nothing(data):
    assert decode_times(data) == NO_TIMES


def test_a_disk_that_is_full_at_the_start_is_named():
    disk = FakeDisk()
    directory = entered("/s", disk)
    disk.writes_left = 0
    with pytest.raises(FatalError, match="/s/abort cannot be written"):
        directory.mark_unclean()


def test_times_are_lowered_to_a_limit_and_never_raised(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(encode_times(StoreTimes(70, 50, 30)))
    directory = entered(tmp_path)
    directory.lower_times(60)
    assert decode_times(path.read_bytes()) == StoreTimes(70, 50, 30)
    directory.lower_times(40)
    assert decode_times(path.read_bytes()) == StoreTimes(40, 40, 30)
    directory.lower_times()
    assert decode_times(path.read_bytes()) == NO_TIMES


def test_the_log_is_promised_only_as_far_as_it_is_synced():
    synced = [10]
    times = SyncedTimes(lambda: synced[0], lambda: synced[0] * 10)
    assert times.when_all_is_synced() == NO_TIMES, "nothing was said yet"
    assert times(200, 20) == StoreTimes(10, 20, 0)
    synced[0] = 25
    assert times(400, 40) == StoreTimes(25, 40, 0)
    assert times.when_all_is_synced() == StoreTimes(40, 40, 0)
    synced[0] = 70
    assert times(600, 60) == StoreTimes(60, 60, 0)


def test_the_time_of_a_record_is_promised_only_if_that_record_is_synced():
    """Others of its millisecond, which precede it, may be all that is."""
    end = [199]
    times = SyncedTimes(lambda: 20, lambda: end[0])
    assert times(200, 20) == StoreTimes(19, 20, 0)
    end[0] = 200
    assert times(200, 20) == StoreTimes(20, 20, 0)


def test_a_millisecond_taken_for_synced_is_found():
    with planted(BY_TESTS["last-millisecond-taken-for-synced"]), pytest.raises(AssertionError):
        test_the_time_of_a_record_is_promised_only_if_that_record_is_synced()


def test_queues_are_never_said_to_be_further_than_the_index():
    indexed = [15]
    times = SyncedTimes(lambda: 30, lambda: 300, lambda: indexed[0])
    assert times(200, 20) == StoreTimes(20, 15, 15)
    indexed[0] = 99
    assert times(400, 40) == StoreTimes(30, 40, 40)
    assert times.when_all_is_synced() == StoreTimes(40, 40, 40)


def test_the_last_promise_is_made_before_abort_goes(tmp_path):
    directory = entered(tmp_path)
    directory.mark_unclean()
    directory.leave(clean=True, times=StoreTimes(6, 6, 6))
    assert decode_times((tmp_path / "checkpoint").read_bytes()) == StoreTimes(6, 6, 6)
    assert not (tmp_path / "abort").exists()
