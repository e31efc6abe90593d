"""The index files that real brokers wrote: the same messages give the same bytes."""

import pytest

from store.index.codec import FIRST_ENTRY, Layout, decode_header
from tests.unit.store.fakes import FakeDisk
from tests.unit.store.index import support

SLOTS = 5_000_000
RECORDINGS = [
    ("dledger-4.9.7", "store-n0/", 2000),
    ("master-4.9.7-killed", "store/", 400),
]


def used(data, layout):
    """Return what counts of a file: header, slots, and the entries below the next number."""
    header = decode_header(data)
    return (
        header,
        data[40 : layout.entry_at(FIRST_ENTRY)],
        data[layout.entry_at(FIRST_ENTRY) : layout.entry_at(header.next_number)],
    )


@pytest.mark.parametrize(("name", "prefix", "entries"), RECORDINGS)
def test_the_messages_of_a_recording_give_its_index_byte_for_byte(name, prefix, entries):
    theirs, messages = support.recorded(name, prefix)
    layout = Layout(SLOTS, entries)
    disk = FakeDisk()
    index = support.make(disk, slots=SLOTS, entries=entries)
    for start in range(0, len(messages), 7):
        index.put_all(messages[start : start + 7])
    support.checkpoint(index, support.log_mark(0), is_last=True)
    ours = support.contents(disk)
    assert len(ours) == len(theirs) > 1
    for mine, other in zip(ours.values(), theirs.values(), strict=True):
        assert len(mine) == len(other)
        assert used(mine, layout) == used(other, layout)
