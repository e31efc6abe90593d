"""Filling, searching, rolling and removing index files."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.runtime.errors import FatalError
from mutants.patches import BY_TESTS
from mutants.planting import planted
from store.config import IndexConfig
from store.index.codec import Layout, decode_header
from store.index.search import Span, search
from tests.unit.store.fakes import FakeDisk, FakeFile
from tests.unit.store.index import support
from tests.unit.store.index.support import find, keyed, make

WORDS = ["a", "b", "c", "dd"]
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("tu"),
        st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join),
        st.sampled_from([0, 4, 8, 12]),
    ),
    max_size=40,
).map(
    lambda rows: [
        keyed(n, topic=topic, keys=keys, flags=flags) for n, (topic, keys, flags) in enumerate(rows)
    ]
)


@given(MESSAGES, st.integers(1, 9), st.booleans())
def test_every_key_finds_its_messages_newest_first(messages, batch, flushes):
    index = make()
    for start in range(0, len(messages), batch):
        index.put_all(messages[start : start + batch])
        if flushes:
            support.checkpoint(index, support.log_mark(start))
    model = support.Model(messages)
    for topic in "tu":
        for key in [*WORDS, "missing"]:
            assert find(index, key, topic=topic) == model.physicals(key, topic)
        for number in range(len(messages)):
            key = f"{number:028X}{number:04X}"
            assert find(index, key, topic=topic) == model.physicals(key, topic)


def test_other_keys_with_the_same_hash_are_found_too_so_that_the_caller_must_look():
    index = make()
    index.put_all([keyed(0, unique="", keys="Aa"), keyed(1, unique="", keys="BB")])
    assert find(index, "Aa") == find(index, "BB") == [100, 0]


def test_a_message_is_found_once_though_it_has_a_key_twice():
    index = make()
    index.put_all([keyed(0, unique="k", keys="k k")])
    assert index.files[0].count == 4
    assert find(index, "k") == [0]


def test_what_is_known_already_is_passed_over():
    index = make()
    index.put_all([keyed(n) for n in range(4)])
    index.put_all([keyed(n) for n in range(1, 6)])
    assert index.files[0].count == 7
    assert index.last_physical == 500


def test_limit_counts_from_the_newest():
    index = make()
    index.put_all([keyed(n, keys="k") for n in range(20)])
    assert find(index, "k", limit=3) == [1900, 1800, 1700]


def test_times_are_compared_in_whole_seconds_from_the_files_first():
    index = make(entries=1000)
    index.put_all([keyed(n, unique="", keys="k") for n in range(20)])
    first = 1_700_000_000_000
    assert find(index, "k", span=Span(first + 1000, first + 1999)) == [700, 600, 500, 400]
    assert find(index, "k", span=Span(first + 1001, first + 1999)) == []
    assert find(index, "k", span=Span(first - 9, first)) == [300, 200, 100, 0]
    assert find(index, "k", span=Span(first + 100_000, first + 200_000)) == []
    assert find(index, "k", span=Span(0, first - 1)) == []


def test_search_looks_at_no_more_entries_than_it_may():
    index = make(slots=1, entries=1000)
    index.put_all([keyed(n, unique="", keys=f"k{n}") for n in range(100)])
    assert search(index, (b"t", b"k0"), 64, support.ALWAYS, 99).physicals == []
    assert search(index, (b"t", b"k0"), 64, support.ALWAYS, 100).physicals == [0]


def test_search_tells_the_end_of_the_index():
    index = make()
    assert search(index, (b"t", b"k"), 64, support.ALWAYS, 100) == ([], 0, 0)
    index.put_all([keyed(n) for n in range(12)])
    found = search(index, (b"t", b"k"), 64, support.ALWAYS, 100)
    assert found == ([], 1_700_000_000_000 + 11 * 250, 1100)


def test_a_full_file_is_followed_by_one_that_counts_from_its_end():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n, every_ms=4000) for n in range(12)])
    support.checkpoint(index, support.log_mark(11), is_last=True)
    layout = Layout(16, 10)
    first, second = support.contents(disk).values()
    assert decode_header(first).next_number == 10
    assert decode_header(second)[:4] == (
        1_700_000_000_000 + 36_000, 1_700_000_000_000 + 44_000, 900, 1100,
    )  # fmt: skip
    at = layout.entry_at(1) + 12
    assert int.from_bytes(second[at : at + 4], "big") == 4, "seconds since the end of the first"


def headers_after_a_kill(disk):
    """What RocketMQ finds: entries were written, and no slots."""
    index = make(disk)
    index.put_all([keyed(n, every_ms=4000) for n in range(12)])
    assert index.flush()
    return [decode_header(data) for data in support.contents(disk).values()]


def test_a_new_file_says_where_the_one_before_ends_before_it_has_slots():
    """With 0 there, RocketMQ puts every message that it dispatches again into it, a second time."""
    _, second = headers_after_a_kill(FakeDisk())
    end = 1_700_000_000_000 + 8 * 4000
    assert second == (end, end, 800, 800, 0, 1)


def test_names_rise_though_the_clock_stands_still():
    index = make(entries=3)
    index.put_all([keyed(n) for n in range(10)])
    names = [file.name for file in index.files]
    assert names == sorted(set(names))
    assert len(names) == 5
    assert {len(name) for name in names} == {17}


def test_nothing_is_on_disk_before_a_flush_and_each_entry_is_written_once():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n) for n in range(5)])
    assert support.contents(disk) == {}
    assert index.flush()
    (data,) = support.contents(disk).values()
    assert not any(data[: Layout(16, 10).entry_at(1)])
    disk.writes_left = 0
    assert index.flush()


def test_slots_are_written_when_half_a_table_of_entries_is_new():
    index = make(slots=16, entries=1000)
    written = []
    for number in range(24):
        index.put_all([keyed(number)])
        support.checkpoint(index, support.log_mark(number))
        written.append(index.files[0].slots_count)
    assert sorted(set(written)) == [0, 9, 18]


def test_a_full_file_gives_its_table_back_when_it_is_on_disk():
    index = make()
    index.put_all([keyed(n) for n in range(12)])
    assert [file.table is None for file in index.files] == [False, False]
    support.checkpoint(index, support.log_mark(11))
    assert [file.table is None for file in index.files] == [True, False]
    assert find(index, f"{3:028X}0003") == [300]


def test_index_timestamp_is_that_of_the_last_file_whose_slots_are_on_disk():
    index = make()
    assert index.index_timestamp == 0
    index.put_all([keyed(n) for n in range(12)])
    support.checkpoint(index, support.log_mark(11))
    assert index.index_timestamp == 1_700_000_000_000 + 8 * 250
    support.checkpoint(index, support.log_mark(11), is_last=True)
    assert index.index_timestamp == 1_700_000_000_000 + 11 * 250


def test_a_full_disk_loses_nothing():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n, keys="k") for n in range(3)])
    disk.writes_left = 0
    assert not index.flush()
    index.put_all([keyed(n, keys="k") for n in range(3, 9)])
    assert find(index, "k") == [n * 100 for n in range(8, -1, -1)]
    disk.writes_left = None
    support.checkpoint(index, support.log_mark(8))
    again, _ = support.reopened(disk, support.Log(9))
    assert find(again, "k") == [n * 100 for n in range(8, -1, -1)]


def test_a_checkpoint_that_found_no_space_is_made_again():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n) for n in range(3)])
    assert index.flush()
    plan = index.plan(support.log_mark(2), is_last=True)
    disk.writes_left = 0
    assert not plan.run()
    index.settle(plan, is_written=False)
    disk.writes_left = None
    assert index.handles.unsynced
    assert index.wants_slots
    support.checkpoint(index, support.log_mark(2), is_last=True)
    assert not index.handles.unsynced
    assert not index.wants_slots


def test_another_error_of_the_disk_is_fatal():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(0)])
    disk.writes_left, disk.error = 0, errno.EIO
    with pytest.raises(FatalError, match="/s/index/"):
        index.flush()
    disk.writes_left = None
    index.flush()
    disk.sync_fails = True
    with pytest.raises(FatalError, match="/s/index/"):
        index.plan(support.log_mark(0)).run()


@pytest.mark.parametrize("which", range(4))
def test_a_sync_that_finds_no_space_is_fatal(monkeypatch, which):
    """The kernel takes what it could not write for clean: the next sync would say nothing."""
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n) for n in range(15)])
    assert index.flush()
    plan = index.plan(support.log_mark(14), is_last=True)
    left = iter([True] * which)

    def fdatasync(_file):
        if not next(left, False):
            raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(FakeFile, "fdatasync", fdatasync)
    with pytest.raises(FatalError, match="/s/index/"):
        plan.run()


def test_such_a_sync_that_is_tried_again_is_seen(monkeypatch):
    with planted(BY_TESTS["index-synced-again"]), pytest.raises(pytest.fail.Exception):
        test_a_sync_that_finds_no_space_is_fatal(monkeypatch, 0)


def test_there_is_room_until_too_much_waits(monkeypatch):
    monkeypatch.setattr("store.index.key_index.UNWRITTEN_BYTES_MAX", 100)
    index = make()
    index.put_all([keyed(n) for n in range(4)])
    assert index.has_room
    index.put_all([keyed(4)])
    assert not index.has_room
    assert index.flush()
    assert index.has_room


def test_files_before_the_log_are_removed_never_the_last_nor_during_a_checkpoint():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n) for n in range(30)])
    assert index.flush()
    plan = index.plan(support.log_mark(29))
    index.drop_before(901)
    assert index.flush()
    assert len(support.contents(disk)) == 4
    index.settle(plan, is_written=plan.run())
    assert index.flush()
    assert len(support.contents(disk)) == len(index.files) == 3
    index.drop_before(10**9)
    assert index.flush()
    assert len(support.contents(disk)) == len(index.files) == 1


def test_reset_removes_everything_and_the_checkpoint_on_its_way_counts_no_more():
    disk = FakeDisk()
    index = make(disk)
    index.put_all([keyed(n) for n in range(12)])
    assert index.flush()
    plan = index.plan(support.log_mark(11))
    index.reset()
    assert support.contents(disk) == {}
    index.settle(plan, is_written=True)
    index.put_all([keyed(0, keys="k")])
    assert find(index, "k") == [0]


@pytest.mark.parametrize("field", [{"slots": 0}, {"entries": 1}, {"slots": 10**9}])
def test_sizes_that_make_no_sense_are_refused(field):
    with pytest.raises(ValueError, match=r"maxHashSlotNum|maxIndexNum"):
        IndexConfig(**field)
