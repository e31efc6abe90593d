"""A row of segments: what lies where, which files are open, what goes and what stays."""

import errno

import pytest

from dledger.segments.open_files import OpenFiles
from dledger.segments.places import is_segment_name, pieces, segment_name
from dledger.segments.row import Segments
from dledger.segments.walk import NEXT_FILE, NOTHING_WRITTEN, walk
from ledgermq.runtime.disk import RealDisk
from ledgermq.runtime.errors import FatalError
from sim.disk import SimDisk
from sim.disk_rules import Action, Op, Rule
from sim.inode import PowerLossMode
from sim.rng import SplitRng

SIZE = 4096


def make(disk, *, files=0, open_max=None, start=0):
    """A row in which each file holds its number from its first byte to its last."""
    disk.make_directories("/row")
    row = Segments(disk, "/row", SIZE, range(start, start, SIZE), open_max=open_max)
    for number in range(files):
        row.write(start + number * SIZE, (bytes([number + 1]) * SIZE,))
    return row


def names(disk):
    return [int(name) for name in disk.names("/row")]


@pytest.fixture
def disk():
    return SimDisk(SplitRng(1))


def test_names_have_20_ascii_digits():
    assert segment_name(4096) == "00000000000000004096"
    assert is_segment_name(segment_name(4096))
    assert not is_segment_name("4096")
    assert not is_segment_name("\N{ARABIC-INDIC DIGIT ZERO}" * 20)


def test_range_is_cut_where_files_end():
    assert list(pieces(10, 20, 16)) == [(0, 10, 6), (16, 0, 14)]
    assert list(pieces(16, 16, 16)) == [(16, 0, 16)]
    assert list(pieces(5, 0, 16)) == []


def test_reading_goes_over_files_and_is_zero_where_none_is(disk):
    row = make(disk, files=2)
    assert row.read(SIZE - 2, 4) == b"\1\1\2\2"
    assert row.read(2 * SIZE - 1, 3) == b"\2\0\0"
    assert bytes(row.view(SIZE, 2)) == b"\2\2"
    with pytest.raises(LookupError):
        row.view(2 * SIZE, 1)
    assert row.locate(2 * SIZE + 7) == (None, 7)


def test_row_begins_where_it_is_first_written(disk):
    row = make(disk, files=1, start=3 * SIZE)
    assert (row.start, row.end) == (3 * SIZE, 4 * SIZE)
    row.write(6 * SIZE, (b"x",))
    assert names(disk) == [3 * SIZE, 4 * SIZE, 5 * SIZE, 6 * SIZE]


def test_cut_leaves_zeros_that_last(disk):
    row = make(disk, files=3)
    row.cut(SIZE + 5)
    disk.power_loss(PowerLossMode.LOST)
    assert names(disk) == [0, SIZE]
    again = Segments(disk, "/row", SIZE, range(0, 2 * SIZE, SIZE))
    assert again.nonzero_end(0) <= SIZE + 5


def test_dropped_file_is_read_on_and_its_sync_passes(disk):
    row = make(disk, files=3)
    view = row.segment_view(0)
    dirty = row.take_dirty()
    dropped = row.drop_below(2 * SIZE + 5)
    assert list(dropped.bases) == [0, SIZE]
    assert (row.start, row.segment_view(SIZE)) == (2 * SIZE, None)
    row.remove(dropped)
    row.sync(dirty)
    assert names(disk) == [2 * SIZE]
    assert view[0] == 1
    assert row.drop_below(2 * SIZE + 5).bases == range(2 * SIZE, SIZE + 1, SIZE)


def test_row_of_which_everything_went_begins_anew(disk):
    row = make(disk, files=2)
    row.remove(row.drop_below(1 << 40))
    assert row.is_empty
    row.write(7 * SIZE, (b"x",))
    assert (row.start, names(disk)) == (7 * SIZE, [7 * SIZE])
    row.clear()
    assert row.is_empty
    assert names(disk) == []


def test_files_that_wait_for_a_sync_stay_open(disk):
    row = make(disk, files=6, open_max=2)
    assert row.open_count == 6
    dirty = row.take_dirty()
    row.write(0, (b"x",))
    row.segment_view(SIZE)
    assert row.open_count == 6
    row.sync(dirty)
    row.make_room()
    assert row.open_count == 2  # the first is dirty again, the last one stays
    assert [row.segment_view(base)[1] for base in row.bases] == [1, 2, 3, 4, 5, 6]


