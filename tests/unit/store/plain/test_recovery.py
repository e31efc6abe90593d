"""Start: every row of RocketMQ's table of recovery, and what we refuse instead of cutting it."""

import logging

import pytest

from dledger.mark import LogMark
from ledgermq.remoting.protocol.message import MAGIC_BLANK
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from sim.disk import SimDisk
from sim.rng import SplitRng
from store.plain.record import blank
from tests.unit.store.plain.records import SEGMENT, T0, Log, record, size_of

BIG = b"x" * 1800
BIG_SIZE = size_of(body=BIG)
PER_SEGMENT = 2


class Store:
    """Files of a log in a real directory: two records in each segment, a second apart."""

    def __init__(self, root, count):
        self.root = root / "commitlog"
        self.log = Log(RealDisk(), directory=str(self.root))
        self.positions = []
        for number in range(count):
            self.positions.append(self.log.put(body=BIG, stored=T0 + 1000 * number))
        self.log.flush()
        self.log.sync()
        self.log.files.close()

    def file(self, number):
        return self.root / f"{number * SEGMENT:020}"

    def write(self, position, data):
        with self.file(position // SEGMENT).open("r+b") as file:
            file.seek(position % SEGMENT)
            file.write(data)

    def flip(self, position):
        at = position % SEGMENT
        self.write(position, bytes((self.file(position // SEGMENT).read_bytes()[at] ^ 0x55,)))

    def append_file(self, data=b""):
        names = sorted(path.name for path in self.root.iterdir())
        path = self.root / f"{int(names[-1]) + SEGMENT:020}"
        path.write_bytes(data.ljust(SEGMENT, b"\0"))
        return path

    def open(self, **options):
        return Log(RealDisk(), directory=str(self.root), **options)

    def names(self):
        return sorted(int(path.name) for path in self.root.iterdir())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, 11)


def starts(log):
    return [at for at, _ in log.entries()]


# Where the walk begins


def test_no_files_is_an_empty_log(tmp_path):
    log = Log(RealDisk(), directory=str(tmp_path / "a" / "commitlog"))
    assert (log.recovered.walked_from, log.end_position) == (0, 0)


def test_clean_start_walks_from_the_third_last_file(store):
    log = store.open(clean=True)
    assert log.recovered.walked_from == 3 * SEGMENT
    assert log.recovered.entries == 5
    assert log.recovered.cut_bytes == 0
    assert starts(log) == store.positions
    assert log.end_position == store.positions[-1] + BIG_SIZE


def test_start_without_checkpoint_walks_all(store):
    log = store.open()
    assert (log.recovered.walked_from, log.recovered.entries) == (0, 11)


@pytest.mark.parametrize(("safe", "file"), [(-1, 0), (0, 0), (4000, 1), (4001, 2), (10**6, 5)])
def test_start_after_a_crash_walks_from_the_last_safe_file(store, safe, file):
    log = store.open(safe_timestamp_ms=T0 + safe)
    assert log.recovered.walked_from == file * SEGMENT
    assert starts(log) == store.positions


def test_files_that_were_made_ahead_are_no_safe_ones(store):
    store.append_file()
    store.append_file()
    log = store.open(safe_timestamp_ms=T0 + 10**6)
    assert log.recovered.walked_from == 5 * SEGMENT
    assert log.end_position == store.positions[-1] + BIG_SIZE
    assert store.names()[-1] == 5 * SEGMENT


def test_clean_start_of_large_files_walks_only_their_end(tmp_path):
    disk = RealDisk()
    log = Log(disk, directory=str(tmp_path), segment_bytes=1 << 20)
    positions = [log.put(body=b"%d" % number * 50) for number in range(6000)]
    log.flush()
    log.files.close()
    options = {"directory": str(tmp_path), "segment_bytes": 1 << 20, "clean": True}
    again = Log(disk, clean_walk_bytes=100_000, **options)
    assert again.end_position - again.recovered.walked_from < 102_000
    assert (again.recovered.walked_from, again.recovered.entries) in [
        (at, len(positions) - number) for number, at in enumerate(positions)
    ]
    assert bytes(again.last_body()) == record(positions[-1], body=b"5999" * 50)
    near_file = Log(disk, clean_walk_bytes=900_000, **options)
    assert near_file.recovered.walked_from == 1 << 20


def test_message_that_looks_like_the_end_of_the_log_does_not_mislead_a_clean_start(tmp_path):
    """A body may hold a record that states the very place where it lies."""
    disk = RealDisk()
    log = Log(disk, directory=str(tmp_path), segment_bytes=1 << 20)
    first = log.put()
    log.flush()
    head = size_of(body=b"") - 4  # topic and properties lie behind the body
    body = record(log.end_position + head, body=b"inner") * 2
    log.put(body=body.ljust(2000, b"x"))
    log.flush()
    log.files.close()
    again = Log(
        disk, directory=str(tmp_path), segment_bytes=1 << 20, clean=True, clean_walk_bytes=2050
    )
    assert starts(again) == [first, size_of()]
    assert again.end_position == log.end_position


# Where it ends


def test_walk_goes_on_behind_a_blank_in_an_empty_file(store):
    log = store.open()
    log.put(body=BIG)
    log.put(body=BIG)
    log.flush()
    log.files.close()
    store.file(6).write_bytes(bytes(SEGMENT))
    again = store.open()
    assert starts(again) == [*store.positions, store.positions[-1] + BIG_SIZE]
    assert again.next_position == 6 * SEGMENT
    assert again.following(again.end_position) == 6 * SEGMENT
    assert again.put() == 6 * SEGMENT


def test_blank_without_a_file_behind_is_written_anew(tmp_path):
    store = Store(tmp_path, 2)
    store.write(2 * BIG_SIZE, blank(SEGMENT - 2 * BIG_SIZE))
    log = store.open()
    assert log.end_position == 2 * BIG_SIZE
    assert log.put(body=b"small") == 2 * BIG_SIZE
    log.flush()
    assert log.put(body=BIG) == SEGMENT
    log.flush()
    assert len(store.open().entries()) == 4


def test_end_in_an_earlier_file_is_found(tmp_path):
    """After a clean stop the last files may hold nothing: the last message lies before them."""
    store = Store(tmp_path, 4)
    store.append_file()
    log = store.open(clean=True)
    assert log.recovered.walked_from == 0
    for _ in range(4):
        store.append_file()
    log = store.open(safe_timestamp_ms=T0 + 10**6)
    assert bytes(log.last_body()) == record(store.positions[-1], body=BIG, stored=T0 + 3000)


TAILS = {
    "size only": b"\x00\x00\x01\x00",
    "no magic": b"\x00\x00\x01\x00\x00\x00\x00\x01",
    "garbage": bytes(range(1, 200)),
    "head only": record(0, body=b"later")[:60],
    "half a body": record(0, body=b"later" * 100)[:300],
    "another offset": record(8, body=b"later"),
    "bad CRC": record(0, body=b"later").replace(b"later", b"laser"),
    "longer than the file": record(0, body=b"x" * 9000)[:400],
    "zeros, then data": bytes(100) + b"dirt",
}


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_torn_tail_is_cut_and_told(store, tail, clean, caplog):
    end = store.positions[-1] + BIG_SIZE
    if tail[4:8] == record(0)[4:8]:
        stated = 8 if tail[28:36] != bytes(8) else 0
        tail = tail[:28] + (end + stated).to_bytes(8, "big") + tail[36:]
    store.write(end, tail)
    with caplog.at_level(logging.WARNING):
        log = store.open(clean=clean)
    assert starts(log) == store.positions
    assert log.end_position == end
    assert not store.file(5).read_bytes()[end % SEGMENT :].strip(b"\0")
    dirt = len(tail.rstrip(b"\0"))
    assert log.recovered.cut_bytes == dirt
    assert f"file={store.file(5)} offset={end % SEGMENT}" in caplog.text
    assert f"bytes={dirt}" in caplog.text
    log.put(body=b"goes on")
    log.flush()
    assert len(store.open().entries()) == 12


def test_second_start_finds_nothing_to_do(store):
    store.write(store.positions[-1] + BIG_SIZE, b"dirt")
    store.append_file(b"more dirt")
    assert store.open().recovered.cut_bytes > 0
    before = {path.name: path.stat().st_mtime_ns for path in store.root.iterdir()}
    again = store.open(clean=True)
    assert again.recovered.cut_bytes == 0
    assert {path.name: path.stat().st_mtime_ns for path in store.root.iterdir()} == before


# Damage in the middle


def test_damage_before_synced_messages_is_refused(store):
    store.flip(store.positions[6] + 100)
    before = {path.name: path.read_bytes() for path in store.root.iterdir()}
    for options in ({"clean": True}, {"safe_timestamp_ms": T0 + 7500}):
        with pytest.raises(FatalError) as caught:
            store.open(**options)
        assert caught.value.exit_code == 2
        message = caught.value.message
        assert f"{store.file(3)} is damaged at offset 0 " in message
        assert "body does not have its CRC" in message
        assert "cutDamagedCommitLog=true" in message
    assert {path.name: path.read_bytes() for path in store.root.iterdir()} == before


@pytest.mark.parametrize("options", [{"clean": True}, {"safe_timestamp_ms": T0 + 7500}])
def test_damage_is_cut_when_told_to(store, options, caplog):
    store.flip(store.positions[6] + 100)
    log = store.open(cut_damaged=True, **options)
    assert starts(log) == store.positions[:6]
    assert "event=commit_log_damaged" in caplog.text
    assert store.names()[-1] == 2 * SEGMENT


def test_messages_behind_damage_that_were_not_synced_are_cut(store):
    """A power cut may have torn one write and kept the next."""
    store.flip(store.positions[6] + 100)
    log = store.open(safe_timestamp_ms=T0 + 7000)
    assert starts(log) == store.positions[:6]
    assert store.names()[-1] == 2 * SEGMENT
    log.put(body=b"new")
    log.flush()
    assert len(store.open().entries()) == 7


def test_damaged_blank_is_told_as_what_it_hides(store):
    at = 4 * SEGMENT + 2 * BIG_SIZE + 4
    assert store.file(4).read_bytes()[at - 4 * SEGMENT :][:4] == MAGIC_BLANK.to_bytes(4, "big")
    store.flip(at)
    with pytest.raises(FatalError, match=f"position {at - 4}.*no magic"):
        store.open(clean=True)


def test_damage_before_the_walk_is_met_when_it_is_read(store):
    store.flip(store.positions[1] + 100)
    log = store.open(clean=True)
    assert log.end_position == store.positions[-1] + BIG_SIZE


# The directory


@pytest.mark.parametrize("length", [0, 1, SEGMENT - 1, SEGMENT + 1])
def test_file_of_another_length_is_refused_by_name(store, length):
    store.file(2).write_bytes(bytes(length))
    with pytest.raises(FatalError, match=f"{store.file(2)} has {length} bytes") as caught:
        store.open()
    assert caught.value.exit_code == 2
    assert "mappedFileSizeCommitLog" in caught.value.message


def test_empty_last_files_are_interrupted_creations(store):
    store.file(6).write_bytes(b"")
    store.file(7).write_bytes(b"")
    assert starts(store.open()) == store.positions
    assert store.names()[-1] == 5 * SEGMENT


def test_gap_is_refused_by_name(store):
    store.file(2).unlink()
    with pytest.raises(FatalError, match=f"{2 * SEGMENT:020} should come before {3 * SEGMENT:020}"):
        store.open()


def test_log_may_begin_anywhere(store):
    store.file(0).unlink()
    store.file(1).unlink()
    log = store.open()
    assert log.first_position == 2 * SEGMENT
    assert starts(log) == store.positions[4:]


def test_dropped_log_with_nothing_left_goes_on_where_it_was(tmp_path):
    store = Store(tmp_path, 2)
    store.append_file()
    store.file(0).unlink()
    log = store.open()
    assert (log.first_position, log.end_position) == (SEGMENT, SEGMENT)
    assert log.last_body() is None
    assert (
        log.marks.maybe_end(LogMark(store.positions[1] + BIG_SIZE - 1, 1, store.positions[1]))
        == SEGMENT
    )
    assert log.put() == SEGMENT


@pytest.mark.parametrize(
    "name", ["x", "00000000000000000000.bak", "0", "0000000000000000000a", "²" * 20, "9" * 20]
)
def test_stranger_is_refused_by_name(store, name):
    (store.root / name).write_bytes(bytes(SEGMENT))
    with pytest.raises(FatalError, match=name) as caught:
        store.open()
    assert caught.value.exit_code == 2


def test_file_that_follows_on_no_multiple_is_refused(tmp_path):
    (tmp_path / f"{SEGMENT + 8:020}").write_bytes(bytes(SEGMENT))
    with pytest.raises(FatalError, match="not a multiple of mappedFileSizeCommitLog"):
        Log(RealDisk(), directory=str(tmp_path))


def test_root_of_a_volume_is_a_directory_too(store):
    (store.root / "lost+found").mkdir()
    assert starts(store.open()) == store.positions


@pytest.mark.parametrize("tail", [b"", b"torn" * 200])
def test_start_needs_no_space(tail):
    disk = SimDisk(SplitRng(1))
    log = Log(disk)
    positions = [log.put(body=BIG) for _ in range(3)]
    log.flush()
    log.files.write(log.next_position, (tail,))
    disk.crash()
    disk.limit(0)
    again = Log(disk)
    assert starts(again) == positions
    assert again.put() == positions[-1] + BIG_SIZE
