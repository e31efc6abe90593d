"""What a crash cannot have torn is not cut: the seconds taken off the checkpoint are no excuse."""

import pytest

from dledger.mark import LogMark
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.plain.recovery import Synced
from store.recovery.checkpoint import (
    CHECKPOINT_FILE,
    ROCKETMQ_FILE,
    CheckpointHead,
    StoreTimes,
    encode_times,
    join_checkpoint,
)
from store.recovery.directory import StoreDirectory
from store.recovery.known import known_synced
from tests.unit.store.plain.records import SEGMENT, T0, Log, record, size_of

COUNT = 30
"""Of records, ten milliseconds apart but for the last ten, which share one: three files."""
LAST_MS = T0 + 10 * (COUNT - 10)
SIZE = size_of(body=b"x" * 200)
CHECKPOINT_MS = 3000
"""What a start takes off the checkpoint."""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


class Store:
    """A log of a second, all of it synced, and then left by a crash."""

    def __init__(self, root):
        self.directory = str(root / "commitlog")
        log = Log(RealDisk(), directory=self.directory)
        self.positions = [
            log.put(body=b"x" * 200, stored=min(T0 + 10 * number, LAST_MS))
            for number in range(COUNT)
        ]
        log.flush()
        log.sync()
        log.files.close()
        assert log.files.end == 3 * SEGMENT

    def flip(self, number):
        position = self.positions[number]
        path = f"{self.directory}/{position - position % SEGMENT:020}"
        with open(path, "r+b") as file:  # noqa: PTH123  # as the log names it
            file.seek(position % SEGMENT + 90)
            file.write(b"y")

    def open(self, *, before=0, **options):
        """Start as a broker does that finds the time of the last record in ``checkpoint``."""
        return Log(
            RealDisk(),
            directory=self.directory,
            safe_timestamp_ms=LAST_MS - CHECKPOINT_MS,
            synced=Synced(LAST_MS, before),
            **options,
        )


def test_damage_of_the_last_seconds_before_the_checkpoint_is_refused(store):
    store.flip(2)
    refused = ""
    try:
        store.open()
    except FatalError as refusal:
        refused = refusal.message
    assert "had been synced" in refused
    assert len(store.open(cut_damaged=True).entries()) == 2


def test_a_start_that_judges_damage_by_where_it_begins_is_found(store):
    with planted(BY_TESTS["damage-judged-by-where-to-begin"]), pytest.raises(AssertionError):
        test_damage_of_the_last_seconds_before_the_checkpoint_is_refused(store)


def test_of_one_millisecond_it_is_the_position_that_tells(store):
    store.flip(COUNT - 5)
    refused = store.positions[COUNT - 1]
    with pytest.raises(FatalError, match="had been synced"):
        store.open(before=refused + SIZE)
    with pytest.raises(FatalError, match="had been synced"):
        store.open(before=store.positions[COUNT - 4] + 1)
    # None behind the damage is known to be synced: a power cut may have torn one, and kept others.
    assert len(store.open(before=store.positions[COUNT - 4]).entries()) == COUNT - 5


def test_a_later_message_may_be_the_one_that_was_synced(tmp_path):
    """Stamps fall once where a clock was set right; the first one behind the damage says little."""
    directory = str(tmp_path)
    log = Log(RealDisk(), directory=directory)
    for stored in (T0, T0, T0 + 9_000, T0 + 1, T0 + 2):
        log.put(body=b"x" * 200, stored=stored)
    log.flush()
    log.files.close()
    path = tmp_path / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[SIZE + 90] ^= 1
    path.write_bytes(data)
    with pytest.raises(FatalError, match=f"from position {3 * SIZE} "):
        Log(RealDisk(), directory=directory, synced=Synced(T0 + 5))


# What a directory says


def known(path, *, physic=50, stored=50, clean=False):
    mark = LogMark(799, 1, 700)
    head = CheckpointHead(file_bytes=1, block_bytes=1, store_timestamp=stored, marks=(mark,))
    (path / CHECKPOINT_FILE).write_bytes(join_checkpoint(head, []))
    (path / ROCKETMQ_FILE).write_bytes(encode_times(StoreTimes(physic, physic, 0)))
    if not clean:
        (path / "abort").touch()
    directory = StoreDirectory(str(path), RealDisk())
    directory.enter()
    try:
        return known_synced(directory, RealDisk())
    finally:
        directory.leave(clean=False)


def test_the_position_counts_where_both_checkpoints_say_the_same_time(tmp_path):
    assert known(tmp_path) == Synced(50, 800)
    assert known(tmp_path, stored=51) == Synced(50, 0), "the queues were ahead of the sync"
    assert known(tmp_path, physic=60) == Synced(60, 0), "RocketMQ wrote since"
    assert known(tmp_path, physic=0, stored=0) == Synced(0, 0), "nothing is known"
    (tmp_path / CHECKPOINT_FILE).write_bytes(b"no checkpoint")
    (tmp_path / ROCKETMQ_FILE).write_bytes(encode_times(StoreTimes(50, 50, 0)))
    directory = StoreDirectory(str(tmp_path), RealDisk())
    directory.enter()
    assert known_synced(directory, RealDisk()) == Synced(50, 0)
    directory.leave(clean=False)


# Zeros that are a text's own


ODD = b"a\x01b\x00"
"""Properties as RocketMQ's masters may have them: without a last separator, and a zero in front."""


def log_with(tmp_path, *properties, tail=b""):
    directory = str(tmp_path)
    log = Log(RealDisk(), directory=directory)
    for text in properties:
        log.put(body=b"x" * 200, properties=text)
    log.flush()
    log.files.write(log.next_position, (tail or b"\0",))
    log.files.close()
    return len(Log(RealDisk(), directory=directory).entries())


def test_a_text_that_ends_with_a_zero_is_kept_with_what_lies_behind_it(tmp_path):
    found = log_with(tmp_path, b"", ODD, b"", ODD, b"")
    assert found == 5, f"{5 - found} records are gone"


def test_a_zero_taken_for_bytes_never_written_is_found(tmp_path):
    with planted(BY_TESTS["zero-taken-for-unwritten"]), pytest.raises(AssertionError):
        test_a_text_that_ends_with_a_zero_is_kept_with_what_lies_behind_it(tmp_path)


def test_a_last_text_that_ends_with_a_zero_may_have_been_broken_off(tmp_path):
    assert log_with(tmp_path, b"", ODD) == 1
    assert log_with(tmp_path / "dirt", b"", ODD, tail=record(9)[:60]) == 2


def test_a_sector_that_never_came_is_no_text(tmp_path):
    """What lies behind it was written later, and came all the same."""
    long = b"k\x01" + b"v" * 1500 + b"\x02"
    assert log_with(tmp_path, b"", long, b"") == 3
    path = tmp_path / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[1024:1536] = bytes(512)
    path.write_bytes(data)
    assert len(Log(RealDisk(), directory=str(tmp_path)).entries()) == 1


def test_a_synced_text_may_be_all_zeros(tmp_path):
    zeros = b"k\x01" + bytes(1500) + b"\x02"
    assert log_with(tmp_path, b"", zeros, b"") == 1
    again = tmp_path / "synced"
    log = Log(RealDisk(), directory=str(again))
    for text in (b"", zeros, b""):
        log.put(body=b"x" * 200, properties=text)
    log.flush()
    log.files.close()
    assert len(Log(RealDisk(), directory=str(again), synced=Synced(T0 + 1)).entries()) == 3