def test_writing_again_ends_with_the_data_of_a_file(disk):
    row = make(disk, files=2)
    row.cut(SIZE + 100)
    row.write(2 * SIZE, (b"x" * 10,))
    row.sync(row.take_dirty())
    written = disk.writes
    row.rewrite(SIZE + 4, 2 * SIZE + 6)
    assert disk.writes - written == 2
    assert list(row.take_dirty()) == [SIZE, 2 * SIZE]


def test_file_of_another_size_is_refused(tmp_path):
    (tmp_path / segment_name(0)).write_bytes(b"x" * 100)
    with pytest.raises(FatalError, match="has 100 bytes, the configured size is 4096"):
        Segments(RealDisk(), str(tmp_path), SIZE, range(0, SIZE, SIZE))


def test_opening_of_many_waits_until_they_are_needed(disk):
    make(disk, files=4).close()
    row = Segments(disk, "/row", SIZE, range(0, 4 * SIZE, SIZE), open_max=4)
    assert row.open_count == 0
    assert row.peek(SIZE, 2) == b"\2\2"
    assert row.open_count == 0


def inspect(view, offset, position):
    """The codec of records of a length byte and so many bytes more; 255 ends a file."""
    assert position % SIZE == offset
    if view[offset] == 255:
        return NEXT_FILE
    return view[offset] or NOTHING_WRITTEN


def test_walk_goes_from_record_to_record_and_file_to_file(disk):
    row = make(disk)
    row.write(0, (b"\3ab\xff",))
    row.write(SIZE, (b"\2a\4abc",))
    assert walk(row, 0, inspect) == (SIZE + 6, NOTHING_WRITTEN)
    assert walk(row, 2 * SIZE, inspect) == (2 * SIZE, NOTHING_WRITTEN)


def test_walk_ends_where_the_next_file_is_missing_or_a_codec_says_so(disk):
    row = make(disk)
    row.write(0, (b"\3ab\xff",))
    assert walk(row, 0, inspect) == (3, NEXT_FILE)
    assert walk(row, 0, lambda view, offset, position: -7) == (0, -7)


def test_walk_passes_a_record_that_ends_with_its_file(disk):
    row = make(disk)
    row.write(SIZE - 2, (b"\2x",))
    row.write(SIZE, (b"\1",))
    assert walk(row, SIZE - 2, inspect) == (SIZE + 1, NOTHING_WRITTEN)


def test_file_without_space_to_be_written_again_is_named_and_the_rest_is_written(disk):
    row = make(disk, files=3)
    row.sync(row.take_dirty())
    full = frozenset({Op.WRITE})
    disk.add_rule(Rule(action=Action.FAIL, ops=full, glob=row.path(SIZE), error=errno.ENOSPC))
    written = disk.writes
    assert list(row.rewrite(0, 3 * SIZE)) == [row.path(SIZE)]
    assert disk.writes - written == 3  # one of them in vain
    assert row.read(0, 3 * SIZE)[::SIZE] == b"\1\2\3"
    disk.add_rule(Rule(action=Action.FAIL, ops=full, error=errno.EIO))
    with pytest.raises(OSError, match=r".") as caught:
        row.rewrite(0, 3 * SIZE)
    assert caught.value.errno == errno.EIO


def test_of_many_files_the_longest_unused_is_closed(disk):
    disk.make_directories("/many")
    files = OpenFiles(disk, file_bytes=SIZE, open_max=2)
    first, second = files.open("/many/1"), files.open("/many/2")
    assert files.open("/many/1") is first
    files.open("/many/3")
    assert (len(files), first.is_closed, second.is_closed) == (2, False, True)
    files.unsynced["/many/1"] = None
    files.remove("/many/1")
    assert (len(files), first.is_closed, files.unsynced) == (1, True, {})
    disk.add_rule(Rule(action=Action.FAIL, ops=frozenset({Op.REMOVE}), error=errno.EIO))
    with pytest.raises(FatalError, match="cannot remove /many/3"):
        files.remove("/many/3")
    files.close()
    assert len(files) == 0
