"""Corruption in index files: noticed before it hides a message, and repaired by the next start."""

from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.index import crcs, slots
from store.index.codec import ENTRY_BYTES, HEADER_BYTES, Layout
from store.index.crcs import EntryCrcs, SlotCrcs
from store.index.file import IndexFile
from store.index.marks import encode_mark, maybe_decode_mark
from tests.unit.store.fakes import FakeDisk
from tests.unit.store.index import support
from tests.unit.store.index.support import Log, checkpoint, find, keyed, log_mark, make, reopened

COUNT = 25
SLOTS, ENTRIES = 16, 18
LAYOUT = Layout(SLOTS, ENTRIES)


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crcs, "BLOCK_ENTRIES", 4)
        patch.setattr(slots, "_READ_SLOTS", 4)
        yield


def messages(count, first=0):
    return [keyed(n, keys=f"k{n % 3}") for n in range(first, count)]


def stored(count=COUNT):
    """Return a disk with an index: two full files and one that grows."""
    disk = FakeDisk()
    index = make(disk, slots=SLOTS, entries=ENTRIES)
    for first in range(0, count, 7):
        index.put_all(messages(min(first + 7, count), first))
        index.flush()
    checkpoint(index, log_mark(count - 1), is_last=True)
    return disk


def answers(index):
    keys = ["k0", "k1", "k2", *(f"{n:028X}{n:04X}" for n in range(COUNT))]
    return {key: find(index, key) for key in keys}


def expected():
    model = support.Model(messages(COUNT))
    return {key: model.physicals(key) for key in answers(make())}


def open_again(disk):
    return reopened(disk, Log(COUNT), slots=SLOTS, entries=ENTRIES)


def names(disk):
    return sorted(path for path in disk.files if path.startswith("/s/index/"))


def flips(disk, number):
    """Return the bytes of a file whose damage is to be noticed."""
    index, _ = open_again(disk)
    entries = range(LAYOUT.entry_at(1), LAYOUT.entry_at(index.files[number].count))
    return [*range(HEADER_BYTES, LAYOUT.slot_at(SLOTS)), *entries]


def unnoticed(number, mask):
    """Return the bytes of a file whose damage hides a message, and nobody notices."""
    found = []
    right = expected()
    sound = stored()
    for offset in flips(sound, number):
        disk = stored()
        disk.files[names(disk)[number]][offset] ^= mask
        index, first = open_again(disk)
        if first == COUNT:
            is_right = answers(index) == right
            if not any(file.is_damaged for file in index.files):
                found += [] if is_right else [offset]
                continue
            checkpoint(index, log_mark(COUNT - 1))
            index, first = open_again(disk)
        index.put_all(messages(COUNT, first))
        assert answers(index) == right, f"not repaired: {offset}"
    return found


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("mask", [1, 128])
def test_no_flipped_bit_hides_a_message_unnoticed(number, mask):
    assert unnoticed(number, mask) == []


