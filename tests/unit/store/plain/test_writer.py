import errno

import pytest

from dledger.errors import DamagedEntry, EntryTooLarge, NotLeader, PendingFull
from dledger.mark import LogMark
from ledgermq.remoting.protocol.message import MAGIC_BLANK
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from sim.disk import SimDisk
from sim.disk_rules import Action, Op, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng
from tests.unit.store.plain.records import SEGMENT, Log, record, size_of


@pytest.fixture
def log():
    return Log(SimDisk(SplitRng(1)))


def test_empty_log_ends_before_its_first_byte(log):
    assert (log.first_position, log.end_position, log.next_position) == (0, 0, 0)
    assert log.last_body() is None
    assert log.following(0) == 0
    assert log.entries() == []


def test_record_lies_where_it_was_promised(log):
    first = log.put(body=b"one")
    second = log.put(body=b"two")
    assert (first, second) == (0, size_of(body=b"one"))
    assert log.flush() is None
    assert log.turns == 1
    assert log.entries() == [(p, record(p, body=b)) for p, b in ((0, b"one"), (second, b"two"))]
    assert log.end_position == second + size_of(body=b"two")
    assert bytes(log.last_body()) == record(second, body=b"two")


def test_nothing_is_seen_before_it_is_written(log):
    log.put()
    assert log.end_position == 0
    assert log.maybe_size(0) is None
    with pytest.raises(LookupError):
        log.body_at(0, size_of())


def test_segment_ends_with_a_blank_that_states_what_was_left():
    log = Log(SimDisk(SplitRng(1)))
    big = b"x" * 1500
    positions = [log.put(body=big) for _ in range(4)]
    log.flush()
    size = size_of(body=big)
    assert positions == [0, size, SEGMENT, SEGMENT + size]
    blank = bytes(log.view(2 * size, 8))
    assert int.from_bytes(blank[:4], "big") == SEGMENT - 2 * size
    assert int.from_bytes(blank[4:], "big") == MAGIC_BLANK
    assert log.following(2 * size) == SEGMENT
    assert [at for at, _ in log.entries()] == positions


@pytest.mark.parametrize(("spare", "fits"), [(8, True), (7, False), (9, True), (0, False)])
def test_eight_bytes_always_stay_for_the_blank(log, spare, fits):
    log.put(body=bytes(SEGMENT - size_of(body=b"") - size_of(body=b"1") - spare))
    assert (log.put(body=b"1") < SEGMENT) == fits
    log.flush()
    assert len(log.entries()) == 2


def test_batch_lies_in_one_segment(log):
    log.put(body=b"x" * 3000)
    size = size_of(body=b"y" * 400)
    assert log.writer.reserve(3 * size) == SEGMENT
    positions = range(SEGMENT, SEGMENT + 3 * size, size)
    log.writer.append_batch([record(position, body=b"y" * 400) for position in positions])
    log.flush()
    assert len(log.entries()) == 4


def test_record_that_no_segment_holds_is_refused(log):
    log.writer.reserve(SEGMENT - 8)
    with pytest.raises(EntryTooLarge):
        log.writer.reserve(SEGMENT - 7)
    log.put()
    log.flush()
    assert log.end_position == size_of()


def test_what_waits_to_be_committed_is_bounded():
    log = Log(SimDisk(SplitRng(1)), pending_bytes_max=2 * size_of())
    log.put()
    log.put()
    with pytest.raises(PendingFull):
        log.put()
    log.flush()
    log.writer.set_committed(log.committed_position)
    log.put()


def test_nothing_is_accepted_when_the_owner_says_so(log):
    log.writer.accepting = False
    with pytest.raises(NotLeader):
        log.writer.reserve(1)


def test_full_disk_takes_back_what_was_not_written():
    disk = SimDisk(SplitRng(1))
    log = Log(disk, segment_bytes=4 * SEGMENT)
    kept = log.put(body=b"kept")
    log.flush()
    disk.limit(SEGMENT)
    lost = log.put(body=b"lost" * 3000)
    assert log.flush() == lost
    assert disk.writes_refused == 1
    disk.heal()
    assert log.end_position == lost
    assert not any(log.files.segment_view(0)[lost:])
    assert log.put(body=b"again") == lost
    log.flush()
    assert [at for at, _ in log.entries()] == [kept, lost]
    assert log.entries()[1][1] == record(lost, body=b"again")


def test_full_disk_at_a_new_segment_keeps_what_the_old_one_has():
    disk = SimDisk(SplitRng(1))
    log = Log(disk)
    big = b"x" * 3000
    log.put(body=big)
    rule = disk.add_rule(
        Rule(action=Action.FAIL, glob=f"*{SEGMENT}", error=errno.ENOSPC, ops=frozenset(Op))
    )
    log.put(body=big)
    log.put(body=big)
    assert log.flush() == SEGMENT
    assert len(log.entries()) == 1
    assert log.next_position == SEGMENT
    disk.drop_rule(rule)
    assert [log.put(body=big), log.put(body=big)] == [SEGMENT, 2 * SEGMENT]
    assert log.flush() is None
    assert len(log.entries()) == 3
    disk.crash()
    assert len(Log(disk).entries()) == 3


