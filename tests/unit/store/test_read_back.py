"""What is read back quickly is what the reader of one record says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.dispatch.read_back import NO_MESSAGE, read_back
from store.layout import FLAG_NOT_INDEXED, CorruptRecord, read_record
from tests.unit.store.test_layout import record_of

records = st.builds(
    record_of,
    topic=st.sampled_from(["t", "orders", "o" * 127, "v2" * 100, "rmq_sys_LEDGER_STATE"]),
    body=st.binary(max_size=40),
    properties=st.sampled_from([b"", b"TAGS\x01a", b"p" * 300]),
    widths=st.sampled_from([(4, 4), (4, 4), (16, 4), (4, 16)]),
    transaction=st.sampled_from([0, 4, 12]),
)


def walk_of(entries, gap=48):
    """Return the walk over one chunk that holds these bodies, each behind a header.

    Each states where it lies, as far as it is long enough.
    """
    walk, at = [], 0
    placed = []
    for entry in entries:
        place = (1000 + at + gap).to_bytes(8, "big")
        placed.append(entry[:28] + place + entry[36:] if len(entry) >= 36 else entry)
        at += gap + len(entry)
    entries = placed
    chunk = b"".join(bytes(gap) + entry for entry in entries)
    at = 0
    for entry in entries:
        walk.append((1000 + at + gap, chunk, at + gap, len(entry)))
        at += gap + len(entry)
    return walk


def slowly(walk):
    """Return the records, and where entries lie that hold none of their size."""
    found, others = [], []
    for physical, chunk, at, body_bytes in walk:
        try:
            fields = read_record(chunk, at)
        except CorruptRecord:
            others.append(physical)
            continue
        stated = int.from_bytes(chunk[at + 28 : at + 36], "big", signed=True)
        if fields[0] != body_bytes or stated != physical:
            others.append(physical)
            continue
        found.append((physical, *fields, chunk, at))
    return found, others


def quickly(walk):
    found = []
    read_back(walk, found)
    others = [one for one in found if one[6] is NO_MESSAGE]
    assert all(one[4] & FLAG_NOT_INDEXED and one[7] for one in others)
    return [one for one in found if one[6] is not NO_MESSAGE], [one[0] for one in others]


@given(st.lists(records, max_size=6))
def test_whole_records_are_read_back(entries):
    found, others = quickly(walk_of(entries))
    assert (found, others) == (slowly(walk_of(entries))[0], [])
    assert len(found) == len(entries)


@given(st.lists(records, min_size=2, max_size=4), st.data())
def test_a_damaged_head_or_end_is_noticed_as_by_the_reader_of_one(entries, data):
    number = data.draw(st.integers(0, len(entries) - 1))
    damaged = bytearray(entries[number])
    lengths = [0, 3, 4, 7, 35, 36, 39, 84, 87]
    at = data.draw(st.sampled_from(lengths) | st.integers(88, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    walk = walk_of([*entries[:number], bytes(damaged), *entries[number + 1 :]])
    assert quickly(walk) == slowly(walk)


@given(st.binary(max_size=200))
def test_any_bytes_behind_a_record_are_none(entry):
    found, others = quickly(walk_of([record_of(), entry]))
    assert (len(found), len(others)) == (1, 1)
    assert others[0] > found[0][0]


@pytest.mark.parametrize(
    ("at", "mask"), [(39, 0x10), (39, 0x20), (88 + 9 + 2, 1), (88 + 9 + 3, 1), (3, 4), (7, 4)]
)
def test_what_differs_from_the_record_before_is_looked_at(at, mask):
    """A host's width, the two bytes of the properties' length, the size, the magic number."""
    one = record_of(body=b"123456789", properties=b"abcd")
    other = bytearray(one)
    other[at] ^= mask
    walk = walk_of([one, bytes(other)])
    assert quickly(walk) == slowly(walk)
    assert len(quickly(walk)[0]) == 1


def test_a_body_is_not_shorter_than_nothing():
    one = record_of()
    other = bytearray(one)
    other[84:88] = (-88 - 48).to_bytes(4, "big", signed=True)
    walk = walk_of([one, bytes(other)])
    begin = walk[1][2] - 48
    rest = len(one) + 48 - 4
    chunk = bytearray(walk[0][1])
    chunk[begin : begin + 4] = b"\x01t" + rest.to_bytes(2, "big")
    spoilt = [(place, bytes(chunk), *rest) for place, _, *rest in walk]
    assert quickly(spoilt)[1] == [walk[1][0]]