BUGS = {
    "entries not compared": (EntryCrcs, "maybe_damaged", lambda self, first, end, read: None),
    "slots not compared": (SlotCrcs, "is_damaged", lambda self, part, read: False),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_caught(monkeypatch, bug):
    owner, name, planted = BUGS[bug]
    monkeypatch.setattr(owner, name, planted)
    assert unnoticed(0, 1)


def test_a_block_is_read_once_and_only_when_it_is_asked_for(monkeypatch):
    disk = stored()
    index, _ = open_again(disk)
    read = []
    monkeypatch.setattr(crcs, "crc32", lambda data: read.append(len(data)) or crc32(data))
    assert find(index, "k0") == expected()["k0"]
    assert len(read) > 0
    assert set(read) <= {4 * ENTRY_BYTES, 3 * ENTRY_BYTES, 2 * ENTRY_BYTES, ENTRY_BYTES, 16}
    read.clear()
    assert find(index, "k0") == expected()["k0"]
    assert read == []


def test_slots_that_lead_into_another_chain_are_noticed_without_a_crc(monkeypatch):
    disk = stored()
    monkeypatch.setattr(SlotCrcs, "is_damaged", lambda self, part, read: False)
    path = names(disk)[2]
    index, _ = open_again(disk)
    cells = {n: index.files[2].table.cells[n] for n in range(SLOTS)}
    used = [n for n, value in cells.items() if value]
    one, other = used[:2]
    disk.files[path][LAYOUT.slot_at(one) : LAYOUT.slot_at(one) + 4] = cells[other].to_bytes(
        4, "big"
    )
    index, _ = open_again(disk)
    answers(index)
    assert index.files[2].is_damaged


def test_a_file_goes_on_with_its_crcs_and_loses_them_with_what_is_cut():
    disk = stored(10)
    index, first = reopened(disk, Log(10), slots=SLOTS, entries=ENTRIES)
    index.put_all(messages(COUNT, first))
    checkpoint(index, log_mark(COUNT - 1), is_last=True)
    assert disk.files["/s/index.checkpoint"] == stored().files["/s/index.checkpoint"]
    cut, first = reopened(disk, Log(12), slots=SLOTS, entries=ENTRIES, queues_mark=log_mark(11))
    assert first == 12
    cut.put_all(messages(COUNT, first))
    checkpoint(cut, log_mark(COUNT - 1), is_last=True)
    index, first = open_again(disk)
    assert first == COUNT
    assert answers(index) == expected()
    assert not any(file.is_damaged for file in index.files)
    marks = [maybe_decode_mark(bytes(one.files["/s/index.checkpoint"])) for one in (disk, stored())]
    assert [file.entry_crcs for file in marks[0].files] == [
        file.entry_crcs for file in marks[1].files
    ]


def test_a_mark_of_before_there_were_crcs_is_taken(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(EntryCrcs, "packed", lambda self: b"")
        patch.setattr(SlotCrcs, "of", lambda parts: None)
        disk = stored()
    index, first = open_again(disk)
    assert first == COUNT
    assert index.files[0].crcs is None
    assert answers(index) == expected()


def test_after_a_crash_slots_written_since_are_not_taken_for_damage():
    disk = stored(10)
    index, first = reopened(disk, Log(10), slots=SLOTS, entries=ENTRIES)
    index.put_all(messages(COUNT, first))
    assert index.flush()
    plan = index.plan(log_mark(COUNT - 1), is_last=True)
    writes = iter(plan.slots)
    disk.replace(plan.mark_path, encode_mark(plan.mark))
    write = next(writes)
    write.run(disk.open(write.file.path, size=LAYOUT.file_bytes))
    again, first = open_again(disk)  # the process was killed here
    again.put_all(messages(COUNT, first))
    assert answers(again) == expected()
    assert not any(file.is_damaged for file in again.files)


def crashed(count=60):
    """Return a disk with one file that grows; its slots were written, then entries were added."""
    disk = FakeDisk()
    index = make(disk, slots=SLOTS, entries=1000)
    for first, is_noted in ((0, True), (20, True), (40, True), (43, False)):
        index.put_all(messages(count if first == 43 else {0: 20, 20: 40, 40: 43}[first], first))
        if is_noted:
            assert index.flush()
            checkpoint(index, log_mark(index.last_physical // 100))
    mark = maybe_decode_mark(bytes(disk.files["/s/index.checkpoint"]))
    assert 1 < mark.files[0].slots_count < mark.files[0].count
    assert mark.files[0].slot_crcs
    return disk


def after_a_crash(disk, count=60):
    """Return the index once it has everything, and how many messages were dispatched again."""
    index, first = reopened(disk, Log(count), slots=SLOTS, entries=1000)
    index.put_all(messages(count, first))
    return index, count - first


def every_answer(index, count=60):
    keys = ["k0", "k1", "k2", *(f"{n:028X}{n:04X}" for n in range(count))]
    return {key: find(index, key) for key in keys}


def hidden_after_a_crash(change):
    """Return the bytes of the slots whose damage then hides or changes an answer."""
    right = every_answer(after_a_crash(crashed())[0])
    assert right["k0"] == support.Model(messages(60)).physicals("k0")
    found = []
    for offset in range(HEADER_BYTES, LAYOUT.slot_at(SLOTS)):
        disk = crashed()
        (path,) = names(disk)
        disk.files[path][offset] = change(disk.files[path][offset])
        index, again = after_a_crash(disk)
        assert again == 17, "the entries have all that is needed"
        assert not index.files[0].is_damaged
        found += [] if every_answer(index) == right else [offset]
    return found


CHANGES = {
    "lowest bit": lambda byte: byte ^ 1, "highest bit": lambda byte: byte ^ 128,
    "all bits": lambda byte: byte ^ 255, "zero": lambda byte: 0,
    "an older entry": lambda byte: byte and byte - 1,
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_no_damaged_slot_hides_a_message_after_a_crash(change):
    """The slots of the file that grows, which a start reads: what differs is made of entries."""
    assert hidden_after_a_crash(CHANGES[change]) == []


def test_slots_that_are_not_compared_after_a_crash_are_caught(monkeypatch):
    monkeypatch.setattr(SlotCrcs, "is_damaged", lambda self, part, read: False)
    assert hidden_after_a_crash(CHANGES["zero"])


def test_slots_without_crcs_are_made_of_the_entries():
    """As the checkpoint of an earlier version leaves them."""
    right = every_answer(after_a_crash(crashed())[0])
    disk = crashed()
    mark = maybe_decode_mark(bytes(disk.files["/s/index.checkpoint"]))
    file = msgspec.structs.replace(mark.files[0], slot_crcs=b"")
    disk.replace("/s/index.checkpoint", encode_mark(msgspec.structs.replace(mark, files=(file,))))
    (path,) = names(disk)
    disk.files[path][HEADER_BYTES : LAYOUT.slot_at(SLOTS)] = bytes(4 * SLOTS)
    assert every_answer(after_a_crash(disk)[0]) == right


def test_slots_made_anew_are_all_written(caplog):
    """Those that were 0 as well: corruption may have made something of them."""
    disks = [crashed(), crashed()]
    (path,) = names(disks[0])
    written = disks[1].files[path]
    for offset in range(HEADER_BYTES, LAYOUT.slot_at(SLOTS)):
        written[offset] ^= 255
    for disk in disks:
        index, _ = after_a_crash(disk)
        checkpoint(index, log_mark(59), is_last=True)
    assert "event=index_slots_made_anew" in caplog.text
    assert support.contents(disks[0]) == support.contents(disks[1])


def test_intact_slots_are_read_and_no_entry_before_them(monkeypatch):
    disk = crashed()
    mark = maybe_decode_mark(bytes(disk.files["/s/index.checkpoint"])).files[0]
    walked = []
    entries = IndexFile.entries

    def noting(self, handles, first, end):
        walked.append((first, end))
        return entries(self, handles, first, end)

    monkeypatch.setattr(IndexFile, "entries", noting)
    reopened(disk, Log(60), slots=SLOTS, entries=1000)
    assert walked == [(mark.slots_count, mark.count)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9)),
        st.tuples(st.just("cut"), st.integers(1, 30)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=20,
)


@given(STEPS, st.integers(2, 5))
def test_whatever_is_done_the_crcs_are_those_of_what_is_there(steps, block):
    before, crcs.BLOCK_ENTRIES = crcs.BLOCK_ENTRIES, block
    try:
        content = bytearray(ENTRY_BYTES)

        def read(first, end):
            return bytes(content[first * ENTRY_BYTES : end * ENTRY_BYTES])

        made = EntryCrcs()
        for name, number in steps:
            end = len(content) // ENTRY_BYTES
            if name == "add":
                data = bytes(range(number)) * ENTRY_BYTES
                content += data
                made.add(data)
            elif name == "cut" and number < end:
                del content[number * ENTRY_BYTES :]
                made.cut(number, read)
            elif name == "reopen":
                made = EntryCrcs.maybe_unpacked(made.packed(), made.end)
            end = len(content) // ENTRY_BYTES
            assert made.end == end
            again = EntryCrcs.maybe_unpacked(made.packed(), end)
            assert again.maybe_damaged(1, end, read) is None
            if end > 1:
                content[ENTRY_BYTES + 3] ^= 1
                again = EntryCrcs.maybe_unpacked(made.packed(), end)
                assert again.maybe_damaged(1, end, read) == 1
                content[ENTRY_BYTES + 3] ^= 1
    finally:
        crcs.BLOCK_ENTRIES = before
