"""Starts of the index: after a clean stop, a crash, damage, and from files of RocketMQ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.index.recovery import load_index
from tests.unit.store.fakes import FakeDisk
from tests.unit.store.index import support
from tests.unit.store.index.support import (
    Log,
    agree,
    checkpoint,
    find,
    keyed,
    log_mark,
    make,
    reopened,
)

KEYS = ["a", "b", "a b", "", "c c", "a c"]


def messages(count, first=0):
    return [keyed(n, keys=KEYS[n % len(KEYS)]) for n in range(first, count)]


def check(index, count):
    """Compare every answer with the model of ``count`` messages."""
    model = support.Model(messages(count))
    for key in ("a", "b", "c"):
        assert find(index, key) == model.physicals(key)[:64]
    for number in range(count):
        key = f"{number:028X}{number:04X}"
        assert find(index, key) == [number * 100]


def files_of(count, *, slots=16, entries=10):
    """Return the files of an index that was filled without a break."""
    disk = FakeDisk()
    index = make(disk, slots=slots, entries=entries)
    index.put_all(messages(count))
    checkpoint(index, log_mark(count - 1), is_last=True)
    return list(support.contents(disk).values())


def test_after_a_clean_stop_nothing_is_dispatched_again_and_nothing_is_walked():
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(30))
    checkpoint(index, log_mark(29), is_last=True)
    again, first = reopened(disk, Log(30))
    assert first == 30
    assert [file.slots_count for file in again.files] == [file.count for file in again.files]
    check(again, 30)
    again.put_all(messages(40, 30))
    check(again, 40)
    checkpoint(again, log_mark(39), is_last=True)
    assert list(support.contents(disk).values()) == files_of(40)


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from(["", "flush", "mark", "last"])), max_size=8
    ),
    st.integers(0, 100),
    st.sampled_from([4, 16, 64]),
)
def test_after_a_crash_the_index_is_made_equal_to_one_that_never_broke(steps, writes, slots):
    disk = FakeDisk()
    index = make(disk, slots=slots)
    count = 0
    for number, (more, then) in enumerate(steps):
        index.put_all(messages(count + more, count))
        count += more
        if number == len(steps) - 1:
            disk.writes_left = writes  # power goes in the middle of what follows
        if then == "flush":
            index.flush()
        elif then and index.flush():
            for _ in range(1 + (then == "last")):
                plan = index.plan(log_mark(count - 1), is_last=then == "last")
                if not plan.run():
                    break
                index.settle(plan, is_written=True)
    disk.writes_left = None
    again, first = reopened(disk, Log(count), slots=slots)
    assert 0 <= first <= count
    again.put_all(messages(count, first))
    check(again, count)
    if count:
        checkpoint(again, log_mark(count - 1), is_last=True)
        assert list(support.contents(disk).values()) == files_of(count, slots=slots)


@given(st.integers(1, 40), st.integers(0, 39), st.integers(1, 40), st.booleans())
def test_what_the_log_lost_is_dropped(count, kept, marked, crashes_again):
    kept = min(kept, count - 1)
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(min(marked, count)))
    checkpoint(index, log_mark(min(marked, count) - 1))
    index.put_all(messages(count, min(marked, count)))
    checkpoint(index, log_mark(count - 1), is_last=True)
    queues = log_mark(kept - 1) if kept else None
    again, first = reopened(disk, Log(kept), queues_mark=queues)
    if crashes_again:
        again, first = reopened(disk, Log(kept), queues_mark=queues)
    assert first <= kept
    again.put_all(messages(kept, first))
    check(again, kept)
    again.put_all(messages(50, kept))
    check(again, 50)
    checkpoint(again, log_mark(49), is_last=True)
    third, first = reopened(disk, Log(50))
    assert first == 50
    check(third, 50)


def test_an_index_of_another_size_is_made_anew():
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(30))
    checkpoint(index, log_mark(29), is_last=True)
    again, first = reopened(disk, Log(30), slots=17)
    assert first == 0
    assert support.contents(disk) == {}
    again.put_all(messages(30))
    check(again, 30)


def test_files_that_no_checkpoint_names_are_removed_other_names_are_left_alone():
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(5))
    checkpoint(index, log_mark(4))
    disk.files["/s/index/99991231235959999"] = bytearray(3)
    disk.files["/s/index/readme"] = bytearray(3)
    reopened(disk, Log(5))
    assert "/s/index/readme" in disk.files
    assert "/s/index/99991231235959999" not in disk.files


DAMAGE = st.tuples(
    st.sampled_from(["flip", "cut", "zero", "fill", "remove"]),
    st.integers(0, 10**6),
    st.integers(0, 7),
)


@given(st.lists(DAMAGE, min_size=1, max_size=3), st.booleans(), st.sampled_from([5, 9, 30, 60]))
def test_damaged_files_never_lead_out_of_the_log_and_never_hang(damages, is_last, count):
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(count))
    checkpoint(index, log_mark(count - 1), is_last=is_last)
    paths = [*support.contents(disk), index.mark_path]
    for kind, place, bit in damages:
        data = disk.files.get(paths[place % len(paths)])
        if not data:
            continue
        at = place // len(paths) % len(data)
        if kind == "flip":
            data[at] ^= 1 << bit
        elif kind == "cut":
            del data[at:]
        elif kind == "zero":
            data[at:] = bytes(len(data) - at)
        elif kind == "fill":
            data[at:] = b"\xff" * (len(data) - at)
        else:
            del disk.files[paths[place % len(paths)]]
    again, first = reopened(disk, Log(count), queues_mark=log_mark(count - 1))
    again.put_all(messages(count + 20, first))
    last = max(physical for _, _, physical, _, _ in messages(count + 20))
    for key in ("a", "b", "c", f"{3:028X}0003"):
        found = find(again, key, limit=1000)
        assert len(found) == len(set(found))
        # A flipped offset may be none of a message: who asks reads the record, see `KeyQuery`.
        assert all(0 <= physical <= last for physical in found)
    checkpoint(again, log_mark(count + 19), is_last=True)


@pytest.mark.parametrize("broken", ["size", "header", "last"])
def test_a_file_that_is_not_as_its_mark_says_is_made_again_with_all_behind_it(broken):
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(30))
    checkpoint(index, log_mark(29), is_last=True)
    path = list(support.contents(disk))[2]
    file = index.files[2]
    if broken == "size":
        disk.files[path] += b"\0"
    elif broken == "header":
        disk.files[path][3] ^= 1
    else:
        disk.files[path][file.layout.entry_at(file.count - 1) + 11] ^= 1
    again, first = reopened(disk, Log(30))
    assert 0 < first <= 18
    again.put_all(messages(30, first))
    check(again, 30)
    checkpoint(again, log_mark(29), is_last=True)
    assert list(support.contents(disk).values()) == files_of(30)


def test_damage_found_by_a_search_is_repaired_by_the_next_start():
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(30))
    checkpoint(index, log_mark(29), is_last=True)
    again, _ = reopened(disk, Log(30))
    file = again.files[1]
    at = file.layout.entry_at(file.newest(again.handles, support_hash("a"))) + 16
    disk.files[file.path][at : at + 4] = b"\x7f\xff\xff\xff"
    find(again, "a", limit=1000)
    assert file.is_damaged
    checkpoint(again, log_mark(29), is_last=True)
    third, first = reopened(disk, Log(30))
    assert first < 30
    third.put_all(messages(30, first))
    check(third, 30)


def support_hash(key):
    from store.index.codec import key_hash

    return key_hash(b"t", key.encode())


def rocketmqs(count):
    """Return a disk with an index as RocketMQ leaves it: no checkpoint of ours."""
    disk = FakeDisk()
    index = make(disk)
    index.put_all(messages(count))
    checkpoint(index, log_mark(count - 1), is_last=True)
    disk.remove(index.mark_path)
    return disk, index


def test_files_of_rocketmq_are_taken_over_after_a_clean_stop():
    disk, _ = rocketmqs(30)
    index = make(disk)
    loaded = load_index(index, trusted_until=None)
    assert agree(index, loaded, Log(30), None) == 29
    index.put_all(messages(30, 29))
    check(index, 30)
    checkpoint(index, log_mark(29), is_last=True)
    assert list(support.contents(disk).values()) == files_of(30)


def test_after_a_crash_of_rocketmq_files_behind_its_checkpoint_are_made_again():
    disk, theirs = rocketmqs(30)
    index = make(disk)
    loaded = load_index(index, trusted_until=theirs.files[1].end_timestamp)
    assert len(index.files) == 2
    first = agree(index, loaded, Log(30), None)
    assert first == theirs.files[1].end_physical // 100
    index.put_all(messages(30, first))
    check(index, 30)
    checkpoint(index, log_mark(29), is_last=True)
    assert list(support.contents(disk).values()) == files_of(30)


def test_files_of_rocketmq_that_name_no_message_of_the_log_are_made_again():
    disk, _ = rocketmqs(30)
    index = make(disk)
    loaded = load_index(index, trusted_until=None)
    assert agree(index, loaded, Log(20), None) == 0
    assert support.contents(disk) == {}


def test_files_that_rocketmq_went_on_with_are_taken_over():
    disk, theirs = rocketmqs(30)
    short = FakeDisk()
    ours = make(short)
    ours.put_all(messages(12))
    checkpoint(ours, log_mark(11), is_last=True)
    names = [file.name for file in theirs.files[: len(ours.files)]]
    disk.files[ours.mark_path] = bytearray(short.files[ours.mark_path])
    assert names == [file.name for file in ours.files]
    index = make(disk)
    loaded = load_index(index, trusted_until=None)
    assert len(index.files) == len(theirs.files)
    assert agree(index, loaded, Log(30), None) == 29
    index.put_all(messages(30, 29))
    check(index, 30)
    checkpoint(index, log_mark(29), is_last=True)
    assert list(support.contents(disk).values()) == files_of(30)


def test_after_a_crash_of_rocketmq_what_it_went_on_with_is_made_again():
    disk, theirs = rocketmqs(30)
    short = FakeDisk()
    ours = make(short)
    ours.put_all(messages(12))
    checkpoint(ours, log_mark(11), is_last=True)
    disk.files[ours.mark_path] = bytearray(short.files[ours.mark_path])
    again, first = reopened(disk, Log(30))
    assert first <= 12
    again.put_all(messages(30, first))
    check(again, 30)
    assert len(again.files) == len(theirs.files)


class TrimmedLog(Log):
    """One whose beginning is gone."""

    def __init__(self, count, first_position):
        super().__init__(count)
        self.first_position = first_position

    def maybe_size(self, physical):
        return super().maybe_size(physical) if physical >= self.first_position else None


def after_a_trim(disk, *, first_position):
    """Return what a start finds of 30 messages whose first index file is gone: begin, files."""
    index = make(disk)
    index.put_all([keyed(n) for n in range(30)])
    checkpoint(index, log_mark(29))
    index.drop_before(901)
    assert index.flush()
    assert len(support.contents(disk)) == 3
    again, first = reopened(disk, TrimmedLog(30, first_position))
    return first, [file.begin_physical // 100 for file in again.files]


def test_files_that_went_with_the_log_are_not_missed():
    """Nothing came behind the trim that would have made a checkpoint due."""
    assert after_a_trim(FakeDisk(), first_position=1000) == (30, [9, 18, 27])


def test_a_file_that_is_missed_though_the_log_has_its_messages_is_made_anew():
    assert after_a_trim(FakeDisk(), first_position=0) == (0, [])
    assert after_a_trim(FakeDisk(), first_position=800) == (8, [])