@pytest.mark.parametrize("free_blocks", [0, 1, 2])
@pytest.mark.parametrize("mode", PowerLossMode)
def test_refused_record_is_not_found_at_the_next_start(free_blocks, mode):
    """One of the refused records may have been written whole."""
    disk = SimDisk(SplitRng(free_blocks))
    log = Log(disk, segment_bytes=8 * SEGMENT)
    log.put()
    log.flush()
    log.sync()
    disk.limit(free_blocks * SEGMENT)
    for _ in range(5):
        log.put(body=b"z" * 3000)
    assert log.flush() == size_of()
    disk.power_loss(mode, 7)
    disk.heal()
    assert len(Log(disk, segment_bytes=8 * SEGMENT).entries()) == 1


def test_other_errors_of_the_disk_are_fatal(log):
    log.put()
    log.files._disk.add_rule(Rule(action=Action.FAIL, ops=frozenset({Op.WRITE}), error=errno.EIO))
    with pytest.raises(FatalError) as caught:
        log.flush()
    assert caught.value.exit_code == 3


def test_few_segments_are_open_and_views_outlive_them(tmp_path):
    log = Log(RealDisk(), directory=f"{tmp_path}/commitlog", open_segments_max=4)
    big = b"x" * 3900
    positions = [log.put(body=big) for _ in range(40)]
    log.flush()
    log.sync()
    views = [log.body_at(at, size_of(body=big)) for at in positions]
    assert log.files.open_count <= 5
    assert [bytes(view) for view in views] == [record(at, body=big) for at in positions]


def test_old_segments_go_and_their_readers_stay(tmp_path):
    log = Log(RealDisk(), directory=f"{tmp_path}/commitlog")
    big = b"x" * 3900
    positions = [log.put(body=big, stored=1000 + number) for number in range(4)]
    log.flush()
    log.sync()
    view = log.body_at(positions[0], size_of(body=big))
    log.files.remove(log.files.drop_below(2 * SEGMENT + 5))
    assert bytes(view) == record(0, body=big, stored=1000)
    assert log.first_position == 2 * SEGMENT
    assert [at for at, _ in log.entries()] == positions[2:]
    assert log.following(0) == log.following(positions[1]) == 2 * SEGMENT
    with pytest.raises(LookupError):
        log.body_at(positions[1], size_of(body=big))
    with pytest.raises(DamagedEntry):
        next(log.walk(0, log.end_position, 1))
    assert log.marks.maybe_end(LogMark(SEGMENT + size_of(body=big) - 1, 1, SEGMENT)) == 2 * SEGMENT
    assert log.marks.maybe_end(LogMark(size_of(body=big) - 1, 1, 0)) is None
    log.files.remove(log.files.drop_below(3 * SEGMENT))
    assert [at for at, _ in log.entries()] == positions[3:]
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    log.files.close()
    again = Log(RealDisk(), directory=f"{tmp_path}/commitlog", clean=True)
    assert again.entries() == [(positions[3], record(positions[3], body=big, stored=1003))]


def test_damage_is_told_from_absence(log):
    first, second = log.put(body=b"one"), log.put(body=b"two")
    log.flush()
    size = size_of(body=b"one")
    assert log.maybe_size(first) == size
    assert log.maybe_size(second) == size
    assert log.maybe_size(second + 1) is None
    assert log.marks.mark(second, 2 * size) == LogMark(2 * size - 1, 1, second)
    assert log.marks.maybe_end(LogMark(2 * size - 1, 1, second)) == 2 * size
    assert log.marks.maybe_end(LogMark(2 * size - 1, 2, second)) is None
    assert log.marks.maybe_end(LogMark(2 * size - 2, 1, second)) is None
    assert log.marks.maybe_end(LogMark(5, 1, -4)) is None
    with pytest.raises(LookupError):
        log.body_at(second, size + 1)
    with pytest.raises(LookupError):
        log.body_at(second + 3, size)
    log.files.write(second + 89, (b"!",))
    with pytest.raises(DamagedEntry, match="CRC"):
        log.body_at(second, size)
    with pytest.raises(DamagedEntry):
        log.last_body()


@pytest.mark.parametrize(
    ("at", "what"), [(0, "lengths"), (5, "magic"), (30, "offset"), (84, "lengths")]
)
def test_walk_ends_before_damage(log, at, what):
    first, second = log.put(body=b"one"), log.put(body=b"two")
    log.flush()
    log.files.write(second + at, (b"!",))
    walk = log.walk(0, log.end_position, 9)
    assert next(walk)[0] == first
    with pytest.raises(DamagedEntry, match=rf"offset={second}: .*{what}"):
        next(walk)


def test_walk_goes_past_a_damaged_body_and_tells_once(log, caplog):
    """Its queue must count it: no replica will repair it."""
    positions = [log.put(body=b"%d" % number) for number in range(3)]
    log.flush()
    log.files.write(positions[1] + 88, (b"!",))
    for _ in range(3):
        assert [at for at, _ in log.entries()] == positions
    assert caplog.text.count("event=corruption") == 1
    with pytest.raises(DamagedEntry):
        log.body_at(positions[1], size_of(body=b"1"))


def test_walk_keeps_its_limits(log):
    positions = [log.put(body=b"x" * 900) for _ in range(9)]
    log.flush()
    end = log.end_position
    assert [at for at, *_ in log.walk(positions[2], end, 3)] == positions[2:5]
    assert [at for at, *_ in log.walk(positions[2], positions[4] + 5, 9)] == positions[2:5]
    assert [at for at, *_ in log.walk(positions[2], positions[4], 9)] == positions[2:4]
    assert list(log.walk(positions[3], end, 0)) == []
